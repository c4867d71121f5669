"""What a model is told of staged files with each reply: those that differ from what it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import ChangesError
from cellblock.render.headings import Heading
from cellblock.render.text import clip, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.host.services.changes import Change, Staged

#: Entries of staged folders that are looked at after each cell, and files that a line names.
MOST_TOLD: Final = 500
MOST_NAMED: Final = 10
MAX_NAME: Final = 100


class ToldChanges:
    """What of a session's staged files its model was told."""

    def __init__(self) -> None:
        #: What could be kept when it was told of, by its name.
        self._told: dict[str, Change] = {}
        #: Names of what is there and never kept: telling it once is enough.
        self._never = set[str]()
        self._told_many = False

    def news(self, staged: Staged, how: str) -> str:
        """Return lines on what cells staged, or took back, since the last call; empty for nothing.

        ``how`` says who can keep it. Called in a thread, as it reads folders.
        """
        if self._told_many or not (self._told or staged.is_written_to()):
            return ""
        try:
            found = staged.changes(most=MOST_TOLD)
        except ChangesError:
            self._told_many = True
            many = f"more than {MOST_TOLD} files. No reply names them from now on"
            return f"{Heading.STAGED}{many}: the tool changes lists them. {how}"
        now = {one.name: one for one in found if not one.why_not}
        never = [one for one in found if one.why_not and one.name not in self._never]
        new = [one for one in now.values() if _differs(one, self._told.get(one.name))]
        gone = self._gone(staged, {one.name for one in found})
        self._told = now
        self._never = {one.name for one in found if one.why_not}
        return "\n".join(_lines(staged, new, gone, never, how))

    def _gone(self, staged: Staged, names: set[str]) -> list[Change]:
        """Return what cells took back: it is staged no more, and nobody kept or dropped it."""
        gone = [one for name, one in self._told.items() if name not in names]
        settled = staged.settled() if gone else {}
        return [one for one in gone if one.name not in settled]


def _differs(one: Change, told: Change | None) -> bool:
    return told is None or (one.kind, one.staged) != (told.kind, told.staged)


def _lines(
    staged: Staged,
    new: Sequence[Change],
    gone: Sequence[Change],
    never: Sequence[Change],
    how: str,
) -> Iterator[str]:
    def label(one: Change) -> str:
        return quoted(clip(visible(staged.label(one)), MAX_NAME))

    words = dict[str, list[str]]()
    for one in new:
        words.setdefault(one.kind, []).append(label(one))
    if words:
        yield f"{Heading.STAGED}{_named(words)}. {how}"
    if taken_back := [label(one) for one in gone]:
        yield f"{Heading.NOT_STAGED}{_some(taken_back, MOST_NAMED)}."
    if never:
        deleted = ("deleted " * (one.kind == "deleted") for one in never)
        each = [
            f"{what}{label(one)} ({one.why_not})" for what, one in zip(deleted, never, strict=True)
        ]
        only = "Only a person can do that in the project."
        yield f"{Heading.NEVER_KEPT}{_some(each, MOST_NAMED, '; ')}. {only}"


def _named(words: dict[str, list[str]]) -> str:
    """Return names by what became of them, at most ``MOST_NAMED`` and one of each."""
    parts, room = list[str](), MOST_NAMED
    for kind in ("deleted", "changed", "new"):
        if names := words.get(kind):
            parts.append(f"{kind} {_some(names, max(1, room))}")
            room -= len(names)
    return "; ".join(parts)


def _some(names: Sequence[str], most: int, between: str = ", ") -> str:
    more = len(names) - most
    return between.join([*names[:most], *([f"and {more} more"] if more > 0 else [])])
