"""The processes of a session: what the core decides about them is done here.

``Core`` (``host.state``) knows which process is the guest, which copies there are, and what comes
next. ``Snapshots`` has the host's end of each process by its number. It tells the core what it sees
and hears of them, reads for it what it asks for, and carries out its actions.
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
        """Return whether a subshell runs anything: no snapshot can be taken."""

    def running(self) -> Any:
        """Return the message of the request that the guest has begun, or None."""

    def on_notice(self, text: str) -> None:
        """Tell the user what is not kept, and why."""

    def on_stopping(self) -> None:
        """Stop watching the guest: it is no more."""


class Serving(Protocol):
    """What snapshots need of the supervisor that has them."""

    zygote: Zygote | None

    @property
    def owner(self) -> SnapshotOwner:
        """The session's requests."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what the guest says."""

    def on_text(self, written: messages.Stream) -> None:
        """Take text that the guest wrote."""

    def on_channel_lost(self, guest: Guest, reason: str) -> None:
        """Act on a guest's channel that broke."""

    def on_ending(self, guest: Guest | None, *, has_failed: bool) -> None:
        """Take leave of the process that was the guest, if there was one."""

    def empty_shared_memory(self) -> bool:
        """Remove what guests left in their /dev/shm; return whether there was anything."""

    def on_waking(self, guest: Guest) -> None:
        """Have it told how a copy ends that is to serve."""

    def on_serving(self, guest: Guest) -> None:
        """Listen to a copy that serves as to any guest."""

    def on_restored(self, guest: Guest, outcome: Stopped) -> None:
        """Tell the session what became of its state, and send what waits."""

    def on_gone(self, stopped: Stopped) -> None:
        """Start anew: there is no snapshot of what was lost."""


class Snapshots:
    """The guest of a session and its copies, which ``supervisor`` has: a driver of their ``core``.

    It is the core's ``World``, too.
    """

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        policy: Policy,
        supervisor: Serving,
    ) -> None:
        self._reactor, self._clock = reactor, clock
        self._supervisor = supervisor
        budget = Budget(policy.snapshots, clock, supervisor.owner.on_notice)
        self.core = Core(policy, budget, self)
        self._grants_devices = bool(policy.devices)
        #: The host's ends of all processes that have not ended, by the core's numbers.
        self._processes: dict[int, Guest] = {}
        #: What guest and copies descend from: the last, when there is none.
        self.lineage: Lineage | None = None
        #: Which of its sessions are those of these processes, by their user's number.
        self._user = 0
        #: What cells have started, with copies among it; the bytes that these processes hold by
        #: themselves, and those that they show.
        self.programs: Callable[[], list[int]] = list
        self.programs_held: Callable[[], int] = int
        self.programs_shown: Callable[[], int] = int
        self._carries_out = False
        self._stats = StatReader()
        #: Of a fork: what it had when it was made, and whose it was.
        self.base: Reading | None = None
        self.parent: Snapshots | None = None
        #: How copies share pages: the answer to ``Core.doubts``, and of which processes it is.
        self._shares = SpacedReading[tuple[frozenset[int], dict[int, shares.Shares]]]()
        #: What all guests of the lineage hold together, if this is the first of its users.
        self._together = SpacedReading[int]()

    @property
    def user(self) -> int:
        """The number by which the zygote knows whose sessions are those of these processes."""
        return self._user

    # --- events and actions ---------------------------------------------------------------------

    def play(
        self,
        event: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Tell the core of an event, and carry out what it has done about that.

        Who is told something may bring about another event. What comes of that follows what is
        being carried out: the core has decided each before the next, and actions keep their order.
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
                if guest is not None:  # else it was ended meanwhile, and the core knows that
                    self._carry_out_on(guest, action)

    def _carry_out_on(self, guest: Guest, action: Action) -> None:
        """Carry out what concerns one process."""
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
                self._send(guest, action.number, _again(request))
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
        """The process that starts, serves or is to take over, or None."""
        return None if self.core.guest is None else self._processes.get(self.core.guest)

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self.current if self.core.serves else None

    def process_of(self, snapshot: Snapshot) -> Guest | None:
        """Return the copy that holds a snapshot, or None."""
        return self._processes.get(snapshot.copy.number)

    def start(self, guest: Guest) -> None:
        """Have a process that the zygote forks, or has, be the next guest."""
        self.base = self.parent = None
        self._know(self.core.guest_starts(), guest)

    def begin(self, *, idle: bool) -> None:
        """Serve by the guest that was started."""
        if (guest := self.current) is not None:
            self._use_lineage(guest.lineage, guest.lineage.number)
            self.play(self.core.guest_is_ready, idle=idle)

    def _use_lineage(self, lineage: Lineage, user: int) -> None:
        self.lineage, self._user = lineage, user
        if self not in lineage.users:
            lineage.users.append(self)

    def _new_user(self, lineage: Lineage) -> int:
        """Return the number of a fork, which has sessions of its own."""
        zygote = self._supervisor.zygote
        return lineage.number if zygote is None else zygote.new_user()

    def _is_in_own_session(self, guest: Guest) -> bool:
        """Return whether a copy is in a session of its user's, as far as that is known."""
        return guest.pid is None or self.holds(guest.pid)

    def _has_begun_session(self, number: int) -> bool:
        """Return whether a copy that says it has taken over is in a session of its user's.

        Whoever stays in another's would leave programs there, as that one's.
        """
        self._read_zygote()  # it says which sessions there are before one begins
        return self._is_in_own_session(self._processes[number])

    def _know(self, number: int, guest: Guest) -> None:
        """Hear a process from now on."""
        self._processes[number] = guest
        guest.on_message = partial(self._heard, number)
        guest.on_text = partial(self._wrote, number)
        guest.on_lost = partial(self._on_lost, number)

    def _is_guests(self, number: int) -> bool:
        """Return whether what a process says is the guest's word, which starts or serves."""
        return number == self.core.guest and not self.core.restores

    def _heard(self, number: int, message: messages.FromGuest) -> None:
        if self._is_guests(number):
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
                    self._read_zygote()  # it says so before the copy can
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
        """Return whether a copy's process is the guest's, and none that is known already."""
        copy = self._processes[number]
        known = {one.pid for one in self._processes.values() if one is not copy}
        known.update(self.others())  # forks are in its session, too
        return copy.pid not in known and copy.sender_is_ours()

    def _wrote(self, number: int, written: messages.Stream) -> None:
        if number == self.core.guest or not self.core.is_copy(number):
            self._supervisor.on_text(written)

    def _on_lost(self, number: int, reason: str) -> None:
        """Hear that a channel ended; ``reason`` says how the process broke the protocol."""
        guest = self._processes.get(number)
        if guest is not None and self._is_guests(number):
            self._supervisor.on_channel_lost(guest, reason)
        elif guest is not None:
            self.play(self.core.copy_ended, number, killed=not reason)

    def _fork(self, action: act.Fork) -> None:
        """Have a guest or a copy fork, with the zygote's leave."""
        if self._grants_devices:
            self._read_zygote()  # it says who uses a device before that goes on
        maker, number = self._processes.get(action.maker), action.number
        if maker is not None and self.uses_device(action.maker):
            self.play(self.core.fork_of_device_user, number)
            return
        if maker is None:
            self.play(self.core.fork_not_sent, number)
            return
        try:
            made = Guest(self._reactor, check_sender=True)
        except OSError as exc:
            self.play(self.core.fork_not_asked, number, exc.strerror or "")
            return
        made.lineage, made.session = maker.lineage, maker.session
        self._know(number, made)
        if self._supervisor.zygote is not None:
            # Only ``maker`` may use this fork: a running cell could take it otherwise. The pid is
            # None only for a copy that has not told it yet, and then the guest is gone.
            self._supervisor.zygote.allow_fork(maker.lineage.number, maker.pid)
        is_sent = maker.send_with(messages.Snapshot(id=number), made.child_fds)
        made.close_child_fds()
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
        """Tell a copy to take over."""
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

    # --- what the core asks ---------------------------------------------------------------------

    def now(self) -> float:
        """Return the time."""
        return self._clock()

    def _pid(self, process: int | None) -> int | None:
        guest = None if process is None else self._processes.get(process)
        return None if guest is None else guest.pid

    def resident(self, process: int | None) -> int:
        """Return the bytes that a process has for itself."""
        return private_bytes(self._pid(process))

    def reading(self, process: int | None, resident: int, given: int) -> Reading:
        """Return what a process has, where those that it has its state from were given pages."""
        return memory.read(self._pid(process), resident, given)

    def uses_device(self, process: int | None) -> bool:
        """Return whether a process was seen to use a device."""
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
        """Return whether nothing is being forked of other guests in the same sessions."""
        users = self.lineage.users if self.lineage is not None else ()
        return all(user.is_settled() for user in users if user is not self)

    # --- what a session asks for ----------------------------------------------------------------

    @property
    def chain(self) -> Chain:
        """The states that there are."""
        return self.core.chain

    def steps(self) -> list[UndoStep]:
        """Return what ``%undo`` can go back to, the nearest first."""
        return self.core.steps()

    def why_no_copy(self) -> str:
        """Return why the guest is not copied as it is now, or nothing."""
        return self.core.why_no_copy()

    def asked(self) -> bool:
        """Return whether a process was asked for a copy that does not stand yet."""
        return self.core.is_forking()

    def checkpoint(self, name: str, then: Callable[[str], None], cell: int = 0) -> None:
        """Keep the guest's state under a name; ``then`` gets why it is not kept, or nothing."""
        self.play(self.core.checkpoint, name, then, cell)

    def restore(self, name: str, refused: Callable[[str], None]) -> None:
        """Go back to a checkpoint, which is kept; ``refused`` gets why that can't be done."""
        self.play(self.core.restore, name, refused)

    def go_to_branch(self, name: str, start: str, then: Callable[[str], None]) -> None:
        """Go to a branch, or begin it: ``Core.go_to_branch``."""
        self.play(self.core.go_to_branch, name, start, then)

    def drop_name(self, name: str) -> str:
        """Drop a branch or a checkpoint; return why not, or nothing."""
        return self.play(self.core.drop_name, name)

    def listing(self, *, begins: bool = False) -> names.BranchListing:
        """Return the branches and checkpoints that there are; copies that ended are not."""
        return names.listing(self.core.branch, self.chain.named(), begins=begins)

    def fork(self, count: int, then: Callable[[list[Snapshot]], None]) -> None:
        """Have so many copies made of the guest as it is; ``then`` gets them, or fewer."""
        self.play(self.core.fork, count, then)

    def let_go(self, *copies: Snapshot | None) -> None:
        """Drop copies that are not wanted after all."""
        self.play(self.core.let_go, *copies)

    def give_away(self, copy: Snapshot) -> Guest:
        """Have a copy be another session's from now on; return its process."""
        self.play(self.core.give_away, copy)
        return self._processes.pop(copy.copy.number)

    def adopt(self, guest: Guest, had: Reading, takeover: Takeover, parent: Snapshots) -> int:
        """Have a copy that another session gave away take over here; return its number.

        What there is stays until it serves.
        """
        user = self._user
        if self.lineage is None:
            self.base, self.parent = replace(had, huge=None), parent
        if self.lineage is not guest.lineage:
            user = self._new_user(guest.lineage)
        self._use_lineage(guest.lineage, user)
        number = self.core.adopt(had, takeover)
        self._know(number, guest)
        self._carry_out_all()
        return number

    # --- what is held, and by whom --------------------------------------------------------------

    def look(self) -> dict[int, int]:
        """See that all copies are still and hold no more than they may.

        Return the processes of all, and how many bytes each has from its guest.
        """
        self.play(self.core.stop_again)
        if (answer := self._shares.take()) is not None:
            self.play(self.core.shares_read, *answer)
        found = dict(filter(None, map(self._measure, self.chain.all())))
        self.play(self.core.copies_read, found)
        if doubted := self.play(self.core.doubts):
            self._read_shares(doubted)
        sized = ((self._pid(one.copy.number), one.had.size) for one in self.chain.all())
        return {pid: size for pid, size in sized if pid is not None}

    def _measure(self, snapshot: Snapshot) -> tuple[int, CopyReading] | None:
        """Read what a copy has come to hold, and wrote to, if it did anything since that was read.

        Return its number, and that; None if it does not stand, or is gone.
        """
        copy, pid = snapshot.copy, self._pid(snapshot.copy.number)
        used = Gauge(pid).cpu() if pid is not None and snapshot.kept else None
        if pid is None or used is None:
            return None
        if used == copy.used:
            return copy.number, CopyReading(used, copy.grew, copy.rewrote)
        return copy.number, CopyReading(used, *memory.taken(pid, snapshot.had, self._stats))

    def _read_shares(self, numbers: frozenset[int]) -> None:
        """Have the OS kernel asked which pages processes share; a look after that tells the core.

        The guest comes last, since it alone may keep its memory locked.
        """
        ordered = sorted(numbers, key=lambda number: number == self.core.guest)
        pids = {number: pid for number in ordered if (pid := self._pid(number)) is not None}

        def ask() -> tuple[frozenset[int], dict[int, shares.Shares]]:
            found = shares.read(pids.values()) or {}
            return numbers, {number: found[pid] for number, pid in pids.items() if pid in found}

        self._shares.begin_if_due(ask)

    def held_together(self) -> int:
        """Return how many bytes a sandbox and its forks hold; 0 where there are none.

        What they share counts once. This is an estimate that lacks huge pages, and what a child has
        written to a guest's memory. If the guests may hold too much by what each of them has, the
        OS kernel is asked, too.
        """
        users = self.lineage.users if self.lineage is not None else []
        if len(users) <= 1:
            return 0
        estimate = sum(user.held_in_tree() for user in users)
        most = self.core.policy.forks_max_bytes
        if most is None or estimate > most:
            return estimate
        whole = sum(user.shown() for user in users)
        if whole <= most:
            return estimate
        # One of them asks for all: there is one reading at a time.
        first = next((user for user in users if isinstance(user, Snapshots)), self)
        # A guest that was large when that was read may be gone by now.
        return max(estimate, min(whole, first.measured_together()))

    def measured_together(self) -> int:
        """Return what all guests of the lineage hold, as the OS kernel divides pages, and ask anew.

        An answer is returned once, 0 while there is none. What only copies have does not count.
        """
        found = self._together.take() or 0
        users = self.lineage.users if self.lineage is not None else []
        groups = {pid: user.pids() for user in users if (pid := user.guest_pid()) is not None}
        programs = {pid for user in users for pid in user.programs()}
        programs.difference_update(*groups.values())

        def ask() -> int:
            known = shares.read({*programs, *(pid for pids in groups.values() for pid in pids)})
            known = known or {}
            of_programs = sum(known[pid].share for pid in programs if pid in known)
            return of_programs + sum(_of_guest(pid, pids, known) for pid, pids in groups.items())

        self._together.begin_if_due(ask)
        return found

    def guest_pid(self) -> int | None:
        """Return the process of the guest that serves, starts or takes over, or None."""
        return self._pid(self.core.guest)

    def held_in_tree(self) -> int:
        """Return what the guest holds, or a fork for itself, and what forks of it still hold.

        What programs of its cells hold is as they were last looked at.
        """
        guest = self.core.guest
        if self.lineage is None or guest is None:
            return 0
        now = Reading(self.resident(guest), self.core.given + page_faults(self._pid(guest)))
        held = now.size if self.base is None else memory.added(self.base, now)
        users = self.lineage.users
        forks = (one for one in users if isinstance(one, Snapshots) and one.parent is self)
        bases = sorted((one.base for one in forks if one.base), key=lambda one: one.faults)
        held += self.programs_held()
        return held + sum(memory.left_behind(*both) for both in pairwise([*bases, now]))

    def shown(self) -> int:
        """Return the bytes that the guest shows, and the programs that its cells have started."""
        return private_bytes(self.guest_pid()) + self.programs_shown()

    def is_settled(self) -> bool:
        """Return whether nothing is being forked."""
        return self.core.is_settled()

    def others(self) -> list[int]:
        """Return the processes of forks that descend from the same guest, and of their copies."""
        return self.lineage.others(self) if self.lineage is not None else []

    def holds(self, pid: int) -> bool:
        """Return whether a process is in a session of the guest's, and of none of its forks."""
        return self.lineage is not None and self.lineage.user_of(pid) == self._user

    def had_started(self, ended: messages.Reaped) -> bool:
        """Return whether a process that ended was in a session of the guest's."""
        lineage = self.lineage
        return lineage is not None and lineage.sessions.get(ended.session) == self._user

    def pids(self) -> list[int]:
        """Return the processes that the guest and its copies are."""
        return [one.pid for one in self._processes.values() if one.pid is not None]

    def _end_unknown(self) -> None:
        """Have the zygote end whatever is neither the guest nor a snapshot that stands.

        A guest that is about to serve and has not told its pid yet is claimed for when it does.
        """
        guest, zygote = self.current, self._supervisor.zygote
        if guest is not None and zygote is not None and guest.pid is not None:
            zygote.keep_only(guest.lineage, self._user, self.pids(), self.others())

    def _end_all(self) -> None:
        """Have whatever was forked of the guest ended: nothing of it is to go on."""
        lineage, self.lineage = self.lineage, None
        if lineage is None:
            return
        if self in lineage.users:
            lineage.users.remove(self)
        if self._supervisor.zygote is not None:
            zygote = self._supervisor.zygote
            zygote.keep_only(lineage, self._user, (), lineage.others(self))


def _again(request: PastRequest) -> messages.ToGuest:
    """Return what has a request run again."""
    message: messages.ToGuest = request.message
    if request.repeatable and isinstance(message, messages.Execute):
        return replace(message, again=True)
    return message


def _of_guest(pid: int, pids: list[int], known: dict[int, shares.Shares]) -> int:
    """Return the bytes that a guest has, of the shares that it and its copies have of all pages.

    ``pids`` are the guest, ``pid``, and the copies. A page that a copy has, too, is divided among
    them: so their shares are added up, and what the copies have beyond the guest is taken off.
    """
    guest = known.pop(pid, None)
    if guest is None:
        return 0
    copies = [known[each] for each in pids if each in known]
    return guest.share + sum(copy.share for copy in copies) - shares.beyond(guest, copies)
