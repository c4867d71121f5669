"""The notebook that is written: held as bytes, cell by cell, in the form that nbformat writes.

Keys are sorted, one blank a level, texts as lists of lines: a run's file differs from a front
end's in what was run and in nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.widgets import metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMAT: Final = 4
#: Texts in a bundle that are written as lines, besides ``text/*`` (``nbformat.v4.rwbase``).
_TEXTS: Final = frozenset({"application/javascript", "image/svg+xml"})
#: Bytes of all cells as they are in the file: what Jupyter still opens. Updates write cells anew:
#: no more than this in all.
MOST_BYTES: Final = 128 << 20
MOST_WRITTEN: Final = 2 * MOST_BYTES

#: Blanks before a cell's lines in the file.
_DEPTH: Final = 2

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.decode


class TooMuchError(Exception):
    """The notebook's cells show more than is written of one."""

    def __init__(self) -> None:
        super().__init__(f"its outputs take more than {MOST_BYTES >> 20} MiB")


class Document:
    """A notebook's cells as they are written so far; ``told`` is its metadata."""

    def __init__(self, cells: Iterable[dict[str, Any]], told: dict[str, Any], minor: int) -> None:
        self._cells = [cell_bytes(cell) for cell in cells]
        self._size = self._spent = sum(map(written_size, self._cells))
        self._minor, self._metadata = minor, told
        self._widgets: dict[str, Any] = {}

    def put(self, index: int, cell: dict[str, Any]) -> bytes:
        """Write a cell anew, and return it. Raises TooMuchError; it then is as it was."""
        return self.put_bytes(index, cell_bytes(cell))

    def put_bytes(self, index: int, cell: bytes) -> bytes:
        """Write a cell as it was encoded before. Raises as ``put``."""
        new = written_size(cell)
        size = self._size + new - written_size(self._cells[index])
        if size > MOST_BYTES:
            raise TooMuchError
        self.spend(new)
        self._cells[index], self._size = cell, size
        return cell

    def spend(self, size: int) -> None:
        """Count bytes that are written. Raises TooMuchError."""
        self._spent += size
        if self._spent > MOST_WRITTEN:
            raise TooMuchError

    def take_widgets(self, rows: dict[str, Any]) -> None:
        """Take widgets that are new or changed. Raises TooMuchError."""
        if rows:
            self.spend(written_size(_encode(rows)))
            self._widgets |= rows

    def cell(self, index: int) -> dict[str, Any]:
        """Return a cell as it is written, with its texts in lines."""
        return dict(_decode(self._cells[index]))

    def compact(self) -> bytes:
        """Return the notebook as JSON in one line."""
        return _encode(
            {
                "cells": list(map(msgspec.Raw, self._cells)),
                "metadata": self._metadata | metadata(self._widgets),
                "nbformat": _FORMAT,
                "nbformat_minor": self._minor,
            }
        )

    def written(self) -> bytes:
        """Return the notebook as the content of its file."""
        return msgspec.json.format(self.compact(), indent=1) + b"\n"

    @classmethod
    def of(cls, compact: bytes) -> Document:
        """Return the document that ``compact`` was made of. Raises msgspec.DecodeError."""
        stored = msgspec.json.decode(compact, type=_Stored)
        made = cls((), stored.metadata, stored.nbformat_minor)
        made._cells = list(map(bytes, stored.cells))
        made._size = made._spent = sum(map(written_size, made._cells))
        return made


class _Stored(msgspec.Struct):
    cells: list[msgspec.Raw]
    metadata: dict[str, Any]
    nbformat_minor: int


def written_size(compact: bytes) -> int:
    """Return the bytes that a cell takes in the file: a line and its blanks for each value.

    What is nested takes many times more there than it took to send.
    """
    whole = msgspec.json.format(compact, indent=1)
    return len(whole) + _DEPTH * (whole.count(b"\n") + 1)


def cell_bytes(cell: dict[str, Any]) -> bytes:
    """Return a cell as it is written, but for blanks."""
    lines = cell | {"source": _lines(cell["source"])}
    if attachments := cell.get("attachments"):
        lines["attachments"] = {name: bundle(one) for name, one in attachments.items()}
    if "outputs" in cell:
        lines["outputs"] = list(map(output, cell["outputs"]))
    return _encode(lines)


def output(shown: dict[str, Any]) -> dict[str, Any]:
    """Return an output with its texts in lines."""
    if "data" in shown:
        return shown | {"data": bundle(shown["data"])}
    return shown | {"text": _lines(shown["text"])} if "text" in shown else shown


def bundle(data: dict[str, Any]) -> dict[str, Any]:
    """Return a mime bundle with its texts in lines."""
    return {
        mime: _lines(value) if mime.startswith("text/") or mime in _TEXTS else value
        for mime, value in data.items()
    }


def _lines(text: Any) -> Any:
    return text.splitlines(keepends=True) if isinstance(text, str) else text
