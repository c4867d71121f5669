"""The relay, by guests that mean well and by others."""

import errno
import hashlib
import os
import select
import socket
import struct
import threading
import time

import pytest

from cellblock.host.services import relay
from cellblock.wire.messages import Neighbour
from support.relays import SECONDS, Relay, is_reset, waiting_for


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


@pytest.fixture
def reach(start, port):
    """Connect, as guests do, to what listens outside."""
    return start(f"127.0.0.1:{port}").neighbour(port)


def taken(listener):
    peer, _ = listener.accept()
    peer.settimeout(SECONDS)
    return peer


def read_all(sock):
    data = bytearray()
    while part := sock.recv(1 << 16):
        data += part
    return bytes(data)


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def nobody_came(listener):
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


# --- what is listed -------------------------------------------------------------------------------


def test_bytes_go_both_ways_and_each_side_may_end_before_the_other(reach, listener):
    with reach() as guest, taken(listener) as peer:
        guest.sendall(b"to")
        peer.sendall(b"fro")
        assert (peer.recv(9), guest.recv(9)) == (b"to", b"fro")
        guest.shutdown(socket.SHUT_WR)
        assert peer.recv(9) == b""
        peer.sendall(b"later")
        peer.shutdown(socket.SHUT_WR)
        assert read_all(guest) == b"later"


def test_much_goes_both_ways_at_once_and_arrives_as_it_was(reach, listener):
    data = os.urandom(1 << 20) * 16
    with reach() as guest, taken(listener) as peer:
        both = [threading.Thread(target=one.sendall, args=[data]) for one in (guest, peer)]
        found = []

        def read(sock):
            digest, left = hashlib.sha256(), len(data)
            while left:
                part = sock.recv(1 << 18)
                digest.update(part)
                left -= len(part)
            found.append(digest.digest())

        both += [threading.Thread(target=read, args=[one]) for one in (guest, peer)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(SECONDS)
    assert found == [hashlib.sha256(data).digest()] * 2


def test_more_than_sixty_four_are_connected_at_once(reach, listener):
    pairs = [(reach(), taken(listener)) for _ in range(80)]
    for guest, peer in pairs:
        guest.sendall(b"x")
        peer.sendall(b"y")
    assert {(peer.recv(2), guest.recv(2)) for guest, peer in pairs} == {(b"x", b"y")}
    for guest, peer in pairs:
        guest.close()
        peer.close()


def test_the_host_knows_that_somebody_came_before_that_is_taken(start, port):
    relayed = start(f"127.0.0.1:{port}")
    relayed.neighbour(port)().close()
    assert relayed.said_of_all() == relay.Came()
    reached = relay.Judged(verdict="reached", host="127.0.0.1", port=port)
    assert relayed.said_of_all() == reached


@pytest.mark.parametrize("of_guest", [True, False])
def test_a_connection_that_one_side_resets_is_reset_for_the_other(reach, listener, of_guest):
    with reach() as guest, taken(listener) as peer:
        one, other = (guest, peer) if of_guest else (peer, guest)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        assert is_reset(other)


def test_where_nobody_answers_a_guest_is_reset_and_the_user_is_told(start, listener, port):
    relayed = start(f"127.0.0.1:{port}")
    listener.close()
    with relayed.neighbour(port)() as guest:
        assert is_reset(guest)
    assert relayed.said().verdict == "reached"
    assert relayed.said() == relay.Failed(why=f"127.0.0.1:{port}: Connection refused")


def test_localhost_is_this_machine_by_either_address(start, listener, port):
    relayed = start(f"localhost:{port}")
    with relayed.neighbour(port, name="localhost", address="::1")(), taken(listener):
        assert relayed.asked == []


def test_localhost_that_only_its_address_is_left_of_is_that_address(start, listener, port):
    relayed = start(f"[::1]:{port}")
    with relayed.neighbour(port, name="localhost", address="::1")() as guest:
        assert is_reset(guest)
    nobody_came(listener)


# --- names ----------------------------------------------------------------------------------------


def test_a_listed_name_leads_to_where_it_was_found(start, listener, port):
    relayed = start(f"db.example:{port}", f"127.0.0.1:{port}")
    relayed.book["db.example"] = ["127.0.0.1"]
    with relayed.neighbour(port, name="db.example", address="127.80.0.1")(), taken(listener):
        reached = relay.Judged(verdict="reached", host="127.0.0.1", port=port, name="db.example")
        assert relayed.said() == reached
    assert str(reached) == f"127.0.0.1:{port} (db.example)"


@pytest.mark.parametrize("where", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "0.0.0.0"])
def test_a_listed_name_that_leads_inside_is_not_followed(start, listener, port, where):
    relayed = start(f"inside.example:{port}", "127.0.0.1:1")
    relayed.book["inside.example"] = [where]
    with relayed.neighbour(port, name="inside.example", address="127.80.0.1")() as guest:
        assert is_reset(guest)
    told = relayed.said()
    assert (told.verdict, told.host) == ("refused", where)
    assert told.why.endswith(f"it is at {where}, which is not a public address; list that, too")
    nobody_came(listener)


def test_a_name_that_comes_to_lead_inside_leads_nowhere(start, listener, port, monkeypatch):
    """DNS rebinding: what is connected to is what was judged."""
    monkeypatch.setattr(relay, "CACHE_SECONDS", 0.0)
    tried = []

    def connecting(address, _port):
        tried.append(str(address))
        raise OSError(errno.ENETUNREACH, "unreachable")

    monkeypatch.setattr(relay, "_connecting", connecting)
    relayed = start(f"rebound.example:{port}")
    reach = relayed.neighbour(port, name="rebound.example", address="127.80.0.1")
    for there in (["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1", "93.184.216.35"]):
        relayed.book["rebound.example"] = there
        with reach() as guest:
            assert is_reset(guest)
    assert tried == ["93.184.216.34", "93.184.216.35"]
    assert relayed.asked == ["rebound.example"] * 3
    nobody_came(listener)


def test_a_name_is_asked_for_once_however_many_wait(start, listener, port):
    relayed, go = start(f"slow.example:{port}", f"127.0.0.1:{port}"), threading.Event()
    relayed.book["slow.example"] = waiting_for(go, ["127.0.0.1"])
    reach = relayed.neighbour(port, name="slow.example", address="127.80.0.1")
    guests = [reach() for _ in range(20)]
    until(lambda: len(relayed.server._all) == 20)
    go.set()
    peers = [taken(listener) for _ in guests]
    assert relayed.asked == ["slow.example"]
    for one in (*guests, *peers):
        one.close()


def test_eight_names_are_looked_up_at_once_and_hold_up_nobody_else(start, listener, port):
    names = [f"slow{number}.example" for number in range(12)]
    relayed = start(*(f"{name}:443" for name in names), f"127.0.0.1:{port}")
    go, guests = threading.Event(), []
    relayed.book = {name: waiting_for(go, []) for name in names}
    for name in names:
        guests += [relayed.neighbour(443, name=name, address="127.80.0.1")()]
    until(lambda: len(relayed.server._all) == 12 and len(relayed.asked) == 8)
    with relayed.neighbour(port)(), taken(listener):
        assert len(relayed.asked) == relay.MAX_LOOK_UPS == 8
    go.set()
    for guest in guests:
        assert is_reset(guest)
        guest.close()


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "unknown"),
        (OSError(errno.EMFILE, "no descriptors"), "OSError"),
        (UnicodeError("label too long"), "UnicodeError"),
    ],
)
def test_a_look_up_that_fails_ends_the_connection(start, raised, why):
    def fail():
        raise raised

    relayed = start("db.example:443")
    relayed.book["db.example"] = fail
    with relayed.neighbour(443, name="db.example", address="127.80.0.1")() as guest:
        assert is_reset(guest)
    assert relayed.said() == relay.Failed(why=f"db.example:443: {why}")


# --- guests that do not mean well -----------------------------------------------------------------


def fill(sock):
    """Send until nothing is taken any more; return how many bytes were."""
    sock.setblocking(False)
    sent, poll = 0, select.poll()
    poll.register(sock, select.POLLOUT)
    while poll.poll(500):
        sent += sock.send(bytes(1 << 16))
    return sent


def test_who_does_not_read_holds_up_its_own_connection_alone(reach, listener):
    with reach(), taken(listener) as peer:
        assert fill(peer) < 64 << 20
        with reach() as honest, taken(listener) as other:
            other.sendall(b"x")
            assert honest.recv(1) == b"x"


def test_who_opens_many_waits_until_one_has_ended(start, listener, port, monkeypatch):
    monkeypatch.setattr(relay, "MAX_CONNECTIONS", 4)
    relayed = start(f"127.0.0.1:{port}")
    reach = relayed.neighbour(port)
    guests = [reach() for _ in range(5)]
    peers = [taken(listener) for _ in range(4)]
    until(lambda: not relayed.server._is_accepting)
    nobody_came(listener)
    listener.settimeout(SECONDS)
    guests.pop(0).close()
    peers.pop(0).close()
    peers.append(taken(listener))
    for one in (*guests, *peers):
        one.close()


def test_who_connects_often_waits_for_the_next_slot(start, listener, port, monkeypatch):
    monkeypatch.setattr(relay, "MAX_PER_SLOT", 5)
    reach = start(f"127.0.0.1:{port}").neighbour(port)
    began = time.monotonic()
    for _ in range(16):
        with reach(), taken(listener):
            pass
    assert time.monotonic() - began > relay.SLOT_SECONDS


def test_guests_that_hang_up_leave_nothing(start, listener, port):
    relayed, go = start(f"127.0.0.1:{port}", "slow.example:1"), threading.Event()
    relayed.book["slow.example"] = waiting_for(go, [])
    reach = relayed.neighbour(port)
    for _ in range(5):
        reach().close()
        taken(listener).close()
    waits = relayed.neighbour(1, name="slow.example", address="127.80.0.1")()
    until(lambda: relayed.asked)
    waits.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    waits.close()
    server = relayed.server
    until(lambda: not (server._all or server._sockets))
    go.set()


@pytest.mark.parametrize("of_guest", [True, False])
def test_an_urgent_byte_breaks_a_connection_off(start, listener, port, of_guest):
    relayed = start(f"127.0.0.1:{port}")
    with relayed.neighbour(port)() as guest, taken(listener) as peer:
        one, other = (guest, peer) if of_guest else (peer, guest)
        one.send(b"u", socket.MSG_OOB)
        assert is_reset(other)
        assert is_reset(one)
    assert relayed.said().verdict == "reached"
    assert "out-of-band data" in relayed.said().why


def test_a_guest_that_has_left_gives_its_place_back(start, listener, port, monkeypatch):
    monkeypatch.setattr(relay, "LEFT_SECONDS", 0.2)
    relayed = start(f"127.0.0.1:{port}")
    reach = relayed.neighbour(port)
    with reach() as stays, taken(listener) as its_peer:
        reach().close()
        with taken(listener) as hangs:
            assert read_all(hangs) == b""
            until(lambda: len(relayed.server._all) == 1)
        its_peer.sendall(b"x")
        assert stays.recv(1) == b"x"


def test_a_guest_that_breaks_off_what_nobody_reads_gives_its_place_back(start, listener, port):
    relayed = start(f"127.0.0.1:{port}")
    guest = relayed.neighbour(port)()
    with taken(listener):
        fill(guest)
        guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        guest.close()
        until(lambda: not relayed.server._all)


def test_who_has_ended_its_side_hears_as_long_as_something_comes(
    start, listener, port, monkeypatch
):
    monkeypatch.setattr(relay, "LEFT_SECONDS", 1.0)
    with start(f"127.0.0.1:{port}").neighbour(port)() as guest, taken(listener) as peer:
        guest.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        while time.monotonic() - began < 2 * relay.LEFT_SECONDS:
            peer.sendall(b"x")
            assert guest.recv(1) == b"x"
            time.sleep(0.05)


def test_there_are_as_many_connections_as_descriptors_for_them(start, port):
    relayed = start(f"127.0.0.1:{port}")
    relayed.server._files = relay.SPARE_FILES + 1 + 2 * relay.FILES_EACH
    reach = relayed.neighbour(port)
    guests = [reach() for _ in range(3)]
    until(lambda: not relayed.server._is_accepting)
    assert len(relayed.server._all) == 2
    for one in guests:
        one.close()


def test_a_session_leaves_most_ports_to_others():
    pace, now, taken_until = relay.Pace(500), 100.0, []
    while now < 100.0 + 2.5 * relay.PORT_SECONDS:
        while pace.allows(now):
            pace.take()
            taken_until.append(now)
        now = pace.next_look()
    assert len(taken_until) == 1_500
    for when in taken_until:
        assert sum(when <= each < when + relay.PORT_SECONDS for each in taken_until) <= 500


def test_sockets_hold_little(start, listener, port):
    relayed = start(f"127.0.0.1:{port}")
    with relayed.neighbour(port)(), taken(listener):
        until(lambda: any(each.flows for each in relayed.server._all))
        for each in relayed.server._all:
            for sock in each.sockets():
                for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                    held = sock.getsockopt(socket.SOL_SOCKET, option)
                    assert held <= 2 * relay.BUFFER_BYTES


# --- a narrower list ------------------------------------------------------------------------------


def test_who_is_not_listed_any_more_is_hung_up_on_and_reached_no_more(start, listener, port):
    with socket.create_server(("127.0.0.1", 0)) as kept:
        kept.settimeout(SECONDS)
        entries = [f"127.0.0.1:{port}", f"127.0.0.1:{kept.getsockname()[1]}"]
        relayed = start(*entries)
        reach, reach_kept = relayed.neighbour(port), relayed.neighbour(kept.getsockname()[1])
        with reach() as guest, taken(listener) as peer, reach_kept() as other, taken(kept) as far:
            relayed.narrow_to(entries[1])
            assert is_reset(guest)
            assert is_reset(peer)
            other.sendall(b"x")
            assert far.recv(1) == b"x"
            with pytest.raises(ConnectionRefusedError):
                reach()
            with reach_kept(), taken(kept):
                pass


def test_a_name_is_left_where_it_may_not_be_any_more(start, listener, port):
    relayed = start(f"db.example:{port}", f"127.0.0.1:{port}")
    relayed.book["db.example"] = ["127.0.0.1"]
    reach = relayed.neighbour(port, name="db.example", address="127.80.0.1")
    with reach() as guest, taken(listener) as peer:
        relayed.narrow_to(f"db.example:{port}")
        assert is_reset(guest)
        assert is_reset(peer)


def test_what_is_listed_still_stays(start, listener, port):
    entries = [f"db.example:{port}", f"localhost:{port}", f"127.0.0.1:{port}"]
    relayed = start(*entries, "127.0.0.1:1")
    relayed.book["db.example"] = ["127.0.0.1"]
    ways = [
        relayed.neighbour(port, name="db.example", address="127.80.0.1"),
        relayed.neighbour(port, name="localhost"),
        relayed.neighbour(port),
    ]
    pairs = [(reach(), taken(listener)) for reach in ways]
    relayed.narrow_to(*entries)
    until(lambda: not relayed.server._allowed.has(Neighbour(address="127.0.0.1", port=1)))
    for guest, peer in pairs:
        with guest, peer:
            guest.sendall(b"x")
            assert peer.recv(1) == b"x"
