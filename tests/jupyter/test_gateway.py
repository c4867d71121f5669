"""Kernels on another machine, through Jupyter's gateway client: two real servers, on loopback.

The commands are those of docs/remote.md, but for the port.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support import doc_pages, processes
from support.client import free_ports
from support.kernels import ROOT, World, argv_for

DENIAL = "application/vnd.cellblock.denial+json"
TOKEN = "t" * 32
START_SECONDS, STEP_SECONDS = 60.0, 60.0
AS_ROOT = " --allow-root" if os.geteuid() == 0 else ""

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="an installed package has no docs"
)


class Server:
    """A Jupyter server in a world of its own, and requests to it."""

    def __init__(self, world, script, port, token, **variables):
        self.world, self.token, self.url = world, token, f"http://127.0.0.1:{port}"
        self.log = world.root / "server.log"
        env = world.environment(TOKEN=TOKEN, PROJECT=str(world.work), **variables)
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                ["bash", "-c", script.replace("jupyter ", "exec jupyter ", 1)], cwd=world.home, env=env,
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
            )  # fmt: skip

    def ask(self, method, path, body=None):
        """Return what the server answers: its status, and JSON or nothing."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=STEP_SECONDS) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, None

    def wait_up(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.ask("GET", "/api/status")
            except OSError:
                time.sleep(0.1)
            else:
                return self
        pytest.fail(f"the server did not start:\n{self.log.read_text()[-4_000:]}")

    def close(self):
        pids = processes.tree(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(STEP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        left = processes.gone(pids)
        processes.end(left)
        self.world.close()
        assert left == [], self.log


class Kernel:
    """A kernel behind a server, spoken to as JupyterLab does: JSON over a web socket."""

    def __init__(self, server, name):
        _, self.model = server.ask("POST", "/api/kernels", {"name": name})
        self.server, self.path = server, f"/api/kernels/{self.model['id']}"
        web = pytest.importorskip("websocket", reason="websocket-client comes with jupyter_server")
        self.socket = web.create_connection(
            f"{server.url.replace('http', 'ws')}{self.path}/channels?session_id=s",
            header=[f"Authorization: token {server.token}"],
            timeout=STEP_SECONDS,
        )
        self.sent = 0

    def send(self, code, **extra):
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": False,
        }  # fmt: skip
        return self.say("execute_request", content | extra)

    def say(self, kind, content, channel="shell", parent=None):
        """Send a message; return its id."""
        self.sent += 1
        header = {
            "msg_id": f"m{self.sent}", "msg_type": kind, "session": "s", "username": "u",
            "version": "5.3", "date": "2024-01-01T00:00:00Z",
        }  # fmt: skip
        message = {
            "header": header, "parent_header": parent or {}, "metadata": {}, "content": content,
            "channel": channel, "buffers": [],
        }  # fmt: skip
        self.socket.send(json.dumps(message))
        return header["msg_id"]

    def until(self, wanted, mid):
        """Return the messages about a request up to the first that is wanted."""
        found = []
        while not (found and wanted(found[-1])):
            message = json.loads(self.socket.recv())
            if message["parent_header"].get("msg_id") == mid:
                found.append(message)
        return found

    def wait_heard(self):
        """Wait until what a new kernel publishes gets here: its server connects again by itself."""
        while json.loads(self.socket.recv())["msg_type"] != "iopub_welcome":
            continue

    def run(self, code):
        """Return the content of a cell's reply, and of what it showed."""
        mid = self.send(code)
        return self.settled(mid)

    def settled(self, mid):
        said, replied = [], []

        def both(message):
            (replied if message["msg_type"] == "execute_reply" else said).append(message)
            return replied and any(m["content"].get("execution_state") == "idle" for m in said)

        self.until(both, mid)
        return replied[0]["content"], [m["content"] for m in said]

    def value(self, code):
        reply, said = self.run(code)
        assert reply["status"] == "ok", reply
        return next(c["data"]["text/plain"] for c in said if "execution_count" in c and "data" in c)


@pytest.fixture(scope="module")
def elsewhere():
    """The server with the kernels: cellblock's, and one that nobody confines."""
    pytest.importorskip("jupyter_server", reason="jupyter_server is not installed")
    world = World()
    world.write("data.csv", "1\n2\n3.5\n")
    folder = world.home / ".local/share/jupyter/kernels/cellblock-data"
    folder.mkdir(parents=True)
    policy = world.policy('extends = "data"\n[add]\nallowed_modules = ["os"]\n')
    spec = json.loads((ROOT / "kernelspec/cellblock-data/kernel.json").read_text())
    (folder / "kernel.json").write_text(json.dumps(spec | {"argv": argv_for(policy)}))
    (port,) = free_ports(1)
    command, _ = doc_pages.blocks("remote.md", "bash")[:2]
    server = Server(world, command.replace("9999", str(port)).strip() + AS_ROOT, port, TOKEN)
    yield server
    server.close()


@pytest.fixture(scope="module")
def here(elsewhere):
    """The server of the front end, which has no kernel of its own to offer."""
    (port,) = free_ports(1)
    _, command = doc_pages.blocks("remote.md", "bash")[:2]
    command = command.replace("127.0.0.1:9999", elsewhere.url.removeprefix("http://"))
    command = command.replace("jupyter lab", "jupyter server")
    own = "h" * 32
    options = f" --no-browser --port={port} --IdentityProvider.token={own}"
    world = World()
    world.write("here.csv", "1\n")
    script = command.strip() + options + AS_ROOT
    server = Server(world, script, port, own, KERNEL_SECRET="s3cr3t")
    elsewhere.wait_up()  # both start at the same time
    yield server.wait_up()
    server.close()


@pytest.fixture(scope="module")
def kernel(here):
    made = Kernel(here, "cellblock-data")
    yield made
    made.socket.close()
    here.ask("DELETE", made.path)


def test_no_kernel_but_ours_is_offered_or_started(here, elsewhere):
    _, specs = here.ask("GET", "/api/kernelspecs")
    assert "cellblock-data" in specs["kernelspecs"]
    assert all(name.startswith("cellblock") for name in specs["kernelspecs"])
    assert here.ask("POST", "/api/kernels", {"name": "python3"})[0] >= 400
    assert elsewhere.ask("POST", "/api/kernels", {"name": "python3"})[0] >= 400
    assert elsewhere.ask("POST", "/api/terminals")[0] >= 400


def test_cells_run_there_and_read_what_is_there(here, elsewhere, kernel):
    assert processes.tree(elsewhere.process.pid)[1:]
    # What the server itself asks of git and others comes and goes.
    processes.until(lambda: processes.tree(here.process.pid)[1:] == [])
    assert kernel.value("import numpy, os\nfloat(numpy.loadtxt('data.csv').sum())") == "6.5"
    local = str(here.world.work / "here.csv")
    reply, _ = kernel.run(f"numpy.loadtxt({local!r})")
    assert reply["ename"] in {"PermissionError", "FileNotFoundError"}
    assert kernel.value("'KERNEL_SECRET' in os.environ") == "False"


def test_a_refusal_is_shown_here(kernel):
    reply, _ = kernel.run("import socket\nsocket.create_connection(('127.0.0.1', 9))")
    assert reply["ename"] == "ConnectionRefusedError"
    assert "cells have a network of their own" in reply["evalue"]


def test_a_question_is_answered_from_here(kernel):
    mid = kernel.send("input('Name? ')", allow_stdin=True)
    question = kernel.until(lambda m: m["msg_type"] == "input_request", mid)[-1]
    assert question["content"]["prompt"] == "Name? "
    kernel.say("input_reply", {"value": "Ada", "status": "ok"}, "stdin", question["header"])
    _, said = kernel.settled(mid)
    assert [c["data"]["text/plain"] for c in said if "data" in c and "execution_count" in c] == [
        "'Ada'"
    ]


def test_undo_an_interrupt_and_a_restart_from_here_reach_it(here, kernel):
    kernel.run("x = [1]")
    kernel.run("x.clear()")
    assert kernel.run("%undo")[0]["status"] == "ok"
    mid = kernel.send("print('go')\nwhile True: pass")
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    assert here.ask("POST", f"{kernel.path}/interrupt")[0] == 204
    assert kernel.settled(mid)[0]["ename"] == "KeyboardInterrupt"
    assert kernel.value("x") == "[1]"
    assert here.ask("POST", f"{kernel.path}/restart")[0] == 200
    kernel.wait_heard()
    assert kernel.run("x")[0]["ename"] == "NameError"


def test_a_shutdown_from_here_leaves_nothing_there(here, elsewhere):
    def hosts():
        of = processes.parents()
        return {pid for pid, parent in of.items() if parent == elsewhere.process.pid}

    before = hosts()
    made = Kernel(here, "cellblock-data")
    made.run("1")
    (host,) = hosts() - before
    pids = processes.tree(host)
    assert len(pids) >= 3, "host, zygote and guest"
    made.socket.close()
    assert here.ask("DELETE", made.path)[0] == 204
    assert processes.gone(pids) == []
