"""Plain text for terminals, in three parts.

**Visible characters, width and wrapping.** Widths follow UAX #11: wide and fullwidth characters
take two columns, combining marks none.

**Differences.** ``unified`` makes a unified diff in bounded time. ``difflib`` takes minutes for
some texts of 200 kB, and a cell can write such a text. This is Myers' greedy algorithm ("An O(ND)
difference algorithm", 1986) with a bound on its steps. If that is reached, everything from the
first line that differs to the last is shown as replaced.

**Questions.** A ``Question`` is the host's question to its user, shown as an input prompt. The
prompt itself contains all that the user decides about, since everything else on the page may be
written by a cell. Each of its lines begins with a mark. A cell's own prompts can have neither the
mark nor a second line. The code in it is new each time, so the answer to an earlier question is no
answer to this one.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


COLUMNS = 80
#: Begins each line of the host's questions. The gateway removes it from a cell's prompts.
HOSTS_MARK = "┃"
#: Characters that draw nothing, though many are printable for Python. First
#: Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt), of which 256 variation
#: selectors can hide a byte each. Then characters with an empty glyph: Khitan's filler, a note
#: without a head, Braille's blank.
_BLANK = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\U00016fe4\U0001d159]"
)
#: Characters that draw nothing and that ordinary text needs: newline, tab, joiners (of Persian,
#: Indic scripts and emoji), the choice between a sign and its emoji, and Braille's blank.
_WRITTEN = frozenset("\n\t\u200c\u200d\ufe0e\ufe0f\u2800")
_LAID_OUT = dict.fromkeys(map(ord, "\n\t"))
#: Bidirectional classes (UAX #9) of characters that reorder their neighbours.
_REORDERING = frozenset({"R", "AL", "AN"})
#: Categories of marks, which are drawn over their neighbours or not at all.
_MARKS = frozenset({"Mn", "Me"})
_CONTROL_PICTURES = 0x2400
ELLIPSIS = "…"
_PLAIN = re.compile(r"[\w@%+=:./~-]*")


def is_visible(char: str) -> bool:
    """Return whether a character draws something in its place. A space counts."""
    return char.isprintable() and _BLANK.match(char) is None


def visible(text: str) -> str:
    """Return ``text`` with every control, format and blank character spelled out.

    C0 controls become control pictures, others ``⟨U+202E⟩``. The result can neither move a
    terminal's cursor nor hide anything. Right-to-left letters stay as they are (see ``reorders``).
    """
    if text.isprintable() and (text.isascii() or _BLANK.search(text) is None):
        return text
    return "".join(char if is_visible(char) else _spelled_out(char) for char in text)


def _spelled_out(char: str) -> str:
    return chr(_CONTROL_PICTURES + ord(char)) if char < " " else f"⟨U+{ord(char):04X}⟩"


def visible_lines(text: str) -> str:
    """Return ``text`` as ``visible`` does, but keep its newlines, except for the last.

    Only a newline ends a line. A carriage return, or another character that Python takes for the
    end of a line, is spelled out: what follows it could pass for another program's line.
    """
    return "\n".join(map(visible, text.removesuffix("\n").split("\n")))


def verbatim_lines(text: str) -> str:
    """Return ``text`` for a reader who may copy it, and who takes no decision by it.

    Newlines, tabs, blanks of any width, and joiners of letters and signs stay. Other characters
    that reorder a line, move a cursor or draw nothing are spelled out, as by ``visible``.
    """
    if text.isascii() and text.translate(_LAID_OUT).isprintable():
        return text
    hidden = (char for char in set(text) if not _is_written(char))
    return text.translate({ord(char): _spelled_out(char) for char in hidden})


def _is_written(char: str) -> bool:
    """Return whether ``verbatim_lines`` keeps a character."""
    return is_visible(char) or char in _WRITTEN or unicodedata.category(char) == "Zs"


def exact(text: str) -> str:
    """Return ``text`` as one line that can be read in only one way, for a user who decides by it.

    Python escapes stand for the characters that ``visible`` spells out, and for right-to-left
    letters and marks. So the line is shown in the order of the text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_exact(char) else _python_escape(char) for char in text)


def reorders(text: str) -> bool:
    """Return whether a terminal may show ``text`` in another order, even after ``visible``."""
    return not text.isascii() and any(map(_is_right_to_left, text))


def exactly(line: str) -> list[str]:
    """Return one note that repeats ``line`` in the order of its text; none for most lines.

    A line gets the note if a terminal may reorder it. The note is for a user who decides by the
    line. The line itself keeps its right-to-left letters, for those who can read them.
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
    """Return ``text`` without lone surrogates, which can't be sent as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """Return how many terminal columns ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, columns: int) -> str:
    """Return ``text`` cut to ``columns``, with an ellipsis at its end if it was cut."""
    if width(text) <= columns:
        return text
    head = next(pieces(text, columns - 1))
    return head + ELLIPSIS if width(head) < columns else ELLIPSIS


def quoted(name: str) -> str:
    """Return a name for a sentence of the host's, quoted if it could be read as part of it.

    A plain name, of letters, digits and the signs of paths and versions, is not quoted. A comma is
    not plain, since commas separate the names in a list.
    """
    return name if _PLAIN.fullmatch(name) else repr(name)


def pieces(word: str, columns: int) -> Iterator[str]:
    """Yield ``word`` in pieces of at most ``columns``, at least one character each.

    The time is linear in the word's length.
    """
    start = used_columns = 0
    for index, char in enumerate(word):
        char_columns = _char_width(char)
        if used_columns + char_columns > columns and index > start:
            yield word[start:index]
            start = index
            used_columns = 0
        used_columns += char_columns
    yield word[start:]


def wrap(
    text: str, *, indent: str = "", hanging: str | None = None, columns: int = COLUMNS
) -> list[str]:
    """Return the lines of ``text``, broken at spaces; a word longer than a line is broken too.

    The first line starts with ``indent``, the others with ``hanging`` (by default the same). A line
    break in ``text`` starts a new line. All characters are made visible.
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


# --- differences ------------------------------------------------------------------------------

#: Steps for one pair of texts, some 50 ns each.
_MOST_STEPS: Final = 400_000
#: Lines added or removed. The search keeps a row for each.
_MOST_EDITS: Final = 500
#: Equal lines that are shown around different ones.
_CONTEXT_LINES: Final = 3


class _Block(NamedTuple):
    """A difference: lines ``old`` to ``old_end`` became lines ``new`` to ``new_end``."""

    old: int
    old_end: int
    new: int
    new_end: int


def unified(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> list[str]:
    """Return a unified diff of lines, as ``diff -u`` makes it; empty if they are equal."""
    blocks = list(_blocks(old, new))
    diff_lines = [f"--- {old_name}", f"+++ {new_name}"] if blocks else []
    while blocks:
        hunk = [blocks.pop(0)]
        while blocks and blocks[0].old - hunk[-1].old_end <= 2 * _CONTEXT_LINES:
            hunk.append(blocks.pop(0))
        diff_lines += _hunk(old, new, hunk)
    return diff_lines


def _hunk(old: Sequence[str], new: Sequence[str], blocks: Sequence[_Block]) -> Iterator[str]:
    """Yield one hunk of the diff, with the equal lines between and around its blocks."""
    first = blocks[0]
    last = blocks[-1]
    lines_before = min(_CONTEXT_LINES, first.old)
    lines_after = min(_CONTEXT_LINES, len(old) - last.old_end)
    spans = (
        _span(first.old - lines_before, last.old_end + lines_after),
        _span(first.new - lines_before, last.new_end + lines_after),
    )
    yield f"@@ -{spans[0]} +{spans[1]} @@"
    position = first.old - lines_before
    for block in blocks:
        yield from (f" {line}" for line in old[position : block.old])
        yield from (f"-{line}" for line in old[block.old : block.old_end])
        yield from (f"+{line}" for line in new[block.new : block.new_end])
        position = block.old_end
    yield from (f" {line}" for line in old[position : position + lines_after])


def _span(start: int, end: int) -> str:
    """Return a range of lines as in a diff's header: first line from 1, and number of lines.

    A number of 1 is left out. An empty range begins at the line before it.
    """
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Block]:
    """Yield the differences, in order."""
    start = 0
    ends = (len(old), len(new))
    while start < min(ends) and old[start] == new[start]:
        start += 1
    while start < min(ends) and old[ends[0] - 1] == new[ends[1] - 1]:
        ends = ends[0] - 1, ends[1] - 1
    # Between equal beginnings and ends, lines are compared by numbers, which is faster.
    numbers: dict[str, int] = {}
    a, b = (
        [numbers.setdefault(line, len(numbers)) for line in lines]
        for lines in (old[start : ends[0]], new[start : ends[1]])
    )
    position = (0, 0)
    for x, y in (*_equal(a, b), (len(a), len(b))):
        if (x, y) != position:
            yield _Block(start + position[0], start + x, start + position[1], start + y)
        position = x + 1, y + 1


def _equal(a: Sequence[int], b: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return the positions in ``a`` and ``b`` of lines that stay; none if that takes too long.

    ``furthest`` maps each diagonal (x - y) to the largest x that so many edits reach.
    """
    furthest = {1: 0}
    rows = list[dict[int, int]]()
    steps = 0
    for edits in range(_MOST_EDITS):
        rows.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _path_start(furthest, diagonal, edits)
            y = x - diagonal
            began = x
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x = x + 1
                y = y + 1
            steps += 1 + x - began
            furthest[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _path_back(rows, x, y)
        if steps > _MOST_STEPS:
            break
    return ()


def _path_start(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return the x from which a path goes on after one more edit: a line added or removed."""
    if_added = furthest.get(diagonal + 1, -1)
    if_removed = furthest.get(diagonal - 1, -1)
    if diagonal == -edits or (diagonal != edits and if_removed < if_added):
        return if_added
    return if_removed + 1


def _path_back(rows: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Return the positions of lines that stay, on the path that ends at ``x`` and ``y``, in order.

    Follows the path back through the rows that ``_equal`` kept.
    """
    pairs = []
    for edits in range(len(rows) - 1, -1, -1):
        diagonal = x - y
        began = _path_start(rows[edits], diagonal, edits)
        while x > began:
            x = x - 1
            y = y - 1
            pairs.append((x, y))
        if edits:
            is_added = diagonal == -edits or (
                diagonal != edits
                and rows[edits].get(diagonal - 1, -1) < rows[edits].get(diagonal + 1, -1)
            )
            x, y = (x, y - 1) if is_added else (x - 1, y)
    return pairs[::-1]


# --- questions --------------------------------------------------------------------------------

#: Columns of a question's line, behind the mark.
_COLUMNS: Final = COLUMNS - 2
#: Columns of the cell's first line.
_LINE: Final = 56
#: The column at which the meaning of an answer begins.
_ANSWER_COLUMNS: Final = 9
#: Ends a line that continues in the next one.
_GOES_ON: Final = "¬"
#: Characters beyond ASCII that are named.
_MOST_LETTERS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the host's to its user."""

    #: What is to be allowed, as a sentence.
    asks: str
    #: The facts to decide by, as lines that have passed ``exact`` and are broken to fit.
    shown: tuple[str, ...]
    #: The answers that allow it, each with its meaning, the narrowest first.
    offers: Mapping[str, str]
    #: The code that each answer must begin with.
    code: str
    #: The source of the cell on whose behalf the host asks.
    source: str = ""
    #: Why it is asked again.
    note: str = ""

    @property
    def begins(self) -> tuple[str, ...]:
        """The line with the cell's first line, or nothing if the cell is not known."""
        first = next((line for line in self.source.splitlines() if line.strip()), "")
        return (f"The cell begins: {clip(exact(first.strip()), _LINE)}",) if first else ()

    def __str__(self) -> str:
        return prompt(self)


def prompt(question: Question) -> str:
    """Return the prompt of a question, behind which the user types the answer."""
    lines = wrap(f"cellblock asks: {question.asks}", columns=_COLUMNS)
    lines += [*question.shown, *question.begins]
    for answer, meaning in question.offers.items():
        indent = f"{answer:<{_ANSWER_COLUMNS}}"
        lines += wrap(meaning, indent=indent, hanging=" " * _ANSWER_COLUMNS, columns=_COLUMNS)
    *alternatives, last_alternative = (
        f"{question.code} (once)" if answer == "once" else f"{question.code} {answer}"
        for answer in question.offers
    )
    last_alternative = last_alternative if alternatives else question.code
    choices = (
        f"{', '.join(alternatives)} or {last_alternative}" if alternatives else last_alternative
    )
    lines += wrap(f"To allow it, type {choices}. Anything else is no.", columns=_COLUMNS)
    lines += wrap(question.note, columns=_COLUMNS) if question.note else []
    return "".join(f"{HOSTS_MARK} {line}\n" for line in lines) + f"{HOSTS_MARK} Answer: "


def laid_out(name: str, literal: str) -> list[str]:
    """Return lines with all of ``name = literal``, without a blank more or less."""
    return broken(f"{name} = {literal}", "  ", " " * 6, columns=_COLUMNS)


def broken(text: str, start: str, hanging: str, *, columns: int) -> list[str]:
    """Return lines with all of a visible ``text``, short enough that a terminal breaks none.

    The first begins with ``start``, the others with ``hanging``. If the terminal broke the text, a
    line could begin with the text itself. A line that continues ends with a mark, so that a blank
    at its end can be seen.
    """
    room = max(1, columns - max(width(start), width(hanging)) - width(_GOES_ON))
    first, *rest = pieces(text, room)
    lines = [f"{start}{first}", *(f"{hanging}{piece}" for piece in rest)]
    return [*(f"{line}{_GOES_ON}" for line in lines[:-1]), lines[-1]]


def letters(text: str) -> list[str]:
    """Return lines that name the visible characters of a text that are not ASCII.

    Some look like ASCII. Those that look most like it come first, since not all may be named.
    """
    visible_letters = (char for char in text if not char.isascii() and exact(char) == char)
    sorted_letters = sorted(dict.fromkeys(visible_letters), key=_unlike_ascii)
    if not sorted_letters:
        return []
    more = (
        f" and {len(sorted_letters) - _MOST_LETTERS} more"
        if len(sorted_letters) > _MOST_LETTERS
        else ""
    )
    names = ", ".join(f"{char} (U+{ord(char):04X})" for char in sorted_letters[:_MOST_LETTERS])
    return wrap(f"not ASCII: {names}{more}", indent="  ", hanging=" " * 13, columns=_COLUMNS)


def _unlike_ascii(char: str) -> int:
    """Return roughly how unlike ASCII a character looks, for sorting.

    Digits come first (Bengali's four looks like an 8), then signs (such as a slash that is not a
    path's) and letters, then Latin letters with an accent, then wide characters (UAX #11).
    """
    if unicodedata.east_asian_width(char) == "W":
        return 3
    if char.isalpha():
        return 2 if unicodedata.decomposition(char).startswith("00") else 1
    return 0 if char.isnumeric() else 1
