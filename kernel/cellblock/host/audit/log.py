"""A session's audit log on disk: a file of chained lines, how it is written, read and verified.

``Log`` writes whole lines or nothing: a line that was cut, because the disk is full for example, is
taken back. If somebody removed the file, the log goes on in a new one; if somebody changed it, at
its end. The chain shows both. A record that can't be written waits for the next, within bounds::

    enter(record) --> waiting --> written
                        |
                        +--> lost, beyond MOST_WAITING bytes; a Lost record has their number

``verify`` follows the chain of a file, and says where records are missing or changed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import hashlib
import os
import re
import stat
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct, field

from cellblock.descriptors import FOLDER
from cellblock.errors import AuditError
from cellblock.host.audit import records
from cellblock.host.audit.records import VERSION
from cellblock.host.session.history import UntrustedError, check_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


# A line of an audit log: a JSON object whose first fields bind it to the line before.
#
# ::
#
#     {"v":1,"seq":7,"session":"…","prev":"<hash of line 6>","time":"…","kind":"…",…,"hash":"…"}
#
# ``hash`` is the SHA-256, in hex, of the line's bytes before ``,"hash":``. So lines are compared
# byte by byte: another spelling of the same JSON is another record. In a session's first line,
# ``prev`` is 64 zeros.

FIRST: Final = "0" * 64
_HASH_KEY: Final = b',"hash":"'
_LINE_END: Final = b'"}\n'
_TAIL: Final = len(_HASH_KEY) + 64 + len(_LINE_END)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Entry(Struct, frozen=True):
    """A line that was read. ``intact``: its hash is that of its bytes."""

    seq: int
    session: str
    prev: str
    hash: str
    record: dict[str, Any]
    intact: bool

    @property
    def kind(self) -> str:
        """The kind of the record."""
        return str(self.record.get("kind", ""))


#: The fields that every record has.
_HEAD_FIELDS: Final = frozenset({"v", "seq", "session", "prev", "hash", "time", "kind"})
#: Characters of a hash.
_HASH_DIGITS: Final = 64


def words(entry: Entry) -> str:
    """Return a record's own fields in a line for a terminal.

    Of capabilities it names only those that are not enforced. Cells can influence the fields, so
    the line has no characters that a terminal would act on.
    """
    fields = {key: value for key, value in entry.record.items() if key not in _HEAD_FIELDS}
    capabilities = fields.pop("capabilities", None)
    enforced = ("asserted", "verified")
    if isinstance(capabilities, dict):
        missing = {key: status for key, status in capabilities.items() if status not in enforced}
        fields = {
            "enforced": f"{len(capabilities) - len(missing)} of {len(capabilities)}",
            "not": missing,
        }
    return "  ".join(f"{printable(key)} {printable(_short(each))}" for key, each in fields.items())


def _short(value: object) -> object:
    """Return the value of a field as the line shows it; hashes are cut."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={_short(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(str(_short(each)) for each in value)
    if isinstance(value, str) and len(value) == _HASH_DIGITS:
        return value[:12]
    return value


def printable(value: object) -> str:
    """Return a text with a replacement for each character that a terminal would act on."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value)
    )


def entry_line(body: bytes, *, seq: int, session: str, prev: str) -> tuple[bytes, str]:
    """Return a line with its line end, and its hash. ``body`` is the inside of a JSON object."""
    head = f'{{"v":{VERSION},"seq":{seq},"session":"{session}","prev":"{prev}",'.encode()
    hashed = head + body
    digest = hashlib.sha256(hashed).hexdigest()
    return hashed + _HASH_KEY + digest.encode() + _LINE_END, digest


def read(raw: bytes) -> Entry | None:
    """Return the entry in a line; None if it is not a record of this version."""
    hashed, tail = raw[:-_TAIL], raw[-_TAIL:]
    if not tail.startswith(_HASH_KEY) or not tail.endswith(_LINE_END):
        return None
    try:
        digest = tail[len(_HASH_KEY) : -len(_LINE_END)].decode("ascii")
        record = _decode(raw)
        seq, session, prev = record["seq"], record["session"], record["prev"]
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError):
        return None
    if type(seq) is not int or record.get("v") != VERSION:
        return None
    intact = hashlib.sha256(hashed).hexdigest() == digest
    return Entry(seq, str(session), str(prev), digest, record, intact)


_NEW_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_encode = msgspec.json.Encoder().encode


def body(record: records.Record) -> bytes:
    """Return a record as the inside of a JSON object, with the current time."""
    now_text = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
    return b'"time":"%sZ",%s' % (now_text[:-6].encode(), _encode(record)[1:-1])


#: The most bytes of records that wait for a log that can't be written; a single one may be larger.
MOST_WAITING: Final = 1 << 20
#: Bytes at the end of a log in which ``tail`` looks for the last records.
_TAIL_BYTES: Final = 1 << 18
#: Seconds after a failed write for which ``problem`` does not try again.
PAUSE: Final = 0.05


class Log:
    """One session's log, and the records that wait while it can't be written.

    ``max_bytes`` bounds the log. ``written`` counts the bytes that each session has written. Logs
    that share it are bounded together. With ``fsync`` a record is on disk before ``enter`` returns.

    `enter` raises nothing. `write` raises nothing but AuditError, and has then written nothing.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int, fsync: bool, written: Counter[str] | None = None
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._fsync = fsync
        self.session = os.urandom(8).hex()
        # Files are sorted by this time, and two sessions may begin within a second.
        started = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S%fZ")
        #: The file that is written, or will be.
        self.path = folder / f"{started}-{self.session}.jsonl"
        self._fd: int | None = None
        #: Bytes in the file after the last write, and all bytes that were written.
        self._size = 0
        self._written = Counter[str]() if written is None else written
        #: Whether a line may have been cut and not taken back.
        self._torn = False
        #: The number of the next record, and the hash of the last one.
        self._seq = 0
        self._prev = FIRST
        #: Records that could not be written yet, and the number of those that were given up.
        self._waiting: list[bytes] = []
        self._lost = 0
        #: Why the log can't be written now, whether `new_problem` has yet to return it, and the
        #: monotonic time of the last failed write.
        self._problem: AuditError | None = None
        self._is_new = False
        self._tried = 0.0

    # --- records --------------------------------------------------------------------------------

    def enter(self, record: records.Record, *, hurry: bool = False) -> AuditError | None:
        """Write a record and those that wait. Return why they can't be written, or None.

        In a ``hurry``, because a cell waits, the file isn't checked for changes by others before it
        is written, unless the last write failed. The next record without a hurry finds them.
        """
        entry = body(record)
        waiting = sum(map(len, self._waiting))
        if self._lost or (waiting and waiting + len(entry) > MOST_WAITING):
            self._lost += 1
        else:
            self._waiting.append(entry)
        self._write_waiting(hurry=hurry and self._problem is None)
        return self._problem

    def _write_waiting(self, *, hurry: bool) -> None:
        lost = [body(records.Lost(records=self._lost))] if self._lost else []
        try:
            self.write([*self._waiting, *lost], hurry=hurry)
        except AuditError as exc:
            self._is_new = self._is_new or self._problem is None
            self._problem, self._tried = exc, time.monotonic()
        else:
            self._waiting, self._lost = [], 0
            self._problem, self._is_new = None, False

    def amend(self, record: records.Record) -> None:
        """Replace the last record, which waits, by another one."""
        if not self._lost:
            self._waiting[-1] = body(record)

    def new_problem(self) -> AuditError | None:
        """Return why the log can't be written, once for each time it begins, to tell the user."""
        is_new, self._is_new = self._is_new, False
        return self._problem if is_new else None

    def problem(self) -> AuditError | None:
        """Try to write the records that wait, if any. Return why they can't be written, or None.

        After a failure it does not try again for ``PAUSE``, since a guest may cause a thousand
        calls in a row.
        """
        if self._problem is not None and time.monotonic() - self._tried >= PAUSE:
            self._write_waiting(hurry=False)
        return self._problem

    def used_up(self) -> AuditError | None:
        """Return an error if the log has reached its ``max_bytes``. It can still be written."""
        if self._written.total() < self._max_bytes:
            return None
        problem = f"it has the {self._max_bytes:,} bytes that the log of a session may have"
        remedy = "Start a new session, or raise audit.max_bytes."
        return AuditError(problem, file=str(self.path), key="audit.max_bytes", remedy=remedy)

    def tail(self, most: int) -> list[Entry]:
        """Return at most ``most`` of the last records on disk; none if it can't be read."""
        try:
            with os.fdopen(os.open(self.path, _READ_FLAGS), "rb") as file:
                start = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
                file.seek(start)
                lines = file.read(_TAIL_BYTES).splitlines(keepends=True)[start > 0 :]
        except OSError:
            return []
        return [entry for raw in lines[-most:] if (entry := read(raw)) is not None]

    def end(self, last: records.Record) -> None:
        """Write the last record and close the log. Print the number of lost records on stderr."""
        if (problem := self.enter(last)) is not None:
            lost = len(self._waiting) + self._lost
            sys.stderr.write(f"cellblock: {lost} audit records lost: {problem}\n")
        self.close()

    # --- the file -----------------------------------------------------------------------------

    def write(self, bodies: Sequence[bytes], *, hurry: bool = False) -> None:
        """Append records, all or none. Raise AuditError.

        In a ``hurry``, an open file isn't checked first, unless it may have a cut line.
        """
        try:
            before = (
                b"" if hurry and self._fd is not None and not self._torn else self._check_file()
            )
            self._append(bodies, before)
        except OSError as exc:
            raise self._failed(exc) from None

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _check_file(self) -> bytes:
        """Make sure that there is a file to write to, a new one if the last was removed.

        Return the bytes to write first: a line end if somebody else changed the file, since it may
        end within a line.
        """
        status = None if self._fd is None else os.fstat(self._fd)
        if status is None or not status.st_nlink:
            new = self._create()
            self.close()
            self._fd = new
            self._size = 0
            self._torn = False
            return b""
        is_changed = status.st_size != self._size
        self._size = status.st_size
        self._torn = False
        return b"\n" if is_changed else b""

    def _create(self) -> int:
        """Make a file that only the user can access, in a folder that nobody else may write to."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        folder = os.open(self._folder, FOLDER)
        try:
            check_own(os.fstat(folder), self._folder)
            fd = os.open(self.path.name, _NEW_FLAGS, 0o600, dir_fd=folder)
            if self._fsync:
                os.fsync(folder)
        finally:
            os.close(folder)
        # The lock shows readers that the log is being written. Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def _append(self, bodies: Sequence[bytes], before: bytes) -> None:
        """Write lines at the end of the file, or take back the part of them that was written."""
        seq = self._seq
        prev = self._prev
        lines = [before]
        for each in bodies:
            line, prev = entry_line(each, seq=seq, session=self.session, prev=prev)
            lines.append(line)
            seq += 1
        if self._fd is None:
            return
        data = b"".join(lines)
        try:
            done = os.write(self._fd, data)
            while done < len(data):
                done += os.write(self._fd, data[done:])
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            self._torn = True  # _check_file will see by its size whether the truncation worked
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._seq = seq
        self._prev = prev
        self._size += len(data)
        self._written[self.session] += len(data)

    def _failed(self, exc: OSError) -> AuditError:
        """Return the error for a failed write, with what to do about it."""
        why = exc.strerror or str(exc)
        if isinstance(exc, FileExistsError):
            why = "another file has its name"
        problem = f"it can't be written: {why}"
        if isinstance(exc, UntrustedError):
            problem, remedy = "it would not be this user's alone", f"{exc}"
        elif exc.errno in _NO_ROOM:
            remedy = "Make room there, or set another audit.folder in the policy."
        elif self._folder.is_symlink():
            problem = "its folder is a link"
            remedy = f"Put a folder at {self._folder}, or name where the link leads."
        else:
            remedy = f"Make {self._folder} writable, or set another audit.folder in the policy."
        return AuditError(problem, file=str(self.path), key="audit.folder", remedy=remedy)


# --- reading: the folder of logs, sessions, the lines of their files ------------------------------

#: The most bytes of a line: a source has up to four million characters, which take up to six each.
LONGEST: Final = 32 << 20
_FILE_NAME: Final = re.compile(r"\d{8}T\d{6,12}Z-([0-9a-f]{16})\.jsonl")
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Session(Struct, frozen=True):
    """A session and its log. ``id`` is empty for a file that isn't named as logs are."""

    id: str
    file: Path

    def running(self) -> bool:
        """Return whether a host holds the log's lock, so that the session still runs."""
        try:
            fd = os.open(self.file, _READ_FLAGS)
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


def is_log_name(name: str) -> bool:
    """Return whether this is the name of a log's file."""
    return _FILE_NAME.fullmatch(name) is not None


def sessions(folder: Path) -> list[Session]:
    """Return the sessions whose logs are in a folder, oldest first. Raise AuditError."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise _unreadable(folder, exc) from None
    return [Session(match[1], path) for path in paths if (match := _FILE_NAME.fullmatch(path.name))]


def find(folder: Path, prefix: str) -> Session:
    """Return the session whose id begins with ``prefix``, or the newest for "last".

    Raise AuditError if there is none, or more than one.
    """
    all_sessions = sessions(folder)
    if prefix == "last" and all_sessions:
        return all_sessions[-1]
    matches = [session for session in all_sessions if session.id.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    problem = f"more than one session begins with {prefix}" if matches else f"no session {prefix}"
    remedy = "`cellblock audit show` lists all sessions."
    raise AuditError(problem, file=str(folder), remedy=remedy)


def of_file(path: Path) -> Session:
    """Return the session of a log's file."""
    match = _FILE_NAME.fullmatch(path.name)
    return Session(match[1] if match and os.path.lexists(path) else "", path)


def lines(path: Path) -> Iterator[bytes]:
    """Yield a file's lines with their ends; a line that is too long comes in pieces.

    Raise AuditError.
    """
    try:
        fd = os.open(path, _READ_FLAGS)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AuditError("not a file", file=str(path), remedy="Name a log, or a session.")
            while line := file.readline(LONGEST):
                yield line
    except OSError as exc:
        raise _unreadable(path, exc) from None


def _unreadable(path: Path, exc: OSError) -> AuditError:
    remedy = "Name a log or a folder of logs that this user may read."
    problem = "it is a link" if exc.errno == errno.ELOOP else f"can't be read: {exc.strerror}"
    return AuditError(problem, file=str(path), remedy=remedy)


# --- verifying: whether a session's records are complete, unchanged and in order ------------------
#
# Two things can't be seen in the file alone. Somebody who may write a log can replace all records
# from some point on, with correct hashes; only a ``head`` that was kept elsewhere shows that. A log
# that was cut at its end looks like that of a host that was killed: its state is ``open``.

#: Problems of one session that are returned. Further ones are counted.
MOST_PROBLEMS: Final = 100

State = Literal["ended", "running", "open"]


class Problem(Struct, frozen=True):
    """A problem and its place: a file, and a line in it from 1, 0 for the whole file."""

    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return f"{where}: {self.what}"


class Verdict(Struct):
    """The result of verifying a session's log.

    ``head`` and ``seq`` are the hash and number of the last record before the first problem.
    ``anchored``: the hash that was given to ``verify`` is that of a record up to there. ``more`` is
    the number of problems that are not among ``problems``.
    """

    session: str
    records: int = 0
    seq: int = -1
    head: str = FIRST
    state: State = "open"
    problems: list[Problem] = field(default_factory=list)
    anchored: bool = False
    more: int = 0

    @property
    def sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify(
    session: Session,
    *,
    head: str = "",
    each: Callable[[Entry], None] = lambda _entry: None,
) -> Verdict:
    """Verify a session's log. ``each`` is called with each record that can be read, in order.

    ``head`` is the hash of a record that was kept elsewhere. A log that can't be read is a problem
    in the verdict; any other file that can't be read raises AuditError.
    """
    running = session.running()
    verifier = _Verifier(session, head, each)
    try:
        for raw in lines(session.file):
            verifier.line += 1
            if raw.endswith(b"\n") or not running:  # otherwise the last line is being written
                verifier.take(raw)
    except AuditError as exc:
        if not session.id:
            raise
        verifier.wrong(exc.message)
    verifier.end(running=running)
    return verifier.found


class _Verifier:
    """The state of following one chain, line by line."""

    def __init__(self, session: Session, head: str, each: Callable[[Entry], None]) -> None:
        self.found = Verdict(session.id)
        self._file = session.file
        self._head = head
        self._each = each
        self.line = 0
        #: The number of the record that comes next, and the hash of the one before it.
        self._due = 0
        self._prev = FIRST
        #: The number of lines since then that can't be trusted. They may have been the next
        #: records, so ``_prev`` and ``_due`` need not fit the one that follows.
        self._untrusted = 0
        #: The first and last numbers of records that were missing. They may come later.
        self._missing: list[tuple[int, int]] = []
        #: The kind of the last record that was in its place.
        self._last = ""

    def wrong(self, problem: str) -> None:
        """Note a problem at the current line."""
        if len(self.found.problems) < MOST_PROBLEMS:
            self.found.problems.append(Problem(self._file, self.line, problem))
        else:
            self.found.more += 1

    def take(self, raw: bytes) -> None:
        """Follow the chain by one line."""
        entry = read(raw)
        if entry is not None:
            self.found.records += 1
            self._each(entry)
            self.found.session = self.found.session or entry.session
        if entry is None and raw.endswith(b"\n"):
            problem = "no record"
        elif entry is None:
            problem = "not whole: it was cut, or its writing was"
        elif not entry.intact:
            problem = f"record {self._due} was changed: its hash is not that of its bytes"
        elif entry.session != self.found.session:
            problem = "a record of another session"
        else:
            self._place(entry)
            return
        self.wrong(problem)
        self._untrusted += 1

    def _place(self, entry: Entry) -> None:
        """Judge the place of an intact record."""
        seq = entry.seq
        first = self._due + self._untrusted
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
        if self._last == "session-end":
            self.wrong(f"record {seq} stands after the session's end")
        self._due = seq + 1
        self._prev = entry.hash
        self._untrusted = 0
        self._last = entry.kind
        if not self.found.problems:
            self.found.head = entry.hash
            self.found.seq = seq
            self.found.anchored = self.found.anchored or entry.hash == self._head

    def end(self, *, running: bool) -> None:
        """Judge the end of the log."""
        if self._head and not self.found.anchored:
            self.wrong("the hash that was kept is not here: records were exchanged or cut off")
        if self._last == "session-end" and not self._untrusted:
            self.found.state = "ended"
        elif running:
            self.found.state = "running"
