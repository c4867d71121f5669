"""The process that continues browsers' connections: whom it lets in, and what it bounds."""

import socket
import threading
from pathlib import Path

import pytest

from cellblock.host.services import port_relay
from cellblock.host.services.port_relay import ELSEWHERE, is_for, nobody_listens
from cellblock.host.services.ports import Enter, Open, Shut
from cellblock.wire import frames
from support.relays import close_pipes

SECONDS = 20
OURS = ("0123456789abcdef.localhost:8050",)
HEAD = b"GET / HTTP/1.1\r\nHost: 0123456789abcdef.localhost:8050\r\n"


# --- for whom a request is ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        HEAD + b"Cookie: a=b\r\n\r\nbody",
        b"POST /x?y HTTP/1.1\r\naccept: */*\r\nhost:0123456789ABCDEF.localhost:8050 \r\n",
        b"GET / HTTP/1.0\r\nHOST: 0123456789abcdef.localhost:8050\r\n\r\n",
    ],
)
def test_a_request_for_the_ports_own_name_is_let_in(head):
    assert is_for(head, OURS) is True


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1:8050",  # has the cookies of a Jupyter server at 127.0.0.1:8888
        b"localhost:8050",
        b"[::1]:8050",
        b"evil.example:8050",  # a name that leads to loopback: DNS rebinding
        b"0123456789abcdef.localhost:8051",
        b"0123456789abcdef.localhost",
        b"0123456789abcdef.localhost:8050.evil.example",
        b"x.0123456789abcdef.localhost:8050",
        b"0123456789abcdef.localhost:8050, evil.example",
        b"user@0123456789abcdef.localhost:8050",
        b"",
    ],
)
def test_a_request_for_any_other_name_is_not(host):
    assert is_for(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n", OURS) is False


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01",  # TLS
        b"get / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"GET / HTTP/1.1\r\n\r\n" + HEAD,  # the second request's
        b"GET / HTTP/1.1\r\nHost : 0123456789abcdef.localhost:8050\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: 0123456789abcdef.localhost:8050\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: 0123456789abcdef.localhost:8050\r\n",
        b"GET /" + b"a" * port_relay.MOST_HEAD,
        b"GET / HTTP/1.1\r\nX: " + b"a" * port_relay.MOST_HEAD,
        b"",
    ],
)
def test_what_does_not_say_it_as_browsers_do_is_not_let_in(head):
    assert is_for(head[: port_relay.MOST_HEAD], OURS) is False


@pytest.mark.parametrize("end", range(1, len(HEAD) - 1))
def test_a_request_that_has_yet_to_say_it_is_waited_for(end):
    assert is_for(HEAD[:end], OURS) is None


# --- connections ----------------------------------------------------------------------------------


class Relay:
    """A server in a thread, in this process's own network, and a session's server beside it."""

    def __init__(self):
        self.host, theirs = socket.socketpair()
        self.session = socket.create_server(("127.0.0.1", 0))
        self.session.settimeout(SECONDS)
        self.port = self.session.getsockname()[1]
        self.entered, self.listeners = [], []
        self.server = port_relay.Server(theirs, self.entered.append)
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()

    def send(self, message, *fds):
        socket.send_fds(self.host, [bytes(frames.encode(message))], fds)

    def enter(self):
        self.send(Enter(), self.host.fileno())

    def open(self, port=None, hosts=OURS):
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.listeners.append(listener)
        self.send(Open(port=port or self.port, listeners=1, hosts=hosts), listener.fileno())
        return listener.getsockname()

    def close(self):
        self.host.close()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()
        close_pipes(self.server)
        for sock in (self.session, *self.listeners):
            sock.close()


@pytest.fixture
def relay():
    made = Relay()
    yield made
    made.close()


@pytest.fixture
def address(relay):
    relay.enter()
    return relay.open()


def browser(address, said=HEAD + b"\r\n"):
    sock = socket.create_connection(address, SECONDS)
    sock.sendall(said)
    return sock


def taken(relay):
    peer, _ = relay.session.accept()
    peer.settimeout(SECONDS)
    return peer


def all_of(sock):
    """Return what comes until the end, and whether that was a reset."""
    found = b""
    with sock:
        try:
            while part := sock.recv(1 << 16):
                found += part
        except ConnectionResetError:
            return found, True
    return found, False


def test_bytes_go_both_ways_as_they_are_and_both_ends(relay, address):
    with browser(address) as one, taken(relay) as other:
        assert other.recv(999) == HEAD + b"\r\n"
        other.sendall(b"\x00\r\nHTTP/0.9 anything")
        assert one.recv(999) == b"\x00\r\nHTTP/0.9 anything"
        one.shutdown(socket.SHUT_WR)
        assert other.recv(1) == b""
        other.sendall(b"last")
        other.close()
        assert all_of(one) == (b"last", False)


def test_a_request_that_comes_byte_by_byte_is_let_in_once_it_says_for_whom(relay, address):
    with socket.create_connection(address, SECONDS) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(HEAD)):
            one.sendall(HEAD[at : at + 1])
        with taken(relay) as other:
            assert other.recv(999) == HEAD


def test_what_is_for_another_is_answered_here_and_never_reaches_the_session(relay, address):
    strange = HEAD.replace(b"0123456789abcdef.localhost", b"evil.example") + b"\r\n"
    assert all_of(browser(address, strange)) == (ELSEWHERE, False)
    relay.session.settimeout(0)
    with pytest.raises(BlockingIOError):
        relay.session.accept()


def test_where_nobody_listens_the_browser_is_told(relay):
    relay.enter()
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert all_of(browser(relay.open(free))) == (nobody_listens(free), False)


def test_nothing_is_served_before_the_network_is_entered():
    host, theirs = socket.socketpair()
    with host, theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        message = Open(port=1, listeners=1, hosts=OURS)
        socket.send_fds(host, [bytes(frames.encode(message))], [listener.fileno()])
        port_relay.Server(theirs, lambda _network: None).serve()  # it ends


def test_where_it_can_not_be_entered_the_process_ends():
    host, theirs = socket.socketpair()
    host.settimeout(SECONDS)
    with host, socket.create_server(("127.0.0.1", 0)) as listener:

        def fails(_network):
            raise PermissionError(1, "Operation not permitted")

        for message in (Enter(), Open(port=1, listeners=1, hosts=OURS)):
            socket.send_fds(host, [bytes(frames.encode(message))], [listener.fileno()])
        port_relay.Server(theirs, fails).serve()
        assert b"Operation not permitted" in host.recv(999)
    theirs.close()


def test_a_port_that_is_shut_ends_its_connections_and_no_others(relay, address):
    second = socket.create_server(("127.0.0.1", 0))
    relay.listeners.append(second)
    kept_at = relay.open(second.getsockname()[1])
    gone, kept = browser(address), browser(kept_at)
    with taken(relay) as other, second.accept()[0] as kept_peer:
        assert other.recv(999) == HEAD + b"\r\n"  # before the reset, which drops what is unread
        relay.send(Shut(port=relay.port))
        assert all_of(gone)[1]
        with pytest.raises(ConnectionResetError):
            other.recv(1)
        kept_peer.settimeout(SECONDS)
        assert kept_peer.recv(999) == HEAD + b"\r\n"
        kept.sendall(b"more")
        assert kept_peer.recv(999) == b"more"
    kept.close()


def test_those_that_never_ask_make_room_for_who_does(relay, address, monkeypatch):
    monkeypatch.setattr(port_relay, "ASKING_SECONDS", 3_600)
    silent = [socket.create_connection(address, SECONDS)]
    silent += [socket.create_connection(address, SECONDS) for _ in range(port_relay.MOST_ASKING)]
    with browser(address) as one, taken(relay) as other:
        assert all_of(silent[0])[1]  # the oldest
        other.sendall(b"here")
        assert one.recv(4) == b"here"
    for sock in silent:
        sock.close()


def test_one_that_never_asks_has_a_time(relay, monkeypatch):
    monkeypatch.setattr(port_relay, "ASKING_SECONDS", 0.05)
    relay.enter()
    assert all_of(browser(relay.open(), b"GET / HT")) == (b"", True)


@pytest.mark.parametrize("who", ["the browser", "the server"])
def test_a_connection_that_is_half_closed_has_a_time(relay, address, monkeypatch, who):
    monkeypatch.setattr(port_relay, "LEFT_SECONDS", 0.05)
    one = browser(address)
    with taken(relay) as other:
        assert other.recv(999) == HEAD + b"\r\n"
        leaves, stays = (one, other) if who == "the browser" else (other, one)
        leaves.shutdown(socket.SHUT_WR)
        assert stays.recv(1) == b""
        with pytest.raises(ConnectionResetError):
            assert leaves.recv(1) is None
    one.close()


def test_more_than_there_may_be_wait_and_are_served_when_others_have_ended(relay):
    relay.server._most = 3
    relay.enter()
    address = relay.open()
    first = [(browser(address), taken(relay)) for _ in range(3)]
    late = browser(address)
    relay.session.settimeout(0)
    with pytest.raises(BlockingIOError):
        relay.session.accept()
    relay.session.settimeout(SECONDS)
    for sock in first[0]:
        sock.close()
    with taken(relay) as other:
        assert other.recv(999) == HEAD + b"\r\n"
    for sock in (late, *first[1], *first[2]):
        sock.close()


def test_a_reader_that_does_not_read_costs_its_own_connection_alone(relay, address):
    one = browser(address)
    with taken(relay) as other, browser(address) as quick:
        other.setblocking(False)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += other.send(b"x" * (1 << 16))
        except BlockingIOError:
            pass
        assert sent < 32 << 20
        with taken(relay) as peer:
            peer.sendall(b"quick")
            assert quick.recv(5) == b"quick"
    one.close()


def test_connections_that_have_ended_leave_no_descriptor(relay, address):
    def once():
        with browser(address) as one, taken(relay) as other:
            other.close()
            all_of(one)

    once()
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(50):
        once()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before + 4
