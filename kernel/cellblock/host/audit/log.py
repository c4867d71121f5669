"""The files of one session's log: made, appended to, continued in the next.

What is written is whole lines or nothing: a line that a full disk cut is taken back. A file that
is not as it was left (removed, or changed by somebody else) is left alone, and the log goes on in
the next, which says so.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.errors import AuditError
from cellblock.host.audit import chain, records
from cellblock.host.session.history import FOLDER, UntrustedError, check_own

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
        self._seq, self._prev = 0, chain.FIRST
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
            line, prev = chain.line(each, seq=seq, session=self.session, prev=prev)
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
