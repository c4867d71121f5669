"""One session's log on disk: chained lines, appended to, continued in the next file.

What is written is whole lines or nothing: a line that a full disk cut is taken back. A file that
is not as it was left (removed, or changed by somebody else) is left alone, and the log goes on in
the next, which says so.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import hashlib
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.errors import AuditError
from cellblock.host.audit import records
from cellblock.host.audit.records import VERSION
from cellblock.host.session.history import FOLDER, UntrustedError, check_own

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# A line of an audit log: a JSON object whose first fields bind it to the line before.
#
# ::
#
#     {"v":1,"seq":7,"session":"…","prev":"<hash of line 6>","time":"…","kind":"…",…,"hash":"…"}
#
# ``hash`` is the SHA-256, in hex, of the line's bytes before ``,"hash":``. So a line is read
# byte for byte: another spelling of the same JSON is another record. ``prev`` of a session's
# first line is 64 zeros.

FIRST: Final = "0" * 64
_HASH: Final = b',"hash":"'
_END: Final = b'"}\n'
_TAIL: Final = len(_HASH) + 64 + len(_END)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that was read; ``intact`` says whether its hash is that of its bytes."""

    seq: int
    session: str
    prev: str
    hash: str
    record: dict[str, Any]
    intact: bool

    @property
    def kind(self) -> str:
        """What kind of record it is."""
        return str(self.record.get("kind", ""))


def entry_line(body: bytes, *, seq: int, session: str, prev: str) -> tuple[bytes, str]:
    """Return a line with its end of line, and its hash; ``body`` is a JSON object's inside."""
    head = f'{{"v":{VERSION},"seq":{seq},"session":"{session}","prev":"{prev}",'.encode()
    told = head + body
    digest = hashlib.sha256(told).hexdigest()
    return told + _HASH + digest.encode() + _END, digest


def read(raw: bytes) -> Entry | None:
    """Return what a line says, None when it is no record of this version."""
    told, tail = raw[:-_TAIL], raw[-_TAIL:]
    if not tail.startswith(_HASH) or not tail.endswith(_END):
        return None
    try:
        digest = tail[len(_HASH) : -len(_END)].decode("ascii")
        record = _decode(raw)
        seq, session, prev = record["seq"], record["session"], record["prev"]
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError):
        return None
    if type(seq) is not int or record.get("v") != VERSION:
        return None
    intact = hashlib.sha256(told).hexdigest() == digest
    return Entry(seq, str(session), str(prev), digest, record, intact)


_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: A session's log has as many files as these, when nothing runs any more that would fill others.
MOST_FILES: Final = 16
_encode = msgspec.json.Encoder().encode


def body(record: records.Record) -> bytes:
    """Return a record as the inside of a JSON object, with the time it is now."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
    return b'"time":"%sZ",%s' % (now[:-6].encode(), _encode(record)[1:-1])


class Log:
    """One session's. Raises nothing but AuditError, and has then written nothing."""

    def __init__(self, folder: Path, *, max_bytes: int, fsync: bool) -> None:
        self._folder, self._max_bytes, self._fsync = folder, max_bytes, fsync
        self.session = os.urandom(8).hex()
        # To the microsecond: names are sorted by, and two sessions may begin within a second.
        started = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S%fZ")
        self._stem = f"{started}-{self.session}"
        self._fd: int | None = None
        self._part, self._size = 0, 0
        #: Bytes of all its files.
        self._written = 0
        #: A line may have been cut, and not taken back.
        self._torn = False
        self._seq, self._prev = 0, FIRST
        #: What the current file begins with, until it is written.
        self._preface: tuple[bytes, ...] = ()

    @property
    def path(self) -> Path:
        """The file that is written, or will be."""
        return self._folder / self._name(max(1, self._part))

    def write(self, bodies: Sequence[bytes], *, hurry: bool = False) -> None:
        """Append records, all or none. Raises AuditError.

        In a ``hurry`` the file is not looked at first: the next record that is in none does that.
        """
        try:
            if not hurry or self._fd is None or self._torn:
                self._see_to_file(sum(map(len, bodies)))
            self._append((*self._preface, *bodies))
            self._preface = ()
        except OSError as exc:
            raise self._failed(exc) from None

    def used_up(self) -> AuditError | None:
        """Return that the log has all the bytes that a session's may, if so; it stays valid."""
        most = MOST_FILES * self._max_bytes
        if self._written < most:
            return None
        what = f"it has the {most:,} bytes that the log of a session may have"
        remedy = (
            f"Start a new session, or raise audit.max_bytes, of which it is {MOST_FILES} times."
        )
        return AuditError(what, file=str(self.path), key="audit.max_bytes", remedy=remedy)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # --- files --------------------------------------------------------------------------------

    def _name(self, part: int) -> str:
        return f"{self._stem}.{part:04}.jsonl"

    def _see_to_file(self, coming: int) -> None:
        """Have a file to write to, in which ``coming`` bytes are welcome."""
        if self._fd is None:
            self._fd, self._part = self._create(1), 1
            return
        status, self._torn = os.fstat(self._fd), False
        if not status.st_nlink:
            self._go_on("removed")
        elif status.st_size != self._size:
            self._go_on("changed")
        elif self._size and self._size + coming > self._max_bytes:
            self._go_on("full")

    def _go_on(self, why: records.Continued) -> None:
        """Continue in the next file."""
        part = self._part + 1
        new = self._create(part)
        try:
            if why == "full" and self._fd is not None:
                self._append([body(records.PartEnd(next=part))])
        except OSError:
            os.close(new)
            with contextlib.suppress(OSError):
                (self._folder / self._name(part)).unlink()
            raise
        self.close()
        self._fd, self._part, self._size = new, part, 0
        self._preface = (body(records.Part(part=part, why=why)),)

    def _create(self, part: int) -> int:
        """Make a file, the user's alone, in a folder that nobody else may write."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        folder = os.open(self._folder, FOLDER)
        try:
            check_own(os.fstat(folder), self._folder)
            fd = os.open(self._name(part), _NEW, 0o600, dir_fd=folder)
            if self._fsync:
                os.fsync(folder)
        finally:
            os.close(folder)
        # Tells whoever reads it that it is being written. Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    # --- lines --------------------------------------------------------------------------------

    def _append(self, bodies: Sequence[bytes]) -> None:
        seq, prev, data = self._seq, self._prev, bytearray()
        for each in bodies:
            line, prev = entry_line(each, seq=seq, session=self.session, prev=prev)
            data += line
            seq += 1
        self._put(bytes(data))
        self._seq, self._prev = seq, prev
        self._size += len(data)
        self._written += len(data)

    def _put(self, data: bytes) -> None:
        """Write all of ``data`` to the file's end, or take back what was written of it."""
        if self._fd is None:
            return
        try:
            done = os.write(self._fd, data)
            while done < len(data):
                done += os.write(self._fd, data[done:])
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            self._torn = True  # its size will say whether that could be mended
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise

    def _failed(self, exc: OSError) -> AuditError:
        why = "something else stands in its place"
        if not isinstance(exc, FileExistsError):
            why = exc.strerror or str(exc)
        what, remedy = f"it can't be written: {why}", ""
        if isinstance(exc, UntrustedError):
            what = "it would not be this user's alone"
            remedy = f"{exc}"
        elif exc.errno in _NO_ROOM:
            remedy = "Make room there, or give another audit.folder in the policy."
        elif self._folder.is_symlink():
            what = "a link stands in its folder's place"
            remedy = f"Put a folder at {self._folder}, or name where the link leads."
        else:
            remedy = f"Have {self._folder} writable, or give another audit.folder in the policy."
        return AuditError(what, file=str(self.path), key="audit.folder", remedy=remedy)


# Records on their way to a log: those that can't be written wait for the next, within bounds.

#: Bytes of records that wait for a log that can't be written, but for one record of any size.
MOST_WAITING: Final = 1 << 20
#: Seconds for which a log that could not be written is not tried again for a question's sake.
PAUSE: Final = 0.05


class Backlog:
    """What of a session waits for its log; nothing, while that can be written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[bytes] = []
        self._lost = 0
        #: Why the log can't be written now, and whether the user has yet to be told.
        self._problem: AuditError | None = None
        self._untold = False
        self._tried = 0.0

    @property
    def session(self) -> str:
        """What the session is called on its log."""
        return self._log.session

    def untold(self) -> AuditError | None:
        """Return why the log can't be written, if the user has yet to be told; he is, by that."""
        untold, self._untold = self._untold, False
        return self._problem if untold else None

    def enter(self, record: records.Record, *, hurry: bool) -> AuditError | None:
        """Write a record. One that can't be written waits for the next; returned is why.

        In a ``hurry``, because a cell waits for it, what others did to the file is left to the next
        record to find; once that has found something, to this one.
        """
        self._hold(record)
        self._write(hurry=hurry and self._problem is None)
        return self._problem

    def _write(self, *, hurry: bool) -> None:
        try:
            self._log.write(self._due(), hurry=hurry)
        except AuditError as exc:
            self._untold = self._untold or self._problem is None
            self._problem, self._tried = exc, time.monotonic()
        else:
            self._waiting, self._lost = [], 0
            self._problem, self._untold = None, False

    def used_up(self) -> AuditError | None:
        """Return that the log has all the bytes that a session's may, if so."""
        return self._log.used_up()

    def standing(self) -> AuditError | None:
        """Try to write what waits, if anything does; return why that can't be written.

        Not again at once: a guest may have this asked a thousand times in a row.
        """
        if self._problem is not None and time.monotonic() - self._tried >= PAUSE:
            self._write(hurry=False)
        return self._problem

    def amend(self, record: records.Record) -> None:
        """Have the record that came last, and waits, be this one."""
        if not self._lost:
            self._waiting[-1] = body(record)

    def close(self, last: records.Record) -> None:
        """Write the last record, and close the log; say on stderr what it does not have."""
        self.enter(last, hurry=False)
        if self._problem is not None:
            lost = len(self._waiting) + self._lost
            print(f"cellblock: {lost} audit records lost: {self._problem}", file=sys.stderr)  # noqa: T201
        self._log.close()

    def _hold(self, record: records.Record) -> None:
        entry = body(record)
        waiting = sum(map(len, self._waiting))
        if self._lost or (waiting and waiting + len(entry) > MOST_WAITING):
            self._lost += 1
        else:
            self._waiting.append(entry)

    def _due(self) -> list[bytes]:
        if not self._lost:
            return self._waiting
        return [*self._waiting, body(records.Lost(records=self._lost))]
