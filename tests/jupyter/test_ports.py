"""Ports of a policy: what a browser reaches of a session, and what nothing gets a cell to."""

import errno
import re
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.api.explained import policy_text
from cellblock.backends import networks
from cellblock.guest.confine import arch, landlock
from support import machines, reading
from support.cell_servers import SECONDS, connect, get, serving_cell, shown_ports
from support.kernels import World
from support.ports import next_port
from support.processes import gone, until
from support.reading import run, value
from support.users import NOBODY, as_nobody

PAGE = "a cell's page"


@pytest.fixture(scope="module", params=machines.places(), ids=" by ".join)
def kernel(request, start_shared):
    """A kernel with one port, of each user and each backend; no programs, no list."""
    who, backend = request.param
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    prefix = as_nobody() if who == "nobody" else ()
    if prefix is None:
        pytest.skip("this interpreter is out of reach for uid 65534")
    world = World(NOBODY if who == "nobody" else None, backend)
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    made = start_shared(policy, "--allow-unsafe", world=world, prefix=prefix)
    made.own_world = True
    made.port = port
    run(made, f"import ctypes, errno, os, socket\n{serving_cell(port)}")
    return made


def url_of(kernel):
    return shown_ports(kernel)[kernel.port][0]


# --- what is reached ------------------------------------------------------------------------------


def test_a_cells_server_is_reached_at_the_address_that_is_shown(kernel):
    ((port, (url, listens)),) = shown_ports(kernel).items()
    assert (port, listens) == (kernel.port, True)
    assert re.fullmatch(rf"http://[0-9a-f]{{16}}\.localhost:{port}/", url)
    assert get(url) == (200, PAGE)


def test_many_browsers_are_served_at_once(kernel):
    url = url_of(kernel)
    asked = [connect(url) for _ in range(64)]
    for sock in asked:
        host = urlsplit(url).netloc
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    for sock in asked:
        with sock, sock.makefile("rb") as answer:
            assert answer.read().endswith(PAGE.encode())


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "::"])
def test_a_server_is_reached_by_whichever_address_it_listens_at(start, world, host):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    source = serving_cell(port, host=host)
    if ":" in host:
        of_six = "http.server.ThreadingHTTPServer.address_family = 10\nserver ="
        source = source.replace("server =", of_six, 1)
    published = run(kernel, source)
    ((url, listens),) = shown_ports(kernel).values()
    assert listens
    assert f"a server of yours is at {url}" in reading.notices(published)
    assert get(url) == (200, PAGE)


# --- who is not let in ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "evil.example:{port}", "{name}", "{name}:1"]
)
def test_what_a_strange_page_can_ask_for_never_comes_to_the_cell(kernel, host):
    url = url_of(kernel)
    at = urlsplit(url)
    status, text = get(url, host.format(port=at.port, name=at.hostname))
    assert status == 421
    assert PAGE not in text
    assert "%ports" in text


def test_the_name_is_not_told_to_who_asks_without_it(kernel):
    url = url_of(kernel)
    _, text = get(url, "127.0.0.1")
    assert urlsplit(url).hostname not in text


# --- what a cell gets from it ---------------------------------------------------------------------


def test_a_cell_that_listens_at_another_port_is_not_reached(kernel):
    other = next_port()
    found = value(
        kernel,
        f"s = socket.socket(); e = s.connect_ex(('127.0.0.1', {other}))\n"
        f"try: s = socket.socket(); s.bind(('127.0.0.1', {other})); s.listen(); bound = 0\n"
        "except OSError as error: bound = error.errno\n"
        "(e, bound)",
    )
    assert found in [(errno.ECONNREFUSED, errno.EACCES), (errno.ECONNREFUSED, 0)]
    assert list(shown_ports(kernel)) == [kernel.port]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", other), SECONDS)


def test_landlock_lets_it_bind_no_other_port(kernel):
    if landlock.abi(arch.current()) < landlock.NET_ABI:
        pytest.skip("Landlock knows no ports here")
    other = next_port()
    reply, _ = kernel.run(f"socket.create_server(('127.0.0.1', {other}))")
    assert reply["ename"] == "PermissionError"
    assert f"ports = [{kernel.port}, {other}]" in reply["evalue"]


def test_the_users_loopback_is_not_reached_by_it(kernel):
    """With every port that the host has open there: what the port relay listens at, too."""
    there = socket.create_server(("127.0.0.1", 0))
    with there, socket.create_server(("::1", 0), family=socket.AF_INET6) as there6:
        at = urlsplit(url_of(kernel)).port
        targets = [("127.0.0.1", there.getsockname()[1]), ("::1", there6.getsockname()[1])]
        found = value(
            kernel,
            "def tried(host, port):\n"
            "    s = socket.socket(10 if ':' in host else 2)\n"
            "    return s.connect_ex((host, port))\n"
            f"[tried(*each) for each in {targets}]",
        )
        assert set(found) <= {errno.ECONNREFUSED, errno.ENETUNREACH}
        # At the port's own number the cell finds its own server, not the host's socket.
        got = value(
            kernel,
            f"s = socket.create_connection(('127.0.0.1', {at}))\n"
            "s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
            "said = b''\n"
            "while part := s.recv(999): said += part\n"
            "said[:12]",
        )
        assert got == b"HTTP/1.1 200"
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.accept()


def test_a_cell_finds_no_socket_and_no_process_of_the_relays(kernel):
    """It has no descriptor by which the network is entered, and can't signal who entered it."""
    (relay,) = until(lambda: kernel.called("cb-ports"))
    links = value(
        kernel,
        "def link(fd):\n"
        "    try: return os.fstat(fd).st_mode\n"
        "    except OSError: return None\n"
        "import stat\n"
        "def family(fd):\n"
        "    other = socket.socket(fileno=fd)\n"
        "    try: return int(other.family)\n"
        "    finally: other.detach()\n"
        "{family(fd) for fd in range(3, 64) if (m := link(fd)) is not None and stat.S_ISSOCK(m)}",
    )
    assert links <= {int(socket.AF_UNIX), int(socket.AF_INET)}
    found = value(
        kernel,
        "def no(call):\n"
        "    try: call()\n"
        "    except OSError as error: return error.errno\n"
        f"[no(lambda: os.kill({relay}, 0)), no(lambda: os.readlink('/proc/{relay}/ns/net')),\n"
        f" no(lambda: os.pidfd_open({relay}))]",
    )
    assert all(found), found
    assert relay in kernel.called("cb-ports")


def test_netlink_tells_a_cell_nothing(kernel):
    reply, _ = kernel.run("socket.socket(16, socket.SOCK_RAW, 4)")
    assert reply["ename"] in ("PermissionError", "OSError")


# --- floods ---------------------------------------------------------------------------------------


def test_a_flood_of_silent_connections_from_outside_keeps_nobody_out(kernel):
    url = url_of(kernel)
    silent = [connect(url) for _ in range(300)]
    try:
        assert get(url) == (200, PAGE)
        assert value(kernel, "1 + 1") == 2
    finally:
        for sock in silent:
            sock.close()


def test_a_cell_that_takes_nothing_keeps_neither_host_nor_others_waiting(start, world):
    port, other = next_port(), next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}, {other}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(
        kernel,
        f"import socket; full = socket.create_server(('127.0.0.1', {port}), backlog=1)\n"
        + serving_cell(other),
    )
    shown = shown_ports(kernel)
    url, quick = shown[port][0], shown[other][0]
    host = urlsplit(url).netloc
    asked = []
    for _ in range(80):
        asked.append(connect(url))
        asked[-1].sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert get(quick) == (200, PAGE)
    assert value(kernel, "1 + 1") == 2
    for sock in asked:
        sock.close()


def test_a_server_that_floods_who_does_not_read_is_held(start, world):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(
        kernel,
        f"""
import socket, threading
listener, sent = socket.create_server(('127.0.0.1', {port})), []
def flood():
    peer, _ = listener.accept()
    peer.settimeout(1)
    try:
        while True: sent.append(peer.send(b'x' * 65536))
    except OSError: pass
thread = threading.Thread(target=flood, daemon=True); thread.start()
""",
    )
    url = shown_ports(kernel)[port][0]
    with connect(url) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
        assert value(kernel, "thread.join(30); sum(sent)") < 16 << 20


def test_half_open_connections_end(start, world):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, f"import socket; held = socket.create_server(('127.0.0.1', {port}))")
    url = shown_ports(kernel)[port][0]
    sock = connect(url)
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    assert value(kernel, "peer, _ = held.accept(); peer.recv(3)") == b"GET"
    sock.close()  # the browser has gone: the cell hears it
    assert value(kernel, "peer.recv(999); peer.shutdown(1); peer.recv(1)") == b""


# --- only while the session lives -----------------------------------------------------------------


def test_nothing_is_left_when_the_session_has_ended(start, world):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, serving_cell(port))
    url = shown_ports(kernel)[port][0]
    (relay,) = until(lambda: kernel.called("cb-ports"))
    kept = connect(url)
    kept.sendall(f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    assert kept.recv(12) == b"HTTP/1.1 200"
    kernel.proc.kill()
    kernel.proc.wait()
    assert gone([relay], SECONDS) == []
    kept.settimeout(SECONDS)
    try:
        while kept.recv(999):
            pass
    except ConnectionResetError:
        pass
    with pytest.raises(ConnectionRefusedError):
        connect(url)


def test_a_restarted_guest_is_at_the_same_address_and_the_server_before_is_gone(start, world):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\nsnapshots = "off"\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, serving_cell(port))
    url = shown_ports(kernel)[port][0]
    kernel.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    run(kernel, "1")
    assert shown_ports(kernel) == {port: (url, False)}
    assert get(url)[0] == 502
    run(kernel, serving_cell(port, "again"))
    assert get(url) == (200, "again")


def test_after_an_undo_nobody_listens_and_a_cell_can_serve_again(start, world):
    port = next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{port}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, "x = 1")
    run(kernel, serving_cell(port))
    url = shown_ports(kernel)[port][0]
    run(kernel, "%undo")
    until(lambda: shown_ports(kernel) == {port: (url, False)})
    run(kernel, serving_cell(port, "after"))
    assert get(url) == (200, "after")


def test_a_server_that_a_narrower_policy_does_not_have_is_hung_up_on(start, world):
    first, second = next_port(), next_port()
    policy = world.policy(f'extends = "unsafe"\nports = [{first}, {second}]\n')
    kernel = start(policy, "--allow-unsafe", world=world)
    run(kernel, serving_cell(first, "first"))
    run(kernel, serving_cell(second, "second"))
    before = shown_ports(kernel)
    run(kernel, f"%policy narrow ports=[{first}]")
    assert shown_ports(kernel) == {first: before[first]}
    assert get(before[first][0]) == (200, "first")
    with pytest.raises(ConnectionRefusedError):
        connect(before[second][0])


def test_without_ports_there_is_no_relay_and_the_magic_says_so(safe):
    _, published = safe.run("%ports")
    assert "Policy safe opens no port" in reading.card_text(published)
    assert safe.called("cb-ports") == []


# --- sessions beside each other -------------------------------------------------------------------


@pytest.fixture
def policy():
    return Policy.preset("unsafe", name="served", ports=(next_port(),))


def test_a_session_does_not_take_the_port_of_another(policy):
    (port,) = policy.ports
    with Sandbox(policy, allow_unsafe=True) as one, Sandbox(policy, allow_unsafe=True) as other:
        first, second = one.ports()[port], other.ports()[port]
        assert urlsplit(first).port == port != urlsplit(second).port
        for each, body in ((one, "one"), (other, "other")):
            assert each.execute(serving_cell(port, body)).status == "ok"
        assert (get(first), get(second)) == ((200, "one"), (200, "other"))
        # Nor by the name of the other.
        assert get(first, urlsplit(second).netloc)[0] == 421


def test_sandboxes_of_a_pool_have_ports_of_their_own(policy):
    (port,) = policy.ports
    with (
        SandboxPool(policy, allow_unsafe=True) as pool,
        pool.sandbox() as one,
        pool.sandbox() as other,
    ):
        assert one.execute(serving_cell(port, "one")).status == "ok"
        assert get(one.ports()[port]) == (200, "one")
        assert get(other.ports()[port])[0] == 502


def test_a_fork_has_the_network_and_the_address_of_its_parent(policy):
    """Who listens is reached: the parent's server while it lives, then the fork's."""
    (port,) = policy.ports
    with Sandbox(policy, allow_unsafe=True) as parent:
        assert parent.execute(serving_cell(port, "the parent's")).status == "ok"
        (fork,) = parent.fork()
        with fork:
            assert fork.ports() == parent.ports()
            url = fork.ports()[port]
            taken = fork.execute(serving_cell(port, "the fork's"))
            assert taken.error.type == "OSError"
            assert get(url) == (200, "the parent's")
            assert parent.execute("server.shutdown(); server.server_close()").status == "ok"
            assert fork.execute(serving_cell(port, "the fork's")).status == "ok"
            assert get(url) == (200, "the fork's")
        assert parent.ports() == {port: url}
        until(lambda: "nothing listens yet" in parent.execute("%ports").to_string())
        assert get(url)[0] == 502


def test_any_port_is_opened_where_a_cell_listens_and_no_more_than_some():
    policy = Policy.preset("unsafe", name="any", ports="any", max_open_files=512)
    with Sandbox(policy, allow_unsafe=True) as one:
        assert one.ports() == {}
        port = next_port()
        result = one.execute(serving_cell(port))
        url = one.ports()[port]
        assert f"a server of yours is at {url} (port {port})" in "".join(result.notices)
        assert get(url) == (200, PAGE)
        flood = "import socket; many = [socket.create_server(('127.0.0.1', 0)) for _ in range(200)]"
        assert one.execute(flood).status == "ok"
        assert len(one.ports()) <= 32
        assert one.execute("for each in many: each.close()").status == "ok"
        assert one.execute(serving_cell(port + 1, "later")).status == "ok"
        assert get(one.ports()[port + 1]) == (200, "later")


def test_where_no_network_can_be_made_nothing_is_opened_and_the_gap_says_what_helps(
    policy, monkeypatch
):
    monkeypatch.setattr(networks, "why_not", lambda _backend: "no network namespace: user.max = 0")
    with Sandbox(policy, allow_unsafe=True) as one:
        (gap,) = [each for each in one.gaps if each.capability == "ports"]
        assert gap.consequence == "servers that cells start can't be reached from your browser"
        assert "user.max = 0" in gap.actual
        assert "cellblock doctor" in gap.remedy
        assert one.ports() == {}
        assert "No port is opened: no network namespace" in one.execute("%ports").to_string()


def test_that_pages_are_a_way_out_is_a_gap(policy):
    with Sandbox(policy, allow_unsafe=True) as one:
        (gap,) = [each for each in one.gaps if each.capability == "ports"]
        assert (gap.status, gap.matters) == ("partial", True)
        assert "can send what cells know anywhere" in gap.consequence


def test_hosts_of_a_jupyter_server_are_let_in_only_where_the_policy_has_them_and_that_is_a_gap():
    port = next_port()
    named = Policy.preset("unsafe", name="hub", ports=(port,), port_hosts=("hub.example.org",))
    with Sandbox(named, allow_unsafe=True) as one:
        assert one.execute(serving_cell(port)).status == "ok"
        url = one.ports()[port]
        assert get(url, "hub.example.org") == (200, PAGE)
        assert get(url, "other.example.org")[0] == 421
        (gap,) = [each for each in one.gaps if each.capability == "ports"]
        assert "the origin and the cookies of hub.example.org" in gap.consequence


def test_its_processor_time_is_none_of_the_host_while_nothing_comes(kernel):
    (relay,) = until(lambda: kernel.called("cb-ports"))

    def used():
        stat = Path(f"/proc/{relay}/stat").read_text("ascii")
        return sum(map(int, stat.rpartition(")")[2].split()[11:13]))

    before = used()
    time.sleep(1)
    assert used() - before <= 2


def test_a_model_is_told_that_servers_are_opened_and_reads_at_which_address(policy):
    (port,) = policy.ports
    with Sandbox(policy, allow_unsafe=True) as one:
        assert f"HTTP servers that cells start at port {port} of 127.0.0.1" in policy_text(one)
        said = one.execute(serving_cell(port)).to_string()
        assert f"a server of yours is at {one.ports()[port]} (port {port})" in said
