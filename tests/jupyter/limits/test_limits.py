"""Every limit of a policy, met for real: what the user sees, and what is left afterwards."""

import pytest

from conftest import USERS
from support import reading
from support.limits import assert_runs_cells, stop_card

BUSY = """
import time
def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
"""
#: A list so large that its pages are read again and again without being anybody's.
SPARSE = """
import mmap
sparse = mmap.mmap(-1, 400 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
while True:
    for at in range(0, 400 << 30, 2 << 20): sparse[at]
"""
FILL = """
import time
for number in range(1_000):
    with open(f"part{number}", "wb") as file: file.write(bytes(1 << 20))
    time.sleep(0.01)
"""
CLEAR = """
import glob, os
for name in glob.glob("part*"): os.unlink(name)
len(glob.glob("part*"))
"""


@pytest.mark.quick
def test_a_cell_over_its_processor_time_is_interrupted_and_the_variables_stay(tight):
    tight.run("kept = 'here'" + BUSY)
    reply, published = tight.run("busy(60)")
    card = stop_card(reply, published)
    assert (card["reason"], card["limit"], card["state"]) == ("cpu", "1 s", "kept")
    assert reading.card_text(published) == (
        "cellblock stopped this cell: it used more than 1 s of processor time\n"
        "(cpu_seconds).\n"
        "It was interrupted: your variables are there, with what it did until then.\n"
        "To raise it, set cpu_seconds in the file of policy tight. %policy shows what is\nset now."
    )
    assert reading.result(tight.run("kept")[1]) == "'here'"


def test_processor_time_is_counted_for_each_cell_anew_and_sleep_is_none(tight):
    tight.run(BUSY)
    for _ in range(2):
        assert tight.run("busy(0.6); time.sleep(0.6)")[0]["status"] == "ok"


def test_threads_of_a_cell_count_together_and_left_ones_for_the_next_cell(tight):
    threads = (
        "import hashlib, threading, time\n"
        "def hash():\n"
        "    while True: hashlib.sha256(bytes(1 << 20))\n"
        "for _ in range(2): threading.Thread(target=hash, daemon=True).start()\n"
    )
    waits = "while True: time.sleep(1)"
    assert stop_card(*tight.run(threads + waits))["reason"] == "cpu"
    tight.run("import os\nos._exit(0)")
    assert tight.run(threads)[0]["status"] == "ok"
    assert stop_card(*tight.run(waits))["reason"] == "cpu"
    tight.run("os._exit(0)")
    assert_runs_cells(tight)


@pytest.mark.quick
def test_memory_beyond_the_limit_is_a_memory_error(tight):
    tight.run("kept = 'here'")
    reply, _ = tight.run("hoard = bytearray(400_000_000)")
    assert reply["ename"] == "MemoryError"
    assert "Cell" in "\n".join(reply["traceback"])  # IPython's, as there is room for it
    assert reading.result(tight.run("kept")[1]) == "'here'"


@pytest.mark.parametrize("user", USERS)
def test_memory_that_allocation_does_not_count_is_seen_and_ends_the_guest(start_tight, user):
    kernel = start_tight(user, cpu_seconds=None)
    card = stop_card(*kernel.run(SPARSE))
    assert (card["reason"], card["limit"]) == ("memory", "286.1 MiB")
    assert_runs_cells(kernel)


def test_files_beyond_the_limit_are_an_error(tight):
    reply, _ = tight.run("import os\nheld = [open('/dev/null') for _ in range(100)]")
    assert (reply["ename"], "Too many open files" in reply["evalue"]) == ("OSError", True)
    assert_runs_cells(tight)


def test_a_file_beyond_its_size_is_an_error(tight):
    reply, _ = tight.run("with open('large', 'wb') as file: file.write(bytes(9 << 20))")
    assert (reply["ename"], "File too large" in reply["evalue"]) == ("OSError", True)
    tight.run("import os\nos.unlink('large')")


def test_a_full_scratch_folder_ends_the_cell_and_can_be_cleared(tight):
    reply, published = tight.run(FILL)
    card = stop_card(reply, published)
    assert (card["reason"], card["limit"], card["state"]) == ("scratch", "16 MiB", "kept")
    assert reading.card_text(published) == (
        "cellblock stopped this cell: it kept more than 16 MiB in the scratch folder\n"
        "(scratch_max_bytes).\n"
        "It was interrupted: your variables are there, with what it did until then.\n"
        "Its files are still there: remove some in a cell, or restart the kernel.\n"
        "A removed file counts until all that have it open close it.\n"
        "To raise it, set scratch_max_bytes in the file of policy tight. %policy shows\nwhat is set now."
    )
    assert tight.run("import time\ntime.sleep(0.3)")[0]["status"] == "ok"
    assert stop_card(*tight.run(FILL.replace("part", "part_more")))["reason"] == "scratch"
    assert reading.result(tight.run(CLEAR)[1]) == "0"
    assert (
        tight.run("open('part', 'wb').write(bytes(1 << 20))\ntime.sleep(0.3)")[0]["status"] == "ok"
    )
    tight.run(CLEAR)


def test_files_without_number_fill_the_folder_too(start_tight):
    kernel = start_tight(scratch_max_bytes=4 << 20, cpu_seconds=None)
    code = (
        "import os, time\nos.makedirs('crowd', exist_ok=True)\n"
        "for number in range(1_500): os.close(os.open(f'crowd/{number}', os.O_CREAT))\n"
        "time.sleep(15)"
    )
    assert stop_card(*kernel.run(code))["reason"] == "scratch"
    assert kernel.run("import shutil\nshutil.rmtree('crowd')")[0]["status"] == "ok"
