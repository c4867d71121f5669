"""Watching what a request takes while it is under way, and what it took when it has ended.

A request that ends within ``FIRST_LOOK`` costs two readings of a clock and one of a size. Longer
ones are looked at now and then. Whoever owns the monitor interrupts and kills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.host.family import Family
from cellblock.host.gauge import Gauge
from cellblock.host.scratch import Scratch
from cellblock.host.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.reactor import Reactor, Timer

#: Seconds from the start of a request to the first look, and between looks.
FIRST_LOOK: Final = 0.05
#: Seconds after which it is read what a guest's processes had used until then. Below ``LONG``, and
#: not at once: it takes longer than a short cell, which has no need of it.
BASELINE: Final = 0.002
PACE: Final = 0.1
#: Seconds between looks while the scratch folder grows and is more than half full.
QUICK: Final = 0.02
#: Seconds between looks at a guest that was given nothing to do, as long as it does something,
#: and at most; in between twice as long every time.
IDLE_PACE: Final = 2.0
IDLE_MOST: Final = 32.0
#: Seconds of processor time that say that a guest does something by itself.
IDLE_CPU: Final = 0.005
#: Seconds from which a cell's peak is read, not only what it has at its end.
LONG: Final = 0.005
#: What a guest may hold above ``memory_max_bytes``: an eighth, and this at least. RLIMIT_DATA is
#: the limit; it does not count stacks, page tables and shared pages.
SLACK_PART, SLACK_BYTES = 8, 64 << 20

Excess = Literal["cpu", "memory", "scratch"]


def slack(memory: int) -> int:
    """Return what may be held above ``memory_max_bytes``."""
    return max(memory // SLACK_PART, SLACK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the monitor holds a guest to; None is no limit."""

    cpu_seconds: float | None = None
    memory_max_bytes: int | None = None
    scratch_max_bytes: int | None = None
    scratch: str = ""
    #: Whether cells may start processes, which then count too.
    processes: bool = False


class Monitor:
    """Looks at one guest at a time.

    ``on_excess`` is told what there is too much of, and whether to wait would make it worse; it
    is told again at every look at which that is still so. ``copies`` looks at the guest's
    snapshots, and tells which processes they are, and the bytes that each has from it.
    """

    def __init__(
        self,
        reactor: Reactor,
        bounds: Bounds,
        clock: Callable[[], float],
        on_excess: Callable[[Excess, bool], None],
        *,
        copies: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        self._reactor, self._clock = reactor, clock
        self._copies = copies
        self._on_excess = on_excess
        self.hold_to(bounds)
        self._gauge: Gauge | None = None
        self._family: Family | None = None
        self._timer: Timer | None = None
        self._idle = self._began = 0.0
        self._cpu_began = self._cpu = self._family_cpu = 0.0
        #: What the guest's processes used before this request is known.
        self._based = False
        self._peak = self._known_peak = 0
        self.output_bytes = 0

    def hold_to(self, bounds: Bounds) -> None:
        """Have these bounds, from the next request on."""
        self._bounds = bounds
        limit = bounds.scratch_max_bytes
        self._scratch = Scratch(bounds.scratch, limit) if limit is not None else None
        memory = bounds.memory_max_bytes
        self._most = None if memory is None else memory + slack(memory)

    # --- requests -----------------------------------------------------------------------------

    def begin(self, pid: int | None) -> None:
        """Take note that a request goes to the guest ``pid``."""
        self._follow(pid)
        self._began = self._clock()
        self._cpu_began = self._cpu = self._cpu_now() or 0.0
        self._peak = self.output_bytes = 0
        if self._scratch is not None:
            self._scratch.begin()
        self._based = False
        if self._family is None:
            self._look_in(FIRST_LOOK, self._look)
        else:
            self._look_in(BASELINE, self._leave_out_earlier)

    def end(self, read_bytes: int = 0) -> Usage:
        """Take note that it ended, whichever way; return what it took."""
        wall = self._clock() - self._began
        if wall >= LONG and self._based:
            self._count_family()
        self._cpu_now()
        self._measure_peak(wall)
        self._idle = IDLE_PACE
        self._look_in(IDLE_PACE, self._look_idle)
        return Usage(wall, self._cpu - self._cpu_began, self._peak, self.output_bytes, read_bytes)

    def lost(self) -> None:
        """Stop looking: the guest is gone. What was read of it stays, for ``end``."""
        self._stop()
        self._follow(None)

    # --- looks --------------------------------------------------------------------------------

    def _look_in(self, seconds: float, look: Callable[[], None]) -> None:
        self._stop()
        self._timer = self._reactor.call_later(seconds, look)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave_out_earlier(self) -> None:
        """Charge the request nothing of what the guest's processes used between it and the last."""
        before = self._family_cpu
        self._count_family()
        earlier = self._family_cpu - before
        self._cpu_began += earlier
        self._cpu += earlier
        self._based = True
        self._look_in(FIRST_LOOK - BASELINE, self._look)

    def _look(self) -> None:
        self._count_family()
        cpu = self._cpu_now()
        if cpu is None:
            return
        scratch = self._scratch
        filling = scratch is not None and scratch.grew and scratch.size > scratch.limit // 2
        self._look_in(QUICK if filling else PACE, self._look)
        limit = self._bounds.cpu_seconds
        if self._hoards():
            self._on_excess("memory", True)
        elif limit is not None and cpu - self._cpu_began > limit:
            self._on_excess("cpu", False)
        else:
            self._look_at_scratch()

    def _look_idle(self) -> None:
        """Look after threads and tasks that a cell left behind."""
        self._count_family()
        before, cpu = self._cpu, self._cpu_now()
        if cpu is None:
            return
        busy = cpu - before > IDLE_CPU
        self._idle = IDLE_PACE if busy else min(2 * self._idle, IDLE_MOST)
        self._look_in(self._idle, self._look_idle)
        if self._hoards():
            self._on_excess("memory", True)
        elif busy:
            self._look_at_scratch()

    def _look_at_scratch(self) -> None:
        if self._scratch is not None:
            self._scratch.look()
            if self._scratch.full:
                self._on_excess("scratch", self._scratch.far)

    def _hoards(self) -> bool:
        copies = self._copies()
        memory = self._gauge.memory() if self._gauge is not None else None
        if memory is None:
            return False
        self._take_peak(memory.resident, memory.peak)
        held = memory.held + (
            self._family.held(memory.held, copies) if self._family is not None else 0
        )
        return self._most is not None and held > self._most

    # --- readings -----------------------------------------------------------------------------

    def _follow(self, pid: int | None) -> None:
        gauge = self._gauge
        if gauge is not None and gauge.pid == pid:
            return
        if gauge is not None:
            gauge.close()
        self._gauge = Gauge(pid) if pid is not None else None
        self._family = Family(pid) if pid is not None and self._bounds.processes else None
        self._known_peak, self._family_cpu = 0, 0.0

    def _cpu_now(self) -> float | None:
        """Return the guest's processor time; the last reading stays when it is gone."""
        cpu = self._gauge.cpu() if self._gauge is not None else None
        if cpu is not None:
            cpu += self._family_cpu
            self._cpu = max(self._cpu, cpu)
        return cpu

    def _count_family(self) -> None:
        """Read the processor time of what the guest has started: too slow for every cell."""
        if self._family is not None:
            self._family_cpu = max(self._family_cpu, self._family.cpu())

    def _measure_peak(self, wall: float) -> None:
        gauge: Any = self._gauge
        if gauge is None:
            return
        if wall < LONG:
            resident = gauge.resident()
            self._peak = max(self._peak, resident or 0)
        elif (memory := gauge.memory()) is not None:
            self._take_peak(memory.resident, memory.peak)

    def _take_peak(self, resident: int, peak: int) -> None:
        """Count the process's own peak where it rose since it was last read."""
        rose = peak > self._known_peak
        self._peak = max(self._peak, peak if rose else resident)
        self._known_peak = peak
