"""Measures ``cellblock run --cluster`` with 1, 2, … workers, and estimates rates with more.

python tests/bench/cluster.py [--notebooks 200] [--workers 1 2] [--json FILE]

The scheduler and workers of one thread run on this machine, whose processors limit what can be
measured. A model estimates the rest: w workers are w times as fast as one, until the run's own
process or the scheduler is busy: rate = min(w * r, limit). The limit is one second divided by the
processor time for a notebook, of the process that needs more. The first tenth of the notebooks is
not counted, so that starts do not matter. This is never a timed test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import processes
from support.clusters import Cluster
from support.runs import Runs, write

if TYPE_CHECKING:
    import subprocess

CELLS = [
    "import math\nimport json",
    "def area(r):\n    return math.pi * r ** 2",
    "rows = [{'r': r, 'area': area(r)} for r in range(100)]\nprint(len(rows))",
    "sum(row['area'] for row in rows)",
    "print(json.dumps(rows[:3], indent=1))",
]
MODELLED = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Measured:
    """A measured rate, and the processor time for a notebook, of the run and of the scheduler."""

    workers: int
    rate: float
    run_ms: float
    scheduler_ms: float

    @property
    def limit(self) -> float:
        """The notebooks a second for which the busier process would need all its time."""
        return 1000 / max(self.run_ms, self.scheduler_ms)


def measured(workers: int, notebooks: int) -> Measured:
    """Run ``notebooks`` notebooks on ``workers`` workers."""
    cluster = Cluster()
    try:
        for _ in range(workers):
            cluster.worker()
        processes.until(lambda: cluster.logs().count("RegisteredTool to:") >= workers, 60)
        return _measured(cluster, workers, notebooks)
    finally:
        cluster.close()


def _measured(cluster: Cluster, workers: int, notebooks: int) -> Measured:
    runs = Runs(cluster.world)
    for number in range(notebooks):
        write(runs.work / f"nb/{number:04}.ipynb", *CELLS)
    process = runs.start("nb", "-o", "out", "--cluster", cluster.address)
    skipped = notebooks // 10
    _passed(process, skipped)
    before = (
        time.perf_counter(),
        processor_time(process.pid),
        processor_time(cluster.scheduler.pid),
    )
    counted = notebooks - skipped - 1
    _passed(process, counted)
    after = (
        time.perf_counter(),
        processor_time(process.pid),
        processor_time(cluster.scheduler.pid),
    )
    out, err = process.communicate(timeout=60)
    if process.returncode:
        raise RuntimeError(out + err)
    took, run, scheduler = (late - early for early, late in zip(before, after, strict=True))
    return Measured(workers, counted / took, run / counted * 1000, scheduler / counted * 1000)


def _passed(process: subprocess.Popen[str], count: int) -> None:
    """Wait until ``count`` more notebooks have passed."""
    assert process.stdout is not None
    while count:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(process.communicate()[1])
        count -= line.startswith("passed")


def processor_time(pid: int) -> float:
    """Return the processor time of a process in seconds (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebooks", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [measured(workers, args.notebooks) for workers in args.workers]
    for row in rows:
        print(f"{row.workers:3} workers {row.rate:8.1f} notebooks/s  measured")
    first = rows[0]
    single, limit = first.rate / first.workers, first.limit
    for workers in MODELLED:
        print(f"{workers:3} workers {min(workers * single, limit):8.1f} notebooks/s  modelled")
    print(
        f"a notebook takes {first.run_ms:.1f} ms of the run's process and {first.scheduler_ms:.1f} ms"
        f" of the scheduler's: at most {limit:.0f} notebooks/s; {os.cpu_count()} processors here"
    )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
