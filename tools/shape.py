"""Show the shape of the source, and fail where a figure is worse than the one on record.

python tools/shape.py [--check | --write]

The record is tools/shape.json: figures to be lowered, never raised without a word why.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kernel" / "cellblock"
RECORD = Path(__file__).with_suffix(".json")
#: Lines below which a module counts as small.
SMALL = 60


def measured() -> dict[str, int]:
    """Return the figures by name; front pages of packages count as modules, and not as small."""
    files = sorted(p for p in PACKAGE.rglob("*.py") if "templates" not in p.parts)
    texts = {path: path.read_text("utf-8") for path in files}
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "modules": len(files),
        f"modules under {SMALL} lines": sum(
            len(text.splitlines()) < SMALL
            for path, text in texts.items()
            if path.name != "__init__.py"
        ),
        "noqas": sum(text.count("# noqa") for text in texts.values()),
        "imports in functions": sum(map(_late_imports, texts.values())),
        "classes": sum(
            isinstance(node, ast.ClassDef)
            for text in texts.values()
            for node in ast.walk(ast.parse(text))
        ),
    }


def _late_imports(text: str) -> int:
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    found = {
        id(part): part
        for function in functions
        for part in ast.walk(function)
        if isinstance(part, ast.Import | ast.ImportFrom)
    }
    return len(found)


def main(*options: str) -> int:
    """Print a line a figure; return the exit status."""
    now = measured()
    if "--write" in options:
        RECORD.write_text(json.dumps(now, indent=2) + "\n", "utf-8")
    record = json.loads(RECORD.read_text("utf-8"))
    worse = [name for name in record if now[name] > record[name]]
    for name, figure in now.items():
        if "--check" not in options or name in worse:
            print(f"{name:26} {figure:6}   on record {record[name]}")
    if worse:
        print(f"worse than tools/shape.json: {', '.join(worse)}", file=sys.stderr)
    return int(bool(worse) and "--check" in options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
