"""Bare names: refused builtins (requirement 1.4) and names that belong to the interpreter."""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.remedies import by_package, for_open

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.findings import Positioned, Report


_INPUT = "take the data as an input of the cell"
_ALONE = "Put it into a cell of its own, or use the front end's controls."
_RENAME = " If it is a name of your own, choose another."

#: Refused wherever the name is loaded: subject to (why, remedy).
REFUSED_BUILTINS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "__import__": ("loads any module by a computed name", "Write an import statement."),
        "breakpoint": ("starts a debugger, which runs unchecked text", "Use print()."),
        "compile": (
            "turns text that nobody has checked into code",
            "Write the code in the cell; ast.literal_eval reads data, re.compile makes patterns.",
        ),
        "eval": (
            "runs text that nobody has checked",
            "Write the code in the cell; ast.literal_eval and json.loads read data.",
        ),
        "exec": (
            "runs text that nobody has checked",
            "Write the code in the cell, or pass functions instead of text.",
        ),
        "open": ("opens files", f"{_INPUT.capitalize()}.{_RENAME}"),
    }
)

#: Refused unless the cell binds the name itself: these make ordinary variable names.
REFUSED_UNLESS_BOUND: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "copyright": ("starts a pager", "Nothing here needs it." + _RENAME),
        "credits": ("starts a pager", "Nothing here needs it." + _RENAME),
        "exit": (
            "ends the session",
            _ALONE + _RENAME,
        ),
        "globals": (
            "hands out the namespace that holds the guarded builtins",
            "Name the variables, or keep them in a dict of your own." + _RENAME,
        ),
        "license": ("starts a pager", "Nothing here needs it." + _RENAME),
        "locals": (
            "hands out the namespace that holds the guarded builtins",
            "Name the variables, or keep them in a dict of your own." + _RENAME,
        ),
        "quit": (
            "ends the session",
            _ALONE + _RENAME,
        ),
    }
)

#: Neither read nor bound by a cell.
RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "__build_class__": "is how the interpreter makes classes",
        "__builtin__": "holds every builtin, the refused ones too",
        "__builtins__": "holds every builtin, the refused ones too",
        "__cached__": "belongs to the import system",
        "__loader__": "belongs to the import system, which reads files and loads any module",
        "__path__": "belongs to the import system",
        "__spec__": "belongs to the import system, which reads files and loads any module",
    }
)

SHELL_OBJECT = "get_ipython"


def check_name(node: ast.Name, report: Report) -> None:
    """Judge a bare name where it is read, bound or deleted."""
    name = node.id
    if type(node.ctx) is not ast.Load:
        check_binding(name, node, report)
    elif name in REFUSED_BUILTINS:
        why, remedy = REFUSED_BUILTINS[name]
        said = _for_open(node, report) if name == "open" else remedy
        report.add("builtin-not-allowed", node, name, why=why, remedy=said)
    elif name in REFUSED_UNLESS_BOUND:
        report.pending.append((name, node))
    elif name in RESERVED:
        report.add("name-not-allowed", node, name, why=RESERVED[name])
    elif name == SHELL_OBJECT:
        report.add("shell-object", node, name)


def _for_open(node: ast.Name, report: Report) -> tuple[str, str]:
    call = report.openings.get(id(node))
    own, wanted = by_package(call, report.rules), for_open(call)
    first = "" if own or "ops.write_file" in wanted.operations else _INPUT
    remedy, rewrite = wanted.remedy(report.rules, first=first, asked=own)
    return remedy + _RENAME, rewrite


def check_binding(name: str | None, node: Positioned, report: Report) -> None:
    """Note that the cell binds ``name`` otherwise than by an import, and judge that."""
    if name is not None:
        report.bound.add(name)
        refuse_reserved(name, node, report)


def refuse_reserved(name: str, node: Positioned, report: Report) -> None:
    """Refuse to bind what the interpreter reads behind the cell's back."""
    if name in RESERVED or name == "__import__":
        why = RESERVED.get(name, "is how the interpreter loads modules")
        report.add("name-not-allowed", node, name, why=why)


def binds(field: str) -> Callable[[Any, Report], None]:
    """Return the check of nodes that bind the name in one of their fields."""
    return lambda node, report: check_binding(getattr(node, field), node, report)


def check_scope(node: ast.Global | ast.Nonlocal, report: Report) -> None:
    """Judge ``global a, b`` and ``nonlocal a, b``."""
    for name in node.names:
        # Declaring binds nothing: the builtin may still be what the name finds.
        refuse_reserved(name, node, report)


def settle_pending(report: Report) -> None:
    """Refuse the soft builtins that the cell does not bind itself.

    A cell that binds one only sometimes still meets the guarded builtin at run time.
    """
    for name, node in report.pending:
        if name not in report.bound:
            why, remedy = REFUSED_UNLESS_BOUND[name]
            report.add("builtin-not-allowed", node, name, why=why, remedy=remedy)
