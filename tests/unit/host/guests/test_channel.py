"""The host's end of a channel, with the OS layer out of the way: what the OS kernel would pass."""

import os
import socket
from pathlib import Path

import pytest

from cellblock.descriptors import SO_PASSRIGHTS
from cellblock.errors import GuestError
from cellblock.host.guests import process
from cellblock.host.guests.process import Guest
from cellblock.wire import frames, messages
from support.simulator import Reactor

STREAM = messages.Stream(name="stdout", text="x" * 1_000)


@pytest.fixture
def sim(simulate):
    """A session whose guest has taken up a cell."""
    made = simulate(timeout=None)
    made.took_up()
    return made


def violation(sim):
    assert sim.ended.stopped.why == "violation"
    return sim.ended.stopped.detail


def knows_passrights():
    with socket.socket(socket.AF_UNIX) as any_socket:
        try:
            return bool(any_socket.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS))
        except OSError:
            return False


@pytest.mark.skipif(not knows_passrights(), reason="Linux before 6.16")
def test_descriptors_are_not_sent_and_no_file_is_freed_by_the_host(sim):
    """It would wait for that: a file of many pieces takes the OS kernel minutes."""
    with Path(os.devnull).open() as null, pytest.raises(PermissionError):
        socket.send_fds(sim.guest.sock, [bytes(frames.encode(STREAM))], [null.fileno()])
    sim.reactor.turn()
    assert sim.outcomes == []


def test_descriptors_are_a_violation_and_stay_out(monkeypatch, simulate, descriptors):
    monkeypatch.setattr(process, "refuse_descriptors", lambda _: None)  # as before Linux 6.16
    sim = simulate(timeout=None)
    sim.took_up()
    before = descriptors()
    with Path(os.devnull).open() as null:
        socket.send_fds(sim.guest.sock, [bytes(frames.encode(STREAM))], [null.fileno()] * 10)
    sim.reactor.turn()
    assert violation(sim) == "protocol violation: descriptors or credentials on the channel"
    assert descriptors() <= before + 3  # the next guest's, no others


def test_out_of_band_bytes_are_a_violation_and_no_endless_loop(sim):
    sim.guest.sock.send(b"x", socket.MSG_OOB)
    sim.guest.send(STREAM)
    sim.reactor.turn()  # returns: nothing is readable that can't be read
    sim.reactor.advance(30.0)
    assert violation(sim).startswith("protocol violation")


@pytest.mark.parametrize("sent", [1, 3, 4, 500])
def test_a_frame_that_does_not_end_is_a_violation(sim, sent):
    sim.guest.sock.sendall(frames.encode(STREAM)[:sent])
    sim.reactor.advance(process.FRAME_LOOKS * process.FRAME_LOOK)
    assert sim.outcomes == []
    sim.reactor.advance(2 * process.FRAME_LOOK)
    assert violation(sim) == "protocol violation: a frame that does not end"


def test_a_frame_that_comes_byte_by_byte_is_no_better(sim):
    for byte in bytes(frames.encode(STREAM))[:20]:
        if not sim.outcomes:
            sim.guest.sock.sendall(bytes([byte]))
            sim.reactor.advance(1.0)
    assert violation(sim) == "protocol violation: a frame that does not end"


def test_frames_that_end_are_waited_for_however_long_they_go_on(sim):
    frame = bytes(frames.encode(STREAM))
    sim.guest.sock.sendall(frame[:500])
    for _ in range(20):  # there is never a moment without half a frame
        sim.reactor.advance(5.0)
        sim.guest.sock.sendall(frame[500:] + frame[:500])
        sim.reactor.turn()
    assert sim.outcomes == []


def test_who_is_not_heard_is_not_blamed_for_silence(sim):
    sim.guest.sock.sendall(frames.encode(STREAM)[:500])
    sim.reactor.turn()
    sim.session.hold(held=True)
    sim.guest.sock.sendall(frames.encode(STREAM)[500:])
    sim.reactor.advance(60.0)
    assert (sim.outcomes, [n for n in sim.notes if n[0] == "shown"]) == ([], [])
    sim.session.hold(held=False)
    sim.reactor.turn()
    assert ("shown", STREAM) in sim.notes


def test_who_is_no_longer_heard_in_the_middle_of_a_frame_is_not_blamed_for_it(sim, monkeypatch):
    monkeypatch.setattr(sim, "on_output", lambda _: sim.session.hold(held=True))
    frame = bytes(frames.encode(STREAM))
    sim.guest.sock.sendall(frame + frame[:500])
    sim.reactor.advance(60.0)
    assert sim.outcomes == []


def test_a_guest_that_is_not_heard_can_still_be_spoken_to_and_replaced(sim):
    sim.session.hold(held=True)
    sim.session.interrupt()
    sim.reactor.advance(1.0)
    sim.session.interrupt()
    sim.reactor.turn()
    assert ("hurried", None) in sim.notes
    assert [o.stopped.why for o in sim.outcomes] == ["interrupt"]


def test_a_question_is_put_where_one_may_be(sim):
    number = sim.session.requests.request.message.id
    sim.hears(messages.InputRequest(id=number, prompt="?"))
    assert violation(sim) == "protocol violation: a question where none may be asked"


def test_a_cell_that_waited_too_long_for_its_guest_has_all_its_time_in_the_next(simulate):
    sim = simulate(timeout=10.0)
    sim.runs()  # never read, never begun
    sim.reactor.advance(13.0)
    sim.done(sim.begins())
    assert sim.ended.status == "ok"


def test_a_cell_that_was_interrupted_before_it_began_does_not_run_in_the_next(simulate):
    sim = simulate(timeout=None)
    sim.runs()
    sim.session.interrupt()
    sim.reactor.advance(4.0)
    assert sim.ended.stopped.why == "silent"
    assert sim.guest.read() == []


# --- a guest that does not read ---------------------------------------------------------------


ANSWER = messages.Input(id=1, value="x" * (1 << 20))


@pytest.fixture
def deaf():
    """A guest whose end of the channel is there, and read only by the test."""
    reactor = Reactor()
    made = Guest(reactor, print, print, print)
    theirs = socket.socket(fileno=os.dup(made.child_fds[0]))
    yield made, reactor, theirs
    theirs.close()
    made.close()


def send_many(guest, count):
    for _ in range(count):
        guest.send(ANSWER)


def test_what_waits_for_a_guest_that_does_not_read_is_bounded(deaf):
    guest, reactor, theirs = deaf
    for _ in range(process.MAX_PENDING // len(ANSWER.value) - 1):
        guest.send(ANSWER)
    with pytest.raises(GuestError, match="the guest does not read"):
        send_many(guest, 5)
    assert guest.backlog <= process.MAX_PENDING
    # Control: to one that reads there is no end of it.
    theirs.setblocking(False)
    for _ in range(3):
        while guest.backlog:
            theirs.recv(1 << 20)
            reactor.turn()
        send_many(guest, 20)
