"""Cutting a long text to its beginning and its end, before the text is cleaned.

A cell can show 16 MiB, of which a model reads 16,000 characters. Looking for headings in all of
that, line by line, took seconds, on a loop that also serves other sandboxes. So a text is first cut
to the characters that may be shown, and only these are cleaned and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.render.headings import Heading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ELLIPSIS: Final = "…"
#: If fewer characters than this fit beside the note on what is missing, only the beginning of a
#: text is shown, without a note.
_MIN_CLIPPED: Final = 20


@dataclass(frozen=True, slots=True)
class Cut:
    """A text, or its beginning and end, and the number of characters that are missing in between.

    If nothing is missing, ``head`` is the whole text and ``tail`` is empty.
    """

    head: str
    tail: str = ""
    missing: int = 0

    def __len__(self) -> int:
        return len(self.head) + self.missing + len(self.tail)

    def to(self, most: int) -> Cut:
        """Return the text with at most ``most`` characters of either end."""
        if len(self.head) <= most and len(self.tail) <= most:
            return self
        end = self.tail
        if not self.missing:
            if len(self.head) <= 2 * most:
                return self
            end = self.head
        head = self.head[:most]
        tail = end[-most:]
        return Cut(head, tail, len(self) - len(head) - len(tail))

    def each(self, change: Callable[[str], str]) -> Cut:
        """Return the text with ``change`` applied to its beginning and to its end, separately."""
        return Cut(change(self.head), change(self.tail) if self.missing else "", self.missing)

    def stripped(self) -> Cut:
        """Return the text without newlines at its end."""
        if self.missing:
            return Cut(self.head, self.tail.rstrip("\n"), self.missing)
        return Cut(self.head.rstrip("\n"))

    def clipped(self, room: int) -> str:
        """Return the text, or its beginning and its end, in at most ``room`` characters.

        Between the two stands a note on how many characters are missing. Each end is cut at a
        newline if it loses less than half of its room by that. Otherwise the note stands within the
        line that is cut: a piece of a line never has a line to itself, where it could read as a
        heading.
        """
        if not self.missing and len(self.head) <= room:
            return self.head
        text_room = room - len(f" {Heading.CUT.format(number=f'{len(self):,}')} ")
        if text_room < _MIN_CLIPPED:
            return f"{self.head[: room - 1]}{_ELLIPSIS}" if room > 0 else ""
        head_room = text_room * 2 // 3
        tail_room = text_room // 3
        head, gap_before = self.head[:head_room], " "
        if (end := self.head.rfind("\n", head_room // 2, head_room + 1)) >= 0:
            head, gap_before = self.head[:end], "\n"
        ending = self.tail if self.missing else self.head
        tail_start = max(0, len(ending) - tail_room)
        tail, gap_behind = ending[tail_start:], " "
        if (begin := ending.find("\n", max(0, tail_start - 1), len(ending) - tail_room // 2)) >= 0:
            tail, gap_behind = ending[begin + 1 :], "\n"
        note = Heading.CUT.format(number=f"{len(self) - len(head) - len(tail):,}")
        return f"{head}{gap_before}{note}{gap_behind}{tail}"


def joined(sizes: Sequence[int], make: Callable[[int], Cut], between: str, most: int) -> Cut:
    """Return texts joined by ``between``, with ``most`` characters of either end if there are more.

    ``make`` makes a text, by its index, and ``sizes`` has about how long each is. Texts are made
    from both ends, until either end has ``most`` characters. The others are never made: they count
    as missing, with their sizes.
    """
    first_texts = list[Cut]()
    last_texts = list[Cut]()
    begin = 0
    end = len(sizes)
    while begin < end and _needs_more(first_texts, most):
        first_texts.append(make(begin))
        begin += 1
    # If the last of the first texts was cut itself, its own end is part of the gap, or the end of
    # the whole if no text follows.
    cut_at = first_texts[-1] if first_texts and first_texts[-1].missing else None
    if begin == end and cut_at is None:
        return Cut(between.join(text.head for text in first_texts)).to(most)
    while begin < end and _needs_more(last_texts, most):
        end -= 1
        last_texts.append(make(end))
    ends = [text.tail if text.missing else text.head for text in reversed(last_texts)]
    missing = sum(sizes[begin:end]) + sum(text.missing for text in last_texts)
    missing += sum(len(text.head) for text in last_texts if text.missing)
    if cut_at is not None:
        missing += cut_at.missing + (len(cut_at.tail) if last_texts else 0)
        ends = ends or [cut_at.tail]
    if not missing:
        whole = [text.head for text in first_texts] + ends
        return Cut(between.join(whole)).to(most)
    return Cut(between.join(text.head for text in first_texts), between.join(ends), missing).to(
        most
    )


def _needs_more(texts: Sequence[Cut], most: int) -> bool:
    """Return whether an end needs another text: it is too short, and its last text is not cut."""
    return not texts or not (texts[-1].missing or sum(map(len, texts)) >= most)
