r"""Which process is the guest, which copies hold earlier states, and who waits for what.

``Core`` owns these facts for one session. Events go in as calls, and what there is to do comes out
as ``actions``, in order (``actions``). It reads what it needs to know of the outside from a
``World``, changes nothing there, and so can be played in a test: hundreds of thousands of events a
second.

The guest::

             guest_starts      guest_is_ready         guest_lost, undo, …        serves
    absent ──────────────▶ starting ─────▶ serving ─────────────────▶ restoring ─────────▶ serving
        ▲                     │                                           │
        └─────────────────────┴──────── it ended, and no copy is left ────┘

A snapshot is a state that the guest had, held by a copy: a process that shares its memory with the
guest until one of them writes, and waits::

    none ──────▶ due ──────▶ forking ──────▶ kept ──────▶ lost
        cell_ended   _take       ▲  fork_stood │
                                 └─────────────┘
                                      _try

- *due*: a request ran to its end, or a guest began to serve. A snapshot is taken when nothing comes
  for ``IDLE`` seconds, or at once where what ran can't be run again. A request that comes before
  puts it off. None is taken that can't be afforded (``memory.Budget``).
- *forking*: the guest was asked to fork. It has ``PATIENCE`` seconds.
- *kept*: the copy says that it stands, and is stopped. The newest is used when a cell is killed,
  the older ones for ``%undo``: as many as the policy has room for, and as it needs: none where the
  cells that it may step over can all be run again from newer ones (ADR 0148).
- *lost*: the copy ended, could not be made, or was dropped.

A kill, ``%undo``, ``%restore``, ``%branch``, a fork's beginning and more locks are the same thing:
the guest ends, and the copy of a snapshot becomes it (``_try``, ``_go_on_by``). It forks a twin
first, which holds the snapshot from then on, so that no kill costs a state (ADR 0179).
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from cellblock.host.limits.monitor import slack
from cellblock.host.limits.shares import beyond
from cellblock.host.session.types import Stopped
from cellblock.host.snapshots import memory
from cellblock.host.state import actions as act
from cellblock.host.state import names
from cellblock.host.state.actions import Cause, Reminder
from cellblock.host.state.chain import LATELY, Chain, Copy, PastRequest, Snapshot, UndoStep
from cellblock.host.state.takeover import Heard, Takeover
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cellblock.host.limits.shares import Shares
    from cellblock.policy.model import Policy


#: Seconds without a request that count as idle time.
IDLE: Final = 0.02
#: Seconds that a snapshot may take to stand before the guest's next cell goes on without it.
PATIENCE: Final = 5.0
#: Guests in a row that may be lost by themselves, with nothing run in between: a state that ends
#: every guest which has it is not restored for ever. What a cell ends does not count: the user can
#: run another, or step back.
MAX_LOSSES: Final = 8
#: How often a state may serve and be kept all the same: it may be what ends those that have it.
MAX_SERVED: Final = 8
#: Snapshots that are being forked at a time, at most.
_MAX_FORKING: Final = 3
#: Seconds of the processor that a copy may use between two looks, which is to stand still.
_STILL: Final = 0.05
#: Seconds until what has come to stand, or was set going, is looked at.
_LOOK: Final = 0.1
#: Seconds after which processes that nobody knows are looked for again: one may have been in the
#: middle of its fork.
_AFTERWARDS: Final = 1.0
#: As many of them as there may be until nothing is being forked for a moment.
_MAX_UNKNOWN: Final = 3
#: Why a guest ended that ``%restore`` or a pick had chosen.
PICKED_ENDED: Final = "what was picked ended before it could go on"


class Phase(Enum):
    """How far the guest is; see the module's docstring."""

    absent = "absent"
    starting = "starting"
    serving = "serving"
    restoring = "restoring"


class World(Protocol):
    """What the core asks of the outside. Asking changes nothing there.

    These are asked for and don't come with events, since most cells need none: to read how much
    memory the guest has takes 30 µs.
    """

    def now(self) -> float:
        """Return the time."""

    def resident(self, process: int | None) -> int:
        """Return the bytes that a process has for itself; 0 where there is none."""

    def reading(self, process: int | None, resident: int, given: int) -> memory.Reading:
        """Return what a process has, where those that it has its state from were given pages."""

    def uses_device(self, process: int | None) -> bool:
        """Return whether a process was seen to use a device, which no copy of it would have."""

    def is_idle(self) -> bool:
        """Return whether no request is under way."""

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything: a fork would keep half of what that did."""

    def running(self) -> Any:
        """Return the message of the request that the guest has begun, or None."""

    def others_are_settled(self) -> bool:
        """Return whether nothing is being forked of other guests in the same sessions."""


class CopyReading(NamedTuple):
    """What a copy that waits was seen to have."""

    #: Seconds of the processor.
    used: float
    #: Bytes beyond what its guest had, and of those that it wrote to.
    grew: int
    rewrote: int


class Promise(Struct, eq=False):
    """An answer that waits until what it promises is safe: that the request's effects are kept.

    That is when the request's ``own`` snapshot is kept, or certain that it will not be while the
    guest lives; or when the one ``before`` is, for a request so short that nobody notices when it
    is run again. If the guest is lost first it is safe only when ``own`` serves. Otherwise it is
    never given: the session ends the request with what was lost.
    """

    answer: Callable[[], object]
    own: Snapshot
    before: Snapshot | None


#: A step after another that waits for snapshots: it yields one, and is sent that when it is kept,
#: or None when it is certain that it will not be.
Procedure = Generator[Snapshot, Snapshot | None, Any]


class Core:
    """The state of one session: its guest, and the tree of copies."""

    def __init__(self, policy: Policy, budget: memory.Budget, world: World) -> None:
        self.actions = deque[act.Action]()
        self.policy = policy
        self._budget, self._world = budget, world
        self._numbers = 0
        # Between two events, and so whenever an action is carried out:
        # - a process is the guest, or holds or is to hold one snapshot, or has been given up by
        #   ``Drop``, ``EndGuest`` or ``give_away``: no process is two of these, none is forgotten;
        # - there is a takeover if and only if the guest is being restored, and no guest if and only
        #   if the phase is absent;
        # - a snapshot that is kept has a copy that is stopped, is forking, or will be looked at;
        # - whoever waits, waits for a snapshot of the chain or apart that is not decided yet.
        # ``support.core_play.Play.check`` asserts this in ten thousand storms.
        #
        #: The process that is the guest: it starts, serves, or takes over. Nobody else notes it.
        self.guest: int | None = None
        self.phase = Phase.absent
        #: What is made good while a guest is restored.
        self.takeover: Takeover | None = None
        #: Pages that those were given whose state the guest has from them.
        self.given = 0
        self.chain = Chain()
        #: The branch that the session is on.
        self.branch = names.FIRST
        #: Who waits for which snapshot: answers to requests, and procedures that have begun.
        self._promises: list[Promise] = []
        self._waiting: list[tuple[Snapshot, Procedure]] = []
        #: Which reminder of idle time counts, while a snapshot is due, and the last there was.
        self._due: Reminder | None = None
        self._dues = 0
        #: Reminders that are to come, and that one is enough of.
        self._soon = set[Reminder]()
        #: Guests and copies that were lost since one ran anything to its end.
        self._losses = 0
        #: Copies that did not stand, whose forks something else may have taken.
        self._unknown = 0
        #: The last of them: that they are lost may be seen before the maker's word on why.
        self._lost_forks = deque[int](maxlen=_MAX_FORKING)
        #: Whether the last was refused by the gate.
        self._refused = False
        #: The processes of which it was read last which pages they share.
        self._shares_known = frozenset[int]()
        #: Variables that were set so lately that they may be set once more; then values are let go.
        self._values = deque[PastRequest]()

    def _do(self, action: act.Action) -> None:
        self.actions.append(action)

    def _tell(self, then: Callable[..., object], *with_: Any) -> None:
        self._do(act.Tell(then, with_))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- a guest --------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether there is a guest that serves."""
        return self.phase is Phase.serving

    @property
    def restores(self) -> bool:
        """Whether a copy is to become the guest."""
        return self.phase is Phase.restoring

    def guest_starts(self) -> int:
        """Return the number of a guest that the zygote is to fork."""
        self.guest, self.phase, self.given = self._next_number(), Phase.starting, 0
        return self.guest

    def guest_is_ready(self, *, idle: bool) -> None:
        """Serve by a new guest; it is copied before what waits is sent to it."""
        self.phase = Phase.serving
        if idle:
            self._take_when_idle()
        else:
            self._take()

    def end(self) -> None:
        """End the guest and its copies: nothing of their state goes on."""
        self._end_guest()
        self.takeover = self._due = None
        self._promises.clear()
        self._drop_all()
        self.branch = names.FIRST
        self._do(act.EndAll())

    def _end_guest(self, *, empties: bool = False) -> int | None:
        """End the process that is the guest, if there is one; return which it was."""
        guest, has_failed = self.guest, self.phase is Phase.starting
        self.guest, self.phase = None, Phase.absent
        self._do(act.EndGuest(guest, empties, has_failed))
        return guest

    # --- requests -------------------------------------------------------------------------------

    def cell_began(self) -> None:
        """Put off what is due: a request came, so this is no idle time. It is not sent yet.

        But the first of all is taken now, or nobody could go back to before that request. Not while
        another runs, though: see ``_take_when_idle``.
        """
        if self._due is not None:
            self._due = None
            if not self.chain and self._world.is_idle():
                self._take()

    def cell_ended(
        self, request: PastRequest, answer: Callable[[], object], *, alone: bool = True
    ) -> None:
        """Record that a request ran to its end; ``answer`` is told when it may be answered.

        A short request is answered once the previous snapshot is kept: until its own stands, at
        most this request would have to be run again. A long one can't be run again, so it is
        answered when what it did is safe, whichever one process is killed next; so is one
        with side effects. What comes out the same when it is run again is safe already: none is
        taken for it, until about a second's work would have to be done again.

        If the request is not ``alone`` and another still runs, that one's end is waited for.
        """
        if not self.serves:
            return  # its guest was lost meanwhile, and the session ends it when it knows how
        self._losses = 0
        newest, covered = self.chain.newest(), self.chain.covers_all()
        if not alone:
            self._record(request)
            self._tell(answer)
        elif request.repeatable and newest is not None and covered:
            self._record(request)
            self._tell(answer)
            if not newest.repeatable:
                self._take()
        elif request.short and covered:
            self._record(request)
            self._tell(answer)
            self._take_in_time()
        else:
            suffices = request.short and newest is not None and newest.repeatable
            before = newest if suffices and newest is not None and not newest.kept else None
            self._record(request)
            if (own := self._take()) is None:
                self._tell(answer)
            else:
                self._promises.append(Promise(answer, own, before))

    def _record(self, request: PastRequest) -> None:
        if self.chain:
            newest = self.chain[-1]
            newest.after.append(request)
            if newest.settled and self.chain.is_spare(newest, self.policy.undo_depth):
                self._soon_do(_LOOK, Cause.look)  # nobody waits for the end of a copy
        if isinstance(request.message, messages.SetVariables):
            self._values.append(request)
        while self._values and request.ended - self._values[0].ended > LATELY:
            past = self._values.popleft()
            force_setattr(past, "message", replace(past.message, values={}))

    # --- who waits ------------------------------------------------------------------------------

    def _run(self, procedure: Procedure, sent: Snapshot | None = None) -> None:
        """Go on with a procedure until it waits for a snapshot that is yet to be kept or lost."""
        try:
            snapshot = procedure.send(sent)
            while snapshot.kept or snapshot.lost:
                snapshot = procedure.send(snapshot if snapshot.kept else None)
        except StopIteration:
            return
        self._waiting.append((snapshot, procedure))

    def _decide(self, snapshot: Snapshot) -> None:
        """Go on with who waited for a snapshot that is kept by now, or lost."""
        if self.serves:
            for promise in tuple(self._promises):
                if promise.own is snapshot or (promise.before is snapshot and snapshot.kept):
                    self._promises.remove(promise)
                    self._tell(promise.answer)
        self._go_on_with(lambda one: one is snapshot, snapshot if snapshot.kept else None)

    def _go_on_with(self, is_meant: Callable[[Snapshot], bool], sent: Snapshot | None) -> None:
        for entry in tuple(self._waiting):
            if is_meant(entry[0]) and entry in self._waiting:
                self._waiting.remove(entry)
                self._run(entry[1], sent)

    # --- a snapshot is due ----------------------------------------------------------------------

    def _take_in_time(self) -> None:
        """Take a snapshot: at once, or when nothing comes for a while if that loses nothing."""
        newest = self.chain.newest()
        if newest is not None and newest.repeatable:
            self._take_when_idle()
        else:
            self._take()

    def _take_when_idle(self) -> None:
        """Take a snapshot when nothing comes for a while.

        None while a request is under way: the guest would make it when that has ended, and it
        would count as made before. What that request did would be run again on top of itself.
        """
        self._dues += 1
        self._due = Reminder(Cause.idle, self._dues)
        self._do(act.Remind(IDLE, self._due))

    def _take(self) -> Snapshot | None:
        """Have the guest fork a snapshot, as the newest; return it, or None where none can be had.

        Nor is one made while a subshell runs something: half of that would be kept.
        """
        self._due = None
        if not self.serves or self.policy.snapshots == "off" or self._world.runs_beside():
            return None
        if self._world.uses_device(self.guest):
            self._budget.say("device", memory.USES_DEVICE)
            return None
        forking = sum(not snapshot.kept for snapshot in self.chain)
        if forking >= _MAX_FORKING or not self._may_fork():
            return None
        resident = self._world.resident(self.guest)
        if not self._budget.allows(resident, self._drop_oldest):
            return None
        made = self._new(self.guest, self._world.reading(self.guest, resident, self.given))
        self.chain.append(made)
        self._ask(made.copy)
        return made

    def copy_guest(self, then: Callable[[Snapshot | None], None]) -> None:
        """Have a snapshot made of the guest as it is; ``then`` gets it, or None."""
        self._run(self._copy_guest(then))

    def _copy_guest(self, then: Callable[[Snapshot | None], None]) -> Procedure:
        if (made := self._take()) is not None:
            yield made
        self._tell(then, self.chain.complete())

    # --- a snapshot is forked -------------------------------------------------------------------

    def _new(self, maker: int | None, had: memory.Reading) -> Snapshot:
        return Snapshot(self._new_copy(maker), had)

    def _new_copy(self, maker: int | None) -> Copy:
        return Copy(self._next_number(), maker or 0, self._world.now())

    def _ask(self, copy: Copy) -> None:
        """Have a copy forked by its maker, in time."""
        self._do(act.Fork(copy.maker, copy.number))
        self._remind(PATIENCE, Cause.late, copy.number)

    def _fork_apart(self, source: Snapshot | None = None) -> Snapshot | None:
        """Have a snapshot forked that is beside the chain: of the guest, or of another snapshot.

        Return None where none can be afforded.
        """
        if not self.serves or self.policy.snapshots == "off" or (source and not source.kept):
            return None
        if source is None and self._world.uses_device(self.guest):
            return None
        resident = self._world.resident(self.guest)
        if not (self._may_fork() and self._budget.affords(resident, self._drop_oldest)):
            return None
        if source is None:
            made = self._new(self.guest, self._world.reading(self.guest, resident, self.given))
        else:
            made = self._new(source.copy.number, source.had)
            source.copy.forks.add(made.copy.number)
            source.copy.stopped = False
            self._do(act.Continue(source.copy.number))
            self._remind(PATIENCE, Cause.kept_waiting, made.copy.number)
        self.chain.apart.append(made)
        self._ask(made.copy)
        return made

    def _held_by(self, number: int) -> Snapshot | None:
        """Return the snapshot that a copy holds, or is to hold."""
        return next((one for one in self.chain.all() if one.copy.number == number), None)

    def is_copy(self, number: int) -> bool:
        """Return whether a process holds a snapshot, or is to."""
        return self._held_by(number) is not None

    def fork_stood(self, number: int, connections: int) -> None:
        """Hear that a copy stands; its process is known to be the guest's, and nobody else's."""
        if self.takeover is not None and number == self.guest:
            self.takeover.stands = True  # it was forking when its turn came
            return
        snapshot = self._held_by(number)
        if snapshot is None:
            return
        copy = snapshot.copy
        copy.stands, snapshot.connections, self._refused = True, connections, False
        self._do(act.Protect(number))  # before the guest is sent another cell
        if copy.maker == self.guest and self.serves:
            # A task of the guest's may have gone on, and taken memory, before it forked.
            size = max(snapshot.had.size, self._world.resident(self.guest))
            snapshot.had = replace(snapshot.had, size=size)
        if not snapshot.served:
            self._budget.took(self._world.now() - copy.asked_at, snapshot.had.size)
        self._settle(snapshot)
        if self._waits_for_twin(snapshot):
            self._resume()
        self._decide(snapshot)

    def fork_parted(self, maker: int, number: int) -> None:
        """Hear a copy say that it has forked, and holds nothing of that fork's any more."""
        takeover, snapshot = self.takeover, self._held_by(maker)
        if takeover is not None and maker == self.guest:
            twin = takeover.snapshot
            if twin is None or twin.copy.number != number:
                self._fail()
        elif snapshot is not None and snapshot.kept and number in snapshot.copy.forks:
            snapshot.copy.forks.discard(number)
            self._settle(snapshot)
        else:
            self.copy_ended(maker, killed=False)

    def fork_failed(self, maker: int, number: int, error: int) -> None:
        """Hear guest or copy say that it could not fork."""
        snapshot = self._held_by(maker)
        if snapshot is not None:
            if number not in snapshot.copy.forks:
                self.copy_ended(maker, killed=False)
                return
            snapshot.copy.forks.discard(number)
        made = self._held_by(number)
        if made is not None and not made.kept:
            self._drop(made)
        if number in self._lost_forks:
            self._say_failed(error)
        if snapshot is not None:
            self._settle(snapshot)

    def fork_not_asked(self, number: int, why: str) -> None:
        """Hear that the host has no descriptors for a copy: nobody was asked to fork."""
        self._budget.say("files", f"the kernel can't open what one takes ({why})")
        if (made := self._held_by(number)) is not None:
            self._drop(made, was_asked=False)

    def fork_of_device_user(self, number: int) -> None:
        """Hear that the guest uses a device by now: it was not asked to fork."""
        self._budget.say("device", memory.USES_DEVICE)
        if (made := self._held_by(number)) is not None:
            self._drop(made, was_asked=False)

    def why_no_copy(self) -> str:
        """Return why the guest is not copied as it is now, or nothing."""
        return memory.USES_DEVICE if self._world.uses_device(self.guest) else ""

    def fork_not_sent(self, number: int) -> None:
        """Hear that a process could not be told to fork: it is gone, or does not read."""
        self._do_without_fork(number)

    def _do_without_fork(self, number: int) -> None:
        snapshot = self._held_by(number)
        if snapshot is not None and not snapshot.kept:
            self._drop(snapshot)

    def _say_failed(self, error: int) -> None:
        """Tell the user that a fork failed; but have another made first where it was not due.

        The gate lets a fork through that is due. It is due no more when it took so long that it was
        taken back, on a busy machine.
        """
        if error == errno.EPERM and not self._refused:
            self._refused = True
            self._take_when_idle()
            return
        self._budget.say("failed", f"one could not be made ({os.strerror(error)})")

    def copy_ended(self, number: int, *, killed: bool = True) -> None:
        """Go on without a copy that ended.

        It was ``killed``; or it lied: it said what it may not, or its process is not the guest's.
        """
        if self.takeover is not None and number == self.guest:
            self._fail(killed=killed)
            return
        snapshot = self._held_by(number)
        if snapshot is None:
            return
        could_take_over = snapshot.kept or snapshot.served > 0
        in_chain = snapshot in self.chain
        self._drop(snapshot)
        if in_chain and could_take_over:
            self._losses += 1
            if self._losses <= MAX_LOSSES and self.serves:
                self._take_when_idle()

    # --- a snapshot is kept: few, still, and no larger than they may be -------------------------

    def _settle(self, snapshot: Snapshot) -> None:
        """Go on with a snapshot that is kept: stop its copy, and keep no more than there may be."""
        if snapshot.kept:
            self._stop_all()
            self._keep_few(snapshot)
            self._soon_do(_AFTERWARDS, Cause.sweep)  # the fork that was due made this one
            self._soon_do(_LOOK, Cause.look)

    def _stop_all(self, *, again: bool = False) -> None:
        """Stop all that stand and have nothing to do, or only those that were not told to before.

        Waiting needs no processor, and nothing else may be done.
        """
        for snapshot in self.chain.all():
            if snapshot.settled and (again or not snapshot.copy.stopped):
                snapshot.copy.stopped = True
                self._do(act.Stop(snapshot.copy.number))

    def _keep_few(self, newest: Snapshot) -> None:
        """Keep one that stands, and as many to step back to as the policy has room and use for."""
        chain, most = self.chain, self.policy.undo_max_bytes
        if newest not in chain:
            return
        for snapshot in chain[: chain.index(newest)]:
            if snapshot.kept and not snapshot.visible:
                self._drop(snapshot)
        while chain.index(newest) > self.policy.undo_depth:
            self._drop(chain[0])
        while chain.is_spare(newest, self.policy.undo_depth):
            self._drop(chain[0])
        while most is not None and chain.index(newest) and chain.cost() > most:
            self._drop(chain[0])

    def stop_again(self) -> None:
        """Stop copies that the end of a guest, or of one of its threads, may have set going.

        The OS kernel does that (prctl(2), PR_SET_PDEATHSIG). ``copies_read`` follows.
        """
        self._stop_all(again=True)

    def copies_read(self, found: Mapping[int, CopyReading]) -> None:
        """Drop copies that hold more than they may, or do more than wait.

        What one does by itself it does before it is stopped, or when something has set it going. It
        has pages of its own then: new ones, or for those that it shares with its guest. The latter
        are as many as if the guest had written to them, and are counted so.
        """
        memory_max = self.policy.memory_max_bytes
        most = None if memory_max is None else slack(memory_max)
        for snapshot in self.chain.all():
            copy = snapshot.copy
            if copy.number in found:
                before = copy.used
                copy.used, copy.grew, copy.rewrote = found[copy.number]
                if before and copy.used - before > _STILL and snapshot.settled:
                    self._drop(snapshot)  # nobody is charged for what it computes
        while most is not None and sum(one.copy.grew for one in self.chain.all()) > most:
            self._drop(max(self.chain.all(), key=lambda one: one.copy.grew))
        self._keep_few_apart()
        if self.chain and self.chain[-1].settled:
            self._keep_few(self.chain[-1])

    def doubts(self) -> frozenset[int]:
        """Return the processes of which to read which pages they share, if copies may hold more.

        What a child writes to the guest's memory while it shares that (clone(2), CLONE_VM) was
        given to the child, and is in no estimate. A copy may have all for itself that it ever had:
        where even that is allowed there is nothing to read. What copies share with each other stays
        as it is; what a checkpoint shares with the guest does not. ``shares_read`` follows later.
        """
        most, asked = self.policy.undo_max_bytes, set[int]()
        if most is None or not self.policy.subprocess_execution or self.guest is None:
            return frozenset()
        kept, named = self._kept(), list(self.chain.named().values())
        checkpoints_doubted = sum(one.had.size for one in named) > most
        if sum(one.had.size for one in kept[:-1]) > most:
            asked.update(one.copy.number for one in kept)
        if checkpoints_doubted:
            asked.update((self.guest, *(one.copy.number for one in named)))
        if not asked <= self._shares_known:
            self._soon_do(_LOOK, Cause.look)  # for the answer
        elif not checkpoints_doubted:
            return frozenset()
        return frozenset(asked)

    def _kept(self) -> list[Snapshot]:
        """Return the copies of the chain that stand, the oldest first."""
        return [one for one in self.chain if one.kept]

    def shares_read(self, asked: frozenset[int], found: Mapping[int, Shares]) -> None:
        """Drop the oldest copies while they have more for themselves than they may.

        ``found`` lacks what is gone, and all where the OS kernel can't be asked. What the newest
        copy has, or for checkpoints the guest, is not the others' own.
        """
        self._shares_known = asked
        kept, named = self._kept(), list(self.chain.named().values())
        if kept:
            self._drop_beyond(kept[-1].copy.number, kept[:-1], found)
        if self.guest is not None:
            self._drop_beyond(self.guest, named, found)

    def _drop_beyond(
        self, number: int, snapshots: list[Snapshot], found: Mapping[int, Shares]
    ) -> None:
        """Drop the oldest of ``snapshots`` while they have too much that this process has not."""
        most, numbers = self.policy.undo_max_bytes, [one.copy.number for one in snapshots]
        if most is None or not found.keys() >= {number, *numbers}:
            return
        while snapshots and beyond(found[number], [found[each] for each in numbers]) > most:
            oldest = snapshots.pop(0)
            (self._drop_named if oldest.name else self._drop)(oldest)
            numbers.pop(0)
            self._shares_known = frozenset()  # those that are left have more of each page now

    def _keep_few_apart(self) -> None:
        """Let go of the oldest checkpoint while they may hold more than copies may."""
        most = self.policy.undo_max_bytes
        while most is not None and (named := list(self.chain.named().values())):
            if self._held_apart(named) <= most:
                return
            self._drop_named(named[0])

    def _drop_named(self, snapshot: Snapshot) -> None:
        """Drop a checkpoint or branch that holds too much, and say so: the user counts on it."""
        kind = "branch" if snapshot.is_branch else "checkpoint"
        why = "all that have names held more memory than undo_max_bytes allows"
        self._budget.notify(f"dropped {kind} {snapshot.name}: {why}")
        self._drop(snapshot)

    def _held_apart(self, checkpoints: Iterable[Snapshot]) -> int:
        """Return at most how many bytes checkpoints hold for themselves.

        One that the guest's state does not descend from may share nothing with it.
        """
        now = self._world.reading(self.guest, self._world.resident(self.guest), self.given)
        return sum(
            one.had.size
            if one.had.faults > self.given
            else min(one.had.size, memory.left_behind(one.had, now) + one.copy.rewrote)
            for one in checkpoints
        )

    # --- a snapshot is lost ---------------------------------------------------------------------

    def _drop(self, snapshot: Snapshot, *, was_asked: bool = True) -> None:
        """End a copy and its snapshot. What ran after it ran after the one before it, too."""
        if snapshot in self.chain:
            self.chain.forget(snapshot)
        elif snapshot in self.chain.apart:
            self.chain.apart.remove(snapshot)
        else:
            return
        snapshot.lost = True
        self._do(act.Drop(snapshot.copy.number))
        if not snapshot.copy.stands and was_asked:
            # Its process is not known, and its fork may have been taken by something else. Others
            # that are being forked have theirs due still, or have forked and not said so.
            self._stop_all()
            self._lost_forks.append(snapshot.copy.number)
            self._unknown += 1
            self._sweep()
            self._remind(_AFTERWARDS, Cause.sweep)
        if self._waits_for_twin(snapshot):
            self._resume()
        self._decide(snapshot)

    def let_go(self, *copies: Snapshot | None) -> None:
        """Drop copies that are not wanted after all."""
        for copy in copies:
            if copy is not None:
                self._drop(copy)

    def _drop_all(self) -> None:
        for snapshot in self.chain.all():
            self._drop(snapshot)

    def _drop_oldest(self) -> bool:
        """Drop the oldest of the chain; return whether there was one."""
        if self.chain:
            self._drop(self.chain[0])
            return True
        return False

    # --- processes that nobody knows ------------------------------------------------------------

    def is_forking(self) -> bool:
        """Return whether a snapshot was asked for that does not stand yet."""
        return any(not one.kept for one in self.chain.all())

    def is_settled(self) -> bool:
        """Return whether nothing is being forked."""
        return all(one.settled for one in self.chain.all())

    def _may_fork(self) -> bool:
        """Return whether another fork may be due: not before what took those before it is ended.

        While something always is being forked it can't be: there would be more and more of it.
        """
        if self.policy.subprocess_execution:
            return True
        if self._unknown >= _MAX_UNKNOWN:
            self._sweep()
        return self._unknown < _MAX_UNKNOWN

    def _sweep(self) -> None:
        """End what nobody knows, if nothing is being forked and it can't be a cell's."""
        if self.policy.subprocess_execution or self.guest is None:
            return
        if self.is_settled() and self._world.others_are_settled():
            self._unknown = 0
            self._do(act.EndUnknown())

    # --- reminders ------------------------------------------------------------------------------

    def _remind(self, seconds: float, cause: Cause, number: int = 0) -> None:
        self._do(act.Remind(seconds, Reminder(cause, number)))

    def _soon_do(self, seconds: float, cause: Cause) -> None:
        """Be reminded once, however often that is asked for until then."""
        if (reminder := Reminder(cause)) not in self._soon:
            self._soon.add(reminder)
            self._remind(seconds, cause)

    def reminded(self, of: Reminder) -> None:
        """Act on a moment that has come, if it still matters; the driver looks at copies."""
        self._soon.discard(of)
        match of.cause:
            case Cause.idle if of == self._due:
                self._due = None
                if self._world.is_idle():
                    self._take()
            case Cause.late:
                self._do_without_fork(of.number)
            case Cause.kept_waiting:
                self._do_without_word_of(of.number)
            case Cause.too_long if self.takeover is not None and of.number == self.guest:
                self._fail()
            case Cause.sweep:
                self._sweep()

    def _do_without_word_of(self, number: int) -> None:
        """Wait no more for a copy to say what became of a fork."""
        for snapshot in self.chain.all():
            if number in snapshot.copy.forks:
                snapshot.copy.forks.discard(number)
                self._settle(snapshot)

    # --- the guest is lost, or left -------------------------------------------------------------

    def guest_lost(self, stopped: Stopped, *, with_copies: bool = False) -> None:
        """Have the newest snapshot take over from a guest that ended, or must.

        If the zygote ended it went ``with_copies``: nobody lets forks of theirs through any more.
        """
        if self.restores:
            if with_copies:
                self._drop_all()
                self._fail()
            return
        running = self._leave(empties=True)
        if running is None:
            self._losses += 1
        if with_copies or self._losses > MAX_LOSSES:
            self._drop_all()
        self._begin(Takeover(stopped, self._world.now(), running))
        self._try_newest()

    def _leave(self, *, empties: bool = False) -> Any:
        """Let go of the guest; return the request that it had begun, or None.

        What it was asked to fork beside the chain is not wanted any more. What it was asked to fork
        for the chain may take over from it, and who waited for that goes on without.
        """
        running = self._world.running()
        self._due = None
        self._do(act.Unwatch())
        left = self._end_guest(empties=empties)
        for promise in self._promises:
            promise.before = None
        for snapshot in self.chain.all():
            snapshot.copy.stopped = False  # the end of a guest sets its copies going
        for snapshot in tuple(self.chain.apart):
            if snapshot.copy.maker == left and not snapshot.kept:
                self._drop(snapshot)
        self._go_on_with(lambda one: one in self.chain, None)
        return running

    def _begin(self, takeover: Takeover) -> None:
        self.takeover, self.phase = takeover, Phase.restoring

    def steps(self) -> list[UndoStep]:
        """Return what ``%undo`` can go back to, the nearest first.

        Where a device is in use that is nothing before which more cells ran than are asked for:
        who takes one back has not asked for the loss of twenty.
        """
        steps = self.chain.steps(self.policy.undo_depth)
        if not self._world.uses_device(self.guest):
            return steps
        near = enumerate(steps, 1)
        return [step for count, step in near if sum(one.is_step for one in step.undone) <= count]

    def undo(self, step: UndoStep) -> None:
        """Go back to a state of the chain."""
        counts = tuple(request.message.execution_count for request in step.undone)
        stopped, running = Stopped("undo", undone=counts), self._leave()
        while self.chain and self.chain[-1] is not step.snapshot:
            self._drop(self.chain[-1])
        now = self._world.now()
        self._begin(Takeover(stopped, now, running, missed=step.again, undone=step.undone))
        self._try(step.snapshot)

    def relock(self, plan: messages.Plan) -> None:
        """Have the newest snapshot, which has all that ran, go on under more locks.

        No other copy is left: those have fewer. Nor does it leave a twin.
        """
        snapshot = self.chain.complete()
        self._leave()
        self._begin(Takeover(Stopped("narrowed"), self._world.now(), plan=plan))
        if snapshot is not None:
            self.chain.remove(snapshot)
        self._drop_all()
        if snapshot is None:
            self._try_newest()
        else:
            self._go_on_by(snapshot, snapshot.copy)
            self._resume()

    def adopt(self, had: memory.Reading, takeover: Takeover) -> int:
        """Have a copy of another session's guest become this one's; return its number.

        It is told to take over when its locks are ready (``locks_are_ready``).
        """
        self._leave()
        copy = self._new_copy(None)
        copy.stands = True
        self._begin(takeover)
        self._wake(copy, had)
        takeover.snapshot = Snapshot(copy, had)
        return copy.number

    def locks_are_ready(self, number: int) -> None:
        """Have the copy that was adopted take over."""
        takeover = self.takeover
        if takeover is None or number != self.guest or takeover.snapshot is None:
            return  # it ended meanwhile
        self._allow_time(takeover.snapshot, takeover.snapshot.copy)
        self._resume()

    # --- a copy becomes the guest ---------------------------------------------------------------

    def _try_newest(self) -> None:
        """Have the newest snapshot take over, or say that there is none."""
        takeover, snapshot = self.takeover, self.chain.newest()
        if takeover is None:
            return
        if snapshot is None:
            self.takeover, self.phase = None, Phase.absent
            self._promises.clear()
            self._do(act.StartAnew(takeover.stopped))
            return
        takeover.goes_back_to(snapshot)
        self._try(snapshot)

    def _try(self, snapshot: Snapshot) -> None:
        """Have the copy of a snapshot become the guest; a twin that it forks takes its place.

        Nothing else is asked of it before that stands, or will not. It serves and not the twin, or
        the zygote would not be told how it ends: the twin is its child.
        """
        process = snapshot.copy
        self._go_on_by(snapshot, process)
        if snapshot.served < MAX_SERVED:
            snapshot.served += 1
            snapshot.copy = self._new_copy(process.number)
            self._ask(snapshot.copy)
        else:
            self.chain.remove(snapshot)
            self._resume()

    def _go_on_by(self, snapshot: Snapshot, process: Copy) -> None:
        """Have a copy go on, which has the state of a snapshot, as the guest."""
        self._wake(process, snapshot.had)
        self._allow_time(snapshot, process)

    def _wake(self, process: Copy, had: memory.Reading) -> None:
        self.guest, self.given = process.number, had.faults
        self._do(act.Wake(process.number))
        self._soon_do(_LOOK, Cause.look)  # the end of the guest before sets all going
        # First: as many programs as there may be would keep the copy from processor and gate.
        self._end_programs()

    def _end_programs(self) -> None:
        """Have what the guest before had started ended: it would count as this one's."""
        if self.policy.subprocess_execution:
            self._do(act.EndUnknown())

    def _allow_time(self, snapshot: Snapshot, process: Copy) -> None:
        if self.takeover is not None:
            leaves_chain = snapshot not in self.chain
            now = self._world.now()
            seconds = self.takeover.begins(snapshot, process, now, leaves_chain=leaves_chain)
            self._remind(seconds, Cause.too_long, process.number)

    def _waits_for_twin(self, snapshot: Snapshot) -> bool:
        takeover = self.takeover
        return takeover is not None and takeover.snapshot is snapshot and not takeover.is_told

    def _resume(self) -> None:
        """Tell a copy to take over; until it says that it did, nothing else is sent to it."""
        takeover, guest = self.takeover, self.guest
        if takeover is not None and guest is not None:
            again, inputs = takeover.tells()
            is_fork = takeover.stopped.why == "fork"
            plan, place = takeover.plan, takeover.place
            self._do(act.TakeOver(guest, again, inputs, plan, place, is_fork))

    def locks_are_on(self) -> None:
        """Hear from the zygote that the copy which takes over has the locks of the plan."""
        if self.takeover is not None:
            self.takeover.confined = True

    def emptied(self) -> None:
        """Hear that what was in /dev/shm was removed."""
        if self.takeover is not None:
            self.takeover.emptied = True

    def takeover_said(self, message: messages.FromGuest) -> None:
        """Hear the copy that takes over."""
        takeover, guest = self.takeover, self.guest
        if takeover is None or guest is None:
            return
        match takeover.hears(message):
            case Heard.wrong:
                self._fail()
            case Heard.progress:
                if isinstance(message, messages.Resumed):
                    self._end_programs()
                if takeover.next is not None:
                    self._do(act.Replay(guest, takeover.next))
                else:
                    # What waited for this state is safe. It is told before what comes next is sent.
                    for promise in self._promises:
                        if promise.own is takeover.snapshot:
                            self._tell(promise.answer)
                    self._promises.clear()
                    self._do(act.Serve(guest))

    def served(self, number: int) -> None:
        """Serve by a copy that has taken over; called when that can be seen outside."""
        takeover = self.takeover
        if takeover is None or number != self.guest or not takeover.caught_up:
            return  # it was lost in the meantime
        self.takeover, self.phase = None, Phase.serving
        if takeover.snapshot is not None:
            takeover.snapshot.served = 0  # it is not what ended others that had its state
        for request in takeover.ran_again(self._world.now()):
            self._record(request)
        if takeover.leaves_chain:
            for snapshot in tuple(self.chain):
                self._drop(snapshot)
        self._take_in_time()
        self._do(act.Restored(number, takeover.outcome()))

    def _fail(self, *, killed: bool = False) -> None:
        """Have another copy take over: the twin of one that was killed, or the snapshot before."""
        takeover = self.takeover
        if takeover is None:
            return
        snapshot = takeover.snapshot
        is_good = takeover.fails(self._world.now(), killed=killed)
        self._end_guest()
        self._begin(takeover)
        if not is_good:
            self.let_go(snapshot)  # its twin could not take over either
        self._try_newest()

    # --- names ----------------------------------------------------------------------------------

    def checkpoint(self, name: str, then: Callable[[str], None], cell: int = 0) -> None:
        """Keep the guest's state under a name; ``then`` gets why it is not kept, or nothing.

        ``cell`` is the number of the one that asks for it.
        """
        self._run(self._checkpoint(name, then, cell))

    def _checkpoint(self, name: str, then: Callable[[str], None], cell: int) -> Procedure:
        self._tell(then, (yield from self._keep_as(name, cell)))

    def _keep_as(self, name: str, cell: int = 0, *, is_branch: bool = False) -> Procedure:
        """Keep the guest's state under a name; return why that can't be done, or nothing."""
        named, most = self.chain.named(), self.policy.undo_max_bytes
        former = named.pop(name, None)
        if former is not None and former.is_branch and not is_branch:
            return "a branch has this name; choose another"
        if len(named) >= self.policy.max_branches:
            there = names.listed(named)
            return f"max_branches allows {self.policy.max_branches}, and there are {there}"
        if most is not None and (held := self._held_apart(named.values())) > most:
            there = names.listed(named)
            return f"{there} may hold {held:,} bytes by now, undo_max_bytes allows {most:,}"
        made = self._fork_apart()
        if made is None or (yield made) is None:
            return self.why_no_copy() or "no copy of the state could be made"
        if former is not None:
            self._drop(former)
        made.name, made.cell, made.is_branch = name, cell, is_branch
        return ""

    def restore(self, name: str, refused: Callable[[str], None]) -> None:
        """Go back to a checkpoint, which is kept; ``refused`` gets why that can't be done."""
        self._run(self._restore(name, refused))

    def _restore(self, name: str, refused: Callable[[str], None]) -> Procedure:
        if why := (yield from self._go_to(name)):
            self._tell(refused, why)

    def _go_to(self, name: str, branch: str = "") -> Procedure:
        """Have a checkpoint take over; return why that can't be done, or nothing.

        Its twin is made while the guest lives: nothing is given up where none can be made.
        """
        named, guest = self.chain.named(), self.guest
        if (checkpoint := named.get(name)) is None:
            return names.not_kept(name, named)
        made = self._fork_apart(checkpoint)
        twin = None if made is None else (yield made)
        if twin is None or not checkpoint.kept or not self.serves or self.guest != guest:
            self.let_go(twin)
            return "no copy of it could be made"
        running = self._leave()
        process, checkpoint.copy = checkpoint.copy, twin.copy
        self.chain.apart.remove(twin)
        stopped = Stopped("undo", detail=name, branch=branch)
        otherwise = Stopped("crash", PICKED_ENDED)
        self._begin(Takeover(stopped, self._world.now(), running, otherwise=otherwise))
        self._go_on_by(checkpoint, process)
        self._resume()
        return ""

    def go_to_branch(self, name: str, start: str, then: Callable[[str], None]) -> None:
        """Keep the state under the branch that is left, and go to another, or begin it.

        It begins at the checkpoint or branch ``start``, or here. ``then`` gets why not, or nothing
        where it began here; a state that is restored is told of as by ``%restore``.
        """
        self._run(self._go_to_branch(name, start, then))

    def _go_to_branch(self, name: str, start: str, then: Callable[[str], None]) -> Procedure:
        named, left = self.chain.named(), self.branch
        why = names.no_branch(left, name, start, named)
        if not why:
            why = yield from self._keep_as(left, is_branch=True)
        if why:
            self._tell(then, why)
            return
        self.branch = name
        source = start or (name if name in named else "")
        if source and not (why := (yield from self._go_to(source, branch=name))):
            return
        if why:
            self.branch = left
        self._tell(then, why)

    def drop_name(self, name: str) -> str:
        """Drop a branch that the session is not on, or a checkpoint; return why not, or nothing."""
        named = self.chain.named()
        if why := names.not_dropped(self.branch, name, named):
            return why
        self._drop(named[name])
        return ""

    # --- copies for other sessions --------------------------------------------------------------

    def fork(self, count: int, then: Callable[[list[Snapshot]], None]) -> None:
        """Have so many copies made of the guest as it is; ``then`` gets them, or fewer."""
        self._run(self._fork(count, then))

    def _fork(self, count: int, then: Callable[[list[Snapshot]], None]) -> Procedure:
        """Have a copy of the guest make the others, and end.

        So they are nobody's children but the zygote's, which is told how they end. The copy is
        asked for some ahead, to fork without a pause.
        """
        made, asked = list[Snapshot](), deque[Snapshot]()
        source = self._fork_apart()
        if source is not None and (yield source) is not None:
            for _ in range(count):
                if (copy := self._fork_apart(source)) is None:
                    break
                asked.append(copy)
                if len(asked) == _MAX_FORKING:
                    if (yield asked[0]) is None:
                        break
                    made.append(asked.popleft())
            for copy in asked:
                if (yield copy) is not None:
                    made.append(copy)
            self._drop(source)
        self._tell(then, [copy for copy in made if copy.kept])

    def give_away(self, snapshot: Snapshot) -> None:
        """Have a copy that stands beside the chain be another session's from now on."""
        self.chain.apart.remove(snapshot)
