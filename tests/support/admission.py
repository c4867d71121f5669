"""Kernels that admit only approved cells or templates, and attempts to run others in them.

``ATTACKS`` has every way in which a front end can have code run; each tries to run ``MARK``.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING
from unittest import mock

import nbformat

from cellblock.host.consent import review, store
from cellblock.policy.load import load
from support import reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cellblock.policy.model import Policy
    from support.kernels import Kernel, World

#: The approved cell with which tests see whether ``MARK`` ran.
OBSERVE = "print('ran' in globals())"
RESET = "globals().pop('ran', None);"
FINE = "x = 'fine'\nx"
MARK = "ran = 1"
MARK_AS_VALUE = "globals().update(ran=1)"
#: A policy without language layer, whose cells may read the notebook's folder.
UNSAFE = 'extends = "unsafe"\nfilesystem_read_roots = ["{project}", "~"]\ncomm_targets = ["mine"]\n'


def notebook(world: World, *sources: str, name: str = "a.ipynb") -> Path:
    """Write a notebook of code cells into the world's folder."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return world.write(name, nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


def approve(world: World, policy: Path, *sources: str, name: str = "a.ipynb") -> None:
    """Approve a notebook of these cells, as the world's user."""
    path = notebook(world, *sources, name=name)
    with _as_user_of(world):
        found, place = _place(world, policy)
        reviewed = review.review(place, found, path.name, dict(enumerate(sources, 1)))
        review.approve(place, found, reviewed)


def revoke(world: World, policy: Path, name: str) -> None:
    """Revoke the approval of a notebook."""
    with _as_user_of(world):
        review.revoke(_place(world, policy)[1], world.work / name)


def _place(world: World, policy: Path) -> tuple[Policy, store.ManifestFile]:
    found = load(str(policy), project=world.work, allow_unsafe=True)
    return found, store.of_cells(found, world.work)


@contextlib.contextmanager
def _as_user_of(world: World) -> Iterator[None]:
    with mock.patch.dict(os.environ, HOME=str(world.home)):
        os.environ.pop("XDG_DATA_HOME", None)
        yield


# --- ways to run code -------------------------------------------------------------------------


def silently(kernel: Kernel) -> dict:
    return kernel.run(MARK, silent=True)[0]


def unstored(kernel: Kernel) -> dict:
    return kernel.run(MARK, store_history=False)[0]


def beside_a_cell(kernel: Kernel) -> dict:
    return kernel.run(FINE, user_expressions={"a": MARK_AS_VALUE})[0]


def beside_a_blank_cell(kernel: Kernel) -> dict:
    return kernel.run("", user_expressions={"a": MARK_AS_VALUE})[0]


def in_a_subshell(kernel: Kernel) -> dict:
    made = kernel.ask("create_subshell_request", {}, "control")["content"]["subshell_id"]
    header = kernel.session.msg_header("execute_request") | {"subshell_id": made}
    kernel.send("execute_request", {"code": MARK, "silent": False}, header=header)
    reply = kernel.reply(header["msg_id"])
    kernel.until_idle(header["msg_id"])
    kernel.ask("delete_subshell_request", {"subshell_id": made}, "control")
    return reply["content"]


_CELLS = {
    "plain": MARK,
    "timed": f"%%time\n{MARK}",
    "on a timed line": f"%time {MARK}",
    "captured": f"%%capture\n{MARK}",
    "behind another": f"{FINE}\n{MARK}",
    "from a file": "%run evil.py",
    "as text": f"get_ipython().run_cell({MARK!r})",
    "in a view's argument": "%usage {get_ipython().user_ns.update(ran=1)}",
    "in what a magic evaluates": "%config InteractiveShell.banner1 = str(globals().update(ran=1))",
    "behind a question": f"x = 1\nx?\n{MARK}",
}
_DOORS = [silently, unstored, beside_a_cell, beside_a_blank_cell, in_a_subshell]
#: Functions that try to run ``MARK`` in a kernel, by name. Each returns the reply.
ATTACKS = {door.__name__: door for door in _DOORS} | {
    name: lambda kernel, cell=cell: kernel.run(cell)[0] for name, cell in _CELLS.items()
}


def ran(kernel: Kernel) -> str:
    """Return what the observing cell prints: whether ``MARK`` ran."""
    return reading.stream(kernel.run(OBSERVE)[1]).strip()
