"""The processor time and memory of one process, read from outside and without a right over it.

Sources: clock_getcpuclockid(3) for the processor time of another process, proc(5) for the rest.
Both are open to any process, even for a process that can't be traced.
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
#: Finds the fields of /proc/PID/status, each at the beginning of a line, because a process may give
#: itself the name of a field.
_FIELDS: Final = re.compile(
    rb"^VmHWM:\s+(\d+).*^VmRSS:\s+(\d+).*^RssAnon:\s+(\d+).*^RssFile:\s+(\d+).*^RssShmem:\s+(\d+)"
    rb".*^VmPTE:\s+(\d+).*^VmSwap:\s+(\d+)",
    re.DOTALL | re.MULTILINE,
)
#: Processes of one guest that are looked at. Any more are not counted.
MAX_PROCESSES: Final = 1_024


class ProcessMemory(NamedTuple):
    """The memory of one process, in bytes."""

    #: The most that was ever resident, and what is resident now.
    peak: int
    resident: int
    #: Private pages, in memory or swapped out. A fork's include those of its parent.
    private: int
    #: Mapped pages of files that are in memory only, such as those in /dev/shm.
    shared: int
    #: Page tables.
    tables: int
    #: Mapped pages of files on disk; a page counts as often as it is mapped.
    mapped: int

    @property
    def held(self) -> int:
        """The bytes that the OS kernel can't reclaim, because no file holds them as well."""
        return self.private + self.shared + self.tables


def _parse_memory(status: bytes) -> ProcessMemory | None:
    match = _FIELDS.search(status)
    if match is None:  # a zombie has no memory
        return None
    peak, resident, private, mapped, shared, tables, swapped = (
        int(kib) << 10 for kib in match.groups()
    )
    return ProcessMemory(peak, resident, private + swapped, shared, tables, mapped)


def process_memory(pid: int | None) -> ProcessMemory | None:
    """Return the memory of a process; None if the process is gone."""
    return _parse_memory(read_proc(f"{pid}/status")) or _memory_of_threads(pid)


def _memory_of_threads(pid: int | None) -> ProcessMemory | None:
    """Return the memory of a process whose first thread has ended while others go on.

    In /proc the first thread stands for the process, and it shows no memory any more.
    """
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in islice(tasks, MAX_PROCESSES) if len(tasks) > 1 else ():
            memory = _parse_memory(read_proc(f"{pid}/task/{task}/status"))
            if memory is not None:
                return memory
    return None


def cpu_clock(pid: int) -> float | None:
    """Return the processor seconds of all threads of a process, including ended ones.

    Return None if the process is gone.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


class Gauge:
    """Reads one process. Every reading is None when the process is gone.

    Descriptors of files in /proc are kept, because they mean this process even if its pid is
    another's by now. The processor time is read by pid: ask for it only while the process is known
    not to be reaped.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._files: dict[str, int] = {}

    def _read(self, name: str) -> bytes:
        """Return the content of a file in the process's folder in /proc. Raises OSError."""
        if name not in self._files:
            self._files[name] = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._files[name], _MAX_READ, 0)

    def cpu(self) -> float | None:
        """Return the processor seconds of all its threads, including ended ones."""
        return cpu_clock(self.pid)

    def resident(self) -> int | None:
        """Return the bytes resident now, in a tenth of the time that ``memory`` takes."""
        try:
            resident = int(self._read("statm").split(None, 2)[1]) * PAGE
        except (OSError, IndexError):
            return None
        if not resident and (memory := _memory_of_threads(self.pid)) is not None:
            return memory.resident
        return resident

    def memory(self) -> ProcessMemory | None:
        """Return the memory of the process."""
        try:
            memory_read = _parse_memory(self._read("status"))
        except OSError:
            return None
        return memory_read or _memory_of_threads(self.pid)

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self._files.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._files.clear()


class ProcessStat(NamedTuple):
    """What /proc/PID/stat says of a process (proc(5))."""

    parent: int
    session: int
    #: Page faults, minor and major: how many pages the process was given. Faults that read a file
    #: count too, since such a page becomes private at the first write (MAP_PRIVATE).
    faults: int
    #: Processor seconds of the process itself, and of all processes that it or these waited for.
    seconds: float
    waited: float
    #: Pages given to the processes that it, or these, waited for.
    waited_faults: int = 0
    #: When the process was started, which tells it from a later one with the same pid.
    began: int = 0
    #: Whether all but ``parent`` and ``seconds`` are from an earlier moment.
    is_stale: bool = False


#: Stands for a process before it was started.
UNBORN: Final = ProcessStat(parent=0, session=0, faults=0, seconds=0.0, waited=0.0)


def process_stat(pid: int | None) -> ProcessStat | None:
    """Return the stat of a process; None if the process is gone.

    This may block while the process executes a program (execve(2)). For a process that may do so,
    use a ``StatReader``, which waits in a thread.
    """
    # The fields are numbered from the one after the name, which is the third in proc(5).
    fields = read_proc(f"{pid}/stat").rpartition(b") ")[2].split()
    if not fields:  # the process is gone
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
    """Return the content of a short file in /proc; empty if it is gone.

    This takes a third of the time that a file object takes.
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
    """Return the resident bytes of a process that are neither a file's nor shared; 0 if gone."""
    fields = read_proc(f"{pid}/statm").split()
    if not fields:
        return 0
    resident = int(fields[1])
    shared = int(fields[2])
    if not resident:  # /proc shows the first thread only, which may have ended before others
        memory = _memory_of_threads(pid)
        return 0 if memory is None else memory.private
    return max(0, resident - shared) * PAGE


def page_faults(pid: int | None) -> int:
    """Return how many pages a process was given; 0 if the process is gone."""
    process = process_stat(pid)
    return 0 if process is None else process.faults


#: Finds how many huge pages were given: at a fault, or in place of small pages (madvise(2),
#: MADV_COLLAPSE), which is no fault.
_HUGE_PAGES_GIVEN: Final = re.compile(rb"^thp_(?:fault|collapse)_alloc (\d+)", re.MULTILINE)


def huge_pages() -> int:
    """Return how many huge pages the machine has given so far; 0 if it has none (proc(5)).

    This takes 80 µs.
    """
    try:
        return sum(map(int, _HUGE_PAGES_GIVEN.findall(Path("/proc/vmstat").read_bytes())))
    except OSError:
        return 0


@lru_cache(maxsize=1)
def huge_size() -> int:
    """Return the bytes of a huge page; 0 if the machine has none."""
    try:
        return int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_bytes())
    except (OSError, ValueError):
        return 0
