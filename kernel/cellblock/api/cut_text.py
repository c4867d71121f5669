"""A long text of which a reader gets the beginning and the end, cut before anything looks at it.

A cell can show 16 MiB, and a model reads 16,000 characters of it. To look for headings in all of
that, line by line, took seconds, in a loop that serves others. So a text is cut to what may be
shown first, and then cleaned and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.render.headings import Heading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ELLIPSIS: Final = "…"
#: Characters below which a text's end is not worth a note on what is missing before it.
_MIN_CLIPPED: Final = 20


@dataclass(frozen=True, slots=True)
class Cut:
    """A text; or how it begins and ends, and how many characters are missing between.

    ``tail`` is empty where nothing is missing.
    """

    head: str
    tail: str = ""
    missing: int = 0

    def __len__(self) -> int:
        return len(self.head) + self.missing + len(self.tail)

    def to(self, most: int) -> Cut:
        """Return this with at most ``most`` characters of either end."""
        if len(self.head) <= most and len(self.tail) <= most:
            return self
        end = self.tail
        if not self.missing:
            if len(self.head) <= 2 * most:
                return self
            end = self.head
        head, tail = self.head[:most], end[-most:]
        return Cut(head, tail, len(self) - len(head) - len(tail))

    def each(self, change: Callable[[str], str]) -> Cut:
        """Return this with its beginning and its end changed, each by itself."""
        return Cut(change(self.head), change(self.tail) if self.missing else "", self.missing)

    def stripped(self) -> Cut:
        """Return this without newlines at its end."""
        if self.missing:
            return Cut(self.head, self.tail.rstrip("\n"), self.missing)
        return Cut(self.head.rstrip("\n"))

    def clipped(self, room: int) -> str:
        """Return this, or its beginning and its end in at most ``room`` characters.

        Lines are whole where that costs less than half of either. Else what says how much is
        missing stands in the line that is cut: no piece of a line stands by itself, and could be a
        heading.
        """
        if not self.missing and len(self.head) <= room:
            return self.head
        kept = room - len(f" {Heading.CUT.format(number=f'{len(self):,}')} ")
        if kept < _MIN_CLIPPED:
            return f"{self.head[: room - 1]}{_ELLIPSIS}" if room > 0 else ""
        first, last = kept * 2 // 3, kept // 3
        head, before = self.head[:first], " "
        if (end := self.head.rfind("\n", first // 2, first + 1)) >= 0:
            head, before = self.head[:end], "\n"
        rest = self.tail if self.missing else self.head
        begins = max(0, len(rest) - last)
        tail, behind = rest[begins:], " "
        if (begin := rest.find("\n", max(0, begins - 1), len(rest) - last // 2)) >= 0:
            tail, behind = rest[begin + 1 :], "\n"
        note = Heading.CUT.format(number=f"{len(self) - len(head) - len(tail):,}")
        return f"{head}{before}{note}{behind}{tail}"


def joined(sizes: Sequence[int], make: Callable[[int], Cut], between: str, most: int) -> Cut:
    """Return texts as one, with at least ``most`` characters of either end, if there are as many.

    ``make`` returns a text by its number, ``sizes`` says about how long each is. Only those are
    made that are needed.
    """
    first, last, begin, end = list[Cut](), list[Cut](), 0, len(sizes)
    while begin < end and _needs_more(first, most):
        first.append(make(begin))
        begin += 1
    cut_at = first[-1] if first and first[-1].missing else None
    if begin == end and cut_at is None:
        return Cut(between.join(one.head for one in first)).to(most)
    while begin < end and _needs_more(last, most):
        end -= 1
        last.append(make(end))
    ends = [one.tail if one.missing else one.head for one in reversed(last)]
    missing = sum(sizes[begin:end]) + sum(one.missing for one in last)
    missing += sum(len(one.head) for one in last if one.missing)
    if cut_at is not None:
        missing += cut_at.missing + (len(cut_at.tail) if last else 0)
        ends = ends or [cut_at.tail]
    if not missing:
        whole = [one.head for one in first] + ends
        return Cut(between.join(whole)).to(most)
    return Cut(between.join(one.head for one in first), between.join(ends), missing).to(most)


def _needs_more(made: Sequence[Cut], most: int) -> bool:
    """Return whether texts are too short for one end; nothing is joined beyond one that is cut."""
    return not made or not (made[-1].missing or sum(map(len, made)) >= most)
