"""What a request costs, as the host measured it, and the session's account of its cells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Cells that are remembered one by one, and characters of their first line.
MOST_CELLS: Final = 1_000
LONGEST_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request took. ``read_bytes`` is the guest's word, all else the host's."""

    wall_seconds: float
    cpu_seconds: float
    #: The most memory resident at once of the guest, what it had before the cell included.
    peak_memory_bytes: int
    #: Text and rich output as it came from the guest, shown or not.
    output_bytes: int
    #: Read from disk; what was in the page cache counts as nothing (getrusage(2), ru_inblock).
    read_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data, times to the microsecond."""
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "output_bytes": self.output_bytes,
            "read_bytes": self.read_bytes,
        }


def size_of(message: messages.FromGuest) -> int:
    """Return the bytes of a message that a front end may get to see."""
    match message:
        case messages.Stream(text=text):
            return _size(text)
        case messages.Display(data=data) | messages.Result(data=data):
            return sum(map(_size, data.values()))
        case messages.CommOut(content=content, buffers=buffers):
            return _size(content) + sum(map(len, buffers))
        case messages.Error(traceback=lines):
            return sum(map(_size, lines))
    return 0


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    return len(value) if isinstance(value, bytes) else len(msgspec.msgpack.encode(value))


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of the account: its number, the first line of its source, what it took."""

    number: int
    line: str
    usage: Usage


class Account:
    """The cells of a session, oldest first; the last ``MOST_CELLS`` of them one by one."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=MOST_CELLS)
        #: Cells that ran, and what all of them took.
        self.cells = 0
        self.wall_seconds = self.cpu_seconds = 0.0
        self.output_bytes = self.read_bytes = 0

    def add(self, number: int, source: str, usage: Usage) -> None:
        """Enter a cell that ended."""
        line = source.lstrip()[:LONGEST_LINE].partition("\n")[0]
        self._entries.append(Entry(number, line, usage))
        self.cells += 1
        self.wall_seconds += usage.wall_seconds
        self.cpu_seconds += usage.cpu_seconds
        self.output_bytes += usage.output_bytes
        self.read_bytes += usage.read_bytes

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries, oldest first."""
        return iter(self._entries)
