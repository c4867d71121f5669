"""One session's log on disk: chained lines, appended to, continued in the next file.

What is written is whole lines or nothing: a line that a full disk cut is taken back. A file that
is not as it was left (removed, or changed by somebody else) is left alone, and the log goes on in
the next, which says so. Records that can't be written wait for the next, within bounds.
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
    hashed = head + body
    digest = hashlib.sha256(hashed).hexdigest()
    return hashed + _HASH + digest.encode() + _END, digest


def read(raw: bytes) -> Entry | None:
    """Return what a line says, None when it is no record of this version."""
    hashed, tail = raw[:-_TAIL], raw[-_TAIL:]
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
    intact = hashlib.sha256(hashed).hexdigest() == digest
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


#: Bytes of records that wait for a log that can't be written, but for one record of any size.
MOST_WAITING: Final = 1 << 20
#: Seconds for which a log that could not be written is not tried again for a question's sake.
PAUSE: Final = 0.05


class Log:
    """One session's log, and the records that wait while it can't be written.

    `enter` raises nothing. `write` raises nothing but AuditError, and has then written nothing.
    """

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
        #: Records that could not be written yet, and how many were more than are held.
        self._waiting: list[bytes] = []
        self._lost = 0
        #: Why the log can't be written now, and whether nobody has asked `new_problem` for it.
        self._problem: AuditError | None = None
        self._is_new = False
        self._tried = 0.0

    @property
    def path(self) -> Path:
        """The file that is written, or will be."""
        return self._folder / self._name(max(1, self._part))

    # --- records --------------------------------------------------------------------------------

    def enter(self, record: records.Record, *, hurry: bool = False) -> AuditError | None:
        """Write a record. One that can't be written waits for the next; return why.

        In a ``hurry``, because a cell waits for it, what others did to the file is left to the next
        record to find; once that has found something, to this one.
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
        """Put a record in the place of the one that came last, and waits."""
        if not self._lost:
            self._waiting[-1] = body(record)

    def new_problem(self) -> AuditError | None:
        """Return why the log can't be written, once: for the user, who is to be told."""
        is_new, self._is_new = self._is_new, False
        return self._problem if is_new else None

    def problem(self) -> AuditError | None:
        """Try to write what waits, if anything does; return why that can't be written.

        Not again at once: a guest may have this asked a thousand times in a row.
        """
        if self._problem is not None and time.monotonic() - self._tried >= PAUSE:
            self._write_waiting(hurry=False)
        return self._problem

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

    def end(self, last: records.Record) -> None:
        """Write the last record, and close the log; say on stderr what it does not have."""
        if (problem := self.enter(last)) is not None:
            lost = len(self._waiting) + self._lost
            sys.stderr.write(f"cellblock: {lost} audit records lost: {problem}\n")
        self.close()

    # --- files ----------------------------------------------------------------------------------

    def write(self, bodies: Sequence[bytes], *, hurry: bool = False) -> None:
        """Append records, all or none. Raise AuditError.

        In a ``hurry`` the file is not looked at first: the next record that is in none does that.
        """
        try:
            if not hurry or self._fd is None or self._torn:
                self._check_file(sum(map(len, bodies)))
            self._append((*self._preface, *bodies))
            self._preface = ()
        except OSError as exc:
            raise self._failed(exc) from None

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _name(self, part: int) -> str:
        return f"{self._stem}.{part:04}.jsonl"

    def _check_file(self, coming: int) -> None:
        """Have a file to write to, with room for so many bytes that come."""
        if self._fd is None:
            self._fd, self._part = self._create(1), 1
            return
        status, self._torn = os.fstat(self._fd), False
        if not status.st_nlink:
            self._continue("removed")
        elif status.st_size != self._size:
            self._continue("changed")
        elif self._size and self._size + coming > self._max_bytes:
            self._continue("full")

    def _continue(self, why: records.Continued) -> None:
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

    def _append(self, bodies: Sequence[bytes]) -> None:
        """Write lines to the file's end, or take back what was written of them."""
        seq, prev, data = self._seq, self._prev, b""
        lines = []
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
            self._torn = True  # its size will say whether that could be mended
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._seq, self._prev = seq, prev
        self._size += len(data)
        self._written += len(data)

    def _failed(self, exc: OSError) -> AuditError:
        why = exc.strerror or str(exc)
        if isinstance(exc, FileExistsError):
            why = "something else stands in its place"
        what = f"it can't be written: {why}"
        if isinstance(exc, UntrustedError):
            what, remedy = "it would not be this user's alone", f"{exc}"
        elif exc.errno in _NO_ROOM:
            remedy = "Make room there, or give another audit.folder in the policy."
        elif self._folder.is_symlink():
            what = "a link stands in its folder's place"
            remedy = f"Put a folder at {self._folder}, or name where the link leads."
        else:
            remedy = f"Have {self._folder} writable, or give another audit.folder in the policy."
        return AuditError(what, file=str(self.path), key="audit.folder", remedy=remedy)
