"""Measures what bounds the cost of cellblock: processor time and memory, by amount of work.

python tests/bench/limits.py [check|memory] [options]

- check: seconds of ``cellblock check`` over many notebooks, with one process and with one for each
  processor
- memory: MiB that each further open sandbox takes, by the kind of pool
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import Part, Table, run_parts

from cellblock import AsyncSandboxPool, Policy
from support import processes
from support.notebooks import notebook

if TYPE_CHECKING:
    import argparse

# --- check ------------------------------------------------------------------------------------

#: Ordinary cells. One notebook in fifty also has a cell that is denied.
CELLS = (
    "import math\nimport json\nfrom collections import Counter, defaultdict\n",
    (
        "def clean(rows):\n"
        '    """Return the rows that have a value."""\n'
        "    return [row for row in rows if row.get('value') is not None]\n"
    ),
    (
        "class Station:\n"
        "    def __init__(self, name, height):\n"
        "        self.name, self.height = name, height\n\n"
        "    def __repr__(self):\n"
        "        return f'{self.name} ({self.height} m)'\n"
    ),
    (
        "rows = [{'name': str(n), 'value': math.sin(n / 7) if n % 5 else None} for n in range(500)]\n"
        "found = clean(rows)\nprint(len(found), 'of', len(rows))\n"
    ),
    "%time sum(row['value'] for row in found)\n",
    (
        "by_sign = defaultdict(list)\n"
        "for row in found:\n"
        "    by_sign['+' if row['value'] > 0 else '-'].append(row)\n"
        "{sign: len(rows) for sign, rows in by_sign.items()}\n"
    ),
    "Counter(round(row['value'], 1) for row in found).most_common(3)\n",
)
DENIED = "import gc\ngc.collect()\n"
#: The exit status of ``cellblock check`` when it has findings.
HAS_FINDINGS = 1


def check(options: argparse.Namespace) -> object:
    """Measure whole runs of ``cellblock check``: seconds, and seconds of processor time."""
    with tempfile.TemporaryDirectory() as folder:
        size = write_notebooks(Path(folder), options.notebooks, options.cells)
        processors = len(os.sched_getaffinity(0))
        print(
            f"{options.notebooks} notebooks of {options.cells} cells, {size / 2**20:.1f} MiB,"
            f" {processors} processors"
        )
        table = Table("cellblock check", "s", "processor s")
        figures = {}
        for jobs in ("1", "0"):
            elapsed, used, summary = check_folder(Path(folder), jobs)
            table.row(f"--jobs {jobs}: {summary}", elapsed, used)
            figures[f"--jobs {jobs}"] = {"s": elapsed, "processor_s": used}
    return figures


def write_notebooks(folder: Path, notebooks: int, cells: int) -> int:
    """Write notebooks into twenty subfolders; return their size in bytes."""
    size = 0
    for number in range(notebooks):
        sources = [CELLS[n % len(CELLS)] + f"# {number}\n" for n in range(cells)]
        if number % 50 == 0:
            sources.append(DENIED)
        path = folder / f"part{number % 20:02}" / f"{number:05}.ipynb"
        path.parent.mkdir(exist_ok=True)
        size += path.write_text(notebook(("markdown", "# A notebook"), *sources))
    return size


def check_folder(folder: Path, jobs: str) -> tuple[float, float, str]:
    """Check a folder; return seconds, seconds of processor time, and the summary."""
    cellblock = Path(sys.executable).with_name("cellblock")
    command = [cellblock, "check", str(folder), "--jobs", jobs]
    began = time.perf_counter()
    used_before = children_processor_time()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - began
    used = children_processor_time() - used_before
    if ran.returncode != HAS_FINDINGS:
        raise RuntimeError(f"exit status {ran.returncode}: {ran.stderr}")
    return elapsed, used, ran.stdout.splitlines()[-1]


def children_processor_time() -> float:
    """Return the seconds of processor time of all children that have ended (getrusage(2))."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# --- memory -----------------------------------------------------------------------------------

PRELOAD = ("numpy", "pandas", "matplotlib")
#: Cells after which a sandbox holds an int, or a DataFrame.
NUMBER = "x = {number}"
TABLE = "import pandas as pd\nint(pd.DataFrame({{'a': [{number}, 0]}}).a.sum())"
#: Sandboxes of each pool but the first.
FEW = 20
#: Targets: MiB of each sandbox, and of 200 with host and zygote.
EACH_TARGET = 15.0
MANY_TARGET = 4096.0
#: The policy and the cell of the guests whose memory is measured by kind of page.
GUEST_CHANGES = {"preload": ("pandas",), "snapshots": "off"}
GUEST_CELL = "import pandas as pd\npd.DataFrame({'a': [1, 2, 3]})"


def memory(options: argparse.Namespace) -> object:
    """Measure the memory of open sandboxes in MiB, and of guests by kind of page.

    The memory of sandboxes is the proportional set size of this process and its descendants: a
    shared page counts once. A guest of the second table has pandas and no snapshots.
    """
    with tempfile.TemporaryDirectory(prefix="cb-limits-") as folder:
        (Path(folder) / "a.csv").write_text("a\n1\n")
        sandboxes = asyncio.run(measure_pools(options.many, Path(folder)))
    print(f"targets: {EACH_TARGET:g} MiB each, {MANY_TARGET:g} MiB for 200")
    guest = asyncio.run(measure_guests(options.guests))
    return {"sandboxes_mib": sandboxes, "guest_mib": guest}


async def measure_pools(many: int, project: Path) -> dict[str, tuple[int, float, float]]:
    """Print and return, by pool, how many sandboxes are open, MiB of each further one, and of all."""
    policy = Policy.preset("data", preload=PRELOAD)
    without_snapshots = policy.replace(snapshots="off")
    with_project = {"policy": policy, "project": project}
    table = Table("memory (PSS) of sandboxes", "open", "each, MiB", "all, MiB")
    sizes = {}
    for name, count, cell, arguments in (
        ("data pool, a number each", many, NUMBER, {"policy": policy}),
        ("data pool, a table each", FEW, TABLE, {"policy": policy}),
        ("the same without snapshots", FEW, TABLE, {"policy": without_snapshots}),
        ("data with a project, a zygote each, a number each", FEW, NUMBER, with_project),
        ("safe pool, a number each", FEW, NUMBER, {"policy": "safe"}),
    ):
        async with AsyncSandboxPool(**arguments) as pool:
            each, total = await pool_memory(pool, count, cell)
        table.row(name, count, each, total)
        sizes[name] = (count, each, total)
    return sizes


async def pool_memory(pool: AsyncSandboxPool, count: int, cell: str) -> tuple[float, float]:
    """Open a sandbox and ``count`` further ones; return MiB of each further one, and of all."""
    first, *further = [pool.sandbox() for _ in range(count + 1)]
    await first.open()
    before = held_memory()
    for number, sandbox in enumerate(further):
        await sandbox.open()
        result = await sandbox.execute(cell.format(number=number) + f"\nmine = {number}")
        assert result.success, result.to_string()
    # Nothing of one sandbox is in another.
    for number, sandbox in enumerate(further):
        assert (await sandbox.execute("mine")).result == str(number)
    total = held_memory()
    return (total - before) / count, total


def held_memory() -> float:
    """Return the MiB that this process and its descendants hold; shared pages count once (PSS)."""
    total = 0
    for pid in processes.tree(os.getpid()):
        with contextlib.suppress(OSError):  # the process has ended
            total += processes.memory(pid, "Pss")
    return total / 1024


async def measure_guests(count: int) -> dict[str, float]:
    """Print and return the median MiB of each of ``count`` guests, by kind of page."""
    async with (
        AsyncSandboxPool(Policy.preset("data", **GUEST_CHANGES)) as pool,
        contextlib.AsyncExitStack() as opened,
    ):
        for _ in range(count):
            sandbox = await opened.enter_async_context(pool.sandbox())
            await sandbox.execute(GUEST_CELL)
        tree = processes.tree(os.getpid())
        guests = [guest_pages(pid) for pid in tree if processes.name(pid) == "cb-guest"]
    table = Table("each further guest, with pandas and no snapshots", "MiB")
    medians = {}
    for kind in guests[0]:
        medians[kind] = statistics.median(guest[kind] for guest in guests)
        table.row(kind, medians[kind])
    return medians


def guest_pages(pid: int) -> dict[str, float]:
    """Return the MiB of a process by kind of page (smaps_rollup in proc(5))."""
    private = sum(processes.memory(pid, f"Private_{kind}") for kind in ("Clean", "Dirty"))
    return {
        "its own": private / 1024,
        "with its share of shared memory": processes.memory(pid, "Pss") / 1024,
        "resident, shared memory included": processes.memory(pid, "Rss") / 1024,
    }


PARTS = {
    "check": Part(
        check,
        {
            "--notebooks": {"type": int, "default": 1_000},
            "--cells": {"type": int, "default": 20, "help": "cells of a notebook"},
        },
    ),
    "memory": Part(
        memory,
        {
            "--many": {"type": int, "default": 200, "help": "sandboxes of the first pool"},
            "--guests": {"type": int, "default": 8, "help": "guests of the second table"},
        },
    ),
}

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS))
