"""A session's own network for real: made in a child, its listeners sent here."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import msgspec
import pytest

from cellblock.guest.confine import own_network
from cellblock.wire.messages import Neighbour
from support.users import NOBODY, as_nobody

NEIGHBOURS = [
    Neighbour(name="db.example", address="127.80.0.1", port=80),
    Neighbour(name="localhost", address="127.0.0.1", port=5432),
    Neighbour(name="localhost", address="::1", port=5432),
    Neighbour(address="10.0.0.5", port=443),
    Neighbour(address="2001:db8::1", port=443),
]

#: Makes the network, hands its listeners out, runs a program in it.
PROGRAM = """
import os, socket, sys
sys.path[:] = {path!r}
from cellblock.guest.confine import layer, own_network
from cellblock.wire.messages import Neighbour
import msgspec
neighbours = msgspec.json.decode({neighbours!r}, type=list[Neighbour])
layer.enter_namespaces()
own_network.enter()
own_network.settle(neighbours, {folder!r})
way = socket.socket(fileno={way})
for number, listener in own_network.listen(neighbours):
    socket.send_fds(way, [bytes([number])], [listener])
    os.close(listener)
way.send(b"e")
way.recv(1)
"""


@pytest.fixture(params=["same user", "nobody"] if os.geteuid() == 0 else ["same user"])
def inside(request):
    """Run a program in a network with neighbours; return its listeners, and what it says."""
    user = NOBODY if request.param == "nobody" else os.geteuid()
    prefix = as_nobody() if request.param == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534")
    folder = Path(tempfile.mkdtemp(prefix="cb-network-"))
    os.chown(folder, user, user)
    ours, theirs = socket.socketpair()
    started = []

    def run(code):
        program = PROGRAM.format(
            path=sys.path,
            neighbours=msgspec.json.encode(NEIGHBOURS),
            folder=str(folder),
            way=theirs.fileno(),
        )
        process = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-S", "-c", program + textwrap.dedent(code)],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        started.append(process)
        found = {}
        while True:
            data, fds, *_ = socket.recv_fds(ours, 1, 1)
            if data in (b"e", b""):
                assert data == b"e", "it ended"
                break
            found[data[0]] = socket.socket(fileno=fds[0])
        ours.send(b"g")
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        return found, said

    run.folder = folder
    yield run
    ours.close()
    folder.rmdir()


def test_neighbours_are_reached_by_name_and_address_at_ports_below_1024_too(inside):
    code = """
    for where in (("db.example", 80), ("127.0.0.1", 5432), ("::1", 5432), ("10.0.0.5", 443),
                  ("2001:db8::1", 443)):
        made = socket.create_connection(where)
        made.sendall(where[0].encode())
    """
    found, _ = inside(code)
    assert sorted(found) == list(range(5))
    said = []
    for listener in found.values():
        listener.setblocking(True)
        peer, _ = listener.accept()
        said.append(peer.recv(99).decode())
        peer.close()
        listener.close()
    assert said == ["db.example", "127.0.0.1", "::1", "10.0.0.5", "2001:db8::1"]


def test_a_connection_holds_little(inside):
    code = """
    for name in ("tcp_rmem", "tcp_wmem"):
        print(open("/proc/sys/net/ipv4/" + name).read().split()[-1])
    """
    assert inside(code)[1].split() == ["524288", "524288"]


def test_nobody_else_is_there_not_even_beside_a_listed_address(inside):
    code = """
    import errno, json
    def outcome(*where):
        try: socket.create_connection(where, 20)
        except socket.gaierror: return "no name"
        except OSError as error: return errno.errorcode[error.errno]
    def bound(*where):
        try: socket.create_server(where)
        except OSError as error: return errno.errorcode[error.errno]
    devices = [name for _, name in socket.if_nameindex()]
    print(json.dumps([outcome("10.0.0.6", 443), outcome("10.0.0.5", 80), outcome("8.8.8.8", 53),
        outcome("127.80.0.1", 81), outcome("other.example", 80), bound("10.0.0.5", 443),
        bound("10.0.0.6", 443), devices]))
    """
    _, said = inside(code)
    assert said.strip() == (
        '["ENETUNREACH", "ECONNREFUSED", "ENETUNREACH", "ECONNREFUSED", "no name", "EADDRINUSE", '
        '"EADDRNOTAVAIL", ["lo"]]'
    )


def test_what_names_mean_is_not_to_be_changed_and_lies_nowhere_else(inside):
    code = """
    try: open("/etc/hosts", "a")
    except OSError as error: print(error.strerror)
    print(open("/etc/hosts").read())
    """
    _, said = inside(code)
    first, _, rest = said.partition("\n")
    assert first == os.strerror(errno.EROFS)
    assert rest.strip() == own_network.hosts(NEIGHBOURS).strip()
    assert list(inside.folder.iterdir()) == []
    assert "db.example" not in Path("/etc/hosts").read_text()


def test_hosts_are_named_once_each_and_localhost_first():
    again = Neighbour(name="db.example", address="127.80.0.1", port=443)
    assert own_network.hosts([*NEIGHBOURS, again]).splitlines() == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "127.80.0.1 db.example",
    ]
