"""Reads what programs took, though a program can keep whoever asks waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.limits.processes import process_stat
from cellblock.host.limits.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.host.limits.processes import ProcessStat

#: Seconds that the host's loop waits for one look: a thousand processes take 0.03.
PATIENCE: Final = 0.1
#: Looks that may be held up at once, each by one process and in a thread of its own.
MOST_HELD_UP: Final = 16


class _Look:
    """One look at processes, one after the other."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._reading = Reading[None]()
        self._is_over = False
        self.found: dict[int, ProcessStat | None] = {}
        #: The process that is being looked at.
        self.at = 0

    @property
    def is_under_way(self) -> bool:
        return self._reading.is_under_way

    def begin(self) -> None:
        """Look, and give up after ``PATIENCE``: the thread ends once its process lets it."""
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

    A process that executes a program holds a lock (``exec_update_lock``) until the memory that it
    had is freed: half a minute, if others keep it from the processor. Whoever reads its stat waits
    as long. So a thread reads, and where that is held up the next look leaves the process out.
    """

    def __init__(self) -> None:
        self._held_up: list[_Look] = []

    def read(self, pids: Sequence[int]) -> dict[int, ProcessStat | None]:
        """Return what could be read in time; None of those that are gone.

        ``pids`` are looked at in this order.
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
