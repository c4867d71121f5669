"""Measures `cellblock check` on many notebooks. Prints, and asserts nothing.

python tests/bench/check.py [--notebooks 1000] [--cells 20]

Measured are seconds of whole runs, each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.notebooks import notebook

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
REFUSED = "import gc\ngc.collect()\n"


def write(folder: Path, notebooks: int, cells: int) -> int:
    """Write notebooks; return their size in bytes."""
    size = 0
    for number in range(notebooks):
        sources = [CELLS[n % len(CELLS)] + f"# {number}\n" for n in range(cells)]
        if number % 50 == 0:
            sources.append(REFUSED)
        path = folder / f"part{number % 20:02}" / f"{number:05}.ipynb"
        path.parent.mkdir(exist_ok=True)
        size += path.write_text(notebook(("markdown", "# A notebook"), *sources))
    return size


def measured(folder: Path, *options: str) -> str:
    """Run the command; return its time and the last line of its output."""
    command = [Path(sys.executable).with_name("cellblock"), "check", str(folder), *options]
    began, used = time.perf_counter(), _used()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    took, cpu = time.perf_counter() - began, _used() - used
    if ran.returncode != 1:
        raise RuntimeError(f"exit status {ran.returncode}: {ran.stderr}")
    return f"{took:.2f} s, {cpu:.2f} s of processor time: {ran.stdout.splitlines()[-1]}"


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--notebooks", type=int, default=1_000)
    parser.add_argument("--cells", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "notebooks")
        folder.mkdir()
        size = write(folder, given.notebooks, given.cells)
        processors = f"{len(os.sched_getaffinity(0))} processors"
        told = f"{given.notebooks} notebooks of {given.cells} cells, {size / 2**20:.1f} MiB"
        print(f"{told}, {processors}")
        for jobs in ("1", "0"):
            print(f"--jobs {jobs}: {measured(folder, '--jobs', jobs)}")


if __name__ == "__main__":
    main()
