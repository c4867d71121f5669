"""Finds guests and their copies in /proc, for tests that kill them from outside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from support import processes


def guests_and_copies(zygote: int) -> tuple[list[int], list[int]]:
    """Return the pids of the zygote's children, and of these processes' copies; oldest first.

    The zygote adopts the copies of a killed process. The guest that serves comes last.
    """
    heirs = sorted(children(zygote), key=lambda pid: (is_guest(pid), _age(pid)))
    return heirs, sorted((copy for pid in heirs for copy in children(pid)), key=_age)


def is_guest(pid: int) -> bool:
    """Return whether a process is the guest that serves."""
    return processes.name(pid) == "cb-guest"


def replaceable_guest(zygote: int, *, serving: bool = False) -> list[int]:
    """Return the pid of the guest, or of the copy taking over, if it has forked a copy itself.

    Empty if there is none. ``serving``: only the guest counts.
    """
    heirs = guests_and_copies(zygote)[0][-1:]
    return [pid for pid in heirs if children(pid) and (not serving or is_guest(pid))]


def children(pid: int) -> list[int]:
    """Return the living children of a process's main thread (proc(5))."""
    with contextlib.suppress(OSError):
        found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [child for child in found if _age(child)[0]]
    return []


def _age(pid: int) -> tuple[int, int]:
    """Return when a process began, 0 if it has ended, and its pid."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return (0 if fields[0] in {"Z", "X"} else int(fields[19])), pid
    return 0, pid
