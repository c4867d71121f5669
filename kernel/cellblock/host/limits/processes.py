"""What a process takes, read from outside and without a right over it.

Sources: clock_getcpuclockid(3) for the processor clock of another process; proc(5) for the rest.
Both are open to any process, for one that can't be traced too.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_MAX_READ: Final = 8192
#: Each at the beginning of a line: a process may give itself the name of a field.
_FIELDS: Final = re.compile(
    rb"^VmHWM:\s+(\d+).*^VmRSS:\s+(\d+).*^RssAnon:\s+(\d+).*^RssFile:\s+(\d+).*^RssShmem:\s+(\d+)"
    rb".*^VmPTE:\s+(\d+).*^VmSwap:\s+(\d+)",
    re.DOTALL | re.MULTILINE,
)
#: Processes of one guest that are looked at; more than this are not counted.
MAX_PROCESSES: Final = 1_024


class ProcessMemory(NamedTuple):
    """Bytes of one process."""

    #: The most that was ever resident, and what is now.
    peak: int
    resident: int
    #: Private pages, in memory or swapped out; a fork has its parent's, too.
    private: int
    #: Pages of files in memory that it has mapped, such as those in /dev/shm.
    shared: int
    #: Page tables.
    tables: int
    #: Pages of files on disk that it has mapped, each as often as it is.
    mapped: int

    @property
    def held(self) -> int:
        """What can't be had back by reading a file again."""
        return self.private + self.shared + self.tables


def _parse_memory(status: bytes) -> ProcessMemory | None:
    found = _FIELDS.search(status)
    if found is None:  # a zombie has none
        return None
    peak, resident, private, mapped, shared, tables, swapped = (
        int(kib) << 10 for kib in found.groups()
    )
    return ProcessMemory(peak, resident, private + swapped, shared, tables, mapped)


def process_memory(pid: int | None) -> ProcessMemory | None:
    """Return what a process has of memory; None when it is gone."""
    return _parse_memory(read_proc(f"{pid}/status")) or _memory_of_threads(pid)


def _memory_of_threads(pid: int | None) -> ProcessMemory | None:
    """Return what a process has whose first thread has ended, and others go on.

    The first thread stands for the process in /proc, and has no memory any more.
    """
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in islice(tasks, MAX_PROCESSES) if len(tasks) > 1 else ():
            found = _parse_memory(read_proc(f"{pid}/task/{task}/status"))
            if found is not None:
                return found
    return None


def cpu_clock(pid: int) -> float | None:
    """Return the processor seconds of all threads of a process, the ended ones too.

    None when it is gone.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


class Gauge:
    """One process; every reading is None once it is gone.

    Descriptors are kept, because a descriptor of /proc means this process whatever its number
    means by now. The clock goes by number: ask only while the process is known not to be reaped.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._files: dict[str, int] = {}

    def _read(self, name: str) -> bytes:
        """Return what a file in its folder of /proc says. Raises OSError."""
        if name not in self._files:
            self._files[name] = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._files[name], _MAX_READ, 0)

    def cpu(self) -> float | None:
        """Return the seconds of processor time of all its threads, the ended ones too."""
        return cpu_clock(self.pid)

    def resident(self) -> int | None:
        """Return the bytes resident now; a tenth of the time that ``memory`` takes."""
        try:
            resident = int(self._read("statm").split(None, 2)[1]) * PAGE
        except (OSError, IndexError):
            return None
        if not resident and (memory := _memory_of_threads(self.pid)) is not None:
            return memory.resident
        return resident

    def memory(self) -> ProcessMemory | None:
        """Return what it has of memory."""
        try:
            found = _parse_memory(self._read("status"))
        except OSError:
            return None
        return found or _memory_of_threads(self.pid)

    def close(self) -> None:
        """Close its files."""
        for fd in self._files.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._files.clear()


class ProcessStat(NamedTuple):
    """Of proc(5), /proc/PID/stat: numbered from the field after the name, which is the third."""

    parent: int
    session: int
    #: Pages that it was given, with or without reading a file for it: a page of a file becomes a
    #: private one at the first write (MAP_PRIVATE).
    faults: int
    #: Processor time of its own, and of those that it has waited for, with theirs.
    seconds: float
    waited: float
    #: Pages given to those that it has waited for, with theirs.
    waited_faults: int = 0
    #: When it was started: tells it from one that has its number later.
    began: int = 0
    #: Whether this is of an earlier moment, but for parent and seconds.
    is_stale: bool = False


UNBORN: Final = ProcessStat(parent=0, session=0, faults=0, seconds=0.0, waited=0.0)


def process_stat(pid: int | None) -> ProcessStat | None:
    """Return who a process descends from, and what it took; None when it is gone.

    Of a process that may execute programs ask a ``StatReader``.
    """
    fields = read_proc(f"{pid}/stat").rpartition(b") ")[2].split()
    if not fields:  # it is gone
        return None
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return ProcessStat(
        parent=int(fields[1]),
        session=int(fields[3]),
        faults=int(fields[7]) + int(fields[9]),
        seconds=(user + system) * _TICK,
        waited=(waited_user + waited_system) * _TICK,
        waited_faults=int(fields[8]) + int(fields[10]),
        began=int(fields[19]),
    )


def read_proc(name: str) -> bytes:
    """Return a short file of /proc, in a third of the time that a file object takes.

    Nothing when it is gone.
    """
    try:
        fd = os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _MAX_READ)
    except OSError:
        return b""
    finally:
        os.close(fd)


def private_bytes(pid: int | None) -> int:
    """Return the bytes resident of a process that are no file's and not shared; 0 when gone."""
    fields = read_proc(f"{pid}/statm").split()
    if not fields:
        return 0
    resident, shared = int(fields[1]), int(fields[2])
    if not resident:  # /proc shows the first thread alone: it has ended, and others may go on
        memory = _memory_of_threads(pid)
        return 0 if memory is None else memory.private
    return max(0, resident - shared) * PAGE


def page_faults(pid: int | None) -> int:
    """Return how many pages a process was given; 0 when it is gone."""
    found = process_stat(pid)
    return 0 if found is None else found.faults


#: Given for what was touched, or for small ones (madvise(2), MADV_COLLAPSE: no fault at all).
_HUGE: Final = re.compile(rb"^thp_(?:fault|collapse)_alloc (\d+)", re.MULTILINE)


def huge_pages() -> int:
    """Return how many huge pages the machine has given so far; 0 where it has none (proc(5)).

    It takes 80 µs.
    """
    try:
        return sum(map(int, _HUGE.findall(Path("/proc/vmstat").read_bytes())))
    except OSError:
        return 0


@lru_cache(maxsize=1)
def huge_size() -> int:
    """Return the bytes of a huge page; 0 where there are none."""
    try:
        return int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_bytes())
    except (OSError, ValueError):
        return 0
