"""The monitor: measures what a guest uses, while a request runs and now and then when none does.

A request that ends within ``FIRST_LOOK`` costs two readings of a clock and one of a size. During a
longer request the guest is looked at every ``PACE``. Between requests it is looked at ever more
rarely, unless it does something or has left processes behind. ``host.session.requests`` owns the
monitor, and interrupts or kills when ``on_excess`` says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from cellblock.host.limits.family import Family
from cellblock.host.limits.kernel_memory import KernelMemory, socket_memory
from cellblock.host.limits.processes import PAGE, Gauge
from cellblock.host.limits.scratch import (
    ForksFolder,
    Found,
    Removed,
    Scratch,
    ScratchWatch,
    removed_by,
)
from cellblock.host.session.types import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cellblock.host.limits.processes import ProcessMemory
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import Layer


#: Seconds from the start of a request to the first look.
FIRST_LOOK: Final = 0.05
#: Seconds after the start of a request at which the processor time is read that the guest's
#: processes had used before. Below ``LONG``, but not at once: the reading takes longer than a short
#: cell, which does not need it.
BASELINE: Final = 0.002
#: Seconds between looks during a request.
PACE: Final = 0.1
#: How many times as long as a look took the monitor rests after it. Looking at hundreds of
#: processes takes long, and the host has other sessions to serve.
RESTS: Final = 4
#: Seconds between looks while the scratch folder grows and is more than half full.
QUICK: Final = 0.02
#: Seconds between looks at a guest without a request: while it does something, and at most. In
#: between, the pause doubles every time.
IDLE_PACE: Final = 2.0
IDLE_MOST: Final = 32.0
#: Seconds between looks at processes that a cell left behind, which may sleep before they act.
FAMILY_PACE: Final = 1.0
#: Bytes of files' pages that processes may have mapped; a page counts as often as it is mapped.
#: Such pages are not memory that the processes hold. But unmapping them takes 0.25 µs a page
#: (4 KiB), in a call that no signal ends, and whoever waits for what that locks waits as long.
MOST_MAPPED: Final = 4 * PAGE * os.sysconf("SC_PHYS_PAGES")
#: Short requests in a row that may end without a look.
MOST_UNSEEN: Final = 100
#: Seconds of processor time between two looks from which on a guest counts as doing something.
IDLE_CPU: Final = 0.005
#: Seconds from which on a cell's peak of memory is read. Of a shorter cell, only what it has at its
#: end is read.
LONG: Final = 0.005
#: What a guest may hold above ``memory_max_bytes``: an eighth of that, and at least these bytes.
#: The limit itself is RLIMIT_DATA, which does not count stacks, page tables and shared pages.
SLACK_PART = 8
SLACK_BYTES = 64 << 20

#: The limits that may be exceeded.
Excess = Literal[
    "cpu", "deep", "files", "folders", "forks", "locked", "mapped", "memory", "scratch"
]


def slack(memory: int) -> int:
    """Return the bytes that a guest may hold above ``memory_max_bytes``."""
    return max(memory // SLACK_PART, SLACK_BYTES)


class Mark(NamedTuple):
    """A moment, by the clock, by a guest's processor time and by the bytes of output it sent."""

    at: float
    cpu_seconds: float
    output_bytes: int


class Monitor:
    """Measures one guest at a time, which writes to ``folders``, and to ``layers`` over others.

    ``on_excess`` is called with the limit that is exceeded, and with whether waiting would make it
    worse. It is called again at every look at which the limit is still exceeded. The other
    callables return readings:

    - ``copies``: looks at the guest's copies; the bytes that each has from the guest, by pid
    - ``shared_memory``: the bytes in the guest's /dev/shm
    - ``others``: the pids of the guest's forks and their copies
    - ``orphans_cpu``: the seconds of processor time of orphans that have ended
    - ``answering_cpu``: the seconds that the zygote used to answer the guest's calls
    - ``held_together``: the bytes that a sandbox and all its forks hold together
    """

    def __init__(
        self,
        reactor: Reactor,
        policy: Policy,
        folders: Sequence[str],
        clock: Callable[[], float],
        on_excess: Callable[[Excess, bool], None],
        *,
        copies: Callable[[], Mapping[int, int]] = dict,
        layers: Sequence[Layer] = (),
        shared_memory: Callable[[], int] = int,
    ) -> None:
        self._reactor = reactor
        self._clock = clock
        self._on_excess = on_excess
        self._copies = copies
        self._shared_memory = shared_memory
        self.others: Callable[[], Sequence[int]] = list
        self.orphans_cpu: Callable[[], float] = float
        #: Whether a process is in an OS session of the guest.
        self.holds: Callable[[int], bool] = lambda _: False
        self.answering_cpu: Callable[[], float] = float
        self.held_together: Callable[[], int] = int
        #: Shared by a sandbox and all its forks: the forks' folders, and the forks' monitors.
        self.forks_folders = set[ForksFolder]()
        self.forks: list[Monitor] = []
        self._folders = folders
        self._layers = [layer.folder for layer in layers]
        #: The folders under which guests see what they write.
        self._places = (*folders, *(layer.root for layer in layers))
        self.narrow_to(policy)
        self._gauge: Gauge | None = None
        self._family: Family | None = None
        self._timer: Timer | None = None
        self._idle = self._began = 0.0
        #: How many requests there were since the last look.
        self._unseen = 0
        #: Processes that may keep removed files open, for the look at the scratch folder under way.
        self._keepers: set[int] = set()
        self._kernel = KernelMemory()
        self._cpu_began = self._cpu = self._family_cpu = 0.0
        #: Whether the processor time that the guest's processes used before this request is known.
        self._based = False
        self._peak = self._known_peak = 0
        #: Whether the excess of memory is an estimate, because processes share memory.
        self.is_estimate = False
        #: Whether there is an excess only together with the OS kernel's memory, an estimate, too.
        self.is_charged = False
        #: Bytes of files' pages that all processes have mapped.
        self._mapped = 0
        #: Bytes that processes beside the guest held at the last look, and that they showed as
        #: resident.
        self.programs_held = self.programs_shown = 0
        #: Bytes of output of the request, and of the requests before it.
        self.output_bytes = self._earlier_output = 0

    def narrow_to(self, policy: Policy) -> None:
        """Enforce the limits of a policy from the next request on."""
        self._policy = policy
        limit = policy.scratch_max_bytes
        watched = limit is not None or self._layers
        self._scratch = None
        if watched:
            scratch = Scratch(
                self._folders,
                limit,
                self._layers,
                self._removed,
                lambda: frozenset(self.forks_folders),
            )
            self._scratch = ScratchWatch(scratch, self._clock)
        memory = policy.memory_max_bytes
        self._most = None if memory is None else memory + slack(memory)

    # --- requests -----------------------------------------------------------------------------

    def usage_since(self, since: Mark, read_bytes: int = 0) -> Usage:
        """Return what the guest has used ``since`` a request began that others run beside."""
        mark_now = self.mark()
        peak = max(self._peak, (self._gauge.resident() if self._gauge is not None else None) or 0)
        output = mark_now.output_bytes - since.output_bytes
        cpu = max(0.0, mark_now.cpu_seconds - since.cpu_seconds)
        return Usage(mark_now.at - since.at, cpu, peak, output, read_bytes)

    def mark(self) -> Mark:
        """Return the present moment, with the guest's processor time and output."""
        self._cpu_now()
        return Mark(self._clock(), self._cpu, self._earlier_output + self.output_bytes)

    def begin(self, pid: int | None) -> None:
        """Begin to measure a request that is sent to the guest ``pid``, which runs no other."""
        self._follow(pid)
        self._began = self._clock()
        self._cpu_began = self._cpu = self._cpu_now() or 0.0
        self._earlier_output += self.output_bytes
        self._peak = self.output_bytes = 0
        if self._scratch is not None:
            self._scratch.begin()
        self._based = False
        self._unseen += 1
        self._idle = 0.0
        soon = self._unseen > MOST_UNSEEN
        if self._family is None:
            self._look_in(0 if soon else FIRST_LOOK, self._look)
        else:
            self._look_in(0 if soon else BASELINE, self._leave_out_earlier)

    def go_on(self, since: Mark) -> None:
        """Go on measuring when a request has ended and others run, the first of them ``since``."""
        self._began = since.at
        self._cpu_began = since.cpu_seconds
        self.output_bytes += self._earlier_output - since.output_bytes
        self._earlier_output = since.output_bytes

    def end(self, read_bytes: int = 0) -> Usage:
        """End measuring a request; return what it used."""
        wall = self._clock() - self._began
        if wall >= LONG and self._based:
            self._count_family()
        self._cpu_now()
        gauge = self._gauge
        if gauge is not None and wall < LONG:
            self._peak = max(self._peak, gauge.resident() or 0)
        elif gauge is not None and (memory := gauge.memory()) is not None:
            self._take_peak(memory)
        if self._scratch is not None:
            self._scratch.begin()
        self._idle = 0.0
        self._look_in(IDLE_PACE if self._family is None else FAMILY_PACE, self._look_idle)
        return Usage(wall, self._cpu - self._cpu_began, self._peak, self.output_bytes, read_bytes)

    def lost(self) -> None:
        """Stop looking: the guest is gone. What was measured stays, for ``end``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle = IDLE_MOST
        self._follow(None)

    # --- looks --------------------------------------------------------------------------------

    def _look_in(self, seconds: float, look: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._reactor.call_later(seconds, look)

    def _leave_out_earlier(self) -> None:
        """Leave out of the request's usage what processes used before the request began."""
        before = self._family_cpu
        self._count_family()
        earlier = self._family_cpu - before
        self._cpu_began += earlier
        self._cpu += earlier
        self._based = True
        self._look_in(0 if self._unseen > MOST_UNSEEN else FIRST_LOOK - BASELINE, self._look)

    def _look(self) -> None:
        began = self._clock()
        self._unseen = 0
        self._have_forks_watched()
        self._count_family()
        cpu = self._cpu_now()
        if cpu is None:
            return
        scratch = self._scratch
        filling = scratch is not None and scratch.is_filling
        self._look_in(QUICK if filling else PACE, self._look)
        timer = self._timer
        limit = self._policy.cpu_seconds
        copies = self._copies()
        if self._holds_too_much(copies):
            self._on_excess("memory", True)
        elif self._mapped > MOST_MAPPED:
            self._on_excess("mapped", True)
        elif self._hold_too_much_together():
            self._on_excess("forks", True)
        elif limit is not None and cpu - self._cpu_began > limit:
            self._on_excess("cpu", False)
        elif (scratch_found := self._look_at_scratch(copies)).excess is not None:
            self._on_excess(scratch_found.excess, scratch_found.far)
        if self._timer is timer:  # otherwise ``on_excess`` has ended the request
            rest = RESTS * (self._clock() - began)
            if rest > PACE:
                self._look_in(rest, self._look)

    def _look_idle(self) -> None:
        """Look after processes, threads and tasks that a cell left behind."""
        self._unseen = 0
        self._count_family()
        before = self._cpu
        cpu = self._cpu_now()
        if cpu is None:
            self._idle = IDLE_MOST
            excess = self._look_at_scratch(self._copies()).excess
            if excess is not None and self.is_past_forgiving:
                self._on_excess(excess, True)
            return
        first = not self._idle
        busy = cpu - before > IDLE_CPU
        copies = self._copies()
        family = self._family is not None and self._family.has_others(copies)
        if family or busy:
            self._idle = FAMILY_PACE if family else IDLE_PACE
            self._have_forks_watched()
        else:
            self._idle = min(max(IDLE_PACE, 2 * self._idle), IDLE_MOST)
            if first and self._scratch is not None:
                self._scratch.forgive()
        self._look_in(self._idle, self._look_idle)
        if self._holds_too_much(copies):
            self._on_excess("memory", True)
        elif self._mapped > MOST_MAPPED:
            self._on_excess("mapped", True)
        elif (family or busy) and self._hold_too_much_together():
            # An idle guest is not stopped for this: another fork may have caused the excess, and
            # the monitor of that fork stops it sooner.
            self._on_excess("forks", True)
        elif (excess := self._look_at_scratch(copies).excess) is not None:
            self._on_excess(excess, True)
        elif self._scratch is not None and self._scratch.is_under_way:
            self._look_in(PACE, lambda: self._take_late_look(self._idle - PACE))

    def _have_forks_watched(self) -> None:
        """Have idle forks looked at soon, because what runs here may write to their folders."""
        for fork in self.forks:
            fork.look_soon()

    def look_soon(self) -> None:
        """Look within a second, unless a request runs. If the guest is gone, look at its folder."""
        if self._idle > FAMILY_PACE:
            self._idle = FAMILY_PACE
            self._look_in(FAMILY_PACE, self._look_idle)

    @property
    def is_past_forgiving(self) -> bool:
        """Whether the scratch folder holds so much that every cell would be stopped."""
        return self._scratch is not None and self._scratch.found.is_past_forgiving

    def _take_late_look(self, seconds_left: float) -> None:
        """Act on a look at the scratch folder that took longer than the event loop waits.

        The next look is due in ``seconds_left`` seconds, which is too late if a process fills the
        folder meanwhile.
        """
        scratch = self._scratch
        if scratch is None or seconds_left <= PACE or not scratch.is_under_way:
            self._look_in(max(0.0, seconds_left), self._look_idle)
        else:
            self._look_in(PACE, lambda: self._take_late_look(seconds_left - PACE))
        if scratch is not None and (excess := scratch.take().excess) is not None:
            self._on_excess(excess, True)

    def _look_at_scratch(self, copies: Iterable[int]) -> Found:
        if self._scratch is None:
            return Found()
        # Copies keep files open that the guest had open when they were forked.
        self._keepers = {*self._pids(), *copies}
        return self._scratch.look()

    def _holds_too_much(self, copies: Mapping[int, int]) -> bool:
        """Return whether the guest and its processes hold more memory than the policy allows.

        Cheap readings come first. The OS kernel is asked how processes share pages only if the
        estimate says that there is too much (``Family``).
        """
        memory = self._gauge.memory() if self._gauge is not None else None
        if memory is None:
            return False
        self._take_peak(memory)
        self._mapped = memory.mapped
        held_bytes = memory.held + max(0, self._shared_memory() - memory.shared)
        kernel_bytes = self._kernel.held(self._pids, self._cpu)
        held_bytes += kernel_bytes
        self.is_estimate = self.is_charged = False
        if self._family is None:
            self.is_charged = self._most is not None and held_bytes - kernel_bytes <= self._most
            return self._most is not None and held_bytes > self._most
        self.programs_held = self._family.held(memory, copies)
        self.programs_shown = self._family.shown
        self._mapped += self._family.mapped
        if self._most is None:
            return False
        held_bytes += socket_memory(self._family.pid)
        if held_bytes + self.programs_held <= self._most:
            if held_bytes + self._family.shown > self._most:
                self._family.check(memory, copies)
            return False
        family_bytes = self._family.measured(memory, copies, self._most - held_bytes)
        self.is_estimate = held_bytes <= self._most and family_bytes is None
        if family_bytes is None:
            return True
        self.programs_held = family_bytes
        self.is_charged = held_bytes - kernel_bytes + family_bytes <= self._most
        return held_bytes + family_bytes > self._most

    def _hold_too_much_together(self) -> bool:
        """Return whether a sandbox and its forks together hold more memory than they may."""
        most = self._policy.forks_max_bytes
        return most is not None and self.held_together() > most

    # --- readings -----------------------------------------------------------------------------

    def _removed(self) -> Removed:
        """Return what removed files the session's processes keep. Called in a look's thread."""
        return removed_by(self._keepers, self._policy.max_file_size, self._places)

    def _pids(self) -> list[int]:
        """Return the pids of the guest and of the processes that it has started."""
        own = [self._gauge.pid] if self._gauge is not None else []
        return own + (self._family.pids() if self._family is not None else [])

    def programs(self) -> list[int]:
        """Return the pids beside the guest: of what cells have started, and of the copies."""
        return [] if self._family is None else self._family.pids()

    def _follow(self, pid: int | None) -> None:
        """Measure this guest from now on; None for no guest."""
        if self._gauge is not None:
            if self._gauge.pid == pid:
                return
            self._gauge.close()
        processes = pid is not None and self._policy.subprocess_execution
        self._gauge = Gauge(pid) if pid is not None else None
        self._family = None
        if pid is not None and processes:
            self._family = Family(pid, self.others, self.orphans_cpu, self.holds)
        self._known_peak = 0
        self._family_cpu = 0.0
        self.programs_held = self.programs_shown = 0

    def _cpu_now(self) -> float | None:
        """Read and return the guest's processor time, or None if it is gone.

        The last reading stays in ``_cpu``.
        """
        cpu = self._gauge.cpu() if self._gauge is not None else None
        if cpu is not None:
            cpu += self._family_cpu + self.answering_cpu()
            self._cpu = max(self._cpu, cpu)
        return cpu

    def _count_family(self) -> None:
        """Read the processor time of what the guest has started. Too slow to do for every cell."""
        if self._family is not None:
            self._family_cpu = max(self._family_cpu, self._family.cpu())

    def _take_peak(self, memory: ProcessMemory) -> None:
        """Update the request's peak of memory.

        The process's own peak counts only if it rose since it was last read; otherwise it is that
        of an earlier request.
        """
        rose = memory.peak > self._known_peak
        self._peak = max(self._peak, memory.peak if rose else memory.resident)
        self._known_peak = memory.peak
