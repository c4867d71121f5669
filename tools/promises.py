"""Show how many lines and branches the tests reach of the modules that keep each promise.

python tools/promises.py COVERAGE.json

The file is coverage's own (``coverage json``); which modules keep a promise, docs/promises.md says.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "promises.md"
PACKAGE = "kernel/cellblock/"
_ROW = re.compile(r"^\| (P\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
_MODULE = re.compile(r"`([a-z_.]+)`")


def kept_by(page: str) -> dict[str, list[str]]:
    """Return the modules and packages that the page names, by promise."""
    return {promise: _MODULE.findall(where) for promise, where in _ROW.findall(page)}


def reached(report: dict[str, Any], modules: list[str]) -> tuple[int, int]:
    """Return how many lines and branches of ``modules`` were run, and how many there are.

    Raises ValueError if there is no such module.
    """
    run = total = 0
    for module in modules:
        path = f"{PACKAGE}{module.replace('.', '/')}"
        files = [
            each["summary"]
            for name, each in report["files"].items()
            if (at := name.find(PACKAGE)) >= 0 and name[at:].startswith((f"{path}.py", f"{path}/"))
        ]
        if not files:
            raise ValueError(f"docs/promises.md names {module}, which is not there")
        run += sum(each["covered_lines"] + each["covered_branches"] for each in files)
        total += sum(each["num_statements"] + each["num_branches"] for each in files)
    return run, total


def main(report: str) -> int:
    """Print a line a promise; return the exit status."""
    read = json.loads(Path(report).read_text("utf-8"))
    for promise, modules in kept_by(PAGE.read_text("utf-8")).items():
        run, total = reached(read, modules)
        print(f"{promise:4} {run / total:7.2%}  {run} of {total} lines and branches")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
