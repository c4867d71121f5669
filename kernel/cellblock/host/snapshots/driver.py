"""The driver of the core: the real processes of a session, the guest and its copies.

``Core`` (``host.state``) decides which process is the guest, which copies are kept, and what is
done next. ``Snapshots`` has the host's end of each process, by the core's number. It tells the core
of events, reads what the core asks for (it is the core's ``World``), and carries out the core's
actions::

    a process's message ──▶ _on_message ──▶ play(an event of the core) ──▶ _carry_out(each action)

The supervisor owns it, and starts the guests. Only here is it checked what the OS kernel alone
knows: whose process it is that speaks.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from cellblock.errors import CellblockError
from cellblock.host.guests.process import Guest
from cellblock.host.limits import shares
from cellblock.host.limits.processes import Gauge, page_faults, private_bytes
from cellblock.host.limits.reading import SpacedReading
from cellblock.host.limits.stat_reader import StatReader
from cellblock.host.snapshots import memory
from cellblock.host.snapshots.memory import Budget, Reading
from cellblock.host.state import actions as act
from cellblock.host.state import names
from cellblock.host.state.actions import Cause
from cellblock.host.state.core import CopyReading, Core
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Lineage
    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.reactor import Reactor
    from cellblock.host.session.types import Stopped
    from cellblock.host.state.actions import Action, Reminder
    from cellblock.host.state.chain import Chain, PastRequest, Snapshot, UndoStep
    from cellblock.host.state.takeover import Takeover
    from cellblock.policy.model import Policy

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class SnapshotOwner(Protocol):
    """What snapshots need of the session's requests."""

    def idle(self) -> bool:
        """Return whether no request is under way."""

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything. If so, no snapshot can be taken."""

    def running(self) -> Any:
        """Return the message of the request that the guest has begun, or None."""

    def on_notice(self, text: str) -> None:
        """Tell the user something, for example why no snapshot is taken."""

    def on_stopping(self) -> None:
        """Stop watching requests: the guest is gone."""


class Serving(Protocol):
    """What snapshots need of the supervisor that has them."""

    zygote: Zygote | None

    @property
    def owner(self) -> SnapshotOwner:
        """The session's requests."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on a message of the guest."""

    def on_text(self, written: messages.Stream) -> None:
        """Pass on text that the guest wrote."""

    def on_channel_lost(self, guest: Guest, reason: str) -> None:
        """Act on the end of the guest's channel."""

    def on_ending(self, guest: Guest | None, *, has_failed: bool) -> None:
        """Note that the process which was the guest, if there was one, is being ended."""

    def empty_shared_memory(self) -> bool:
        """Remove what guests left in their /dev/shm; return whether they left anything."""

    def on_waking(self, guest: Guest) -> None:
        """Have the zygote report the end of a copy that will take over."""

    def on_serving(self, guest: Guest) -> None:
        """Treat a copy that has taken over like any other guest."""

    def on_restored(self, guest: Guest, outcome: Stopped) -> None:
        """Tell the session what its restored state lacks, and send what waits."""

    def on_gone(self, stopped: Stopped) -> None:
        """Start a new guest, because no snapshot of the lost one is left."""


class Snapshots:
    """The guest of a session and its copies, and the ``core`` that decides about them.

    It is the core's ``World``, and a user of the guest's lineage (``LineageUser``).
    """

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        policy: Policy,
        supervisor: Serving,
    ) -> None:
        self._reactor = reactor
        self._clock = clock
        self._supervisor = supervisor
        budget = Budget(policy.snapshots, clock, supervisor.owner.on_notice)
        self.core = Core(policy, budget, self)
        self._grants_devices = bool(policy.devices)
        #: The host's ends of all processes that have not ended, by the core's numbers.
        self._processes: dict[int, Guest] = {}
        #: The lineage of guest and copies; the last one, if there is no guest now.
        self.lineage: Lineage | None = None
        #: The number by which the lineage knows the OS sessions of these processes.
        self._user = 0
        #: Return the pids of programs that cells have started (copies may be among them), the bytes
        #: that the programs hold for themselves, and the bytes that they show as resident. Set by
        #: the session's requests.
        self.programs: Callable[[], list[int]] = list
        self.programs_held: Callable[[], int] = int
        self.programs_shown: Callable[[], int] = int
        self._carries_out = False
        self._stats = StatReader()
        #: For a fork: the memory that its guest had when it was forked, and the parent's snapshots.
        self.base: Reading | None = None
        self.parent: Snapshots | None = None
        #: The processes that ``Core.doubts`` asked about, and how these share pages.
        self._shares = SpacedReading[tuple[frozenset[int], dict[int, shares.Shares]]]()
        #: The bytes that all guests of the lineage hold together. Only its first user reads them.
        self._together = SpacedReading[int]()

    @property
    def user(self) -> int:
        """The number by which the zygote knows the OS sessions of these processes."""
        return self._user

    # --- events and actions ---------------------------------------------------------------------

    def play(
        self,
        event: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Tell the core of an event, then carry out its actions; return the event's result.

        Carrying out an action may cause another event, inside of this call. The actions of that
        event are carried out after those of this one, so the core finishes each event before the
        next, and actions keep their order.
        """
        result = event(*arguments, **named)
        self._carry_out_all()
        return result

    def _carry_out_all(self) -> None:
        if self._carries_out:
            return
        self._carries_out = True
        try:
            while self.core.actions:
                self._carry_out(self.core.actions.popleft())
        finally:
            self._carries_out = False

    def _carry_out(self, action: Action) -> None:
        match action:
            case act.Tell(then=then, with_=arguments):
                then(*arguments)
            case act.Remind(seconds=seconds, of=reminder):
                self._reactor.call_later(seconds, partial(self._remind, reminder))
            case act.Fork():
                self._fork(action)
            case act.Unwatch():
                self._supervisor.owner.on_stopping()
            case act.EndUnknown():
                self._end_unknown()
            case act.EndAll():
                self._end_all()
            case act.StartAnew(stopped=stopped):
                self._supervisor.on_gone(stopped)
            case act.EndGuest():
                self._end_guest(action)
            case _:
                guest = self._processes.get(action.number)
                if guest is not None:  # otherwise it ended meanwhile, and the core knows that
                    self._carry_out_on(guest, action)

    def _carry_out_on(self, guest: Guest, action: Action) -> None:
        """Carry out an action on one process."""
        match action:
            case act.Stop():
                guest.signal(signal.SIGSTOP)
            case act.Continue():
                guest.signal(signal.SIGCONT)
            case act.Wake():
                self._supervisor.on_waking(guest)
                guest.signal(signal.SIGCONT)
            case act.Drop(number=number):
                del self._processes[number]
                guest.close()
            case act.Protect() if self._supervisor.zygote is not None:
                self._supervisor.zygote.protect(guest)
            case act.TakeOver():
                self._take_over(guest, action)
            case act.Replay(request=request):
                self._send(guest, action.number, _replayed(request))
            case act.Serve(number=number):
                self._supervisor.on_serving(guest)
                self.play(self.core.served, number)
            case act.Restored(outcome=outcome):
                self._supervisor.on_restored(guest, outcome)

    def _remind(self, reminder: Reminder) -> None:
        self.play(self.core.reminded, reminder)
        if reminder.cause is Cause.look:
            self.look()

    # --- processes ------------------------------------------------------------------------------

    @property
    def current(self) -> Guest | None:
        """The process that starts, serves or takes over, or None."""
        return None if self.core.guest is None else self._processes.get(self.core.guest)

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self.current if self.core.serves else None

    def process_of(self, snapshot: Snapshot) -> Guest | None:
        """Return the copy that holds a snapshot, or None."""
        return self._processes.get(snapshot.copy.number)

    def start(self, guest: Guest) -> None:
        """Make a process the next guest. The zygote has forked it, or will."""
        self.base = self.parent = None
        self._add_process(self.core.guest_starts(), guest)

    def begin(self, *, idle: bool) -> None:
        """Serve by the guest that was started. ``idle`` says that no request waits for it."""
        if (guest := self.current) is not None:
            self._use_lineage(guest.lineage, guest.lineage.number)
            self.play(self.core.guest_is_ready, idle=idle)

    def _use_lineage(self, lineage: Lineage, user: int) -> None:
        """Become a user of a lineage, under this number."""
        self.lineage = lineage
        self._user = user
        if self not in lineage.users:
            lineage.users.append(self)

    def _new_user(self, lineage: Lineage) -> int:
        """Return the number for a fork, which has OS sessions of its own."""
        zygote = self._supervisor.zygote
        return lineage.number if zygote is None else zygote.new_user()

    def _is_in_own_session(self, guest: Guest) -> bool:
        """Return whether a copy is in an OS session of its user, or its pid is not known yet."""
        return guest.pid is None or self.holds(guest.pid)

    def _has_begun_session(self, number: int) -> bool:
        """Return whether a copy that reports ``Resumed`` is in an OS session of its user.

        A copy that stayed in another user's session could leave programs there, which would count
        as the other's.
        """
        self._read_zygote()  # the zygote reports a session before the copy can begin it
        return self._is_in_own_session(self._processes[number])

    def _add_process(self, number: int, guest: Guest) -> None:
        """Listen to a process from now on."""
        self._processes[number] = guest
        guest.on_message = partial(self._on_message, number)
        guest.on_text = partial(self._on_text, number)
        guest.on_lost = partial(self._on_lost, number)

    def _speaks_as_guest(self, number: int) -> bool:
        """Return whether a process speaks as the guest: it is the guest, and starts or serves."""
        return number == self.core.guest and not self.core.restores

    def _on_message(self, number: int, message: messages.FromGuest) -> None:
        if self._speaks_as_guest(number):
            self._supervisor.on_message(message)
            return
        core = self.core
        match message:
            case messages.SnapshotReady(id=own, connections=connections) if own == number:
                if self._is_new(number):
                    self.play(core.fork_stood, number, connections)
                else:
                    self.play(core.copy_ended, number, killed=False)
            case messages.SnapshotReady(id=other):
                self.play(core.fork_parted, number, other)
            case messages.SnapshotFailed(id=other, errno=error):
                self.play(core.fork_failed, number, other, error)
            case _ if number == core.guest:
                if core.takeover is not None and not core.takeover.confined:
                    # The zygote reports the copy's locks before the copy can report anything.
                    self._read_zygote()
                if isinstance(message, messages.Resumed) and not self._has_begun_session(number):
                    self.play(core.copy_ended, number, killed=False)
                else:
                    self.play(core.takeover_said, message)
            case _:
                self.play(core.copy_ended, number, killed=False)

    def _read_zygote(self) -> None:
        if self._supervisor.zygote is not None:
            self._supervisor.zygote.read_rest()

    def _is_new(self, number: int) -> bool:
        """Return whether a copy's process is of the guest's lineage and is not known already."""
        copy = self._processes[number]
        known_pids = {process.pid for process in self._processes.values() if process is not copy}
        known_pids.update(self.others())  # forks are in its session, too
        return copy.pid not in known_pids and copy.sender_is_ours()

    def _on_text(self, number: int, written: messages.Stream) -> None:
        if number == self.core.guest or not self.core.is_copy(number):
            self._supervisor.on_text(written)

    def _on_lost(self, number: int, reason: str) -> None:
        """Act on the end of a channel. ``reason`` says how the protocol was broken, or is ""."""
        guest = self._processes.get(number)
        if guest is not None and self._speaks_as_guest(number):
            self._supervisor.on_channel_lost(guest, reason)
        elif guest is not None:
            self.play(self.core.copy_ended, number, killed=not reason)

    def _fork(self, action: act.Fork) -> None:
        """Have a guest or a copy fork, after the zygote was told to let that fork through."""
        if self._grants_devices:
            self._read_zygote()  # the zygote reports a use of a device before the request goes on
        maker = self._processes.get(action.maker)
        number = action.number
        if maker is not None and self.uses_device(action.maker):
            self.play(self.core.fork_of_device_user, number)
            return
        if maker is None:
            self.play(self.core.fork_not_sent, number)
            return
        try:
            copy = Guest(self._reactor, check_sender=True)
        except OSError as exc:
            self.play(self.core.fork_not_asked, number, exc.strerror or "")
            return
        copy.lineage = maker.lineage
        copy.session = maker.session
        self._add_process(number, copy)
        if self._supervisor.zygote is not None:
            # Only ``maker`` may use this fork; otherwise a running cell could. The pid is None only
            # for a copy that has not reported yet, and then the guest is gone.
            self._supervisor.zygote.allow_fork(maker.lineage.number, maker.pid)
        is_sent = maker.send_with(messages.Snapshot(id=number), copy.child_fds)
        copy.close_child_fds()
        if not is_sent:
            self.play(self.core.fork_not_sent, number)

    def _end_guest(self, action: act.EndGuest) -> None:
        guest = None if action.number is None else self._processes.pop(action.number, None)
        self._supervisor.on_ending(guest, has_failed=action.has_failed)
        if guest is not None:
            guest.drain()
            guest.close()
        if action.empties and self._supervisor.empty_shared_memory():
            self.play(self.core.emptied)

    def _take_over(self, guest: Guest, action: act.TakeOver) -> None:
        """Tell a copy to take over. First let it begin an OS session, if it has none of its own."""
        begins = not self._is_in_own_session(guest)
        if begins and self._supervisor.zygote is not None:
            self._supervisor.zygote.begin_session(guest, self._user)
            guest.session = guest.pid or -1
        resume = messages.Resume(
            seed=os.urandom(32),
            session=begins,
            again=action.again,
            inputs=action.inputs,
            plan=action.plan,
            place=action.place,
            fork=action.fork,
        )
        self._send(guest, action.number, resume)

    def _send(self, guest: Guest, number: int, message: messages.ToGuest) -> None:
        try:
            guest.send(message)
        except CellblockError:
            self.play(self.core.copy_ended, number, killed=guest.closed)

    # --- what the core reads (``World``) --------------------------------------------------------

    def now(self) -> float:
        """Return the time in seconds."""
        return self._clock()

    def _pid(self, process: int | None) -> int | None:
        guest = None if process is None else self._processes.get(process)
        return None if guest is None else guest.pid

    def resident(self, process: int | None) -> int:
        """Return the bytes of memory that a process has for itself."""
        return private_bytes(self._pid(process))

    def reading(self, process: int | None, resident: int, given_pages: int) -> Reading:
        """Return what memory a process has. ``World.reading`` explains the arguments."""
        return memory.read(self._pid(process), resident, given_pages)

    def uses_device(self, process: int | None) -> bool:
        """Return whether a process has used a device, as far as the zygote has reported it."""
        if not self._grants_devices or process is None:
            return False
        guest, zygote = self._processes.get(process), self._supervisor.zygote
        return guest is not None and zygote is not None and zygote.uses_device(guest)

    def is_idle(self) -> bool:
        """Return whether no request is under way."""
        return self._supervisor.owner.idle()

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything."""
        return self._supervisor.owner.runs_beside()

    def running(self) -> Any:
        """Return the message of the request that the guest has begun, or None."""
        return self._supervisor.owner.running()

    def others_are_settled(self) -> bool:
        """Return whether no other user of the lineage has a copy that is forking."""
        users = self.lineage.users if self.lineage is not None else ()
        return all(user.is_settled() for user in users if user is not self)

    # --- what the session asks for --------------------------------------------------------------

    @property
    def chain(self) -> Chain:
        """The session's snapshots."""
        return self.core.chain

    def steps(self) -> list[UndoStep]:
        """Return the states that ``%undo`` can go back to, the nearest first."""
        return self.core.steps()

    def why_no_copy(self) -> str:
        """Return why the guest can't be copied in its present state, or ""."""
        return self.core.why_no_copy()

    def is_forking(self) -> bool:
        """Return whether a copy was asked for that does not stand yet."""
        return self.core.is_forking()

    def checkpoint(self, name: str, on_result: Callable[[str], None], cell: int = 0) -> None:
        """Keep the guest's state under a name; ``on_result`` is called with why not, or ""."""
        self.play(self.core.checkpoint, name, on_result, cell)

    def restore(self, name: str, refused: Callable[[str], None]) -> None:
        """Go back to a checkpoint, and keep it; ``refused`` is called if that can't be done."""
        self.play(self.core.restore, name, refused)

    def go_to_branch(self, name: str, start: str, on_result: Callable[[str], None]) -> None:
        """Go to a branch, or begin it, as ``Core.go_to_branch`` explains."""
        self.play(self.core.go_to_branch, name, start, on_result)

    def drop_name(self, name: str) -> str:
        """Drop a branch or a checkpoint; return why not, or ""."""
        return self.play(self.core.drop_name, name)

    def listing(self, *, begins: bool = False) -> names.BranchListing:
        """Return the branches and checkpoints that are kept."""
        return names.listing(self.core.branch, self.chain.named(), begins=begins)

    def fork(self, count: int, on_copies: Callable[[list[Snapshot]], None]) -> None:
        """Have ``count`` copies made of the guest as it is; ``on_copies`` gets those made."""
        self.play(self.core.fork, count, on_copies)

    def let_go(self, *copies: Snapshot | None) -> None:
        """Drop copies that are not needed after all."""
        self.play(self.core.let_go, *copies)

    def give_away(self, copy: Snapshot) -> Guest:
        """Give a copy to another session; return its process."""
        self.play(self.core.give_away, copy)
        return self._processes.pop(copy.copy.number)

    def adopt(self, guest: Guest, had: Reading, takeover: Takeover, parent: Snapshots) -> int:
        """Have a copy that another session gave away take over here; return its number.

        The copies that this session has stay until the new one serves.
        """
        user = self._user
        if self.lineage is None:
            self.base = replace(had, huge=None)
            self.parent = parent
        if self.lineage is not guest.lineage:
            user = self._new_user(guest.lineage)
        self._use_lineage(guest.lineage, user)
        number = self.core.adopt(had, takeover)
        self._add_process(number, guest)
        self._carry_out_all()
        return number

    # --- what memory is held, and by which process ----------------------------------------------

    def look(self) -> dict[int, int]:
        """Make sure that all copies are stopped and hold no more memory than they may.

        Return the bytes that each copy has from its guest, by pid.
        """
        self.play(self.core.stop_again)
        if (answer := self._shares.take()) is not None:
            self.play(self.core.shares_read, *answer)
        readings = dict(filter(None, map(self._measure, self.chain.all())))
        self.play(self.core.copies_read, readings)
        if doubted := self.play(self.core.doubts):
            self._read_shares(doubted)
        sizes = (
            (self._pid(snapshot.copy.number), snapshot.had.size) for snapshot in self.chain.all()
        )
        return {pid: size for pid, size in sizes if pid is not None}

    def _measure(self, snapshot: Snapshot) -> tuple[int, CopyReading] | None:
        """Read what memory a copy has come to hold and has written to; return it with its number.

        Nothing is read if the copy has used no processor time since the last reading. Return None
        if the copy does not stand, or is gone.
        """
        copy, pid = snapshot.copy, self._pid(snapshot.copy.number)
        used = Gauge(pid).cpu() if pid is not None and snapshot.kept else None
        if pid is None or used is None:
            return None
        if used == copy.used:
            return copy.number, CopyReading(used, copy.grew, copy.rewrote)
        return copy.number, CopyReading(used, *memory.copy_bytes(pid, snapshot.had, self._stats))

    def _read_shares(self, numbers: frozenset[int]) -> None:
        """Have a thread ask the OS kernel which pages processes share. A later look tells the core.

        The guest is asked about last, because it alone may keep its memory locked.
        """
        ordered = sorted(numbers, key=lambda number: number == self.core.guest)
        pids = {number: pid for number in ordered if (pid := self._pid(number)) is not None}

        def ask_kernel() -> tuple[frozenset[int], dict[int, shares.Shares]]:
            shares_by_pid = shares.read(pids.values()) or {}
            return numbers, {
                number: shares_by_pid[pid] for number, pid in pids.items() if pid in shares_by_pid
            }

        self._shares.begin_if_due(ask_kernel)

    def held_together(self) -> int:
        """Return how many bytes a sandbox and its forks hold together; 0 if it has no forks.

        Memory that they share counts once. The estimate lacks huge pages, and what a child has
        written to a guest's memory. If the guests could hold too much even so, by what each of them
        shows, the OS kernel is asked, too.
        """
        users = self.lineage.users if self.lineage is not None else []
        if len(users) <= 1:
            return 0
        estimate = sum(user.held_in_tree() for user in users)
        memory_max = self.core.policy.forks_max_bytes
        if memory_max is None or estimate > memory_max:
            return estimate
        resident = sum(user.shown() for user in users)
        if resident <= memory_max:
            return estimate
        # One user asks for all, so that there is one reading at a time.
        first = next((user for user in users if isinstance(user, Snapshots)), self)
        # Bounded by what they show now: a guest that was large at the reading may be gone.
        return max(estimate, min(resident, first.measured_together()))

    def measured_together(self) -> int:
        """Return how many bytes all guests of the lineage hold, as the OS kernel divides pages.

        This returns the last answer, once, or 0 if there is none, and has a thread ask anew. Memory
        that only copies have does not count.
        """
        answer = self._together.take() or 0
        users = self.lineage.users if self.lineage is not None else []
        groups = {pid: user.pids() for user in users if (pid := user.guest_pid()) is not None}
        programs = {pid for user in users for pid in user.programs()}
        programs.difference_update(*groups.values())

        def ask() -> int:
            by_pid = shares.read({*programs, *(pid for pids in groups.values() for pid in pids)})
            by_pid = by_pid or {}
            program_bytes = sum(by_pid[pid].share for pid in programs if pid in by_pid)
            return program_bytes + sum(_of_guest(pid, pids, by_pid) for pid, pids in groups.items())

        self._together.begin_if_due(ask)
        return answer

    def guest_pid(self) -> int | None:
        """Return the pid of the guest that serves, starts or takes over, or None."""
        return self._pid(self.core.guest)

    def held_in_tree(self) -> int:
        """Return the bytes that this user adds to those of the lineage's other users.

        These are the bytes that the guest holds (for a fork, only those for itself), those that
        forks of it hold and the guest no longer has, and those of programs as last looked at.
        """
        guest = self.core.guest
        if self.lineage is None or guest is None:
            return 0
        guest_reading = Reading(
            self.resident(guest), self.core.given + page_faults(self._pid(guest))
        )
        held_bytes = (
            guest_reading.size if self.base is None else memory.added(self.base, guest_reading)
        )
        users = self.lineage.users
        forks = (fork for fork in users if isinstance(fork, Snapshots) and fork.parent is self)
        bases = sorted((fork.base for fork in forks if fork.base), key=lambda fork: fork.faults)
        held_bytes += self.programs_held()
        return held_bytes + sum(
            memory.left_behind(*readings) for readings in pairwise([*bases, guest_reading])
        )

    def shown(self) -> int:
        """Return the bytes that the guest and the programs of its cells show as resident."""
        return private_bytes(self.guest_pid()) + self.programs_shown()

    def is_settled(self) -> bool:
        """Return whether no copy is being forked."""
        return self.core.is_settled()

    def others(self) -> list[int]:
        """Return the pids of the lineage's other users: of their guests and copies."""
        return self.lineage.others(self) if self.lineage is not None else []

    def holds(self, pid: int) -> bool:
        """Return whether a process is in an OS session of this user, not of another's."""
        return self.lineage is not None and self.lineage.user_of(pid) == self._user

    def had_started(self, message: messages.Reaped) -> bool:
        """Return whether a process that ended was in an OS session of this user."""
        lineage = self.lineage
        return lineage is not None and lineage.sessions.get(message.session) == self._user

    def pids(self) -> list[int]:
        """Return the pids of the guest and its copies."""
        return [process.pid for process in self._processes.values() if process.pid is not None]

    def _end_unknown(self) -> None:
        """Have the zygote end all processes of this user that are neither guest nor copy.

        Not before the guest's pid is known, or the guest would be ended, too.
        """
        guest = self.current
        zygote = self._supervisor.zygote
        if guest is not None and zygote is not None and guest.pid is not None:
            zygote.keep_only(guest.lineage, self._user, self.pids(), self.others())

    def _end_all(self) -> None:
        """Have the zygote end all processes of this user, and leave the lineage."""
        lineage = self.lineage
        self.lineage = None
        if lineage is None:
            return
        if self in lineage.users:
            lineage.users.remove(self)
        if self._supervisor.zygote is not None:
            zygote = self._supervisor.zygote
            zygote.keep_only(lineage, self._user, (), lineage.others(self))


def _replayed(request: PastRequest) -> messages.ToGuest:
    """Return the message that has a request run again."""
    message: messages.ToGuest = request.message
    if request.repeatable and isinstance(message, messages.Execute):
        return replace(message, again=True)
    return message


def _of_guest(pid: int, pids: list[int], shares_by_pid: dict[int, shares.Shares]) -> int:
    """Return the bytes that a guest has, counting those that it shares with its copies fully.

    ``pid`` is the guest, ``pids`` are the guest and its copies, ``shares_by_pid`` their shares of
    all pages. The OS kernel divides a page among the processes that have it. So the shares of the
    guest and its copies are added up, and what the copies have and the guest has not is taken off.
    """
    guest = shares_by_pid.pop(pid, None)
    if guest is None:
        return 0
    copies = [shares_by_pid[copy_pid] for copy_pid in pids if copy_pid in shares_by_pid]
    return guest.share + sum(copy.share for copy in copies) - shares.beyond(guest, copies)
