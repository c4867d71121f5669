"""The full text of cells that overflowed: in files of the host's, up to a cap, for ``%output``.

A cell's text is gathered in memory and costs nothing else, until some of it is left out; then it
is written, from its beginning. A disk that can't be written costs what would be on it, nothing
else.
"""

from __future__ import annotations

import contextlib
import os
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from cellblock.descriptors import closing
from cellblock.host.files import OwnFolder
from cellblock.host.output.text import clean_stream_text, without_styles
from cellblock.render.tables import KeptRow, kept_list, kept_note, kept_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cellblock.host.cell.quota import Kind
    from cellblock.render.cards import Bundle


#: Bytes of one stream that are gathered before anything overflows: what most policies show. More,
#: which takes a cap that is larger, is written ahead.
MEMORY: Final = 8 << 20
#: Bytes written at once, from then on.
_BLOCK: Final = 64 << 10
#: Bytes of a page, in a notebook and for a language model, and how far its end may lie behind that,
#: to be the end of a line.
PAGE = 32 << 10
SHORT_PAGE = 5 << 10
_LINE: Final = 4 << 10
_NO_LIMIT: Final = 1 << 60
#: Bytes in which the first line is looked for that a reply lacks.
_BEGINNING: Final = 1 << 20
#: The upper bits of a byte of UTF-8 that is not a letter's first.
_CONTINUATION: Final = 0b10


class Text(Struct, eq=False):
    """What is kept of one cell's stdout, stderr or displays; ``size`` is what is on disk."""

    cell: int
    kind: Kind
    serial: int
    size: int = 0
    #: Whether some of it was left out of what was shown.
    over: bool = False
    #: Whether no more is taken.
    full: bool = False
    #: Whether something is missing at the end, and why if not for the cap.
    cut: bool = False
    failure: str = ""
    fd: int | None = None
    #: What is gathered, which is what was shown and no copy, and the bytes that it takes.
    pending: list[str] = field(default_factory=list)
    gathered: int = 0
    mark: int = MEMORY

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.cell}.{self.kind}.{self.serial}"

    def close(self) -> None:
        """Close its file."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Page(Struct, frozen=True):
    """One page of a text; numbers count from 1."""

    text: Text
    number: int
    count: int
    content: str


class OutputLog:
    """What one kernel keeps, within ``cap`` bytes; None is no limit, 0 keeps nothing.

    One cell gets half of the cap: its beginning. It is read in pages of about ``page`` bytes.
    """

    def __init__(self, parent: Path, cap: int | None, page: int = PAGE) -> None:
        self._parent, self._folder = parent, OwnFolder(parent)
        self._cap = _NO_LIMIT if cap is None else cap
        self._page = page
        self._texts: list[Text] = []
        self._now: dict[Kind, Text] = {}
        self._cell = self._serial = 0

    def limit(self, cap: int | None) -> None:
        """Keep no more than this from now on, of what there is, too."""
        self._cap = _NO_LIMIT if cap is None else cap
        self._make_room(0)

    def nothing(self) -> OutputLog:
        """Return one that keeps nothing, for what is shown beside the cells that this one has."""
        return OutputLog(self._parent, 0)

    # --- the running cell ---------------------------------------------------------------------

    def begin(self, cell: int) -> None:
        """Keep what comes under this cell's number."""
        if self._now:
            self.settle()
            for text in self._now.values():
                if not text.over:
                    self._forget(text)
            self._now = {}
        self._cell = cell

    def full(self, kind: Kind) -> bool:
        """Return whether no more of this kind is taken."""
        return not self._cap or (kind in self._now and self._now[kind].full)

    def add(self, kind: Kind, content: str) -> None:
        """Take cleaned text."""
        text = self._now.get(kind)
        if text is None:
            if not self._cap:
                return
            self._serial += 1
            text = self._now[kind] = Text(self._cell, kind, self._serial)
        if not text.full:
            text.pending.append(content)
            text.gathered += getsizeof(content)
            if text.gathered > text.mark:
                self._write(text)

    def overflowed(self, kind: Kind) -> None:
        """Record that this kind's text is not shown whole."""
        text = self._now.get(kind)
        if text is not None and not text.over:
            text.over = True
            text.mark = _BLOCK
            for earlier in self._texts.copy():  # another request with the same number
                if earlier is not text and (earlier.cell, earlier.kind) == (text.cell, text.kind):
                    self._forget(earlier)
            self._write(text)

    def keep(self) -> None:
        """Record that who reads the cell that has ended is shown no text of it whole."""
        for kind in self._now:
            self.overflowed(kind)
        self.settle()

    def kept_now(self) -> list[Text]:
        """Return what can be read of the cell that came last, in the order of ``%output``."""
        mine = [text for text in self.texts() if self._now.get(text.kind) is text]
        return sorted(mine, key=lambda text: _KINDS.index(text.kind))

    def settle(self) -> None:
        """Write what is gathered of texts that overflowed, and close their files."""
        for text in self._now.values():
            if text.over:
                self._write(text)
            text.close()

    def state(self, kind: Kind) -> Text | None:
        """Return what is kept of the running cell, after ``settle``."""
        return self._now.get(kind)

    # --- files --------------------------------------------------------------------------------

    def _write(self, text: Text) -> None:
        """Write what is gathered, as far as there is room."""
        mine = sum(t.size for t in self._now.values())
        pending = "".join(text.pending).encode("utf-8", "replace")
        text.pending = []
        text.gathered = 0
        data = memoryview(pending)[: max(0, self._cap // 2 - mine)]
        text.cut |= len(data) < len(pending)
        text.full = text.cut
        self._make_room(len(data))
        try:
            if data and text.fd is None and text.size:  # written before, then settled
                text.fd = self._folder.append(text.name)
            elif data and text.fd is None:
                text.fd = self._folder.create(text.name)
                self._texts.append(text)
            while data and text.fd is not None:
                done = os.write(text.fd, data)
                text.size += done
                data = data[done:]
        except OSError as exc:
            text.failure = exc.strerror or str(exc)
            text.full = text.cut = True

    def _make_room(self, size: int) -> None:
        """Forget the oldest cells until ``size`` more bytes are within the cap."""
        while self._texts and sum(t.size for t in self._texts) + size > self._cap:
            oldest = next((t for t in self._texts if self._now.get(t.kind) is not t), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, text: Text) -> None:
        text.close()
        if text in self._texts:
            self._texts.remove(text)
            self._folder.remove(text.name)

    def sweep(self) -> None:
        """Remove what kernels left that were killed."""
        self._folder.sweep()

    def close(self) -> None:
        """Remove everything."""
        for text in self._now.values():
            text.close()
        self._now = {}
        self._texts = []
        self._folder.close()

    # --- reading ------------------------------------------------------------------------------

    def texts(self) -> list[Text]:
        """Return what can be read, in the order in which it came."""
        return [text for text in self._texts if text.over and text.size]

    def page(self, text: Text, number: int) -> Page:
        """Return a page, the last for 0. Raises OSError, and IndexError for one that is not."""
        with closing(self._folder.read(text.name)) as fd:
            count = _pages(fd, text.size, self._page)
            number = number or count
            if number > count:
                raise IndexError(count)
            start, end = (_boundary(fd, n * self._page, text.size) for n in (number - 1, number))
            content = os.pread(fd, end - start, start).decode("utf-8", "replace")
        return Page(text, number, count, content)

    def page_at(self, text: Text, lines: int, inside: int) -> Page | None:
        """Return the page that has the place so many lines on, and bytes in the line.

        None where that can't be told: bytes of a line with colours or redraws are others than those
        that are shown, and only the beginning of a text is looked at. Raises OSError.
        """
        with closing(self._folder.read(text.name)) as fd:
            beginning = os.pread(fd, _BEGINNING, 0)
            at = 0
            for _ in range(lines):
                at = beginning.find(b"\n", at) + 1
                if not at:
                    return None
            start = at
            at = at + inside
            if any(char in beginning[start:at] for char in b"\b\r\x1b"):
                return None
            number = at // self._page + 1
            number -= at < _boundary(fd, (number - 1) * self._page, text.size)
        with contextlib.suppress(IndexError):
            return self.page(text, number)
        return None


def _pages(fd: int, size: int, page: int) -> int:
    count = max(1, -(-size // page))
    while count > 1 and _boundary(fd, (count - 1) * page, size) >= size:
        count -= 1  # the line at whose end it would begin is the last
    return count


def _boundary(fd: int, at: int, size: int) -> int:
    """Return where a page of about ``at`` bytes ends: with a line nearby, or between letters."""
    if at <= 0 or at >= size:
        return min(max(at, 0), size)
    ahead = os.pread(fd, min(_LINE, size - at), at)
    line = ahead.find(b"\n")
    if line >= 0:
        return at + line + 1
    return at + next((i for i, byte in enumerate(ahead) if byte >> 6 != _CONTINUATION), 0)


# --- ``%output``: what it asks for, and the card that answers ------------------------------------

_KINDS: Final = ("stdout", "stderr", "display")
_USAGE: Final = (
    "%output lists what is kept; %output 7 shows cell 7's first page, %output 7 2 and "
    "%output 7 last others, %output 7 stderr another stream."
)
_MAX_DIGITS: Final = 9
#: Cells that are named where nothing is kept of the one that was asked for.
_MAX_NAMED: Final = 10


def _query(argument: str) -> tuple[int, str | None, int] | None:
    """Return the cell's number, the stream if one is named, and the page, 0 for the last.

    Each may be named once, the cell first; None for what is no query.
    """
    first, *others = argument.split()
    cell = _number(first)
    kind = None
    page = None
    for word in others:
        if word in _KINDS and kind is None:
            kind = word
        elif page is None and (word == "last" or _number(word)):
            page = 0 if word == "last" else _number(word)
        else:
            return None
    return None if cell is None else (cell, kind, 1 if page is None else page)


def _number(word: str) -> int | None:
    known = word.isascii() and word.isdecimal() and len(word) <= _MAX_DIGITS
    return int(word) if known else None


def answer(kept: OutputLog, argument: str, *, of_tool: bool = False) -> Bundle:
    """Return the card for ``%output argument``.

    ``of_tool``: pages are named as arguments of the tool ``output``, for who has that.
    """
    row = _tools_row if of_tool else _row
    if not argument.strip():
        return kept_list([row(text) for text in kept.texts()])
    query = _query(argument)
    return kept_note(_USAGE) if query is None else _page_card(kept, row, *query)


def _page_card(
    kept: OutputLog, row_of: Callable[[Text], KeptRow], cell: int, kind: str | None, number: int
) -> Bundle:
    texts = [t for t in kept.texts() if t.cell == cell and kind in (None, t.kind)]
    if not texts:
        what = f"{kind} of cell {cell}" if kind else f"cell {cell}"
        return kept_note(f"Nothing is kept of {what}{_cells(kept)}.")
    text = min(texts, key=lambda t: _KINDS.index(t.kind))
    row = row_of(text)
    try:
        page = kept.page(text, number)
    except IndexError as exc:
        return kept_note(f"There are {exc.args[0]:,} pages: {row.command}{row.page}last")
    except OSError as exc:
        return kept_note(f"What was kept can't be read: {exc.strerror or exc}.")
    content = without_styles(clean_stream_text(page.content))
    return kept_page(row, page.number, page.count, content)


def _cells(kept: OutputLog) -> str:
    """Return which cells there is output of, to go on with a sentence."""
    cells = sorted({text.cell for text in kept.texts()})
    if not cells:
        return ""
    names = ", ".join(map(str, cells[-_MAX_NAMED:]))
    names = f"…, {names}" if len(cells) > _MAX_NAMED else names
    return f"; there is output of {'cell' if len(cells) == 1 else 'cells'} {names}"


def _row(text: Text) -> KeptRow:
    return KeptRow(text.cell, text.kind, text.size, command(text), " ", _missing(text))


def _tools_row(text: Text) -> KeptRow:
    arguments = f"cell={text.cell}, stream={text.kind}"
    return KeptRow(text.cell, text.kind, text.size, arguments, ", page=", _missing(text))


def places(kept: OutputLog, gaps: Mapping[str, tuple[int, int]], *, of_tool: bool = False) -> str:
    """Return where each text of the last cell is read, and how much is kept of one that is cut.

    ``gaps`` are where, in lines and bytes of a stream, that begins which was not shown: its page is
    named.
    """
    row = _tools_row if of_tool else _row
    return "; ".join(
        f"{row(text).command}{_first_page(kept, text, row(text), gaps.get(text.kind))}"
        f"{f' (its first {text.size:,} bytes)' * text.cut}"
        for text in kept.kept_now()
    )


def _first_page(kept: OutputLog, text: Text, row: KeptRow, gap: tuple[int, int] | None) -> str:
    with contextlib.suppress(OSError):
        page = None if gap is None else kept.page_at(text, *gap)
        if page is not None and page.count > 1:
            return f"{row.page}{page.number} of {page.count:,}, where what is missing begins"
    return ""


def _missing(text: Text) -> str:
    if not text.cut:
        return ""
    return f"its beginning: {text.failure}" if text.failure else "its beginning"


def command(text: Text) -> str:
    """Return the line that shows a text's first page."""
    return f"%output {text.cell}" if text.kind == "stdout" else f"%output {text.cell} {text.kind}"


def remedy(text: Text | None) -> str:
    """Return where to read what was left out, for the line that says how much that was."""
    if text is None:
        return ""
    if not text.size:
        return f". Not kept: {text.failure}" if text.failure else ""
    said = f"Its first {text.size:,} bytes" if text.cut else "All of it"
    why = f" ({text.failure})" if text.failure else ""
    return f". {said}{why}: {command(text)}"
