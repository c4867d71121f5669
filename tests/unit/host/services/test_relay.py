"""The relay, asked by guests that mean well and by others."""

import errno
import os
import select
import socket
import threading
import time

import pytest

from cellblock.host.services import relay
from cellblock.wire import relay as protocol
from support.relays import SECONDS, Relay, after, flood, read


@pytest.fixture
def start():
    made = []

    def begin(*entries):
        made.append(Relay(*entries))
        return made[-1]

    yield begin
    for one in made:
        one.close()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(SECONDS)
        yield made


@pytest.fixture
def port(listener):
    return listener.getsockname()[1]


def test_what_is_listed_is_connected_and_handed_in(start, listener, port):
    guest = start(f"127.0.0.1:{port}").guest()
    answer, (sock,) = guest.connect(port)
    peer, _ = listener.accept()
    with sock, peer:
        sock.setblocking(True)
        sock.sendall(b"to")
        peer.sendall(b"fro")
        assert (answer.errno, peer.recv(9), sock.recv(9)) == (0, b"to", b"fro")
        assert sock.getpeername() == ("127.0.0.1", port)


def test_a_connection_is_told_before_it_is_answered(start, port):
    relayed = start(f"127.0.0.1:{port}", "10.0.0.5:5432")
    guest = relayed.guest()
    guest.connect(port)
    guest.connect(port, "10.0.0.5")
    guest.resolve("example.org")
    assert [relayed.said() for _ in range(3)] == [
        relay.Judged(verdict="reached", host="127.0.0.1", port=port),
        relay.Judged(verdict="refused", host="10.0.0.5", port=port),
        relay.Judged(verdict="refused", host="example.org"),
    ]


OTHERS = {
    "127.0.0.2": "127.0.0.2:{}",
    "::1": "[::1]:{}",
    "0.0.0.0": "0.0.0.0:{}",
    "::ffff:127.0.0.2": "[::ffff:127.0.0.2]:{}",
    "127.1": "127.1:{}",
    "localhost": "localhost:{}",
    "169.254.169.254": "169.254.169.254:{}",
}


@pytest.mark.parametrize("host", OTHERS)
def test_other_hosts_are_not(start, listener, port, host):
    answer, given = start(f"127.0.0.1:{port}").guest().connect(port, host)
    assert (answer.errno, given) == (errno.EACCES, [])
    assert answer.why == f"{OTHERS[host].format(port)} is not on the list"
    nobody_came(listener)


def test_other_ports_are_not(start, listener, port):
    answer, given = start(f"127.0.0.1:{port % 65_535 + 1}").guest().connect(port)
    assert (answer.errno, given) == (errno.EACCES, [])
    nobody_came(listener)


def nobody_came(listener):
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_what_refuses_is_told_by_the_os_kernel(start, listener, port):
    guest = start(f"127.0.0.1:{port}").guest()
    listener.close()
    answer, given = guest.connect(port)
    if not answer.errno:  # it was under way when it was handed in
        poll = select.poll()
        poll.register(given[0], select.POLLOUT)
        poll.poll(SECONDS * 1_000)
        answer = protocol.Answer(
            nonce=answer.nonce, errno=given[0].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        )
    assert answer.errno == errno.ECONNREFUSED


# --- names ----------------------------------------------------------------------------------------


def test_a_listed_name_leads_to_where_it_was_found(start, port):
    relayed = start(f"db.example:{port}", f"127.0.0.1:{port}")
    relayed.book["db.example"] = ["127.0.0.1"]
    guest = relayed.guest()
    assert guest.resolve("DB.example.").addresses == ("127.0.0.1",)
    answer, (sock,) = guest.connect(port)
    sock.close()
    assert answer.errno == 0
    assert relayed.said().names == ("db.example",)


def test_other_names_are_not_asked_for(start):
    relayed = start("db.example:443")
    guest = relayed.guest()
    for name in ("secret-in-a-label.example", "www.db.example", "localhost", "127.0.0.1"):
        answer = guest.resolve(name)
        assert (answer.errno, answer.why) == (errno.EACCES, f"{name} is not on the list")
    assert relayed.asked == []


def test_localhost_is_not_looked_up(monkeypatch):
    monkeypatch.delattr(socket, "getaddrinfo")
    assert relay.look_up("localhost") == ["127.0.0.1", "::1"]


def test_a_name_that_comes_to_lead_inside_leads_nowhere(start, port, monkeypatch):
    """DNS rebinding: what is looked up later is judged later, and never at connecting."""
    monkeypatch.setattr(relay, "CACHE_SECONDS", 0.0)
    relayed = start(f"rebound.example:{port}")
    relayed.book["rebound.example"] = ["93.184.216.34"]
    guest = relayed.guest()
    assert guest.resolve("rebound.example").addresses == ("93.184.216.34",)
    relayed.book["rebound.example"] = ["127.0.0.1"]
    found = guest.resolve("rebound.example")
    assert (found.addresses, found.error) == ((), socket.EAI_FAIL)
    assert found.why == (
        "rebound.example is at 127.0.0.1, which is not a public address: "
        "list that with its port, too"
    )
    assert guest.connect(port)[0].errno == errno.EACCES
    assert relayed.asked == ["rebound.example"] * 2


def test_a_name_is_asked_for_once_however_many_ask(start):
    relayed, go = start("slow.example:443"), threading.Event()
    relayed.book["slow.example"] = after(go, ["93.184.216.34"])
    guest, pipes = relayed.guest(), []
    for _ in range(20):
        guest.tell(protocol.Resolve(nonce=os.urandom(8), name="slow.example"))
        pipes += guest.hear()[1]
    go.set()
    assert {read(pipe).addresses for pipe in pipes} == {("93.184.216.34",)}
    assert relayed.asked == ["slow.example"]


def test_eight_names_are_looked_up_at_once(start):
    names = [f"slow{number}.example" for number in range(12)]
    relayed, go = start(*(f"{name}:443" for name in names)), threading.Event()
    relayed.book = {name: after(go, ["93.184.216.34"]) for name in names}
    guest, pipes = relayed.guest(), []
    for name in names:
        guest.tell(protocol.Resolve(nonce=os.urandom(8), name=name))
        pipes += guest.hear()[1]
    deadline = time.monotonic() + 0.2
    while len(relayed.asked) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(relayed.asked) == relay.MAX_LOOK_UPS == 8
    go.set()
    assert {read(pipe).addresses for pipe in pipes} == {("93.184.216.34",)}


def test_a_name_server_that_hangs_holds_up_nobody_else(start, port):
    relayed, go = start("slow.example:443", f"127.0.0.1:{port}"), threading.Event()
    relayed.book["slow.example"] = after(go, [])
    guest, pipes = relayed.guest(), []
    for number in range(relay.MAX_WAITING + 1):
        guest.tell(protocol.Resolve(nonce=os.urandom(8), name="slow.example"))
        answer, fds = guest.hear()
        pipes += fds
        assert answer.errno == (errno.EAGAIN if number == relay.MAX_WAITING else 0)
    assert guest.connect(port)[0].errno == 0
    go.set()
    assert read(pipes[0]).error == socket.EAI_NONAME
    for pipe in pipes[1:]:
        os.close(pipe)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), socket.EAI_NONAME),
        (OSError(errno.EMFILE, "no descriptors"), socket.EAI_AGAIN),
        (UnicodeError("label too long"), socket.EAI_AGAIN),
    ],
)
def test_a_question_always_has_an_answer(start, raised, error):
    def fail():
        raise raised

    relayed = start("db.example:443")
    relayed.book["db.example"] = fail
    assert relayed.guest().resolve("db.example").error == error


# --- guests that do not mean well -----------------------------------------------------------------

NONCE = b"12345678"


def connect(address="127.0.0.1", port=1, nonce=NONCE):
    return protocol.encode(protocol.Connect(nonce=nonce, address=address, port=port))


GARBAGE = {
    "zeros": b"\0" * 100,
    "text": b"CONNECT example.org:443 HTTP/1.1\r\n\r\n",
    "socks": b"\x05\x01\x00",
    "no map": protocol.encode(protocol.Answer(nonce=NONCE)),
    "cut": connect()[:-1],
    "and more": connect() + b"x",
    "short nonce": connect(nonce=b""),
    "port 0": connect(port=0),
    "port 65536": connect(port=65_536),
    "no host": connect(""),
    "long name": protocol.encode(protocol.Resolve(nonce=NONCE, name="a" * 254)),
    "nested": b"\x91" * 1_000,
    "too large": b"x" * (protocol.MOST + 1),
    "huge": b"x" * 100_000,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_who_talks_nonsense_is_not_served_any_more_and_others_are(start, port, kind):
    relayed = start(f"127.0.0.1:{port}")
    hostile, honest = relayed.guest(7), relayed.guest(8)
    hostile.sock.send(GARBAGE[kind])
    told = relayed.said()
    assert isinstance(told, relay.Breach)
    assert (told.number, told.detail.endswith(" for the relay")) == (7, True)
    assert hostile.hear() == (None, [])
    assert honest.connect(port)[0].errno == 0


def test_a_descriptor_is_not_taken(start):
    relayed = start("127.0.0.1:1")
    hostile = relayed.guest()
    socket.send_fds(hostile.sock, [connect()], [0])
    assert relayed.said().detail == "a packet that is too large, or has a descriptor for the relay"
    assert not hostile.is_heard()


def test_who_does_not_read_is_not_served_any_more_and_others_are(start, port):
    relayed = start(f"127.0.0.1:{port}")
    hostile, honest = relayed.guest(7), relayed.guest(8)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        flood(hostile.sock, connect("127.0.0.9"))
    while isinstance(told := relayed.said(), relay.Judged):
        pass
    assert told == relay.Breach(number=7, detail="it does not read what the relay answers")
    assert honest.connect(port)[0].errno == 0


def test_who_asks_for_much_waits_and_others_do_not(start, port, monkeypatch):
    monkeypatch.setattr(relay, "SLOT_SECONDS", 60.0)
    relayed = start(f"127.0.0.1:{port}")
    hostile, honest = relayed.guest(7), relayed.guest(8)
    for _ in range(relay.MAX_PER_SLOT):
        assert hostile.connect(1)[0].errno == errno.EACCES
    hostile.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        hostile.connect(1)
    assert honest.connect(port)[0].errno == 0
    assert hostile.is_heard()


def test_who_asked_for_much_is_served_again(start, monkeypatch):
    monkeypatch.setattr(relay, "MAX_PER_SLOT", 5)
    guest = start("10.0.0.1:1").guest()
    began = time.monotonic()
    for _ in range(16):
        assert guest.connect(1)[0].errno == errno.EACCES
    assert time.monotonic() - began > relay.SLOT_SECONDS


def test_a_guest_that_hangs_up_leaves_nothing(start):
    relayed = start("10.0.0.1:1")
    guests = [relayed.guest(number) for number in range(5)]
    for guest in guests[:4]:
        guest.sock.close()
    assert guests[4].connect(1)[0].errno == errno.EACCES
    deadline = time.monotonic() + SECONDS
    while len(relayed.server._guests) > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(relayed.server._guests) == 1
