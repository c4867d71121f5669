"""Helpers that the bench scripts share: timing, comparisons, tables and the command line.

The contestants of a comparison (kernels, backends, programs) take turns in each round, so that a
machine that becomes busy slows all of them. No script is a timed test: its figures are for
developers who change a hot path.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.kernels import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from support.kernels import Kernel

#: The kernelspec of stock ipykernel.
STOCK = "python3"
#: Seconds that a cell may take.
PATIENCE = 120.0
#: Characters of a table's first column, and of each other column.
FIRST_WIDTH = 54
WIDTH = 14


# --- kernels ----------------------------------------------------------------------------------


class Refused(Exception):
    """A kernel answered a cell with an unexpected status. The text has the error's name and value."""


class UsersWorld(World):
    """A world with the user's own environment: a first start in an empty home slows ipykernel."""

    def environment(self, **extra: str) -> dict[str, str]:
        return dict(os.environ) | extra


def run_cell(
    kernel: Kernel,
    code: str,
    *,
    status: str = "ok",
    wait_idle: bool = True,
    patience: float = PATIENCE,
) -> float:
    """Run a cell; return the milliseconds from its request to its reply and status idle.

    Raises ``Refused`` if the reply has another status than ``status``. Without ``wait_idle`` only
    the reply is awaited.
    """
    began = time.perf_counter()
    mid = kernel.execute_send(code)
    reply = kernel.reply(mid, timeout=patience)["content"]
    if wait_idle:
        kernel.until_idle(mid, timeout=patience)
    milliseconds = (time.perf_counter() - began) * 1000
    if reply["status"] != status:
        refused = Refused(f"{reply.get('ename')}: {reply.get('evalue')}".splitlines()[0])
        refused.add_note(f"cell: {code[:50]!r}\n{kernel.stderr()[-2_000:]}")
        raise refused
    return milliseconds


# --- timing -----------------------------------------------------------------------------------


def timed(action: Callable[[], object]) -> float:
    """Call ``action``; return the milliseconds that it takes."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


async def timed_async(work: Awaitable[object]) -> float:
    """Await ``work``; return the milliseconds that it takes."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


class Comparison:
    """Figures by measure and contestant, one for each round, and their ratios to one contestant."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.figures: dict[str, dict[str, list[float]]] = {}

    def add(self, measure: str, contestant: str, figure: float) -> None:
        """Add the figure of one contestant in one round."""
        self.figures.setdefault(measure, {}).setdefault(contestant, []).append(figure)

    def take_turns(self, measure: str, actions: Mapping[str, Callable[[], float]]) -> None:
        """Add one figure of each contestant, which its action returns."""
        for contestant, action in actions.items():
            self.add(measure, contestant, action())

    async def take_turns_async(
        self, measure: str, actions: Mapping[str, Callable[[], Awaitable[float]]]
    ) -> None:
        """Add one figure of each contestant, which its action returns when awaited."""
        for contestant, action in actions.items():
            self.add(measure, contestant, await action())

    def median(self, measure: str, contestant: str) -> float:
        """Return the median of a contestant's figures."""
        return statistics.median(self.figures[measure][contestant])

    def least(self, measure: str, contestant: str) -> float:
        """Return the least of a contestant's figures."""
        return min(self.figures[measure][contestant])

    def ratio(self, measure: str, contestant: str) -> float:
        """Return the ratio of a contestant's median to that of the base."""
        return self.median(measure, contestant) / self.median(measure, self.base)

    def ratios(self, measure: str, contestant: str) -> list[float]:
        """Return the ratios of a contestant's figures to those of the base, round by round."""
        row = self.figures[measure]
        pairs = zip(row.get(contestant, []), row.get(self.base, []), strict=False)
        return [figure / base for figure, base in pairs]


# --- tables -----------------------------------------------------------------------------------


class Table:
    """A table that is printed row by row, as figures are measured. The first column has labels."""

    def __init__(self, *heads: str) -> None:
        print()
        self.row(*heads)

    def row(self, label: str, *cells: object) -> None:
        """Print a row. A float gets two decimals."""
        texts = (f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
        print(f"{label:{FIRST_WIDTH}}" + "".join(f"{text:>{WIDTH}}" for text in texts), flush=True)


# --- the command line -------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A subcommand.

    ``measure`` takes the parsed options, prints its figures, and returns them for ``--json``. The
    first line of its docstring is the subcommand's help. ``options`` has the keywords of
    ``ArgumentParser.add_argument`` by flag.
    """

    measure: Callable[[argparse.Namespace], object]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


def run_parts(description: str, parts: dict[str, Part]) -> int:
    """Run the part that the command line names, or all of them; return the exit status."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="part", title="parts; all of them if none is named")
    for name, part in parts.items():
        text = (part.measure.__doc__ or "").strip()
        command = commands.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for flag, keywords in part.options.items():
            command.add_argument(flag, **keywords)
        command.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    if options.part is None:
        return _run_all(list(parts))
    # Gaps of this machine would be logged at each start of a sandbox.
    logging.getLogger("cellblock").addHandler(logging.NullHandler())
    figures = parts[options.part].measure(options)
    if options.json:
        options.json.write_text(json.dumps({options.part: figures}, indent=1))
    return 0


def _run_all(names: list[str]) -> int:
    """Run each part in a process of its own; return 1 if one of them failed.

    What one part imports, or the processors that it limits itself to, would change the figures of
    the next part.
    """
    failed = False
    for name in names:
        print(f"--- {name}", flush=True)
        ran = subprocess.run([sys.executable, sys.argv[0], name], check=False)
        failed = failed or ran.returncode != 0
    return int(failed)
