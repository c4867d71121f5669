"""Files by their descriptors: opened through no link, and closed again.

A path is resolved once, where a policy is read (``policy.paths``). Cells may put a link in a
folder's place after that, so what is used from then on is the descriptor of what was opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_MACOS: Final = sys.platform == "darwin"
#: For naming a place: no pipe is waited for and no device touched.
_PLACE: Final = os.O_RDONLY | os.O_NONBLOCK if _MACOS else os.O_PATH
#: Of macOS' open(2).
_O_NOFOLLOW_ANY: Final = 0x20000000 if _MACOS else 0
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: To read; it does not block on a named pipe.
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: To write what is not there yet.
NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_unlinked(path: str, flags: int = _PLACE) -> int:
    """Return a descriptor of what a canonical path names. Raises OSError: ELOOP for a link in it.

    What was opened says itself where it is (proc(5)), so a link does not matter that comes or goes
    meanwhile.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | _O_NOFOLLOW_ANY)
    if not _MACOS and os.readlink(f"/proc/self/fd/{fd}") != path:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def stat_unlinked(path: str) -> os.stat_result:
    """Return the status of what a canonical path names. Raises OSError as ``open_unlinked``."""
    with closing(open_unlinked(path)) as fd:
        return os.fstat(fd)


def identity(path: str) -> tuple[int, int]:
    """Return device and inode of what a canonical path names; zeros where nothing is there."""
    try:
        found = stat_unlinked(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
