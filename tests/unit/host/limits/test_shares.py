"""What several processes have of the pages that they share, of real ones and by numbers."""

import subprocess
import sys
import threading

import pytest

from cellblock.host.limits import reading, shares
from cellblock.host.limits.reading import SpacedReading
from cellblock.host.limits.shares import Shares, beyond

#: Each copy of 32 MiB has them as they were; ``steps`` says whether all of them are written then.
PROGRAM = """
import mmap, os, signal, sys
kept = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def write():
    for at in range(0, len(kept), 4096): kept[at] = (kept[at] + 1) % 256
write()
copies = []
for step in sys.argv[1]:
    if not (copy := os.fork()): signal.pause()
    copies.append(copy)
    if step == "w": write()
print(*copies, flush=True)
sys.stdin.readline()
for copy in copies: os.kill(copy, 9)
"""


@pytest.fixture
def copies(request):
    command = [sys.executable, "-S", "-c", PROGRAM, request.param]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as made:
        yield [int(pid) for pid in made.stdout.readline().split()]
        made.communicate("\n")


def of_copies(pids):
    """Return the MiB that all but the last copy have, and it has not."""
    found = shares.read(pids)
    assert found is not None
    *older, newest = (found[pid] for pid in pids)
    return beyond(newest, older) >> 20


@pytest.mark.parametrize(
    ("copies", "least", "most"),
    [
        # All copies and the process itself have the same.
        ("----", 0, 2),
        # Each has what it had for itself, the newest what it shares with the process.
        ("www-", 94, 98),
        # Two copies each have the same; of the newest two, and the process, none is older.
        ("-w-w--", 30, 66),
        # The oldest two have one state between them, the newest has its own.
        ("-ww", 30, 34),
    ],
    indirect=["copies"],
)
def test_what_older_copies_have_that_the_newest_has_not_is_never_reckoned_too_high(
    copies, least, most
):
    assert least <= of_copies(copies) <= most


@pytest.mark.parametrize("copies", ["ww"], indirect=True)
def test_a_process_that_ends_meanwhile_is_left_out(copies, monkeypatch):
    first, last = copies
    monkeypatch.setattr(shares, "private_bytes", lambda pid: 0 if pid == first else 1)
    assert shares.read(copies).keys() == {last}


def test_pages_are_not_known_of_any_where_one_can_not_be_asked(monkeypatch):
    monkeypatch.setattr(Shares, "of", lambda pid: None if pid == 2 else Shares(1, 1, 1))
    assert shares.read([1, 2]) is None


def test_a_reading_that_took_long_is_not_repeated_for_ten_times_as_long(monkeypatch):
    now, begun = [0.0], []
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    spaced, unlocked = SpacedReading(), threading.Event()

    def read():
        begun.append(now[0])
        unlocked.wait(10)
        now[0] += 5.0

    spaced.begin_if_due(read)
    spaced.begin_if_due(read)  # the first has not ended
    unlocked.set()
    spaced._thread.join(10)
    for at in (6.0, 54.0, 55.0):
        now[0] = at
        spaced.begin_if_due(read)
        spaced._thread.join(10)
    assert begun == [0.0, 55.0]
