"""Open files, for a snapshot: what a copy needs so that they are as they were.

A copy shares its open files with the original, offsets too. Where the original has read on,
written, cut or grown them before it was killed, the copy sets them back. A file that can be read
is kept in memory while it is small; of others only the length is known, which is enough for what
only ever grows. Files that are not open stay as the killed cell left them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import NamedTuple

#: Bytes of open files that are kept, each and together.
MOST_EACH = 8 * 2**20
MOST_TOGETHER = 32 * 2**20
#: Descriptors that are looked at, from the lowest; this many unused ones in a row are the end.
_MOST, _GAP = 256, 16
_FIRST = 4


class Kept(NamedTuple):
    """One open file: where it stood, and its contents where they could be kept."""

    fd: int
    inode: tuple[int, int]
    offset: int
    size: int
    changed: int
    writable: bool
    contents: bytes | None


def look(before: tuple[Kept, ...] = ()) -> tuple[Kept, ...]:
    """Return what is open now. ``before`` saves reading again what has not changed."""
    known = {(kept.inode, kept.size, kept.changed): kept.contents for kept in before}
    found, room, unused = list[Kept](), MOST_TOGETHER, 0
    for fd in range(_FIRST, _MOST):
        try:
            status = os.fstat(fd)
        except OSError:
            unused += 1
            if unused >= _GAP:
                break
            continue
        unused = 0
        if stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                kept = _kept(fd, status, known, room)
                room -= len(kept.contents or b"")
                found.append(kept)
    return tuple(found)


def _kept(
    fd: int,
    status: os.stat_result,
    known: dict[tuple[tuple[int, int], int, int], bytes | None],
    room: int,
) -> Kept:
    mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    inode, size, changed = (status.st_dev, status.st_ino), status.st_size, status.st_ctime_ns
    contents = known.get((inode, size, changed))
    if contents is None and mode == os.O_RDWR and size <= min(MOST_EACH, room):
        contents = os.pread(fd, size, 0)
    offset = os.lseek(fd, 0, os.SEEK_CUR)
    return Kept(fd, inode, offset, size, changed, mode != os.O_RDONLY, contents)


def still_open(kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """Return those that a copy has: a library may close some in children (matplotlib its fonts)."""
    return tuple(one for one in kept if _is_open(one))


def _is_open(one: Kept) -> bool:
    try:
        status = os.fstat(one.fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == one.inode


def restore(kept: tuple[Kept, ...]) -> int:
    """Set open files back to how they were kept; return how many that was not possible for."""
    return sum(not _restored(one) for one in kept)


def _restored(one: Kept) -> bool:
    try:
        status = os.fstat(one.fd)
        if (status.st_dev, status.st_ino) != one.inode:
            return False
        whole = True
        if one.writable and (status.st_size, status.st_ctime_ns) != (one.size, one.changed):
            whole = _rewritten(one, status.st_size)
        os.lseek(one.fd, one.offset, os.SEEK_SET)
    except OSError:
        return False
    return whole


def _rewritten(one: Kept, size: int) -> bool:
    """Set the contents back; say whether they are what they were, as far as can be known."""
    if one.contents is not None:
        position = 0
        while position < len(one.contents):
            position += os.pwrite(one.fd, one.contents[position : position + 2**20], position)
    os.ftruncate(one.fd, one.size)
    return one.contents is not None or size >= one.size
