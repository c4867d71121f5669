"""The notebook that a run writes: cells held as bytes, and a file made from them in pieces.

The file has exactly the form that nbformat writes: keys sorted, one blank for each level, texts as
lists of lines. So it differs from a front end's file only by what was run. nbformat's own writer is
not used, because it holds the whole notebook as Python objects, twice
(docs/adr/0049-check-and-run.md).
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
#: The keys under which a notebook's metadata has the states of widgets.
_WIDGETS: Final = "widgets"
_STATES: Final = "application/vnd.jupyter.widget-state+json"
_VERSION: Final = {"version_major": 2, "version_minor": 0}
#: Bytes of all cells in the file: Jupyter still opens a file of this size.
MAX_BYTES: Final = 128 << 20
#: Bytes that are written in all. It is more, because updates of displays write cells again.
MAX_WRITTEN: Final = 2 * MAX_BYTES


def _plain_text(value: Any) -> str:
    """Return a string of a subclass of ``str`` as a ``str``. Raise TypeError for other values."""
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return str(value)


#: Encodes a value as JSON in one line.
encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=_plain_text).encode
#: Decode JSON one level deep: the values in it stay JSON.
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode


def compact(value: Any) -> bytes:
    """Return a value as JSON that takes no more memory than it has bytes.

    The encoder's own result has half as much room again at its end.
    """
    return bytes(memoryview(encode(value)))


def raw(values: dict[str, Any]) -> dict[str, msgspec.Raw]:
    """Return values as JSON, by name."""
    return {name: msgspec.Raw(encode(value)) for name, value in values.items()}


class TooMuchOutputError(ValueError):
    """The error for a notebook whose cells show more than is written of one notebook."""

    def __init__(self) -> None:
        super().__init__(f"its outputs take more than {MAX_BYTES >> 20} MiB")


def _within_bound(values: Iterable[bytes]) -> list[msgspec.Raw]:
    """Return JSON values as a list. Raise TooMuchOutputError as soon as they exceed the bound.

    ``values`` is an iterator that makes them, so no more is made then. A value takes at least as
    many bytes in the file.
    """
    values_kept = list[msgspec.Raw]()
    size = 0
    for value in values:
        size += len(value)
        if size > MAX_BYTES:
            raise TooMuchOutputError
        values_kept.append(msgspec.Raw(value))
    return values_kept


class _Stored(msgspec.Struct):
    """A document as `Document.to_bytes` encodes it."""

    cells: list[msgspec.Raw]
    metadata: dict[str, msgspec.Raw]
    nbformat_minor: int


class Document:
    """A notebook that is being written: its cells so far, its widgets and its metadata."""

    def __init__(
        self, cells: Iterable[dict[str, Any]], metadata: dict[str, Any], minor: int
    ) -> None:
        #: Each cell as JSON, with texts in one piece.
        self.cells: list[bytes] = []
        self.minor = minor
        self.metadata = metadata
        #: Bytes of the file, and bytes that were written in all.
        self._size = self._total = 0
        self._widgets: dict[str, Any] = {}
        self._widget_sizes: dict[str, int] = {}
        for cell in cells:
            self.add(compact(cell))

    def add(self, cell: bytes) -> None:
        """Add a cell. It is counted, but not refused: it is the notebook's own."""
        size = written_size(cell)
        self._size += size
        self._total += size
        self.cells.append(cell)

    def put(self, index: int, body: dict[str, Any]) -> None:
        """Replace a cell. If it is too large, raise TooMuchOutputError and replace nothing.

        Outputs are encoded and counted one by one, because a thousand displays may share one text
        in memory.
        """
        if "outputs" in body:
            body = body | {"outputs": _within_bound(map(compact, body["outputs"]))}
        cell = compact(body)
        self._count(written_size(cell), written_size(self.cells[index]))
        self.cells[index] = cell

    def update(self, index: int, changes: dict[int, dict[str, Any]]) -> None:
        """Change outputs of a cell: ``changes`` has new fields by position. Raise like `put`."""
        cell: dict[str, Any] = _fields(self.cells[index])
        outputs = _items(cell["outputs"])
        new_outputs = (
            _fields(output) | changes[position] if position in changes else output
            for position, output in enumerate(outputs)
        )
        self.put(index, cell | {"outputs": new_outputs})

    def take_widgets(self, widgets: dict[str, Any]) -> None:
        """Add or replace widgets, by their ids. Raise TooMuchOutputError."""
        for name, widget in widgets.items():
            new = sum(map(len, _value(widget, 5)))
            self._count(new, self._widget_sizes.get(name, 0))
            self._widgets[name], self._widget_sizes[name] = widget, new

    def _count(self, new: int, old: int) -> None:
        """Count ``new`` bytes that replace ``old`` ones. Raise TooMuchOutputError at a bound."""
        size = self._size + new - old
        self._total += new
        if size > MAX_BYTES or self._total > MAX_WRITTEN:
            raise TooMuchOutputError
        self._size = size

    def to_bytes(self) -> bytes:
        """Return the whole document as JSON."""
        metadata = self.metadata
        if self._widgets:
            metadata = metadata | {_WIDGETS: {_STATES: {"state": self._widgets, **_VERSION}}}
        return encode(_Stored(list(map(msgspec.Raw, self.cells)), raw(metadata), self.minor))

    @classmethod
    def from_bytes(cls, content: bytes) -> Document:
        """Return the document that `to_bytes` encoded. Raise msgspec.DecodeError."""
        stored = msgspec.json.decode(content, type=_Stored)
        document = cls((), stored.metadata, stored.nbformat_minor)
        for cell in stored.cells:
            document.add(bytes(cell))
        return document

    def file_content(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces, each no larger than a value in it."""
        metadata = {name: _value(value, 2) for name, value in self.metadata.items()}
        if self._widgets:
            rows = {name: _value(row, 5) for name, row in self._widgets.items()}
            version = {name: _value(value, 4) for name, value in _VERSION.items()}
            states = _object({"state": _object(rows, 4), **version}, 3)
            metadata[_WIDGETS] = _object({_STATES: states}, 2)
        yield b'{\n "cells": '
        yield from _group(b"[]", (_cell(cell, 2) for cell in self.cells), 1)
        yield b',\n "metadata": '
        yield from _object(metadata, 1)
        yield b',\n "nbformat": %d,\n "nbformat_minor": %d\n}\n' % (_FORMAT, self.minor)


# --- the form of the file: each function takes JSON, and yields it as it is written at a depth ----

#: Types in a bundle that are written as lists of lines, besides ``text/*``
#: (``nbformat.v4.rwbase``).
_TEXTS: Final = frozenset({"application/javascript", "image/svg+xml"})
#: Characters of a text that are split into lines at a time: as an object, each line takes many
#: times more memory.
_PART: Final = 1 << 16
#: The ends of lines, as ``str.splitlines`` has them.
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def written_size(cell: bytes) -> int:
    """Return the bytes that a cell takes in the file, counted up to `MAX_BYTES` and a piece.

    Nested values take many times more there than on the wire: each has a line, with its blanks.
    """
    size = 0
    for piece in _cell(cell, 2):
        size += len(piece)
        if size > MAX_BYTES:
            break
    return size


def _value(value: Any, depth: int) -> Iterator[bytes]:
    """Yield a Python value, which is encoded only when the first piece is needed."""
    yield from _plain(encode(value), depth)


def _plain(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield JSON with a line for each value in it."""
    formatted = msgspec.json.format(value, indent=1)
    # Newlines in strings are escaped, so each of these begins a line of the form.
    yield formatted.replace(b"\n", b"\n" + b" " * depth)


def _lines(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield a text as a list of its lines."""
    if bytes(memoryview(value)[:1]) != b'"':
        yield from _plain(value, depth)
        return
    text = _text(value)
    start = 0
    blanks = b"\n" + b" " * depth
    yield b"["
    while start < len(text):
        line_end = _LINE_END.search(text, start + _PART)
        end = line_end.end() if line_end else len(text)
        lines = encode(text[start:end].splitlines(keepends=True))
        formatted = msgspec.json.format(lines, indent=1)[1:-2]  # without its brackets
        yield (b"," if start else b"") + formatted.replace(b"\n", blanks)
        start = end
    yield blanks + b"]" if text else b"]"


def _members(value: _JSON, depth: int, form_of: Callable[[str], _Form | None]) -> Iterator[bytes]:
    """Yield an object. ``form_of`` returns the function that yields the member of a name.

    A member without a function is yielded by ``_plain``.
    """
    members = _fields(value).items()
    yield from _object(
        {name: (form_of(name) or _plain)(member, depth + 1) for name, member in members}, depth
    )


def _object(members: dict[str, Iterator[bytes]], depth: int) -> Iterator[bytes]:
    """Yield an object from its members' values, by name."""
    parts = (chain((encode(name), b": "), value) for name, value in sorted(members.items()))
    yield from _group(b"{}", parts, depth)


def _group(ends: bytes, parts: Iterable[Iterable[bytes]], depth: int) -> Iterator[bytes]:
    """Yield parts between the brackets ``ends``, each on lines of its own."""
    between = ends[:1]
    blanks = b"\n" + b" " * depth
    for part in parts:
        yield between + blanks + b" "
        yield from part
        between = b","
    yield ends if between == ends[:1] else blanks + ends[1:]


def _cell(value: _JSON, depth: int) -> Iterator[bytes]:
    def attachments(value: _JSON, depth: int) -> Iterator[bytes]:
        yield from _members(value, depth, lambda _: _bundle)

    forms = {"source": _lines, "outputs": _outputs, "attachments": attachments}
    yield from _members(value, depth, forms.get)


def _outputs(value: _JSON, depth: int) -> Iterator[bytes]:
    forms = {"text": _lines, "data": _bundle}
    outputs = (_members(output, depth + 1, forms.get) for output in _items(value))
    yield from _group(b"[]", outputs, depth)


def _bundle(value: _JSON, depth: int) -> Iterator[bytes]:
    def form_of(mime: str) -> _Form | None:
        return _lines if mime.startswith("text/") or mime in _TEXTS else None

    yield from _members(value, depth, form_of)
