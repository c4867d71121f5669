"""Limits where cells may start processes: all of them count together."""

import pytest

from support import processes, reading
from support.limits import assert_runs_cells, stop_card

HOARD = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b'x') * 150_000_000
        time.sleep(60)
time.sleep(60)
"""


#: Memory that no process shows to be its own, each much more than is allowed.
HIDDEN = {
    "pages of orphans": """
import os, time
held = bytearray(b'x') * 120_000_000
for _ in range(6):
    if os.fork() == 0:
        held = None
        own = bytearray(b'y') * 120_000_000
        if os.fork() == 0: time.sleep(60)
        os._exit(0)
    os.wait()
time.sleep(60)
""",
    "page tables": """
import mmap, os, time
for _ in range(3):
    if os.fork() == 0:
        space = mmap.mmap(-1, 100 << 30, flags=34, prot=mmap.PROT_READ)
        for at in range(0, 100 << 30, 2 << 20): space[at]
        time.sleep(60)
time.sleep(60)
""",
}


@pytest.fixture(scope="module")
def kernel(start_tight):
    """One kernel whose cells may fork and execute."""
    return start_tight(subprocess_execution=True)


def test_processor_time_of_programs_is_the_cells(kernel):
    card = stop_card(
        *kernel.run("import subprocess\nsubprocess.run('while :; do :; done', shell=True)")
    )
    assert (card["reason"], card["state"]) == ("cpu", "kept")
    assert_runs_cells(kernel)


def test_a_cell_replaces_a_process_that_it_forked_and_not_the_interpreter(kernel):
    code = """
import os
kept = 1
if os.fork() == 0:
    os.execv("/bin/echo", ["echo", "replaced"])
os.wait()
os.execv("/bin/echo", ["echo", "replaced"])
"""
    reply, published = kernel.run(code)
    assert (reply["ename"], reading.stream(published)) == ("PermissionError", "replaced\n")
    assert reply["evalue"].endswith("Start it with subprocess.run")
    assert reading.value(kernel, "kept") == 1


def test_processor_time_of_orphans_that_have_ended_is_the_cells(kernel):
    code = """
import os, time
def burn():
    end = time.process_time() + 0.1
    while time.process_time() < end: pass
    os._exit(0)
for _ in range(60):
    if os.fork() == 0:
        if os.fork() == 0: burn()
        os._exit(0)
    os.wait()
    time.sleep(0.15)
"""
    card = stop_card(*kernel.run(code))
    assert card["reason"] == "cpu"
    assert_runs_cells(kernel)


def test_memory_of_forks_is_added_up(kernel):
    card = stop_card(*kernel.run(HOARD))
    assert (card["reason"], card["state"]) == ("memory", "restored")
    assert_runs_cells(kernel)


@pytest.mark.parametrize("how", HIDDEN)
def test_memory_counts_that_no_process_shows_to_be_its_own(kernel, how):
    card = stop_card(*kernel.run(HIDDEN[how]))
    assert card["reason"] == "memory"
    assert_runs_cells(kernel)


def test_shared_memory_without_a_name_is_a_file_that_the_limits_bound(kernel):
    code = """
import mmap, os
shared = mmap.mmap(-1, 1 << 20)
if (child := os.fork()) == 0:
    shared[:5] = b'child'
    os._exit(0)
os.waitpid(child, 0)
print(shared[:5])
try:
    mmap.mmap(-1, 100 << 20)
except OSError as error:
    print(error.strerror)
"""
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reading.card_text(published)
    assert reading.stream(published) == "b'child'\nFile too large\n"


def test_memory_that_forks_only_share_is_counted_once(kernel):
    code = """
import os, signal, time
held = bytearray(b'x') * 150_000_000
children = []
for _ in range(4):
    if (child := os.fork()) == 0: time.sleep(60)
    children.append(child)
time.sleep(0.5)
for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
del held
"""
    assert kernel.run(code)[0]["status"] == "ok"
    assert_runs_cells(kernel)


def test_snapshots_of_what_is_no_more_do_not_count_against_the_cell(kernel):
    for _ in range(4):
        code = "import time\nheld = None\ntime.sleep(0.3)\nheld = bytearray(b'x') * 200_000_000"
        reply, published = kernel.run(code)
        assert reply["status"] == "ok", reading.card_text(published)
    kernel.run("held = None")
    assert_runs_cells(kernel)


def test_memory_of_forks_is_added_up_after_a_large_guest_was_restored_too(kernel):
    kernel.run("large = bytearray(b'x') * 60_000_000")
    kernel.run("import os\nos._exit(0)")
    card = stop_card(*kernel.run(HOARD))
    assert (card["reason"], card["state"]) == ("memory", "restored")
    kernel.run("large = None")
    assert_runs_cells(kernel)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_what_a_killed_cell_had_started_ends_with_it(start_tight, mode):
    kernel = start_tight(subprocess_execution=True, snapshots=f'"{mode}"')
    for _ in range(2):
        kernel.run("import subprocess\nsubprocess.Popen(['sleep', '600']).pid")
    started = [pid for pid in kernel.tree() if processes.name(pid) == "sleep"]
    assert len(started) == 2
    kernel.run("import os\nos._exit(0)")
    assert_runs_cells(kernel)
    assert processes.gone(started) == []
