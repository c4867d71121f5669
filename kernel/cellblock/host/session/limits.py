"""A request's limits while it runs: time, processor time, memory, processes, scratch folder.

``Deadlines`` interrupts and kills by the clock. ``Monitor`` looks at what a guest takes, through
``Gauge`` (one process), ``Family`` (what it has started) and ``ScratchWatch`` (its folder), and
tells what there is too much of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import stat
import threading
import time
from collections import Counter
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from cellblock.backends.plan import scratch_end
from cellblock.descriptors import closing, open_folder
from cellblock.host.guests.process import children as children_of
from cellblock.host.services.changes import MOST_ENTRIES
from cellblock.host.session.types import Stopped, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cellblock.host.guests.process import Guest
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.session.types import Why
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import Layer


# --- time ---------------------------------------------------------------------------------------

#: Seconds that an interrupted cell has to end before it is killed for the limit it is over.
GRACE: float = 2.0
#: Seconds without a sign of life after which a request that was read counts as stolen.
SILENCE: Final = 4.0
#: Seconds that an idle guest takes to take a request up.
TAKE_UP: Final = 0.05
#: Seconds that an interrupted request has that was never taken up, or can't be interrupted.
DEAF_GRACE: Final = 3.0
#: Seconds that completion and inspection may take.
QUERY_TIMEOUT: Final = 10.0


class TimedRequest(Protocol):
    """A request with deadlines."""

    #: The subshell that it is for; 0 is the main shell.
    subshell: int
    #: Its own timeout, where it has one.
    seconds: float | None
    #: The guest says that it has read it and is busy with something else.
    acknowledged: bool
    #: It was interrupted before it began, and the guest was interrupted to make way for it.
    made_way: bool
    #: The limit that it was interrupted for.
    over: Why | None

    @property
    def began(self) -> bool:
        """Whether the guest has taken it up."""

    @property
    def runs_code(self) -> bool:
        """Whether it runs a cell's code: a query does not."""

    def stopped(self, why: Why) -> Stopped:
        """Return how it ended that is over a limit."""


class TimedGuests(Protocol):
    """Has the guest that is interrupted, and replaces it."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""

    def interrupt(self) -> None:
        """Interrupt the guest."""

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; another takes over."""


R = TypeVar("R", bound=TimedRequest)


class Deadlines(Generic[R]):
    """Interrupts and kills by the clock: silence, the timeout, how long an interrupt may take.

    A cell's timeout is one deadline, which stands still while the user is asked. ``stop_holding``
    has the guest heard though front ends are behind; ``abandon`` gets a query that takes too long.
    What runs in a subshell can't be interrupted: without ``interrupts`` it is killed at once.
    """

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        supervisor: TimedGuests,
        stop_holding: Callable[[], None],
        abandon: Callable[[R], None],
        *,
        interrupts: bool = True,
    ) -> None:
        self._reactor, self._clock, self._supervisor = reactor, clock, supervisor
        self._stop_holding, self._abandon = stop_holding, abandon
        self._interrupts = interrupts
        #: Seconds that a cell may run; None is no limit.
        self.timeout: float | None = None
        self._timers: list[Timer] = []
        #: Seconds left of the timeout, when they were last counted, and the timer while they run.
        self._left, self._counted = 0.0, 0.0
        self._limit: Timer | None = None

    def sent(self, request: R) -> None:
        """Begin: a request goes to a guest, which may be its second."""
        self.stop()
        request.made_way = False  # an interrupt before this was not for the guest that gets it
        if request.runs_code:
            self._later(SILENCE, lambda: self._check_silence(request))
            self._left = self._seconds(request) or 0.0
            self.resume(request)
        else:
            self._later(QUERY_TIMEOUT, lambda: self._abandon(request))

    def pause(self) -> None:
        """Stop counting: a user was asked, whose time is not the cell's."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            self._left = max(0.0, self._left - (self._clock() - self._counted))

    def resume(self, request: R) -> None:
        """Go on counting: there is an answer, or none is waited for any more."""
        if self._seconds(request) is not None and self._limit is None:
            self._counted = self._clock()
            due = self._reactor.call_later(self._left, lambda: self.over(request, "timeout"))
            self._limit = due

    def interrupted(self, request: R) -> None:
        """Interrupt for the user, and give the request some time; a question of its is withdrawn.

        One that has not begun is interrupted when it does. Before that, only a task that keeps the
        guest from it is; should that come so late that it hits the cell, the guest says so.
        """
        self._later(DEAF_GRACE, lambda: self._give_up_deaf(request))
        if request.runs_code:
            self.resume(request)
        if request.began:
            self._supervisor.interrupt()
        else:
            self._later(TAKE_UP, lambda: self._make_way(request))

    def _make_way(self, request: R) -> None:
        if not request.began:
            request.made_way = True
            self._supervisor.interrupt()

    def over(self, request: R, why: Why) -> None:
        """Interrupt what is over a limit; kill it if it does not give way."""
        if not self._interrupts:
            self._supervisor.replace(replace(request.stopped(why), of=request.subshell))
        elif request.over is None:
            request.over = why
            self._stop_holding()
            self._supervisor.interrupt()
            self._later(GRACE, lambda: self._supervisor.replace(request.stopped(why)))

    def stop(self) -> None:
        """Watch nothing: the request has ended, or its guest has."""
        for timer in (*self._timers, *filter(None, [self._limit])):
            timer.cancel()
        self._timers.clear()
        self._limit = None

    def _seconds(self, request: R) -> float | None:
        return self.timeout if request.seconds is None else request.seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._reactor.call_later(seconds, action))

    def _check_silence(self, request: R) -> None:
        """Tell a guest that never got its request from one that is merely slow to take it up."""
        guest = self._supervisor.guest
        if request.began or guest is None:
            return
        if guest.held or guest.unread() or request.acknowledged:
            # Nobody listens to it, or a task or a thread keeps its main thread. The user can
            # interrupt.
            self._later(SILENCE, lambda: self._check_silence(request))
        else:
            self._supervisor.replace(Stopped("silent", "a request vanished on its way"))

    def _give_up_deaf(self, request: R) -> None:
        guest = self._supervisor.guest
        if not request.began or (guest is not None and guest.ignores_interrupts()):
            self._supervisor.replace(Stopped("silent", "it did not react to an interrupt"))


# --- what a process takes, read from outside and without a right over it ------------------------
#
# Sources: clock_getcpuclockid(3) for the processor clock of another process; proc(5) for the
# rest. Both are open to any process, for one that can't be traced too.

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_MAX_READ: Final = 8192
#: Each at the beginning of a line: a process may give itself the name of a field.
_FIELDS: Final = re.compile(
    rb"^VmHWM:\s+(\d+).*^VmRSS:\s+(\d+).*^RssAnon:\s+(\d+).*^RssShmem:\s+(\d+)"
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

    @property
    def held(self) -> int:
        """What can't be had back by reading a file again."""
        return self.private + self.shared + self.tables


def _parse_memory(status: bytes) -> ProcessMemory | None:
    found = _FIELDS.search(status)
    if found is None:  # a zombie has none
        return None
    peak, resident, private, shared, tables, swapped = (int(kib) << 10 for kib in found.groups())
    return ProcessMemory(peak, resident, private + swapped, shared, tables)


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


class Gauge:
    """One process; every reading is None once it is gone.

    Descriptors are kept, because a descriptor of /proc means this process whatever its number
    means by now. The clock goes by number: ask only while the process is known not to be reaped.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._clock = (~pid << 3) | 2
        self._files: dict[str, int] = {}

    def _read(self, name: str) -> bytes:
        """Return what a file in its folder of /proc says. Raises OSError."""
        if name not in self._files:
            self._files[name] = os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._files[name], _MAX_READ, 0)

    def cpu(self) -> float | None:
        """Return the seconds of processor time of all its threads, the ended ones too."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return None

    def resident(self) -> int | None:
        """Return the bytes resident now; a tenth of the time that ``memory`` takes."""
        try:
            return int(self._read("statm").split(None, 2)[1]) * PAGE
        except (OSError, IndexError):
            return None

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


class _Stat(NamedTuple):
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


_UNBORN: Final = _Stat(parent=0, session=0, faults=0, seconds=0.0, waited=0.0)


def _stat(pid: int | None) -> _Stat | None:
    fields = read_proc(f"{pid}/stat").rpartition(b") ")[2].split()
    if not fields:  # it is gone
        return None
    user, system, waited_user, waited_system = map(int, fields[11:15])
    return _Stat(
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
    return max(0, int(fields[1]) - int(fields[2])) * PAGE if fields else 0


def page_faults(pid: int | None) -> int:
    """Return how many pages a process was given; 0 when it is gone."""
    found = _stat(pid)
    return 0 if found is None else found.faults


class _State(NamedTuple):
    """A guest and its others at one moment, and how many huge pages the machine had given."""

    processes: Mapping[int, _Stat]
    huge: int

    def has(self, pid: int, process: _Stat) -> bool:
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
            before = earlier.processes[pid] if earlier.has(pid, process) else _UNBORN
            pages += max(0, process.faults - before.faults)
            waited += process.waited_faults - before.waited_faults
        ended = sum(
            process.faults + process.waited_faults
            for pid, process in earlier.processes.items()
            if not self.has(pid, process)
        )
        return (pages + max(0, waited - ended)) * PAGE + (self.huge - earlier.huge) * huge_size()


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
        self._pid, self._others, self._orphans_cpu = pid, others, orphans_cpu
        self._holds = holds
        own = _stat(pid)
        self._session = own.session if own else 0
        #: Each process when it was last looked at, and the time of all that were waited for then.
        self._seen: dict[int, _Stat] = {}
        self._waited = 0.0
        #: Seconds of those that are gone, and that nobody waited for: their parent ignores the
        #: ends of its children (sigaction(2), SA_NOCLDWAIT).
        self._unwaited = 0.0
        #: The bytes that guest and others had together when that was last known, as the guest was
        #: alone or the OS kernel was asked, and the state then. None until then.
        self._known: tuple[int, _State] | None = None
        #: The state when ``held`` was asked, and the bytes that the others showed.
        self._state = _State({pid: own} if own else {}, huge_pages())
        self.shown = 0
        #: The thread of the last check; what it replaces in ``_known``, and by what; when the next
        #: is due (``time.monotonic``).
        self._check: threading.Thread | None = None
        self._checked: tuple[tuple[int, _State] | None, tuple[int, _State]] | None = None
        self._check_due = 0.0
        #: The thread that asked last for ``measured``, and may wait for the answer still.
        self._measuring: threading.Thread | None = None
        memory = process_memory(pid)
        if memory is not None and not self._members():
            self._known = memory.private, self._state

    def cpu(self) -> float:
        """Return the seconds of all that live, and of all that have ended.

        Whoever waits for a child takes over its time. What is gone since the last look, and is in
        nobody's, was waited for by nobody; what it used after the last look is lost.
        """
        members = self._members()
        own = _stat(self._pid)
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
        # An answer that came after it was known in another way is no news.
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] is self._known:
            self._known = checked[1]
        shown = stray = tables = extra = 0
        members = self._members()
        strays = self._stray(members)
        processes = dict[int, _Stat]()
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
            if pid in strays:
                stray += memory.private
            else:
                shown += memory.private
        if (guest := _stat(self._pid)) is not None:
            processes[self._pid] = guest
        now = self._state = _State(processes, huge_pages())
        self.shown = extra + tables + shown + stray
        if not shown + stray:
            self._known = own.private, now
            return extra
        if self._known is not None:
            together, then = self._known
            given = now.given_since(then)
            shown = min(shown, max(0, together + given - own.private))
        return extra + tables + shown + stray

    def _stray(self, members: Mapping[int, _Stat]) -> set[int]:
        """Return which ``members`` may have pages that were given to one that has ended since.

        A fork has its parent's pages. Who was there when it was last known what all had has them
        from then; who came later has them from its parent, unless that has ended (prctl(2) and
        clone(2) are filtered, so that no other process is shown as its parent but the zygote).
        """
        kept = {self._pid}
        for pid, member in members.items():  # parents come before their children
            known = self._known is not None and self._known[1].has(pid, member)
            if known or member.parent in kept:
                kept.add(pid)
        return set(members) - kept

    def measured(self, own: ProcessMemory, copies: Mapping[int, int]) -> int | None:
        """Return how many bytes the others hold by themselves, as the OS kernel divides them.

        None where this user may not ask, as of processes that are not dumpable in no user
        namespace of ours, and where it would take too long. It reads each page table, so ask only
        when ``held``, which was asked just before, is too much. What snapshots share, too, is
        divided among them and counts for less.
        """
        memories = self._memories(copies)
        if sum(each.resident + _TABLES * each.tables for each in memories.values()) > MOST_WALKED:
            return None
        if (others := self._measured_in_time(own, memories)) is None:
            return None
        self._known = own.private + others, self._state
        return others + sum(each.tables for pid, each in memories.items() if pid != self._pid)

    def _measured_in_time(
        self, own: ProcessMemory, memories: Mapping[int, ProcessMemory]
    ) -> int | None:
        """Return what ``_measure`` does, or None if it takes too long.

        A process can keep its memory locked, and whoever reads of its pages waits for that.
        """
        if self._measuring is not None and self._measuring.is_alive():
            return None
        answers = list[int | None]()
        self._measuring = threading.Thread(
            target=lambda: answers.append(self._measure(own, memories)), daemon=True
        )
        with contextlib.suppress(RuntimeError):  # there are too many threads: no answer comes
            self._measuring.start()
            self._measuring.join(MEASURE_TIMEOUT)
        return answers[0] if answers else None

    def check(self, own: ProcessMemory, copies: Mapping[int, int]) -> None:
        """Ask the OS kernel in a thread, now and then, for what ``held`` may not know.

        Processes can be given pages by one that shared their memory and has ended (vfork(2)). Call
        it when ``held``, which was asked just before, is little and ``shown`` is too much.
        """
        running = self._check is not None and self._check.is_alive()
        if running or time.monotonic() < self._check_due:
            return
        known, state, memories = self._known, self._state, self._memories(copies)

        def ask() -> None:
            began = time.monotonic()
            if (others := self._measure(own, memories)) is not None:
                self._checked = known, (own.private + others, state)
            ended = time.monotonic()
            self._check_due = ended + max(CHECK_PACE, CHECK_PART * (ended - began))

        self._check = threading.Thread(target=ask, daemon=True)
        with contextlib.suppress(RuntimeError):  # there are too many threads: it is tried again
            self._check.start()

    def _memories(self, copies: Collection[int]) -> dict[int, ProcessMemory]:
        """Return what the guest and each of the others shows."""
        pids = (self._pid, *(pid for pid in self._members() if pid not in copies))
        return {pid: found for pid in pids if (found := process_memory(pid)) is not None}

    def _measure(self, own: ProcessMemory, memories: Mapping[int, ProcessMemory]) -> int | None:
        """Return the private bytes of the others, each page once; None if that can't be asked."""
        shares = alone = 0
        for pid in memories:
            if (parts := _Parts.of(pid)) is None:
                return None
            shares += parts.share
            alone += parts.alone * (pid != self._pid)
        return max(alone, shares - own.private)

    def pids(self) -> list[int]:
        """Return the processes besides the guest."""
        return list(self._members())

    def has_others(self, copies: Mapping[int, int]) -> bool:
        """Whether anything of it lives besides the guest and its snapshots, ``copies``."""
        return any(pid not in copies for pid in self._members())

    def _members(self) -> dict[int, _Stat]:
        found: dict[int, _Stat] = {}
        # Read anew: that of a restored snapshot was the guest before it, until that was dead.
        own = _stat(self._pid)
        # Each with whether what started it is the guest's.
        waiting = [(pid, False) for pid in children_of(own.parent)] if own else []
        others = frozenset(self._others())
        while waiting and len(found) < MAX_PROCESSES:
            pid, is_ours = waiting.pop()
            if pid in others:
                continue
            # In this order: the time of a child that is waited for meanwhile is in neither, or in
            # its parent's, never in both.
            children = children_of(pid)
            member = _stat(pid)
            if member is None:
                continue
            if is_ours or member.session == self._session or self._holds(pid):
                waiting += [(child, True) for child in children]
                if pid != self._pid:
                    found[pid] = member
        return found


#: Bytes in memory of processes whose pages are asked for at once: two seconds. Pages that were
#: only read are in no process's memory, but in its page tables: a byte of these counts as so many.
MOST_WALKED: Final = 64 << 30
_TABLES: Final = 64
#: Seconds that the host's loop waits for what ``measured`` asks.
MEASURE_TIMEOUT: Final = 3.0
#: Seconds between checks of what processes hold together, at least; and how many times as long as
#: the last one took.
CHECK_PACE: Final = 1.0
CHECK_PART: Final = 10


class _Parts(NamedTuple):
    """Of the private pages of a process, as smaps_rollup has them (proc(5), Linux 5.4)."""

    #: Bytes, each page divided by the processes that have it.
    share: int
    #: Bytes that no other process has: at least so many.
    alone: int

    @classmethod
    def of(cls, pid: int) -> _Parts | None:
        """Read them; None where this user may not."""
        found = {
            name: int(kib) << 10 for name, kib in _SHARES.findall(read_proc(f"{pid}/smaps_rollup"))
        }
        if b"Pss_Anon" not in found:
            return None
        others = found.get(b"Pss_File", 0) + found.get(b"Pss_Shmem", 0)
        alone = max(0, found.get(b"Private_Dirty", 0) - others)
        return cls(found[b"Pss_Anon"] + found.get(b"SwapPss", 0), alone)


_SHARES: Final = re.compile(
    rb"^(Pss_Anon|Pss_File|Pss_Shmem|Private_Dirty|SwapPss):\s+(\d+) kB$", re.MULTILINE
)


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


# --- the scratch folder: a walk over hostile folders in bounded steps ---------------------------

#: Entries that one look takes, some 4 µs each.
ENTRIES: Final = 4_000
#: Bytes that are gone from the disk and not found, from which the whole folder is walked at once;
#: or this part of the limit. Entries that such a walk takes, and how many there are in one look.
UNFOUND, UNFOUND_PART = 16 << 20, 8
AT_ONCE, WALKS_AT_ONCE = 100_000, 4
#: Looks after which that is done again, where it found no more: twice as many each time.
MOST_WAITED: Final = 64
#: Bytes that an entry counts as at least: files without number fill a disk too.
LEAST: Final = 4_096
#: Folders within folders that are followed; what lies deeper counts as too much.
DEEPEST: Final = 64
#: Folders not yet entered that are remembered; more count as too much.
MOST_FOLDERS: Final = 100_000
#: What counts as too much whatever the limit is.
ENDLESS: Final = 2**60
#: Of ``st_blocks`` (stat(2)).
_BLOCK: Final = 512


class Scratch:
    """The bytes on disk beneath ``folders``, together, against ``limit``.

    What is beneath ``layers`` counts too, and each file there at least as much as makes
    ``MOST_ENTRIES`` of them too many, for the host lists them.

    A folder that was too full before a cell is the cell's fault only if it grows further: else
    nobody could clear it up.

    A cell could move files behind the walk's back, or have files that are in no folder any more. So
    what the file system has less of is looked at, too. That proves nothing, for others write there,
    but where more is gone than was found, the folder is walked at once, in another order each time;
    what is not found then either, ``removed`` may know: it returns the bytes of files without name.
    """

    def __init__(
        self,
        folders: Sequence[str],
        limit: int | None,
        layers: Sequence[str] = (),
        removed: Callable[[], int] = int,
    ) -> None:
        self._folders, self._layers, self._removed = folders, layers, removed
        self.limit = 2 * ENDLESS if limit is None else limit
        #: Entries of layers, of this walk and of the last one.
        self._counted_files = self._files = 0
        #: What there was when the cell began; None until a walk has found that out.
        self._floor: int | None = 0
        self._walk: Iterator[int] | None = None
        self._counted = 0
        #: As far as it is known.
        self.size = 0
        #: Whether the last whole walk found more than the one before.
        self.grew = False
        #: What is used of the file systems beside what was found: the least that was seen.
        self._beside = _used((*folders, *layers))
        #: Of removed files, when it was last asked, and no more than the disk still lacks.
        self._nameless = 0
        #: Entries read so far: says whether a look gets on.
        self.entries = 0
        #: Looks to wait until it is asked again where the rest is; how many that were last.
        self._wait, self._waited = 0, 0

    def begin(self) -> None:
        """Begin a cell, which answers for what comes."""
        self._floor = 0
        self._wait = self._waited = 0
        if self.size > self.limit:
            self.forgive()

    def forgive(self) -> None:
        """Count what comes from the next walk on."""
        self._floor = self._walk = None

    def look(self) -> None:
        """Go on with the walk, or begin the next."""
        if self._unfound() <= max(UNFOUND, min(self.limit, ENDLESS) // UNFOUND_PART):
            self._step(ENTRIES)
        elif self._wait > 0:
            self._wait -= 1
            self._step(ENTRIES)
        else:
            self._search()

    def _search(self) -> None:
        """Walk at once, as often as more is gone than was found; then ask for what has no name."""
        found = self._nameless = 0
        for _ in range(WALKS_AT_ONCE):
            self._walk = None
            self._step(AT_ONCE)
            found = max(found, self.size)
            if self._unfound() <= UNFOUND or self.full:
                break
        if not self._nameless and not self.full:
            self._nameless = self._ask_nameless(self._unfound())
            found += self._nameless
        self._waited = min(max(1, 2 * self._waited), MOST_WAITED)
        self._wait = self._waited
        self.size = max(self.size, found)

    def _ask_nameless(self, unfound: int) -> int:
        """Return how many of the bytes that were not found are of removed files."""
        return min(unfound, self._removed()) if unfound > UNFOUND else 0

    def _unfound(self) -> int:
        return _used((*self._folders, *self._layers)) - self._beside - self.size

    def _step(self, entries: int) -> None:
        if self._walk is None:
            walks = (*map(_sizes, self._folders), *map(self._staged_sizes, self._layers))
            self._walk, self._counted, self._counted_files = chain.from_iterable(walks), 0, 0
        steps = 0
        for size in islice(self._walk, entries):
            self._counted += size
            self.entries += 1
            steps += 1
        total = max(self._counted, self._counted_files * self.limit // MOST_ENTRIES)
        self._files = max(self._files, self._counted_files)
        if steps == entries:
            self.size = max(self.size, total)
            return
        self._files = self._counted_files
        beside = _used((*self._folders, *self._layers)) - total
        self._beside = min(self._beside, beside)
        self._nameless = min(self._nameless, beside - self._beside)
        if self._floor is None:
            self._nameless = self._ask_nameless(beside - self._beside)
            self._floor = total + self._nameless
        size = total + self._nameless
        self.grew, self.size, self._walk = size > self.size, size, None

    def _staged_sizes(self, folder: str) -> Iterator[int]:
        for size in _sizes(folder):
            self._counted_files += 1
            yield size

    @property
    def why(self) -> Literal["files", "scratch"]:
        """What there is too much of, if there is."""
        return "files" if self._files > MOST_ENTRIES else "scratch"

    @property
    def full(self) -> bool:
        """Whether there is too much in it."""
        return self._floor is not None and self.size > max(self.limit, self._floor)

    @property
    def far(self) -> bool:
        """Whether there is so much that to wait would make it worse."""
        return self.full and self.size > scratch_end(max(self.limit, self._floor or 0))


#: Seconds for which the loop waits for a look that it has begun: it takes 16 ms at most, unless the
#: whole folder is walked at once or something holds it up.
PATIENCE: Final = 0.02
#: Seconds in which a look reads no entry, and how often it was then asked for, from which the
#: folder counts as one that can't be measured.
STUCK, STUCK_LOOKS = 10.0, 5


class Found(NamedTuple):
    """What a look at the scratch folder has found."""

    size: int = 0
    grew: bool = False
    #: What there is too much of, and whether to wait would make it worse.
    excess: Literal["files", "scratch"] | None = None
    far: bool = False


class ScratchWatch:
    """Looks at the scratch folder in a thread, because a guest can lock its folders.

    To remove a folder in which millions of names were looked up is one call of the OS kernel's. It
    takes half a minute, can't be killed, and keeps the folder around it locked. So each look has a
    thread, one at a time, and nobody else touches ``scratch``. What the last look found counts
    until the next one is done. If no entry is read for ``STUCK`` seconds, the folder can't be
    measured, and counts as too full, as one without end does.
    """

    def __init__(self, scratch: Scratch, clock: Callable[[], float]) -> None:
        self._scratch, self._clock = scratch, clock
        self._thread: threading.Thread | None = None
        #: Set by the thread at its end.
        self._answer: Found | None = None
        #: What the next look does first.
        self._first: list[Callable[[], None]] = []
        #: Whether a cell began after the look did: it does not answer for what was before.
        self._late = False
        self.found = Found()
        #: Looks that were asked for since one got on, how far that was, and when.
        self._unanswered, self._entries, self._since = 0, 0, 0.0

    def begin(self) -> None:
        """Begin a cell, which answers for what comes."""
        self._first = [self._scratch.begin]
        self._forget()

    def forgive(self) -> None:
        """Count what comes from the next look on."""
        self._first.append(self._scratch.forgive)
        self._forget()

    def _forget(self) -> None:
        self._late, self._unanswered = True, 0
        self.found = self.found._replace(excess=None, far=False)

    def look(self) -> Found:
        """Look, and return what was found: by the last look, if this one takes its time."""
        if self._thread is None or not self._thread.is_alive():
            self._take_answer()
            self._start()
        if self._take_answer():
            self._unanswered = 0
        elif self._is_stuck() and self._scratch.limit < ENDLESS:
            self.found = self.found._replace(excess="scratch")
        return self.found

    def _start(self) -> None:
        first, self._first, self._late = self._first, [], False
        self._thread = threading.Thread(target=self._look, args=(first,), daemon=True)
        with contextlib.suppress(RuntimeError):  # there are too many threads: no answer comes
            self._thread.start()
            self._thread.join(PATIENCE)

    def _look(self, first: Iterable[Callable[[], None]]) -> None:
        scratch = self._scratch
        for prepare in first:
            prepare()
        scratch.look()
        excess = scratch.why if scratch.full else None
        self._answer = Found(scratch.size, scratch.grew, excess, scratch.far)

    def _take_answer(self) -> bool:
        answer, self._answer = self._answer, None
        if answer is not None:
            self.found = answer._replace(excess=None, far=False) if self._late else answer
        return answer is not None

    def _is_stuck(self) -> bool:
        """Return whether the look under way has read nothing for long, each time it was asked."""
        now, entries = self._clock(), self._scratch.entries
        if not self._unanswered or entries != self._entries:
            self._unanswered, self._entries, self._since = 0, entries, now
        self._unanswered += 1
        return self._unanswered > STUCK_LOOKS and now - self._since >= STUCK

    @property
    def is_filling(self) -> bool:
        """Whether the folder grows, and is more than half full."""
        return self.found.grew and self.found.size > self._scratch.limit // 2


def _sizes(folder: str) -> Iterator[int]:
    """Yield what each entry beneath ``folder`` takes of the disk.

    A descriptor a level, so that a folder that is moved, or made a link, leads nowhere else.
    """
    #: Of each level, its descriptor and the folders in it that are not yet entered.
    stack: list[tuple[int, list[str]]] = []
    waiting, name = 0, folder
    try:
        while True:
            with contextlib.suppress(OSError):
                fd, folders = open_folder(name, stack[-1][0] if stack else None), list[str]()
                stack.append((fd, folders))
                with contextlib.suppress(OSError):
                    # Who reads a folder's time of access would know how far the walk is.
                    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME)
                with os.scandir(fd) as found:
                    for entry in found:
                        with contextlib.suppress(OSError):  # it is gone
                            status = entry.stat(follow_symlinks=False)
                            links = max(1, status.st_nlink)
                            if stat.S_ISDIR(status.st_mode):
                                folders.append(entry.name)
                                links = 1
                            yield max(LEAST, status.st_blocks * _BLOCK // links)
                waiting += len(folders)
                random.shuffle(folders)
            while stack and not stack[-1][1]:
                os.close(stack.pop()[0])
            if not stack:
                return
            if waiting > MOST_FOLDERS or len(stack) > DEEPEST:
                yield ENDLESS
                return
            waiting, name = waiting - 1, stack[-1][1].pop()
    finally:
        for fd, _ in stack:
            os.close(fd)


def _used(folders: Iterable[str]) -> int:
    """Return the bytes that are taken of the file systems that these are on, each once."""
    taken = dict[int, int]()
    for folder in folders:
        with contextlib.suppress(OSError):
            system = os.statvfs(folder)
            taken[system.f_fsid] = (system.f_blocks - system.f_bfree) * system.f_frsize
    return sum(taken.values())


#: A file that is mapped and has no name any more, in /proc/PID/maps: its inode, and its last name.
_NAMELESS: Final = re.compile(rb"^\S+ \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)$", re.MULTILINE)


#: Bytes that are read at once.
_PART: Final = 1 << 16
#: Bytes of lists of mappings and number of descriptors that are looked at at once: a quarter of a
#: second. A cell can have a hundred thousand times as much.
MOST_MAPPED: Final = 16 << 20
MOST_OPENED: Final = 20_000


def removed_bytes(pids: Iterable[int], largest: int | None, folders: Iterable[str]) -> int:
    """Return at most how many bytes removed files have that processes keep.

    Only files whose last name was beneath one of ``folders`` count: a library that the user
    replaces while a cell uses it was not made by the cell. The size of a file that is mapped, and
    neither open nor run, is unknown: it counts as the ``largest`` that there may be. 0 for
    processes that this user may not look into; ``ENDLESS`` for those that would take too long.
    """
    beneath = tuple(os.fsencode(f"{os.path.realpath(folder)}/") for folder in folders)
    mapped_left, opened_left = MOST_MAPPED, MOST_OPENED
    opened = dict[tuple[int, int], int]()
    mapped = set[int]()
    for pid in pids:
        process, maps = _living_thread(pid, mapped_left)
        # A program that unmaps itself is kept by this link alone.
        kept = [f"{process}/exe"]
        with contextlib.suppress(OSError):
            kept += (f"{process}/fd/{fd}" for fd in os.listdir(f"{process}/fd"))
        mapped_left -= len(maps)
        opened_left -= len(kept)
        if min(mapped_left, opened_left) < 0:
            return ENDLESS
        mapped.update(int(at) for at, name in _NAMELESS.findall(maps) if name.startswith(beneath))
        for link in kept:
            with contextlib.suppress(OSError):
                status = os.stat(link)
                removed = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
                if removed and os.readlink(os.fsencode(link)).startswith(beneath):
                    opened[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    closed = mapped.difference(inode for _, inode in opened)
    return sum(opened.values()) + len(closed) * (ENDLESS if largest is None else largest)


def _living_thread(pid: int, most: int) -> tuple[str, bytes]:
    """Return where /proc has a thread of a process, and what the process has mapped.

    The first thread shows nothing once it has ended, though others go on with its files. Of what is
    mapped it is the beginning where there is more than ``most`` bytes of it.
    """
    with contextlib.suppress(OSError):
        for task in islice(os.listdir(f"/proc/{pid}/task"), MAX_PROCESSES):
            with contextlib.suppress(OSError):
                if maps := _read_until(f"/proc/{pid}/task/{task}/maps", most):
                    return f"/proc/{pid}/task/{task}", maps
    return f"/proc/{pid}", b""


def _read_until(path: str, most: int) -> bytes:
    """Read a file until its end, or until there is more than ``most`` of it. Raises OSError."""
    found = bytearray()
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        while len(found) <= most and (part := os.read(fd, _PART)):
            found += part
    return bytes(found)


# --- /dev/shm: memory that is held without a process that holds it --------------------------------

#: Entries of a folder that are removed, and folders within folders that are entered: what more
#: there is stays, and counts. It takes 0.2 s at most.
_MOST_REMOVED, _DEEPEST_REMOVED = 10_000, 3


class SharedMemory:
    """The /dev/shm that the guests of one zygote have, by a descriptor that the zygote sent."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def held(self) -> int:
        """Return the bytes in it, whether anybody has them mapped or not, with a name or without.

        An entry counts ``LEAST`` besides: files without number fill memory too.
        """
        found = os.fstatvfs(self._folder)
        blocks, entries = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
        return blocks * found.f_frsize + entries * LEAST

    def empty(self) -> bool:
        """Remove what is in it; return whether there was anything."""
        return _remove_entries(self._folder, _MOST_REMOVED, _DEEPEST_REMOVED) > 0

    def close(self) -> None:
        """Close the descriptor, which keeps what is in it."""
        os.close(self._folder)


def _remove_entries(folder: int, most: int, levels: int) -> int:
    """Remove what is in an open folder that hostile code has filled; return how many entries."""
    entries = list[tuple[str, bool]]()
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        entries += ((one.name, one.is_dir(follow_symlinks=False)) for one in islice(found, most))
    removed = 0
    for name, is_folder in entries:
        with contextlib.suppress(OSError):  # it is gone, or more is in it than is removed
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif levels and removed < most:
                with closing(open_folder(name, folder)) as within:
                    removed += _remove_entries(within, most - removed, levels - 1)
                os.rmdir(name, dir_fd=folder)
            removed += 1
    return removed


# --- memory of the OS kernel's ------------------------------------------------------------------

#: Bytes by which it grew before it is asked whose that is.
GROWN: Final = 32 << 20
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
    """

    def __init__(self) -> None:
        self._before = _unreclaimable()

    def held(self, pids: Callable[[], Collection[int]]) -> int:
        """Return the bytes that count for the session of the processes ``pids``."""
        now = _unreclaimable()
        self._before = min(self._before, now)
        grown = now - self._before
        if grown <= GROWN:
            return 0
        session = pids()
        if len(session) > 1 or _count_locks(session) > MANY_LOCKS:
            return grown
        self._before = now  # one process can have little of it: others of the machine's have
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


# --- watching a guest ---------------------------------------------------------------------------
#
# A request that ends within ``FIRST_LOOK`` costs two readings of a clock and one of a size.
# Longer ones are looked at now and then. Whoever owns the monitor interrupts and kills.

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
#: Seconds between looks at processes that a cell left behind: they may sleep before they act.
FAMILY_PACE: Final = 1.0
#: Requests in a row that may end before they are looked at, each of them short.
MOST_UNSEEN: Final = 100
#: Seconds of processor time that say that a guest does something by itself.
IDLE_CPU: Final = 0.005
#: Seconds from which a cell's peak is read, not only what it has at its end.
LONG: Final = 0.005
#: What a guest may hold above ``memory_max_bytes``: an eighth, and this at least. RLIMIT_DATA is
#: the limit; it does not count stacks, page tables and shared pages.
SLACK_PART, SLACK_BYTES = 8, 64 << 20

Excess = Literal["cpu", "files", "forks", "memory", "scratch"]


def slack(memory: int) -> int:
    """Return what may be held above ``memory_max_bytes``."""
    return max(memory // SLACK_PART, SLACK_BYTES)


class Mark(NamedTuple):
    """One moment: of the clock, of a guest's processor time, and how much it has shown."""

    at: float
    cpu_seconds: float
    output_bytes: int


class Monitor:
    """Looks at one guest at a time, which writes to ``folders``, and to ``layers`` over others.

    ``on_excess`` is told what there is too much of, and whether to wait would make it worse; it
    is told again at every look at which that is still so. ``copies`` looks at the guest's
    snapshots, and returns which processes they are, and the bytes that each has from it;
    ``shared_memory`` returns the bytes in the guest's /dev/shm. ``others`` are the guest's forks,
    ``orphans_cpu`` the seconds that orphans of its used which have ended, ``answering_cpu`` those
    that the zygote took to answer its calls, and ``held_together``
    the bytes of all that one sandbox and its forks are.
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
        self._reactor, self._clock, self._on_excess = reactor, clock, on_excess
        self._copies, self._shared_memory = copies, shared_memory
        self.others: Callable[[], Sequence[int]] = list
        self.orphans_cpu: Callable[[], float] = float
        #: Whether a process is in a session of the guest's.
        self.holds: Callable[[int], bool] = lambda _: False
        self.answering_cpu: Callable[[], float] = float
        self.held_together: Callable[[], int] = int
        self._folders, self._layers = folders, [layer.folder for layer in layers]
        #: Where guests see what they write.
        self._places = (*folders, *(layer.root for layer in layers))
        self.narrow_to(policy)
        self._gauge: Gauge | None = None
        self._family: Family | None = None
        self._timer: Timer | None = None
        self._idle = self._began = 0.0
        #: Requests since the last look.
        self._unseen = 0
        #: Processes that may keep removed files, for the look at the scratch folder under way.
        self._keepers: set[int] = set()
        self._kernel = KernelMemory()
        self._cpu_began = self._cpu = self._family_cpu = 0.0
        #: Whether what the guest's processes used before this request is known.
        self._based = False
        self._peak = self._known_peak = 0
        #: Whether it could only be estimated that there is too much memory, as processes share it.
        self.is_estimate = False
        #: Of the request, and of those before it.
        self.output_bytes = self._earlier_output = 0

    def narrow_to(self, policy: Policy) -> None:
        """Enforce the limits of a policy, from the next request on."""
        self._policy, limit = policy, policy.scratch_max_bytes
        watched = limit is not None or self._layers
        self._scratch = None
        if watched:
            scratch = Scratch(self._folders, limit, self._layers, self._removed)
            self._scratch = ScratchWatch(scratch, self._clock)
        memory = policy.memory_max_bytes
        self._most = None if memory is None else memory + slack(memory)

    # --- requests -----------------------------------------------------------------------------

    def taken(self, since: Mark, read_bytes: int = 0) -> Usage:
        """Return what the guest took ``since`` a request beside others began."""
        now = self.mark()
        peak = max(self._peak, (self._gauge.resident() if self._gauge is not None else None) or 0)
        output = now.output_bytes - since.output_bytes
        cpu = max(0.0, now.cpu_seconds - since.cpu_seconds)
        return Usage(now.at - since.at, cpu, peak, output, read_bytes)

    def mark(self) -> Mark:
        """Return where the clock, the guest's processor time and its output are."""
        self._cpu_now()
        return Mark(self._clock(), self._cpu, self._earlier_output + self.output_bytes)

    def begin(self, pid: int | None) -> None:
        """Begin a request that goes to the guest ``pid``, which runs no other."""
        self._follow(pid)
        self._began = self._clock()
        self._cpu_began = self._cpu = self._cpu_now() or 0.0
        self._earlier_output += self.output_bytes
        self._peak = self.output_bytes = 0
        if self._scratch is not None:
            self._scratch.begin()
        self._based = False
        self._unseen += 1
        soon = self._unseen > MOST_UNSEEN
        if self._family is None:
            self._look_in(0 if soon else FIRST_LOOK, self._look)
        else:
            self._look_in(0 if soon else BASELINE, self._leave_out_earlier)

    def go_on(self, since: Mark) -> None:
        """Go on with requests of which the first began at ``since``: an earlier one has ended."""
        self._began, self._cpu_began = since.at, since.cpu_seconds
        self.output_bytes += self._earlier_output - since.output_bytes
        self._earlier_output = since.output_bytes

    def end(self, read_bytes: int = 0) -> Usage:
        """End the request, whichever way it went; return what it took."""
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
        """Stop looking: the guest is gone. What was read of it stays, for ``end``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._follow(None)

    # --- looks --------------------------------------------------------------------------------

    def _look_in(self, seconds: float, look: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._reactor.call_later(seconds, look)

    def _leave_out_earlier(self) -> None:
        """Charge the request nothing of what the guest's processes used between it and the last."""
        before = self._family_cpu
        self._count_family()
        earlier = self._family_cpu - before
        self._cpu_began += earlier
        self._cpu += earlier
        self._based = True
        self._look_in(0 if self._unseen > MOST_UNSEEN else FIRST_LOOK - BASELINE, self._look)

    def _look(self) -> None:
        self._unseen = 0
        self._count_family()
        cpu = self._cpu_now()
        if cpu is None:
            return
        scratch = self._scratch
        filling = scratch is not None and scratch.is_filling
        self._look_in(QUICK if filling else PACE, self._look)
        limit, together = self._policy.cpu_seconds, self._policy.forks_max_bytes
        copies = self._copies()
        if self._holds_too_much(copies):
            self._on_excess("memory", True)
        elif together is not None and self.held_together() > together:
            self._on_excess("forks", True)
        elif limit is not None and cpu - self._cpu_began > limit:
            self._on_excess("cpu", False)
        elif (found := self._look_at_scratch(copies)).excess is not None:
            self._on_excess(found.excess, found.far)

    def _look_idle(self) -> None:
        """Look after processes, threads and tasks that a cell left behind."""
        self._unseen = 0
        self._count_family()
        before, cpu = self._cpu, self._cpu_now()
        if cpu is None:
            return
        first, busy, copies = not self._idle, cpu - before > IDLE_CPU, self._copies()
        family = self._family is not None and self._family.has_others(copies)
        if family or busy:
            self._idle = FAMILY_PACE if family else IDLE_PACE
        else:
            self._idle = min(max(IDLE_PACE, 2 * self._idle), IDLE_MOST)
            if first and self._scratch is not None:
                self._scratch.forgive()
        self._look_in(self._idle, self._look_idle)
        if self._holds_too_much(copies):
            self._on_excess("memory", True)
        elif (excess := self._look_at_scratch(copies).excess) is not None:
            self._on_excess(excess, True)

    def _look_at_scratch(self, copies: Iterable[int]) -> Found:
        if self._scratch is None:
            return Found()
        # Snapshots keep what was open when they were made.
        self._keepers = {*self._pids(), *copies}
        return self._scratch.look()

    def _holds_too_much(self, copies: Mapping[int, int]) -> bool:
        memory = self._gauge.memory() if self._gauge is not None else None
        if memory is None:
            return False
        self._take_peak(memory)
        held = memory.held + max(0, self._shared_memory() - memory.shared)
        held += self._kernel.held(self._pids)
        self.is_estimate = False
        if self._most is None or self._family is None:
            return self._most is not None and held > self._most
        if held + self._family.held(memory, copies) <= self._most:
            if held + self._family.shown > self._most:
                self._family.check(memory, copies)
            return False
        others = self._family.measured(memory, copies)
        self.is_estimate = held <= self._most and others is None
        return others is None or held + others > self._most

    # --- readings -----------------------------------------------------------------------------

    def _removed(self) -> int:
        """Return what removed files take; called in the thread of a look."""
        return removed_bytes(self._keepers, self._policy.max_file_size, self._places)

    def _pids(self) -> list[int]:
        """Return the guest's process, and those that it has started."""
        own = [self._gauge.pid] if self._gauge is not None else []
        return own + (self._family.pids() if self._family is not None else [])

    def _follow(self, pid: int | None) -> None:
        if self._gauge is not None:
            if self._gauge.pid == pid:
                return
            self._gauge.close()
        processes = pid is not None and self._policy.subprocess_execution
        self._gauge = Gauge(pid) if pid is not None else None
        self._family = None
        if pid is not None and processes:
            self._family = Family(pid, self.others, self.orphans_cpu, self.holds)
        self._known_peak, self._family_cpu = 0, 0.0

    def _cpu_now(self) -> float | None:
        """Return the guest's processor time; the last reading stays when it is gone."""
        cpu = self._gauge.cpu() if self._gauge is not None else None
        if cpu is not None:
            cpu += self._family_cpu + self.answering_cpu()
            self._cpu = max(self._cpu, cpu)
        return cpu

    def _count_family(self) -> None:
        """Read the processor time of what the guest has started: too slow for every cell."""
        if self._family is not None:
            self._family_cpu = max(self._family_cpu, self._family.cpu())

    def _take_peak(self, memory: ProcessMemory) -> None:
        """Count the process's own peak where it rose since it was last read."""
        rose = memory.peak > self._known_peak
        self._peak = max(self._peak, memory.peak if rose else memory.resident)
        self._known_peak = memory.peak
