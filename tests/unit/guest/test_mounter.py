"""The zygote's line to the process that mounts for it: who does not answer holds nobody up."""

import os
import socket

import pytest

from cellblock.guest import mounter
from cellblock.guest.confine import layer
from cellblock.wire.messages import Layer


def test_who_answers_late_is_not_asked_again(lines, monkeypatch):
    monkeypatch.setattr(layer, "PATIENCE", 0.01)
    ours, theirs = lines
    made = layer.Mounter(ours, [])
    assert ours.gettimeout() == layer.PATIENCE
    with pytest.raises(OSError, match="does not answer"):
        made.refresh()
    with pytest.raises(BrokenPipeError):
        theirs.send(b"0")  # it would be taken for the answer to the next question
    with pytest.raises(OSError, match="has ended"):
        made.refresh()


def test_who_has_ended_is_told_of(lines):
    ours, theirs = lines
    made = layer.Mounter(ours, [])
    theirs.close()
    with pytest.raises(OSError, match="has ended"):
        made.refresh()


def test_what_could_not_be_covered_is_asked_for_again_and_what_was_is_not(lines):
    ours, theirs = lines
    covered = Layer(root="/root", folder="/layer", covered=("a", "b"))
    made = layer.Mounter(ours, [covered])
    theirs.send(b"0")
    theirs.send(b"13")
    with pytest.raises(PermissionError):
        made.cover([covered])
    assert [theirs.recv(100) for _ in range(2)] == [b"0:a", b"0:b"]
    theirs.send(b"0")
    made.cover([covered])
    assert theirs.recv(100) == b"0:b"
    made.cover([covered])
    with pytest.raises(BlockingIOError):
        theirs.recv(100)


@pytest.fixture
def line(monkeypatch):
    """Return the line to a process that mounts, where this process is, and its pid."""
    monkeypatch.setattr(mounter, "_mount", lambda *_: 0)
    monkeypatch.setattr(mounter, "_enter", lambda *_: None)
    forked, fork = [], os.fork
    monkeypatch.setattr(mounter.os, "fork", lambda: forked.append(fork()) or forked[-1])
    with socket.socket(fileno=mounter.fork()) as line:
        yield line, forked[0]


def begun(line):
    made = layer.Mounter(line, [])
    made.begin([], (os.open("/", os.O_PATH), os.open("/", os.O_PATH)))
    return made


def test_who_mounts_does_not_wait_for_a_zygote_that_reads_no_answers(line):
    """Else it would outlive the zygote, which a fork that has the line could keep so."""
    made, pid = begun(line[0]), line[1]

    def ask_without_end():
        while True:
            made._line.send(mounter.REFRESH)

    with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):  # it has gone
        ask_without_end()
    os.waitpid(pid, 0)


@pytest.mark.parametrize("said", [b"", b"e"])
def test_who_is_to_mount_nothing_ends(line, said):
    """Where nothing is staged, or nowhere is named to be entered."""
    if said:
        line[0].send(said)
    line[0].close()
    assert os.waitpid(line[1], 0)[1] == 0
