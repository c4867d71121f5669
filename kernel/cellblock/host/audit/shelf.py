"""The folder of audit logs, for reading: sessions, their files, the lines in them."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        """Say whether a host holds the last file."""
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


def is_name(name: str) -> bool:
    """Say whether a log's file may be called so."""
    return _NAME.fullmatch(name) is not None


def sessions(folder: Path) -> list[Session]:
    """Return the sessions whose logs lie in a folder, oldest first. Raises AuditError."""
    try:
        names = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise _unreadable(folder, exc) from None
    files: dict[str, list[Path]] = {}
    for path in names:
        files.setdefault(_id(path), []).append(path)
    return [Session(key, tuple(sorted(found, key=part_of))) for key, found in files.items()]


def find(folder: Path, wanted: str) -> Session:
    """Return the session whose id begins so, the newest for ``last``. Raises AuditError."""
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
    """Yield a file's lines, ends included; one that is too long in pieces. Raises AuditError."""
    try:
        fd = os.open(path, _READ)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AuditError("not a file", file=str(path), remedy="Name a log, or a session.")
            while line := file.readline(LONGEST):
                yield line
    except OSError as exc:
        raise _unreadable(path, exc) from None


def _id(path: Path) -> str:
    found = _NAME.fullmatch(path.name)
    return found[1] if found else ""


def _unreadable(path: Path, exc: OSError) -> AuditError:
    remedy = "Name a log or a folder of logs that this user may read."
    what = "it is a link" if exc.errno == errno.ELOOP else f"can't be read: {exc.strerror}"
    return AuditError(what, file=str(path), remedy=remedy)
