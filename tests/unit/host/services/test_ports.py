"""The host's end of ports: addresses on the loopback, who listens, and a process for real."""

import os
import signal
import socket
import time
from urllib.parse import urlsplit

import pytest

from cellblock.guest.confine import own_network
from cellblock.host.services import ports
from cellblock.host.services.ports import Ports, PortState, listening_ports, open_port
from cellblock.policy.vocabulary import MAX_PORTS
from support import cell_servers
from support.ports import next_port
from support.simulator import Reactor

SECONDS = 20


@pytest.fixture
def network():
    """Return a socket that tells who listens in this process's own network, and stands for it."""
    with socket.socket(fileno=own_network.diagnosing_socket()) as made:
        yield made


# --- who listens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_who_listens_on_loopback_is_found_by_each_address(network, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert port in listening_ports(network)
    assert port not in listening_ports(network)


def test_who_is_bound_elsewhere_or_does_not_listen_is_not_found(network):
    with socket.create_server(("127.0.0.2", 0)) as other, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = listening_ports(network)
        assert {other.getsockname()[1], bound.getsockname()[1]}.isdisjoint(found)


def test_thousands_of_sockets_are_told_apart(network):
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(700)]
    try:
        assert {each.getsockname()[1] for each in servers} <= listening_ports(network)
    finally:
        for each in servers:
            each.close()


# --- addresses ------------------------------------------------------------------------------------


def test_a_port_has_the_same_number_where_that_is_free_by_both_addresses():
    wanted = next_port()
    one = open_port(wanted)
    assert one.there == wanted
    assert {each.getsockname()[:2] for each in one.listeners} == {
        ("127.0.0.1", wanted),
        ("::1", wanted),
    }
    one.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_number_that_another_has_by_either_address_is_left_to_it(address):
    wanted = next_port()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, wanted), family=family):
        one = open_port(wanted)
        assert one.there != wanted
        assert len({each.getsockname()[1] for each in one.listeners}) == 1
        one.close()


def test_names_can_not_be_guessed_and_each_is_an_origin_to_itself():
    made = [open_port(next_port()) for _ in range(3)]
    names = {urlsplit(one.url).hostname for one in made}
    assert len(names) == 3
    assert all(name.endswith(".localhost") and len(name) == 16 + 10 for name in names)
    for one in made:
        one.close()


# --- a session's, with a process ------------------------------------------------------------------


class Session:
    """Ports over this process's own network, where the test has the servers of cells.

    So they can't have the numbers of cells, which are taken here: each has another.
    """

    def __init__(self, network):
        self.network, self.reactor, self.told = network, Reactor(), []

    def ports(self, listed, **more):
        made = Ports(self.reactor, listed, tell=self.told.append, **more)
        made.serve(self.network.fileno())
        return made

    def until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not (found := condition()) and time.monotonic() < deadline:
            self.reactor.turn()
            time.sleep(0.001)
        assert found
        return found


@pytest.fixture
def session(network):
    if os.geteuid() != 0:
        pytest.skip("only root enters the network that it is in: others enter what they made")
    return Session(network)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(SECONDS)
        yield made


def last_of(sock):
    """Return what comes last: nothing, whether the other side closed or reset the connection."""
    try:
        return sock.recv(1)
    except ConnectionResetError:
        return b""


def asks(url):
    sock = cell_servers.connect(url)
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    return sock


def test_it_is_told_once_that_somebody_listens(session, server):
    number = server.getsockname()[1]
    made = session.ports((number,))
    (one,) = (each for each in made.news() if each.url)  # others of this machine may listen, too
    assert (one.number, one.listens) == (number, True)
    assert made.news() == ()
    made.leave()


def test_servers_at_ports_that_are_not_listed_are_told_of_and_not_opened(session, monkeypatch):
    made = session.ports((8050,))
    monkeypatch.setattr(ports, "listening_ports", lambda _network: {8050, 8051, 40_000})
    first, second = made.news()
    assert (first.number, bool(first.url), second.number, second.url) == (8050, True, 8051, "")
    monkeypatch.setattr(ports, "listening_ports", lambda _network: set(range(2_000, 30_000)))
    assert len(made.news()) == MAX_PORTS  # a cell that listens at thousands says no more
    assert [one.number for one in made.state()] == [8050]
    made.leave()


def test_a_listed_port_is_told_of_however_many_others_there_are(session, monkeypatch):
    made = session.ports((29_999,))
    monkeypatch.setattr(ports, "listening_ports", lambda _network: set(range(2_000, 30_000)))
    assert [bool(one.url) for one in made.news()] == [True] + [False] * (MAX_PORTS - 1)
    made.leave()


def test_a_request_for_its_name_is_continued_and_ends_with_the_session(session, server):
    made = session.ports((server.getsockname()[1],))
    (one,) = made.state()
    with asks(one.url) as browser, server.accept()[0] as peer:
        peer.settimeout(SECONDS)
        assert peer.recv(9) == b"GET / HTT"
        made.leave()
        peer.recv(999)
        assert (last_of(browser), last_of(peer)) == (b"", b"")
        with pytest.raises(ConnectionRefusedError):
            cell_servers.connect(one.url)


def test_when_the_process_is_killed_another_serves_at_the_same_address(session, server):
    made = session.ports((server.getsockname()[1],))
    (one,) = made.state()
    first = made._worker.pid
    os.kill(first, signal.SIGKILL)
    session.until(lambda: made._worker is not None and made._worker.pid != first)
    assert made.state() == (one,)
    with asks(one.url), server.accept()[0] as peer:
        assert peer.recv(9) == b"GET / HTT"
    made.leave()


def test_when_it_ends_again_and_again_all_is_closed_and_said(session, server):
    made = session.ports((server.getsockname()[1],))
    (one,) = made.state()
    for _ in range(ports.MAX_FAILED_STARTS):
        os.kill(made._worker.pid, signal.SIGKILL)
        pid = made._worker.pid
        session.until(lambda pid=pid: made._worker is None or made._worker.pid != pid)
    assert made.state() == ()
    assert session.told
    assert "can't be opened for you" in session.told[0]
    with pytest.raises(ConnectionRefusedError):
        cell_servers.connect(one.url)
    made.leave()


def test_fewer_ports_close_the_others_and_keep_the_addresses_of_those(session, server):
    kept, gone = server.getsockname()[1], next_port()
    made = session.ports((kept, gone))
    before = {one.number: one.url for one in made.state()}
    made.narrow_to((kept,))
    (one,) = made.state()
    assert (one.number, one.url) == (kept, before[kept])
    with pytest.raises(ConnectionRefusedError):
        cell_servers.connect(before[gone])
    made.leave()


def test_the_last_of_a_sandbox_and_its_forks_closes_them(session, server):
    made = session.ports((server.getsockname()[1],))
    assert made.join() is made
    made.leave()
    (one,) = made.state()
    assert one.listens
    made.leave()
    assert made.state() == ()


def test_ports_of_listed_hosts_are_none_of_cells(session, server):
    number = server.getsockname()[1]
    made = session.ports((number,), taken=frozenset({number}))
    assert made.state() == ()
    made.leave()


def test_without_a_network_nothing_is_opened(session):
    made = Ports(session.reactor, (next_port(),))
    made.serve(None)
    assert (made.state(), made.news()) == ((), ())
    assert isinstance(PortState(1, "", listens=False), tuple)
