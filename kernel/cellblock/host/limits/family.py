"""The processes that a guest has started, and what they take together."""

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


#: Bytes in memory of processes whose pages are asked for at once: two seconds. Pages that were
#: only read are in no process's memory, but in its page tables: a byte of these counts as so many.
MOST_WALKED: Final = 64 << 30
_TABLES: Final = 64
#: Seconds that the host's loop waits for what ``measured`` asks.
MEASURE_TIMEOUT: Final = 3.0
#: Readings of what processes share until one is taken in which hardly any comes or goes, and
#: seconds from which there is no other.
READINGS: Final = 8
READING_TIME: Final = 1.0
#: Seconds between checks of what processes hold together, at least; and how many times as long as
#: the last one took.
CHECK_PACE: Final = 1.0
CHECK_PART: Final = 10


class _State(NamedTuple):
    """A guest and its others at one moment, and how many huge pages the machine had given."""

    processes: Mapping[int, ProcessStat]
    huge: int

    def has(self, pid: int, process: ProcessStat) -> bool:
        """Whether this process, not another of its number, lived at that moment."""
        found = self.processes.get(pid)
        return found is not None and found.began == process.began

    def given_since(self, earlier: _State) -> int:
        """Return at most how many bytes the processes were given since an earlier state.

        What processes were given that have ended counts if they were waited for: they may have
        shared their memory with who waited (vfork(2)). What those had at the earlier state is
        known already.
        """
        pages = waited = 0
        for pid, process in self.processes.items():
            before = earlier.processes[pid] if earlier.has(pid, process) else UNBORN
            pages += max(0, process.faults - before.faults)
            waited += process.waited_faults - before.waited_faults
        ended = sum(
            process.faults + process.waited_faults
            for pid, process in earlier.processes.items()
            if not self.has(pid, process)
        )
        return (pages + max(0, waited - ended)) * PAGE + (self.huge - earlier.huge) * huge_size()


#: What a guest and its others had together, and the state then.
_Known = tuple[int, _State]


class _SharesRead(NamedTuple):
    """Bytes of private pages of a guest and its others, each page divided by who has it."""

    share: int
    #: Those that only one of the others has: at least so many.
    alone: int
    #: Those of others that came or went meanwhile: at most so many.
    passed: int


class _Checked(NamedTuple):
    """What a check has found: what was known ``before`` it, and ``after``; None is no answer."""

    before: _Known | None
    after: _Known | None
    #: By ``time.monotonic``.
    began: float
    ended: float


class Family:
    """The processes that a guest has started, where its policy lets it; read anew every time.

    They are found as descendants of the guest's parent, the zygote, to whom orphans come. Of those
    that it has they are the ones that ``holds`` says are in a session of the guest's, and whatever
    descends from one of them. What ``others`` are is not the guest's: its forks are in its session,
    too. ``orphans_cpu`` returns the seconds of those that the zygote waited for.
    """

    def __init__(
        self,
        pid: int,
        others: Callable[[], Sequence[int]] = list,
        orphans_cpu: Callable[[], float] = float,
        holds: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.pid, self._others, self._orphans_cpu = pid, others, orphans_cpu
        self._holds = holds
        own = process_stat(pid)
        self._session = own.session if own else 0
        self._stats = StatReader()
        #: Each process as it was when its stat could last be read.
        self._last: dict[int, ProcessStat] = {}
        #: Each process when it was last looked at, and the time of all that were waited for then.
        self._seen: dict[int, ProcessStat] = {}
        self._waited = 0.0
        #: Seconds of those that are gone, and that nobody waited for: their parent ignores the
        #: ends of its children (sigaction(2), SA_NOCLDWAIT).
        self._unwaited = 0.0
        #: The bytes that guest and others had together when that was last known, as the guest was
        #: alone or the OS kernel was asked, and the state then. None until then.
        self._known: _Known | None = None
        #: The state when ``held`` was asked, and the bytes that the others showed.
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
        """Return the seconds of all that live, and of all that have ended.

        Whoever waits for a child takes over its time. What is gone since the last look, and is in
        nobody's, was waited for by nobody; what it used after the last look is lost.
        """
        members = self._members()
        own = process_stat(self.pid)
        waited = sum(member.waited for member in members.values()) + self._orphans_cpu()
        waited += own.waited if own else 0
        # The zygote waits for all, but the host hears of it later.
        zygote = own.parent if own else 0
        gone = sum(
            member.seconds
            for pid, member in self._seen.items()
            if pid not in members and member.parent != zygote
        )
        if len(members) < MAX_PROCESSES:
            self._unwaited = max(0.0, self._unwaited + gone - (waited - self._waited))
            self._seen, self._waited = members, waited
        return sum(member.seconds for member in members.values()) + waited + self._unwaited

    def held(self, own: ProcessMemory, copies: Mapping[int, int] = MappingProxyType({})) -> int:
        """Return at most how many bytes the others hold by themselves; ``own`` is the guest's.

        A fork shares its parent's pages until either writes to them, so what each process shows
        can't be added up. All of them together have no more than when it was last known, and the
        pages that any of them was given since: one that is freed and given again counts again, up
        to what each process shows. Where it was never known, they may have all that they show.
        So may a process that came later and descends from one that has ended: what it has from
        there was given to nobody who lives (``_stray``).

        ``copies`` are snapshots, and what each has from the guest of its time, which may have more
        or less by now; ``undo_max_bytes`` bounds that. A copy waits: what it has besides counts.
        """
        self._take_check()
        shown = stray = tables = extra = mapped = 0
        members = self._members()
        strays = self._stray(members)
        processes = dict[int, ProcessStat]()
        for pid, member in members.items():
            processes[pid] = member._replace(faults=0) if pid in copies else member
            memory = process_memory(pid)
            if memory is None:
                continue
            if pid in copies:
                # Its page tables are of what it has from the guest, a 512th of that.
                had = copies[pid] + copies[pid] // 256
                extra += max(0, memory.private + memory.tables - had)
                continue
            tables += memory.tables
            mapped += memory.mapped
            if pid in strays:
                stray += memory.private
            else:
                shown += memory.private
        if (guest := process_stat(self.pid)) is not None:
            processes[self.pid] = guest
        now = self._state = _State(processes, huge_pages())
        self.shown, self.mapped = extra + tables + shown + stray, mapped
        bound = math.inf
        if self._known is not None:
            together, then = self._known
            bound = max(0, together + now.given_since(then) - own.private)
        if shown <= bound:
            # All together have no more than all that they show. What programs were given counts
            # for who waited for them: so this is known anew as long as that is too much.
            self._known = own.private + shown + stray, now
        return extra + tables + int(min(shown, bound)) + stray

    def _stray(self, members: Mapping[int, ProcessStat]) -> set[int]:
        """Return which ``members`` may have pages that were given to one that has ended since.

        A fork has its parent's pages. Who was there when it was last known what all had has them
        from then; who came later has them from its parent, unless that has ended (prctl(2) and
        clone(2) are filtered, so that no other process is shown as its parent but the zygote), or
        could not be read, so that what it was given lately is not known.
        """
        kept = {self.pid}
        for pid, member in members.items():  # parents come before their children
            known = self._known is not None and self._known[1].has(pid, member)
            if (known or member.parent in kept) and not member.is_stale:
                kept.add(pid)
        return set(members) - kept

    def measured(
        self, own: ProcessMemory, copies: Mapping[int, int], enough: int = 0
    ) -> int | None:
        """Return how many bytes the others hold by themselves, as the OS kernel divides them.

        It is asked again while processes come and go, and what they hold may be more than
        ``enough``. None where this user may not ask, as of processes that are not dumpable in no
        user namespace of ours, and where it would take too long. It reads each page table, so ask
        only when ``held``, which was asked just before, is too much. What snapshots share, too, is
        divided among them and counts for less.
        """
        memories = self._memories(copies)
        if sum(each.resident + _TABLES * each.tables for each in memories.values()) > MOST_WALKED:
            return None
        if self._measuring.is_under_way:
            return None
        pids = self._lister(copies)
        self._measuring.begin(lambda: self._measure(own, pids, enough), MEASURE_TIMEOUT)
        if (others := self._measuring.take()) is None:
            return None
        self._known = own.private + others, self._state
        return others + sum(each.tables for pid, each in memories.items() if pid != self.pid)

    def check(self, own: ProcessMemory, copies: Mapping[int, int]) -> None:
        """Ask the OS kernel in a thread, now and then, for what ``held`` may not know.

        Processes can be given pages by one that shared their memory and has ended (vfork(2)). Call
        it when ``held``, which was asked just before, is little and ``shown`` is too much.
        """
        if self._check.is_under_way or time.monotonic() < self._check_due:
            return
        known, state, pids = self._known, self._state, self._lister(copies)

        def ask() -> _Checked:
            began = time.monotonic()
            others = self._measure(own, pids)
            now = None if others is None else (own.private + others, state)
            return _Checked(known, now, began, time.monotonic())

        self._check.begin(ask)

    def _take_check(self) -> None:
        """Learn what the last check has found, if it has ended."""
        if (found := self._check.take()) is None:
            return
        self._check_due = found.ended + max(CHECK_PACE, CHECK_PART * (found.ended - found.began))
        # An answer that came after it was known in another way is no news.
        if found.after is not None and found.before is self._known:
            self._known = found.after

    def _memories(self, copies: Collection[int]) -> dict[int, ProcessMemory]:
        """Return what the guest and each of the others shows."""
        pids = self._lister(copies)()
        return {pid: found for pid in pids if (found := process_memory(pid)) is not None}

    def _lister(self, copies: Collection[int]) -> Callable[[], list[int]]:
        """Return what lists the guest and the others, but for copies; any thread may call that."""
        others = frozenset(self._others())
        return lambda: [self.pid, *(pid for pid in self._pids(others) if pid not in copies)]

    def _measure(
        self, own: ProcessMemory, pids: Callable[[], list[int]], enough: int = 0
    ) -> int | None:
        """Return the private bytes of the others, each page once; None if that can't be asked.

        It is an upper bound: see ``_read_shares``. That comes down to what there is when nobody
        comes or goes, so the lowest of some readings counts.
        """
        least, deadline = None, time.monotonic() + READING_TIME
        known = dict[int, int]()
        for _ in range(READINGS):
            if (found := self._read_shares(pids, known)) is None:
                return None
            others, passed = max(found.alone, found.share - own.private), found.passed
            least = others + passed if least is None else min(least, others + passed)
            if not passed or least <= enough or time.monotonic() > deadline:
                break
        return least

    def _read_shares(
        self, pids: Callable[[], list[int]], known: dict[int, int]
    ) -> _SharesRead | None:
        """Read the shares of the guest and the others; None if they can't be asked for.

        A page that n processes have counts as an n-th for each. So the shares of those are missing
        that end before they are read, and of those that begin after the list was made. Their share
        is what it was ``known`` to be in a reading before, or else no more than all that they show.
        """
        share = alone = passed = 0
        before = _private(pids())
        for pid, private in before.items():
            if (parts := Shares.of(pid)) is None:
                return None
            share += parts.share
            alone += parts.alone * (pid != self.pid)
            # Some counts of a process's pages are rough (proc(5)); who goes on may let go of some.
            if private - parts.whole <= private // 8:
                known[pid] = parts.share
            elif pid != self.pid:
                passed += min(private, known.get(pid, private))
        for pid, private in _private(pids()).items():
            if pid in before:
                continue
            if (parts := Shares.of(pid)) is None:
                return None
            if parts.whole:
                known[pid] = parts.share
            passed += min(private, known.get(pid, private))
        return _SharesRead(share, alone, passed)

    def has_others(self, copies: Mapping[int, int]) -> bool:
        """Whether anything of it lives besides the guest and its snapshots, ``copies``."""
        return any(pid not in copies for pid in self.pids())

    def _members(self) -> dict[int, ProcessStat]:
        """Return what the processes besides the guest took, parents before their children.

        In this order the time of a child that is waited for meanwhile is in neither, or in its
        parent's, never in both.
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
        """Return what a process took whose stat can't be read now; None when it is gone.

        Its parent and its clock are read in other ways, and the rest is as it last was.
        """
        parent, seconds = parent_of(pid), cpu_clock(pid)
        if parent is None or seconds is None:
            return None
        last = self._last.get(pid, UNBORN)
        return last._replace(parent=parent, seconds=max(last.seconds, seconds), is_stale=True)

    def pids(self) -> list[int]:
        """Return the processes besides the guest, parents before their children."""
        return self._pids(frozenset(self._others()))

    def _pids(self, others: Collection[int]) -> list[int]:
        found = list[int]()
        # Read anew: that of a restored snapshot was the guest before it, until that was dead.
        zygote = parent_of(self.pid)
        # Each with whether what started it is the guest's.
        waiting = [] if zygote is None else [(pid, False) for pid in children_of(zygote)]
        while waiting and len(found) < MAX_PROCESSES:
            pid, is_ours = waiting.pop()
            if pid in others:
                continue
            if is_ours or _session_of(pid) == self._session or self._holds(pid):
                waiting += [(child, True) for child in children_of(pid)]
                if pid != self.pid:
                    found.append(pid)
        return found


def _private(pids: list[int]) -> dict[int, int]:
    """Return the private bytes of processes, each memory once, as far as that may be asked.

    Until a program begins, a process that vfork(2) made has the memory of its parent. So have all
    that were made so, whatever they do.
    """
    found, listed = dict[int, int](), frozenset(pids)
    for pid in pids:
        parent = parent_of(pid)
        if parent in listed and have_one_memory(pid, parent):
            continue
        memory = process_memory(pid)
        found[pid] = 0 if memory is None else memory.private
    return found


def _session_of(pid: int) -> int:
    """Return the session of a process, -1 when it is gone. It waits for nobody, as a stat does."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1
