"""The zygote's line to a mounter that makes sessions' mounts: a late answer costs one session."""

import os
import socket
from pathlib import Path

import msgspec
import pytest

from cellblock.guest.confine import session_mounts
from cellblock.guest.confine.libc import ConfineError
from cellblock.wire.messages import Plan


@pytest.fixture
def told():
    """Return what the host was told, by the session that it is of."""
    return {}


@pytest.fixture
def made(lines, told):
    """Return the zygote's side."""

    def tell(message, fd):
        told[message.scratch] = os.fstat(fd).st_ino
        os.close(fd)

    ours, theirs = lines
    roots = ("/s", "/dev/shm", "/data")
    plan = Plan(shared_memory=4096, write_roots=roots, attributes=True)
    mounter = session_mounts.SessionMounter(ours, plan, "/s", tell)
    word, _, first = theirs.recv(1000).partition(b":")
    assert word == b"sessions"
    # Of what all write, neither the pool's folder nor its /dev/shm is any session's.
    assert msgspec.msgpack.decode(first) == {"memory": 4096, "shared": ["/data"], "seals": True}
    return mounter


def answer(line, number, error=0, files=()):
    data = msgspec.msgpack.encode({"number": number, "error": error})
    fds = [os.open(file, os.O_RDONLY) for file in files]
    socket.send_fds(line, [data], fds)
    for fd in fds:
        os.close(fd)


def asked(line):
    return msgspec.msgpack.decode(line.recv(1000))


def opened():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_late_answer_costs_the_session_that_waited_for_it_and_no_other(
    made, lines, told, tmp_path, monkeypatch
):
    _, theirs = lines
    late, own = ([tmp_path / f"{who}{n}" for n in range(3)] for who in ("late", "own"))
    for file in (*late, *own):
        file.touch()
    before = opened()
    with monkeypatch.context() as patch:
        patch.setattr(session_mounts, "PATIENCE", 0.01)
        with pytest.raises(TimeoutError):
            made.enter_fork(1, "/s/1")
    assert made.of_fork(1) is None
    first = asked(theirs)
    assert first["scratch"] == "/s/1"
    answer(theirs, first["number"], files=late)
    answer(theirs, first["number"] + 1, files=own)
    there = made.enter_fork(2, "/s/2")
    assert asked(theirs) == {"number": first["number"] + 1, "scratch": "/s/2"}
    assert made.of_fork(2) is there
    assert told == {"/s/2": own[2].stat().st_ino}
    assert opened() == before + 2  # the namespaces
    made.end_forks([2])
    assert opened() == before


def test_what_fails_for_one_session_is_asked_for_again(made, lines, tmp_path):
    _, theirs = lines
    files = [tmp_path / f"{n}" for n in range(2)]
    for file in files:
        file.touch()
    answer(theirs, 1, error=13)
    with pytest.raises(PermissionError):
        made.enter_fork(1, "/s/1")
    answer(theirs, 2, files=files)
    there = made.enter_fork(2, "/s/1")
    assert made.enter_fork(3, "/s/1") is there  # made once
    made.end_forks([2, 3])
    assert made.of_fork(3) is None


def test_who_can_make_none_says_so_before_the_first(made, lines):
    _, theirs = lines
    answer(theirs, 0, error=1)
    with pytest.raises(ConfineError):
        made.wait()


def test_who_has_ended_is_told_of(made, lines):
    _, theirs = lines
    answer(theirs, 0)
    made.wait()
    theirs.close()
    with pytest.raises(OSError, match=r".*"):
        made.enter_fork(1, "/s/1")
