"""Who serves, who would next, and what they have made: read from /proc, as a kill from outside is."""

from __future__ import annotations

import contextlib
from pathlib import Path

from support import processes


def guests(zygote: int) -> tuple[list[int], list[int]]:
    """Return the pids of those that would serve next, and of the copies, each oldest first.

    The zygote adopts what a killed guest or copy leaves behind; the one that serves comes last.
    """
    heirs = sorted(children(zygote), key=lambda pid: (is_guest(pid), _age(pid)))
    return heirs, sorted((copy for pid in heirs for copy in children(pid)), key=_age)


def is_guest(pid: int) -> bool:
    """Say whether it serves."""
    return processes.name(pid) == "cb-guest"


def sheltered(zygote: int, *, serving: bool = False) -> list[int]:
    """Return the pid of who serves, or takes over, once a copy that it has forked holds its state.

    Nothing while there is none; ``serving`` leaves out who takes over.
    """
    heirs = guests(zygote)[0][-1:]
    return [pid for pid in heirs if children(pid) and (not serving or is_guest(pid))]


def children(pid: int) -> list[int]:
    """Return the living children of a process's main thread (proc(5))."""
    with contextlib.suppress(OSError):
        found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [child for child in found if _age(child)[0]]
    return []


def _age(pid: int) -> tuple[int, int]:
    """Return when a process began, and its number; 0 for one that is no more."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return (0 if fields[0] in {"Z", "X"} else int(fields[19])), pid
    return 0, pid
