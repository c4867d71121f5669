"""Every program of `escapes/display` in a real JupyterLab: nothing of it acts.

Nor when the notebook is opened again under a stock kernel, trusted or not, nor as a page of
nbconvert's. What the watch can see is proved by a few of them under the stock kernel.
"""

import subprocess
import sys

import nbformat
import pytest

from support.attacks import ATTACKS, prelude
from support.kernels import argv_for
from support.listener import Listener
from support.watched import Watched, terminals

LIMITS = "mode = 'unsafe'\ndisplay_max_bytes = 64_000_000\n"
#: What of these the stock kernel lets act, at the least.
WITNESSES = {
    "html_script": {"terminal"},
    "html_image_error": {"terminal"},
    "html_handlers_with_a_hover": {"script", "terminal", "request"},
    "html_javascript_link_to_the_page": {"script", "terminal", "request"},
    "html_data_attributes": {"terminal"},
    "markdown_title_with_formula": {"script", "terminal", "request"},
    "markdown_html": {"terminal", "script"},
    "load_images": {"request"},
    "load_by_css_url": {"request"},
    "load_by_stun": {"datagram"},
    "load_by_svg_in_html": {"request"},
    "mime_javascript": {"terminal"},
    "update_display": {"script", "terminal", "request"},
    "cover_by_position": {"cover"},
}


#: Scripts that send their frame elsewhere. It does not go, but Chromium has by then connected to
#: where it would have gone, and asks nothing.
LEAVING = {"load_by_every_script_means", "load_by_navigation"}


@pytest.fixture
def listener():
    made = Listener(ATTACKS)
    yield made
    made.close()


class Attacked:
    """A notebook of attacks, open under one kernel."""

    def __init__(self, lab, open_notebook, listener):
        self.lab, self.open, self.listener = lab, open_notebook, listener
        self.cells = ["prelude"]

    def _open(self, sources, kernel, **options):
        def prepare(page):
            self.watch = Watched(page, self.listener, set(ATTACKS))
            self.watch.arm()

        self.view = self.open(sources, kernel=kernel, prepare=prepare, **options)

    def run(self, names, kernel):
        """Run these attacks in a notebook; return what was seen of each."""
        cells = [(name, cell) for name in sorted(names) for cell in ATTACKS[name].cells]
        self.cells = ["prelude", *(name for name, _ in cells)]
        sources = [prelude(self.listener.ports), *(cell for _, cell in cells)]
        self._open(sources, kernel, hidden=True)
        self.view.run_all()
        return self.look()

    def reopen(self, notebook):
        """Open a notebook that holds the outputs; return what was seen of each attack."""
        self._open(notebook, "python3")
        return self.look()

    def look(self):
        self.watch.settle()
        self.watch.collect()
        self.watch.covers(self.cells)
        self.watch.interact(self.cells)
        self.watch.settle()
        self.watch.close_opened()
        self.watch.collect(links=True)
        for name in terminals(self.lab):
            self.watch.seen[name].add("terminal")
        return dict(self.watch.seen)


@pytest.fixture
def attacked(lab, open_notebook, listener):
    return Attacked(lab, open_notebook, listener)


@pytest.fixture(scope="module")
def kernels(lab):
    for display in ("sanitized", "isolated"):
        policy = lab.settings.parent / f"{display}.toml"
        policy.write_text(f"{LIMITS}display = '{display}'\n")
        lab.add_kernel(display, argv_for(policy, "--allow-unsafe"))


def test_attacks_are_seen_under_the_stock_kernel(lab, attacked):
    before = terminals(lab)
    seen = attacked.run(WITNESSES, "python3")
    missed = {name: kinds - seen.get(name, set()) for name, kinds in WITNESSES.items()}
    lab.close_terminals()
    assert {name: kinds for name, kinds in missed.items() if kinds} == {}
    assert before == terminals(lab) == set()


@pytest.mark.usefixtures("kernels")
def test_a_frame_that_is_sent_elsewhere_asks_nothing(attacked):
    """That a connection may be seen is disclosed: in the threat model, and by ADR 0082."""
    seen = attacked.run(LEAVING, "isolated")
    assert set().union(*seen.values()) <= {"connection"}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("display", ["sanitized", "isolated"])
def test_no_attack_acts_now_or_later(lab, browser, attacked, display, tmp_path):
    left_out = LEAVING if display == "isolated" else set()
    assert attacked.run(ATTACKS.keys() - left_out, display) == {}
    attacked.view.save()
    stock = as_of_stock(attacked.view.path, tmp_path / "untrusted.ipynb")
    assert attacked.reopen(stock) == {}
    lab.trust(stock)
    assert attacked.reopen(stock) == {}
    assert in_a_page(browser, attacked, stock) == {}


def as_of_stock(path, target):
    """Write a notebook anew for the stock kernel: its signature is not known then."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    assert sum(len(cell.outputs) for cell in notebook.cells) > 300
    nbformat.write(notebook, target)
    return target


def in_a_page(browser, attacked, notebook):
    """Open nbconvert's page of a notebook; return what was seen of each attack."""
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = browser.new_context()
    page = context.new_page()
    watch = Watched(page, attacked.listener, set(ATTACKS), stays=False)
    watch.arm()
    page.goto(f"file://{notebook.with_suffix('.html')}", wait_until="commit")
    page.wait_for_selector(".jp-OutputArea-output")
    watch.settle()
    watch.collect()
    page.route("http*://**", stay)
    watch.interact(attacked.cells)
    watch.settle()
    watch.close_opened()
    watch.collect(links=True)
    context.close()
    return dict(watch.seen)


def stay(route):
    """Let a page stay where it is when a link in it is pressed; it went nowhere by itself."""
    request = route.request
    if request.is_navigation_request() and request.frame.parent_frame is None:
        route.fulfill(status=204)
    else:
        route.continue_()
