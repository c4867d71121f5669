"""A fork's first steps away from its zygote, before it takes its locks.

No lock takes back what it has from there: an end that is not the zygote's, a session, descriptors.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import process
from cellblock.guest.confine.libc import LockFailed, fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


# Inherited descriptors: a guest keeps what it is told to keep, and nothing else.

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
    return [fd for fd in map(int, os.listdir(_OPEN)) if fd not in keep]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def _highest() -> int:
    """Return an upper bound for open descriptors (they may lie above today's limits)."""
    try:
        highest = max(map(int, os.listdir(_OPEN)))
    except OSError:
        highest = 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return max(highest, 1 << 20 if hard == resource.RLIM_INFINITY else hard)


def stand_apart(zygote: int, keep: Collection[int]) -> None:
    """End with the zygote, lead a session, hold no descriptor but ``keep``.

    Raises ConfineError where one of that can't be had, SystemExit where the zygote has gone.
    """
    _step("end with the zygote", process.end_with_parent)
    if os.getppid() != zygote:  # before it was asked for
        raise SystemExit(1)
    _step("session", process.lead_session)
    _step("inherited descriptors", lambda: close_inherited(keep))


def stand_first(*, namespace: bool) -> None:
    """Do what a zygote does for all its guests; in a pid ``namespace`` of its own, end with it.

    Raises ConfineError.
    """
    _step("not_dumpable", process.not_dumpable)
    _step("orphans", process.adopt_orphans)
    if namespace:
        # What started it waits outside; that is what the host can kill, and we are to go with it.
        _step("end with its parent", process.end_with_parent)


def _step(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except (OSError, LockFailed) as error:
        raise fatal(name, error) from error
