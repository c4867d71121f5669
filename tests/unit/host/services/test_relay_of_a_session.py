"""The host's end of a relay, which is a process for real: what it is given, and what it counts."""

import os
import signal
import socket
import time

import pytest

from cellblock.host.services.relay import Relay, RelayUser
from cellblock.wire.messages import Neighbour
from support.relays import SECONDS, connected, is_reset
from support.simulator import Reactor


class Session:
    """What a session's guests find, and what the session hears of it."""

    def __init__(self):
        self.outside = socket.create_server(("127.0.0.1", 0))
        self.outside.settimeout(SECONDS)
        self.port = self.outside.getsockname()[1]
        self.counts, self.told, self.inside = [], [], []
        self.reactor = Reactor()
        self.user = RelayUser(self.counts.append, self.told.append)
        self.relay = Relay(self.reactor, (f"127.0.0.1:{self.port}",), self.user)

    def zygote(self):
        """Return the sockets of a zygote."""
        self.inside.append(socket.create_server(("127.0.0.1", 0)))
        neighbour = Neighbour(address="127.0.0.1", port=self.port)
        return {neighbour: self.inside[-1].fileno()}

    def connect(self, zygote=-1):
        return connected(self.inside[zygote].getsockname())

    def taken(self):
        peer, _ = self.outside.accept()
        peer.settimeout(SECONDS)
        return peer

    def until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition() and time.monotonic() < deadline:
            self.reactor.turn()
            time.sleep(0.001)
        assert condition()


@pytest.fixture
def session():
    made = Session()
    yield made
    made.relay.close()
    for sock in (made.outside, *made.inside):
        sock.close()


def test_a_connection_is_known_of_before_and_after_it_is_taken(session):
    relay = session.relay
    before = relay.came()
    relay.serve(session.zygote())
    os.kill(relay._worker.pid, signal.SIGSTOP)  # it takes nothing
    with session.connect():
        waits = relay.came()
        assert waits != before
        os.kill(relay._worker.pid, signal.SIGCONT)
        with session.taken():
            assert relay.came() == waits  # the same one
    with session.connect(), session.taken():
        assert relay.came() != waits


def test_what_was_reached_is_counted_by_address(session):
    session.relay.serve(session.zygote())
    for _ in range(3):
        with session.connect(), session.taken():
            pass
    session.relay.account(session.user)
    (counts,) = session.counts
    assert counts.reached == {f"127.0.0.1:{session.port}": 3}


def test_who_is_not_reached_is_told_of_once(session):
    session.relay.serve(session.zygote())
    session.outside.close()
    for _ in range(3):
        with session.connect() as guest:
            assert is_reset(guest)
    session.relay.say(session.user)
    session.relay.say(session.user)
    assert session.told == [f"can't reach 127.0.0.1:{session.port}: Connection refused"]


def test_a_relay_that_ends_is_replaced_and_one_that_never_serves_is_given_up(session):
    session.relay.serve(session.zygote())
    with session.connect() as guest, session.taken():
        os.kill(session.relay._worker.pid, signal.SIGKILL)
        assert is_reset(guest) or guest.recv(1) == b""
        session.until(lambda: session.relay._failed_starts == 1)
    with session.connect(), session.taken():
        session.relay.came()
    for _ in range(3):
        worker = session.relay._worker
        os.kill(worker.pid, signal.SIGKILL)
        session.until(lambda worker=worker: session.relay._worker is not worker)
    with pytest.raises(ConnectionRefusedError):
        session.connect()


def test_a_zygotes_connections_end_where_another_one_is_served(session):
    session.relay.serve(session.zygote())
    with session.connect() as guest, session.taken():
        session.relay.serve(session.zygote())
        assert guest.recv(1) == b"" if not is_reset(guest) else True
        with session.connect(), session.taken():
            pass


def test_nobody_is_reached_when_nothing_is_listed_any_more(session):
    session.relay.serve(session.zygote())
    with session.connect() as guest, session.taken() as peer:
        session.relay.narrow_to(())
        for one in (guest, peer):
            assert is_reset(one) or one.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            session.connect()
    assert not session.relay.has_hosts


def test_all_that_share_it_are_told_that_it_may_have_been_another(session):
    counts, told = [], []
    fork = RelayUser(counts.append, told.append)
    session.relay.join(fork)
    session.relay.serve(session.zygote())
    with session.connect(), session.taken():
        pass
    session.outside.close()
    with session.connect() as guest:
        assert is_reset(guest)
    for user in (session.user, fork):
        session.relay.account(user)
        session.relay.say(user)
    for (counted,), (said,) in ((session.counts, session.told), (counts, told)):
        assert (counted.reached, counted.shared) == ({f"127.0.0.1:{session.port}": 2}, True)
        assert said.startswith("a sandbox and its forks can't reach ")


def test_the_last_session_that_leaves_ends_it(session):
    fork = RelayUser()
    assert session.relay.join(fork) is session.relay
    session.relay.serve(session.zygote())
    session.relay.leave(fork)
    with session.connect(), session.taken():
        assert not session.relay.is_shared
