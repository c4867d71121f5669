"""What is on disk of a notebook while it runs: a line for its beginning, each cell, and its end.

Its cells follow the beginning as they were, then each as it ended, so that a run that is killed
loses no finished cell: the next run in the same folder makes the notebook's file of it (``fold``).
A line that was cut off is none. No more than a line is held besides the notebook.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.document import Document, TooMuchError, raw
from cellblock.batch.run.fate import Record  # noqa: TC001 - msgspec reads the annotations
from cellblock.batch.run.folder import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.batch.run.folder import OutputFolder

ENDING: Final = ".cells"


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A notebook before its first cell. ``output`` is its file's name, as bytes in hex."""

    output: str
    key: str
    metadata: dict[str, msgspec.Raw]
    minor: int
    #: How many there are; the lines that follow have them.
    cells: int


class CellEnded(msgspec.Struct, frozen=True, tag="cell"):
    """A cell as it is written, and the widgets that changed with it."""

    index: int
    cell: msgspec.Raw
    widgets: dict[str, msgspec.Raw] = {}


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
        name, cells = os.fsencode(output).hex(), document.cells
        self._put(Begun(name, key, raw(document.told), document.minor, len(cells)))
        for index, cell in enumerate(cells):
            self.cell(index, cell, {})

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Append a cell."""
        self._put(CellEnded(index, msgspec.Raw(cell), raw(widgets)))

    def ended(self, record: Record) -> None:
        """Append the end."""
        self._put(Ended(record))

    def close(self) -> None:
        """Close it; it stays."""
        os.close(self._descriptor)

    def _put(self, line: _Line) -> None:
        put(self._descriptor, (_encode(line), b"\n"))


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left of a notebook: how far it got, and its record if it ended."""

    output: str
    key: str
    document: Document
    record: Record | None


def left_in(folder: OutputFolder) -> Iterator[tuple[str, Left | None]]:
    """Yield the journals that are there by name; None for one in which nothing is to be found."""
    for name in folder.names(ENDING):
        try:
            left = _left(line for line in folder.lines(name) if line.endswith(b"\n"))
        except (
            OSError,
            ValueError,
            IndexError,
            msgspec.MsgspecError,
            RecursionError,
            TooMuchError,
        ):
            left = None  # a folder, a link, not of ours
        yield name, left


def _left(lines: Iterator[bytes]) -> Left | None:
    begun, record = _decode(next(lines, b"")), None
    if not isinstance(begun, Begun):
        return None
    document = Document((), begun.metadata, begun.minor)
    for line in lines:
        match _decode(line):
            case CellEnded(index=index, cell=cell) if index == len(document.cells) < begun.cells:
                document.add(bytes(cell))
            case CellEnded(index=index, cell=cell, widgets=widgets):
                document.put_bytes(index, bytes(cell))
                document.take_widgets({name: row.copy() for name, row in widgets.items()})
            case Ended(record=ended):
                record = ended
    if len(document.cells) < begun.cells:
        return None  # nothing was run
    return Left(os.fsdecode(bytes.fromhex(begun.output)), begun.key, document, record)


def _name(output: str) -> str:
    return hashlib.sha256(os.fsencode(output)).hexdigest()[:32] + ENDING
