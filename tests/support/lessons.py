"""Sets up the lessons in ``notebooks/`` as their texts say: files, servers, kernels.

A package index, a language model, and a server that the reader starts are simulated on loopback,
and the lessons' addresses are replaced by theirs.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import nbformat
import pytest

from cellblock.jupyter import install as specs
from support import commands
from support.endpoint import Endpoint
from support.kernels import ROOT, argv_for, with_change
from support.wheels import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ROOT / "notebooks"
#: A package that a lesson has its reader install. Policies that name it are loaded here, too.
sys.path.append(str(FOLDER / "lesson" / "station"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
#: Kernels that come with the package, and their presets; and Jupyter's own.
SHIPPED = {"cellblock": "safe", "cellblock-data": "data"}
JUPYTERS = "python3"
#: Modules that a lesson's cells or its host import, and that may not be installed.
NEEDS = {
    "dspy": ("dspy",),
    "inputs": ("pandas",),
    "llm": ("openai",),
    "narrow": ("pandas",),
    "network": ("httpx", "pandas"),
    "output": ("bokeh", "ipywidgets", "jinja2", "matplotlib", "pandas"),
    "panel": ("pandas",),
}

#: The reader's answers to questions, by the ids of the cells; ``{}`` stands for the code.
ANSWERS = {
    "once": "{}",
    "session": "{} session",
    "no": "",
    "always": "{} always",
    "own": "{} always",
}

_COMMAND = re.compile(r"^ {4}(cellblock .*)$", re.MULTILINE)
_PIP = re.compile(r"^ {4}pip install (\./lesson/.*)$", re.MULTILINE)
_INSTALL = re.compile(r"cellblock install --policy (\S+)(?: --input (\S+))?")
# The sources of two packages, as far as the lesson uses them.
_INFLECTION = """
def ordinalize(n):
    assert n == 2026
    return "2026th"
"""
_ROMAN = """
def toRoman(n):
    assert n == 2026
    return "MMXXVI"
"""


def _field(name: str, value: str) -> str:
    """Return a model's answer in DSPy's format."""
    return f"[[ ## {name} ## ]]\n{value}\n\n[[ ## completed ## ]]"


_ANSWERS = {
    "Name three rivers": "Rhine, Tiber, Akerselva",
    "ferry": "It crosses at six. It comes back at seven.",
    "river is Rome on": "Tiber",
    "river is Oslo on": "Akerselva",
    "minus 40": _field("about", "temperature"),
    "full of leaves": _field("about", "instrument"),
    "Hail at noon": _field("about", "weather"),
    "lid of the logger": _field("about", "instrument"),
}


def read(file: Path) -> nbformat.NotebookNode:
    """Return a notebook of format 4."""
    return nbformat.read(file, 4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return a notebook's code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def may_fail(cell: nbformat.NotebookNode, *, asked: bool = False) -> bool:
    """Return whether a cell is meant to fail; ``asked``: the reader is asked and may allow it."""
    tags = cell.metadata.get("tags", [])
    return "raises-exception" in tags and not (asked and "asks" in tags)


def answer(cell: nbformat.NotebookNode, prompt: str) -> str:
    """Return the reader's answer to a cell's question."""
    found = re.search(r"type (\d{3})", prompt)
    return ANSWERS[cell.id].format(found[1] if found else "417")


def commands_in(notebook: nbformat.NotebookNode, begins: str) -> list[str]:
    """Return the commands in a lesson's text that begin with ``begins``."""
    texts = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    lines = [line for text in texts for line in _COMMAND.findall(text)]
    return [line for line in lines if line.startswith(begins)]


def missing(name: str) -> list[str]:
    """Return the modules that a lesson needs and that are not installed."""
    return [module for module in NEEDS.get(name, ()) if find_spec(module) is None]


def skip_unless_installed(name: str) -> None:
    """Skip the test if modules that the lesson needs are not installed."""
    if modules := missing(name):
        pytest.skip(f"{', '.join(modules)}, for the lesson {name}: not installed")


def path(others: str) -> str:
    """Return a PATH with this environment's commands first, as ``jupyter lab`` sets for kernels."""
    return f"{Path(sys.executable).parent}:{others}"


def add_shipped(kernels: Path) -> None:
    """Write the shipped kernelspecs, with this interpreter, into a folder."""
    for name, preset in SHIPPED.items():
        spec = json.loads((ROOT / "kernelspec" / name / "kernel.json").read_text())
        (kernels / name).mkdir(parents=True)
        (kernels / name / "kernel.json").write_text(json.dumps(spec | {"argv": argv_for(preset)}))


@dataclass
class Classroom:
    """A copy of ``notebooks/`` in a folder, with servers on loopback, until it is closed."""

    folder: Path
    _ends: list = field(default_factory=list)

    def __enter__(self) -> Self:
        addresses = {
            "127.0.0.1:8765": self._site(),
            "http://127.0.0.1:11434/v1": self._model(),
            "https://pypi.org/simple": self._index(),
        }
        shutil.copytree(FOLDER / "lesson", self.folder / "lesson")
        for file in (*NOTEBOOKS, *FOLDER.glob("*.toml")):
            text = file.read_text("utf-8")
            for named, here in addresses.items():
                text = text.replace(named, here)
            (self.folder / file.name).write_text(text, "utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end()

    def install(self, name: str) -> None:
        """Install the kernel of a lesson as its text says, into the environment's Jupyter folders.

        The command's report about the machine is left out, since it takes most of the time.
        """
        for line in commands_in(read(self.folder / f"{name}.ipynb"), "cellblock install"):
            policy, given = _INSTALL.fullmatch(line).groups()
            with self._here():
                _, spec = specs.install(
                    policy,
                    name=None,
                    display_name=None,
                    prefix=None,
                    allow_unsafe=False,
                    inputs=Path(given) if given else None,
                )
            for module in _PIP.findall(read(self.folder / f"{name}.ipynb").cells[0].source):
                _have(spec / "kernel.json", self.folder / module)

    def run(self, line: str) -> str:
        """Run one of cellblock's commands in the folder. It must succeed. Return its output."""
        with self._here():
            ran = commands.in_this_process(line)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        """Make the folder current, and the terminal wide."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setenv("COLUMNS", "250")
            yield

    # --- servers ------------------------------------------------------------------------------

    def _site(self) -> str:
        """Serve the folder that the lesson serves with ``python -m http.server``."""
        handler = partial(_Quiet, directory=str(self.folder / "lesson"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._ends += [server.shutdown, server.server_close]
        return f"127.0.0.1:{server.server_port}"

    def _model(self) -> str:
        endpoint = Endpoint(answers=_ANSWERS)
        self._ends.append(endpoint.close)
        return endpoint.base_url

    def _index(self) -> str:
        index = Index()
        index.add("roman", "5.2", source=_ROMAN)
        index.add("inflection", "0.5.1", source=_INFLECTION)
        self._ends.append(index.close)
        return index.url


def _have(spec: Path, module: Path) -> None:
    """Let a kernel import the modules in a folder, as if they were installed."""
    known = json.loads(spec.read_text())
    change = f"import sys; sys.path.append({str(module.resolve())!r})"
    known["argv"] = with_change(change, known["argv"])
    spec.write_text(json.dumps(known))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""
