"""The host's ends of copies: what they cost it, and whom it signals."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.host import guest_process
from cellblock.host.guest_process import Guest, Lineage
from cellblock.host.snapshots import Settings, Snapshots
from cellblock.wire import frames, messages
from support.simulator import Reactor


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def reactor():
    return Reactor()


def guest(reactor, **options):
    ignore = lambda *_: None  # noqa: E731
    return Guest(reactor, ignore, ignore, ignore, **options)


class Zygote:
    """A zygote that is asked for nothing."""

    def allow(self, _lineage):
        raise AssertionError

    members = allow


# --- descriptors ------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch):
    """Have the host open one pipe, and then no more."""
    real, left = os.pipe, [1]

    def pipe():
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        left.pop()
        return real()

    monkeypatch.setattr(guest_process.os, "pipe", pipe)


@pytest.mark.usefixtures("few")
def test_a_guest_for_which_there_are_too_few_descriptors_leaves_none_open(reactor):
    before = descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        guest(reactor)
    assert descriptors() == before
    assert reactor._fds == {}


def test_descriptors_that_the_host_lacks_cost_a_snapshot_and_are_told_once(reactor, monkeypatch):
    serving, told, asked = guest(reactor), [], []
    snapshots = Snapshots(reactor, Settings("always"), lambda: 0.0, told.append, lambda: None)

    def none_left(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(guest_process.socket, "socketpair", none_left)
    for number in range(3):
        snapshots.take(serving, Zygote(), lambda number=number: asked.append(number))
    assert asked == [0, 1, 2]
    assert told == ["the kernel can't open what one takes (Too many open files)"]
    assert snapshots.copies == ()
    serving.close()


# --- whose process it is ----------------------------------------------------------------------


def test_a_process_of_another_session_is_neither_vouched_for_nor_signalled(reactor):
    waiting = guest(reactor, vouched=True)
    waiting.lineage = Lineage(1, os.getsid(0))
    said = bytes(frames.encode(messages.Standing(id=1)))
    program = f"import os; os.write(0, {said!r}); os.read(0, 1)"
    theirs = socket.socket(fileno=os.dup(waiting.theirs[0]))
    before = descriptors()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, start_new_session=True
    ) as other:
        while waiting.pid is None:
            reactor.turn()
        assert waiting.pid == other.pid
        vouched = waiting.vouch()
        left = descriptors() - before
        theirs.close()
        waiting.close()
        assert (vouched, left) == (False, 0)
        assert other.wait() == 0  # by the end of its channel
