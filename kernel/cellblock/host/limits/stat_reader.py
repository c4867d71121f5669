"""Reads the stats of programs in a thread, because a program can make the reader wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.limits.processes import process_stat
from cellblock.host.limits.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.host.limits.processes import ProcessStat

#: Seconds that the event loop waits for one look. A thousand processes take 0.03 s.
PATIENCE: Final = 0.1
#: Looks that may be held up at a time, each by one process and in a thread of its own.
MOST_HELD_UP: Final = 16


class _Look:
    """One look at some processes, one after the other."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._reading = Reading[None]()
        self._is_over = False
        self.found: dict[int, ProcessStat | None] = {}
        #: The pid of the process that is being read.
        self.at = 0

    @property
    def is_under_way(self) -> bool:
        return self._reading.is_under_way

    def begin(self) -> None:
        """Read the stats in a thread, and wait ``PATIENCE`` seconds for it at most.

        A thread that is blocked on one process ends as soon as that process's stat can be read.
        """
        self._reading.begin(self._read, PATIENCE)
        self._is_over = True

    def _read(self) -> None:
        for pid in self._pids:
            if self._is_over:
                return
            self.at = pid
            self.found[pid] = process_stat(pid)


class StatReader:
    """Reads ``process_stat`` of processes that may execute programs.

    A process that executes a program holds a lock (``exec_update_lock``) until its former memory is
    freed. That takes half a minute if other processes keep it from the processor, and whoever reads
    its stat must wait. So a thread reads, and if it is held up the next looks leave that process
    out.
    """

    def __init__(self) -> None:
        self._held_up: list[_Look] = []

    def read(self, pids: Sequence[int]) -> dict[int, ProcessStat | None]:
        """Return the stats that could be read in time, by pid; None for processes that are gone.

        The processes are read in the order of ``pids``.
        """
        if not pids:
            return {}
        self._held_up = [look for look in self._held_up if look.is_under_way]
        if len(self._held_up) >= MOST_HELD_UP:
            return {}
        left_out = {look.at for look in self._held_up}
        look = _Look([pid for pid in pids if pid not in left_out])
        look.begin()
        if look.is_under_way:
            self._held_up.append(look)
        return dict(look.found)
