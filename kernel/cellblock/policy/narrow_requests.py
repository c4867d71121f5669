"""Reads requests to narrow the policy: ``%policy narrow`` in a cell, and a notebook's metadata.

A cell that has only ``%policy narrow`` lines, blank lines and comments is never sent to a guest:
the host applies its changes, and ``cellblock check`` judges later cells by them. In any other cell
a narrowing is refused, as an argument that the magic does not take.

A notebook may have a table ``metadata.cellblock.policy`` of changes for ``narrowing.narrow``. A
program that runs notebooks passes their metadata to ``narrow_for_notebook``. A kernel reads the
file that it was started for (``narrow_for_file``), since no front end sends the metadata.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.analysis.findings import ONLY_THE_POLICY, Report
from cellblock.analysis.magics import NARROWS, SHOWS_POLICY
from cellblock.descriptors import closing, read_regular
from cellblock.errors import PolicyError, WideningError
from cellblock.policy.model import ROWS
from cellblock.policy.narrowing import changed_fields, narrow, takes_new_guest
from cellblock.policy.paths import Places
from cellblock.policy.rows import EnforcedBy
from cellblock.policy.vocabulary import closest

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.policy.model import Policy


# --- a line of %policy narrow ---------------------------------------------------------------------
#
#     line       = { option | assignment [","] } [ "#" comment ]
#     option     = "--" name
#     assignment = key "=" value
#     key        = name [ "." name ]
#     value      = a TOML value that fits on the line
#
# Python's TOML reader reads each value by itself, so a value can't contain another assignment.

_KEY: Final = re.compile(r"([A-Za-z]\w*(?:\.[A-Za-z]\w*)?)[ \t]*=[ \t]*", re.ASCII)
_OPTION: Final = re.compile(r"--([a-z]+)(?=[\s,#]|$)")
_WORD: Final = re.compile(r"[^\s,#\[\]{}\"']+")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_UNREADABLE: Final = re.compile(r"[^\s,]+|.|$", re.DOTALL)
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_CLOSING: Final = {"[": "]", "{": "}"}
#: The most characters of a line's wrong part that a message repeats.
_LONGEST_SUBJECT: Final = 60
#: The most characters of a line: a whole policy is a page of text.
MAX_LINE: Final = 20_000
#: The deepest nesting of a value: no field's is deeper.
_MAX_DEPTH: Final = 8
_AS: Final = 'Write it as in a policy file: timeout=10, filesystem_write_roots=["work"].'
_PYTHONS: Final = {"True": "true", "False": "false", "None": '"none"'}


class UnreadableError(ValueError):
    """A part of a line can't be read as a change. Columns count characters from 0.

    ``key`` is the field that the part would set, or empty if that is not known.
    """

    def __init__(
        self, message: str, column: int, end: int, remedy: str = _AS, *, key: str = ""
    ) -> None:
        self.message = message
        self.column = column
        self.end = end
        self.remedy = remedy
        self.key = key
        super().__init__(message)

    def sentence(self, subject: str) -> str:
        """Return the message with the part of the line that it is about, and the field."""
        excerpt = subject if len(subject) <= _LONGEST_SUBJECT else f"{subject[:_LONGEST_SUBJECT]}…"
        return f"{excerpt!r} {self.message}" + (f", for {self.key}" if self.key else "")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A key, which may have a dot, its value, and the columns of the key."""

    key: str
    value: Any
    column: int
    end: int


def read_line(line: str, column: int = 0) -> tuple[tuple[Assignment, ...], frozenset[str]]:
    """Return the assignments from ``column`` on, and the names of options.

    Raises UnreadableError for the first part that is neither.
    """
    if len(line) > MAX_LINE:
        raise UnreadableError(f"is longer than {MAX_LINE:,} characters", column, column + 1)
    assignments = list[Assignment]()
    options = set[str]()
    column = _match(_BETWEEN, line, column).end()
    while column < len(line) and line[column] != "#":
        if option := _OPTION.match(line, column):
            options.add(option[1])
            column = option.end()
        else:
            key = _match(_KEY, line, column)
            try:
                column = _end_of_value(line, key.end())
                value = _value(line, key.end(), column)
            except UnreadableError as error:
                error.key = key[1]
                raise
            assignments.append(Assignment(key[1], value, key.start(1), key.end(1)))
        if column < len(line) and line[column] not in " \t,#":
            raise _unreadable(line, column)
        column = _match(_BETWEEN, line, column).end()
    return tuple(assignments), frozenset(options)


def _match(pattern: re.Pattern[str], line: str, column: int) -> re.Match[str]:
    """Return the match of a pattern at a column. Raises UnreadableError without one."""
    if match := pattern.match(line, column):
        return match
    raise _unreadable(line, column)


def _unreadable(line: str, column: int) -> UnreadableError:
    match = _UNREADABLE.match(line, column)
    end = max(column + 1, match.end() if match else column)
    return UnreadableError("is neither key=value nor an option", column, end)


def _end_of_value(line: str, start: int) -> int:
    """Return the column after a value: a string, a word, or text in brackets.

    Raises UnreadableError.
    """
    if line[start:].strip() == "":
        raise UnreadableError("has no value behind it", start - 1, start)
    if line[start : start + 1] not in _CLOSING:
        return (_STRING.match(line, start) or _match(_WORD, line, start)).end()
    closing = list[str]()
    column = start
    while column < len(line):
        if string := _STRING.match(line, column):
            column = string.end()
            continue
        if line[column] in _CLOSING:
            closing.append(_CLOSING[line[column]])
        elif closing and line[column] == closing[-1]:
            closing.pop()
        column += 1
        if not closing:
            return column
    raise UnreadableError("is not closed on this line", start, start + 1)


def _value(line: str, start: int, end: int) -> Any:
    """Return the TOML value between two columns. Raises UnreadableError."""
    text = line[start:end]
    with contextlib.suppress(ValueError, RecursionError):
        value = tomllib.loads(f"value = {text}")["value"] if text.isprintable() else {}
        json.dumps(value, default=str)  # raises ValueError for an integer that is too long to write
        if text.isprintable() and not _is_deeper(value, _MAX_DEPTH):
            return value
    remedy = f"{_PYTHONS[text]}, as TOML has it." if text in _PYTHONS else _AS
    raise UnreadableError("is no TOML value", start, end, remedy)


def _is_deeper(value: Any, depth: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth == 0 or any(_is_deeper(part, depth - 1) for part in parts)


# --- a cell of such lines -----------------------------------------------------------------------

_LINE: Final = re.compile(rf"[ \t]*%{SHOWS_POLICY}[ \t]+{NARROWS}(?![^ \t])")
_NOTHING: Final = re.compile(r"[ \t]*(?:#.*)?")
_BREAK: Final = re.compile(r"\r\n|\r|\n")
#: The most lines of a cell that are read.
MAX_LINES: Final = 50
#: The option that allows a new guest, so that the variables are lost.
FRESH: Final = "fresh"

ONLY_NARROWS: Final = "policy-only-narrows"
NOT_KEPT: Final = "narrowing-not-kept"
_ARGUMENT: Final = "argument-not-allowed"


@dataclass(slots=True)
class NarrowRequest:
    """The request of a cell: changes to the policy, and the place of each key in the cell.

    A place is a line from 1 and two columns from 0. ``fresh``: a new guest may be started.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    fresh: bool = False
    #: The place for errors that are about no key.
    first: tuple[int, int, int] = (1, 0, 1)


def is_narrow_cell(cell: str) -> bool:
    """Return whether a cell narrows the policy and does nothing else."""
    lines = [line for line in _BREAK.split(cell) if not _NOTHING.fullmatch(line)]
    return bool(lines) and all(map(_LINE.match, lines))


def read_cell(cell: str, rules: Rules) -> tuple[NarrowRequest, tuple[Finding, ...]]:
    """Return the request of a cell for which ``is_narrow_cell`` is true, and findings about it."""
    request = NarrowRequest()
    report = Report(source=cell, rules=rules)
    lines = [
        (number, match.end(), line)
        for number, line in enumerate(_BREAK.split(cell), start=1)
        if (match := _LINE.match(line))
    ]
    request.first = lines[0][0], lines[0][1] - len(NARROWS), lines[0][1]
    for number, start, line in lines[:MAX_LINES]:
        _read_line(line, number, start, request, report)
    if len(lines) > MAX_LINES:
        why = f"%policy narrow is there more than {MAX_LINES} times"
        report.add_at(_ARGUMENT, request.first, NARROWS, why=why, remedy="Say it in fewer lines.")
    elif not (request.changes or report.findings):
        why = "%policy narrow says nothing of what is to be narrowed"
        report.add_at(_ARGUMENT, request.first, NARROWS, why=why, remedy="Write key=value.")
    return request, tuple(report.findings)


def _read_line(line: str, number: int, column: int, request: NarrowRequest, report: Report) -> None:
    """Add the changes in a line to a request, or a finding to the report."""
    try:
        assignments, options = read_line(line, column)
    except UnreadableError as error:
        subject = line[error.column : error.end]
        span = (number, error.column, error.end)
        why = error.sentence(subject)
        report.add_at(_ARGUMENT, span, subject, why=why, remedy=error.remedy)
        return
    request.fresh = request.fresh or FRESH in options
    for option in sorted(options - {FRESH}):
        why = f"there is no option --{option}"
        remedy = f"There is --{FRESH}."
        report.add_at(_ARGUMENT, (number, column, len(line)), f"--{option}", why=why, remedy=remedy)
    for assignment in assignments:
        span = (number, assignment.column, assignment.end)
        if not _add_assignment(request, assignment, span):
            why = f"{assignment.key!r} is said twice"
            report.add_at(_ARGUMENT, span, assignment.key, why=why, remedy="Say it once.")


def _add_assignment(
    request: NarrowRequest, assignment: Assignment, span: tuple[int, int, int]
) -> bool:
    """Add an assignment to a request. Return False if its key is there already."""
    head, _, name = assignment.key.partition(".")
    request.places[assignment.key] = span
    if not name:
        is_new = head not in request.changes
        request.changes[head] = assignment.value
        return is_new
    request.places.setdefault(head, span)
    table = request.changes.setdefault(head, {})
    if not isinstance(table, dict) or name in table:
        return False
    table[name] = assignment.value
    return True


def explained(
    errors: Iterable[PolicyError],
    request: NarrowRequest,
    cell: str,
    rules: Rules,
    rule: str = _ARGUMENT,
) -> tuple[Finding, ...]:
    """Return the errors in a cell's changes, or why they are not kept, as findings in the cell."""
    report = Report(source=cell, rules=rules)
    for error in errors:
        wider = isinstance(error, WideningError)
        why = error.message
        subject = error.key or NARROWS
        if wider:
            why = f"can't be changed so: {why}"
        elif rule != NOT_KEPT:
            # The rule's reasons are whole sentences, which name what they are about.
            why = f"{why}: {subject}" + (f" = {error.value}" if error.value else "")
        span = request.places.get(error.key, request.first)
        named = ONLY_NARROWS if wider else rule
        report.add_at(named, span, subject, why=why, remedy=error.remedy)
    return tuple(report.findings)


# --- what a narrowing takes -------------------------------------------------------------------


def guest_fields(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return the changed fields that the guest's locks or set-up enforce, not the host alone."""
    return tuple(
        key for key in changed_fields(before, after) if ROWS[key].enforced_by is not EnforcedBy.host
    )


def check_keeps_guest(before: Policy, after: Policy) -> None:
    """Raise PolicyError if a narrowing takes a new guest, so that the variables would be lost."""
    for key in guest_fields(before, after):
        if takes_new_guest(key, before, after):
            raise new_guest_error(key, "is part of what a guest is made of")


def new_guest_error(field: str, why: str) -> PolicyError:
    """Return the error for a narrowing that must say by ``--fresh`` that variables may go."""
    message = f"{why}: it takes a new guest, and your variables would be gone"
    remedy = f"Say so, %policy narrow --{FRESH} …, or narrow in the first cell."
    return PolicyError(message, key=field, remedy=remedy)


# --- notebooks ----------------------------------------------------------------------------------

#: The table in a notebook's metadata, and the keys that it may have.
NOTEBOOK_TABLE: Final = "cellblock"
KEYS: Final = ("policy",)
#: The most bytes of a notebook that is read, and of its table.
MAX_NOTEBOOK_BYTES: Final = 64 * 2**20
MAX_TABLE_BYTES: Final = 64 * 2**10
_WHERE: Final = f"metadata.{NOTEBOOK_TABLE}"
_REMEDY: Final = f"Take it out of the notebook's metadata. {ONLY_THE_POLICY}"


def narrow_for_notebook(
    metadata: Mapping[str, Any],
    base: Policy,
    *,
    file: Path,
    project: Path,
    scratch: Path | None = None,
    here: bool = True,
) -> Policy:
    """Return ``base``, narrowed as a notebook's metadata asks.

    ``file`` is the notebook's: relative paths begin in its folder. Unless cells will run ``here``,
    folders and packages need not exist. Raises PolicyError; WideningError for a change that would
    allow more. Both name the file and the key.
    """
    table = metadata.get(NOTEBOOK_TABLE)
    if table is None:
        return base
    try:
        size = len(json.dumps(table, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        raise _wrong("can't be read", file) from None
    if size > MAX_TABLE_BYTES:  # a kernel would refuse it, too
        raise _too_large(file)
    return _narrowed(table, base, Places(str(file), file.parent, project, scratch, here))


def narrow_for_file(
    file: Path, base: Policy, *, project: Path, scratch: Path | None = None
) -> tuple[Policy, str]:
    """Return ``base``, narrowed as a notebook's file asks, and a note if the file can't be read.

    A notebook that was never saved has no file, and narrows nothing. Raises PolicyError as
    ``narrow_for_notebook`` does.
    """
    try:
        table = _table(_read(file), file)
    except FileNotFoundError:
        return base, ""
    except (OSError, ValueError) as failure:
        why = getattr(failure, "strerror", None) or str(failure)
        return base, f"does not know whether {file.name} narrows the policy: {why}"
    if table is None:
        return base, ""
    return _narrowed(table, base, Places(str(file), file.parent, project, scratch)), ""


def _read(file: Path) -> bytes:
    """Return a notebook's bytes. Raises OSError or ValueError, whose texts say why not."""
    with closing(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)) as fd:
        content = read_regular(fd, MAX_NOTEBOOK_BYTES + 1)
    if content is None:
        raise ValueError("it is not a file")
    if len(content) > MAX_NOTEBOOK_BYTES:
        raise ValueError(f"it is larger than {MAX_NOTEBOOK_BYTES >> 20} MiB")
    return content


def _table(content: bytes, file: Path) -> Any:
    """Return the table in a notebook, or None. The rest of the notebook is not decoded.

    Raises ValueError for a file that is not a notebook, PolicyError for a table that can't be read.
    """
    pieces = dict[str, msgspec.Raw]
    try:
        whole = msgspec.json.decode(content, type=pieces)
        metadata = msgspec.json.decode(whole["metadata"], type=pieces)
    except (msgspec.MsgspecError, LookupError, ValueError, RecursionError):
        raise ValueError("it is not a notebook in JSON") from None
    raw = bytes(metadata.get(NOTEBOOK_TABLE, b"null"))
    if len(raw) > MAX_TABLE_BYTES:
        raise _too_large(file)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _wrong("can't be read", file) from None


def _narrowed(table: Any, base: Policy, places: Places) -> Policy:
    file = places.file
    if not isinstance(table, Mapping):
        raise _wrong("not a table", file, value=table)
    for key in table:
        if key not in KEYS:
            remedy = closest(str(key), KEYS, what="keys")
            raise _wrong("no such key", file, f"{_WHERE}.{key}", remedy=remedy)
    changes = table.get("policy", {})
    if not isinstance(changes, Mapping):
        raise _wrong("not a table", file, f"{_WHERE}.policy", changes)
    try:
        return narrow(base, changes, places=places)
    except PolicyError as error:
        wider = isinstance(error, WideningError)
        raise type(error)(
            ("a notebook can't have more than the policy: " if wider else "") + error.message,
            file=error.file,
            key=f"{_WHERE}.policy.{error.key}",
            value=error.value,
            remedy=_REMEDY if wider else error.remedy,
        ) from None


def _too_large(file: Path) -> PolicyError:
    message = f"larger than {MAX_TABLE_BYTES >> 10} KiB"
    return _wrong(message, file, remedy="A policy is a page of text.")


def _wrong(
    message: str,
    file: Path | str,
    key: str = _WHERE,
    value: object = "",
    remedy: str = "Write fields and values.",
) -> PolicyError:
    text = repr(value)[:100] if value != "" else ""
    return PolicyError(message, file=str(file), key=key, value=text, remedy=remedy)
