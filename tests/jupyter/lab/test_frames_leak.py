"""Every page of `escapes/frames`, in the frames of an isolated output: no request leaves.

Each is run twice: as a page of its own, where it must reach the listener, and in frames, where it
must not. A fresh profile, because incognito ones connect to nothing ahead of need.
"""

import os
import threading
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


def contacts(profile, site, show):
    """Return every contact that the pages made, shown as ``show`` makes them."""
    names, made = list(PAGES), []
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        listener = Listener(batch)
        for name in batch:
            source = PAGES[name].replace("@PORT@", str(listener.ports[name]))
            site.pages[name] = f"<!doctype html><body style=margin:0>{show(source)}"
        open_all(profile, site, batch)
        listener.close()
        made += listener.contacts
    return made


def open_all(profile, site, names):
    tabs = [profile.new_page() for _ in names]
    for tab, name in zip(tabs, names, strict=True):
        tab.goto(f"{site.url}/{name}", wait_until="commit")
    tabs[0].wait_for_timeout(1_000 * SECONDS)
    for tab, name in zip(tabs, names, strict=True):
        if name.startswith("click_") and not tab.is_closed():
            tab.mouse.click(60, 60)
    tabs[0].wait_for_timeout(1_000)
    for tab in profile.pages[1:]:
        tab.close()


def test_as_a_page_of_its_own_each_reaches_the_listener(profile, site):
    reached = set()
    for _ in range(3):  # a busy browser may not come to a page in time
        reached |= {contact.name for contact in contacts(profile, site, lambda source: source)}
        if reached >= set(PAGES):
            break
    assert set(PAGES) - reached == set()


def test_in_frames_none_makes_a_request(profile, site):
    made = contacts(profile, site, frames.framed)
    assert [contact for contact in made if contact.path] == []
    assert {contact.name for contact in made} - CONNECTS == set()


def test_in_jupyterlab_none_reaches_anything(open_notebook):
    """All but those that Chromium connects for ahead of its refusal, through a kernel."""
    names = [name for name in PAGES if name not in CONNECTS]
    listener = Listener(names)
    pages = [PAGES[name].replace("@PORT@", str(listener.ports[name])) for name in names]
    batches = [pages[start : start + BATCH] for start in range(0, len(pages), BATCH)]
    cells = [f"for page in {batch!r}:\n    display(HTML(page))" for batch in batches]
    first = "from IPython.display import HTML"
    view = open_notebook([first, *cells], kernel="cellblock-data")
    address = view.page.url
    for index in range(1 + len(cells)):
        view.run(index)
        for shown in view.cell(index).locator("iframe.cellblock-frame").all():
            shown.scroll_into_view_if_needed()
    view.page.wait_for_timeout(1_000 * SECONDS)
    listener.close()
    assert view.page.locator("iframe.cellblock-frame").count() > len(pages) / 2
    assert listener.contacts == []
    assert (view.page.url, len(view.page.context.pages)) == (address, 1)
