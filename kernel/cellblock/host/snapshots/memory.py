"""What snapshots cost: in memory, and in the time that it takes to make one."""

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


# --- what a process has -----------------------------------------------------------------------

#: Bytes of a guest from which huge pages count: one of them is one fault. Reading how many there
#: are takes 80 µs, which a guest without large arrays is spared.
LARGE: Final = 32 * 2**20
_KIB: Final = 1024


class Reading(Struct, frozen=True):
    """What a guest had at one moment: bytes of its own, and pages that it was given until then."""

    size: int
    faults: int
    #: Huge pages of the whole machine's; None for a guest that is not large.
    huge: int | None = None


def read(pid: int | None, resident: int, given: int) -> Reading:
    """Read what a guest has; ``given`` are the pages of those that it has its state from."""
    return Reading(resident, given + page_faults(pid), huge_pages() if resident >= LARGE else None)


def taken(pid: int, had: Reading, stats: StatReader) -> tuple[int, int]:
    """Return the bytes that a copy holds beyond what it had, and those that it wrote to.

    What it wrote to is in memory once more; so are huge pages, of which this says nothing. Both
    are 0 when it is gone. Of a copy whose stat can't be had in time, which no honest one does, it
    is all that it holds: one that was not known as a copy yet may execute a program.
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
    """Return at most how many bytes only a copy made at ``older`` has by ``newer``.

    What the guest wrote to was given to it anew, one fault a page. What it let go of made it
    smaller, or else what it was given would have made it larger.
    """
    huge = 0 if newer.huge is None or older.huge is None else max(0, newer.huge - older.huge)
    given = max(0, newer.faults - older.faults) * PAGE + huge * huge_size()
    return min(older.size, max(0, older.size + given - newer.size))


def added(older: Reading, newer: Reading) -> int:
    """Return at most how many bytes a process has for itself that was forked at ``older``.

    A page that it let go of and was given again counts once more, up to all that it has. Huge
    pages do not: those of a machine are not one process's, and a shared one is copied by pages.
    """
    given = max(0, newer.faults - older.faults) * PAGE
    return min(newer.size, max(given, newer.size - older.size))


# --- what there is ----------------------------------------------------------------------------


def total() -> int:
    """Return the bytes that the machine has, or that our control groups let this process have."""
    room: int = PAGE * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _groups():
        with contextlib.suppress(OSError, ValueError):  # without a limit it is no number
            room = min(room, int(limit.read_text(encoding="ascii")))
    return room


def available() -> int:
    """Return the bytes that can be had without swapping: the machine's, and our control group's."""
    found = re.search(rb"^MemAvailable: *(\d+)", read_proc("meminfo"), re.MULTILINE)
    room = int(found[1]) * _KIB if found else 0
    for limit, usage in _groups():
        try:
            most = limit.read_text(encoding="ascii").strip()
            if most != "max":
                room = min(room, int(most) - int(usage.read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return room


@lru_cache(maxsize=1)
def _groups() -> tuple[tuple[Path, Path], ...]:
    """Return the files that bound this process, of its group and those above it (cgroup v2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return ()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return ()
    base = Path("/sys/fs/cgroup")
    folder = base / own.lstrip("/")
    found = [at for at in (folder, *folder.parents) if at.is_relative_to(base)]
    named = ((at / "memory.max", at / "memory.current") for at in found)
    return tuple(pair for pair in named if pair[0].exists())


# --- whether one more can be afforded ---------------------------------------------------------

#: Bytes that stay free whatever is asked for.
RESERVE: Final = 192 * 2**20
#: Seconds for which it is known how much there is, while this many bytes more than needed are.
FRESH: Final = 0.05
PLENTY: Final = 2**30
#: Seconds above which ``auto`` takes no more of them, until the guest has become smaller. One
#: alone may be the machine's fault; after this many in a row there is a rest, as many times longer.
TOO_LONG: Final = 0.25
_SLOW: Final = 2
_REST: Final = 20
#: Bytes of a guest that is copied in milliseconds: where that takes long, everything does, and
#: nothing is spared by leaving it out.
SMALL: Final = 256 * 2**20

#: What the policy says of when snapshots are taken.
Mode = Literal["auto", "always", "off"]
#: Why none is taken: the guest could not, memory, its time, descriptors of the host's, or a device
#: that the guest uses.
Reason = Literal["failed", "memory", "slow", "files", "device"]


def wanted(resident: int) -> int:
    """Return how many bytes must be free for one more copy of a guest of this size.

    A cell that rewrites everything doubles it; most change little. Half is in between, and what
    turns out to be too much is given back before memory runs out.
    """
    return RESERVE + resident // 2


#: What the user reads then, with the reason.
NO_SNAPSHOT: Final = "takes no snapshot: {}. A killed cell may cost its variables"
#: Why, of a guest that uses a device.
USES_DEVICE: Final = "a device is in use, and a copy would not have what is in it"


class Budget:
    """Whether there is room for one more copy; ``notify`` tells the user what is not kept, and why.

    Each reason why no snapshot is taken is told once.
    """

    def __init__(
        self, mode: Mode, clock: Callable[[], float], notify: Callable[[str], None]
    ) -> None:
        self._mode, self._clock, self.notify = mode, clock, notify
        self._said: set[Reason] = set()
        #: Copies in a row that took too long; resident bytes of their guest, and when to try again.
        self._slow = 0
        self._too_large: int | None = None
        self._rests_until = 0.0
        #: Bytes that there were, and when.
        self._free, self._read_at = 0, 0.0

    def allows(self, resident: int, drop_oldest: Callable[[], bool]) -> bool:
        """Return whether there is room for a copy of a guest of ``resident`` bytes.

        ``drop_oldest`` makes some, and returns whether there was a copy to drop. Where the policy
        says ``always``, memory is not looked at.
        """
        rests = self._mode != "always" and self._rests(resident)
        return not rests and self.affords(resident, drop_oldest)

    def affords(self, resident: int, drop_oldest: Callable[[], bool]) -> bool:
        """Return the same for a copy that was asked for, however long the last ones took."""
        if self._mode == "always":
            return True
        while not self._is_free(wanted(resident)):
            if not drop_oldest():
                self.say("memory", "memory is short")
                return False
        return True

    def _rests(self, resident: int) -> bool:
        if self._too_large is None:
            return False
        if resident > self._too_large * 3 // 4 and self._clock() < self._rests_until:
            return True
        self._too_large = None
        return False

    def _is_free(self, wanted: int) -> bool:
        """Read anew how much there is, unless that lately was far from short."""
        now = self._clock()
        if self._free - wanted < PLENTY or now - self._read_at > FRESH:
            self._free, self._read_at = available(), now
        return self._free >= wanted

    def took(self, seconds: float, resident: int) -> None:
        """Record how long a copy of a guest of ``resident`` bytes took to stand."""
        if self._mode != "auto" or seconds <= TOO_LONG or resident < SMALL:
            self._slow = 0
            return
        self._slow += 1
        if self._slow >= _SLOW:
            self._too_large = resident
            self._rests_until = self._clock() + _REST * seconds
            self.say("slow", f"the last one took {seconds:.1f} s")

    def say(self, reason: Reason, detail: str) -> None:
        """Tell the user, once for each reason, that a killed cell may cost something."""
        if reason not in self._said:
            self._said.add(reason)
            self.notify(NO_SNAPSHOT.format(detail))
