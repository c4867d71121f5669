"""The lines of a reply on staged files: a model hears only of those that changed since the last.

``mcp.session`` has one ``ToldChanges`` for each sandbox, and asks it after each call that ran
cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import ChangesError
from cellblock.render.headings import Heading
from cellblock.render.text import clip, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.host.services.changes import Change, Staged

#: Entries of staged folders that are examined after a call.
MOST_TOLD: Final = 500
#: Files that a line names.
MOST_NAMED: Final = 10
#: Characters of a file's name.
MAX_NAME: Final = 100


class ToldChanges:
    """The staged changes that a session's model has been told of."""

    def __init__(self) -> None:
        #: The changes that could be kept at the last call, by name.
        self._told: dict[str, Change] = {}
        #: Names of staged files that are never kept. They are told once, and not again.
        self._never = set[str]()
        #: Whether the model was told that there are too many: no reply names files after that.
        self._told_many = False

    def news(self, staged: Staged, how: str) -> str:
        """Return lines on what cells staged, or took back, since the last call; "" for nothing.

        ``how`` is the sentence on how a person can keep files. Called in a worker thread, because
        it reads folders.
        """
        if self._told_many or not (self._told or staged.is_written_to()):
            return ""
        try:
            changes = staged.changes(most=MOST_TOLD)
        except ChangesError:
            self._told_many = True
            how_many = f"more than {MOST_TOLD} files. No reply names them from now on"
            return f"{Heading.STAGED}{how_many}: the tool changes lists them. {how}"
        staged_now = {change.name: change for change in changes if not change.why_not}
        never = [change for change in changes if change.why_not and change.name not in self._never]
        new = [
            change
            for change in staged_now.values()
            if _differs(change, self._told.get(change.name))
        ]
        taken_back = self._taken_back(staged, {change.name for change in changes})
        self._told = staged_now
        self._never = {change.name for change in changes if change.why_not}
        return "\n".join(_news_lines(staged, new, taken_back, never, how))

    def _taken_back(self, staged: Staged, names: set[str]) -> list[Change]:
        """Return the changes that cells took back.

        They are not staged any more (``names`` are what is), though nobody kept or dropped them.
        """
        missing = [change for name, change in self._told.items() if name not in names]
        settled = staged.settled() if missing else {}
        return [change for change in missing if change.name not in settled]


def _differs(change: Change, earlier: Change | None) -> bool:
    return earlier is None or (change.kind, change.staged) != (earlier.kind, earlier.staged)


def _news_lines(
    staged: Staged,
    new: Sequence[Change],
    taken_back: Sequence[Change],
    never: Sequence[Change],
    instruction: str,
) -> Iterator[str]:
    """Yield a line for each kind of news that there is."""

    def label(change: Change) -> str:
        return quoted(clip(visible(staged.label(change)), MAX_NAME))

    labels = dict[str, list[str]]()
    for change in new:
        labels.setdefault(change.kind, []).append(label(change))
    if labels:
        yield f"{Heading.STAGED}{_by_kind(labels)}. {instruction}"
    if labels_back := [label(change) for change in taken_back]:
        yield f"{Heading.NOT_STAGED}{_first_names(labels_back, MOST_NAMED)}."
    if never:
        deleted = ("deleted " * (change.kind == "deleted") for change in never)
        reasons = [
            f"{prefix}{label(change)} ({change.why_not})"
            for prefix, change in zip(deleted, never, strict=True)
        ]
        remark = "Only a person can do that in the project."
        yield f"{Heading.NEVER_KEPT}{_first_names(reasons, MOST_NAMED, '; ')}. {remark}"


def _by_kind(labels: dict[str, list[str]]) -> str:
    """Return the names of files, by kind of change.

    These are ``MOST_NAMED`` at most, but at least one of each kind.
    """
    parts = list[str]()
    room = MOST_NAMED
    for kind in ("deleted", "changed", "new"):
        if names := labels.get(kind):
            parts.append(f"{kind} {_first_names(names, max(1, room))}")
            room -= len(names)
    return "; ".join(parts)


def _first_names(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    hidden = len(names) - most
    return between.join([*names[:most], *([f"and {hidden} more"] if hidden > 0 else [])])
