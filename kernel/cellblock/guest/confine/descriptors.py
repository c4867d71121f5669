"""Inherited descriptors: a guest keeps what it is told to keep, and nothing else."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def close_inherited(keep: Collection[int]) -> None:
    """Close every descriptor that is not in ``keep``, whatever its number.

    Call it before ``confine``: no lock takes back what is open already. The upper end is the
    hard limit on open files: a descriptor above the soft one survives a lowering of it.
    """
    start = 0
    for fd in sorted(keep):
        if fd > start:  # CPython turns the empty range before 0 into all of them
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, _highest() + 1)


def _highest() -> int:
    """Return an upper bound for open descriptors (they may lie above today's limits)."""
    try:
        highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    except OSError:
        highest = 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return max(highest, 1 << 20 if hard == resource.RLIM_INFINITY else hard)
