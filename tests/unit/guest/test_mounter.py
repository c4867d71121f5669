"""The zygote's line to the process that mounts for it: who does not answer holds nobody up."""

import os
import socket

import pytest

from cellblock.guest.confine import layer
from cellblock.wire.messages import Layer


@pytest.fixture
def lines():
    """Return both ends of a line; the other one waits for nothing."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_who_answers_late_is_not_asked_again(lines, monkeypatch):
    monkeypatch.setattr(layer, "PATIENCE", 0.01)
    ours, theirs = lines
    mounter = layer.Mounter(ours, [])
    assert ours.gettimeout() == layer.PATIENCE
    with pytest.raises(OSError, match="does not answer"):
        mounter.refresh()
    with pytest.raises(BrokenPipeError):
        theirs.send(b"0")  # it would be taken for the answer to the next question
    with pytest.raises(OSError, match="has ended"):
        mounter.refresh()


def test_who_has_ended_is_told_of(lines):
    ours, theirs = lines
    mounter = layer.Mounter(ours, [])
    theirs.close()
    with pytest.raises(OSError, match="has ended"):
        mounter.refresh()


def test_what_could_not_be_covered_is_asked_for_again_and_what_was_is_not(lines):
    ours, theirs = lines
    covered = Layer(root="/root", folder="/layer", covered=("a", "b"))
    mounter = layer.Mounter(ours, [covered])
    theirs.send(b"0")
    theirs.send(b"13")
    with pytest.raises(PermissionError):
        mounter.cover([covered])
    assert [theirs.recv(100) for _ in range(2)] == [b'[0,"a"]', b'[0,"b"]']
    theirs.send(b"0")
    mounter.cover([covered])
    assert theirs.recv(100) == b'[0,"b"]'
    mounter.cover([covered])
    with pytest.raises(BlockingIOError):
        theirs.recv(100)


def test_who_mounts_does_not_wait_for_a_zygote_that_reads_no_answers(monkeypatch):
    """Else it would outlive the zygote, which a fork that has the line could keep so."""
    monkeypatch.setattr(layer, "_mount", lambda *_: 0)
    forked, fork = [], os.fork
    monkeypatch.setattr(layer.os, "fork", lambda: forked.append(fork()) or forked[-1])
    empty = os.open("/", os.O_PATH), os.open("/", os.O_PATH)
    mounter = layer.start_mounter([], empty)

    def ask_without_end():
        while True:
            mounter._line.send(b"null")

    with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):  # it has gone
        ask_without_end()
    os.waitpid(forked[0], 0)
