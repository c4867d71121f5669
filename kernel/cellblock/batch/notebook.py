"""Bytes to cells, as nbformat reads them for every runner: no other reading may tell them apart.

JSON is what Python's ``json`` takes, NaN included. What two readers may take for two things is
refused: a key twice in one object, a version that is no number, a cell of an unknown type.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_FORMAT: Final = 4
_CELL_TYPES: Final = frozenset({"code", "markdown", "raw"})
#: Declared encodings of scripts under which UTF-8 reads what Python reads.
_AS_UTF8: Final = frozenset({"ascii", "us-ascii", "utf-8", "utf-8-sig"})


class UnreadableError(Exception):
    """Not a notebook, or not a script. ``line`` and ``column`` as in a finding."""

    def __init__(self, why: str, *, line: int = 1, column: int = 0, cell: int = 0) -> None:
        self.why, self.line, self.column, self.cell = why, line, column, cell
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell; ``number`` counts cells of all types from 1."""

    number: int
    source: str


@dataclass(frozen=True, slots=True)
class Notebook:
    """The code cells of a notebook, its metadata, and its text if that is where they stand."""

    cells: tuple[Cell, ...]
    metadata: dict[str, Any]
    text: str


def read_notebook(content: bytes) -> Notebook:
    """Return what runners take from a notebook. Raises UnreadableError, MemoryError."""
    text = _decoded(content)
    data = _parsed(text)
    major = data.get("nbformat", 1)
    if type(major) is not int:
        raise UnreadableError("says no number of a format (nbformat)")
    if major > _FORMAT:
        raise UnreadableError(f"is of format {major}, and formats up to {_FORMAT} are known")
    current = data if major == _FORMAT else _upgraded(text)
    cells, metadata = current.get("cells"), current.get("metadata", {})
    if not isinstance(cells, list) or not isinstance(metadata, dict):
        raise UnreadableError("is no notebook: it has no list of cells")
    found = (_cell(number, cell) for number, cell in enumerate(cells, 1))
    return Notebook(tuple(filter(None, found)), metadata, text if current is data else "")


def read_script(content: bytes) -> str:
    """Return a script's text, as Python reads it. Raises UnreadableError."""
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        raise UnreadableError(f"is no text: {error.msg}") from None
    if declared not in _AS_UTF8:
        raise UnreadableError(f"declares the encoding {declared}, and only UTF-8 is read")
    return _decoded(content.removeprefix(b"\xef\xbb\xbf"))


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError("is no UTF-8 text", line=line) from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        why = f"is no JSON: {error.msg}"
        raise UnreadableError(why, line=error.lineno, column=error.colno - 1) from None
    except ValueError as error:  # a number of thousands of digits
        raise UnreadableError(f"is no JSON that Python reads: {error}") from None
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    if not isinstance(data, dict):
        raise UnreadableError("is no notebook: it is no JSON object")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    keys = Counter(key for key, _ in pairs)
    twice = keys.most_common(1)[0][0][:40]
    raise UnreadableError(f'has the key "{twice}" twice in one object')


def _upgraded(text: str) -> dict[str, Any]:
    """Return a notebook of an older format as nbformat makes it one of today's."""
    import nbformat  # noqa: PLC0415 - few are that old

    try:
        return nbformat.reads(text, as_version=_FORMAT)  # type: ignore[no-any-return, no-untyped-call]
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - it trusts what it reads, and fails in any way
        raise UnreadableError("is of an older format, and nbformat can't read it") from None


def _cell(number: int, cell: Any) -> Cell | None:
    """Return a code cell; None for one that no runner runs."""
    kind = cell.get("cell_type") if isinstance(cell, dict) else None
    if not isinstance(kind, str) or kind not in _CELL_TYPES:
        raise UnreadableError("is of no known type", cell=number)
    if kind != "code":
        return None
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise UnreadableError("has no text as its source", cell=number)
    return Cell(number, source)


# Where the lines of cells stand in a notebook's file: what editors and reviewers are shown.
#
# Asked only of notebooks with findings, whose text is known to be JSON: nothing is checked here.

_SPACE: Final = re.compile(r"[ \t\n\r]*")
LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Places:
    """The places of all sources in the text of one notebook, of format 4."""

    def __init__(self, text: str) -> None:
        self._cells = list(_cells(_Reader(text))) if text else []

    def file_line(self, cell: int, line: int) -> int:
        """Return where a cell's line stands, 0 where that is not known; all count from 1."""
        if not 0 < cell <= len(self._cells) or not self._cells[cell - 1]:
            return 0
        parts = self._cells[cell - 1]
        ends = list(accumulate(len(text) for _, text in parts))
        source = "".join(text for _, text in parts)
        starts = [0, *(match.end() for match in LINE_END.finditer(source))]
        start = starts[min(line, len(starts)) - 1]
        return parts[min(bisect_right(ends, start), len(parts) - 1)][0]


def place_of(text: str, keys: Sequence[str]) -> tuple[int, int, int]:
    """Return where the last of nested ``keys`` that is there stands in a notebook's text.

    Its line, from 1, and its columns there. Without a text, or any of the keys, that is the start.
    """
    found = (1, 0, 1)
    reader = _Reader(text) if text else None
    for key in keys:
        place = reader.enter(key) if reader is not None else None
        if place is None:
            break
        found = place
    return found


def _cells(reader: _Reader) -> Iterator[list[tuple[int, str]]]:
    """Yield of each cell the strings of its source, with their lines."""
    for key in reader.members():
        if key != "cells":
            reader.value()
            continue
        for _ in reader.items():
            yield _source(reader)


def _source(reader: _Reader) -> list[tuple[int, str]]:
    found = list[tuple[int, str]]()
    for key in reader.members():
        if key == "source" and reader.begins_list():
            found += [(reader.line(), str(reader.value())) for _ in reader.items()]
        else:
            line, value = reader.line(), reader.value()
            found += [(line, str(value))] if key == "source" else []
    return found


class _Reader:
    """A place in a JSON text that moves on. Whoever is given a key or an item reads its value."""

    def __init__(self, text: str) -> None:
        self._text, self._decode = text, json.JSONDecoder().raw_decode
        self._at = self._counted = 0
        self._line = 1
        #: Where the last key began and ended.
        self._key = (0, 0)
        self._space()

    def line(self) -> int:
        """Return the line of this place, from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def begins_list(self) -> bool:
        """Say whether a list is next."""
        return self._text[self._at] == "["

    def value(self) -> Any:
        """Read a value whole."""
        value, self._at = self._decode(self._text, self._at)
        return value

    def members(self) -> Iterator[str]:
        """Yield the keys of an object, each when its value is next."""
        for _ in self.items():
            start = self._at
            key = self.value()
            self._key = start, self._at
            self._space()
            self._at += 1  # a colon
            self._space()
            yield key

    def enter(self, key: str) -> tuple[int, int, int] | None:
        """Move to an object's member, and return where its key stands; None where there is none."""
        if self._text[self._at] != "{":
            return None
        for name in self.members():
            if name == key:
                start, end = self._key
                begins = self._text.rfind("\n", 0, start) + 1
                return self._text.count("\n", 0, start) + 1, start - begins, end - begins
            self.value()
        return None

    def items(self) -> Iterator[None]:
        """Yield once for each item of a list, when it is next."""
        self._at += 1
        self._space()
        while self._text[self._at] not in "]}":
            yield
            self._space()
            if self._text[self._at] == ",":
                self._at += 1
                self._space()
        self._at += 1

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
