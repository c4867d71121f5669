"""Requests to narrow a policy: by ``%policy narrow`` on one line, by a cell, by a notebook.

A line is read as follows.

Grammar::

    line       = { option | assignment [","] } [ "#" comment ]
    option     = "--" name
    assignment = key "=" value
    key        = name [ "." name ]
    value      = a TOML value that fits on the line

What a value is, TOML's own reader says of that value alone: nothing else can be said with one.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import Report
from cellblock.analysis.magics import NARROWS, SHOWS_POLICY
from cellblock.errors import PolicyError, WideningError
from cellblock.policy.load import closest
from cellblock.policy.narrowing import TABLE, Home, changed, narrow
from cellblock.policy.paths import Places

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.policy.model import Policy


_KEY: Final = re.compile(r"([A-Za-z]\w*(?:\.[A-Za-z]\w*)?)[ \t]*=[ \t]*", re.ASCII)
_OPTION: Final = re.compile(r"--([a-z]+)(?=[\s,#]|$)")
_WORD: Final = re.compile(r"[^\s,#\[\]{}\"']+")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_NEXT: Final = re.compile(r"[^\s,]*")
_STRING: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_OPEN: Final = {"[": "]", "{": "}"}
#: Characters of a line that is looked at: a policy is a page of text, a line less.
LONGEST: Final = 20_000
_AS: Final = 'Write it as in a policy file: timeout=10, filesystem_write_roots=["work"].'


class UnreadableError(ValueError):
    """A place in a line that is no change to a policy; columns count characters from 0."""

    def __init__(self, message: str, column: int, end: int, remedy: str = _AS) -> None:
        self.message, self.column, self.end, self.remedy = message, column, end, remedy
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A key, dotted or not, its value, and where the key stands."""

    key: str
    value: Any
    column: int
    end: int


def read(line: str, at: int = 0) -> tuple[tuple[Assignment, ...], frozenset[str]]:
    """Return the assignments from column ``at`` on, and the options' names.

    Raises UnreadableError for the first thing that is neither.
    """
    if len(line) > LONGEST:
        raise UnreadableError(f"is longer than {LONGEST:,} characters", at, at + 1)
    found, options = list[Assignment](), set[str]()
    at = _skip(line, at)
    while at < len(line) and line[at] != "#":
        if option := _OPTION.match(line, at):
            options.add(option[1])
            at = option.end()
        else:
            one, at = _assignment(line, at)
            found.append(one)
        at = _next(line, at)
    return tuple(found), frozenset(options)


def _skip(line: str, at: int) -> int:
    between = _BETWEEN.match(line, at)
    return between.end() if between else at


def _next(line: str, at: int) -> int:
    """Return where the next thing begins; a value ends in a blank, a comma or the line's end."""
    if at < len(line) and line[at] not in " \t,#":
        raise _unreadable(line, at)
    return _skip(line, at)


def _assignment(line: str, at: int) -> tuple[Assignment, int]:
    key = _KEY.match(line, at)
    if key is None:
        raise _unreadable(line, at)
    end = _end_of_value(line, key.end())
    value = _value(line, key.end(), end)
    return Assignment(key[1], value, key.start(1), key.end(1)), end


def _end_of_value(line: str, at: int) -> int:
    if line[at : at + 1] in _OPEN:
        return _end_of_brackets(line, at)
    found = _STRING.match(line, at) or _WORD.match(line, at)
    if found is None:
        raise _unreadable(line, at)
    return found.end()


def _end_of_brackets(line: str, start: int) -> int:
    closing, at = list[str](), start
    while at < len(line):
        if string := _STRING.match(line, at):
            at = string.end()
            continue
        if line[at] in _OPEN:
            closing.append(_OPEN[line[at]])
        elif closing and line[at] == closing[-1]:
            closing.pop()
        at += 1
        if not closing:
            return at
    raise UnreadableError("a bracket is not closed on this line", start, start + 1)


def _value(line: str, start: int, end: int) -> Any:
    text = line[start:end]
    try:
        if not text.isprintable():
            raise ValueError(text)  # noqa: TRY301 - no value, either
        found = tomllib.loads(f"value = {text}")["value"]
        if _is_deep(found):
            raise ValueError(text)  # noqa: TRY301 - no value, either
        json.dumps(found, default=str)  # too long a number is none, either
        return found  # noqa: TRY300 - read whole
    except (ValueError, RecursionError):
        remedy = f"{_PYTHONS[text]}, as TOML has it." if text in _PYTHONS else _AS
        raise UnreadableError("is no TOML value", start, end, remedy) from None


def _is_deep(value: Any, left: int = 8) -> bool:
    """Say whether a value is nested deeper than any field's."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left == 0 or any(_is_deep(part, left - 1) for part in parts)


_PYTHONS: Final = {"True": "true", "False": "false", "None": '"none"'}


def _unreadable(line: str, at: int) -> UnreadableError:
    word = _NEXT.match(line, at)
    end = max(at + 1, word.end() if word else at)
    return UnreadableError("is neither key=value nor an option", at, end)


# ``%policy narrow`` by itself: what a cell asks of the policy, before and without a guest.
#
# A cell of such lines, blank ones and comments is never sent anywhere. Whatever else a cell
# says, a narrowing in it is refused like any other argument that its magic does not take. PURE:
# the kernel puts in force what is asked for here, and ``cellblock check`` judges by it.

_LINE: Final = re.compile(rf"[ \t]*%{SHOWS_POLICY}[ \t]+{NARROWS}(?![^ \t])")
_NOTHING: Final = re.compile(r"[ \t]*(?:#.*)?")
_BREAK: Final = re.compile(r"\r\n|\r|\n")
#: Lines that are read.
MOST_LINES: Final = 50
#: The option that has a new guest started, whatever the one that there is has.
FRESH: Final = "fresh"

ONLY_NARROWS: Final = "policy-only-narrows"
NOT_KEPT: Final = "narrowing-not-kept"
_ARGUMENT: Final = "argument-not-allowed"


@dataclass(slots=True)
class Asked:
    """What a cell asks for: changes to the policy, and where each key stands in it."""

    changes: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    fresh: bool = False
    #: The first line, for what is wrong with no key.
    first: tuple[int, int, int] = (1, 0, 1)


def is_alone(cell: str) -> bool:
    """Say whether a cell narrows the policy and does nothing else."""
    lines = [line for line in _BREAK.split(cell) if not _NOTHING.fullmatch(line)]
    return bool(lines) and all(map(_LINE.match, lines))


def read_cell(cell: str, rules: Rules) -> tuple[Asked, tuple[Finding, ...]]:
    """Return what a cell that ``is_alone`` asks for, and what of it can't be read."""
    asked, report = Asked(), Report(source=cell, rules=rules)
    lines = enumerate(_BREAK.split(cell), start=1)
    found = [(number, line, start) for number, line in lines if (start := _LINE.match(line))]
    number, _, start = found[0]
    asked.first = number, start.end() - len(NARROWS), start.end()
    for number, line, start in found[:MOST_LINES]:
        _read_line(line, number, start.end(), asked, report)
    if len(found) > MOST_LINES:
        why = f"is there more than {MOST_LINES} times"
        report.add_at(_ARGUMENT, asked.first, NARROWS, why=why, remedy="Say it in fewer lines.")
    elif not (asked.changes or report.findings):
        why = "says nothing of what is to be narrowed"
        report.add_at(_ARGUMENT, asked.first, NARROWS, why=why, remedy="Write key=value.")
    return asked, tuple(report.findings)


def _read_line(line: str, number: int, at: int, asked: Asked, report: Report) -> None:
    try:
        found, options = read(line, at)
    except UnreadableError as error:
        span = (number, error.column, error.end)
        subject = line[error.column : error.end]
        report.add_at(_ARGUMENT, span, subject, why=error.message, remedy=error.remedy)
        return
    asked.fresh = asked.fresh or FRESH in options
    for option in sorted(options - {FRESH}):
        why, remedy = f"there is no option --{option}", f"There is --{FRESH}."
        report.add_at(_ARGUMENT, (number, at, len(line)), f"--{option}", why=why, remedy=remedy)
    for one in found:
        span = (number, one.column, one.end)
        if not _put(asked, one, span):
            report.add_at(_ARGUMENT, span, one.key, why="is said twice", remedy="Say it once.")


def _put(asked: Asked, one: Assignment, span: tuple[int, int, int]) -> bool:
    """Take note of an assignment; say whether its key is there once, and is no table besides."""
    head, _, name = one.key.partition(".")
    asked.places[one.key] = span
    if not name:
        fresh = head not in asked.changes
        asked.changes[head] = one.value
        return fresh
    asked.places.setdefault(head, span)
    table = asked.changes.setdefault(head, {})
    if not isinstance(table, dict) or name in table:
        return False
    table[name] = one.value
    return True


def explained(
    errors: tuple[PolicyError, ...], asked: Asked, cell: str, rules: Rules
) -> tuple[Finding, ...]:
    """Return what is wrong with a cell's changes, as findings in it."""
    report = Report(source=cell, rules=rules)
    for error in errors:
        wider = isinstance(error, WideningError)
        why = error.message if not error.value or wider else f"{error.message}: {error.value}"
        span = asked.places.get(error.key, asked.first)
        rule = ONLY_NARROWS if wider else _ARGUMENT
        report.add_at(rule, span, error.key, why=why, remedy=error.remedy)
    return tuple(report.findings)


def not_kept(error: PolicyError, asked: Asked, cell: str, rules: Rules) -> tuple[Finding, ...]:
    """Return why a narrower policy can't be put in force, as a finding in the cell."""
    report = Report(source=cell, rules=rules)
    span = asked.places.get(error.key, asked.first)
    subject = error.key or NARROWS
    report.add_at(NOT_KEPT, span, subject, why=error.message, remedy=error.remedy)
    return tuple(report.findings)


# --- what it takes ----------------------------------------------------------------------------


def of_guests(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return the fields that a guest has a part in, of those in which a policy has become less."""
    return tuple(key for key in changed(before, after) if TABLE[key].home is not Home.host)


def check_keeps_guest(before: Policy, after: Policy) -> None:
    """Raise PolicyError where only a new guest has what is less: that would cost the variables."""
    for key in of_guests(before, after):
        if TABLE[key].home is Home.guest or TABLE[key].anew(before, after):
            raise costly(key, "is part of what a guest is made of")


def costly(field: str, why: str) -> PolicyError:
    """Return why a narrowing has to say that the variables may go."""
    return PolicyError(
        f"{why}: it takes a new guest, and your variables would be gone",
        file="",
        key=field,
        value="",
        remedy=f"Say so, %policy narrow --{FRESH} …, or narrow in the first cell.",
    )


# What a notebook says of its own policy, in its metadata: less than the kernel's, never more.
#
# ``metadata.cellblock.policy`` is a table such as ``timeout = 10, network_access = false``.
#
# The table holds what ``narrowing.narrow`` takes. Whoever runs a notebook hands it to
# ``of_notebook``; a kernel looks for the file that it was started for, since no front end sends
# what is in it.

#: The table in a notebook's metadata, and all that is understood in it.
NOTEBOOK_TABLE: Final = "cellblock"
KEYS: Final = ("policy",)
#: Bytes of a notebook that is looked through, and of what it may say of its policy.
MAX_NOTEBOOK_BYTES: Final = 64 * 2**20
MAX_TABLE_BYTES: Final = 64 * 2**10
_SUFFIX: Final = ".ipynb"
_WHERE: Final = f"metadata.{NOTEBOOK_TABLE}"
_REMEDY: Final = "Take it out of the notebook's metadata: only the operator can allow more."


def of_notebook(
    notebook: Mapping[str, Any],
    base: Policy,
    *,
    file: Path,
    project: Path,
    scratch: Path | None = None,
    here: bool = True,
) -> Policy:
    """Return ``base``, narrower where a notebook (as nbformat or ``json`` read it) asks for that.

    ``file`` is where it lies: relative paths begin there. Where nothing is to run ``here``, neither
    folders nor packages need be. Raises PolicyError, WideningError for what would allow more; both
    name the file and the key.
    """
    own = asked_of(notebook)
    if own is None:
        return base
    _check_size(own, file)
    return _narrowed(own, base, Places(str(file), file.parent, project, scratch, here), file)


def asked_of(notebook: Mapping[str, Any]) -> Any:
    """Return what a notebook has in our place of its metadata, whatever it is; None for nothing."""
    metadata = notebook.get("metadata")
    return metadata.get(NOTEBOOK_TABLE) if isinstance(metadata, Mapping) else None


def of_file(
    file: Path, base: Policy, *, project: Path, scratch: Path | None = None
) -> tuple[Policy, str]:
    """Return what ``of_notebook`` does of a file, and why that can't be told, where it can't.

    There is none yet for a notebook that was never saved. Raises PolicyError as ``of_notebook``.
    """
    content, why = _read(file)
    if content is None:
        return base, why
    own, why = _table(content, file)
    if own is None or why:
        return base, why
    return _narrowed(own, base, Places(str(file), file.parent, project, scratch), file), ""


def _narrowed(own: Any, base: Policy, places: Places, file: Path) -> Policy:
    changes = _changes(own, file)
    try:
        return narrow(base, changes, places=places)
    except PolicyError as error:
        wider = isinstance(error, WideningError)
        raise type(error)(
            f"a notebook can't have more than the policy: {error.message}"
            if wider
            else error.message,
            file=error.file,
            key=f"{_WHERE}.policy.{error.key}",
            value=error.value,
            remedy=_REMEDY if wider else error.remedy,
        ) from None


def _changes(own: Any, file: Path) -> Mapping[str, Any]:
    if not isinstance(own, Mapping):
        raise _wrong("not a table", file, _WHERE, own)
    for key in own:
        if key not in KEYS:
            remedy = closest(str(key), KEYS, what="keys")
            raise _wrong("no such key", file, f"{_WHERE}.{key}", "", remedy)
    changes = own.get("policy", {})
    if not isinstance(changes, Mapping):
        raise _wrong("not a table", file, f"{_WHERE}.policy", changes)
    return changes


def _check_size(own: Any, file: Path) -> None:
    """Raise PolicyError for what no kernel would read, either."""
    try:
        size = len(json.dumps(own, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        raise _wrong("can't be read", file, _WHERE, "") from None
    if size > MAX_TABLE_BYTES:
        raise _too_large(file)


def _too_large(file: Path) -> PolicyError:
    what = f"larger than {MAX_TABLE_BYTES >> 10} KiB"
    return _wrong(what, file, _WHERE, "", "A policy is a page of text.")


def _wrong(
    message: str, file: Path, key: str, value: object, remedy: str = "Write fields and values."
) -> PolicyError:
    shown = repr(value)[:100] if value != "" else ""
    return PolicyError(message, file=str(file), key=key, value=shown, remedy=remedy)


# --- the file ---------------------------------------------------------------------------------


def _read(file: Path) -> tuple[bytes | None, str]:
    """Return a notebook's bytes, or None and why; nobody has to save one before it runs."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as failure:
        return None, _unread(file, getattr(failure, "strerror", None) or str(failure))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None, _unread(file, "it is no file")
        with open(fd, "rb", closefd=False) as opened:
            content = opened.read(MAX_NOTEBOOK_BYTES + 1)
    except OSError as failure:
        return None, _unread(file, failure.strerror or str(failure))
    finally:
        os.close(fd)
    if len(content) > MAX_NOTEBOOK_BYTES:
        return None, _unread(file, f"it is larger than {MAX_NOTEBOOK_BYTES >> 20} MiB")
    return content, ""


def _table(content: bytes, file: Path) -> tuple[Any, str]:
    """Return the table, None where there is none; nothing else in the file is made a value."""
    import msgspec  # noqa: PLC0415 - few kernels get here

    pieces = dict[str, msgspec.Raw]
    try:
        whole = msgspec.json.decode(content, type=pieces)
        raw = bytes(
            msgspec.json.decode(whole["metadata"], type=pieces).get(NOTEBOOK_TABLE, b"null")
        )
    except (msgspec.MsgspecError, LookupError, ValueError, RecursionError):
        return None, _unread(file, "it is no notebook in JSON")
    if len(raw) > MAX_TABLE_BYTES:
        raise _too_large(file)
    try:
        return msgspec.json.decode(raw), ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _wrong("can't be read", file, _WHERE, "") from None


def _unread(file: Path, why: str) -> str:
    return f"does not know whether {file.name} narrows the policy: {why}"
