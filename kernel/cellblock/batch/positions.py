"""Where the lines of cells stand in a notebook's file: what editors and reviewers are shown.

Asked only of notebooks with findings, whose text is known to be JSON: nothing is checked here.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
