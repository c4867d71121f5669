"""Print the shape of the source: a report for before and after a redesign, which fails nothing."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kernel" / "cellblock"
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


if __name__ == "__main__":
    for name, figure in measured().items():
        print(f"{name:26} {figure:6}")
