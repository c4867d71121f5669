"""Resource limits: soft and hard alike, so that a cell can't raise them again."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.errors import LockFailed

if TYPE_CHECKING:
    from cellblock.wire.messages import Limits

#: Field of ``wire.Limits`` to the limit that carries it, and why that one.
CARRIERS: Final = {
    # RLIMIT_AS would count address space that is never used; RSS is not enforced by Linux.
    # DATA counts private writable memory and fails allocation: MemoryError, process alive.
    "memory_max_bytes": resource.RLIMIT_DATA,
    "max_open_files": resource.RLIMIT_NOFILE,
    # SIGXFSZ is ignored by CPython, so that a larger write fails with EFBIG.
    "max_file_size": resource.RLIMIT_FSIZE,
}


def apply(limits: Limits, *, gated: bool = False) -> str:
    """Set every limit that is configured, and no core dumps.

    Raises OSError, ValueError, LockFailed.

    ``gated`` says that somebody else counts tasks, for this guest alone.
    """
    done = [_lower(resource.RLIMIT_CORE, 0, "core")]
    for field, carrier in CARRIERS.items():
        wanted = getattr(limits, field)
        if wanted is not None:
            done.append(_lower(carrier, wanted, field))
    if limits.memory_max_bytes is not None:
        done.append(_limit_stack(limits.memory_max_bytes))
    if limits.max_processes is not None and not gated:
        done.append(limit_tasks(limits.max_processes))
    return ", ".join(done)


def _lower(which: int, wanted: int, label: str) -> str:
    """Set both limits to ``wanted`` or to the present hard limit, whichever is lower."""
    hard = resource.getrlimit(which)[1]
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))
    if resource.getrlimit(which) != (value, value):
        raise LockFailed(f"the limit for {label} did not stick")
    return f"{label}={value}"


def _limit_stack(memory: int) -> str:
    """Bound the main thread's stack, which grows outside of RLIMIT_DATA; never raise it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    known = [value for value in (soft, hard, memory) if value != resource.RLIM_INFINITY]
    return _lower(resource.RLIMIT_STACK, min(known), "stack")


def limit_tasks(wanted: int) -> str:
    """Allow ``wanted`` tasks more than the user has now.

    RLIMIT_NPROC counts all tasks of the user on the machine, this notebook's or not, and
    Linux never applies it to uid 0 (getrlimit(2); kernel/fork.c, ``INIT_USER``).
    """
    if os.getuid() == 0:
        return "max_processes not applied to uid 0"
    return _lower(resource.RLIMIT_NPROC, tasks_of(os.getuid()) + wanted, "tasks of this user")


def tasks_of(uid: int) -> int:
    """Count the threads of all processes that belong to ``uid``; vanished ones count as none."""
    return sum(
        _threads_if_owned(entry, uid)
        for entry in os.scandir("/proc")
        if entry.name[0] in "123456789"
    )


def _threads_if_owned(entry: os.DirEntry[str], uid: int) -> int:
    try:
        if entry.stat().st_uid not in (uid, 0):
            return 0
        lines = Path(entry.path, "status").read_bytes().splitlines()
        fields = dict(line.partition(b":")[::2] for line in lines)
        return int(fields[b"Threads"]) if int(fields[b"Uid"].split()[0]) == uid else 0
    except (OSError, KeyError, ValueError):
        return 0
