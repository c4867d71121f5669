"""Makes notebooks for ``cellblock run``, runs them, and reads the results."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.kernels import World

MAIN = "from cellblock.cli.main import main; main()"


def code(source: str, *tags: str, **fields: Any) -> dict[str, Any]:
    """Return a code cell that has not been run."""
    metadata = {"tags": list(tags)} if tags else {}
    made = {"cell_type": "code", "source": source, "metadata": metadata}
    return made | {"outputs": [], "execution_count": None} | fields


def markdown(source: str) -> dict[str, Any]:
    """Return a text cell."""
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def document(*cells: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """Return a notebook; a text is a code cell."""
    made = [code(cell) if isinstance(cell, str) else dict(cell) for cell in cells]
    for number, cell in enumerate(made):
        cell.setdefault("id", f"c{number}")
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | fields


def notebook(*cells: dict[str, Any] | str, **fields: Any) -> bytes:
    """Return a notebook as the content of a file."""
    return json.dumps(document(*cells, **fields)).encode()


def write(path: Path, *cells: dict[str, Any] | str, **fields: Any) -> Path:
    """Write a notebook to a file, making its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(notebook(*cells, **fields))
    return path


def texts(path: Path) -> list[str]:
    """Return each code cell's outputs in a notebook's file as plain text; an error as its name."""
    cells = json.loads(path.read_bytes())["cells"]
    return ["".join(map(_text, cell["outputs"])) for cell in cells if cell["cell_type"] == "code"]


def _text(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if any(kind.startswith("application/vnd.cellblock") for kind in data):
        return ""
    return "".join(output.get("text") or data.get("text/plain") or [output.get("ename", "")])


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each notebook, as the lines say it."""
        statuses = (
            "passed",
            "failed",
            "denied",
            "timed out",
            "killed",
            "could not read",
            "skipped",
        )
        found = {}
        for line in self.out.splitlines():
            for status in (*statuses, "interrupted"):
                if line.startswith(status) and line.endswith(")"):
                    found[line[len(status) :].strip().split("  (")[0]] = status
        return found


class Runs:
    """``cellblock run`` as a user runs it, in folders that stand in for a user's."""

    def __init__(self, world: World) -> None:
        self.world, self.work = world, world.work

    def start(
        self, *options: str | Path, main: str = MAIN, name: str = "run", **keywords: Any
    ) -> subprocess.Popen[str]:
        """Start the command, or another one of cellblock's; what it prints is in pipes."""
        return subprocess.Popen(
            [sys.executable, "-E", "-P", "-c", main, name, *map(str, options)],
            cwd=self.work,
            env=self.world.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **keywords,
        )

    def __call__(self, *options: str | Path, seconds: float = 100.0, name: str = "run") -> Ended:
        """Run the command to its end."""
        process = self.start(*options, name=name)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end:\n{out}\n{err}") from None
        return Ended(process.returncode, out, err)

    @property
    def audit_folder(self) -> Path:
        """Where the audit logs of all guests are."""
        return Path(self.world.home, ".cache/cellblock/audit")
