"""Templates: what a cell that names one says, and what a template's file may do (requirement 1.13).

A template is a file of definitions with a function ``run(state)``. A cell says ``%%template NAME``
and gives the state as JSON: data for that function, never part of any source.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.analysis.analyser import analyse
from cellblock.analysis.findings import NO_RULES, Report
from cellblock.analysis.template_rules import definitions, read
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from cellblock.analysis.findings import Finding, Rules


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
    """Whether a template may have this name: letters, digits, ``-`` and ``_``, all small."""
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
    return tuple(sorted([*found, *definitions(source)]))


def entry(source: str) -> tuple[Finding, ...]:
    """Return why ``source`` can't be started: it has no ``run(state)``. Never raises."""
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


# --- the state: JSON, read strictly, so that no two readers see two states in one text ------------
#
# No key twice, no NaN or Infinity, no number that crosses the wire as another, no text that is
# not Unicode; bounded in size, depth and number of values.

#: Characters of a state, values in it, and containers within each other.
LONGEST: Final = 1 << 20
MOST_VALUES: Final = 50_000
DEEPEST: Final = 32
#: Of whole numbers on the wire: 64 bits, with a sign or without.
_LEAST, _MOST = -(2**63), 2**64
_DIGITS: Final = 20
#: Texts, so that nothing in them is taken for a mark, and marks. One without an end takes all.
_MARKS: Final = re.compile(
    r"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)
    | [\[\]{},]
    """,
    re.DOTALL | re.VERBOSE,
)


class StateError(ValueError):
    """A text that is no state; ``line`` and ``column`` of it, from 1, as far as they are known."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(message)


def read_state(text: str) -> Any:
    """Return the data that ``text`` stands for; nothing but blanks is ``{}``.

    Raises:
        StateError: it is not JSON, ambiguous, or beyond the bounds.

    """
    if not text.strip(" \t\r\n"):
        return {}
    if len(text) > LONGEST:
        raise StateError(f"it has {len(text):,} characters; {LONGEST:,} are read")
    _check_shape(text)
    try:
        text.encode()
        state = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_int,
        )
        json.dumps(state, ensure_ascii=False).encode()  # escapes can stand for half a character
    except json.JSONDecodeError as exc:
        raise StateError(f"it is not JSON: {exc.msg}", exc.lineno, exc.colno) from None
    except UnicodeEncodeError:
        raise StateError("a text in it is not Unicode: half of a surrogate pair") from None
    except RecursionError:
        raise StateError(f"it is nested deeper than {DEEPEST}") from None
    return state


def _check_shape(text: str) -> None:
    """Raise StateError for too many values, or too deep, before any of it is built."""
    depth = values = 0
    for mark in _MARKS.finditer(text):
        match mark[0]:
            case "[" | "{":
                depth, values = depth + 1, values + 1
                if depth > DEEPEST:
                    line = text.count("\n", 0, mark.start()) + 1
                    raise StateError(f"it is nested deeper than {DEEPEST}", line)
            case "]" | "}":
                depth -= 1
            case ",":
                values += 1
        if values > MOST_VALUES:
            raise StateError(f"it has more than {MOST_VALUES:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise StateError(f"the key {twice[:60]!r} stands in one object twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise StateError(f"{name} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StateError(f"{digits[:_DIGITS]} is larger than any number here")
    return value


def _int(digits: str) -> int:
    if len(digits) > _DIGITS + 1 or not _LEAST <= int(digits) < _MOST:
        raise StateError(f"{digits[:_DIGITS]}… has more than 64 bits")
    return int(digits)
