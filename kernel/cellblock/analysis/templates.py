"""Templates: what a cell that names one says, and what a template's file may do (requirement 1.13).

A template is a file of definitions with a function ``run(state)``. A cell says ``%%template NAME``
and gives the state as JSON: data for that function, never part of any source.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.analysis.analyse import analyse
from cellblock.analysis.findings import Report
from cellblock.analysis.policy import NO_RULES
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from cellblock.analysis.findings import Finding
    from cellblock.analysis.policy import Rules

ENTRY: Final = "run"
#: The first line that is not blank; what comes before it holds blanks alone.
_CELL: Final = re.compile(r"((?:[ \t\r]*\n)*)%%template(?!\w)([^\n]*)(?:\n|\Z)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Called:
    """A cell that names a template. ``name`` is empty where what stands there is no name.

    ``line`` is the number, from 1, of the line that names it; ``body`` is what comes after that.
    """

    name: str
    said: str
    body: str
    line: int


def called(raw: str) -> Called | None:
    """Return what a cell says that begins with ``%%template``; None for any other."""
    found = _CELL.match(raw)
    if found is None:
        return None
    said = found[2].strip(" \t\r")
    name = said if _NAME.fullmatch(said) else ""
    return Called(name, said, raw[found.end() :], found[1].count("\n") + 1)


def is_name(text: str) -> bool:
    """Say whether a template may have this name: letters, digits, ``-`` and ``_``, all small."""
    return _NAME.fullmatch(text) is not None


# --- a template's file ------------------------------------------------------------------------


def analyse_template(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return every finding in ``source``, as ``analyse`` does, and what is no definition.

    Never raises.
    """
    found = analyse(source, rules)
    try:
        parse(source)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return found  # it does not run, or ``analyse`` has refused it
    from cellblock.analysis.definitions import definitions  # noqa: PLC0415 - few policies have any

    return tuple(sorted([*found, *definitions(source)]))


def entry(source: str) -> tuple[Finding, ...]:
    """Return why ``source`` can't be started: it has no ``run(state)``. Never raises."""
    from cellblock.analysis.definitions import read  # noqa: PLC0415 - as above

    report = Report(source, NO_RULES)
    tree = read(report)
    if tree is None:
        return ()  # told by ``definitions``
    starts = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == ENTRY
    ]
    if not starts:
        why = "is missing: a template is started by a function of that name at its top level"
        report.add_at("template-definitions", (1, 0, 1), f"{ENTRY}(state)", why=why)
    for node in starts:
        if not _takes_one(node.args):
            why = "has to take one argument, the state, by its place"
            report.add("template-definitions", node, ENTRY, why=why)
    return tuple(report.findings)


def _takes_one(of: ast.arguments) -> bool:
    places = len(of.posonlyargs) + len(of.args)
    named = all(default is not None for default in of.kw_defaults)
    return named and places > 0 and places - len(of.defaults) <= 1
