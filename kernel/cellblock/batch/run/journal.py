"""What is on disk of a notebook while it runs: a line for its beginning, each cell, and its end.

Each line is appended when its cell ends, so that a run that is killed loses no finished cell: the
next run in the same folder makes the notebook's file of it (``fold``). A line that was cut off is
none.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.document import Document, TooMuchError
from cellblock.batch.run.fate import Record  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.batch.run.folder import OutputFolder

ENDING: Final = ".cells"


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A notebook before its first cell. ``output`` is its file's name, as bytes in hex."""

    output: str
    key: str
    document: msgspec.Raw


class CellEnded(msgspec.Struct, frozen=True, tag="cell"):
    """A cell as it is written, and the widgets that changed with it."""

    index: int
    cell: msgspec.Raw
    widgets: dict[str, Any] = {}


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """What became of the notebook."""

    record: Record


_Line = Begun | CellEnded | Ended
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode


class Journal:
    """One notebook's, from its beginning on. Its methods raise OSError."""

    def __init__(self, folder: OutputFolder, output: str, key: str, document: Document) -> None:
        self._folder, self.name = folder, _name(output)
        folder.remove(self.name)
        self._descriptor = folder.append_to(self.name)
        raw = msgspec.Raw(document.compact())
        self._put(Begun(os.fsencode(output).hex(), key, raw))

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Append a cell."""
        self._put(CellEnded(index, msgspec.Raw(cell), widgets))

    def ended(self, record: Record) -> None:
        """Append the end."""
        self._put(Ended(record))

    def close(self) -> None:
        """Close it; it stays."""
        os.close(self._descriptor)

    def _put(self, line: _Line) -> None:
        view = memoryview(_encode(line) + b"\n")
        while view:
            view = view[os.write(self._descriptor, view) :]


class Left(msgspec.Struct, frozen=True):
    """What a run left of a notebook: its file as far as it got, and its record if it ended."""

    output: str
    key: str
    content: bytes
    record: Record | None


def left_in(folder: OutputFolder) -> Iterator[tuple[str, Left | None]]:
    """Yield the journals that are there by name; None for one in which nothing is to be found."""
    for name in folder.names(ENDING):
        try:
            lines = folder.read(name)
        except OSError:  # a folder, a link
            lines = b""
        yield name, _left(lines)


def _left(journal: bytes) -> Left | None:
    lines = journal.split(b"\n")[:-1]
    try:
        begun = _decode(lines[0]) if lines else None
        if not isinstance(begun, Begun):
            return None
        document, record = Document.of(bytes(begun.document)), None
        for line in lines[1:]:
            match _decode(line):
                case CellEnded(index=index, cell=cell, widgets=widgets):
                    document.put_bytes(index, bytes(cell))
                    document.take_widgets(widgets)
                case Ended(record=ended):
                    record = ended
        output = os.fsdecode(bytes.fromhex(begun.output))
        content = document.written()
    except (ValueError, IndexError, msgspec.MsgspecError, RecursionError, TooMuchError):
        return None  # not of ours
    return Left(output, begun.key, content, record)


def _name(output: str) -> str:
    return hashlib.sha256(os.fsencode(output)).hexdigest()[:32] + ENDING
