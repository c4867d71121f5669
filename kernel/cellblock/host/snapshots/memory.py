"""What snapshots cost in memory and in time, and whether one more can be afforded.

All that is known of a guest's memory is read cheaply: the bytes of its own, and how many pages it
was given (``Reading``). From two such readings follows how much a copy can hold at most. The
``Budget`` decides by them whether the guest may be copied once more.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from cellblock.host.limits.processes import (
    PAGE,
    Gauge,
    huge_pages,
    huge_size,
    page_faults,
    read_proc,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.limits.stat_reader import StatReader


# --- the memory of a process ------------------------------------------------------------------

#: Resident bytes of a guest from which its huge pages are counted too: one fault brings in a whole
#: huge page, so the count of faults understates its memory. Counting takes 80 µs, so smaller guests
#: are spared it.
LARGE: Final = 32 * 2**20
_KIB: Final = 1024


class Reading(Struct, frozen=True):
    """The memory of a guest at one moment.

    ``size`` is how many bytes it holds for itself, ``faults`` how many pages it was given by then.
    """

    size: int
    faults: int
    #: Huge pages that the whole machine has given so far; None for a guest that is not large.
    huge: int | None = None


def read(pid: int | None, resident: int, given_pages: int) -> Reading:
    """Read the memory of a guest.

    ``resident`` is the guest's private memory in bytes. ``given_pages`` is the number of pages that
    were given to earlier processes, if the guest continues the state of some.
    """
    return Reading(
        resident, given_pages + page_faults(pid), huge_pages() if resident >= LARGE else None
    )


def copy_bytes(pid: int, had: Reading, stats: StatReader) -> tuple[int, int]:
    """Return the bytes that a copy holds beyond those it had, and the bytes that it has written to.

    A page that it has written to is in memory twice. This does not count huge pages. Both numbers
    are 0 if the copy is gone. If the copy's stat can't be read in time, all that it holds counts as
    written to. That never happens with an honest copy, but a process that was not yet known as a
    copy may have executed a program.
    """
    gauge = Gauge(pid)
    memory = gauge.memory()
    gauge.close()
    if memory is None:
        return 0, 0
    stat = stats.read([pid]).get(pid)
    written = memory.held if stat is None else min(memory.held, stat.faults * PAGE)
    return max(0, memory.held - had.size), written


def left_behind(older: Reading, newer: Reading) -> int:
    """Return how many bytes only a copy forked at ``older`` has, and not the guest at ``newer``.

    This is an upper bound. Pages that the guest wrote to were given to it anew, with one fault
    each. Memory that it let go of made it smaller, or kept the pages it was given from making it
    larger.
    """
    huge = 0 if newer.huge is None or older.huge is None else max(0, newer.huge - older.huge)
    given_bytes = max(0, newer.faults - older.faults) * PAGE + huge * huge_size()
    return min(older.size, max(0, older.size + given_bytes - newer.size))


def added(older: Reading, newer: Reading) -> int:
    """Return how many bytes a process that was forked at ``older`` has for itself, at most.

    A page that it let go of and was given again counts twice, up to all that it has. Huge pages are
    not looked at: their number is the machine's, not the process's, and a shared huge page is
    copied in small pages.
    """
    given_bytes = max(0, newer.faults - older.faults) * PAGE
    return min(newer.size, max(given_bytes, newer.size - older.size))


# --- the memory of the machine ----------------------------------------------------------------


def total() -> int:
    """Return the bytes of memory of the machine, or what our control groups allow, if less."""
    room: int = PAGE * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _groups():
        with contextlib.suppress(OSError, ValueError):  # "max" stands for no limit
            room = min(room, int(limit.read_text(encoding="ascii")))
    return room


def available() -> int:
    """Return the bytes that are free without swapping, on the machine and in our control groups."""
    match = re.search(rb"^MemAvailable: *(\d+)", read_proc("meminfo"), re.MULTILINE)
    room = int(match[1]) * _KIB if match else 0
    for limit, usage in _groups():
        try:
            maximum = limit.read_text(encoding="ascii").strip()
            if maximum != "max":
                room = min(room, int(maximum) - int(usage.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return room


@lru_cache(maxsize=1)
def _groups() -> tuple[tuple[Path, Path], ...]:
    """Return the files with limit and usage of our control group and those above it (cgroup v2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return ()
    base = Path("/sys/fs/cgroup")
    folder = base / own.lstrip("/")
    folders = [path for path in (folder, *folder.parents) if path.is_relative_to(base)]
    limits_and_usages = ((path / "memory.max", path / "memory.current") for path in folders)
    return tuple(pair for pair in limits_and_usages if pair[0].exists())


# --- the budget for one more copy -------------------------------------------------------------

#: Bytes that always stay free.
RESERVE: Final = 192 * 2**20
#: Seconds for which a reading of the free memory holds, if it was this much more than needed.
FRESH: Final = 0.05
PLENTY: Final = 2**30
#: Seconds above which a fork took too long. A single slow fork may be the machine's fault. After
#: ``_MOST_SLOW`` of them in a row the mode "auto" takes no snapshot for ``_REST`` times as long as
#: the last one took, or until the guest has become smaller.
TOO_LONG: Final = 0.25
_MOST_SLOW: Final = 2
_REST: Final = 20
#: Bytes up to which a guest is copied in milliseconds. If that takes long the machine is slow at
#: everything, and leaving out snapshots would save nothing.
SMALL: Final = 256 * 2**20

#: The policy's field ``snapshots``.
Mode = Literal["auto", "always", "off"]
#: Why no snapshot is taken: the fork failed, memory is short, forks take too long, the host has no
#: descriptors left, or the guest uses a device.
Reason = Literal["failed", "memory", "slow", "files", "device"]


def free_bytes_for_copy(resident: int) -> int:
    """Return how many bytes must be free for one more copy of a guest with ``resident`` bytes.

    A cell that rewrites everything doubles the memory, but most change little. Half is in between.
    If it turns out to be too little, copies are dropped before memory runs out.
    """
    return RESERVE + resident // 2


#: The notice that the user sees, with the reason.
NO_SNAPSHOT: Final = "takes no snapshot: {}. If a cell is killed, your variables may be lost"
#: The reason if the guest uses a device.
USES_DEVICE: Final = "a device is in use, and a copy would not have what is in it"


class Budget:
    """Decides whether one more copy can be afforded.

    ``notify`` tells the user why no snapshot is taken, once for each reason.
    """

    def __init__(
        self, mode: Mode, clock: Callable[[], float], notify: Callable[[str], None]
    ) -> None:
        self._mode = mode
        self._clock = clock
        self.notify = notify
        self._reasons_told: set[Reason] = set()
        #: How many forks in a row took too long; the resident bytes of the guest if snapshots rest
        #: because of that; and until when they rest.
        self._slow = 0
        self._too_large: int | None = None
        self._rests_until = 0.0
        #: The free bytes that were read last, and when.
        self._last_free = 0
        self._read_at = 0.0

    def allows(self, resident: int, drop_oldest: Callable[[], bool]) -> bool:
        """Return whether a copy of a guest with ``resident`` bytes can be afforded now.

        ``drop_oldest`` drops a copy to make room, and returns whether there was one. In the mode
        "always" memory is not looked at.
        """
        rests = self._mode != "always" and self._rests(resident)
        return not rests and self.affords(resident, drop_oldest)

    def affords(self, resident: int, drop_oldest: Callable[[], bool]) -> bool:
        """Return the same for a copy that the user asked for, however long the last forks took."""
        if self._mode == "always":
            return True
        while not self._has_free(free_bytes_for_copy(resident)):
            if not drop_oldest():
                self.say("memory", "memory is short")
                return False
        return True

    def _rests(self, resident: int) -> bool:
        """Return whether snapshots rest because the last ones took too long."""
        if self._too_large is None:
            return False
        if resident > self._too_large * 3 // 4 and self._clock() < self._rests_until:
            return True
        self._too_large = None
        return False

    def _has_free(self, needed_bytes: int) -> bool:
        """Return whether as many bytes are free. Read that anew, unless there was plenty lately."""
        now_seconds = self._clock()
        if self._last_free - needed_bytes < PLENTY or now_seconds - self._read_at > FRESH:
            self._last_free = available()
            self._read_at = now_seconds
        return self._last_free >= needed_bytes

    def took(self, seconds: float, resident: int) -> None:
        """Record how long a copy of a guest of ``resident`` bytes took to stand."""
        if self._mode != "auto" or seconds <= TOO_LONG or resident < SMALL:
            self._slow = 0
            return
        self._slow += 1
        if self._slow >= _MOST_SLOW:
            self._too_large = resident
            self._rests_until = self._clock() + _REST * seconds
            self.say("slow", f"the last one took {seconds:.1f} s")

    def say(self, reason: Reason, detail: str) -> None:
        """Tell the user, once for each reason, that no snapshot is taken."""
        if reason not in self._reasons_told:
            self._reasons_told.add(reason)
            self.notify(NO_SNAPSHOT.format(detail))
