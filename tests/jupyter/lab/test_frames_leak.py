"""Every page of `escapes/frames`, in the frames of an isolated output: no request leaves.

Each is run as a page of its own, where it must reach the listener, and in frames, where it must
not. A fresh profile, because incognito ones connect to nothing ahead of need.
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cellblock.host.output import frames
from support.listener import Listener

HERE = Path(__file__).resolve().parent
PAGES = {p.stem: p.read_text() for p in sorted((HERE.parents[1] / "escapes/frames").glob("*.html"))}
#: Chromium connects to where a frame is sent before it looks whether it may go there, and when a
#: link is pressed. Nothing is sent over that connection (threat model: residual risks).
CONNECTS = {name for name in PAGES if name.startswith(("navigate_", "click_"))} | {"frame_srcdoc"}
CHROMIUM = os.environ.get("CELLBLOCK_CHROMIUM", "/usr/bin/chromium")
BATCH = 12
#: For how long a page is given to do what it does unseen.
SECONDS = 2.5


class Served(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.server.pages.get(self.path.strip("/"), "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Site(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Served)
        self.pages = {}
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A page that goes elsewhere hangs up."""


@pytest.fixture(scope="module")
def site():
    server = Site()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def profile(browser, tmp_path_factory):
    context = browser.browser_type.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu", "--no-first-run"],
        ignore_default_args=["--disable-background-networking"],
    )
    yield context
    context.close()


def batches(names):
    return [names[start : start + BATCH] for start in range(0, len(names), BATCH)]


def aimed(listener, name):
    """Return a page that leaks to its port of the listener's."""
    return PAGES[name].replace("@PORT@", str(listener.ports[name]))


def reached(profile, site, names):
    """Open each page in a tab of its own, as it is; return which reached the listener."""
    listener = Listener(names)
    tabs = {name: profile.new_page() for name in names}
    for name, tab in tabs.items():
        site.pages[name] = f"<!doctype html><body style=margin:0>{aimed(listener, name)}"
        tab.goto(f"{site.url}/{name}", wait_until="commit")
    for name, tab in tabs.items():
        if name.startswith("click_"):
            tab.wait_for_load_state()
            tab.mouse.click(60, 60)
    found = set()
    deadline = time.monotonic() + 2 * SECONDS
    while found < set(names) and time.monotonic() < deadline:
        profile.pages[0].wait_for_timeout(50)
        found |= {contact.name for contact in listener.contacts}
    for tab in profile.pages[1:]:
        tab.close()
    listener.close()
    return found


def test_as_a_page_of_its_own_each_reaches_the_listener(profile, site):
    missing = list(PAGES)
    for _ in range(3):  # a busy browser may not come to a page in time
        for names in batches(missing):
            there = reached(profile, site, names)
            missing = [name for name in missing if name not in there]
    assert missing == []


SHOW = """async () => {
    const drawn = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)));
    for (const frame of document.querySelectorAll('iframe.cellblock-frame')) {
        frame.scrollIntoView({block: 'center'});
        await drawn();
    }
}"""


def test_in_frames_none_makes_a_request(profile, site):
    listener = Listener(PAGES)
    tabs = []
    for number, names in enumerate(batches(list(PAGES))):
        framed = [frames.framed(aimed(listener, name)) for name in names]
        site.pages[str(number)] = f"<!doctype html><body style=margin:0>{''.join(framed)}"
        tabs.append((profile.new_page(), names))
        tabs[-1][0].goto(f"{site.url}/{number}")
        tabs[-1][0].evaluate(SHOW)
    tabs[0][0].wait_for_timeout(1_000 * SECONDS)
    for tab, names in tabs:
        shown = tab.locator("iframe.cellblock-frame")
        assert shown.count() == len(names)
        tab.bring_to_front()
        for name, frame in zip(names, shown.all(), strict=True):
            if name.startswith("click_"):
                frame.click(position={"x": 60, "y": 10})
    tabs[0][0].wait_for_timeout(1_000)
    for tab, _ in tabs:
        tab.close()
    listener.close()
    assert [contact for contact in listener.contacts if contact.path] == []
    assert {contact.name for contact in listener.contacts} - CONNECTS == set()
    assert len(profile.pages) == 1


def test_in_jupyterlab_none_reaches_anything(open_notebook):
    """All but those that Chromium connects for ahead of its refusal, through a kernel."""
    names = [name for name in PAGES if name not in CONNECTS]
    listener = Listener(names)
    cells = [
        f"for page in {[aimed(listener, name) for name in batch]!r}:\n    display(HTML(page))"
        for batch in batches(names)
    ]
    first = "from IPython.display import HTML"
    view = open_notebook([first, *cells], kernel="cellblock-data")
    address = view.page.url
    view.run_all()
    view.page.evaluate(SHOW)
    view.page.wait_for_timeout(1_000 * SECONDS)
    listener.close()
    assert view.page.locator("iframe.cellblock-frame").count() > len(names) / 2
    assert listener.contacts == []
    assert (view.page.url, len(view.page.context.pages)) == (address, 1)
