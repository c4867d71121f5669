"""The notebook that is written: held as bytes, cell by cell, its file made in pieces.

The file is in the form that nbformat writes: keys are sorted, one blank a level, texts as lists of
lines. So a run's file differs from a front end's in what was run and in nothing else.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    _JSON = msgspec.Raw | bytes
    _Form = Callable[[_JSON, int], Iterator[bytes]]


_FORMAT: Final = 4
#: Where a notebook's metadata has widgets, and of which kind.
_WIDGETS: Final = "widgets"
_STATES: Final = "application/vnd.jupyter.widget-state+json"
_VERSION: Final = {"version_major": 2, "version_minor": 0}
#: Texts in a bundle that are written as lines, besides ``text/*`` (``nbformat.v4.rwbase``).
_TEXTS: Final = frozenset({"application/javascript", "image/svg+xml"})
#: Bytes of all cells as they are in the file: what Jupyter still opens. Updates write cells anew:
#: no more than this in all.
MOST_BYTES: Final = 128 << 20
MOST_WRITTEN: Final = 2 * MOST_BYTES
#: Characters of a text that are made lines at once, and where one ends (``str.splitlines``): each
#: line takes many times more as an object.
_PART: Final = 1 << 16
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def _plain_text(value: Any) -> str:
    """Return a text of a class of its own as one. Raises TypeError for what is none."""
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return str(value)


#: As JSON in one line.
encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=_plain_text).encode
#: Values as they stand, by name or in a row: neither copied nor made anything of.
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode


class TooMuchError(Exception):
    """The notebook's cells show more than is written of one."""

    def __init__(self) -> None:
        super().__init__(f"its outputs take more than {MOST_BYTES >> 20} MiB")


class Document:
    """A notebook's cells as they are so far; ``told`` is its metadata."""

    def __init__(self, cells: Iterable[dict[str, Any]], told: dict[str, Any], minor: int) -> None:
        #: Each as JSON, with texts in one piece.
        self.cells: list[bytes] = []
        self._size = self._spent = 0
        self.minor, self.told = minor, told
        self._widgets: dict[str, Any] = {}
        self._widget_sizes: dict[str, int] = {}
        for cell in cells:
            self.add(compact(cell))

    def add(self, cell: bytes) -> None:
        """Have one more cell, however large."""
        size = written_size(cell)
        self._size += size
        self._spent += size
        self.cells.append(cell)

    def put(self, index: int, cell: dict[str, Any]) -> bytes:
        """Have a cell anew, and return it. Raises TooMuchError; it then is as it was."""
        return self.put_bytes(index, compact(cell))

    def put_bytes(self, index: int, cell: bytes) -> bytes:
        """Have a cell as it was encoded before. Raises as ``put``."""
        new = written_size(cell)
        self._spend(new, written_size(self.cells[index]))
        self.cells[index] = cell
        return cell

    def update(self, index: int, shown: dict[int, dict[str, Any]]) -> bytes:
        """Have a cell whose outputs show something else, by their places. Raises as ``put``."""
        cell: dict[str, Any] = _fields(self.cells[index])
        outputs = _items(cell["outputs"])
        for place, new in shown.items():
            outputs[place] = msgspec.Raw(encode(_fields(outputs[place]) | new))
        return self.put(index, cell | {"outputs": outputs})

    def _spend(self, new: int, old: int) -> None:
        """Count bytes that are written in the place of others. Raises TooMuchError."""
        size = self._size + new - old
        self._spent += new
        if size > MOST_BYTES or self._spent > MOST_WRITTEN:
            raise TooMuchError
        self._size = size

    def take_widgets(self, rows: dict[str, Any]) -> None:
        """Take widgets that are new or changed, by their ids. Raises TooMuchError."""
        for name, row in rows.items():
            new = sum(map(len, _value(row, 5)))
            self._spend(new, self._widget_sizes.get(name, 0))
            self._widgets[name], self._widget_sizes[name] = row, new

    def whole(self) -> bytes:
        """Return all of it as JSON."""
        told = self.told
        if self._widgets:
            told = told | {_WIDGETS: {_STATES: {"state": self._widgets, **_VERSION}}}
        return encode(
            _Stored(
                cells=list(map(msgspec.Raw, self.cells)),
                metadata=raw(told),
                nbformat_minor=self.minor,
            )
        )

    @classmethod
    def of(cls, whole: bytes) -> Document:
        """Return the document that ``whole`` was made of. Raises msgspec.DecodeError."""
        stored = msgspec.json.decode(whole, type=_Stored)
        made = cls((), stored.metadata, stored.nbformat_minor)
        for cell in stored.cells:
            made.add(bytes(cell))
        return made

    def written(self) -> Iterator[bytes]:
        """Return the content of its file in pieces, none of which is larger than a value."""
        yield b'{\n "cells": '
        yield from _group(b"[]", (_cell(cell, 2) for cell in self.cells), 1)
        yield b',\n "metadata": '
        yield from self._written_metadata()
        yield b',\n "nbformat": %d,\n "nbformat_minor": %d\n}\n' % (_FORMAT, self.minor)

    def _written_metadata(self) -> Iterator[bytes]:
        told = {name: _value(value, 2) for name, value in self.told.items()}
        if self._widgets:
            rows = {name: _value(row, 5) for name, row in self._widgets.items()}
            version = {name: _value(value, 4) for name, value in _VERSION.items()}
            told[_WIDGETS] = _object(
                {_STATES: _object({"state": _object(rows, 4), **version}, 3)}, 2
            )
        yield from _object(told, 1)


class _Stored(msgspec.Struct):
    cells: list[msgspec.Raw]
    metadata: dict[str, msgspec.Raw]
    nbformat_minor: int


def compact(value: Any) -> bytes:
    """Return a value as JSON that is to be held: an encoder leaves room for half as much again."""
    return bytes(memoryview(encode(value)))


def raw(values: dict[str, Any]) -> dict[str, msgspec.Raw]:
    """Return values as JSON, each by its name."""
    return {name: msgspec.Raw(encode(value)) for name, value in values.items()}


def written_size(cell: bytes) -> int:
    """Return the bytes that a cell takes in the file, or more than there may be.

    What is nested takes many times more there than it took to send: a line and its blanks for each
    value.
    """
    size = 0
    for piece in _cell(cell, 2):
        size += len(piece)
        if size > MOST_BYTES:
            break
    return size


# --- the form of the file: each takes JSON, and yields what it is at so many blanks ------------


def _value(value: Any, depth: int) -> Iterator[bytes]:
    """Yield a value that is no JSON yet; it is made when it is asked for."""
    yield from _plain(encode(value), depth)


def _plain(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield it with a line for each value in it."""
    made = msgspec.json.format(value, indent=1)
    yield made.replace(b"\n", b"\n" + b" " * depth)  # no text has one


def _lines(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield a text as a list of its lines."""
    if bytes(memoryview(value)[:1]) != b'"':
        yield from _plain(value, depth)
        return
    text, start, blanks = _text(value), 0, b"\n" + b" " * depth
    yield b"["
    while start < len(text):
        found = _LINE_END.search(text, start + _PART)
        end = found.end() if found else len(text)
        lines = encode(text[start:end].splitlines(keepends=True))
        made = msgspec.json.format(lines, indent=1)[1:-2]
        yield (b"," if start else b"") + made.replace(b"\n", blanks)
        start = end
    yield blanks + b"]" if text else b"]"


def _members(value: _JSON, depth: int, form_of: Callable[[str], _Form]) -> Iterator[bytes]:
    """Yield an object, each member in a form by its name."""
    made = {name: form_of(name)(one, depth + 1) for name, one in _fields(value).items()}
    yield from _object(made, depth)


def _object(members: dict[str, Iterator[bytes]], depth: int) -> Iterator[bytes]:
    made = (chain((encode(name), b": "), one) for name, one in sorted(members.items()))
    yield from _group(b"{}", made, depth)


def _group(ends: bytes, parts: Iterable[Iterable[bytes]], depth: int) -> Iterator[bytes]:
    """Yield what is between a pair of brackets, a line or more for each part."""
    between, blanks = ends[:1], b"\n" + b" " * depth
    for part in parts:
        yield between + blanks + b" "
        yield from part
        between = b","
    yield ends if between == ends[:1] else blanks + ends[1:]


def _cell(value: _JSON, depth: int) -> Iterator[bytes]:
    forms = {"source": _lines, "outputs": _outputs, "attachments": _attachments}
    yield from _members(value, depth, lambda name: forms.get(name, _plain))


def _outputs(value: _JSON, depth: int) -> Iterator[bytes]:
    yield from _group(b"[]", (_output(one, depth + 1) for one in _items(value)), depth)


def _output(value: _JSON, depth: int) -> Iterator[bytes]:
    forms = {"text": _lines, "data": _bundle}
    yield from _members(value, depth, lambda name: forms.get(name, _plain))


def _attachments(value: _JSON, depth: int) -> Iterator[bytes]:
    yield from _members(value, depth, lambda _: _bundle)


def _bundle(value: _JSON, depth: int) -> Iterator[bytes]:
    yield from _members(
        value, depth, lambda mime: _lines if mime.startswith("text/") or mime in _TEXTS else _plain
    )
