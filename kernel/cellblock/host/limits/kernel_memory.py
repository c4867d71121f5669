"""The OS kernel's memory that a session takes by range locks, mappings and Unix sockets.

No process is shown to hold this memory, so it is estimated: by what all such memory on the machine
has grown by (``KernelMemory``), and by the number of sockets (``socket_memory``).
"""

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

#: Bytes of growth up to which nobody is charged.
GROWN: Final = 32 << 20
#: Bytes that a processor can make the OS kernel take in a second, at most: the smallest objects
#: have 64 bytes, and making one takes 30 ns or more.
MADE: Final = 2 << 30
#: Range locks of a session from which on the growth is charged to it. Honest programs have a
#: handful.
MANY_LOCKS: Final = 5_000
#: Lines of /proc/locks that are read. Reading a line takes longer the more lines are before it.
_MOST_LINES: Final = 2 * MANY_LOCKS
_UNRECLAIMABLE: Final = re.compile(rb"^SUnreclaim:\s+(\d+) kB$", re.MULTILINE)
#: Finds the process that owns a lock; -1 stands for an open file, whoever has it (proc_locks(5)).
_LOCK_OWNER: Final = re.compile(rb"^\d+: (?:->)?\s*\w+\s+\w+\s+\w+\s+(-?\d+)")


class KernelMemory:
    """Estimates the OS kernel's memory that a session takes by range locks and mappings.

    Linux counts this memory for no process, and shows the number of mappings to their owner alone.
    A process may have 65,530 mappings (vm.max_map_count), of 250 bytes each, and 64 more for each
    process that it descends from by forks. So the growth of all such memory on the machine, since
    the session had a single process, is charged to the session while it has several processes, or
    has more locks than honest programs. Other programs on the machine let it grow, too. So from one
    look to the next a session is charged with no more than its processor time could have made.
    """

    def __init__(self) -> None:
        self._before = self._last = _unreclaimable()
        #: The growth that may be the session's, and the session's processor time at the last look.
        self._made = 0
        self._cpu = 0.0

    def held(self, pids: Callable[[], Collection[int]], cpu: float) -> int:
        """Return the bytes charged to the session, an estimate.

        ``pids`` returns the session's processes. ``cpu`` are the processor seconds of all that the
        session has run.
        """
        unreclaimable = _unreclaimable()
        most = int(MADE * (cpu - self._cpu))
        rose = unreclaimable - self._last
        self._last = unreclaimable
        self._cpu = cpu
        self._before = min(self._before, unreclaimable)
        self._made = min(unreclaimable - self._before, self._made + max(0, min(rose, most)))
        if self._made <= GROWN:
            return 0
        session = pids()
        if len(session) > 1 or _count_locks(session) > MANY_LOCKS:
            return self._made
        # A single process with few locks can have little of it, so begin anew.
        self._before = unreclaimable
        self._made = 0
        return 0


def _unreclaimable() -> int:
    match = _UNRECLAIMABLE.search(read_proc("meminfo"))
    return int(match[1]) << 10 if match else 0


def _count_locks(pids: Collection[int]) -> int:
    """Return the number of range locks that may be those of the processes ``pids``.

    Locks of a process that has ended count, too: it may have left them to a process that shares its
    descriptors. Only locks of other living processes do not count.
    """
    with contextlib.suppress(OSError), Path("/proc/locks").open("rb") as locks:
        lines = (_LOCK_OWNER.match(line) for line in islice(locks, _MOST_LINES))
        owners = Counter(int(line[1]) for line in lines if line is not None)
        return sum(
            count
            for pid, count in owners.items()
            if pid <= 0 or pid in pids or not Path(f"/proc/{pid}").exists()
        )
    return 0


# --- Unix sockets ---------------------------------------------------------------------------------

#: Bytes that a socket may hold which nobody reads (net.core.wmem_default of Linux).
_SOCKET_BYTES: Final = 212_992
#: How many senders' bytes a receiver of datagrams may hold (net.unix.max_dgram_qlen, and one more).
_SENDERS_PER_SOCKET: Final = 11
#: Sockets that are not charged. An honest session has some dozens.
FREE_SOCKETS: Final = 256
#: Bytes of the list of sockets that are read, which takes 5 ms. A longer list counts as endless.
_MOST_LISTED: Final = 1 << 20
#: Finds sockets for datagrams in /proc/PID/net/unix, by the columns for type and state.
_DATAGRAMS: Final = re.compile(rb"^[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ [0-9A-F]+ 0002 ", re.MULTILINE)


def socket_memory(pid: int) -> int:
    """Return how many bytes the Unix sockets in a process's own network hold, at most.

    A connection that one side has filled and closed stays with the listening socket until it is
    accepted, and a datagram stays with its receiver. No process is shown to hold these bytes, and
    Linux bounds them only by the number of sockets. Return 0 if the process has no network of its
    own.
    """
    try:
        if os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat("/proc/self/ns/net")):
            return 0
        with open(f"/proc/{pid}/net/unix", "rb") as file:
            listed = file.read(_MOST_LISTED)
    except OSError:  # the process is gone, or this user may not ask
        return 0
    sockets = listed.count(b"\n") - 1 + (_SENDERS_PER_SOCKET - 1) * len(_DATAGRAMS.findall(listed))
    if len(listed) == _MOST_LISTED:
        sockets = ENDLESS
    return max(0, sockets - FREE_SOCKETS) * _SOCKET_BYTES
