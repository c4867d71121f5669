"""The network that a session's programs have to themselves: nobody else is in it.

Under preset data, where a zygote makes one for landlock, and bubblewrap for the other. Whatever is
tried here succeeds outside.
"""

import json
import os
import socket

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix

#: Tries to reach each address; which it says.
REACH = """
import errno, json, os, socket
def outcome(family, kind, address):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(5)
            s.connect(address)
            s.send(b"x")
            return "sent"
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
def tried(world):
    found = {
        "tcp": outcome(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", world["tcp"])),
        "udp": outcome(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", world["udp"])),
        "abstract": outcome(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + world["abstract"]),
        "netlink": outcome(socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)),
    }
    for path in world["paths"]:
        found[path] = outcome(socket.AF_UNIX, socket.SOCK_STREAM, path)
    return found
"""


class Outside:
    """Listeners of the user's other programs, and what they have heard."""

    def __init__(self, world):
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        name = f"cellblock-{world.root.name}"
        self.abstract.bind(f"\0{name}")
        self.abstract.listen()
        # One beside the project, one in it: seen through the layer, and not to be reached.
        paths = [str(world.root / "stream"), str(world.work / "stream")]
        self.paths = []
        for path in paths:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            os.chmod(path, 0o777)  # noqa: PTH101
            self.paths.append(listener)
        self.told = {
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": name,
            "paths": paths,
        }
        for one in self.listeners():
            one.setblocking(False)

    def listeners(self):
        return [self.tcp, self.udp, self.abstract, *self.paths]

    def heard(self):
        heard = []
        for one in self.listeners():
            try:
                heard.append(one.recv(1) if one is self.udp else one.accept()[0].close())
            except BlockingIOError:
                continue
        return heard

    def close(self):
        for one in self.listeners():
            one.close()


@pytest.fixture(scope="module", params=machines.users(wrapped=True))
def kernel(request):
    world, prefix = world_and_prefix(request.param)
    outside = Outside(world)
    started = Kernel(argv_for("data"), world=world, prefix=prefix)
    started.outside = outside
    yield started.wait_ready()
    outside.close()
    started.close()
    world.close()


def said(kernel, code):
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return reading.stream(published)


def test_nobody_else_is_reached_and_outside_all_of_them_are(kernel):
    world = kernel.outside.told
    code = f"{REACH}\nprint(json.dumps(tried(json.loads({json.dumps(world)!r}))))"
    found = json.loads(said(kernel, code))
    assert kernel.outside.heard() == []
    # A datagram to an empty port of the session's own is sent, and nobody gets it.
    assert {name for name, came in found.items() if came == "sent"} <= {"udp"}
    scope = {}
    exec(REACH, scope)
    control = scope["tried"](world)
    assert set(control.values()) == {"sent"}
    assert len(kernel.outside.heard()) == 5


SERVER = """
import http.server, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello")
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def test_a_server_answers_in_its_own_session_and_nowhere_else_and_its_port_is_free_after_it(kernel):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # Free in the session's network though it is taken outside.
        port = taken.getsockname()[1]
        start = SERVER.replace("PORT", str(port))
        ask = f"print(urllib.request.urlopen('http://localhost:{port}').read())"
        assert said(kernel, start + ask) == "b'hello'\n"
        # Of a program that a cell starts, too, and in a cell after a copy was made.
        asks = f"import urllib.request; {ask}"
        program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {asks!r}])"
        assert said(kernel, program) == "b'hello'\n"
        taken.setblocking(False)
        with pytest.raises(BlockingIOError):
            taken.accept()
        for _ in range(2):
            said(kernel, "server.shutdown(); server.server_close()")
            assert said(kernel, start + ask) == "b'hello'\n"


PROCESSES = """
import multiprocessing as mp
with mp.Manager() as manager:
    shared = manager.dict(a=1)
    print(dict(shared))
for method in ("fork", "spawn", "forkserver"):
    with mp.get_context(method).Pool(1) as pool:
        print(pool.map(abs, [-1]))
"""


def test_managers_and_pools_of_each_kind_work(kernel):
    assert said(kernel, PROCESSES) == "{'a': 1}\n[1]\n[1]\n[1]\n"


def test_a_network_that_a_policy_gives_up_is_not_one_that_a_session_has_to_itself():
    world, prefix = world_and_prefix(machines.users(wrapped=True)[-1])
    outside = Outside(world)
    policy = world.policy(
        "extends = 'unsafe'\nsubprocess_execution = true\nnetwork_access = true\n"
    )
    kernel = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix)
    try:
        kernel.wait_ready()
        tells = f"{REACH}\nprint(json.dumps(tried(json.loads({json.dumps(outside.told)!r}))))"
        assert json.loads(said(kernel, tells))["tcp"] == "sent"  # the control
        assert outside.heard()
        said(kernel, "%policy narrow network_access = false")
        assert json.loads(said(kernel, tells))["tcp"] == "EACCES"
        assert outside.heard() == []
    finally:
        outside.close()
        kernel.close()
        world.close()


#: Sends descriptors to itself and takes none up, in as many processes as it takes; says how many.
FILL = """
import array, os, socket, time
kept = []
def fill():
    numbers = array.array("i", [0] * 250)
    sent = 0
    try:
        while True:
            kept.append(socket.socketpair())
            for _ in range(3):
                message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
                kept[-1][0].sendmsg([b"x"], message, socket.MSG_DONTWAIT)
                sent += 250
    except OSError as error:
        return sent
read, write = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.write(write, b"%9d" % fill())
        time.sleep(60)
        os._exit(0)
print(sum(int(os.read(read, 9)) for _ in range(4)))
"""


def test_descriptors_on_their_way_keep_nobody_from_a_snapshot_nor_from_a_guest():
    """Linux counts those of all of a user's processes together."""
    world, prefix = world_and_prefix(machines.users(wrapped=True)[-1])
    few = ("/bin/sh", "-c", 'ulimit -n 1024; exec "$@"', "sh")
    kernel = Kernel(argv_for("data"), world=world, prefix=(*few, *prefix))
    stricter = None
    try:
        kernel.wait_ready()
        assert int(said(kernel, FILL)) > 256
        # Under preset safe guests may open 256 files.
        stricter = Kernel(argv_for("safe"), world=world, prefix=(*few, *prefix))
        stricter.wait_ready()
        said(kernel, "import time; time.sleep(1.1); x = 1")  # from a second on there is a snapshot
        kernel.run("os.kill(os.getpid(), 9)")
        assert said(kernel, "print(x)") == "1\n"
    finally:
        kernel.close()
        if stricter is not None:
            stricter.close()
        world.close()
