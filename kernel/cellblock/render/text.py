"""Plain text for terminals: visible characters, display width, wrapping; questions, differences.

Widths follow UAX #11 (wide and fullwidth take two columns) and count combining marks as none.

``unified`` finds the lines in which two texts differ in bounded time, whatever they are:
``difflib`` takes minutes for some texts of 200 kB, and a cell can write one. This is Myers' greedy
algorithm ("An O(ND) difference algorithm", 1986) with a bound on its steps: what is too different
is shown as replaced from the first line that differs to the last.

A ``Question`` is the host's to its user, for an input prompt. It contains everything that is
decided, since a cell may have written all else on the page. Each line begins with a mark that a
cell's own prompts can't have, as they can't have a second line. The code is new each time, so an
answer to an earlier question answers nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


COLUMNS = 80
#: Begins each line of the host's questions; no question of a cell has it.
HOSTS_MARK = "┃"
#: What draws nothing, though much of it is printable to Python: Default_Ignorable_Code_Point of
#: Unicode 16 (DerivedCoreProperties.txt), of which 256 variation selectors can hold a byte each;
#: and what has an empty picture: Khitan's filler, a note without a head, Braille's blank.
_BLANK = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\U00016fe4\U0001d159]"
)
#: What draws nothing and is written nevertheless: the end of a line, a tab, joiners (of Persian, of
#: Indic scripts, of emoji), the choice between a sign and its emoji, and Braille's blank.
_WRITTEN = frozenset("\n\t\u200c\u200d\ufe0e\ufe0f\u2800")
_LAID_OUT = dict.fromkeys(map(ord, "\n\t"))
#: Bidirectional classes (UAX #9) that reorder their neighbours, and categories of marks, which are
#: drawn over their neighbours or not at all.
_REORDERING = frozenset({"R", "AL", "AN"})
_MARKS = frozenset({"Mn", "Me"})
_CONTROL_PICTURES = 0x2400
ELLIPSIS = "…"
_PLAIN = re.compile(r"[\w@%+=:./~-]*")


def is_visible(char: str) -> bool:
    """Return whether a character draws something, where it stands; a space does."""
    return char.isprintable() and _BLANK.match(char) is None


def visible(text: str) -> str:
    """Return ``text`` with every control, format and blank character spelled out.

    C0 controls become control pictures, all else ``⟨U+202E⟩``. What is left can neither move a
    terminal's cursor nor hide in a line. Right-to-left letters are left as they are (``reorders``).
    """
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return "".join(char if is_visible(char) else _picture(char) for char in text)


def _picture(char: str) -> str:
    return chr(_CONTROL_PICTURES + ord(char)) if char < " " else f"⟨U+{ord(char):04X}⟩"


def visible_lines(text: str) -> str:
    """Return ``text`` as ``visible`` does, with its newlines kept but for the last.

    Only a newline begins a line: behind a carriage return, or whatever else Python takes for the
    end of one, a text could show what seems to be somebody else's line.
    """
    return "\n".join(map(visible, text.removesuffix("\n").split("\n")))


def verbatim_lines(text: str) -> str:
    """Return ``text`` for who reads and copies it, and decides nothing by it.

    Newlines, tabs, blanks of any width, and what joins letters and signs stay. What else reorders a
    line, moves a cursor or draws nothing is spelled out as by ``visible``.
    """
    if text.isascii() and text.translate(_LAID_OUT).isprintable():
        return text
    hidden = (char for char in set(text) if not _is_written(char))
    return text.translate({ord(char): _picture(char) for char in hidden})


def _is_written(char: str) -> bool:
    return is_visible(char) or char in _WRITTEN or unicodedata.category(char) == "Zs"


def exact(text: str) -> str:
    """Return ``text`` as one line that can be read in only one way, for a person who decides by it.

    What ``visible`` spells out is a Python escape here, and so are right-to-left letters and
    marks: what is left stands in the order of the text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_exact(char) else _python_escape(char) for char in text)


def reorders(text: str) -> bool:
    """Return whether a terminal may show ``text`` in another order, even what is ``visible``."""
    return not text.isascii() and any(map(_is_right_to_left, text))


def exactly(line: str) -> list[str]:
    """Return a line that repeats ``line`` in the order of its text; none where it is shown so.

    For a person who decides by what is shown, and reads texts with right-to-left letters.
    """
    return [f"runs from right to left; exactly: {exact(line)}"] if reorders(line) else []


def _is_right_to_left(char: str) -> bool:
    return unicodedata.bidirectional(char) in _REORDERING


def _is_exact(char: str) -> bool:
    marks = unicodedata.category(char) in _MARKS
    return is_visible(char) and not marks and not _is_right_to_left(char)


def _python_escape(char: str) -> str:
    number = ord(char)
    if number < 1 << 8:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates replaced: they can't be sent as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """Return how many terminal columns ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, columns: int) -> str:
    """Return ``text`` cut to ``columns`` with an ellipsis where it was cut."""
    if width(text) <= columns:
        return text
    head = next(pieces(text, columns - 1))
    return head + ELLIPSIS if width(head) < columns else ELLIPSIS


def quoted(name: str) -> str:
    """Return a name as it stands in a sentence of the host's, of which it could be taken for words.

    It is quoted unless it is plain: letters, digits and what paths and versions have. A comma is
    not plain, as names in a list are parted by commas.
    """
    return name if _PLAIN.fullmatch(name) else repr(name)


def pieces(word: str, columns: int) -> Iterator[str]:
    """Yield ``word`` in pieces that fit, at least one character each; one walk, however long."""
    start = used = 0
    for index, char in enumerate(word):
        wide = _char_width(char)
        if used + wide > columns and index > start:
            yield word[start:index]
            start = index
            used = 0
        used += wide
    yield word[start:]


def wrap(
    text: str, *, indent: str = "", hanging: str | None = None, columns: int = COLUMNS
) -> list[str]:
    """Break ``text`` at spaces; words longer than a line are broken where the line ends.

    The first line starts with ``indent``, the others with ``hanging``. Line breaks in ``text``
    start a new paragraph.
    """
    hanging = indent if hanging is None else hanging
    longest = max(8, columns - width(hanging))
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = hanging if lines else indent
        empty = True
        for word in visible(paragraph).split():
            for piece in pieces(word, longest) if width(word) > longest else (word,):
                if not empty and width(line) + 1 + width(piece) > columns:
                    lines.append(line)
                    line = hanging
                    empty = True
                line += piece if empty else f" {piece}"
                empty = False
        lines.append(line.rstrip())
    return lines


#: Steps for one pair of texts, some 50 ns each.
_MOST_STEPS: Final = 400_000
#: Lines that are added or removed, of which as many rows of the search are remembered.
_MOST_EDITS: Final = 500
#: Lines that are shown around those that differ.
_AROUND: Final = 3


class _Block(NamedTuple):
    """Lines ``old`` to ``old_end`` that lines ``new`` to ``new_end`` stand for now."""

    old: int
    old_end: int
    new: int
    new_end: int


def unified(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> list[str]:
    """Return a unified diff of lines, as ``diff -u`` has it; nothing where they are equal."""
    blocks = list(_blocks(old, new))
    shown = [f"--- {old_name}", f"+++ {new_name}"] if blocks else []
    while blocks:
        hunk = [blocks.pop(0)]
        while blocks and blocks[0].old - hunk[-1].old_end <= 2 * _AROUND:
            hunk.append(blocks.pop(0))
        shown += _hunk(old, new, hunk)
    return shown


def _hunk(old: Sequence[str], new: Sequence[str], blocks: Sequence[_Block]) -> Iterator[str]:
    first = blocks[0]
    last = blocks[-1]
    before = min(_AROUND, first.old)
    after = min(_AROUND, len(old) - last.old_end)
    spans = (
        _span(first.old - before, last.old_end + after),
        _span(first.new - before, last.new_end + after),
    )
    yield f"@@ -{spans[0]} +{spans[1]} @@"
    at = first.old - before
    for block in blocks:
        yield from (f" {line}" for line in old[at : block.old])
        yield from (f"-{line}" for line in old[block.old : block.old_end])
        yield from (f"+{line}" for line in new[block.new : block.new_end])
        at = block.old_end
    yield from (f" {line}" for line in old[at : at + after])


def _span(start: int, end: int) -> str:
    """Return a range of lines as a diff has it: from 1, and the line before where there is none."""
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Block]:
    """Yield what differs, in order."""
    start = 0
    ends = (len(old), len(new))
    while start < min(ends) and old[start] == new[start]:
        start += 1
    while start < min(ends) and old[ends[0] - 1] == new[ends[1] - 1]:
        ends = ends[0] - 1, ends[1] - 1
    numbers: dict[str, int] = {}
    a, b = (
        [numbers.setdefault(line, len(numbers)) for line in lines]
        for lines in (old[start : ends[0]], new[start : ends[1]])
    )
    at = (0, 0)
    for x, y in (*_equal(a, b), (len(a), len(b))):
        if (x, y) != at:
            yield _Block(start + at[0], start + x, start + at[1], start + y)
        at = x + 1, y + 1


def _equal(a: Sequence[int], b: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return the places of the lines that stay; none where finding them takes too many steps."""
    furthest = {1: 0}
    rows = list[dict[int, int]]()
    steps = 0
    for edits in range(_MOST_EDITS):
        rows.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _begin(furthest, diagonal, edits)
            y = x - diagonal
            began = x
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x = x + 1
                y = y + 1
            steps += 1 + x - began
            furthest[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _back(rows, x, y)
        if steps > _MOST_STEPS:
            break
    return ()


def _begin(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return where a path goes on: a line of the new text more, or one of the old text less."""
    down = furthest.get(diagonal + 1, -1)
    right = furthest.get(diagonal - 1, -1)
    if diagonal == -edits or (diagonal != edits and right < down):
        return down
    return right + 1


def _back(rows: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Return the lines that stay on the path to ``x`` and ``y``, first to last."""
    found = []
    for edits in range(len(rows) - 1, -1, -1):
        diagonal = x - y
        began = _begin(rows[edits], diagonal, edits)
        while x > began:
            x = x - 1
            y = y - 1
            found.append((x, y))
        if edits:
            down = diagonal == -edits or (
                diagonal != edits
                and rows[edits].get(diagonal - 1, -1) < rows[edits].get(diagonal + 1, -1)
            )
            x, y = (x, y - 1) if down else (x - 1, y)
    return found[::-1]


_COLUMNS: Final = COLUMNS - 2
#: Characters of a line of the cell's, of a scope, and of a policy's name.
_LINE: Final = 56
_MEANING: Final = 9
_GOES_ON: Final = "¬"
#: Characters that are named which are not ASCII.
_MOST_LETTERS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question. ``shown`` are lines that have passed ``exact``, broken to fit.

    ``offers`` maps each answer that allows it to its meaning, the narrowest first. ``note`` says
    why it is asked again.
    """

    asks: str
    shown: tuple[str, ...]
    offers: Mapping[str, str]
    code: str
    source: str = ""
    note: str = ""

    @property
    def begins(self) -> tuple[str, ...]:
        """A line that says how the cell begins, or none."""
        first = next((line for line in self.source.splitlines() if line.strip()), "")
        return (f"The cell begins: {clip(exact(first.strip()), _LINE)}",) if first else ()

    def __str__(self) -> str:
        return prompt(self)


def prompt(asked: Question) -> str:
    """Return the prompt; the user types the answer behind it."""
    lines = wrap(f"cellblock asks: {asked.asks}", columns=_COLUMNS)
    lines += [*asked.shown, *asked.begins]
    for answer, meaning in asked.offers.items():
        indent = f"{answer:<{_MEANING}}"
        lines += wrap(meaning, indent=indent, hanging=" " * _MEANING, columns=_COLUMNS)
    *others, last = (
        f"{asked.code} (once)" if answer == "once" else f"{asked.code} {answer}"
        for answer in asked.offers
    )
    last = last if others else asked.code
    ways = f"{', '.join(others)} or {last}" if others else last
    lines += wrap(f"To allow it, type {ways}. Anything else is no.", columns=_COLUMNS)
    lines += wrap(asked.note, columns=_COLUMNS) if asked.note else []
    return "".join(f"{HOSTS_MARK} {line}\n" for line in lines) + f"{HOSTS_MARK} Answer: "


def laid_out(name: str, literal: str) -> list[str]:
    """Return lines for ``name = literal``: nothing is left out, no blank is added or lost."""
    return broken(f"{name} = {literal}", "  ", " " * 6, columns=_COLUMNS)


def broken(text: str, start: str, hanging: str, *, columns: int) -> list[str]:
    """Return lines with all of a visible ``text``: a terminal breaks none of them.

    The first begins with ``start``, the others with ``hanging``, where a terminal would begin with
    the text. A line that continues in the next ends with a mark, so that its last blank is seen.
    """
    room = max(1, columns - max(width(start), width(hanging)) - width(_GOES_ON))
    first, *rest = pieces(text, room)
    lines = [f"{start}{first}", *(f"{hanging}{piece}" for piece in rest)]
    return [*(f"{line}{_GOES_ON}" for line in lines[:-1]), lines[-1]]


def letters(text: str) -> list[str]:
    """Return lines that name the visible characters of a text that are not ASCII.

    Some look like ASCII; those that do most come first, since not all may be named.
    """
    shown = (char for char in text if not char.isascii() and exact(char) == char)
    found = sorted(dict.fromkeys(shown), key=_unlike_ascii)
    if not found:
        return []
    more = f" and {len(found) - _MOST_LETTERS} more" if len(found) > _MOST_LETTERS else ""
    named = ", ".join(f"{char} (U+{ord(char):04X})" for char in found[:_MOST_LETTERS])
    return wrap(f"not ASCII: {named}{more}", indent="  ", hanging=" " * 13, columns=_COLUMNS)


def _unlike_ascii(char: str) -> int:
    """Return how unlike ASCII a character looks, roughly.

    Digits come first (Bengali's four is drawn as an 8), then signs (a slash that parts no folders)
    and letters, then Latin letters with an accent, then what is two columns wide (UAX #11).
    """
    if unicodedata.east_asian_width(char) == "W":
        return 3
    if char.isalpha():
        return 2 if unicodedata.decomposition(char).startswith("00") else 1
    return 0 if char.isnumeric() else 1
