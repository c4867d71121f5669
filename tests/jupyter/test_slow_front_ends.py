"""What front ends have yet to take is known, and one that takes nothing is cut off in the end."""

import time

import pytest
import zmq

from cellblock.jupyter import channels
from support.client import connection

PIECE = [b"stream", b"<IDS|MSG>", b"x" * (64 << 10)]
SENT = 40 << 20


@pytest.fixture
def bound(tmp_path, monkeypatch):
    """The iopub socket of a kernel whose patience is three seconds, and its address."""
    monkeypatch.setattr(channels, "_STALLED_MS", 3_000)
    info, context = connection(), zmq.Context()
    made = channels.bind(context, channels.Connection(tmp_path / "kernel.json", info))
    yield made["iopub"], f"tcp://127.0.0.1:{info['iopub_port']}"
    context.destroy(linger=0)


@pytest.fixture
def subscribe(bound):
    iopub, address = bound
    context, kept = zmq.Context(), []

    def subscribed():
        sock = context.socket(zmq.SUB)
        kept.append(sock)  # one that is forgotten is closed
        sock.rcvhwm, sock.rcvbuf = 4, 4096
        sock.subscribe(b"")
        sock.connect(address)
        assert iopub.recv() == b"\x01"
        return sock

    yield subscribed
    context.destroy(linger=0)


def sent(iopub):
    flow = channels.IopubQueue(iopub)
    for _ in range(SENT // len(PIECE[-1])):
        flow.send(PIECE)
    return flow


def left(flow, wanted, seconds):
    """Return what waits when ``wanted`` is all that does, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while flow.waiting() > wanted and time.monotonic() < deadline:
        # As the loop does: a socket learns what became of its peers when it is polled.
        if flow._sock.poll(10):
            flow._sock.recv()
    return flow.waiting()


def test_without_a_subscriber_nothing_waits(bound):
    assert left(sent(bound[0]), channels.MARK_EVERY, 2) <= channels.MARK_EVERY


def test_what_a_subscriber_does_not_read_waits_and_what_it_reads_does_not(bound, subscribe):
    reader = subscribe()
    flow = sent(bound[0])
    assert left(flow, 0, 0.5) > SENT // 2
    for _ in range(SENT // len(PIECE[-1])):
        assert reader.recv_multipart() == PIECE
    assert left(flow, channels.MARK_EVERY, 2) <= channels.MARK_EVERY


def test_the_slowest_of_several_counts(bound, subscribe):
    subscribe()
    reader = subscribe()
    flow = sent(bound[0])
    for _ in range(SENT // len(PIECE[-1])):
        reader.recv_multipart()
    assert left(flow, 0, 0.5) > SENT // 2


def test_one_that_takes_nothing_is_cut_off_and_the_next_is_served(bound, subscribe):
    subscribe()
    flow = sent(bound[0])
    assert left(flow, channels.MARK_EVERY, 20) <= channels.MARK_EVERY
    reader = subscribe()
    flow.send(PIECE)
    assert reader.recv_multipart() == PIECE


class Reactor:
    """Timers that are due when the test says so."""

    def __init__(self):
        self.due = []

    def call_later(self, _seconds, action):
        self.due.append(action)

    def turn(self):
        due, self.due = self.due, []
        for action in due:
            action()


class Level:
    """A queue with a level that the test sets."""

    level = 0

    def waiting(self):
        return self.level

    def over(self, limit):
        return self.level > limit


@pytest.fixture
def brake(monkeypatch):
    holds = []
    made = channels.Backpressure(Reactor(), Level(), holds.append)
    made.holds, made.reactor, made.level = holds, made._reactor, made._queue
    made.now = 0.0
    monkeypatch.setattr(channels.time, "monotonic", lambda: made.now)
    return made


def test_the_guest_waits_between_the_marks(brake):
    brake.level.level = channels.HIGH + 1
    brake.check()
    brake.level.level = channels.LOW + 1
    brake.reactor.turn()
    assert brake.holds == [True]
    brake.level.level = channels.LOW
    brake.reactor.turn()
    assert brake.holds == [True, False]
    assert brake.admits()


def test_progress_renews_patience_and_a_stall_ends_it(brake):
    brake.level.level = 3 * channels.HIGH
    brake.check()
    for _ in range(5):
        brake.now += channels.PATIENCE - 1
        brake.level.level -= 1
        brake.reactor.turn()
    assert brake.holds == [True]
    brake.now += channels.PATIENCE + 1
    brake.reactor.turn()
    assert brake.holds == [True, False]
    assert not brake.admits()
    brake.check()
    assert brake.holds == [True, False]  # not again until it has been low
    brake.level.level = channels.LOW
    assert brake.admits()
    brake.level.level = channels.HIGH + 1
    brake.check()
    assert brake.holds == [True, False, True]
