"""A list of addresses: what cells reach as they do anywhere, and what nothing gets them to."""

import os
import signal
import socket
import time

import pytest

from support import machines, reading
from support.address_lists import ALLOW, MACHINE, SECONDS, Place, policy_with_addresses
from support.kernels import World
from support.reading import run, value

IMPORTS = """
import _socket, asyncio, ctypes, errno, hashlib, http.client, select, socket, ssl, struct
import urllib.parse, urllib.request
trusting = ssl.create_default_context(cadata=AUTHORITY)
"""


@pytest.fixture(scope="module")
def place():
    made = Place()
    yield made
    made.close()


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def kernel(request, place, start_shared):
    """A kernel in mode unsafe with a list, and one in namespaces, both with the same names."""
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world = World(backend=request.param)
    text = "max_open_files = 64\nsubprocess_execution = true\n"
    policy = policy_with_addresses(world, place.listed, text)
    made = start_shared(policy, "--allow-unsafe", world=world)
    made.own_world = True
    run(made, f"globals().update({place.names})\n{IMPORTS}")
    return made


REACH_ECHO = (
    "s = socket.create_connection(ECHO); s.sendall(b'x'); said = s.recv(1); s.close(); said"
)


# --- what is listed -------------------------------------------------------------------------------

REACHES = {
    "a socket": (
        """
with socket.create_connection(ECHO, 10) as s:
    s.sendall(b'over'); said = s.recv(9), s.getpeername() == ECHO
said
""",
        (b"over", True),
    ),
    "a socket by name": (
        """
s = socket.socket()
s.connect(('localhost', urllib.parse.urlsplit(SITE).port))
s.sendall(b'GET /x HTTP/1.0\\r\\n\\r\\n'); said = s.recv(99)[:12]; s.close(); said
""",
        b"HTTP/1.1 200",
    ),
    "a file of a socket": (
        """
s = socket.create_connection(ECHO)
with s, s.makefile('rw') as f:
    f.write('line\\n'); f.flush(); said = f.readline()
said
""",
        "line\n",
    ),
    "http.client": (
        """
c = http.client.HTTPConnection('localhost', urllib.parse.urlsplit(SITE).port)
c.request('GET', '/a'); one = c.getresponse().read()
c.request('GET', '/b'); two = c.getresponse().read(); c.close(); one, two
""",
        (b"you asked for a", b"you asked for b"),
    ),
    "urllib": ("urllib.request.urlopen(SITE + '/page').read()", b"you asked for page"),
    "urllib, where it is sent on to what is listed": (
        "urllib.request.urlopen(SITE + '/to?' + SITE + '/on').read()",
        b"you asked for on",
    ),
    "urllib, with TLS": (
        "urllib.request.urlopen(SECURE + '/page', context=trusting).read()",
        b"you asked for page",
    ),
    "an event loop": (
        """
async def post(body):
    reader, writer = await asyncio.open_connection(
        'localhost', urllib.parse.urlsplit(SITE).port)
    head = f'POST / HTTP/1.1\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n'
    writer.writelines([head.encode(), body]); await writer.drain()
    said = await reader.readuntil(hashlib.sha256(body).hexdigest().encode())
    writer.close(); await writer.wait_closed()
    return said[:12]
await post(bytes(8_000_000))
""",
        b"HTTP/1.1 200",
    ),
    "an event loop, with TLS": (
        """
async def get():
    reader, writer = await asyncio.open_connection(
        '127.0.0.1', urllib.parse.urlsplit(SECURE).port, ssl=trusting)
    writer.write(b'GET /x HTTP/1.0\\r\\n\\r\\n')
    said = await reader.read(); writer.close(); return said[:12]
await get()
""",
        b"HTTP/1.1 200",
    ),
    "sixteen threads": (
        """
from concurrent.futures import ThreadPoolExecutor
def call(number):
    with socket.create_connection(ECHO) as s:
        s.sendall(bytes([number])); return s.recv(1)[0]
with ThreadPoolExecutor(16) as pool: said = list(pool.map(call, range(64)))
said == list(range(64))
""",
        True,
    ),
    "a socket that does not wait": (
        """
s = socket.socket(); s.setblocking(False)
begun = s.connect_ex(ECHO)
select.select([], [s], [], 10)
ended = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
s.close(); [errno.errorcode.get(number, 0) for number in (begun, ended)]
""",
        ["EINPROGRESS", 0],
    ),
    "what was set before": (
        """
s = socket.socket(); s.settimeout(7)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
s.connect(ECHO)
kept = (s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0,
        s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0,
        s.gettimeout(), s.get_inheritable())
s.close(); kept
""",
        (True, True, 7.0, False),
    ),
    "the OS kernel's own call, from C": (
        """
c = ctypes.CDLL(None, use_errno=True); s = _socket.socket()
a = struct.pack('=HH4B8x', 2, socket.htons(ECHO[1]), 127, 0, 0, 1)
failed = c.connect(s.fileno(), a, len(a)); s.sendall(b'c'); said = s.recv(9); s.close()
failed, said
""",
        (0, b"c"),
    ),
    "a program": (
        """
import subprocess
subprocess.run(['curl', '-sS', SITE + '/page'], capture_output=True, check=True).stdout
""",
        b"you asked for page",
    ),
    "a child that has the descriptor": (
        """
import os
s = socket.create_connection(ECHO)
if not (pid := os.fork()): s.sendall(b'child'); os._exit(0)
os.waitpid(pid, 0); said = s.recv(9); s.close(); said
""",
        b"child",
    ),
    "names and addresses": (
        """
[socket.gethostbyname('localhost'), socket.gethostbyname('127.0.0.1'),
 socket.getaddrinfo('LOCALHOST', 80, socket.AF_INET, socket.SOCK_STREAM)[0][4],
 socket.getaddrinfo('10.1.2.3', 'https', type=socket.SOCK_STREAM)[0][4]]
""",
        ["127.0.0.1", "127.0.0.1", ("127.0.0.1", 80), ("10.1.2.3", 443)],
    ),
}


@pytest.mark.parametrize("how", REACHES)
def test_what_is_listed_is_reached_by(kernel, how):
    code, said = REACHES[how]
    assert value(kernel, code) == said


@pytest.mark.parametrize("library", ["requests", "httpx"])
@pytest.mark.quick
def test_what_is_listed_is_reached_by_a_library(kernel, library):
    pytest.importorskip(library)
    run(kernel, f"import {library} as library\nopen('ca.pem', 'w').write(AUTHORITY)")
    code = "library.get(SITE + '/page').text"
    assert value(kernel, code) == "you asked for page"
    trusting = "'ca.pem'" if library == "requests" else "trusting"
    code = f"library.get(SECURE + '/page', verify={trusting}).text"
    assert value(kernel, code) == "you asked for page"
    reply, _ = kernel.run("library.get(OTHER + '/page')")
    assert reply["ename"] == ("ConnectionError" if library == "requests" else "ConnectError")
    assert ALLOW in reply["evalue"]


def test_many_connections_are_as_many_as_files_may_be_open(kernel):
    code = (
        "held = []\n"
        "try:\n"
        "    while True: held.append(socket.create_connection(ECHO))\n"
        "except OSError as exc: why = exc.errno\n"
        "held[0].sendall(b'x'); said = held[0].recv(1)\n"
        "for s in held: s.close()\n"
        "errno.errorcode[why], 40 < len(held) < 64, said"
    )
    assert value(kernel, code) == ("EMFILE", True, b"x")
    assert value(kernel, "s = socket.create_connection(ECHO); s.close(); 1") == 1


# --- what is not ----------------------------------------------------------------------------------

REFUSED = {
    "another port": ("socket.create_connection(STRANGE)", "ConnectionRefusedError"),
    "another host": ("socket.create_connection(ELSEWHERE)", "ConnectionRefusedError"),
    "IPv6": ("socket.create_connection(('::1', ECHO[1]))", "ConnectionRefusedError"),
    "another address": ("socket.create_connection(('10.0.0.6', 80))", "OSError"),
    "another IPv6 address": ("socket.create_connection(('fd00::1', 80))", "OSError"),
    "a name": ("socket.getaddrinfo('example.org', 443)", "gaierror"),
    "a name with a secret in it": ("socket.gethostbyname('secret.example.org')", "gaierror"),
    "where a listed site sends on": (
        "urllib.request.urlopen(SITE + '/to?' + OTHER + '/leak')",
        "URLError",
    ),
    "TCP Fast Open": (
        "_socket.socket().sendto(b'x', 0x20000000, STRANGE)",
        "PermissionError",
    ),
    "TCP Fast Open, by option": (
        "_socket.socket().setsockopt(socket.IPPROTO_TCP, 30, 1)",
        "PermissionError",
    ),
    "MPTCP": ("_socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)", "PermissionError"),
    "SCTP": ("_socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)", "PermissionError"),
    "UDP": (
        "u = socket.socket(type=socket.SOCK_DGRAM); u.connect(DATAGRAMS); u.send(b'x'); u.send(b'x')",
        "ConnectionRefusedError",
    ),
    "DNS, by UDP": (
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('8.8.8.8', 53))",
        "OSError",
    ),
    "raw packets": ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "PermissionError"),
    "netlink": ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "OSError"),
    "the port of who is listed": (
        "socket.create_server(ECHO)",
        "OSError",
    ),
    "an address in the place of who is listed": (
        "open('/etc/hosts', 'a').write('127.0.0.1 example.org')",
        "PermissionError",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_is_reached(kernel, place, what):
    code, name = REFUSED[what]
    reply, published = kernel.run(code)
    assert reply["status"] == "error"
    assert reply["ename"] == name, reading.traceback(published)
    place.untouched()
    # Who is listed is there as before.
    assert value(kernel, REACH_ECHO) == b"x"


@pytest.mark.parametrize("what", ["another port", "another host", "another address", "a name"])
@pytest.mark.quick
def test_a_refusal_says_what_to_write(kernel, what):
    code, _ = REFUSED[what]
    reply, _ = kernel.run(code)
    assert ALLOW in reply["evalue"]


TURNED = """
c = ctypes.CDLL(None, use_errno=True)
there = struct.pack('=HH4B8x', 2, socket.htons(STRANGE[1]), 127, 0, 0, 1)
s = socket.create_connection(ECHO)
undone = c.connect(s.fileno(), bytes(16), 16)
failed = c.connect(s.fileno(), there, 16)
why = errno.errorcode[ctypes.get_errno()]; s.close()
"""


def test_a_connection_that_is_undone_leads_nowhere_else(kernel, place):
    run(kernel, TURNED)
    assert value(kernel, "undone, failed, why") == (0, -1, "ECONNREFUSED")
    place.untouched()


def test_a_name_that_leads_inside_is_not_followed(kernel, place):
    try:
        inside = socket.gethostbyname(MACHINE)
    except OSError:
        pytest.skip("this machine does not know its own name")
    if not inside.startswith(("10.", "127.", "172.", "192.168.")):
        pytest.skip("this machine has a public name")
    reply, published = kernel.run("s = socket.socket(); s.connect(MACHINE); s.recv(1)")
    assert reply["ename"] == "ConnectionResetError"
    said = f"can't reach {MACHINE}:{place.names['MACHINE'][1]}: it is at {inside}, which is not"
    assert said in reading.notices(published)
    place.untouched()


# --- what becomes of connections ------------------------------------------------------------------


def test_a_connection_that_is_closed_has_ended_though_a_snapshot_stands(kernel, place):
    run(kernel, "s = socket.create_connection(HELD); s.sendall(b'x')")
    with place.take() as peer:
        assert peer.recv(1) == b"x"
        run(
            kernel, "1; import time; time.monotonic(), time.sleep(0.15)"
        )  # its snapshot is waited for
        run(kernel, "s.close()")
        assert peer.recv(1) == b""


def test_a_guest_that_is_lost_takes_its_connections_along_and_the_card_says_so(kernel, place):
    run(kernel, "s = socket.create_connection(HELD); t = socket.create_connection(ECHO)")
    run(kernel, "import time; time.monotonic(), time.sleep(0.15)")
    with place.take() as peer:
        reply, published = kernel.run("import os; s.sendall(b'last'); os._exit(0)")
        assert reply["ename"] == "CellStopped"
        assert peer.recv(9) == b"last"
        assert peer.recv(9) == b""
        (card,) = reading.cards(published, "outcome")
        assert card["state"] == "restored"
        assert "2 network connections" in card["lost"]
        reply, _ = kernel.run("s.recv(1)")
        assert (reply["ename"], reply["evalue"]) == (
            "OSError",
            "[Errno 107] Transport endpoint is not connected",
        )
        assert kernel.run("s.sendall(b'x')")[0]["ename"] == "BrokenPipeError"
    assert value(kernel, "t = socket.create_connection(ECHO); t.sendall(b'x'); t.recv(1)") == b"x"
    run(kernel, "s.close(); t.close()")


def test_what_a_cell_said_is_kept_and_said_once_however_soon_its_guest_is_lost(kernel, place):
    for number in range(4):
        run(kernel, f"said = {number}; s = socket.create_connection(HELD); s.sendall(b'{number}')")
        os.kill(kernel.sole_guest(), signal.SIGKILL)
        with place.take() as peer:
            assert (peer.recv(9), peer.recv(9)) == (str(number).encode(), b"")
        assert value(kernel, "said") == number
    place.held.setblocking(False)
    with pytest.raises(BlockingIOError):
        place.held.accept()


def test_a_pool_of_connections_goes_on_after_a_restoration(kernel):
    pytest.importorskip("requests")
    run(kernel, "import requests; pool = requests.Session(); pool.get(SITE + '/before')")
    run(kernel, "import time; time.monotonic(), time.sleep(0.15)")
    kernel.run("import os; os._exit(0)")
    assert value(kernel, "pool.get(SITE + '/after').text") == "you asked for after"
    run(kernel, "pool.close()")


def test_a_connection_that_takes_long_can_be_given_up_and_interrupted(kernel):
    reply, _ = kernel.run("s = socket.create_connection(FULL, 0.2); s.recv(1)")
    assert (reply["ename"], reply["evalue"]) == ("TimeoutError", "timed out")
    mid = kernel.execute_send("print('on'); socket.create_connection(FULL).recv(1)")
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    kernel.interrupt()
    assert kernel.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    kernel.until_idle(mid)
    assert value(kernel, "s = socket.create_connection(ECHO); s.sendall(b'x'); s.recv(1)") == b"x"


# --- the relay itself -----------------------------------------------------------------------------


def test_a_relay_that_ends_is_replaced(kernel):
    before = kernel.relay()
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while kernel.relays() in ([], [before]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert value(kernel, "s = socket.create_connection(ECHO); s.sendall(b'x'); s.recv(1)") == b"x"
    assert value(kernel, "urllib.request.urlopen(SITE + '/y').status") == 200


# --- a narrower list ------------------------------------------------------------------------------


def narrowed(kernel, line):
    (card,) = reading.cards(run(kernel, f"%policy narrow {line}"), "narrowing")
    return card["guest"]


def refused(kernel, code):
    """Return what a cell is refused with; it says which field it is about."""
    reply, published = kernel.run(code)
    assert reply["status"] == "error", reading.result(published)
    assert ALLOW in reply["evalue"], reply
    return reply["ename"], reply["evalue"]


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_a_list_that_becomes_shorter_holds_at_once_and_nothing_goes_back(start, place, backend):
    if backend == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world = World(backend=backend)
    kernel = start(policy_with_addresses(world, place.listed), "--allow-unsafe", world=world)
    kernel.own_world = True
    run(kernel, f"globals().update({place.names})\n{IMPORTS}\nkept = 1")
    assert value(kernel, "urllib.request.urlopen(SITE + '/one').read()") == b"you asked for one"
    run(kernel, "held = socket.create_connection(HELD); held.sendall(b'x')")
    peer = place.take()
    assert peer.recv(1) == b"x"

    assert narrowed(kernel, f'network_access=["127.0.0.1:{place.names["ECHO"][1]}"]') == "kept"
    with peer, pytest.raises(ConnectionResetError):
        peer.recv(1)
    for before in ("%undo 2", "import os; os._exit(0)", "1"):
        kernel.run(before)
        assert refused(kernel, "socket.create_connection(HELD)")[0] == "ConnectionRefusedError"
        assert value(kernel, f"{REACH_ECHO}, kept") == (b"x", 1)

    assert narrowed(kernel, "network_access=false") == "kept"
    reply, _ = kernel.run(REACH_ECHO)
    assert reply["ename"] in ("PermissionError", "ConnectionRefusedError")
    assert value(kernel, "kept") == 1
    place.held.setblocking(False)
    with pytest.raises(BlockingIOError):
        place.held.accept()


def test_a_list_in_place_of_a_network_takes_a_new_guest(start, place):
    world = World()
    kernel = start(world.policy('extends = "unsafe"\nnetwork_access = true'), "--allow-unsafe")
    kernel.own_world = True
    begin = f"globals().update({place.names})\n{IMPORTS}"
    run(kernel, begin)
    line = f'network_access=["127.0.0.1:{place.names["ECHO"][1]}"]'
    assert kernel.run(f"%policy narrow {line}")[0]["ename"] == "PolicyDenied"
    assert value(kernel, "urllib.request.urlopen(SITE + '/yet').read()") == b"you asked for yet"
    assert narrowed(kernel, f"--fresh {line}") == "instead"
    run(kernel, begin)
    assert value(kernel, REACH_ECHO) == b"x"
    refused(kernel, "socket.create_connection(HELD)")
