"""The processes that a guest has started, where its policy lets it.

They are found as descendants of the guest's parent, the zygote, to whom orphans come, in the
guest's session, which none of them can leave (``guest.confine``: no setsid). What is the parent's
in each of them is not counted twice: pages are shared until they are written.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
#: Processes that are looked at; more than this are not counted.
MOST: Final = 512


class _Stat(NamedTuple):
    """Of proc(5), /proc/PID/stat: numbered from the field after the name, which is the third."""

    parent: int
    session: int
    faults: int
    seconds: float


class Family:
    """The descendants of one guest's, read anew every time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        own = _stat(pid)
        self._session = own.session if own else 0

    def cpu(self) -> float:
        """Return the seconds of all that live, and of all that were waited for."""
        own = _stat(self._pid, waited_only=True)
        return sum(stat.seconds for stat in self._members().values()) + (own.seconds if own else 0)

    def held(self, parents: int, copies: Mapping[int, int] = MappingProxyType({})) -> int:
        """Return the bytes that the others hold by themselves; ``parents`` are the guest's.

        A fork shares its parent's pages until it writes to them, which is one minor fault each.
        ``copies`` are snapshots, and what each has from the guest of its time, which may have more
        or less by now; ``undo_max_bytes`` bounds that. A copy waits: what it has besides counts.
        """
        total = 0
        for pid, stat in self._members().items():
            private = _private(pid)
            if pid in copies:
                total += max(0, private - copies[pid])
                continue
            total += max(private - parents, min(private, stat.faults * _PAGE))
        return total

    def _members(self) -> dict[int, _Stat]:
        found: dict[int, _Stat] = {}
        # Read anew: that of a restored snapshot was the guest before it, until that was dead.
        own = _stat(self._pid)
        waiting = _children(own.parent) if own else []
        while waiting and len(found) < MOST:
            pid = waiting.pop()
            stat = _stat(pid)
            if stat is None or stat.session != self._session:
                continue
            waiting += _children(pid)
            if pid != self._pid:
                found[pid] = stat
        return found


def _children(pid: int) -> list[int]:
    """Return the processes that any thread of ``pid`` has started."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_bytes().split())
    except (OSError, ValueError):
        pass
    return found


def _stat(pid: int, *, waited_only: bool = False) -> _Stat | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        ticks = sum(map(int, fields[13:15] if waited_only else fields[11:15]))
        return _Stat(int(fields[1]), int(fields[3]), int(fields[7]), ticks * _TICK)
    except (OSError, ValueError, IndexError):
        return None


def _private(pid: int) -> int:
    """Return the bytes resident of a process that are no file's and not shared."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
    except (OSError, ValueError):
        return 0
    return max(0, resident - shared) * _PAGE
