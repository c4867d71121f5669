"""``OutputLog``: keeps the whole text of cells that showed too much, for ``%output``.

``Outputs`` adds all cleaned text here, for each kind (stdout, stderr, displays) of each cell:

    gathered ── overflowed, or more than MEMORY ──► written to a file ── half the cap ──► full
       │
       └── the cell ended and all was shown ──► forgotten

A cell that shows everything costs no file, and no copy of its text. When the cap is reached, the
oldest cells are forgotten. If the disk can't be written, only the text is lost, and ``%output``
says so.

The second half answers ``%output``, and says in the line about a gap how to read what is missing.
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


#: Bytes of one stream that are gathered in memory. Most policies show no more than this; under
#: others the text is written to its file from here on, even if nothing is left out so far.
MEMORY: Final = 8 << 20
#: Bytes of an overflowed stream that are gathered before they are written.
_BLOCK: Final = 64 << 10
#: Bytes of a page in a notebook.
PAGE = 32 << 10
#: Bytes of a page for a language model.
SHORT_PAGE = 5 << 10
#: Bytes by which a page may be longer, so that it ends with a line.
_LONGEST_LOOK_AHEAD: Final = 4 << 10
_NO_LIMIT: Final = 1 << 60
#: Bytes at a text's beginning in which ``page_at`` looks for a line.
_LONGEST_BEGINNING: Final = 1 << 20
#: The upper two bits of a byte of UTF-8 that continues a character.
_CONTINUATION: Final = 0b10


class Text(Struct, eq=False):
    """The kept text of one cell's stdout, stderr or displays."""

    #: The cell's execution count.
    cell: int
    kind: Kind
    #: Makes the file's name unique: two requests may have the same count.
    serial: int
    #: Bytes in the file.
    size: int = 0
    #: Whether the cell did not show all of it, so that it must be kept.
    over: bool = False
    #: Whether no more text is taken.
    full: bool = False
    #: Whether text is missing at the end.
    cut: bool = False
    #: Why it is missing, if not for the cap: the disk's error.
    failure: str = ""
    #: The file while it is open for writing.
    fd: int | None = None
    #: Text that is not yet in the file. These are the strings that were shown, not copies.
    pending: list[str] = field(default_factory=list)
    #: Bytes of memory that ``pending`` takes.
    gathered: int = 0
    #: Value of ``gathered`` beyond which ``pending`` is written.
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
    """The texts that one kernel keeps, in a folder of its own below ``parent``.

    ``cap`` bounds the bytes on disk: None is no limit, 0 keeps nothing. One cell may use half of
    it, for the beginning of its output. Texts are read in pages of about ``page`` bytes.
    """

    def __init__(self, parent: Path, cap: int | None, page: int = PAGE) -> None:
        self._parent = parent
        self._folder = OwnFolder(parent)
        self._cap = _NO_LIMIT if cap is None else cap
        self._page = page
        #: The texts that have a file, oldest first.
        self._texts: list[Text] = []
        #: The texts of the cell that came last.
        self._current: dict[Kind, Text] = {}
        self._cell = self._serial = 0

    def limit(self, cap: int | None) -> None:
        """Set another cap, and forget the oldest cells until it holds."""
        self._cap = _NO_LIMIT if cap is None else cap
        self._make_room(0)

    def nothing(self) -> OutputLog:
        """Return a log that keeps nothing, for a subshell."""
        return OutputLog(self._parent, 0)

    # --- the running cell ---------------------------------------------------------------------

    def begin(self, cell: int) -> None:
        """Keep text under this execution count from now on; forget what did not overflow before."""
        if self._current:
            self.settle()
            for text in self._current.values():
                if not text.over:
                    self._forget(text)
            self._current = {}
        self._cell = cell

    def full(self, kind: Kind) -> bool:
        """Return whether no more text of this kind is taken from the current cell."""
        return not self._cap or (kind in self._current and self._current[kind].full)

    def add(self, kind: Kind, content: str) -> None:
        """Add cleaned text of the current cell."""
        text = self._current.get(kind)
        if text is None:
            if not self._cap:
                return
            self._serial += 1
            text = self._current[kind] = Text(self._cell, kind, self._serial)
        if not text.full:
            text.pending.append(content)
            text.gathered += getsizeof(content)
            if text.gathered > text.mark:
                self._write(text)

    def overflowed(self, kind: Kind) -> None:
        """Note that the current cell's text of this kind is not shown whole: it must be kept."""
        text = self._current.get(kind)
        if text is not None and not text.over:
            text.over = True
            text.mark = _BLOCK
            # ``%output`` finds texts by the execution count: a newer one replaces an older.
            for earlier in self._texts.copy():
                if earlier is not text and (earlier.cell, earlier.kind) == (text.cell, text.kind):
                    self._forget(earlier)
            self._write(text)

    def keep(self) -> None:
        """Keep all text of the cell that has ended: its reader is shown a cut version (MCP)."""
        for kind in self._current:
            self.overflowed(kind)
        self.settle()

    def kept_now(self) -> list[Text]:
        """Return the readable texts of the cell that came last, in the order of ``%output``."""
        current = [text for text in self.texts() if self._current.get(text.kind) is text]
        return sorted(current, key=lambda text: _KINDS.index(text.kind))

    def settle(self) -> None:
        """Write the pending text of kinds that overflowed, and close the files."""
        for text in self._current.values():
            if text.over:
                self._write(text)
            text.close()

    def state(self, kind: Kind) -> Text | None:
        """Return the current cell's text of this kind; its ``size`` holds after ``settle``."""
        return self._current.get(kind)

    # --- files --------------------------------------------------------------------------------

    def _write(self, text: Text) -> None:
        """Write the pending text, as far as the cell's half of the cap has room."""
        used = sum(each.size for each in self._current.values())
        pending = "".join(text.pending).encode("utf-8", "replace")
        text.pending = []
        text.gathered = 0
        data = memoryview(pending)[: max(0, self._cap // 2 - used)]
        text.cut |= len(data) < len(pending)
        text.full = text.cut
        self._make_room(len(data))
        try:
            if data and text.fd is None and text.size:
                # ``settle`` closed the file, and then the cell wrote more.
                text.fd = self._folder.append(text.name)
            elif data and text.fd is None:
                text.fd = self._folder.create(text.name)
                self._texts.append(text)
            while data and text.fd is not None:
                written = os.write(text.fd, data)
                text.size += written
                data = data[written:]
        except OSError as exc:
            text.failure = exc.strerror or str(exc)
            text.full = text.cut = True

    def _make_room(self, size: int) -> None:
        """Forget the oldest texts, but for the current cell's, until ``size`` more bytes fit."""
        while self._texts and sum(each.size for each in self._texts) + size > self._cap:
            oldest = next(
                (each for each in self._texts if self._current.get(each.kind) is not each),
                None,
            )
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, text: Text) -> None:
        text.close()
        if text in self._texts:
            self._texts.remove(text)
            self._folder.remove(text.name)

    def sweep(self) -> None:
        """Remove the folders of kernels that were killed."""
        self._folder.sweep()

    def close(self) -> None:
        """Close and remove all files."""
        for text in self._current.values():
            text.close()
        self._current = {}
        self._texts = []
        self._folder.close()

    # --- reading ------------------------------------------------------------------------------

    def texts(self) -> list[Text]:
        """Return the texts that can be read, oldest first."""
        return [text for text in self._texts if text.over and text.size]

    def page(self, text: Text, number: int) -> Page:
        """Return a page by its number, or the last page for 0.

        Raises OSError if the file can't be read, and IndexError with the number of pages if there
        is no such page.
        """
        with closing(self._folder.read(text.name)) as fd:
            count = _pages(fd, text.size, self._page)
            number = number or count
            if number > count:
                raise IndexError(count)
            start, end = (
                _boundary(fd, index * self._page, text.size) for index in (number - 1, number)
            )
            content = os.pread(fd, end - start, start).decode("utf-8", "replace")
        return Page(text, number, count, content)

    def page_at(self, text: Text, lines: int, inside: int) -> Page | None:
        """Return the page with the place that is ``lines`` lines and then ``inside`` bytes on.

        The place is where the text that was shown ends. Return None if that can't be told: only the
        first ``_LONGEST_BEGINNING`` bytes are read, and a line with colours or redraws was shown
        with other bytes than it has here. Raises OSError.
        """
        with closing(self._folder.read(text.name)) as fd:
            beginning = os.pread(fd, _LONGEST_BEGINNING, 0)
            offset = 0
            for _ in range(lines):
                offset = beginning.find(b"\n", offset) + 1
                if not offset:
                    return None
            start = offset
            offset = offset + inside
            if any(char in beginning[start:offset] for char in b"\b\r\x1b"):
                return None
            number = offset // self._page + 1
            number -= offset < _boundary(fd, (number - 1) * self._page, text.size)
        with contextlib.suppress(IndexError):
            return self.page(text, number)
        return None


def _pages(fd: int, size: int, page: int) -> int:
    """Return how many pages a text of ``size`` bytes has."""
    count = max(1, -(-size // page))
    while count > 1 and _boundary(fd, (count - 1) * page, size) >= size:
        count -= 1  # the page before is longer, to end with a line, and has all that is left
    return count


def _boundary(fd: int, offset: int, size: int) -> int:
    """Return where the page ends that would end at ``offset``, in bytes.

    That is the end of the line, if it is less than ``_LONGEST_LOOK_AHEAD`` bytes on, or else
    between characters.
    """
    if offset <= 0 or offset >= size:
        return min(max(offset, 0), size)
    ahead = os.pread(fd, min(_LONGEST_LOOK_AHEAD, size - offset), offset)
    line = ahead.find(b"\n")
    if line >= 0:
        return offset + line + 1
    return offset + next(
        (index for index, byte in enumerate(ahead) if byte >> 6 != _CONTINUATION), 0
    )


# --- ``%output``: its argument, and the card that it shows ---------------------------------------

_KINDS: Final = ("stdout", "stderr", "display")
_USAGE: Final = (
    "%output lists what is kept; %output 7 shows cell 7's first page, %output 7 2 and "
    "%output 7 last others, %output 7 stderr another stream."
)
_MAX_DIGITS: Final = 9
#: Cells that a card lists if nothing is kept of the cell that was asked for.
_MAX_NAMED: Final = 10


def _parse_argument(argument: str) -> tuple[int, str | None, int] | None:
    """Parse the argument of ``%output``: a cell, then a stream or a page or both, in any order.

    Return the cell's execution count, the stream or None, and the page's number (0 is the last).
    Return None if the argument is none of these.
    """
    first, *options = argument.split()
    cell = _page_number(first)
    kind = None
    page = None
    for option in options:
        if option in _KINDS and kind is None:
            kind = option
        elif page is None and (option == "last" or _page_number(option)):
            page = 0 if option == "last" else _page_number(option)
        else:
            return None
    return None if cell is None else (cell, kind, 1 if page is None else page)


def _page_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


def answer(log: OutputLog, argument: str, *, of_tool: bool = False) -> Bundle:
    """Return the card for ``%output argument``: a page, or the list of texts without argument.

    With ``of_tool`` the card names other pages as arguments of MCP's tool ``output``, not as
    ``%output`` lines.
    """
    row = _tools_row if of_tool else _row_of
    if not argument.strip():
        return kept_list([row(text) for text in log.texts()])
    query = _parse_argument(argument)
    return kept_note(_USAGE) if query is None else _page_card(log, row, *query)


def _page_card(
    log: OutputLog, row_of: Callable[[Text], KeptRow], cell: int, kind: str | None, number: int
) -> Bundle:
    """Return the card with a page of a cell's text, or with why there is none."""
    texts = [
        kept_text
        for kept_text in log.texts()
        if kept_text.cell == cell and kind in (None, kept_text.kind)
    ]
    if not texts:
        wanted_text = f"{kind} of cell {cell}" if kind else f"cell {cell}"
        return kept_note(f"Nothing is kept of {wanted_text}{_cells_with_output(log)}.")
    text = min(texts, key=lambda kept_text: _KINDS.index(kept_text.kind))
    row = row_of(text)
    try:
        page = log.page(text, number)
    except IndexError as exc:
        return kept_note(f"There are {exc.args[0]:,} pages: {row.command}{row.page}last")
    except OSError as exc:
        return kept_note(f"What was kept can't be read: {exc.strerror or exc}.")
    content = without_styles(clean_stream_text(page.content))
    return kept_page(row, page.number, page.count, content)


def _cells_with_output(log: OutputLog) -> str:
    """Return the end of a sentence, with the cells that there is output of; empty if none."""
    cells = sorted({text.cell for text in log.texts()})
    if not cells:
        return ""
    names = ", ".join(map(str, cells[-_MAX_NAMED:]))
    names = f"…, {names}" if len(cells) > _MAX_NAMED else names
    return f"; there is output of {'cell' if len(cells) == 1 else 'cells'} {names}"


def _row_of(text: Text) -> KeptRow:
    return KeptRow(text.cell, text.kind, text.size, command(text), " ", _missing(text))


def _tools_row(text: Text) -> KeptRow:
    arguments = f"cell={text.cell}, stream={text.kind}"
    return KeptRow(text.cell, text.kind, text.size, arguments, ", page=", _missing(text))


def places(log: OutputLog, gaps: Mapping[str, tuple[int, int]], *, of_tool: bool = False) -> str:
    """Return how to read each text of the last cell, and how much is kept of a text that is cut.

    ``gaps`` says where the part begins that was not shown of a stream: lines, then bytes in the
    line. The page with that place is named.
    """
    row = _tools_row if of_tool else _row_of
    return "; ".join(
        f"{row(text).command}{_first_page(log, text, row(text), gaps.get(text.kind))}"
        f"{f' (its first {text.size:,} bytes)' * text.cut}"
        for text in log.kept_now()
    )


def _first_page(log: OutputLog, text: Text, row: KeptRow, gap: tuple[int, int] | None) -> str:
    """Return the words that name the page where the part begins that was not shown.

    They are empty if nothing is missing, if there is one page only, or if the page can't be found.
    """
    with contextlib.suppress(OSError):
        page = None if gap is None else log.page_at(text, *gap)
        if page is not None and page.count > 1:
            return f"{row.page}{page.number} of {page.count:,}, where what is missing begins"
    return ""


def _missing(text: Text) -> str:
    """Return that only the beginning is kept, and why; empty for a whole text."""
    if not text.cut:
        return ""
    return f"its beginning: {text.failure}" if text.failure else "its beginning"


def command(text: Text) -> str:
    """Return the ``%output`` line that shows a text's first page."""
    return f"%output {text.cell}" if text.kind == "stdout" else f"%output {text.cell} {text.kind}"


def remedy(text: Text | None) -> str:
    """Return the end of the line about a gap: how to read what was left out, or why it is lost."""
    if text is None:
        return ""
    if not text.size:
        return f". Not kept: {text.failure}" if text.failure else ""
    kept_part = f"Its first {text.size:,} bytes" if text.cut else "All of it"
    reason = f" ({text.failure})" if text.failure else ""
    return f". {kept_part}{reason}: {command(text)}"
