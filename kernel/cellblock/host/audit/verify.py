"""Whether a session's records are all there, unchanged and in order, and where they are not.

What this can't see: whoever may write a log can write all of it anew from some record on, with
right hashes; only a ``head`` that was kept elsewhere shows that. A log that was cut at its end
looks like that of a host that was killed: its end is ``open``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.errors import AuditError
from cellblock.host.audit import chain, shelf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.host.audit.chain import Entry

#: Problems of one session that are told; the others are counted.
MOST_PROBLEMS: Final = 100

State = Literal["ended", "running", "open"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, and the place: a file and a line in it, from 1; 0 is all of the file."""

    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a session.

    ``head`` is the hash of the last record before anything is wrong, ``seq`` its number;
    ``anchored`` says whether the hash that was asked for is one of those up to there. ``more`` are
    problems beyond those that are kept.
    """

    session: str
    records: int
    seq: int
    head: str
    state: State
    problems: tuple[Problem, ...]
    anchored: bool
    more: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.problems


def verify(
    session: shelf.Session,
    *,
    head: str = "",
    each: Callable[[Entry], None] = lambda _entry: None,
) -> Verdict:
    """Look through a session's files; ``each`` gets every record that can be read, in order.

    ``head`` is a hash that was kept elsewhere. A file that can't be read is a problem. Raises
    AuditError for one that is no session's, and is all there is.
    """
    running = session.running()
    walk = _Walk(session.id, head, each)
    for file in session.files:
        last = file == session.files[-1]
        walk.file, walk.line = file, 0
        try:
            for raw in shelf.lines(file):
                walk.line += 1
                if raw.endswith(b"\n") or not (running and last):  # else it is being written
                    walk.take(raw)
        except AuditError as exc:
            if not session.id:
                raise
            walk.wrong(exc.message)
    return walk.verdict(session, running=running)


class _Walk:
    """How far the chain is followed."""

    def __init__(self, session: str, head: str, each: Callable[[Entry], None]) -> None:
        self._session, self._wanted, self._each = session, head, each
        self.file: Path
        self.line = 0
        self._problems: list[Problem] = []
        self._more = 0
        self._records = 0
        self._due, self._prev = 0, chain.FIRST
        #: Places before ``_due`` that lines which can't be trusted may have had; the hash of the
        #: record before is not known then.
        self._blind = 0
        self._missing: list[tuple[int, int]] = []
        self._head, self._seq = chain.FIRST, -1
        #: The last record in its place, and its file.
        self._last: dict[str, Any] = {}
        self._ended_in: Path | None = None
        self._anchored = False

    def wrong(self, what: str) -> None:
        """Take note of a problem at the place that is looked at."""
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(Problem(self.file, self.line, what))
        else:
            self._more += 1

    def take(self, raw: bytes) -> None:
        """Follow the chain by one line."""
        entry = chain.read(raw)
        if entry is None:
            whole = raw.endswith(b"\n")
            self._distrust("no record" if whole else "not whole: it was cut, or its writing was")
            return
        self._records += 1
        self._each(entry)
        self._session = self._session or entry.session
        if not entry.intact:
            self._distrust(f"record {self._due} was changed: its hash is not that of its bytes")
        elif entry.session != self._session:
            self._distrust("a record of another session")
        else:
            self._place(entry)

    def _distrust(self, what: str) -> None:
        self.wrong(what)
        self._blind += 1

    def _place(self, entry: Entry) -> None:
        """Judge where an intact record stands."""
        seq = entry.seq
        if seq < self._due:
            moved = any(first <= seq <= last for first, last in self._missing)
            where = f"stands after record {self._due - 1}" if moved else "stands here again"
            self.wrong(f"record {seq} {where}")
            return
        first = self._due + self._blind
        if seq > first:
            self._missing.append((first, seq - 1))
            self.wrong(f"{_span(first, seq - 1)} before record {seq}")
        elif seq == self._due and entry.prev != self._prev:
            self.wrong(f"record {seq} does not follow on the one before: one was exchanged")
        self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        if self._last.get("kind") == "session-end":
            self.wrong(f"record {entry.seq} stands after the session's end")
        if entry.kind == "part" and entry.record.get("why") != "full":
            self.wrong(f"the file before was {_shown(entry.record.get('why'))} by somebody else")
        self._due, self._prev, self._blind = entry.seq + 1, entry.hash, 0
        self._last, self._ended_in = entry.record, self.file
        if not self._problems:
            self._head, self._seq = entry.hash, entry.seq
            self._anchored = self._anchored or entry.hash == self._wanted

    def verdict(self, session: shelf.Session, *, running: bool) -> Verdict:
        """Say what came of it."""
        kind = self._last.get("kind")
        if kind == "part-end" and not running and self._ended_in == session.files[-1]:
            self.wrong(f"{session.next.name}, which follows, is missing")
        if self._wanted and not self._anchored:
            self.wrong("the hash that was kept is not here: records were exchanged or cut off")
        state: State = "running" if running else "open"
        if kind == "session-end" and not self._blind:
            state = "ended"
        return Verdict(
            self._session,
            self._records,
            self._seq,
            self._head,
            state,
            tuple(self._problems),
            self._anchored,
            self._more,
        )


def _span(first: int, last: int) -> str:
    if first == last:
        return f"record {first} is missing"
    return f"records {first} to {last} are missing"


def _shown(why: object) -> str:
    return str(why) if why in ("removed", "changed") else "dealt with"
