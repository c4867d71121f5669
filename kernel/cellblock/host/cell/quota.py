"""``Quota``: how many bytes of each stream, and of displays, one cell may show.

Called by ``Outputs``, which has one quota for each cell. Of each kind of output a cell shows

    head ── left out ── tail
    └──── cap ─────────────┘   (head and tail together)

The head is shown at once. When it is full, outputs are held, and the oldest dropped, so that the
newest, the tail, can be shown when the cell ends. Text is cut anywhere; a display is shown whole or
not at all. A kind without a cap is always shown at once.
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
#: Bytes that a piece of text counts as at least: fewer, since honest cells flush every line.
LEAST_TEXT: Final = 64
#: After so many times its cap was left out, a cell shows no more displays, even small ones.
FLOOD: Final = 8
#: The tail is one part in so many of its cap.
SHARE: Final = 8
#: Bytes of the tail at most.
MOST_TAIL: Final[dict[Kind, int]] = {"stdout": 64 << 10, "stderr": 64 << 10, "display": 4 << 20}
#: A piece of text is joined to the one before if that has fewer characters than this: many small
#: pieces take much more memory than their bytes.
_SHORT_PIECE: Final = 1 << 10
#: Ids that are remembered of displays that were left out: their next update must show them anew.
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
    """Return the beginning of a text up to the end of a line, if that loses less than half a head.

    Otherwise return the text without an escape sequence that is cut off at its end, which would
    swallow the beginning of the line that follows, about what is left out.
    """
    end = text.rfind("\n") + 1
    if (end or not meter.within_line) and 2 * _byte_size(text[end:]) < meter.head:
        return text[:end]
    whole_lines, _ = split_tail(text)
    return whole_lines


class TextTail:
    """The last ``room`` bytes of a text, held in pieces that have less than twice as many bytes."""

    __slots__ = ("_begins_line", "_pieces", "_room", "_size", "added", "lost")

    def __init__(self, room: int) -> None:
        self._room = room
        self._pieces: deque[str] = deque()
        self._size = 0
        #: Whether the held text begins at the beginning of a line.
        self._begins_line = True
        #: Bytes of all text that was added.
        self.added = 0
        #: Whether any of them have been dropped, or will be when the text is cut to ``room``.
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
        if self._pieces and len(self._pieces[-1]) < _SHORT_PIECE:
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
        """Return the held text, cleaned and cut to ``room``, and whether it begins within a line.

        If it would, it is cut further to the beginning of a line, unless that loses half of it.
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
    """A held display: its message as bytes, and whether it updates a display that is shown."""

    message: bytes
    update: bool

    @property
    def size(self) -> int:
        """Bytes that the display counts as."""
        return max(LEAST, len(self.message))


class DisplayTail:
    """The last displays that fit into ``room`` bytes.

    An update replaces the held display that it updates. An update of a display that was left out
    becomes a display itself, since front ends ignore updates of displays that they do not have.
    """

    __slots__ = ("_held", "_lost", "_room", "_size", "dropped")

    def __init__(self, room: int) -> None:
        self._room = room
        #: By id, or by a number of their own for displays without one; oldest first.
        self._held: dict[str | int, Held] = {}
        #: Ids of displays that were left out, of which no update was shown either.
        self._lost: dict[str, None] = {}
        self._size = 0
        #: Bytes of displays that were left out. A display that was only replaced by its update
        #: isn't counted.
        self.dropped = 0

    def add(self, message: bytes, name: str | None, *, update: bool) -> bool:
        """Hold a display's message, dropping the oldest; return False if it alone is too large."""
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
        self._held[id(message) if name is None else name] = display = Held(message, update)
        self._size += display.size
        while self._size > self._room:
            self._drop_oldest()
        return True

    def leave_out(self, size: int, name: str | None, *, update: bool) -> None:
        """Count a display as left out, and remember its id for updates that follow."""
        self.dropped += max(LEAST, size)
        if name is not None and not update and name not in self._held:
            self._lost[name] = None
            if len(self._lost) > _MAX_LOST:
                del self._lost[next(iter(self._lost))]

    def _drop_oldest(self) -> None:
        key, display = next(iter(self._held.items()))
        del self._held[key]
        self._size -= display.size
        self.leave_out(display.size, key if isinstance(key, str) else None, update=display.update)

    def clear(self) -> None:
        """Drop what is held: the cell cleared it."""
        while self._held:
            self._drop_oldest()

    def take(self) -> list[Held]:
        """Return the held displays, oldest first, and hold them no longer."""
        displays = list(self._held.values())
        self._held = {}
        self._size = 0
        return displays


class _Meter(Struct):
    """The count of one kind of output, in bytes."""

    cap: int | None
    #: The part of the cap that is reserved for the tail.
    reserve: int
    #: Bytes that count as shown.
    used: int = 0
    #: Bytes of displays that were left out without being held.
    dropped: int = 0
    #: Whether the text that was shown last ends within a line.
    within_line: bool = False

    @property
    def head(self) -> int:
        """Bytes that are shown at once. Means nothing without a cap."""
        return (self.cap or 0) - self.reserve

    def room(self) -> int:
        """Return the bytes that the tail may have."""
        return min(self.reserve, (self.cap or 0) - self.used)


class EndOfText(Struct, frozen=True):
    """The tail of a stream, and how many bytes are left out before it."""

    text: str = ""
    left_out: int = 0
    #: Whether the gap begins within a line: the last line of the head is cut.
    cut_before: bool = False
    #: Whether the gap ends within a line: the first line of ``text`` is cut.
    cut_behind: bool = False


class Quota:
    """The counts and the tails of one cell's outputs. A cap of None is no cap, and has no tail."""

    def __init__(self, caps: dict[Kind, int | None]) -> None:
        self._meters = {
            kind: _Meter(cap, min((cap or 0) // SHARE, MOST_TAIL[kind]))
            for kind, cap in caps.items()
        }
        self._display = self._meters["display"]
        #: The tails of streams whose head is full.
        self._texts: dict[Kind, TextTail] = {}
        #: The tail of displays, if one did not fit into the head.
        self._displays: DisplayTail | None = None
        #: A ``clear_output`` that takes effect with the next output, or None. True if front ends
        #: were not sent it, for want of room.
        self._clear_due: bool | None = None
        #: Whether such a clear took effect: front ends must clear before the tails are shown.
        self.clear_owed = False

    def cap(self, kind: Kind) -> int:
        """Return the cap of a kind in bytes; 0 if it has none."""
        return self._meters[kind].cap or 0

    def holds(self, kind: Kind) -> bool:
        """Return whether outputs of this kind are held until the cell ends."""
        return self._displays is not None if kind == "display" else kind in self._texts

    def over(self, kind: Kind) -> bool:
        """Return whether some output of this kind was dropped, and can't be shown any more."""
        if kind == "display":
            return bool(self._display.dropped or (self._displays and self._displays.dropped))
        return kind in self._texts and self._texts[kind].lost

    def calm(self) -> bool:
        """Return whether everything was shown: nothing is held, dropped, or to be cleared."""
        return not (self._texts or self._displays or self._display.dropped or self.clear_owed)

    # --- text ---------------------------------------------------------------------------------

    def text(self, kind: Stream, text: str) -> str:
        """Count text of a stream. Return as much as is shown now, and hold the rest."""
        meter = self._meters[kind]
        if meter.cap is None:
            return text
        self.display_comes()
        tail = self._texts.get(kind)
        text_shown = ""
        if tail is None:
            # The head has room so far. The first text that does not fit is divided, and from then
            # on all text goes to the tail.
            size = max(_byte_size(text), LEAST_TEXT) if text else 0
            if meter.used + size <= meter.head:
                meter.used += size
                if text:
                    meter.within_line = not text.endswith("\n")
                return text
            text_shown = _whole_lines(meter, _first_bytes(text, meter.head - meter.used))
            meter.used += _byte_size(text_shown)
            if text_shown:
                meter.within_line = not text_shown.endswith("\n")
            text = text[len(text_shown) :]
            tail = self._texts[kind] = TextTail(meter.room())
        tail.add(text)
        return text_shown

    def end_of_text(self, kind: Stream, clean: Callable[[str], str]) -> EndOfText:
        """Return the kept end of a stream's text, cleaned, and begin to keep a new one.

        The returned text counts as shown. Called when the cell ends, and before one of the host's
        cards is shown.
        """
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

    # --- displays, and other messages that count with them ------------------------------------

    def full(self) -> bool:
        """Return whether no display fits any more, so that a next one need not be cleaned."""
        meter = self._display
        if meter.cap is None:
            return False
        return meter.used + LEAST > meter.head or meter.dropped > FLOOD * meter.cap

    def spent(self, size: int) -> bool:
        """Return whether no display fits any more; if so, count ``size`` bytes as left out."""
        if not self.full():
            return False
        self._display.dropped += max(size, LEAST)
        return True

    def fits(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes fits; if so, count it as shown.

        A message that is too large for the tail may use the bytes reserved for the tail.
        """
        meter = self._display
        size = max(size, LEAST)
        limit = meter.cap if size > meter.reserve else meter.head
        if meter.cap is not None and limit is not None and meter.used + size > limit:
            return False
        meter.used += size
        return True

    def admits(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes fits; count it as shown or as left out.

        For messages that are never held: exceptions, comm messages, tables. Each counts as at
        least ``LEAST`` bytes, since a flood of empty messages is a flood too.
        """
        if self.fits(size):
            return True
        self._display.dropped += max(size, LEAST)
        return False

    def display_comes(self) -> None:
        """Let a ``clear_output`` that waited for the next output take effect."""
        if self._clear_due is not None:
            self._clear_now()

    def display_room(self) -> int:
        """Return the bytes of the largest message that can be held."""
        return self._display.room()

    def hold(self, message: bytes, size: int, name: str | None, *, update: bool) -> None:
        """Hold a display of ``size`` bytes, or count it as left out if ``message`` is empty.

        Callers give an empty message if the display is too large to be held.
        """
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
        """Return the held displays. The caller shows those that ``shows_held`` accepts."""
        return self._displays.take() if self._displays is not None else []

    def shows_held(self, size: int) -> bool:
        """Return whether a held display fits, now that it is cleaned; count it if so."""
        meter = self._display
        size = max(size, LEAST)
        if meter.cap is not None and meter.used + size > meter.cap:
            meter.dropped += size
            return False
        meter.used += size
        return True

    def displays_left_out(self) -> int:
        """Return the bytes of displays left out since the last call, and begin a new tail."""
        meter = self._display
        left_out = meter.dropped
        meter.dropped = 0
        if self._displays is not None:
            left_out += self._displays.dropped
            self._displays = DisplayTail(meter.room())
        return left_out

    # --- clear_output -------------------------------------------------------------------------

    def clear(self, size: int, *, wait: bool) -> bool:
        """Drop the held outputs, or with ``wait`` drop them when the next output comes.

        Return whether to send the clear to front ends now. ``size`` is how many bytes they are sent
        with it: the host's cards, which are shown again. If these no longer fit, front ends are not
        told yet. From then on all outputs are held, and at the end of the cell front ends clear
        before the held outputs are shown (``clear_owed``). But outputs of a kind without a cap are
        never held: if there is such a kind, nothing is dropped, and the clear counts as left out.
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
        """Drop what is held. If front ends were not told, hold all outputs from now on."""
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
