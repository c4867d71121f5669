"""Reading what a process takes, from outside and without a right over it.

Sources: clock_getcpuclockid(3) for the processor clock of another process; proc(5) for the rest.
Both are open to any process, for one that can't be traced too.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Final, NamedTuple

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_MOST: Final = 4096
_FIELDS: Final = re.compile(
    rb"VmHWM:\s+(\d+).*VmRSS:\s+(\d+).*RssAnon:\s+(\d+).*RssShmem:\s+(\d+).*VmPTE:\s+(\d+)",
    re.DOTALL,
)


class Memory(NamedTuple):
    """Bytes of one process."""

    #: The most that was ever resident, and what is now.
    peak: int
    resident: int
    #: What can't be had back by reading a file again: private and shared pages, page tables.
    held: int


class Gauge:
    """One process; every reading is None once it is gone.

    Descriptors are kept, because a descriptor of /proc means this process whatever its number
    means by now. The clock goes by number: ask only while the process is known not to be reaped.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._clock = (~pid << 3) | 2
        self._statm = self._status = -1

    def cpu(self) -> float | None:
        """Return the seconds of processor time of all its threads, the ended ones too."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return None

    def resident(self) -> int | None:
        """Return the bytes resident now; a tenth of what ``memory`` takes."""
        try:
            if self._statm < 0:
                self._statm = _opened(self.pid, "statm")
            return int(os.pread(self._statm, _MOST, 0).split(None, 2)[1]) * _PAGE
        except (OSError, IndexError):
            return None

    def memory(self) -> Memory | None:
        """Return what it has of memory."""
        try:
            if self._status < 0:
                self._status = _opened(self.pid, "status")
            found = _FIELDS.search(os.pread(self._status, _MOST, 0))
        except OSError:
            return None
        if found is None:  # a zombie has none
            return None
        peak, resident, private, shared, tables = (int(kib) << 10 for kib in found.groups())
        return Memory(peak, resident, private + shared + tables)

    def close(self) -> None:
        """Let go of it."""
        for fd in (self._statm, self._status):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._statm = self._status = -1


def _opened(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
