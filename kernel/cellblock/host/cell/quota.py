"""How much one cell may show: bytes per stream and of displays, counted where they pass.

What comes first is shown at once, the head. Of what is beyond, the last is held, the tail, to be
shown when the cell ends; the two are within the cap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from cellblock.host.output.text import split_tail

if TYPE_CHECKING:
    from collections.abc import Callable


Kind = Literal["stdout", "stderr", "display"]
Stream = Literal["stdout", "stderr"]
STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")
#: Bytes that a message costs a front end, whatever is in it.
LEAST: Final = 200
#: Bytes that a piece of text counts as at least; less, because honest cells flush every line.
LEAST_TEXT: Final = 64
#: A cell that had this many times its cap left out shows no more displays, even what would fit.
FLOOD: Final = 8
#: A tail has this share of its cap, and so many bytes at most.
SHARE: Final = 8
MOST_TAIL: Final[dict[Kind, int]] = {"stdout": 64 << 10, "stderr": 64 << 10, "display": 4 << 20}
#: Pieces of text shorter than this are joined to the one before: few bytes in many pieces are dear.
_SHORT: Final = 1 << 10
#: Names of displays whose first showing was left out, so that an update has to show them.
_MAX_LOST: Final = 1_000


def _byte_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _first_bytes(text: str, size: int) -> str:
    """Return as much of ``text`` as fits into ``size`` bytes, cut between characters."""
    if text.isascii():
        return text[: max(0, size)]
    return text.encode("utf-8", "replace")[: max(0, size)].decode("utf-8", "ignore")


def _last_bytes(text: str, size: int) -> str:
    """Return the last of ``text`` that fits into ``size`` bytes, cut between characters."""
    if size <= 0:
        return ""
    if text.isascii():
        return text[-size:]
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")


def _whole_lines(meter: _Meter, text: str) -> str:
    """Return the beginning of a text that ends with a line, if that costs less than half a head.

    Half an escape sequence would swallow the start of what is said next.
    """
    end = text.rfind("\n") + 1
    if (end or not meter.within_line) and 2 * _byte_size(text[end:]) < meter.head:
        return text[:end]
    shown, _ = split_tail(text)
    return shown


class TextTail:
    """The last ``room`` bytes of a text, held in less than twice as many."""

    __slots__ = ("_begins_line", "_pieces", "_room", "_size", "added", "lost")

    def __init__(self, room: int) -> None:
        self._room = room
        self._pieces: deque[str] = deque()
        self._size = 0
        #: Whether what is held begins with a line, not within one.
        self._begins_line = True
        #: Bytes that came, and whether any of them are gone.
        self.added = 0
        self.lost = False

    def add(self, text: str) -> None:
        """Add ``text`` and drop the oldest pieces that are no longer needed."""
        size = _byte_size(text)
        self.added += size
        if size > self._room:
            self.clear()
            whole = text
            text = _last_bytes(text, self._room)
            self._begins_line = whole.removesuffix(text).endswith("\n")
            size = _byte_size(text)
            self.lost = True
        if self._pieces and len(self._pieces[-1]) < _SHORT:
            text = self._pieces.pop() + text
        self._pieces.append(text)
        self._size += size
        while self._size - (first := _byte_size(self._pieces[0])) >= self._room > 0:
            self._begins_line = self._pieces.popleft().endswith("\n")
            self._size -= first
            self.lost = True
        self.lost |= self._size > self._room

    def clear(self) -> None:
        """Drop what is held: the cell cleared it."""
        self.lost |= bool(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._begins_line = True

    def text(self, clean: Callable[[str], str]) -> tuple[str, bool]:
        """Return what is held, cleaned, and whether it begins within a line.

        It begins with a line where something went before and that costs less than half.
        """
        text = clean("".join(self._pieces))
        begins_line = self._begins_line
        if _byte_size(text) > self._room:
            whole = text
            text = _last_bytes(text, self._room)
            begins_line = whole.removesuffix(text).endswith("\n")
        if begins_line or not text:
            return text, False
        begin = text.find("\n", 0, len(text) // 2) + 1
        return text[begin:], not begin


class Held(Struct, frozen=True):
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
        """Hold a message; return whether it fits at all."""
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
        self._held[id(message) if name is None else name] = held = Held(message, update)
        self._size += held.size
        while self._size > self._room:
            self._drop_oldest()
        return True

    def leave_out(self, size: int, name: str | None, *, update: bool) -> None:
        """Count a display that is neither shown nor held."""
        self.dropped += max(LEAST, size)
        if name is not None and not update and name not in self._held:
            self._lost[name] = None
            if len(self._lost) > _MAX_LOST:
                del self._lost[next(iter(self._lost))]

    def _drop_oldest(self) -> None:
        key, held = next(iter(self._held.items()))
        del self._held[key]
        self._size -= held.size
        self.leave_out(held.size, key if isinstance(key, str) else None, update=held.update)

    def clear(self) -> None:
        """Drop what is held: the cell cleared it."""
        while self._held:
            self._drop_oldest()

    def take(self) -> list[Held]:
        """Return what is held, oldest first, and hold it no longer."""
        held = list(self._held.values())
        self._held = {}
        self._size = 0
        return held


class _Meter(Struct):
    cap: int | None
    #: The tail's share of the cap.
    reserve: int
    used: int = 0
    dropped: int = 0
    #: Whether the text that was shown last ends within a line.
    within_line: bool = False

    @property
    def head(self) -> int:
        """Bytes that are shown as they come; only asked for where there is a cap."""
        return (self.cap or 0) - self.reserve

    def room(self) -> int:
        """Return the bytes that a tail may still take."""
        return min(self.reserve, (self.cap or 0) - self.used)


class EndOfText(Struct, frozen=True):
    """The end of a stream, and the bytes left out before it."""

    text: str = ""
    left_out: int = 0
    #: Whether a line is cut where something is left out: before that, and behind it.
    cut_before: bool = False
    cut_behind: bool = False


class Quota:
    """The byte counts and the tails of one cell. A cap of None is none, and has no tail."""

    def __init__(self, caps: dict[Kind, int | None]) -> None:
        self._meters = {
            kind: _Meter(cap, min((cap or 0) // SHARE, MOST_TAIL[kind]))
            for kind, cap in caps.items()
        }
        self._display = self._meters["display"]
        self._texts: dict[Kind, TextTail] = {}
        self._displays: DisplayTail | None = None
        #: A clear that takes effect with the next output; True for one that nobody was told of.
        self._clear_due: bool | None = None
        #: Whether front ends have yet to be told to clear what they show.
        self.clear_owed = False

    def cap(self, kind: Kind) -> int:
        """Return a cap; 0 for none."""
        return self._meters[kind].cap or 0

    def holds(self, kind: Kind) -> bool:
        """Return whether nothing of this kind is shown before the cell ends."""
        return self._displays is not None if kind == "display" else kind in self._texts

    def over(self, kind: Kind) -> bool:
        """Return whether something of this kind is left out for good."""
        if kind == "display":
            return bool(self._display.dropped or (self._displays and self._displays.dropped))
        return kind in self._texts and self._texts[kind].lost

    def calm(self) -> bool:
        """Return whether all that came was shown."""
        return not (self._texts or self._displays or self._display.dropped or self.clear_owed)

    # --- text ---------------------------------------------------------------------------------

    def text(self, kind: Stream, text: str) -> str:
        """Return as much of ``text`` as is shown now; the rest is held."""
        meter = self._meters[kind]
        if meter.cap is None:
            return text
        self.display_comes()
        tail = self._texts.get(kind)
        shown = ""
        if tail is None:
            size = max(_byte_size(text), LEAST_TEXT) if text else 0
            if meter.used + size <= meter.head:
                meter.used += size
                if text:
                    meter.within_line = not text.endswith("\n")
                return text
            shown = _whole_lines(meter, _first_bytes(text, meter.head - meter.used))
            meter.used += _byte_size(shown)
            if shown:
                meter.within_line = not shown.endswith("\n")
            text = text[len(shown) :]
            tail = self._texts[kind] = TextTail(meter.room())
        tail.add(text)
        return shown

    def end_of_text(self, kind: Stream, clean: Callable[[str], str]) -> EndOfText:
        """Return a stream's tail, counted as shown, and what is left out before it."""
        meter = self._meters[kind]
        tail = self._texts.get(kind)
        if tail is None:
            return EndOfText()
        text, cut = tail.text(clean)
        size = _byte_size(text)
        left_out = max(tail.added - size, 0) if tail.lost else 0
        end = EndOfText(text, left_out, meter.within_line, cut)
        meter.used += size
        if left_out or text:
            meter.within_line = bool(text) and not text.endswith("\n")
        self._texts[kind] = TextTail(meter.room())
        return end

    # --- displays, and what counts as they do -------------------------------------------------

    def full(self) -> bool:
        """Return whether no display fits any more: what comes then need not be looked at."""
        meter = self._display
        if meter.cap is None:
            return False
        return meter.used + LEAST > meter.head or meter.dropped > FLOOD * meter.cap

    def spent(self, size: int) -> bool:
        """Return whether no display fits any more; then ``size`` counts as left out."""
        if not self.full():
            return False
        self._display.dropped += max(size, LEAST)
        return True

    def fits(self, size: int) -> bool:
        """Count a message of ``size`` bytes as shown if it fits, all of it or nothing.

        What no tail could hold may take the tail's share.
        """
        meter = self._display
        size = max(size, LEAST)
        limit = meter.cap if size > meter.reserve else meter.head
        if meter.cap is not None and limit is not None and meter.used + size > limit:
            return False
        meter.used += size
        return True

    def admits(self, size: int) -> bool:
        """Do the same, for what is not held; it counts as left out if it does not fit.

        Anything but text counts here, and as ``LEAST`` bytes at least: a flood of empty
        messages is a flood.
        """
        if self.fits(size):
            return True
        self._display.dropped += max(size, LEAST)
        return False

    def display_comes(self) -> None:
        """Let a clear that waited for output take effect."""
        if self._clear_due is not None:
            self._clear_now()

    def display_room(self) -> int:
        """Return the bytes of the largest message that is held."""
        return self._display.room()

    def hold(self, message: bytes, size: int, name: str | None, *, update: bool) -> None:
        """Hold a display of ``size`` bytes; ``message`` is empty where there is no use in it."""
        if self._displays is None:
            if not message:
                self._display.dropped += max(size, LEAST)
                return
            self._displays = DisplayTail(self.display_room())
        if message:
            self._displays.add(message, name, update=update)
        else:
            self._displays.leave_out(size, name, update=update)

    def end_of_displays(self) -> list[Held]:
        """Return the displays that are held; whoever shows one asks ``shows_held``."""
        return self._displays.take() if self._displays is not None else []

    def shows_held(self, size: int) -> bool:
        """Count a display that was held as shown, if it fits now that its size is known."""
        meter = self._display
        size = max(size, LEAST)
        if meter.cap is not None and meter.used + size > meter.cap:
            meter.dropped += size
            return False
        meter.used += size
        return True

    def displays_left_out(self) -> int:
        """Return the bytes of displays left out since this was asked."""
        meter = self._display
        left_out = meter.dropped
        meter.dropped = 0
        if self._displays is not None:
            left_out += self._displays.dropped
            self._displays = DisplayTail(meter.room())
        return left_out

    # --- clear_output -------------------------------------------------------------------------

    def clear(self, size: int, *, wait: bool) -> bool:
        """Drop what is held; with ``wait``, when more comes. Return whether to tell front ends.

        Where ``size`` bytes no longer fit, all that comes is held from then on: what front ends
        show is cleared at the end, before that is shown.
        """
        fits = self.fits(size)
        if not fits and any(meter.cap is None for meter in self._meters.values()):
            self._display.dropped += max(size, LEAST)
            return False
        self._clear_due = not fits or self._clear_due is True
        if not wait:
            self._clear_now()
        return fits

    def _clear_now(self) -> None:
        owed = self._clear_due
        self._clear_due = None
        if owed:
            self.clear_owed = True
            for kind in STREAMS:
                self._texts.setdefault(kind, TextTail(self._meters[kind].room()))
            self._displays = self._displays or DisplayTail(self.display_room())
        for kind in STREAMS:
            self._meters[kind].within_line = False
        for tail in self._texts.values():
            tail.clear()
        if self._displays is not None:
            self._displays.clear()
