"""What can't be interrupted is killed, and the next cell runs (promise P6)."""

import time

import pytest

from support import processes, reading
from support.limits import assert_runs_cells, stop_card, with_new_guest

#: Nested, because an interrupt between two turns of one loop gets out of it.
SWALLOW = """
def spin(depth=4):
    while True:
        try:
            if depth: spin(depth - 1)
            else: {}
        except BaseException: pass
spin()
"""
STUBBORN = {
    "a loop that swallows everything": SWALLOW.format("pass"),
    "a sleep that swallows everything": "import time\n" + SWALLOW.format("time.sleep(60)"),
    "a signal that is ignored": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ),
    "a signal that is blocked": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nwhile True: pass"
    ),
    "a power": SWALLOW.format("9**9**9"),
    "a regular expression": ("import re\n" + SWALLOW.format("re.match(r'(a+)+$', 'a' * 60 + 'b')")),
    "a sum in C": "sum(range(10**12))",
    "an endless iterator in C": (
        "import collections, itertools\ncollections.deque(itertools.count(), maxlen=0)"
    ),
    "native code that keeps the interpreter": (
        "import ctypes\n" + SWALLOW.format("ctypes.PyDLL(None).usleep(60_000_000)")
    ),
    "a finaliser": "class Late:\n    def __del__(self): spin()\n"
    + SWALLOW.format("pass").replace("spin()\n", "Late(); None\n"),
    "endless output": SWALLOW.format("print('x' * 1_000)"),
    "endless displays": SWALLOW.format("display({'text/plain': 'x'}, raw=True)"),
    "descriptors": "import os\nheld = []\n"
    + SWALLOW.format("held.append(os.open('/dev/null', 0))"),
    "memory": "held = []\n" + SWALLOW.format("held.append(bytearray(1 << 20))"),
    "a daemon thread": (
        "import threading\n"
        "threading.Thread(target=sum, args=(range(10**12),), daemon=True).start()\n"
        "while True: pass"
    ),
}


@pytest.fixture(scope="module")
def hasty(start_tight):
    """One kernel whose cells have little time."""
    return start_tight(timeout=0.6, cpu_seconds=None, grace=0.2)


@pytest.mark.parametrize("kind", STUBBORN)
def test_it_is_killed_at_its_time_and_the_next_cell_runs(hasty, kind):
    start = time.monotonic()
    card = stop_card(*hasty.run(STUBBORN[kind]))
    assert (card["reason"], card["limit"], card["state"]) == ("timeout", "0.6 s", "restored")
    assert time.monotonic() - start < 8
    assert_runs_cells(hasty)


def test_a_thread_that_keeps_the_interpreter_costs_its_guest_and_not_the_next_cell(hasty):
    code = (
        "import threading\nthreading.Thread(target=sum, args=(range(10**12),), daemon=True).start()"
    )
    hasty.run(code)
    assert_runs_cells(hasty)
    assert_runs_cells(hasty)


def test_processor_time_that_is_not_given_up_ends_the_guest(start_tight):
    kernel = start_tight(grace=0.3)
    card = stop_card(*kernel.run(STUBBORN["a loop that swallows everything"]))
    assert (card["reason"], card["limit"], card["state"]) == ("cpu", "1 s", "restored")
    assert_runs_cells(kernel)


def test_a_disk_that_is_filled_against_all_interrupts_is_not_filled(start_tight):
    kernel = start_tight(grace=0.3)
    write = "open(f'part{next(numbers)}', 'wb').write(bytes(4 << 20))"
    code = "import itertools\nnumbers = itertools.count()\n" + SWALLOW.replace("{}", write)
    card = stop_card(*kernel.run(code))
    assert (card["reason"], card["state"]) == ("scratch", "restored")
    (scratch,) = (kernel.world.root / "tmp").iterdir()
    assert sum(f.stat().st_size for f in scratch.glob("part*")) < 1 << 30
    assert_runs_cells(kernel)


ENDINGS = {
    "an exit handler": "import atexit, time\natexit.register(time.sleep, 600)",
    "a finaliser": (
        "import time\nclass F:\n    def __del__(self): time.sleep(600)\nkept = F()\nF.own = kept"
    ),
    "a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()",
}


@pytest.mark.parametrize(
    ("kind", "restart"), [("an exit handler", False), ("a finaliser", True), ("a thread", False)]
)
def test_what_hangs_at_the_end_holds_up_no_shutdown_and_no_restart(start, kind, restart):
    kernel = start("unsafe", "--allow-unsafe")
    kernel.run(ENDINGS[kind])
    pids, begun = kernel.tree(), time.monotonic()
    mid = kernel.send("shutdown_request", {"restart": restart}, "control")
    assert kernel.reply(mid, "control")["content"]["status"] == "ok"
    assert kernel.proc.wait(5) == 0
    assert time.monotonic() - begun < 3
    assert processes.gone(pids) == []


def test_what_hangs_at_the_end_holds_up_no_cell_that_exits(unsafe):
    for kind in ("an exit handler", "a finaliser"):
        with_new_guest(unsafe).run(ENDINGS[kind])
        reply, published = unsafe.run("import sys\nsys.exit(0)")
        assert reply["status"] == "error", kind
        assert reading.of(published, "error"), kind
        assert_runs_cells(unsafe)
