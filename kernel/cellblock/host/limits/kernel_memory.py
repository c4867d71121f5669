"""Memory of the OS kernel that a session's range locks, mappings and Unix sockets take."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.host.limits.processes import read_proc
from cellblock.host.limits.scratch import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Bytes by which it grew before it is asked whose that is.
GROWN: Final = 32 << 20
#: Bytes of it that a second of a processor makes at most: the smallest objects have 64, and one
#: takes 30 ns or more.
MADE: Final = 2 << 30
#: Range locks of a session from which it is the session's. Honest programs have a handful.
MANY_LOCKS: Final = 5_000
#: Lines of /proc/locks that are read: a line takes the longer the more there were before it.
_MOST_LINES: Final = 2 * MANY_LOCKS
_UNRECLAIMABLE: Final = re.compile(rb"^SUnreclaim:\s+(\d+) kB$", re.MULTILINE)
#: The process that a lock is of; -1 is of an open file, whoever has that (proc_locks(5)).
_OWNER: Final = re.compile(rb"^\d+: (?:->)?\s*\w+\s+\w+\s+\w+\s+(-?\d+)")


class KernelMemory:
    """What a session's range locks and mappings take, in no process's memory.

    Linux counts them for no process, and tells nobody but their owner how many mappings there are:
    65,530 a process (vm.max_map_count), of 250 bytes each and 64 more for each process that it
    descends from by forks. So what all such memory has grown by since the session had one process
    counts for it while it has others, and for a session that has more locks than honest programs.
    Other programs of the machine's have it grow, too: from one look to the next a session is
    charged with no more than its processors could have made.
    """

    def __init__(self) -> None:
        self._before = self._last = _unreclaimable()
        #: What counts for the session of what it grew by, and its processor time at the last look.
        self._made, self._cpu = 0, 0.0

    def held(self, pids: Callable[[], Collection[int]], cpu: float) -> int:
        """Return the bytes that count for the session of the processes ``pids``, an estimate.

        ``cpu`` is the processor time of all that the session has run.
        """
        now, most = _unreclaimable(), int(MADE * (cpu - self._cpu))
        rose, self._last, self._cpu = now - self._last, now, cpu
        self._before = min(self._before, now)
        self._made = min(now - self._before, self._made + max(0, min(rose, most)))
        if self._made <= GROWN:
            return 0
        session = pids()
        if len(session) > 1 or _count_locks(session) > MANY_LOCKS:
            return self._made
        self._before, self._made = now, 0  # one process can have little of it
        return 0


def _unreclaimable() -> int:
    found = _UNRECLAIMABLE.search(read_proc("meminfo"))
    return int(found[1]) << 10 if found else 0


def _count_locks(pids: Collection[int]) -> int:
    """Count the range locks that are not of a process that lives and is none of these.

    A process that has ended may have left its locks to one that shares its descriptors.
    """
    with contextlib.suppress(OSError), Path("/proc/locks").open("rb") as locks:
        lines = (_OWNER.match(line) for line in islice(locks, _MOST_LINES))
        owners = Counter(int(line[1]) for line in lines if line is not None)
        return sum(
            count
            for pid, count in owners.items()
            if pid <= 0 or pid in pids or not Path(f"/proc/{pid}").exists()
        )
    return 0


# --- Unix sockets ---------------------------------------------------------------------------------

#: What one may hold that nobody reads (net.core.wmem_default of Linux).
_SOCKET_BYTES: Final = 212_992
#: Senders' worth that a receiver of datagrams may hold (net.unix.max_dgram_qlen, and one more).
_SENDERS: Final = 11
#: Sockets that count for nothing: an honest session has some dozens.
FREE_SOCKETS: Final = 256
#: Bytes of a list of sockets that are read; a longer one counts as endless. It takes 5 ms.
_MOST_LISTED: Final = 1 << 20
#: Type and state, in the columns of /proc/PID/net/unix.
_DATAGRAMS: Final = re.compile(rb"^[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ [0-9A-F]+ 0002 ", re.MULTILINE)


def socket_memory(pid: int) -> int:
    """Return at most how many bytes Unix sockets hold in a network that a process has of its own.

    A connection that its maker has filled and closed stays with whoever listens until that takes it
    up, and a datagram with its receiver. No process is shown to hold it, and Linux bounds it by
    nothing but how many sockets there are.
    """
    try:
        if os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat("/proc/self/ns/net")):
            return 0
        with open(f"/proc/{pid}/net/unix", "rb") as file:
            listed = file.read(_MOST_LISTED)
    except OSError:  # it is gone, or not ours to ask about
        return 0
    sockets = listed.count(b"\n") - 1 + (_SENDERS - 1) * len(_DATAGRAMS.findall(listed))
    if len(listed) == _MOST_LISTED:
        sockets = ENDLESS
    return max(0, sockets - FREE_SOCKETS) * _SOCKET_BYTES
