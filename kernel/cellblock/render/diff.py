"""The lines in which two texts differ, found in bounded time whatever they are.

``difflib`` takes minutes for some texts of 200 kB, and a cell can write one. This is Myers' greedy
algorithm ("An O(ND) difference algorithm", 1986) with a bound on its steps: what is too different
is shown as replaced from the first line that differs to the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    first, last = blocks[0], blocks[-1]
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
    start, ends = 0, (len(old), len(new))
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
    furthest, rows, steps = {1: 0}, list[dict[int, int]](), 0
    for edits in range(_MOST_EDITS):
        rows.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _begin(furthest, diagonal, edits)
            y = x - diagonal
            began = x
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
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
            x, y = x - 1, y - 1
            found.append((x, y))
        if edits:
            down = diagonal == -edits or (
                diagonal != edits
                and rows[edits].get(diagonal - 1, -1) < rows[edits].get(diagonal + 1, -1)
            )
            x, y = (x, y - 1) if down else (x - 1, y)
    return found[::-1]
