"""What a copy holds by itself: computed from readings, and from those of real processes."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.host.limits.processes import PAGE, huge_size, private_bytes
from cellblock.host.limits.stat_reader import StatReader
from cellblock.host.snapshots import memory
from cellblock.host.snapshots.memory import Reading, copy_bytes, left_behind

HUGE = huge_size()


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (Reading(100 * PAGE, 7), Reading(100 * PAGE, 7), 0),
        (Reading(100 * PAGE, 7), Reading(100 * PAGE, 17), 10 * PAGE),  # written to
        (Reading(100 * PAGE, 7), Reading(130 * PAGE, 37), 0),  # grown
        (Reading(100 * PAGE, 7), Reading(60 * PAGE, 7), 40 * PAGE),  # let go of
        (Reading(100 * PAGE, 7), Reading(100 * PAGE, 37), 30 * PAGE),  # and as much grown
        (Reading(100 * PAGE, 7), Reading(100 * PAGE, 900), 100 * PAGE),  # no more than there was
        # A huge page that was given counts as what it is.
        (Reading(8 * HUGE, 0, 10), Reading(8 * HUGE, 0, 14), 4 * HUGE),
        # A guest that was small has not been given all that the machine ever gave.
        (Reading(10 * HUGE, 0), Reading(20 * HUGE, 0, 10**6), 0),
        (Reading(20 * HUGE, 0, 10**6), Reading(15 * HUGE, 0), 5 * HUGE),
    ],
)
def test_what_was_written_to_or_let_go_of_is_left_behind(older, newer, expected):
    assert left_behind(older, newer) == expected


PROGRAM = """
import mmap, os, signal, sys
def block():
    made = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.argv[1] == "huge": made.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, len(made), 4096): made[at] = 1
    return made
kept = block()
copy = os.fork()
if not copy:
    signal.pause()
print(flush=True)
for line in sys.stdin:
    exec(line)
    print(flush=True)
os.kill(copy, 9)
"""


@pytest.fixture(params=["small", "huge"])
def process(request):
    """Start a process of 128 MiB that has a copy."""
    command = [sys.executable, "-c", PROGRAM, request.param]
    pipe = subprocess.PIPE
    # What the machine has of huge pages is counted: those of another run of this test are, too.
    with Path(tempfile.gettempdir(), f"cellblock-room-{os.geteuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as made:
            assert made.stdout.readline() == "\n"
            yield made
            made.stdin.close()
            made.wait()


@pytest.mark.parametrize(
    ("line", "megabytes"),
    [
        ("pass", 0),
        ("for at in range(0, 64 << 20, 4096): kept[at] = 2", 64),
        ("kept.close()", 128),
        ("kept.close(); kept = block()", 128),
        ("other = block()", 0),
    ],
)
def test_a_process_leaves_to_its_copy_what_it_wrote_to_or_let_go_of(process, line, megabytes):
    before = memory.read(process.pid, private_bytes(process.pid), 0)
    process.stdin.write(line + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "\n"
    after = memory.read(process.pid, private_bytes(process.pid), 0)
    held = left_behind(before, after) >> 20
    # What else the machine gave huge pages to in between counts, too.
    given = ((after.huge or 0) - (before.huge or 0)) * HUGE >> 20
    others = max(0, given - (128 if "block" in line else 0))
    assert megabytes - 2 <= held <= megabytes + 2 + others


@pytest.mark.parametrize("process", ["small"], indirect=True)
def test_pages_that_become_a_huge_one_without_a_fault_are_left_behind(process):
    before = memory.read(process.pid, private_bytes(process.pid), 0)
    process.stdin.write("kept.madvise(25)  # MADV_COLLAPSE: what a copy shares is copied\n")
    process.stdin.flush()
    assert process.stdout.readline() == "\n"
    after = memory.read(process.pid, private_bytes(process.pid), 0)
    assert left_behind(before, after) >> 20 >= 120


ON_ITS_OWN = """
import mmap, os, sys
kept = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(kept), 4096): kept[at] = 1
print(flush=True)
sys.stdin.readline()
copy = os.fork()
if copy:
    os.waitpid(copy, 0)
    sys.exit()
for at in range(0, 32 << 20, 4096): kept[at] = 2
more = bytearray(b"x") * (16 << 20)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


def test_what_a_copy_comes_to_hold_and_what_it_writes_to_are_told_apart():
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", ON_ITS_OWN], stdin=pipe, stdout=pipe, text=True
    ) as made:
        made.stdout.readline()
        had = memory.read(made.pid, private_bytes(made.pid), 0)
        made.stdin.write("\n")
        made.stdin.flush()
        grew, rewrote = copy_bytes(int(made.stdout.readline()), had, StatReader())
        made.stdin.close()
    assert (grew >> 20, rewrote >> 20) == (pytest.approx(16, abs=2), pytest.approx(48, abs=4))
