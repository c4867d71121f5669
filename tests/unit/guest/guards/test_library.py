"""No function that cells reach reads names, or runs text, of a cell's choosing unserved."""

import ast
import importlib
import re
from fnmatch import fnmatchcase
from pathlib import Path

from cellblock.analysis.allowlist import ALLOWLIST

PAGE = Path(__file__).parents[4] / "docs" / "language.md"
BY_NAME = {"getattr", "setattr", "delattr", "hasattr"}
TEXT = {"eval", "exec", "compile", "__import__", "import_module", "vars", "globals"}
ACCESSORS = {"attrgetter", "methodcaller"}
SLOTS = {"__getattribute__", "__getattr__", "__setattr__", "__delattr__"}


def modules():
    """Return the allowed modules, and those that the classes which they show are from."""
    found = {}
    for entry in ALLOWLIST:
        try:
            module = found[entry.module] = importlib.import_module(entry.module)
        except ImportError:  # not in this Python
            continue
        public = [name for name in vars(module) if not name.startswith("_")]
        for shown in entry.names or getattr(module, "__all__", public):
            value = getattr(module, shown, None)
            for kind in getattr(value, "__mro__", (value,)):
                name = getattr(kind, "__module__", None)
                if isinstance(kind, type) and isinstance(name, str) and name != "builtins":
                    found.setdefault(name, importlib.import_module(name))
    return found


def reads(source):
    """Yield the function around every call that reads a computed name, or runs text."""

    def walk(node, within):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = (*within, node.name)
        if isinstance(node, ast.Call) and within and reads_names(node):
            yield ".".join(within)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, within)

    yield from walk(ast.parse(source), ())


def reads_names(call):
    function = call.func
    if isinstance(function, ast.Name):
        computed = len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
        return function.id in TEXT | ACCESSORS or (function.id in BY_NAME and computed)
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in {"format", "format_map"}:
        return not isinstance(function.value, ast.Constant)
    return function.attr in SLOTS | ACCESSORS | {"import_module"}


def table():
    """Return the page's rows as (module, pattern)."""
    rows = re.findall(r"^\| `([\w.]+)` \| (`.+?`) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    return [(module, pattern) for module, cell in rows for pattern in re.findall(r"`(.+?)`", cell)]


def test_what_the_library_reads_on_a_cells_behalf_is_on_the_page():
    rows, used, missing = table(), set(), []
    for name, module in modules().items():
        path = getattr(module, "__file__", None) or ""
        if not path.endswith(".py") or name.startswith("IPython"):
            continue
        for function in reads(Path(path).read_text()):
            fitting = {row for row in rows if row[0] == name and fnmatchcase(function, row[1])}
            used |= fitting
            if not fitting:
                missing.append(f"{name} {function}")
    assert missing == []
    assert len(used) > 25
