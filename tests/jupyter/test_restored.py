"""After a restoration: everything is as it was, and what cells use goes on working."""

import os
import random
import signal
import time

import pytest

from support import processes, reading
from support.limits import tight_argv
from support.reading import run
from support.reading import value as values

LONG = "; import time; time.sleep(0.11)  # now"  # it has a snapshot, and is answered when that is decided


def value(kernel, code):
    return reading.result(run(kernel, code))


def lose(kernel):
    """Kill the guest while nothing runs; return what the card says is not restored.

    A cell that had just ended may have been run again: that is said, and nothing is missing.
    """
    os.kill(kernel.sole_guest(), signal.SIGKILL)
    shown = kernel.until(lambda m: m["msg_type"] == "display_data")
    (card,) = reading.cards(shown, "outcome")
    assert (card["reason"], card["state"]) == ("crashed", "restored")
    return [said for said in card["lost"] if not said.endswith("was run again")]


# --- what a cell had -----------------------------------------------------------------------------

STATE = """
import collections, json as js
class Point:
    made = 0
    def __init__(self, x):
        self.x = x
        type(self).made += 1
def double(x): return 2 * x
point, numbers, nested = Point(1), [1, 2, 3], {'a': [1]}
lazy = (n * n for n in range(10))
next(lazy), next(lazy)
notes = open('notes.txt', 'w+')
notes.write('one\\ntwo\\nthree\\n')
notes.seek(4)
raw = open('raw', 'w+b', buffering=0)
raw.write(b'0123456789')
raw.seek(3)
"""
SPOIL = """
point.x, Point.made = 9, 100
numbers.clear()
nested['a'].append(2)
del double, js, Point
next(lazy)
notes.write('XXXX'), notes.flush(), notes.truncate(5), notes.close()
raw.write(b'____'), raw.truncate(1)
import sys
del sys.modules['json'], sys.modules['collections']
"""
LOOK = (
    "(point.x, Point.made, type(point) is Point, numbers, nested, double(4), list(lazy), "
    "notes.tell(), notes.read(), raw.tell(), raw.read(), js.dumps([1]), "
    "collections.Counter('aab').most_common(1))"
)
SEEN = (
    *(1, 1, True, [1, 2, 3], {"a": [1]}, 8, [4, 9, 16, 25, 36, 49, 64, 81]),
    *(4, "two\nthree\n", 3, b"3456789", "[1]", [("a", 2)]),
)
STUBBORN = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
SPARSE = """
import mmap
sparse = mmap.mmap(-1, 400 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
while True:
    for at in range(0, 400 << 30, 2 << 20): sparse[at]
"""
DEATHS = {
    "exit": ("import os\nos._exit(0)", "exited"),
    "timeout": (STUBBORN, "timeout"),
    "memory": (SPARSE, "memory"),
}


@pytest.fixture(scope="module")
def tight(shared_world, start_shared):
    """A kernel in mode unsafe whose limits are soon met."""
    argv = tight_argv(shared_world, timeout=2.0, cpu_seconds=None, grace=0.2)
    return start_shared(argv=argv, world=shared_world)


@pytest.mark.parametrize("kind", DEATHS)
def test_whatever_killed_a_cell_everything_is_as_it_was_before(tight, kind):
    code, reason = DEATHS[kind]
    run(tight, STATE)
    reply, published = tight.run(SPOIL + code)
    assert reply["ename"] == "CellStopped", reply
    (card,) = reading.cards(published, "outcome")
    assert (card["reason"], card["state"], card["lost"]) == (reason, "restored", [])
    assert values(tight, LOOK) == SEEN


@pytest.mark.quick
def test_killed_from_outside_while_a_cell_runs_everything_is_as_it_was(tight):
    run(tight, STATE)
    mid = tight.execute_send(SPOIL + "print('go', flush=True)\nwhile True: pass")
    tight.until(lambda m: m["msg_type"] == "stream", mid)
    os.kill(tight.sole_guest(), signal.SIGKILL)
    assert tight.reply(mid)["content"]["ename"] == "CellStopped"
    tight.until_idle(mid)
    assert values(tight, LOOK) == SEEN


@pytest.mark.quick
def test_killed_while_idle_nothing_that_a_short_cell_just_did_is_missing(tight):
    run(tight, STATE)
    assert lose(tight) == []
    assert values(tight, LOOK) == SEEN


def test_what_a_cell_read_stays_though_the_killed_one_wrote_there(tight):
    run(tight, "import random; file = open('read.txt', 'w'); file.write('one'); file.close()")
    run(tight, "kept = open('read.txt').read()")
    run(tight, "random.seed(42)")
    run(tight, "open('more.txt', 'w').close()")  # has a copy
    run(tight, "drawn = random.random()")
    mid = tight.execute_send("open('read.txt', 'w').close(); print('go')\nwhile True: pass")
    tight.until(lambda m: m["msg_type"] == "stream", mid)
    os.kill(tight.sole_guest(), signal.SIGKILL)
    assert tight.reply(mid)["content"]["ename"] == "CellStopped"
    tight.until_idle(mid)
    assert values(tight, "kept, drawn") == ("one", random.Random(42).random())


#: What no event tells of, each as cells and the value of ``a`` that they leave.
UNHEARD = {
    "a file that is open": ("file = open('d.txt', 'w+'); file.write('12345678'); file.close(); file = open('d.txt')", "a = file.read(4)", "open('d.txt', 'w').write('abcdefgh')"),
    "a pipe": ("import os; r, w = os.pipe(); os.write(w, b'abcdef')", "a = os.read(r, 3)", "os.read(r, 3)"),
    "a call that was due": ("import asyncio; a = []; asyncio.get_running_loop().call_later(0.1, a.append, 1)", "a.append(2)", "x = 1"),
    "a timer": ("import signal; a = []; signal.signal(signal.SIGALRM, lambda *_: a.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.1)", "a.append(2)", "x = 1"),
    "a clock by another name": ("import time; timer = time.time", "a = timer()", "x = 1"),
    "a table of clocks": ("import time; clocks = {'a': lambda: time.time()}", "a = clocks['a']()", "x = 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNHEARD)
def test_what_no_event_tells_of_is_as_it_was(unsafe, kind):
    first, then, killed = UNHEARD[kind]
    run(unsafe, first)
    time.sleep(0.3)
    run(unsafe, then)
    before = value(unsafe, "a")
    reply, _ = unsafe.run(f"{killed}; import os; os._exit(1)")
    assert reply["ename"] == "CellStopped"
    assert value(unsafe, "a") == before


# --- what goes on working ------------------------------------------------------------------------

DRAWS = {
    "random": "import random; [random.random() for _ in range(3)]",
    "secrets": "import secrets; secrets.token_hex(16)",
    "uuid4": "import uuid; str(uuid.uuid4())",
    "a generator made anew": "import random; random.Random().random()",
    "SystemRandom": "import random; random.SystemRandom().random()",
}


@pytest.mark.parametrize("kind", DRAWS)
def test_no_secret_is_drawn_twice(safe, kind):
    setup, expression = DRAWS[kind].split("; ")
    run(safe, setup + "; import random; random.seed(1)" + LONG)
    drawn = value(safe, expression)
    assert reading.cards(run(safe, "%undo"), "outcome")
    again = value(safe, expression)
    assert drawn != again
    lose(safe)
    assert value(safe, expression) not in {drawn, again}


def test_a_generator_in_a_variable_is_as_it_was(safe):
    run(safe, "import random; mine = random.Random(1)" + LONG)
    drawn = value(safe, "mine.random()")
    run(safe, "%undo")
    assert value(safe, "mine.random()") == drawn


def test_tasks_are_cancelled_and_new_ones_run(safe):
    run(
        safe,
        "import asyncio\n"
        "async def forever():\n"
        "    try: await asyncio.sleep(1000)\n"
        "    finally: ended.append(1)\n"
        "ended = []\n"
        "tasks = [asyncio.create_task(forever()) for _ in range(3)]\n"
        "asyncio.get_running_loop().call_later(1000, print)\n"
        "await asyncio.sleep(0.11)",
    )
    assert lose(safe) == ["4 running tasks"]
    assert value(safe, "await asyncio.sleep(0.01); [t.cancelled() for t in tasks], ended") == (
        "([True, True, True], [1, 1, 1])"
    )
    run(safe, "async def soon(x):\n    await asyncio.sleep(0.01)\n    return x")
    assert value(safe, "await asyncio.gather(*map(soon, range(3)))") == "[0, 1, 2]"
    assert value(safe, "asyncio.run(soon(7))") == "7"
    run(safe, "later = asyncio.create_task(soon(8))")
    processes.until(lambda: value(safe, "later.done()") == "True")
    assert value(safe, "later.result()") == "8"
    assert value(safe, "async with asyncio.timeout(5):\n    q = await soon(9)\nq") == "9"


SETTINGS = """
import contextlib, contextvars, datetime, decimal, itertools, time, warnings
decimal.getcontext().prec = 5
warnings.simplefilter('error', UserWarning)
counter = itertools.count(5)
next(counter)
var = contextvars.ContextVar('var'); var.set('set')
def talk():
    heard = []
    while True: heard.append((yield list(heard)))
dialogue = talk(); next(dialogue); dialogue.send('a')
when = datetime.datetime(2030, 1, 1, 12).astimezone()
def caught():
    try: warnings.warn('now')
    except UserWarning as exc: return str(exc)
"""


def test_settings_and_half_consumed_generators_are_as_they_were(safe):
    run(safe, SETTINGS + "time.monotonic(), time.sleep(0.11)")
    looks = (
        "decimal.Decimal(1) / 3",
        "caught()",
        "datetime.datetime(2030, 1, 1, 12).astimezone() == when, time.tzname",
        "var.get()",
    )
    before = [value(safe, look) for look in looks]
    lose(safe)
    assert [value(safe, look) for look in looks] == before
    assert before[:2] == ["Decimal('0.33333')", "'now'"]
    assert value(safe, "next(counter), dialogue.send('b')") == "(6, ['a', 'b'])"


def test_a_clock_goes_on_and_output_is_shown_as_before(safe):
    run(safe, "import time; before = time.monotonic(), time.time(), time.perf_counter()" + LONG)
    lose(safe)
    look = (
        "all(a < b for a, b in zip(before, (time.monotonic(), time.time(), time.perf_counter())))"
    )
    assert value(safe, look) == "True"
    published = run(safe, "import warnings; print('out'); warnings.warn('err', RuntimeWarning)")
    assert reading.stream(published) == "out\n"
    assert "RuntimeWarning: err" in reading.stream(published, "stderr")
    mid = safe.execute_send("input('Name? ')", allow_stdin=True)
    safe.recv("stdin")
    safe.send("input_reply", {"value": "Ada"}, "stdin")
    assert safe.reply(mid)["content"]["status"] == "ok"
    assert reading.result(safe.until_idle(mid)) == "'Ada'"


# --- in mode unsafe ------------------------------------------------------------------------------


def test_threads_are_named_tasks_are_counted_and_new_ones_run(unsafe):
    run(
        unsafe,
        "import asyncio, concurrent.futures, threading, time\n"
        "for name in ('poller', 'writer <b>'):\n"
        "    threading.Thread(target=time.sleep, args=(1000,), name=name, daemon=True).start()\n"
        "waits = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(2)]\n"
        "lock = threading.Lock()\n"
        "time.monotonic(), time.sleep(0.11)",
    )
    assert lose(unsafe) == ["2 running threads (poller)", "2 running tasks"]
    run(
        unsafe,
        "done = []\nt = threading.Thread(target=done.append, args=(1,)); t.start(); t.join()",
    )
    assert value(unsafe, "done, [t.name for t in threading.enumerate()], lock.acquire(False)") == (
        "([1], ['MainThread'], True)"
    )
    assert value(
        unsafe,
        "with concurrent.futures.ThreadPoolExecutor(2) as pool: found = list(pool.map(abs, [-1, 2]))\n"
        "found, await asyncio.to_thread(abs, -3)",
    ) == ("([1, 2], 3)")


def test_threads_beyond_those_that_are_named_are_no_flood(unsafe):
    run(
        unsafe,
        "import threading, time\n"
        "for n in range(50):\n"
        "    threading.Thread(target=time.sleep, args=(1000,), name='x' * 500, daemon=True).start()\n"
        "time.monotonic(), time.sleep(0.11)",
    )
    (lost,) = lose(unsafe)
    assert lost.startswith("20 running threads")
    assert "xxx" not in lost  # no name is as long as these
    assert len(lost) < 2_200


def test_handlers_databases_and_the_collector_go_on(unsafe):
    run(
        unsafe,
        "import gc, io, logging, os, signal, sqlite3, time\n"
        "log, text = logging.getLogger('mine'), io.StringIO()\n"
        "log.addHandler(logging.StreamHandler(text)), log.addHandler(logging.FileHandler('log'))\n"
        "log.warning('before')\n"
        "disk, memory = sqlite3.connect('base'), sqlite3.connect(':memory:')\n"
        "for base in (disk, memory):\n"
        "    base.execute('create table t (x)'), base.execute('insert into t values (1)')\n"
        "    base.commit()\n"
        "memory.execute('insert into t values (2)')\n"  # not committed
        "gc.set_threshold(600, 9, 8), gc.collect()\n"
        "time.monotonic(), time.sleep(0.11)",
    )
    lost = lose(unsafe)
    run(unsafe, "log.warning('after')")
    assert value(unsafe, "text.getvalue(), open('log').read()") == (
        "('before\\nafter\\n', 'before\\nafter\\n')"
    )
    run(unsafe, "disk.execute('insert into t values (3)'), disk.commit()")
    assert value(unsafe, "[b.execute('select x from t').fetchall() for b in (disk, memory)]") == (
        "[[(1,), (3,)], [(1,), (2,)]]"
    )
    assert value(unsafe, "gc.get_threshold(), gc.isenabled(), gc.collect() >= 0") == (
        "((600, 9, 8), True, True)"
    )
    assert value(unsafe, "len(gc.get_count()), signal.getsignal(signal.SIGINT) is not None") == (
        "(3, True)"
    )
    assert lost == []


def test_os_urandom_is_not_drawn_twice(unsafe):
    run(unsafe, "import os, random, tempfile" + LONG)
    drawn = value(unsafe, "os.urandom(8), tempfile.mktemp(), random.random()")
    run(unsafe, "%undo")
    again = value(unsafe, "os.urandom(8), tempfile.mktemp(), random.random()")
    assert all(a != b for a, b in zip(eval(drawn), eval(again), strict=True))
