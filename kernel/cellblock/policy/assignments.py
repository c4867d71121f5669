"""Changes to a policy on one line, as ``%policy narrow`` takes them.

Grammar::

    line       = { option | assignment [","] } [ "#" comment ]
    option     = "--" name
    assignment = key "=" value
    key        = name [ "." name ]
    value      = a TOML value that fits on the line

What a value is, TOML's own reader says of that value alone: nothing else can be said with one.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any, Final

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
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        remedy = f"{_PYTHONS[text]}, as TOML has it." if text in _PYTHONS else _AS
        raise UnreadableError("is no TOML value", start, end, remedy) from None


_PYTHONS: Final = {"True": "true", "False": "false", "None": '"none"'}


def _unreadable(line: str, at: int) -> UnreadableError:
    word = _NEXT.match(line, at)
    end = max(at + 1, word.end() if word else at)
    return UnreadableError("is neither key=value nor an option", at, end)
