"""The folder of audit logs, for reading: sessions, their files, the lines in them."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.errors import AuditError
from cellblock.host.audit import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cellblock.host.audit.log import Entry


#: Bytes of a line; a source of four million characters may take six each.
LONGEST: Final = 32 << 20
_NAME: Final = re.compile(r"\d{8}T\d{6}(?:\d{6})?Z-([0-9a-f]{16})\.(\d{4,9})\.jsonl")
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Session:
    """The files of one session, in their order, and whether the last is being written.

    ``id`` is empty where that is a file that was named, and is not called as logs are.
    """

    id: str
    files: tuple[Path, ...]

    def running(self) -> bool:
        """Whether a host holds the last file."""
        try:
            fd = os.open(self.files[-1], _READ)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(fd)
        return False

    @property
    def next(self) -> Path:
        """The file that would follow the last."""
        stem = self.files[-1].name.split(".")[0]
        return self.files[-1].with_name(f"{stem}.{part_of(self.files[-1]) + 1:04}.jsonl")


def part_of(path: Path) -> int:
    """Return a file's number, 1 where its name is not one of ours."""
    found = _NAME.fullmatch(path.name)
    return int(found[2]) if found else 1


def is_log_name(name: str) -> bool:
    """Whether a log's file may be called so."""
    return _NAME.fullmatch(name) is not None


def sessions(folder: Path) -> list[Session]:
    """Return the sessions whose logs lie in a folder, oldest first. Raise AuditError."""
    files: dict[str, list[Path]] = {}
    try:
        for path in sorted(folder.iterdir()):
            if found := _NAME.fullmatch(path.name):
                files.setdefault(found[1], []).append(path)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise _unreadable(folder, exc) from None
    return [Session(name, tuple(sorted(parts, key=part_of))) for name, parts in files.items()]


def find(folder: Path, wanted: str) -> Session:
    """Return the session whose id begins so, the newest for ``last``. Raise AuditError."""
    known = sessions(folder)
    if wanted == "last" and known:
        return known[-1]
    found = [one for one in known if one.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    what = f"more than one session begins with {wanted}" if found else f"no session {wanted}"
    remedy = "`cellblock audit show` lists those there are."
    raise AuditError(what, file=str(folder), remedy=remedy)


def of_file(path: Path) -> Session:
    """Return the session that a file belongs to, with the files of its that lie beside it."""
    if not _NAME.fullmatch(path.name):
        return Session("", (path,))
    beside = sessions(path.parent)
    return next((one for one in beside if path in one.files), Session("", (path,)))


def lines(path: Path) -> Iterator[bytes]:
    """Yield a file's lines, ends included; one that is too long in pieces. Raise AuditError."""
    try:
        fd = os.open(path, _READ)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AuditError("not a file", file=str(path), remedy="Name a log, or a session.")
            while line := file.readline(LONGEST):
                yield line
    except OSError as exc:
        raise _unreadable(path, exc) from None


def _unreadable(path: Path, exc: OSError) -> AuditError:
    remedy = "Name a log or a folder of logs that this user may read."
    what = "it is a link" if exc.errno == errno.ELOOP else f"can't be read: {exc.strerror}"
    return AuditError(what, file=str(path), remedy=remedy)


# --- whether a session's records are all there, unchanged and in order, and where they are not ----
#
# What this can't see: whoever may write a log can write all of it anew from some record on, with
# right hashes; only a ``head`` that was kept elsewhere shows that. A log that was cut at its end
# looks like that of a host that was killed: its end is ``open``.

#: Problems of one session that are returned; the others are counted.
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
    """What was found of a session.

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
    session: Session,
    *,
    head: str = "",
    each: Callable[[Entry], None] = lambda _entry: None,
) -> Verdict:
    """Look through a session's files; ``each`` gets every record that can be read, in order.

    ``head`` is a hash that was kept elsewhere. A file that can't be read is a problem. Raises
    AuditError for one that is no session's, and is all there is.
    """
    running = session.running()
    verifier = _Verifier(session.id, head, each)
    for file in session.files:
        last = file == session.files[-1]
        verifier.file, verifier.line = file, 0
        try:
            for raw in lines(file):
                verifier.line += 1
                if raw.endswith(b"\n") or not (running and last):  # else it is being written
                    verifier.take(raw)
        except AuditError as exc:
            if not session.id:
                raise
            verifier.wrong(exc.message)
    return verifier.verdict(session, running=running)


class _Verifier:
    """How far the chain is followed."""

    def __init__(self, session: str, head: str, each: Callable[[Entry], None]) -> None:
        self._session, self._wanted, self._each = session, head, each
        self.file: Path
        self.line = 0
        self._problems: list[Problem] = []
        self._more = 0
        self._records = 0
        self._due, self._prev = 0, log.FIRST
        #: Places before ``_due`` that lines which can't be trusted may have had; the hash of the
        #: record before is not known then.
        self._blind = 0
        self._missing: list[tuple[int, int]] = []
        self._head, self._seq = log.FIRST, -1
        #: The last record in its place, and its file.
        self._last: dict[str, Any] = {}
        self._ended_in: Path | None = None
        self._anchored = False

    def wrong(self, what: str) -> None:
        """Note a problem at the place that is looked at."""
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(Problem(self.file, self.line, what))
        else:
            self._more += 1

    def take(self, raw: bytes) -> None:
        """Follow the chain by one line."""
        entry = log.read(raw)
        if entry is not None:
            self._records += 1
            self._each(entry)
            self._session = self._session or entry.session
        if entry is None and raw.endswith(b"\n"):
            what = "no record"
        elif entry is None:
            what = "not whole: it was cut, or its writing was"
        elif not entry.intact:
            what = f"record {self._due} was changed: its hash is not that of its bytes"
        elif entry.session != self._session:
            what = "a record of another session"
        else:
            self._place(entry)
            return
        self.wrong(what)
        self._blind += 1

    def _place(self, entry: Entry) -> None:
        """Judge where an intact record stands."""
        seq, first = entry.seq, self._due + self._blind
        if seq < self._due:
            moved = any(start <= seq <= end for start, end in self._missing)
            where = f"stands after record {self._due - 1}" if moved else "stands here again"
            self.wrong(f"record {seq} {where}")
            return
        if seq > first:
            self._missing.append((first, seq - 1))
            missing = f"records {first} to {seq - 1} are missing"
            if first == seq - 1:
                missing = f"record {first} is missing"
            self.wrong(f"{missing} before record {seq}")
        elif seq == self._due and entry.prev != self._prev:
            self.wrong(f"record {seq} does not follow on the one before: one was exchanged")
        if self._last.get("kind") == "session-end":
            self.wrong(f"record {seq} stands after the session's end")
        why = entry.record.get("why")
        if entry.kind == "part" and why != "full":
            done = str(why) if why in ("removed", "changed") else "dealt with"
            self.wrong(f"the file before was {done} by somebody else")
        self._due, self._prev, self._blind = seq + 1, entry.hash, 0
        self._last, self._ended_in = entry.record, self.file
        if not self._problems:
            self._head, self._seq = entry.hash, seq
            self._anchored = self._anchored or entry.hash == self._wanted

    def verdict(self, session: Session, *, running: bool) -> Verdict:
        """Return what was found."""
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
