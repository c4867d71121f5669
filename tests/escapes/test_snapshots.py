"""What a guest that has taken over its own process can make of snapshots: nothing more.

A snapshot is the one fork that a guest has where cells may start no processes. Each attack here
has the guest's own objects in its hands (mode unsafe) and wants a process besides, one that runs
while it should wait, one that outlives whoever should end it, or a host that pays for it.
"""

import json
import time
from pathlib import Path

import pytest

from support import reading

PRELUDE = """
import ctypes, gc, os, random, signal, threading, time
from cellblock.wire import frames, messages
libc = ctypes.CDLL(None)
def find(name):
    own = lambda o: type(o).__name__ == name and type(o).__module__.startswith("cellblock")
    return next(o for o in gc.get_objects() if own(o))
snapshots, channel = find("Snapshots"), find("Channel")
def refuse(request):
    for fd in channel.take_descriptors(): os.close(fd)
    channel.send(messages.NotStanding(id=request.id, detail="no"))
"""
LONG = "; import time; time.sleep(0.11)"  # answered when its snapshot is decided
SECONDS = 15.0


@pytest.fixture
def kernel(start):
    """A kernel whose guest does as it likes with what is its own."""
    kernel = start("unsafe", "--allow-unsafe")
    run(kernel, PRELUDE)
    return kernel


def run(kernel, code, status="ok"):
    reply, published = kernel.run(code)
    assert reply["status"] == status, (reply, kernel.stderr())
    return reading.result(published)


def state(pid):
    """Return a process's state and the ticks that it ran for, or None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[11]) + int(fields[12])


def running(kernel):
    """Return the descendants of the zygote that run, or can: the guest left out."""
    others = set(kernel.tree()) - {kernel.proc.pid, kernel.zygote(), kernel.guest()}
    return [pid for pid in others if (state(pid) or "Z")[0] == "R"]


def until(true, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


# --- a process besides ------------------------------------------------------------------------


def test_a_fork_that_takes_a_snapshots_place_is_ended(kernel):
    run(
        kernel,
        "def steal(request):\n"
        "    if libc.fork() == 0:\n"
        "        while True: pass\n"
        "    refuse(request)\n"
        "snapshots.take = steal" + LONG,
    )
    run(kernel, "1" + LONG)
    run(kernel, "2" + LONG)
    until(lambda: not running(kernel))


def test_forks_in_a_loop_get_no_further_than_one_that_is_due(kernel):
    code = (
        "made = []\n"
        "for _ in range(300):\n"
        "    pid = libc.fork()\n"
        "    if pid == 0: time.sleep(60)\n"
        "    if pid > 0: made.append(pid)\n"
        "made"
    )
    made = json.loads(run(kernel, code))
    assert len(made) <= 1
    run(kernel, "1" + LONG)
    until(lambda: not made or (state(made[0]) or "Z")[0] == "Z")


def test_a_copy_that_never_says_that_it_stands_is_ended(kernel):
    hang = "def hang():\n    while True: pass\nos.register_at_fork(after_in_child=hang)"
    run(kernel, hang)
    until(lambda: running(kernel))
    until(lambda: not running(kernel))
    assert run(kernel, "6 * 7") == "42"
