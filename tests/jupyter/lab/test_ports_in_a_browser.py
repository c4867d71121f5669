"""A cell's server in a real browser: reached by its name, and kept from all else by it."""

import http.server
import threading
from urllib.parse import urlsplit

import pytest

from cellblock import Policy, Sandbox
from support.cell_servers import get
from support.ports import next_port

from .conftest import CHROMIUM, CHROMIUM_ARGS, STEP_MS

#: A page that keeps a cookie, and records what requests bring.
PAGE = """
import http.server, threading
seen = []
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append((self.path, str(self.headers.get('Cookie'))))
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Set-Cookie', 'of_the_cell=1')
        self.end_headers()
        self.wfile.write(b'<title>of a cell</title><p>hello')
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


class _Jupyter(http.server.BaseHTTPRequestHandler):
    """Stands for a Jupyter server at 127.0.0.1, whose login is a cookie."""

    def do_GET(self):
        self.server.cookies.append(str(self.headers.get("Cookie")))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "login=secret; HttpOnly; Path=/")
        self.end_headers()
        self.wfile.write(b"<title>notebooks</title>")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def jupyter():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Jupyter)
    server.cookies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page(browser):
    """A page of a browser for which a stranger's name leads to this machine (rebinding)."""
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    own = browser.browser_type.launch(executable_path=str(CHROMIUM), args=[*CHROMIUM_ARGS, rules])
    made = own.new_page()
    made.set_default_timeout(STEP_MS)
    yield made
    own.close()


@pytest.fixture(scope="module")
def sandbox():
    policy = Policy.preset("unsafe", name="served", ports=(next_port(), next_port()))
    with Sandbox(policy, allow_unsafe=True) as made:
        for port in policy.ports:
            assert made.execute(PAGE.replace("PORT", str(port))).status == "ok"
        yield made


def test_the_address_opens_the_page_with_an_origin_to_itself(page, sandbox):
    for url in sandbox.ports().values():
        page.goto(url)
        assert page.title() == "of a cell"
        assert page.evaluate("location.origin") == url.rstrip("/")


def test_a_jupyter_servers_cookies_never_come_to_a_cell(page, sandbox, jupyter):
    """Not by the plain address either, which a cell's page can lead to."""
    page.goto(f"http://127.0.0.1:{jupyter.server_port}/")
    for url in sandbox.ports().values():
        page.goto(url)
        plain = f"http://127.0.0.1:{urlsplit(url).port}/stolen"
        page.evaluate(f"location = {plain!r}")
        page.wait_for_url(plain)
        assert "%ports" in page.inner_text("body")
    seen = sandbox.execute("seen").to_string()
    assert "secret" not in seen
    assert "stolen" not in seen
    # Nor does the server get theirs.
    page.goto(f"http://127.0.0.1:{jupyter.server_port}/")
    assert jupyter.cookies[-1] == "login=secret"


def test_pages_of_two_ports_share_no_cookies(page, sandbox):
    first, second = sandbox.ports().values()
    page.goto(first)
    page.evaluate("document.cookie = 'wide=1; domain=localhost'")
    page.evaluate("document.cookie = 'mine=1'")
    page.goto(second)
    assert "mine" not in page.evaluate("document.cookie")
    assert "wide" not in page.evaluate("document.cookie")


def test_a_stranger_whose_name_leads_here_does_not_read_the_cells_page(page, sandbox):
    url = next(iter(sandbox.ports().values()))
    port = urlsplit(url).port
    answer = page.goto(f"http://evil.example:{port}/")
    assert answer.status == 421
    assert "hello" not in page.content()
    said = page.evaluate("fetch('/', {headers: {'X-Forwarded-Context': '/'}}).then(r => r.status)")
    assert said == 421
    # The control: what keeps it out is the name alone.
    assert get(url)[0] == 200


def test_a_stranger_can_not_send_to_it_blindly_either(page, sandbox):
    url = next(iter(sandbox.ports().values()))
    port = urlsplit(url).port
    page.goto(f"http://evil.example:{port}/")
    page.evaluate(
        f"Promise.allSettled(['127.0.0.1', 'localhost'].map(host => "
        f"fetch(`http://${{host}}:{port}/blind`, {{mode: 'no-cors', method: 'POST'}})))"
    )
    assert "blind" not in sandbox.execute("seen").to_string()
