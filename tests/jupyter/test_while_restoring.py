"""While a restoration is under way: %undo, interrupts, queries, the kernel's end."""

import os
import signal
import time

import pytest

from support import processes, reading

SLOW = """
import gc, os, time
own = lambda o: type(o).__name__ == "Snapshots" and type(o).__module__.startswith("cellblock")
snapshots = next(o for o in gc.get_objects() if own(o))
def slow(resume, real=snapshots.take_over):
    time.sleep(1)
    return real(resume)
snapshots.take_over = slow
time.monotonic(), time.sleep(0.11)
"""


@pytest.fixture
def slow(start):
    """A kernel whose guests take a second to take over."""
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, SLOW)
    run(kernel, "x = [1]; time.monotonic(), time.sleep(0.11)")
    run(kernel, "x.append(2); time.monotonic(), time.sleep(0.11)")
    return kernel


def run(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return published


def value(kernel, expression):
    return reading.result(run(kernel, expression))


def undone(published):
    """Return which cells were undone; a guest's loss may be told in the same place."""
    (card,) = [c for c in reading.cards(published, "outcome") if c["outcome"] == "undone"]
    return card["cells"]


def dying(kernel):
    """Run a cell that ends its guest; return its id once the guest has ended."""
    guest = kernel.sole_guest()
    mid = kernel.execute_send("x.append(9); os._exit(1)")
    assert processes.gone([guest]) == []
    return mid


def test_undo_during_a_restoration_undoes_what_ran_before_it(slow):
    mid = dying(slow)
    other = slow.execute_send("%undo")
    assert slow.reply(mid)["content"]["ename"] == "CellStopped"
    assert slow.reply(other)["content"]["status"] == "ok"
    assert undone(slow.until_idle(other)) == [3]
    assert value(slow, "x") == "[1]"


def test_undo_right_after_a_guest_that_idled_was_lost(slow):
    os.kill(slow.sole_guest(), signal.SIGKILL)
    assert undone(run(slow, "%undo")) == [3]
    assert value(slow, "x") == "[1]"


def test_an_interrupt_during_a_restoration_does_not_end_it(slow):
    mid = dying(slow)
    for _ in range(2):
        slow.interrupt()
        time.sleep(0.1)
    assert slow.reply(mid)["content"]["ename"] == "CellStopped"
    slow.until_idle(mid)
    assert value(slow, "x") == "[1, 2]"


@pytest.mark.parametrize("restart", [False, True])
def test_a_shutdown_during_a_restoration_leaves_nothing(slow, restart):
    everybody = slow.tree()
    dying(slow)
    slow.ask("shutdown_request", {"restart": restart}, "control")
    assert slow.proc.wait(10) == 0
    assert processes.gone(everybody) == []


def test_completion_during_a_restoration_waits_for_it(slow):
    os.kill(slow.sole_guest(), signal.SIGKILL)
    content = slow.ask("complete_request", {"code": "x.app", "cursor_pos": 5})["content"]
    assert content["matches"] == ["append"]
