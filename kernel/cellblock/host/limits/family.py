"""The family of a guest: the processes that it has started, and what they use together.

``monitor`` asks for their processor time and memory. A fork shares its parent's pages, so what the
processes show can't simply be added up. There are three ways to a sum, the cheaper ones first:

1. ``held``: an upper bound. When the sum was last known, plus all pages given since.
2. ``check``: a thread asks the OS kernel now and then, in case ``held`` misses something.
3. ``measured``: the OS kernel is asked at once, if ``held`` is too much.
"""

from __future__ import annotations

import math
import os
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.host.guests.process import children as children_of
from cellblock.host.guests.process import parent_of
from cellblock.host.limits.processes import (
    MAX_PROCESSES,
    PAGE,
    UNBORN,
    ProcessMemory,
    ProcessStat,
    cpu_clock,
    huge_pages,
    huge_size,
    process_memory,
    process_stat,
)
from cellblock.host.limits.reading import Reading
from cellblock.host.limits.shares import Shares, have_one_memory
from cellblock.host.limits.stat_reader import StatReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


#: Bytes of resident memory of processes about whose pages the OS kernel is asked at once, which
#: takes two seconds. Pages that were only read are in no process's memory, but in its page tables:
#: a byte of these counts as ``_WEIGHT`` bytes.
MOST_WALKED: Final = 64 << 30
_WEIGHT: Final = 64
#: Seconds that the event loop waits for the answer to ``measured``.
MEASURE_TIMEOUT: Final = 3.0
#: Readings of shared pages, at most, until one is found during which no process comes or goes; and
#: seconds after which no other reading begins.
READINGS: Final = 8
READING_TIME: Final = 1.0
#: The pause between two checks of what processes hold together is at least so many seconds, and at
#: least so many times as long as the last check took.
CHECK_PACE: Final = 1.0
CHECK_PART: Final = 10


class _State(NamedTuple):
    """A guest and its family at one moment, and how many huge pages the machine had given then."""

    processes: Mapping[int, ProcessStat]
    huge: int

    def has(self, pid: int, process: ProcessStat) -> bool:
        """Whether this process lived at that moment, and not another one with the same pid."""
        process_then = self.processes.get(pid)
        return process_then is not None and process_then.began == process.began

    def given_since(self, earlier: _State) -> int:
        """Return how many bytes the processes were given since an earlier state, at most.

        Pages given to a process that has ended count if another process waited for it, because the
        two may have shared memory (vfork(2)). Pages that it had been given before the earlier state
        don't count.
        """
        pages = waited = 0
        for pid, process in self.processes.items():
            before = earlier.processes[pid] if earlier.has(pid, process) else UNBORN
            pages += max(0, process.faults - before.faults)
            waited += process.waited_faults - before.waited_faults
        pages_of_ended = sum(
            process.faults + process.waited_faults
            for pid, process in earlier.processes.items()
            if not self.has(pid, process)
        )
        return (pages + max(0, waited - pages_of_ended)) * PAGE + (
            self.huge - earlier.huge
        ) * huge_size()


#: The bytes that a guest and its family had together, and the state then.
_Known = tuple[int, _State]


class _SharesRead(NamedTuple):
    """Bytes of private pages of a guest and its family."""

    #: The sum of all shares: a page that n processes have counts as an n-th for each.
    share: int
    #: Bytes that only a single process of the family has, at least.
    alone: int
    #: Bytes of processes of the family that came or went meanwhile, at most.
    passed: int


class _Checked(NamedTuple):
    """The result of a check: what was known before it, and what is known after."""

    before: _Known | None
    #: None if the OS kernel gave no answer.
    after: _Known | None
    #: When the check began and ended (``time.monotonic``).
    began: float
    ended: float


class Family:
    """The processes that the guest ``pid`` has started, if its policy lets it.

    They are looked up anew every time, among the descendants of the guest's parent: the zygote, to
    which orphans come. The family are those of the zygote's children that are in an OS session of
    the guest, as ``holds`` says, and whatever descends from one of them. The pids that ``others``
    returns are left out: forks of the guest, which are in its session, too. ``orphans_cpu`` returns
    the processor seconds of orphans for which the zygote waited.
    """

    def __init__(
        self,
        pid: int,
        pids_of_others: Callable[[], Sequence[int]] = list,
        orphans_cpu: Callable[[], float] = float,
        holds: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.pid = pid
        self._others = pids_of_others
        self._orphans_cpu = orphans_cpu
        self._holds = holds
        own = process_stat(pid)
        self._session = own.session if own else 0
        self._stats = StatReader()
        #: Each process as it was when its stat could last be read.
        self._last: dict[int, ProcessStat] = {}
        #: Each process at the last call of ``cpu``, and the seconds of all that had been waited for
        #: by then.
        self._seen: dict[int, ProcessStat] = {}
        self._waited = 0.0
        #: Seconds of processes that ended without being waited for, because their parent ignores
        #: the ends of its children (sigaction(2), SA_NOCLDWAIT).
        self._unwaited = 0.0
        #: The bytes that guest and family had together when that was last known for certain, and
        #: the state then: the guest was alone, or the OS kernel was asked. None if never.
        self._known: _Known | None = None
        #: The state at the last call of ``held``, and the bytes that the family showed then.
        self._state = _State({pid: own} if own else {}, huge_pages())
        self.shown = self.mapped = 0
        self._check = Reading[_Checked]()
        #: When the next check is due (``time.monotonic``).
        self._check_due = 0.0
        self._measuring = Reading[int | None]()
        memory = process_memory(pid)
        if memory is not None and not self.pids():
            self._known = memory.private, self._state

    def cpu(self) -> float:
        """Return the processor seconds of the whole family: of processes that live or have ended.

        A process that waits for a child takes over the child's time. If a process is gone since the
        last look and its time is in nobody else's, then nobody waited for it, and its time at that
        look is kept here. What it used after that look is lost.
        """
        members = self._members()
        own = process_stat(self.pid)
        waited = sum(member.waited for member in members.values()) + self._orphans_cpu()
        waited += own.waited if own else 0
        # The zygote waits for all its children, but the host hears of that later.
        zygote = own.parent if own else 0
        seconds_of_gone = sum(
            member.seconds
            for pid, member in self._seen.items()
            if pid not in members and member.parent != zygote
        )
        if len(members) < MAX_PROCESSES:
            self._unwaited = max(0.0, self._unwaited + seconds_of_gone - (waited - self._waited))
            self._seen = members
            self._waited = waited
        return sum(member.seconds for member in members.values()) + waited + self._unwaited

    def held(self, own: ProcessMemory, copies: Mapping[int, int] = MappingProxyType({})) -> int:
        """Return how many bytes the family holds beside the guest, at most.

        ``own`` is the guest's memory. A fork shares its parent's pages until either of them writes
        to a page, so what each process shows can't be added up. All together hold no more than when
        that was last known, plus the pages that any of them was given since. A page that is freed
        and given again counts twice, up to what each process shows. If the sum was never known,
        they may hold all that they show. So may a process that came later and descends from one
        that has ended: its pages were given to a process that no longer lives (``_stray``).

        ``copies`` are the guest's copies, with the bytes that each has from the guest. These don't
        count here, because ``undo_max_bytes`` bounds them; what a copy has beyond that counts.
        """
        self._take_check()
        shown_bytes = stray_bytes = tables = extra = mapped = 0
        members = self._members()
        strays = self._stray(members)
        processes = dict[int, ProcessStat]()
        for pid, member in members.items():
            processes[pid] = member._replace(faults=0) if pid in copies else member
            memory = process_memory(pid)
            if memory is None:
                continue
            if pid in copies:
                # A copy has page tables for what it has from the guest: a 512th of that, of which
                # this allows twice as much.
                had = copies[pid] + copies[pid] // 256
                extra += max(0, memory.private + memory.tables - had)
                continue
            tables += memory.tables
            mapped += memory.mapped
            if pid in strays:
                stray_bytes += memory.private
            else:
                shown_bytes += memory.private
        if (guest := process_stat(self.pid)) is not None:
            processes[self.pid] = guest
        current_state = self._state = _State(processes, huge_pages())
        self.shown = extra + tables + shown_bytes + stray_bytes
        self.mapped = mapped
        bound = math.inf
        if self._known is not None:
            together, earlier_state = self._known
            bound = max(0, together + current_state.given_since(earlier_state) - own.private)
        if shown_bytes <= bound:
            # Together they hold no more than the sum of what each shows, so the next bound begins
            # from that sum. Otherwise it would grow for ever, because the pages of programs that
            # have ended count for the process that waited for them.
            self._known = own.private + shown_bytes + stray_bytes, current_state
        return extra + tables + int(min(shown_bytes, bound)) + stray_bytes

    def _stray(self, members: Mapping[int, ProcessStat]) -> set[int]:
        """Return the ``members`` that may have pages which were given to a process that has ended.

        A fork has its parent's pages. For a process that lived when the sum was last known, those
        pages are in that sum. A process that came later has them from its parent. But its parent
        may have ended: then the zygote is shown as its parent (and no other process can be, because
        prctl(2) and clone(2) are filtered). Or the parent's stat could not be read, so that it is
        not known what the parent was given lately.
        """
        without_strays = {self.pid}
        for pid, member in members.items():  # parents come before their children
            was_counted = self._known is not None and self._known[1].has(pid, member)
            if (was_counted or member.parent in without_strays) and not member.is_stale:
                without_strays.add(pid)
        return set(members) - without_strays

    def measured(
        self, own: ProcessMemory, copies: Mapping[int, int], enough: int = 0
    ) -> int | None:
        """Return how many bytes the family holds beside the guest, as the OS kernel divides pages.

        The OS kernel reads each page table for that. So call this only if ``held``, which must have
        been called just before, returned too much. The kernel is asked again while processes come
        and go and the sum may be more than ``enough``. Return None if that would take too long, or
        if this user may not ask: of processes that are not dumpable, unless they are in a user
        namespace of ours. A page that copies have as well is divided among them, too, and counts
        for less.
        """
        memories = self._memories(copies)
        if sum(each.resident + _WEIGHT * each.tables for each in memories.values()) > MOST_WALKED:
            return None
        if self._measuring.is_under_way:
            return None
        pids = self._lister(copies)
        self._measuring.begin(lambda: self._measure(own, pids, enough), MEASURE_TIMEOUT)
        if (family_bytes := self._measuring.take()) is None:
            return None
        self._known = own.private + family_bytes, self._state
        return family_bytes + sum(each.tables for pid, each in memories.items() if pid != self.pid)

    def check(self, own: ProcessMemory, copies: Mapping[int, int]) -> None:
        """Ask the OS kernel in a thread, now and then, because ``held`` may miss something.

        Processes may have pages that were given to a process which shared their memory and has
        ended (vfork(2)). Call this if ``held``, which must have been called just before, is little
        and ``shown`` is too much.
        """
        if self._check.is_under_way or time.monotonic() < self._check_due:
            return
        known_before = self._known
        state = self._state
        pids = self._lister(copies)

        def ask() -> _Checked:
            began = time.monotonic()
            family_bytes = self._measure(own, pids)
            sum_and_state = None if family_bytes is None else (own.private + family_bytes, state)
            return _Checked(known_before, sum_and_state, began, time.monotonic())

        self._check.begin(ask)

    def _take_check(self) -> None:
        """Take the result of the last check, if it has ended."""
        if (checked := self._check.take()) is None:
            return
        self._check_due = checked.ended + max(
            CHECK_PACE, CHECK_PART * (checked.ended - checked.began)
        )
        # If the sum became known in another way meanwhile, the answer is outdated.
        if checked.after is not None and checked.before is self._known:
            self._known = checked.after

    def _memories(self, copies: Collection[int]) -> dict[int, ProcessMemory]:
        """Return the memory of the guest and of each process of the family, by pid."""
        pids = self._lister(copies)()
        return {pid: memory for pid in pids if (memory := process_memory(pid)) is not None}

    def _lister(self, copies: Collection[int]) -> Callable[[], list[int]]:
        """Return a function that lists the guest and the family without copies, for any thread."""
        pids_of_others = frozenset(self._others())
        return lambda: [self.pid, *(pid for pid in self._pids(pids_of_others) if pid not in copies)]

    def _measure(
        self, own: ProcessMemory, pids: Callable[[], list[int]], enough: int = 0
    ) -> int | None:
        """Return the private bytes of the family beside the guest, counting each page once.

        This is an upper bound (``_read_shares``), which is exact if no process comes or goes during
        a reading. So the lowest of several readings counts. Return None if this user may not read
        the processes' shares.
        """
        least = None
        deadline = time.monotonic() + READING_TIME
        shares_by_pid = dict[int, int]()
        for _ in range(READINGS):
            if (shares_read := self._read_shares(pids, shares_by_pid)) is None:
                return None
            measured = max(shares_read.alone, shares_read.share - own.private)
            passed = shares_read.passed
            least = measured + passed if least is None else min(least, measured + passed)
            if not passed or least <= enough or time.monotonic() > deadline:
                break
        return least

    def _read_shares(
        self, pids: Callable[[], list[int]], shares_by_pid: dict[int, int]
    ) -> _SharesRead | None:
        """Read the shares of the guest and the family; return None if this user may not ask.

        A page that n processes have counts as an n-th for each. So the shares are missing of
        processes that end before they are read, and of those that begin after the list was made.
        For these, the share that an earlier reading put in ``shares_by_pid`` counts, or else all
        that they show.
        """
        share = alone = passed = 0
        before = _private(pids())
        for pid, private in before.items():
            if (shares := Shares.of(pid)) is None:
                return None
            share += shares.share
            alone += shares.alone * (pid != self.pid)
            # Some counts of a process's pages are rough (proc(5)), and a process may let go of a
            # few pages. So only a process that has lost more counts as one that ended.
            if private - shares.whole <= private // 8:
                shares_by_pid[pid] = shares.share
            elif pid != self.pid:
                passed += min(private, shares_by_pid.get(pid, private))
        for pid, private in _private(pids()).items():
            if pid in before:
                continue
            if (shares := Shares.of(pid)) is None:
                return None
            if shares.whole:
                shares_by_pid[pid] = shares.share
            passed += min(private, shares_by_pid.get(pid, private))
        return _SharesRead(share, alone, passed)

    def has_others(self, copies: Mapping[int, int]) -> bool:
        """Whether any process of the family lives beside the guest and its ``copies``."""
        return any(pid not in copies for pid in self.pids())

    def _members(self) -> dict[int, ProcessStat]:
        """Return the stats of the processes beside the guest, parents before their children.

        In this order, the time of a child that is waited for meanwhile may be missing in both its
        parent's and its own, but never counts twice.
        """
        pids = self.pids()
        stats = self._stats.read(pids)
        members = dict[int, ProcessStat]()
        for pid in pids:
            member = stats[pid] if pid in stats else self._estimate(pid)
            if member is not None:
                members[pid] = member
        self._last = members
        return members

    def _estimate(self, pid: int) -> ProcessStat | None:
        """Return the stat of a process whose stat can't be read now; None if the process is gone.

        Its parent and processor time are read in other ways; the rest is as it was last read.
        """
        parent = parent_of(pid)
        seconds = cpu_clock(pid)
        if parent is None or seconds is None:
            return None
        last = self._last.get(pid, UNBORN)
        return last._replace(parent=parent, seconds=max(last.seconds, seconds), is_stale=True)

    def pids(self) -> list[int]:
        """Return the pids of the family beside the guest, parents before their children."""
        return self._pids(frozenset(self._others()))

    def _pids(self, pids_of_others: Collection[int]) -> list[int]:
        pids = list[int]()
        # Read anew each time: the parent of a copy that took over was the former guest, until that
        # was dead.
        zygote = parent_of(self.pid)
        # Each process with whether its parent belongs to the guest's family.
        waiting = [] if zygote is None else [(pid, False) for pid in children_of(zygote)]
        while waiting and len(pids) < MAX_PROCESSES:
            pid, is_ours = waiting.pop()
            if pid in pids_of_others:
                continue
            if is_ours or _session_of(pid) == self._session or self._holds(pid):
                waiting += [(child, True) for child in children_of(pid)]
                if pid != self.pid:
                    pids.append(pid)
        return pids


def _private(pids: list[int]) -> dict[int, int]:
    """Return the private bytes of processes by pid, counting memory that they share once.

    A process made by vfork(2) has the very memory of its parent until it begins a program. If this
    user may not ask whether two processes have one memory, it counts for both.
    """
    private = dict[int, int]()
    listed = frozenset(pids)
    for pid in pids:
        parent = parent_of(pid)
        if parent in listed and have_one_memory(pid, parent):
            continue
        memory = process_memory(pid)
        private[pid] = 0 if memory is None else memory.private
    return private


def _session_of(pid: int) -> int:
    """Return the OS session of a process; -1 if the process is gone.

    Unlike reading the process's ``stat``, this never waits.
    """
    try:
        return os.getsid(pid)
    except OSError:
        return -1
