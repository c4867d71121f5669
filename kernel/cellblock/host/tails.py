"""The end of what a cell says beyond its quota: rolling, and bounded in bytes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes that a message costs a front end, whatever is in it.
LEAST = 200
#: Pieces of text shorter than this are joined to the one before: few bytes in many pieces are dear.
_SHORT = 1 << 10
#: Names of displays whose first showing was left out, so that an update has to show them.
_MOST_LOST = 1_000


def byte_size(text: str) -> int:
    """Return how many bytes ``text`` takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def first_bytes(text: str, size: int) -> str:
    """Return as much of ``text`` as fits into ``size`` bytes, cut between characters."""
    if text.isascii():
        return text[: max(0, size)]
    return text.encode("utf-8", "replace")[: max(0, size)].decode("utf-8", "ignore")


def last_bytes(text: str, size: int) -> str:
    """Return the last of ``text`` that fits into ``size`` bytes, cut between characters."""
    if size <= 0:
        return ""
    if text.isascii():
        return text[-size:]
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")


def from_line_start(text: str) -> str:
    """Return ``text`` without a first line that was cut, where that costs less than half of it."""
    end = text.find("\n", 0, len(text) // 2)
    return text[end + 1 :]


class TextTail:
    """The last ``room`` bytes of a text, held in less than twice as many."""

    __slots__ = ("_pieces", "_room", "_size", "added", "lost")

    def __init__(self, room: int) -> None:
        self._room = room
        self._pieces: deque[str] = deque()
        self._size = 0
        #: Bytes that came.
        self.added = 0
        #: Whether any of them are gone.
        self.lost = False

    def add(self, text: str) -> None:
        """Add ``text`` and let go of the oldest pieces that are no longer needed."""
        size = byte_size(text)
        self.added += size
        if size > self._room:
            self.clear()
            text = last_bytes(text, self._room)
            size = byte_size(text)
            self.lost = True
        if self._pieces and len(self._pieces[-1]) < _SHORT:
            text = self._pieces.pop() + text
        self._pieces.append(text)
        self._size += size
        while self._size - (first := byte_size(self._pieces[0])) >= self._room > 0:
            self._pieces.popleft()
            self._size -= first
            self.lost = True
        self.lost |= self._size > self._room

    def clear(self) -> None:
        """Let go of what is held: the cell cleared it."""
        self.lost |= bool(self._pieces)
        self._pieces.clear()
        self._size = 0

    def text(self, clean: Callable[[str], str]) -> str:
        """Return what is held, cleaned; from the start of a line where something went before."""
        text = clean("".join(self._pieces))
        if self.lost or byte_size(text) > self._room:
            return from_line_start(last_bytes(text, self._room))
        return text


@dataclass(frozen=True, slots=True)
class Held:
    """A display that is held: its message as bytes, and whether it replaces one that is shown."""

    message: bytes
    update: bool

    @property
    def size(self) -> int:
        """Bytes that it counts as."""
        return max(LEAST, len(self.message))


class DisplayTail:
    """The last displays that fit into ``room`` bytes. An update takes the place of what it updates.

    A display that is shown by an update alone is still shown: an update of what was left out
    becomes a display.
    """

    __slots__ = ("_held", "_lost", "_room", "_size", "dropped")

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: dict[str | int, Held] = {}
        self._lost: dict[str, None] = {}
        self._size = 0
        #: Bytes that are gone, but for those of updates that a later one replaced.
        self.dropped = 0

    def add(self, message: bytes, name: str | None, *, update: bool) -> bool:
        """Hold a message; say whether it fits at all."""
        key: str | int = id(message) if name is None else name
        if max(LEAST, len(message)) > self._room:
            self.leave_out(len(message), name, update=update)
            return False
        if name is not None:
            earlier = self._held.pop(name, None)
            if earlier is not None:
                self._size -= earlier.size
                update = update and earlier.update
            elif name in self._lost:
                del self._lost[name]
                update = False
        self._held[key] = held = Held(message, update)
        self._size += held.size
        while self._size > self._room:
            self._drop_oldest()
        return True

    def leave_out(self, size: int, name: str | None, *, update: bool) -> None:
        """Count a display that is neither shown nor held."""
        self.dropped += max(LEAST, size)
        if name is not None and not update and name not in self._held:
            self._lost[name] = None
            if len(self._lost) > _MOST_LOST:
                del self._lost[next(iter(self._lost))]

    def _drop_oldest(self) -> None:
        key, held = next(iter(self._held.items()))
        del self._held[key]
        self._size -= held.size
        self.leave_out(held.size, key if isinstance(key, str) else None, update=held.update)

    def clear(self) -> None:
        """Let go of what is held: the cell cleared it."""
        while self._held:
            self._drop_oldest()

    def take(self) -> list[Held]:
        """Return what is held, oldest first, and hold it no longer."""
        held, self._held, self._size = list(self._held.values()), {}, 0
        return held
