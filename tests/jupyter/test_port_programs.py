"""Servers as people write them in notebooks, opened by a policy's ports, behind both backends."""

import http.client
import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from cellblock import Policy, Sandbox
from support import machines
from support.cell_servers import SECONDS, connect, get, socket_address
from support.ports import next_port
from support.processes import until

#: A server that is started in a thread listens when its cell may have ended.
LISTENS = "a server listens"


@pytest.fixture(params=["landlock", "bubblewrap"])
def sandbox(request, monkeypatch):
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    monkeypatch.setenv("PATH", machines.path(request.param))
    port = next_port()
    policy = Policy.preset(
        "unsafe",
        name="served",
        backend=request.param,
        ports=(port,),
        subprocess_execution=True,
    )
    with Sandbox(policy, allow_unsafe=True) as made:
        assert made.backend == request.param
        yield made


def served(sandbox, source):
    """Run a cell that serves; return the address when somebody listens there."""
    (port,) = sandbox.policy.ports
    result = sandbox.execute(source.replace("PORT", str(port)))
    assert result.status == "ok", result.to_string()
    until(lambda: LISTENS in sandbox.execute("%ports").to_string(), SECONDS)
    return sandbox.ports()[port]


def test_http_server_as_a_program(sandbox):
    url = served(
        sandbox,
        """
import pathlib, subprocess, sys
pathlib.Path('page.html').write_text('<p>from a file')
server = subprocess.Popen(
    [sys.executable, '-m', 'http.server', 'PORT'],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
""",
    )
    assert get(url, path="/page.html") == (200, "<p>from a file")
    sandbox.execute("server.kill(); server.wait()")
    assert get(url)[0] == 502


def test_starlette_under_uvicorn_with_a_websocket(sandbox):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    client = pytest.importorskip("websockets.sync.client")
    url = served(
        sandbox,
        """
import threading, uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute

async def page(request):
    return PlainTextResponse(request.headers['host'])

async def talk(socket):
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text.upper())

app = Starlette(routes=[Route('/', page), WebSocketRoute('/ws', talk)])
server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level='error', ws='websockets-sansio'))
threading.Thread(target=server.run, daemon=True).start()
""",
    )
    at = urlsplit(url)
    assert get(url) == (200, at.netloc)
    with client.connect(f"ws://{at.netloc}/ws", sock=connect(url)) as socket:
        for text in ("one", "x" * 100_000, "two"):
            socket.send(text)
            assert socket.recv(SECONDS) == text.upper()


def test_dash_as_its_guide_writes_it(sandbox):
    # Not in the extra "test": its extension for old JupyterLabs keeps a new one from its kernels.
    pytest.importorskip("dash")
    url = served(
        sandbox,
        """
from dash import Dash, Input, Output, dcc, html
app = Dash(__name__)
app.layout = html.Div([dcc.Input(id='name', value='x'), html.Div(id='said')])

@app.callback(Output('said', 'children'), Input('name', 'value'))
def say(name):
    return f'hello {name}'

app.run(port=PORT, jupyter_mode='external')
""",
    )
    status, page = get(url)
    assert status == 200
    assert "_dash-renderer" in page or "dash-renderer" in page
    asked = {
        "output": "said.children",
        "outputs": {"id": "said", "property": "children"},
        "inputs": [{"id": "name", "property": "value", "value": "Ada"}],
        "changedPropIds": ["name.value"],
    }
    connection = http.client.HTTPConnection(*socket_address(url), timeout=SECONDS)
    headers = {"Host": urlsplit(url).netloc, "Content-Type": "application/json"}
    connection.request("POST", "/_dash-update-component", json.dumps(asked), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["response"]["said"]["children"] == "hello Ada"


def test_flask_in_a_thread(sandbox):
    pytest.importorskip("flask")
    url = served(
        sandbox,
        """
import threading
from flask import Flask, request
app = Flask('app')

@app.post('/double')
def double():
    return str(2 * int(request.get_data()))

threading.Thread(target=app.run, kwargs={'port': PORT}, daemon=True).start()
""",
    )
    connection = http.client.HTTPConnection(*socket_address(url), timeout=SECONDS)
    for number in (21, 4):  # on one connection
        connection.request("POST", "/double", str(number), {"Host": urlsplit(url).netloc})
        assert connection.getresponse().read() == str(2 * number).encode()
    connection.close()


# --- through a Jupyter server ---------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """A Jupyter server with jupyter-server-proxy; yields its port and its token."""
    pytest.importorskip("jupyter_server_proxy")
    port, token = next_port(), os.urandom(8).hex()
    options = [f"--port={port}", f"--ServerApp.token={token}", f"--ServerApp.root_dir={tmp_path}"]
    argv = [sys.executable, "-m", "jupyter", "server", "--allow-root", "--no-browser", *options]
    env = os.environ | {
        "HOME": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "run"),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=env)

    def answers():
        try:
            asked(port, f"/api/status?token={token}")
        except OSError:
            return False
        return True

    until(answers, 60)
    yield port, token
    process.terminate()
    process.wait(SECONDS)


def asked(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


HEADERS = """
import http.server, threading
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(str(self.headers.get('Cookie')).encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def test_a_jupyter_servers_proxy_is_refused_so_its_cookies_stay_with_it(server):
    port, token = server
    policy = Policy.preset("unsafe", name="served", ports=(next_port(),))
    with Sandbox(policy, allow_unsafe=True) as sandbox:
        at = urlsplit(served(sandbox, HEADERS)).port
        path, cookie = f"/proxy/{at}/?token={token}", "username=secret"
        status, text = asked(port, path, Cookie=cookie)
        assert (status, "secret" in text) == (421, False)


def test_it_is_let_in_where_the_policy_names_its_host_and_gets_its_cookies(server):
    """What docs/network.md warns of, seen: the cell's server is told the Jupyter server's."""
    port, token = server
    policy = Policy.preset(
        "unsafe", name="served", ports=(next_port(),), port_hosts=(f"127.0.0.1:{port}",)
    )
    with Sandbox(policy, allow_unsafe=True) as sandbox:
        at = urlsplit(served(sandbox, HEADERS)).port
        path, cookie = f"/proxy/{at}/?token={token}", "username=secret"
        assert asked(port, path, Cookie=cookie) == (200, "username=secret")
