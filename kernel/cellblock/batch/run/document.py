"""The notebook that is written: held as bytes, cell by cell, and its file made in pieces.

The file is in the form that nbformat writes, byte by byte: keys sorted, one blank a level, texts as
lists of lines. So a run's file differs from a front end's only in what was run. nbformat's own
writer is not used: it takes the whole notebook as objects, twice
(docs/adr/0106-a-batch-run-uses-a-sandbox-pool-and-resumes-by-notebook.md).
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
#: Bytes of all cells in the file, which is what Jupyter still opens; and of all that is written,
#: as updates write cells again.
MAX_BYTES: Final = 128 << 20
MAX_WRITTEN: Final = 2 * MAX_BYTES


def _plain_text(value: Any) -> str:
    """Return a string of a subclass as one of ``str``. Raise TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return str(value)


#: To JSON in one line.
encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=_plain_text).encode
#: From JSON, one level deep: what is in the values stays JSON.
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode


def compact(value: Any) -> bytes:
    """Return a value as JSON to be held: an encoder's own result has half as much room again."""
    return bytes(memoryview(encode(value)))


def raw(values: dict[str, Any]) -> dict[str, msgspec.Raw]:
    """Return values as JSON, by name."""
    return {name: msgspec.Raw(encode(value)) for name, value in values.items()}


class TooMuchOutputError(ValueError):
    """The notebook's cells show more than is written of one notebook."""

    def __init__(self) -> None:
        super().__init__(f"its outputs take more than {MAX_BYTES >> 20} MiB")


def _within_bound(values: Iterable[bytes]) -> list[msgspec.Raw]:
    """Return JSON values, which are made here. Raise TooMuchOutputError at the bound.

    In the file each takes as many bytes at least.
    """
    made, size = list[msgspec.Raw](), 0
    for value in values:
        size += len(value)
        if size > MAX_BYTES:
            raise TooMuchOutputError
        made.append(msgspec.Raw(value))
    return made


class _Stored(msgspec.Struct):
    cells: list[msgspec.Raw]
    metadata: dict[str, msgspec.Raw]
    nbformat_minor: int


class Document:
    """A notebook's cells as they are so far, and its metadata."""

    def __init__(
        self, cells: Iterable[dict[str, Any]], metadata: dict[str, Any], minor: int
    ) -> None:
        #: Each as JSON, with texts in one piece.
        self.cells: list[bytes] = []
        self.minor, self.metadata = minor, metadata
        #: Bytes of the file, and of all that was written.
        self._size = self._total = 0
        self._widgets: dict[str, Any] = {}
        self._widget_sizes: dict[str, int] = {}
        for cell in cells:
            self.add(compact(cell))

    def add(self, cell: bytes) -> None:
        """Add a cell, however large."""
        size = written_size(cell)
        self._size += size
        self._total += size
        self.cells.append(cell)

    def put(self, index: int, body: dict[str, Any]) -> None:
        """Replace a cell. Raise TooMuchOutputError, and replace nothing.

        Its outputs are counted one by one: one text may be that of a thousand displays.
        """
        if "outputs" in body:
            body = body | {"outputs": _within_bound(map(compact, body["outputs"]))}
        cell = compact(body)
        self._count(written_size(cell), written_size(self.cells[index]))
        self.cells[index] = cell

    def update(self, index: int, changes: dict[int, dict[str, Any]]) -> None:
        """Change outputs of a cell, by their positions. Raise as `put`."""
        cell: dict[str, Any] = _fields(self.cells[index])
        outputs = _items(cell["outputs"])
        changed = (
            _fields(one) | changes[position] if position in changes else one
            for position, one in enumerate(outputs)
        )
        self.put(index, cell | {"outputs": changed})

    def take_widgets(self, widgets: dict[str, Any]) -> None:
        """Add or replace widgets, by their ids. Raise TooMuchOutputError."""
        for name, widget in widgets.items():
            new = sum(map(len, _value(widget, 5)))
            self._count(new, self._widget_sizes.get(name, 0))
            self._widgets[name], self._widget_sizes[name] = widget, new

    def _count(self, new: int, old: int) -> None:
        """Count bytes that replace others. Raise TooMuchOutputError."""
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
        """Return the document that `to_bytes` was called on. Raise msgspec.DecodeError."""
        stored = msgspec.json.decode(content, type=_Stored)
        made = cls((), stored.metadata, stored.nbformat_minor)
        for cell in stored.cells:
            made.add(bytes(cell))
        return made

    def file_content(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces, none of which is larger than a value."""
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


# --- the form of the file: each function takes JSON, and yields its form at this depth ------------

#: Texts in a bundle that are written as lines, besides ``text/*`` (``nbformat.v4.rwbase``).
_TEXTS: Final = frozenset({"application/javascript", "image/svg+xml"})
#: Characters of a text that are split into lines at once, as each line takes many times more as an
#: object; and where a line ends (``str.splitlines``).
_PART: Final = 1 << 16
_LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def written_size(cell: bytes) -> int:
    """Return the bytes that a cell takes in the file, or more than `MAX_BYTES`.

    Nested values take many times more there than on the wire: a line and its blanks for each.
    """
    size = 0
    for piece in _cell(cell, 2):
        size += len(piece)
        if size > MAX_BYTES:
            break
    return size


def _value(value: Any, depth: int) -> Iterator[bytes]:
    """Yield a Python value. It is encoded when the first piece is asked for."""
    yield from _plain(encode(value), depth)


def _plain(value: _JSON, depth: int) -> Iterator[bytes]:
    """Yield JSON with a line for each value in it."""
    made = msgspec.json.format(value, indent=1)
    yield made.replace(b"\n", b"\n" + b" " * depth)  # strings have no line breaks


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


def _members(value: _JSON, depth: int, form_of: Callable[[str], _Form | None]) -> Iterator[bytes]:
    """Yield an object, with each member in the form for its name, or plain if it has none."""
    members = _fields(value).items()
    yield from _object(
        {name: (form_of(name) or _plain)(one, depth + 1) for name, one in members}, depth
    )


def _object(members: dict[str, Iterator[bytes]], depth: int) -> Iterator[bytes]:
    made = (chain((encode(name), b": "), one) for name, one in sorted(members.items()))
    yield from _group(b"{}", made, depth)


def _group(ends: bytes, parts: Iterable[Iterable[bytes]], depth: int) -> Iterator[bytes]:
    """Yield parts between a pair of brackets, each on lines of its own."""
    between, blanks = ends[:1], b"\n" + b" " * depth
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
    outputs = (_members(one, depth + 1, forms.get) for one in _items(value))
    yield from _group(b"[]", outputs, depth)


def _bundle(value: _JSON, depth: int) -> Iterator[bytes]:
    def form_of(mime: str) -> _Form | None:
        return _lines if mime.startswith("text/") or mime in _TEXTS else None

    yield from _members(value, depth, form_of)
