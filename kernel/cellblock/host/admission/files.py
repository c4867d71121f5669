"""Files that decide what may run: opened without following links, bounded, written whole."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from cellblock.errors import AdmissionError

if TYPE_CHECKING:
    from pathlib import Path

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def read(path: Path, most: int, *, what: str, remedy: str) -> tuple[bytes, os.stat_result]:
    """Return a regular file of at most ``most`` bytes, and its status.

    Raises AdmissionError for anything else: a link, a pipe, a larger one; FileNotFoundError where
    there is none.
    """
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        raise
    except OSError as exc:
        why = "a link" if path.is_symlink() else f"can't be opened: {exc.strerror}"
        raise AdmissionError(f"{what} is {why}", file=str(path), remedy=remedy) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            message = f"{what} is not a regular file"
            raise AdmissionError(message, file=str(path), remedy=remedy)
        content = _content(fd, most + 1)
    except OSError as exc:
        message = f"{what} can't be read: {exc.strerror}"
        raise AdmissionError(message, file=str(path), remedy=remedy) from None
    finally:
        os.close(fd)
    if len(content) > most:
        message = f"{what} is larger than {most:,} bytes"
        raise AdmissionError(message, file=str(path), remedy=remedy)
    return content, status


def _content(fd: int, most: int) -> bytes:
    """Return a file's first bytes. Raises OSError."""
    parts: list[bytes] = []
    while most > 0 and (part := os.read(fd, most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def check_own(path: Path, status: os.stat_result, *, secret: bool = False) -> None:
    """Raise AdmissionError for what neither this user nor root owns, or others may write.

    What is ``secret`` others may not read either; root's may have a group that does.
    """
    owner = status.st_uid
    if owner not in (os.geteuid(), 0):
        message = f"it belongs to uid {owner}, who is neither you nor root"
        raise AdmissionError(message, file=str(path), remedy="Remove it, or make it yours.")
    rights = _OTHERS_WRITE
    if secret:
        rights |= stat.S_IROTH | (0 if owner == 0 and os.geteuid() != 0 else stat.S_IRGRP)
    if status.st_mode & rights:
        mode = "go-rwx" if secret else "go-w"
        what = "read or write" if secret else "write"
        message = f"others can {what} it (mode {stat.S_IMODE(status.st_mode):04o})"
        raise AdmissionError(message, file=str(path), remedy=f"chmod {mode} {path}")


def write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Put a new file in place of an old one, whole or not at all. Raises AdmissionError."""
    beside = path.with_name(f".{path.name}-{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, _MAKE, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            beside.unlink()
        message = f"can't be written: {exc.strerror}"
        remedy = "See to it that there is room, and that the folder is yours."
        raise AdmissionError(message, file=str(path), remedy=remedy) from None
