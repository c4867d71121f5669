"""Interrupt by message."""

import os
import signal
import time

import pytest

from support import processes, reading

GO = "print('go')"  # not flushed: it arrives when the next line runs
ENDLESS = {
    "a loop": "while True: pass",
    "a wait": "import time\ntime.sleep(60)",
    "an await": "import asyncio\nawait asyncio.sleep(60)",
    "an awaiting task": "import asyncio\nawait asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))",
    "a flood": "while True: print('x' * 100)",
    "asyncio.run": "import asyncio\nasyncio.run(asyncio.sleep(60))",
}


def begin(kernel, code, **fields):
    """Start a cell; return its id once it runs, or is as far as it prints GO itself."""
    mid = kernel.execute_send(code if GO in code else f"{GO}\n{code}", **fields)
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    return mid


def interrupted(kernel, mid):
    """Interrupt; return the seconds to the reply, the reply, and the rest of the output."""
    start = time.perf_counter()
    kernel.interrupt()
    reply = kernel.reply(mid)
    return time.perf_counter() - start, reply["content"], kernel.until_idle(mid)


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.quick
def test_an_interrupt_ends_the_cell_and_keeps_the_variables(safe, kind):
    safe.run("kept = 'still here'")
    _, reply, published = interrupted(safe, begin(safe, ENDLESS[kind]))
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    assert "cellblock" not in reading.traceback(published)
    assert reading.result(safe.run("kept")[1]) == "'still here'"


def test_an_interrupt_takes_less_than_100_ms(safe):
    interrupted(safe, begin(safe, "while True: pass"))  # the first error imports pygments
    took = min(interrupted(safe, begin(safe, "while True: pass"))[0] for _ in range(3))
    assert took < 0.1


def test_an_interrupt_points_at_the_line_that_ran(safe):
    mid = begin(safe, "while True:\n    pass")
    time.sleep(0.1)  # or it is between the two statements, in no line of the cell's
    _, _, published = interrupted(safe, mid)
    text = reading.traceback(published)
    assert "----> 2 while True:" in text or "----> 3     pass" in text


def test_an_interrupt_while_idle_does_nothing(safe):
    safe.reply(safe.interrupt(), "control")
    assert safe.run("1")[0]["status"] == "ok"


def test_an_interrupt_aborts_the_cells_queued_behind(safe):
    first = begin(safe, "while True: pass", stop_on_error=True)
    second = safe.execute_send("print('never')")
    interrupted(safe, first)
    assert safe.reply(second)["content"]["status"] == "aborted"


def test_a_caught_interrupt_lets_the_cell_end_well(safe):
    code = f"""
import time
try:
    {GO}
    time.sleep(60)
except KeyboardInterrupt:
    print('caught')
"""
    _, reply, published = interrupted(safe, begin(safe, code))
    assert reply["status"] == "ok"
    assert reading.stream(published) == "caught\n"


STUBBORN = f"""
import time
while True:
    try:
        {GO}
        time.sleep(60)
    except BaseException:
        pass
"""


def test_a_cell_that_swallows_interrupts_is_killed_by_the_second(start):
    kernel = start("safe")
    kernel.run("kept = 1")
    mid = begin(kernel, "kept = 2\n" + STUBBORN)
    kernel.interrupt()
    assert not kernel.shell.poll(700)  # a second within half a second is the same key press
    kernel.interrupt()
    reply, published = kernel.reply(mid)["content"], kernel.until_idle(mid)
    assert (reply["status"], reply["ename"]) == ("error", "CellStopped")
    (card,) = reading.cards(published, "outcome")
    assert (card["reason"], card["state"]) == ("interrupted", "restored")
    assert reading.result(kernel.run("kept")[1]) == "1"


def test_a_repeated_key_press_is_one_interrupt(start):
    kernel = start("safe")
    kernel.run("kept = 1")
    mid = begin(kernel, "import time\ntry: time.sleep(60)\nfinally: time.sleep(0.3)")
    for _ in range(5):
        kernel.interrupt()
    assert kernel.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    kernel.until_idle(mid)
    assert reading.result(kernel.run("kept")[1]) == "1"


def test_a_cell_that_ignores_the_signal_does_not_make_the_next_one_deaf(unsafe):
    unsafe.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
    _, reply, _ = interrupted(unsafe, begin(unsafe, "while True: pass"))
    assert reply["ename"] == "KeyboardInterrupt"


def test_a_wait_in_c_is_cut_short(unsafe):
    # Not on the way there: what an import's weak references raise goes nowhere.
    unsafe.run("import ctypes\nusleep = ctypes.CDLL(None).usleep")
    _, reply, _ = interrupted(unsafe, begin(unsafe, "usleep(60_000_000)"))
    assert reply["ename"] == "KeyboardInterrupt"


def test_a_wait_in_c_is_not_cut_short_for_what_was_interrupted_before(unsafe):
    unsafe.run("import ctypes\nusleep = ctypes.CDLL(None).usleep")
    interrupted(unsafe, begin(unsafe, "while True: pass"))
    assert reading.result(unsafe.run("usleep(700_000)")[1]) == "0"


#: An interrupt comes when nothing looks for one any more, in C, and then a wait begins.
SLEPT_THROUGH = """
import ctypes, functools, time
trip = ctypes.pythonapi.PyErr_SetInterruptEx
trip.restype = (60).__add__
class Minute:
    __index__ = staticmethod(functools.partial(trip, 2))
print('go', flush=True)
time.sleep(Minute())
"""


def test_an_interrupt_that_was_slept_through_is_heard_of_when_it_is_woken(unsafe):
    mid = begin(unsafe, SLEPT_THROUGH)
    assert not unsafe.shell.poll(300)
    os.kill(unsafe.sole_guest(), signal.SIGURG)
    assert unsafe.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    unsafe.until_idle(mid)


def test_an_interrupt_is_followed_by_what_wakes(unsafe):
    code = f"""
import signal, time
woken = []
before = signal.signal(signal.SIGURG, lambda *_: woken.append(1))
try:
    {GO}
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
signal.signal(signal.SIGURG, before)
print(len(woken) >= 3)
"""
    _, reply, published = interrupted(unsafe, begin(unsafe, code))
    assert reply["status"] == "ok"
    assert reading.stream(published) == "True\n"


@pytest.mark.parametrize("pause", [0, 0.0003, 0.001, 0.003])
def test_an_interrupt_right_behind_its_cell_is_not_lost(safe, pause):
    safe.run("kept = 1")
    for _ in range(5):
        mid = safe.execute_send("import time\ntime.sleep(60)")
        safe.until(lambda m: m["msg_type"] == "status", mid)
        time.sleep(pause)
        safe.interrupt()
        assert safe.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
        safe.until_idle(mid)
    assert reading.result(safe.run("kept")[1]) == "1"


@pytest.mark.parametrize("snapshots", ["auto", "off"])
def test_an_interrupt_while_a_guest_is_restored_or_starts_is_not_lost(start, world, snapshots):
    policy = world.policy(f'mode = "unsafe"\nsnapshots = "{snapshots}"')
    kernel = start(policy, "--allow-unsafe", world=world)
    kernel.run("import os\nos._exit(0)")
    mid = kernel.execute_send("import time\ntime.sleep(60)")
    kernel.until(lambda m: m["msg_type"] == "status", mid)
    kernel.interrupt()
    assert kernel.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    kernel.until_idle(mid)
    assert kernel.run("1")[0]["status"] == "ok"


COUNTING = """
import time
hits = 0
for _ in range(4):
    try:
        time.sleep(0.2)
    except KeyboardInterrupt:
        hits += 1
print(hits)
"""


@pytest.mark.parametrize("replaced", ["", "signal.signal(signal.SIGINT, lambda *_: None)"])
def test_a_cell_that_is_interrupted_before_its_guest_takes_it_up_is_so_once(unsafe, replaced):
    unsafe.run(f"import signal\n{replaced}")
    guest = unsafe.sole_guest()
    os.kill(guest, signal.SIGSTOP)
    mid = unsafe.execute_send(COUNTING)
    unsafe.until(lambda m: m["msg_type"] == "status", mid)
    unsafe.reply(unsafe.interrupt(), "control")
    time.sleep(0.3)  # past host.deadlines.TAKE_UP: the host takes it for kept by a task
    os.kill(guest, signal.SIGCONT)
    ended, published = unsafe.reply(mid)["content"], unsafe.until_idle(mid)
    # It may come before the first line: then that is the end.
    assert ended.get("ename", reading.stream(published).strip()) in {"KeyboardInterrupt", "1"}
    assert unsafe.run("1")[0]["status"] == "ok"


def test_an_interrupt_ends_a_debugger_that_waits(unsafe):
    mid = unsafe.execute_send("x = 7\nbreakpoint()\nx", allow_stdin=True)
    assert unsafe.recv("stdin")["content"]["prompt"] == "ipdb> "
    unsafe.send("input_reply", {"value": "p x"}, "stdin")
    unsafe.recv("stdin")
    unsafe.interrupt()
    unsafe.reply(mid)
    assert "7\n" in reading.stream(unsafe.until_idle(mid))
    assert unsafe.run("1")[0]["status"] == "ok"


def test_a_debugger_is_handed_commands_as_from_python_3_14_on(unsafe):
    reply, published = unsafe.run("import pdb\nx = 6\npdb.set_trace(commands=['p x * 7', 'c'])\nx")
    assert reply["status"] == "ok"
    assert "42\n" in reading.stream(published)


# --- programs that a cell waits for

PROGRAM = "echo begun; sleep 600; echo late"
#: ``w`` is held by what is started: the other end of its pipe is at its end when all have ended.
WAITS = {
    "run": f"subprocess.run({PROGRAM!r}, shell=True, pass_fds=[w])",
    "wait": f"subprocess.Popen(['sh', '-c', {PROGRAM!r}], pass_fds=[w]).wait()",
    "communicate": f"subprocess.Popen({PROGRAM!r}, shell=True, pass_fds=[w]).communicate()",
    "os.system": f"os.set_inheritable(w, True); os.system({PROGRAM!r})",
}
#: Those of which the program's end is an answer, and no KeyboardInterrupt.
ANSWERS = {"os.system"}
POOLS = {
    "pool": "with fork.Pool(2) as p: p.map(waits, range(2))",
    "executor": "with Executor(2, fork) as e: list(e.map(waits, range(2)))",
}
IMPORTS = f"""
import multiprocessing, os, subprocess, sys, time
from concurrent.futures import ProcessPoolExecutor as Executor
fork = multiprocessing.get_context("fork")
def waits(_):
    os.set_inheritable(w, True)
    os.system({PROGRAM!r})
"""


@pytest.fixture(scope="module")
def waiting(programs):
    """A kernel whose cells wait for programs."""
    programs.run(IMPORTS)
    return programs


def begun(kernel, cell, programs=1, program="sleep"):
    """Start a cell; return its id once so many programs of it have begun.

    ``program`` is what the shell runs: until it does, dash loses an interrupt of its own fork's.
    """
    mid = kernel.execute_send(cell)
    heard = []

    def have_begun(message):
        heard.append(message["content"].get("text", ""))
        return "".join(heard).count("begun") == programs

    kernel.until(have_begun, mid)
    processes.until(lambda: len(kernel.called(program)) >= programs)
    return mid


def check_interrupted(kernel, wait, error, programs=1):
    """Interrupt a cell; all that it started is to end, and the session to live."""
    # In one cell: a copy of the guest between two would hold the pipe.
    cell = f"""
r, w = os.pipe()
try:
    {wait}
finally:
    os.close(w)
    print("ended" if not os.read(r, 1) else "")
"""
    kernel.run("kept = 'still here'")
    _, reply, published = interrupted(kernel, begun(kernel, cell, programs))
    assert reply.get("ename", "") == error
    assert reading.stream(published).endswith("ended\n")
    assert reading.result(kernel.run("kept")[1]) == "'still here'"


@pytest.mark.parametrize("how", WAITS)
def test_an_interrupt_ends_the_programs_that_a_cell_waits_for(waiting, how):
    check_interrupted(waiting, WAITS[how], "" if how in ANSWERS else "KeyboardInterrupt")


@pytest.mark.parametrize("how", POOLS)
def test_an_interrupt_ends_what_the_workers_of_a_pool_wait_for(data, how):
    data.run(IMPORTS)
    check_interrupted(data, POOLS[how], "KeyboardInterrupt", programs=2)


def test_an_interrupt_ends_a_shell_escape_and_the_cell_goes_on(waiting):
    # IPython gives the program a fifth of a second to end by ^C.
    waits = "from IPython.utils._process_posix import ProcessHandler as h; h.terminate_timeout = 60"
    reading.run(waiting, waits)
    mid = begun(waiting, f"!{PROGRAM}\n_exit_code")
    _, reply, published = interrupted(waiting, mid)
    assert (reply["status"], reading.result(published)) == ("ok", "-2")
    assert reading.stream(published) == "^C\r\n"


def test_a_program_that_catches_an_interrupt_ends_as_it_likes(waiting):
    program = (
        "import os, time\n"
        "try: os.write(1, b'begun'); time.sleep(600)\nexcept KeyboardInterrupt: os.write(1, b'cleaned')"
    )
    cell = f"p = subprocess.Popen([sys.executable, '-c', {program!r}]); p.wait()"
    mid = begun(waiting, cell, program="python")
    _, reply, published = interrupted(waiting, mid)
    assert reply["ename"] == "KeyboardInterrupt"
    after = waiting.run("p.wait()")[1]
    assert reading.result(after) == "0"
    assert reading.stream(published) + reading.stream(after) == "cleaned"
