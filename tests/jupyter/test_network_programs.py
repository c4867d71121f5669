"""Libraries and programs under a list of addresses: what is listed they reach as anywhere."""

import shutil
import socket
import struct
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler

import pytest

from support import machines, reading
from support.address_lists import policy_with_addresses
from support.kernels import Kernel, argv_for, world_and_prefix
from support.reading import run
from support.servers import AUTHORITY, Site, echo
from support.wheels import Index

SECONDS = 60.0


def _database():
    """Return a listener that is a PostgreSQL server for as long as it takes to log in."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                while (size := int.from_bytes(peer.recv(4), "big")) == 8:
                    peer.recv(4)  # asks for TLS, or GSS
                    peer.sendall(b"N")
                peer.recv(size)
                ready = b"R" + struct.pack("!ii", 8, 0)
                ready += b"S" + struct.pack("!i", 22) + b"server_version\x0015\x00"
                peer.sendall(ready + b"Z" + struct.pack("!i", 5) + b"I")
                peer.recv(1_000)  # a question
                field = b"n\x00" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0)
                peer.sendall(b"T" + struct.pack("!ih", 6 + len(field), 1) + field)
                peer.sendall(b"D" + struct.pack("!ihi", 13, 1, 3) + b"yes")
                peer.sendall(b"C" + struct.pack("!i", 13) + b"SELECT 1\x00")
                peer.sendall(b"Z" + struct.pack("!i", 5) + b"I")
                peer.recv(1_000)

    threading.Thread(target=serve, daemon=True).start()
    return listener


class Place:
    """Who is listed."""

    def __init__(self, folder):
        self.site, self.secure, self.index = Site(), Site(tls=True), Index()
        self.index.add("tiny", "1.0")
        self.echo, self.database = echo(), _database()
        self.listeners = [self.echo, self.database]
        self.git = self._git(folder)
        self.names = {
            "SITE": f"http://localhost:{self.site.port}",
            "SECURE": f"https://localhost:{self.secure.port}",
            "ECHO": self.echo.getsockname(),
            "DB": self.database.getsockname()[1],
            "GIT": f"http://localhost:{self.git.port}/repo.git",
            "INDEX": self.index.url,
            "AUTHORITY": AUTHORITY,
        }
        index = self.index.url.split("/")[2]
        sites = (self.site, self.secure, self.git)
        self.listed = [f"localhost:{each.port}" for each in sites]
        self.listed += [f"127.0.0.1:{each.getsockname()[1]}" for each in self.listeners]
        self.listed += [index]

    def _git(self, folder):
        """Serve a repository as files, which is all that a clone takes (git-http-backend(1))."""
        work, bare = folder / "work", folder / "served" / "repo.git"
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", work]
        subprocess.run(["git", "init", "-q", work], check=True)
        (work / "a.txt").write_text("cloned")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "one"], check=True)
        subprocess.run(["git", "clone", "-q", "--bare", work, bare], check=True)
        subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
        return Files(bare.parent)

    def close(self):
        for one in (self.site, self.secure, self.git, self.index):
            one.close()
        for one in self.listeners:
            one.close()


class Files(Site):
    """A site of the files in a folder."""

    def __init__(self, folder):
        self.folder = folder
        super().__init__()

    def finish_request(self, request, client_address):
        class Quiet(SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        Quiet(request, client_address, self, directory=str(self.folder))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("place"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=machines.users(wrapped=True))
def kernel(request, place):
    world, prefix = world_and_prefix(request.param)
    policy = policy_with_addresses(world, place.listed, "subprocess_execution = true\n")
    started = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix).wait_ready()
    run(started, f"globals().update({place.names})")
    run(started, "import os, subprocess, sys; open('ca.pem', 'w').write(AUTHORITY)")
    run(started, "os.environ.update(GIT_SSL_CAINFO='ca.pem', PGCONNECT_TIMEOUT='20')")
    yield started
    started.close()
    world.close()


SAYS = "print(subprocess.run({}, shell=True, capture_output=True, text=True, timeout=50))"
PROGRAMS = {
    "curl": ("curl -sS --cacert ca.pem {SECURE}/x", "you asked for x"),
    "wget": ("wget -q --ca-certificate=ca.pem -O - {SECURE}/x", "you asked for x"),
    "git": ("git ls-remote {GIT}", "refs/heads/"),
    "psql": ("psql -h localhost -p {DB} -U x -w -Atc 'select 1' x", "yes"),
    "node": (
        "node -e \"require('http').get('{SITE}/x', r => r.on('data', d => console.log(d + '')))\"",
        "you asked for x",
    ),
    "pip": (
        "{PYTHON} -m pip --isolated download -q --no-deps --index-url {INDEX} tiny && ls *.whl",
        "tiny-1.0",
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_reaches_what_is_listed(kernel, place, program):
    if program != "pip" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    line, said = PROGRAMS[program]
    command = line.format(**place.names, PYTHON=sys.executable)
    _, published = kernel.run(SAYS.format(repr(command)))
    assert said in reading.stream(published), reading.stream(published)


LIBRARIES = {
    "requests": "import requests; print(requests.get(SECURE + '/x', verify='ca.pem').text)",
    "httpx": (
        "import httpx, ssl; trusting = ssl.create_default_context(cafile='ca.pem')\n"
        "print(httpx.get(SECURE + '/x', verify=trusting).text)"
    ),
    "aiohttp": (
        "import aiohttp\n"
        "async with aiohttp.ClientSession() as session, session.get(SITE + '/x') as reply:\n"
        "    print(await reply.text())"
    ),
    "urllib": "import urllib.request; print(urllib.request.urlopen(SITE + '/x').read().decode())",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_reaches_what_is_listed(kernel, library):
    pytest.importorskip(library)
    reply, published = kernel.run(LIBRARIES[library])
    assert reply["status"] == "ok", reply
    assert "you asked for x" in reading.stream(published)


MANY = """
import hashlib, socket
held = [socket.create_connection(ECHO, 20) for _ in range(64)]
for number, s in enumerate(held): s.sendall(bytes([number]) * 10_000)
def said(s):
    data = b""
    while len(data) < 10_000: data += s.recv(10_000)
    return data
print([said(s) for s in held] == [bytes([n]) * 10_000 for n in range(64)])
for s in held: s.close()
"""


def test_sixty_four_are_connected_at_once(kernel):
    assert reading.stream(kernel.run(MANY)[1]) == "True\n"


NATIVE = {
    "another port": "curl -sS -m 20 http://127.0.0.1:1/",
    "another address": "curl -sS -m 20 http://10.0.0.6/",
    "another IPv6 address": "curl -sS -m 20 'http://[fd00::1]/'",
    "another name": "curl -sS -m 20 http://example.org/",
}


@pytest.mark.parametrize("what", NATIVE)
def test_a_program_reaches_nobody_else(kernel, what):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    _, published = kernel.run(SAYS.format(repr(NATIVE[what])))
    said = reading.stream(published)
    assert "returncode=7" in said or "returncode=6" in said, said


def test_another_session_reaches_nothing_of_this_one(kernel, place):
    """Its listeners are in its own network, and so is what its cells serve."""
    world, prefix = world_and_prefix(machines.users(wrapped=True)[-1])
    policy = policy_with_addresses(world, [f"127.0.0.1:{place.names['DB']}"])
    other = Kernel(argv_for(policy, "--allow-unsafe"), world=world, prefix=prefix)
    try:
        other.wait_ready()
        run(kernel, "import socket\nserved = socket.create_server(('127.0.0.1', 4567))")
        run(other, f"import socket; ECHO = {place.names['ECHO']}")
        for where in ("('127.0.0.1', 4567)", "ECHO"):
            reply, _ = other.run(f"socket.create_connection({where})")
            assert reply["ename"] == "ConnectionRefusedError"
        run(kernel, "served.close()")
    finally:
        other.close()
        world.close()
