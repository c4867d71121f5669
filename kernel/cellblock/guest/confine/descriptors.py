"""Inherited descriptors: a guest keeps what it is told to keep, and nothing else."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.errors import LockFailed

if TYPE_CHECKING:
    from collections.abc import Collection

_OPEN: Final = "/proc/self/fd"
#: Of what is left open, as many are named.
_SHOWN: Final = 5


def close_inherited(keep: Collection[int]) -> None:
    """Close every descriptor that is not in ``keep``, whatever its number.

    Call it before ``confine``: no lock takes back what is open already. The upper end is the
    hard limit on open files: a descriptor above the soft one survives a lowering of it.
    Raises LockFailed where one is left all the same, OSError without /proc.
    """
    start = 0
    for fd in sorted(keep):
        if fd > start:  # CPython turns the empty range before 0 into all of them
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, _highest() + 1)
    if left := [fd for fd in _others(keep) if _is_open(fd)]:
        raise LockFailed(f"descriptors are left open: {left[:_SHOWN]}")


def _others(keep: Collection[int]) -> list[int]:
    """Return what is listed besides, that by which it is listed among it."""
    return [fd for fd in map(int, os.listdir(_OPEN)) if fd not in keep]  # noqa: PTH208


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def _highest() -> int:
    """Return an upper bound for open descriptors (they may lie above today's limits)."""
    try:
        highest = max(map(int, os.listdir(_OPEN)))  # noqa: PTH208 - a path each would cost the most
    except OSError:
        highest = 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return max(highest, 1 << 20 if hard == resource.RLIM_INFINITY else hard)
