"""A guest whose memory is full: a cell can make room, and %undo goes back, whatever filled it."""

import time

import pytest

from support import reading
from support.limits import assert_runs_cells, with_new_guest

CAUGHT = "held = []\ntry:\n    while True: held.append({})\nexcept MemoryError: pass"
UNCAUGHT = "held = []\nwhile True: held.append({})"
#: Where memory is short, CPython asks the system for more at each small object: of the smallest, a
#: busy machine takes 15 s for what is left.
GRAINS = {
    "large blocks": "bytearray(b'x') * (8 << 20)",
    "pages": "bytearray(b'x') * 4000",
    "small objects": "[len(held)] * 50",
}


@pytest.fixture(scope="module")
def small(start_tight):
    """One kernel in mode unsafe with 100 MB of memory."""
    return start_tight(cpu_seconds=None, memory_max_bytes=100_000_000)


@pytest.fixture
def kernel(small):
    """Return that kernel with a new guest: no heap is in pieces from the test before."""
    return with_new_guest(small)


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("cell", [CAUGHT, UNCAUGHT], ids=["caught", "uncaught"])
def test_a_cell_makes_room_in_a_full_guest(kernel, cell, grain):
    kernel.run(cell.format(GRAINS[grain]))
    reply, _ = kernel.run("held.clear()")
    assert reply["status"] == "ok", reply
    assert_runs_cells(kernel)


@pytest.mark.parametrize("grain", GRAINS)
def test_a_cell_makes_room_in_a_full_guest_that_was_restored(kernel, grain):
    kernel.run(CAUGHT.format(GRAINS[grain]))
    for _ in range(3):
        reply, _ = kernel.run("import os; os._exit(1)")
        assert reply["ename"] == "CellStopped", reply
    reply, _ = kernel.run("held.clear()")
    assert reply["status"] == "ok", reply
    assert_runs_cells(kernel)


def test_a_full_guest_is_stepped_back_from(kernel):
    kernel.run("kept = 7")
    for _ in range(6):
        kernel.run("more = []\nwhile True: more.append([more] * 50)")
        reply, published = kernel.run("%undo")
        assert reply["status"] == "ok", (reply["evalue"], reading.cards(published, "outcome"))
    reply, published = kernel.run("kept")
    assert reading.result(published) == "7"


NO_ROOM = """
import gc
kept = 7
def find(name):
    own = lambda o: type(o).__name__ == name and type(o).__module__.startswith("cellblock")
    return next(o for o in gc.get_objects() if own(o))
def let_go(): raise MemoryError
find("OpenMP").end_threads = let_go
"""


def test_a_guest_that_has_no_room_to_make_a_copy_lives_on_and_that_is_said(start_tight):
    # A kernel of its own: a reason is said once a session, and a full guest of a test before may have had it.
    kernel = start_tight(cpu_seconds=None, memory_max_bytes=100_000_000)
    kernel.run(NO_ROOM)
    guest = kernel.guest()
    for _ in range(2):
        kernel.run("import time; time.monotonic(); time.sleep(0.11)")  # can't be run again
    assert reading.result(kernel.run("kept")[1]) == "7"
    assert kernel.guest() == guest
    said = reading.notices([m for channel, m in kernel.log if channel == "iopub"])
    assert "one could not be made (Cannot allocate memory)" in said


EATS = """
import threading, time
held = []
def eat(again):
    while again:
        time.sleep(0.3)
        again -= 1
        try:
            while True: held.append([len(held)] * 50)
        except MemoryError:
            pass
threading.Thread(target=eat, args=({},), daemon=True).start()
"""


def test_a_guest_that_is_filled_between_cells_takes_the_next_one(kernel):
    kernel.run(EATS.format(1))
    time.sleep(1)
    reply, _ = kernel.run("held.clear()")
    assert reply["status"] == "ok", reply
    assert_runs_cells(kernel)


def test_a_guest_that_is_filled_for_ever_leaves_no_cell_without_an_answer(kernel):
    kernel.run(EATS.format(10_000))
    for _ in range(10):
        kernel.run("import time; time.sleep(0.2)")
    assert_runs_cells(kernel)
