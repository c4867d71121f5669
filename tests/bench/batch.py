"""Compares ``cellblock run`` with nbconvert and nbclient on the same notebooks, as ratios.

python tests/bench/batch.py [--notebooks 100] [--rounds 1] [--json FILE]

Uses two processors, if there are more. Three programs take turns: cellblock (confined guests of one
warm zygote, policy safe), ``jupyter nbconvert --execute``, and nbclient in one process (both with
stock ipykernel, not confined). Then it measures the start of a pandas notebook with pandas
preloaded, and the memory of each further guest, without snapshots. This is never a timed test: the
numbers are for developers who change a hot path. docs/run.md has them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cellblock import AsyncSandboxPool, Policy
from support import processes
from support.runs import document

CELLS = [
    "import math\nimport json",
    "def area(r):\n    return math.pi * r ** 2",
    "rows = [{'r': r, 'area': area(r)} for r in range(100)]\nprint(len(rows))",
    "sum(row['area'] for row in rows)",
    "print(json.dumps(rows[:3], indent=1))",
]
PANDAS = "import pandas as pd\npd.DataFrame({'a': [1, 2, 3]})"
#: The cells of notebooks with pandas.
TABLES = [
    "import pandas as pd",
    "df = pd.DataFrame({'a': range(100), 'b': range(100)})\ndf.describe()",
    "df.groupby('a').b.sum().head()",
    "print(len(df))",
    "df.head()",
]
#: How many of these there are.
MANY_TABLES = 20
#: A policy under which they run.
PRELOADING = 'extends = "data"\npreload = ["numpy", "pandas"]\n'
GOAL = {"jupyter nbconvert --execute": 15.0, "nbclient in one process": 10.0}
#: Processors that are used.
PROCESSORS = 2
#: The policy of the pool that is measured.
PRESET, CHANGES = "data", {"preload": ("pandas",), "snapshots": "off"}
NBCLIENT = """
import sys, nbformat
from nbclient import NotebookClient
for path in sys.argv[1:]:
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    nbformat.write(notebook, path + ".out")
"""


def written(folder: Path, count: int, cells: list[str]) -> list[Path]:
    """Write ``count`` notebooks of these cells; return their paths."""
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    made = json.dumps(document(*cells, metadata=spec))
    paths = [folder / f"n{number:03}.ipynb" for number in range(count)]
    for path in paths:
        path.write_text(made)
    return paths


def by_cellblock(paths: list[Path], out: Path, policy: str = "safe") -> list[str]:
    main = "from cellblock.cli.main import main; main()"
    folder = str(paths[0].parent)
    return [sys.executable, "-c", main, "run", folder, "-o", str(out), "--policy", policy]


def by_preloading(paths: list[Path], out: Path) -> list[str]:
    policy = out.parent / "preloading.toml"
    policy.write_text(PRELOADING)
    return by_cellblock(paths, out, str(policy))


def under_data(paths: list[Path], out: Path) -> list[str]:
    return by_cellblock(paths, out, "data")


def by_nbconvert(paths: list[Path], out: Path) -> list[str]:
    jupyter = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    quiet = ["--log-level=ERROR", "--ExecutePreprocessor.kernel_name=python3"]
    return [*jupyter, *quiet, f"--output-dir={out}", *map(str, paths)]


def by_nbclient(paths: list[Path], _out: Path) -> list[str]:
    return [sys.executable, "-c", NBCLIENT, *map(str, paths)]


OURS = "cellblock run"
BY = {
    OURS: by_cellblock,
    "jupyter nbconvert --execute": by_nbconvert,
    "nbclient in one process": by_nbclient,
}


BY_TABLES = {
    "cellblock run, data with preload": by_preloading,
    "cellblock run, data": under_data,
    "jupyter nbconvert --execute": by_nbconvert,
}


def rate(command, count: int, cells: list[str] = CELLS) -> float:
    """Return notebooks a second, from the command's start to its end."""
    folder = Path(tempfile.mkdtemp(prefix="cb-bench-"))
    (folder / "nb").mkdir()
    argv = command(written(folder / "nb", count, cells), folder / "out")
    began = time.perf_counter()
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    shutil.rmtree(folder)
    return count / took


async def starts(rounds: int) -> tuple[float, list[float], list[float]]:
    """Return the milliseconds to a ready guest and to a table, and the memory of a further guest."""
    policy = Policy.preset(PRESET, **CHANGES)
    async with AsyncSandboxPool(policy) as pool:
        async with pool.sandbox() as first:
            await first.execute(PANDAS)
        ready, shown = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            async with pool.sandbox() as sandbox:
                ready.append((time.perf_counter() - began) * 1000)
                result = await sandbox.execute(PANDAS)
                shown.append((time.perf_counter() - began) * 1000)
                assert result.success, result.to_string()
        return statistics.median(ready), shown, await memory(pool)


async def memory(pool: AsyncSandboxPool, count: int = 8) -> list[float]:
    """Return the KiB of each of ``count`` guests with pandas: private, with its share, resident."""
    opened = []
    for _ in range(count):
        sandbox = pool.sandbox()
        await sandbox.open()
        await sandbox.execute(PANDAS)
        opened.append(sandbox)
    guests = [pid for pid in processes.tree(os.getpid()) if processes.name(pid) == "cb-guest"]
    fields = [_smaps(pid) for pid in guests]
    for sandbox in opened:
        await sandbox.close()
    keys = ("Private", "Pss", "Rss")
    return [statistics.median(entry[key] for entry in fields) for key in keys]


def tables(rounds: int) -> dict[str, float]:
    """Return notebooks a second for those with pandas, by the program that runs them."""
    got: dict[str, list[float]] = {name: [] for name in BY_TABLES}
    for _ in range(rounds):
        for name, command in BY_TABLES.items():
            got[name].append(rate(command, MANY_TABLES, TABLES))
    found = {name: statistics.median(rates) for name, rates in got.items()}
    theirs = found["jupyter nbconvert --execute"]
    for name, ours in found.items():
        print(
            f"{MANY_TABLES} with pandas: {name:34}{ours:>8.2f} notebooks/s{ours / theirs:>7.1f} x"
        )
    return found


def _smaps(pid: int) -> dict[str, float]:
    found: dict[str, float] = {"Private": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value, *_ = line.split()
        found[key[:-1]] = float(value)
        if key.startswith("Private_"):
            found["Private"] += float(value)
    return found


def compared(count: int, rounds: int) -> list[dict]:
    got: dict[str, list[float]] = {name: [] for name in BY}
    for _ in range(rounds):
        for name, command in BY.items():
            got[name].append(rate(command, count))
    ours = statistics.median(got.pop(OURS))
    print(f"{OURS:32}{ours:>8.2f} notebooks/s")
    rows = []
    for name, rates in got.items():
        theirs = statistics.median(rates)
        print(
            f"{name:32}{theirs:>8.2f} notebooks/s  {ours / theirs:>6.1f} x  (goal {GOAL[name]} x)"
        )
        rows.append({"against": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs})
    return rows


def held_to(most: int) -> int:
    """Limit this process and its children to ``most`` processors; return how many there are."""
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, own[:most])
    return len(own[:most])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebooks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.getLogger("cellblock").addHandler(logging.NullHandler())  # gaps are told elsewhere
    processors = held_to(PROCESSORS)
    print(f"{args.notebooks} notebooks of {len(CELLS)} cells, {processors} processors")
    rows = compared(args.notebooks, args.rounds)
    with_pandas = tables(args.rounds)
    ready, shown, (private, pss, rss) = asyncio.run(starts(20))
    print(
        f"pandas preloaded: a guest is ready in {ready:.1f} ms (goal 60), shows a table in {statistics.median(shown):.1f} ms"
    )
    print(
        f"each further guest: {private / 1024:.1f} MiB its own, {pss / 1024:.1f} MiB with its share, of {rss / 1024:.1f} MiB resident"
    )
    if args.json:
        guest = {"ready_ms": ready, "table_ms": shown, "policy": {"preset": PRESET} | CHANGES}
        guest |= {"private_kib": private, "pss_kib": pss, "rss_kib": rss}
        told = {"processors": processors, "python": platform.python_version(), "rates": rows}
        told["tables"] = with_pandas
        args.json.write_text(json.dumps(told | {"guest": guest}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
