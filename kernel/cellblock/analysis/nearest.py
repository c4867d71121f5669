"""How a text differs from the nearest of some others: said of a character, and shown as lines.

Bounded: what is compared line by line is a piece, for difflib's time grows with the square.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from cellblock.analysis.findings import LINE_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Texts that are looked at, and characters of each whose numbers are compared.
_MOST_LOOKED_AT: Final = 2_000
_SAMPLE: Final = 2_000
#: Lines of a piece that is compared, lines that are shown, characters of one, lines around.
_PIECE: Final = 120
MOST_SHOWN: Final = 60
_WIDEST: Final = 160
_AROUND: Final = 2


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a text first differs from another: line from 1, column from 0, and what stands there.

    ``here`` and ``there`` are single characters, or empty at the end of a text.
    """

    line: int
    column: int
    here: str
    there: str

    def said(self) -> str:
        """Return what is different, where it can't be seen or be told by sight."""
        if not (_needs_a_name(self.here) or _needs_a_name(self.there)):
            return ""
        return f"here is {_named(self.here)}, approved is {_named(self.there)}"


def nearest(text: str, others: Iterable[str]) -> str | None:
    """Return the one of ``others`` that is most like ``text``; None where there are none."""
    lines, signs = _bags(text)
    best, best_score = None, -1.0
    for other in islice(others, _MOST_LOOKED_AT):
        other_lines, other_signs = _bags(other)
        score = _likeness(lines, other_lines) + _likeness(signs, other_signs)
        if score > best_score:
            best, best_score = other, score
    return best


def difference(text: str, other: str) -> Difference:
    """Return where ``text`` first differs from ``other``, which it does."""
    same, end = 0, min(len(text), len(other))
    while same < end:  # what is the same is same..end at most
        middle = (same + end + 1) // 2
        if text[same:middle] == other[same:middle]:
            same = middle
        else:
            end = middle - 1
    lines = LINE_END.split(text[:same])
    return Difference(len(lines), len(lines[-1]), text[same : same + 1], other[same : same + 1])


def unified(text: str, other: str, label: str) -> str:
    """Return the difference as ``diff -u`` has it, at most MOST_SHOWN lines of it."""
    here, there = text.split("\n"), other.split("\n")
    skipped = _common(here, there)
    old, new = there[skipped : skipped + _PIECE], here[skipped : skipped + _PIECE]
    left_out = max(len(here), len(there)) > skipped + _PIECE
    lines = [_clipped(each) for each in _compared(old, new, skipped)]
    left_out = left_out or len(lines) > MOST_SHOWN
    head = [f"--- {one_line(label)}", "+++ this cell"]
    return "\n".join([*head, *lines[:MOST_SHOWN], *(["…"] if left_out else [])])


def one_line(label: str) -> str:
    """Return a label in which a file's name can't begin a line that would be the difference's."""
    return label.replace("\n", "\N{SYMBOL FOR LINE FEED}")


def _bags(text: str) -> tuple[Counter[str], Counter[str]]:
    sample = text[:_SAMPLE]
    return Counter(sample.split("\n")), Counter(sample)


def _likeness(one: Counter[str], other: Counter[str]) -> float:
    """Return how much of two bags is the same: from 0 to 1."""
    both = sum((one & other).values())
    return 2 * both / max(1, one.total() + other.total())


def _common(here: Sequence[str], there: Sequence[str]) -> int:
    """Return how many lines at the start are the same, but for those that are shown around."""
    pairs = zip(here, there, strict=False)
    same = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
    return max(0, (min(len(here), len(there)) if same is None else same) - _AROUND)


def _compared(old: Sequence[str], new: Sequence[str], skipped: int) -> Iterable[str]:
    """Yield a unified difference's hunks, with the numbers that their lines have."""
    found = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in found.get_grouped_opcodes(_AROUND):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield f"@@ -{skipped + a + 1},{b - a} +{skipped + c + 1},{d - c} @@"
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i:j])
            else:
                yield from (f"-{line}" for line in old[i:j])
                yield from (f"+{line}" for line in new[k:m])


def _clipped(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…"


def _needs_a_name(char: str) -> bool:
    return not (char.isascii() and char.isprintable()) or char in ("", " ")


def _named(char: str) -> str:
    """Return a character as it can be told from those that look like it."""
    if not char:
        return "the end of the cell"
    if char == "\n":
        return "the end of the line"
    if not _needs_a_name(char):
        return repr(char)
    name = unicodedata.name(char, "a control character")
    return f"U+{ord(char):04X} ({name})"
