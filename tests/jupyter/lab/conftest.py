"""A real JupyterLab server and a real Chromium, both on loopback, both gone afterwards.

Everything Jupyter reads or writes is below a temporary folder. Screenshots go to artifacts/ in
the repository, which git ignores.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import nbformat
import pytest

from support.client import free_ports

ROOT = Path(__file__).resolve().parents[3]
ARTIFACTS = ROOT / "artifacts"
CHROMIUM = Path(os.environ.get("CELLBLOCK_CHROMIUM", "/usr/bin/chromium"))
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]
START_SECONDS = 90
STEP_MS = 120_000
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))


# --- the server -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    url: str
    token: str
    folder: Path
    settings: Path

    def set_theme(self, theme):
        """Choose the theme that pages opened from now on have."""
        self._setting("apputils-extension", "themes", {"theme": THEMES[theme]})

    def add_kernel(self, name, argv):
        """Make a kernel known to the server."""
        folder = self.settings.parent / "data" / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        spec = {"argv": argv, "display_name": name, "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec | {"interrupt_mode": "message"}))

    def close_terminals(self):
        """End every terminal of the server's."""
        for terminal in self.get("/api/terminals"):
            self.delete(f"/api/terminals/{terminal['name']}")

    def environment(self):
        """Return the environment of the server's user."""
        return environment(self.settings.parent)

    def _setting(self, plugin, name, values):
        folder = self.settings / "@jupyterlab" / plugin
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jupyterlab-settings").write_text(json.dumps(values))

    def get(self, path):
        with self._asked("GET", path) as response:
            return json.load(response)

    def delete(self, path):
        self._asked("DELETE", path).close()

    def _asked(self, method, path):
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)
        return urllib.request.urlopen(request, timeout=20)


def environment(home):
    """Return an environment in which Jupyter finds nothing of the user's."""
    kept = {k: v for k, v in os.environ.items() if k in ("LANG", "LC_ALL")}
    names = {
        # As ``jupyter lab`` puts it for the kernels of the server.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": home,
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    return kept | {name: str(value) for name, value in names.items()}


def command(port, token, folder):
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabServerApp.news_url=",
        "--KernelManager.shutdown_wait_time=5",
    ]


def wait_until_up(server, process, log):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            server.get("/api/status")
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"jupyter lab did not start:\n{log.read_text()[-4_000:]}")


def stop(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)


@contextmanager
def serving(home, extension=None):
    """Run a server that has everything below ``home``, with a built extension if one is given."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    folder = home / "notebooks"
    folder.mkdir()
    shutil.copytree(ROOT / "kernelspec", home / "data" / "kernels")
    if extension is not None:
        (home / "data" / "labextensions").mkdir()
        (home / "data" / "labextensions" / "cellblock-lab").symlink_to(extension)
    (port,), token = free_ports(1), secrets.token_hex(16)
    server = Server(f"http://127.0.0.1:{port}", token, folder, home / "settings")
    server._setting("apputils-extension", "notification", {"fetchNews": "false"})
    # By default JupyterLab draws only the cells that are scrolled to.
    server._setting("notebook-extension", "tracker", {"windowingMode": "none"})
    server.set_theme("light")
    log = home / "lab.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            command(port, token, folder),
            cwd=folder,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_up(server, process, log)
            yield server
        finally:
            stop(process)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("lab")) as server:
        yield server


# --- the browser ------------------------------------------------------------------------------


@pytest.fixture(scope="package")
def browser():
    """A Chromium that is gone when the worker leaves this folder.

    As long as Playwright runs, its loop is the running one of the thread: ``asyncio.run`` fails.
    """
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is missing (set CELLBLOCK_CHROMIUM)")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()


KERNEL = """() => {
    const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
    const kernel = context?.session?.kernel;
    return kernel && context.isReady && kernel.connectionStatus === 'connected' ? kernel : null;
}"""


class Notebook:
    """A notebook open in JupyterLab, seen as its user sees it."""

    def __init__(self, page, path):
        self.page, self.path = page, path

    def cell(self, index):
        return self.page.locator(".jp-NotebookPanel .jp-Cell").nth(index)

    def outputs(self, index):
        return self.cell(index).locator(".jp-OutputArea-output")

    def card(self, index):
        return self.cell(index).locator('.jp-RenderedHTML [role="group"]')

    def prompt(self, index):
        return self.cell(index).locator(".jp-InputPrompt")

    def wait_idle(self):
        """Wait until the kernel is connected and idle.

        The indicator on the page says idle before there is a kernel, and a cell that is run
        then is dropped without a word.
        """
        self.page.wait_for_function(f"() => ({KERNEL})()?.status === 'idle'")

    def select(self, index):
        self.cell(index).locator(".jp-InputArea-editor").click()

    def start(self, index):
        """Run a cell without waiting for its end.

        By the command that Ctrl+Enter is: a key press is lost where the page moves meanwhile.
        """
        self.select(index)
        self.page.evaluate(
            "index => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = index; }",
            index,
        )
        self.command("notebook:run-cell")

    def run(self, index):
        """Run a cell and wait until its reply is in and the kernel idle."""
        before = self.prompt(index).inner_text()
        self.start(index)
        try:
            self.wait_ran(index, before)
        except Exception:
            self.shot("stuck")
            raise
        self.wait_idle()

    def wait_busy(self, index):
        """Wait until a cell runs: its prompt has a star and the kernel is at it."""
        self.cell(index).locator(".jp-InputPrompt", has_text="[*]").wait_for()
        self.page.wait_for_function(f"() => ({KERNEL})()?.status === 'busy'")

    def wait_ran(self, index, before):
        self.page.wait_for_function(
            """([index, before]) => {
                const cell = document.querySelectorAll('.jp-NotebookPanel .jp-Cell')[index];
                const prompt = cell.querySelector('.jp-InputPrompt').innerText;
                return prompt !== before && /\\[\\d+\\]/.test(prompt);
            }""",
            arg=[index, before],
        )

    def type(self, index, text):
        self.select(index)
        self.page.keyboard.type(text)

    def command(self, name, args=None):
        """Run one of JupyterLab's commands, as its menus do; returns without waiting."""
        self.page.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args); }",
            [name, args or {}],
        )

    def run_all(self, timeout=120_000):
        """Run all cells and wait until each has its number."""
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(
            """() => window.jupyterapp.shell.currentWidget.content.widgets.every(
                cell => cell.model.type !== 'code' || cell.model.executionCount)""",
            timeout=timeout,
        )
        self.wait_idle()

    def save(self):
        """Save the notebook and wait until it is on the disk."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def interrupt(self):
        self.command("notebook:interrupt-kernel")

    def restart(self):
        self.command("kernelmenu:restart")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.wait_idle()

    def show(self, name):
        """Open another notebook in place of this one, which is not saved."""
        self.path = self.path.with_name(name)
        self.page.evaluate(
            """async name => {
                const { commands, serviceManager, shell } = window.jupyterapp;
                const before = shell.currentWidget;
                await serviceManager.kernelspecs.refreshSpecs();
                const after = await commands.execute('docmanager:open', { path: name });
                await after.revealed;
                before?.dispose();
            }""",
            name,
        )
        self.wait_open()

    def reopen(self, name):
        """Load JupyterLab anew, with another notebook."""
        self.path = self.path.with_name(name)
        self.page.goto(f"{urljoin(self.page.url, name)}?reset", timeout=STEP_MS)
        self.wait_open()

    def wait_open(self):
        """Wait until the notebook is drawn and its kernel idle."""
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        self.wait_idle()

    def set_theme(self, theme):
        """Change the theme, as the menu does."""
        self.command("apputils:change-theme", {"theme": THEMES[theme]})
        self.page.wait_for_function(
            "name => document.body.dataset.jpThemeName === name", arg=THEMES[theme]
        )

    def set_size(self, width, height):
        self.page.set_viewport_size({"width": width, "height": height})

    def shot_whole(self, name):
        """Have a picture of the notebook from its first cell to its last."""
        before = self.page.viewport_size
        beyond = self.page.evaluate(
            """() => {
                const bottom = element => element.getBoundingClientRect().bottom;
                const cells = document.querySelectorAll('.jp-NotebookPanel .jp-Cell');
                const all = cells[0].closest('.jp-WindowedPanel-outer');
                all.scrollTop = 0;
                return Math.ceil(bottom(cells[cells.length - 1]) - bottom(all)) + 20;
            }"""
        )
        self.page.set_viewport_size(before | {"height": max(300, before["height"] + beyond)})
        self.shot(name)
        self.page.set_viewport_size(before)

    def say_frames(self):
        """Print what is in the page's frames, for who looks at a test that failed."""
        read = "() => [document.readyState, document.body?.innerText.slice(0, 300)]"
        for frame in self.page.frames[1:]:
            print("frame:", "detached" if frame.is_detached() else frame.evaluate(read))

    def shot(self, name, index=None):
        ARTIFACTS.mkdir(exist_ok=True)
        target = self.page if index is None else self.cell(index)
        target.screenshot(path=str(ARTIFACTS / f"{name}.png"))


def notebook_of(sources, kernel, *, hidden=False):
    """Return a notebook; one with ``hidden`` sources is for running many programs at once.

    JupyterLab then has no editors to lay out, and no program's error keeps the next from running.
    """
    metadata = {"tags": ["raises-exception"], "jupyter": {"source_hidden": True}} if hidden else {}
    cells = [nbformat.v4.new_code_cell(source, metadata=metadata) for source in sources]
    kernelspec = {"name": kernel, "display_name": kernel}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})


class Desk:
    """One page of JupyterLab in which tests open their notebooks, one after the other.

    To load JupyterLab takes longer than most tests do.
    """

    def __init__(self, lab, browser):
        self.lab, self.browser = lab, browser
        self.page = None

    def open(self, path, theme, width, height):
        if self.page is None:
            self.lab.set_theme(theme)
            self.page = new_page(self.browser, width, height)
            return load(self.lab, self.page, path)
        view = Notebook(self.page, path)
        view.set_size(width, height)
        view.set_theme(theme)
        view.show(path.name)
        return view

    def clear(self):
        """Put the notebook away; the page, too, where a dialog is left of a test that failed."""
        if self.page is None:
            return
        if self.page.is_closed() or self.page.locator(".jp-Dialog").count():
            self.close()
        else:
            self.page.evaluate("() => window.jupyterapp.shell.currentWidget?.dispose()")

    def close(self):
        if self.page is not None:
            self.page.context.close()
        self.page = None


def new_page(browser, width, height):
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(STEP_MS)
    page = context.new_page()
    # pytest shows it where a test fails.
    page.on("console", lambda said: print("console:", said.text[:300]))
    page.on("pageerror", lambda error: print("page error:", str(error)[:300]))
    page.on("crash", lambda _: print("the page crashed"))
    return page


def load(lab, page, path):
    """Load JupyterLab with a notebook into an empty page."""
    page.goto(f"{lab.url}/doc/tree/{path.name}?token={lab.token}&reset", timeout=STEP_MS)
    view = Notebook(page, path)
    view.wait_open()
    return view


@pytest.fixture(scope="package")
def desk(lab, browser):
    made = Desk(lab, browser)
    yield made
    made.close()


@pytest.fixture
def open_notebook(lab, browser, desk, request):
    """Return a function that writes a notebook, opens it and waits for its kernel."""
    contexts, paths = [], []
    stem = re.sub("[^a-z0-9]+", "-", request.node.name)

    def opened(
        sources,
        *,
        kernel=None,
        theme="light",
        width=1_200,
        height=1_000,
        prepare=None,
        hidden=False,
    ):
        """``sources`` are cells' or a notebook's path.

        With ``prepare`` the notebook gets a page of its own, which that is given empty.
        """
        path = lab.folder / f"{stem}-{len(paths)}.ipynb"
        if not isinstance(sources, Path):
            nbformat.write(notebook_of(sources, kernel, hidden=hidden), path)
        elif sources.parent == lab.folder:
            path = sources
        else:
            shutil.copy(sources, path)
        paths.append(path.name)
        if prepare is None:
            return desk.open(path, theme, width, height)
        lab.set_theme(theme)
        page = new_page(browser, width, height)
        contexts.append(page.context)
        prepare(page)
        return load(lab, page, path)

    yield opened
    for context in contexts:
        context.close()
    desk.clear()
    shut_down_kernels(lab)


def shut_down_kernels(lab):
    for session in lab.get("/api/sessions"):
        lab.delete(f"/api/sessions/{session['id']}")
