"""What the host spends on listening to one guest, and whom it takes for that guest."""

import os
import socket

import pytest

from cellblock.host.guests import process
from cellblock.host.guests.process import Guest
from cellblock.wire import frames, messages
from support.simulator import Reactor


class Pair:
    """A guest that is not there: both ends of its channel are held here."""

    def __init__(self, *, check_sender=False):
        self.reactor, self.heard, self.lost = Reactor(), [], []
        self.guest = Guest(
            self.reactor,
            self.hear,
            lambda *_: None,
            self.lost.append,
            check_sender=check_sender,
        )
        self.sock = socket.socket(fileno=os.dup(self.guest.child_fds[0]))

    def hear(self, message):
        self.heard.append(message.text)

    def say(self, text):
        self.sock.sendall(frames.encode(messages.Stream(name="stdout", text=text)))

    def close(self):
        self.guest.pid = None  # ours: it is not to be ended
        self.guest.close()
        self.sock.close()


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


def test_of_a_guest_that_ended_so_much_is_heard_whoever_speaks_on(pair):
    def hear(_message):
        pair.heard.append("x")
        if len(pair.heard) < 10 * process.LAST_READS:  # a child of its that has its channel
            pair.say("x")

    pair.guest.on_message = hear
    pair.say("x")
    pair.guest.read_rest()
    assert len(pair.heard) == process.LAST_READS


def test_a_guest_of_which_nothing_is_asked_takes_a_part_of_the_hosts_time(pair, monkeypatch):
    took = iter(range(1_000))
    monkeypatch.setattr(process, "thread_time", lambda: next(took) * process.AT_ONCE)
    pair.say("a")
    pair.reactor.turn()
    pair.say("b")
    pair.reactor.turn()
    assert pair.heard == ["a", "b"]  # positive control: it is asked for something

    pair.guest.throttle(on=True)
    pair.say("c")
    pair.reactor.turn()
    pair.say("d")
    pair.reactor.turn()
    assert pair.heard == ["a", "b", "c"]
    pair.reactor.advance(2 * process.REST * process.AT_ONCE)
    assert pair.heard == ["a", "b", "c", "d"]
    assert pair.lost == []


@pytest.mark.parametrize(("session", "ours"), [(os.getsid(0), True), (-1, False)])
def test_a_process_of_another_session_is_not_our_guest(session, ours):
    pair = Pair(check_sender=True)
    try:
        pair.say("who I am")
        pair.reactor.turn()
        assert pair.guest.pid == os.getpid()
        pair.guest.lineage.session = session
        assert pair.guest.sender_is_ours() is ours
        assert pair.guest.pid == (os.getpid() if ours else None)
    finally:
        os.close(pair.guest.pidfd) if pair.guest.pidfd is not None else None
        pair.guest.pidfd = None
        pair.close()
