"""A guest's way to the relay: who asks gets what he asked for, whoever asked before."""

import contextlib
import errno
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock.guest import host_services
from cellblock.guest import network as guest_network
from cellblock.guest.network import Network
from cellblock.wire import relay
from support.relays import SECONDS, Relay


@pytest.fixture
def port():
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as made:
        yield made.getsockname()[1]


@pytest.fixture
def relayed(port):
    with contextlib.closing(Relay(f"127.0.0.1:{port}", "db.example:1")) as made:
        yield made


@pytest.fixture
def network(relayed):
    made = Network()
    made.begin(relayed.guest().sock.detach())
    return made


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_before_it_has_begun_there_is_nobody_to_ask():
    with pytest.raises(OSError, match="cellblock's relay is not there") as caught:
        Network().connecting("127.0.0.1", 1)
    assert caught.value.errno == errno.ENETDOWN


def test_what_it_asks_for_it_gets_or_is_told_that_it_is_not_on_the_list(network, port, relayed):
    with socket.socket(fileno=network.connecting("127.0.0.1", port)) as sock:
        assert sock.getpeername() == ("127.0.0.1", port)

    with pytest.raises(PermissionError, match=r"10\.0\.0\.5:22 is not on the list"):
        network.connecting("10.0.0.5", 22)
    with pytest.raises(socket.gaierror, match=r"other\.example is not on the list") as caught:
        network.resolve("other.example")
    assert caught.value.errno == socket.EAI_FAIL

    relayed.book["db.example"] = ["93.184.216.34", "2606:2800:220:1::1"]
    assert network.resolve("db.example") == ("93.184.216.34", "2606:2800:220:1::1")


def test_answers_to_whoever_was_interrupted_are_let_go_of(network, port):
    request = relay.Connect(nonce=bytes(8), address="127.0.0.1", port=port)
    os.close(network.connecting("127.0.0.1", port))  # now it is admitted
    before = open_files()
    for _ in range(5):
        network._sock.send(relay.encode(request))
    with socket.socket(fileno=network.connecting("127.0.0.1", port)) as sock:
        assert sock.getpeername() == ("127.0.0.1", port)
    while network._has_answer(100):
        guest_network._close(network._receive()[1])
    deadline = time.monotonic() + SECONDS
    while open_files() > before and time.monotonic() < deadline:
        time.sleep(0.001)  # the relay closes its own after it has answered
    assert open_files() <= before


def test_everybody_gets_his_own(network, relayed, port):
    relayed.drain()
    wrong = []

    def ask(right):
        for _ in range(50):
            try:
                os.close(network.connecting("127.0.0.1", port if right else port % 65_535 + 1))
                wrong.extend([] if right else ["handed in"])
            except PermissionError:
                wrong.extend(["refused"] if right else [])

    with ThreadPoolExecutor(8) as threads:
        threads.map(ask, [True, False] * 4)
    assert wrong == []


def test_a_relay_that_has_ended_or_does_not_answer_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(guest_network, "_TIMEOUT", 50)
    for ended in (True, False):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made = Network()
        made.begin(ours.detach())
        if ended:
            theirs.close()
        said = "" if ended else "cellblock's relay does not answer"
        with theirs, pytest.raises(OSError if ended else TimeoutError, match=said or None):
            made.connecting("127.0.0.1", 1)


# --- turns ----------------------------------------------------------------------------------------


def in_child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return pid


def test_one_has_the_turn_at_a_time_in_threads_and_processes(tmp_path):
    shared, file = host_services.Turns(), tmp_path / "log"

    def take(_number=0):
        for _ in range(50):
            with shared, file.open("a") as log:
                log.write("(")
                log.flush()
                log.write(")")

    children = [in_child(take) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        threads.map(take, range(3))
    for child in children:
        os.waitpid(child, 0)
    assert file.read_text() == "()" * 300
    shared.close()


def test_whoever_ended_in_his_turn_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(host_services, "_TIMEOUT", 50)
    shared = host_services.Turns()
    os.waitpid(in_child(shared.__enter__), 0)
    with shared:
        pass
    monkeypatch.setattr(host_services, "_TIMEOUT", 20_000)
    with shared:
        pass
    shared.close()
