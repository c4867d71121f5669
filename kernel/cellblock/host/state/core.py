r"""Which process is the guest, which copies hold earlier states, and who waits for what.

``Core`` owns these facts for one session. Nobody else notes any of them. Events come in as calls of
its methods. What is to be done comes out as values in ``Core.actions``, in order
(``host.state.actions``), which ``host.snapshots.driver`` carries out when the event has been dealt
with. The core asks a ``World`` for what it needs to know, and changes nothing there. So tests can
play hundreds of thousands of events a second.

The guest (``Phase``)::

             guest_starts      guest_is_ready         guest_lost, undo, …        serves
    absent ──────────────▶ starting ─────▶ serving ─────────────────▶ restoring ─────────▶ serving
        ▲                     │                                           │
        └─────────────────────┴──────── it ended, and no copy is left ────┘

A snapshot is a state that the guest had. A copy holds it: a process that was forked from the guest,
shares its memory until one of them writes to it, and waits::

    none ──────▶ due ──────▶ forking ──────▶ kept ──────▶ lost
        cell_ended   _take       ▲  fork_stood │
                                 └─────────────┘
                                      _try

- *due*: a request ran to its end, or a guest began to serve. The snapshot is taken when no request
  comes for ``IDLE`` seconds, or at once if what ran can't be run again. A request that comes
  earlier puts it off. A snapshot that memory does not allow is not taken (``memory.Budget``).
- *forking*: the guest was asked to fork, and has ``PATIENCE`` seconds for that.
- *kept*: the copy stands, which means that it reported to have forked and waits. It is stopped
  (SIGSTOP). When a guest is lost the newest copy takes over. The older ones are for ``%undo``: as
  many as the policy allows, and none that ``%undo`` does not need because all cells it may step
  over can be run again from newer copies (ADR 0027).
- *lost*: the copy ended, could not be made, or was dropped.

A kill, ``%undo``, ``%restore``, ``%branch``, the start of a fork's session and a narrowing by locks
all work alike: the guest ends, and the copy of a snapshot takes over as the guest (``_try``,
``_wake_as_guest``). Usually the copy forks a twin first, which holds the snapshot from then on, so
that no kill costs a state (ADR 0028).
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
#: Seconds within which a forked copy must stand. After that, whoever waits goes on without it.
PATIENCE: Final = 5.0
#: Guests and copies in a row that may be lost without a request that ended in between. After that,
#: nothing is restored any more: the state may be what ends every guest that has it. A guest that a
#: cell ends does not count, because the user can run another cell or step back.
MAX_LOSSES: Final = 8
#: How often copies of one state may be tried and leave a twin. After that, the copy that is tried
#: is the last of this state: the state may be what ends every process that has it.
MAX_SERVED: Final = 8
#: Snapshots that may be forking at a time.
_MAX_FORKING: Final = 3
#: Seconds of processor time that a copy may use between two looks. A waiting copy needs none.
_WAITING_CPU: Final = 0.05
#: Seconds until copies are looked at after one came to stand or may have been set going.
_LOOK_DELAY: Final = 0.1
#: Seconds after which unknown processes are ended once more: one may have been in the middle of its
#: fork the first time.
_SWEEP_DELAY: Final = 1.0
#: Unknown processes that there may be. No more forks are asked for then until nothing has been
#: forking for a moment, so that the unknown ones can be ended.
_MAX_UNKNOWN: Final = 3
#: ``Stopped.detail`` when the copy chosen by ``%restore``, or by picking a variant, ends before it
#: has taken over.
PICKED_ENDED: Final = "what was picked ended before it could go on"


class Phase(Enum):
    """How far the guest is. The module's docstring draws the transitions."""

    absent = "absent"
    starting = "starting"
    serving = "serving"
    restoring = "restoring"


class World(Protocol):
    """What the core reads from outside. Reading changes nothing there.

    Events don't bring these facts, because most cells need none of them, and reading how much
    memory the guest has takes 30 µs.
    """

    def now(self) -> float:
        """Return the time in seconds."""

    def resident(self, process: int | None) -> int:
        """Return the bytes of memory that a process has for itself; 0 if there is no process."""

    def reading(self, process: int | None, resident: int, given_pages: int) -> memory.Reading:
        """Return what memory a process has.

        ``resident`` is what the method ``resident`` returned for the process. ``given_pages`` is
        how many pages were given to the earlier processes whose state this process continues.
        """

    def uses_device(self, process: int | None) -> bool:
        """Return whether a process has used a device. A copy would lack the device's state."""

    def is_idle(self) -> bool:
        """Return whether no request is under way."""

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything. A fork would then hold half of what it does."""

    def running(self) -> Any:
        """Return the message of the request that the guest has begun, or None."""

    def others_are_settled(self) -> bool:
        """Return whether no other guest in the same OS sessions has a copy that is forking."""


class CopyReading(NamedTuple):
    """The processor time and memory that a waiting copy was seen to use."""

    #: Seconds of processor time.
    used: float
    #: Bytes that the copy holds beyond those it had from its guest.
    grew: int
    #: Bytes that it had from its guest and has written to since.
    rewrote: int


class Promise(Struct, eq=False):
    """The answer to a request, which waits until the request's effects are safe.

    They are safe when the request's ``own`` snapshot is kept. If the request is so short that
    nobody notices when it is run again, they are safe when the snapshot ``before`` is kept. The
    answer is also given when ``own`` can't be kept any more while the guest still lives.

    If the guest is lost first, the answer is given only if ``own`` is the state that serves next.
    Otherwise it is never given: the session ends the request with what was lost.
    """

    answer: Callable[[], object]
    own: Snapshot
    before: Snapshot | None


#: A generator for a procedure of several forks. It yields the snapshot to wait for. The core sends
#: the snapshot back when its copy stands, or None when the snapshot or the guest is lost.
Procedure = Generator[Snapshot, Snapshot | None, Any]


class Core:
    """The state of one session: its guest, its copies, and who waits for them."""

    def __init__(self, policy: Policy, budget: memory.Budget, world: World) -> None:
        self.actions = deque[act.Action]()
        self.policy = policy
        self._budget = budget
        self._world = world
        self._numbers = 0
        # Between two events, and so whenever an action is carried out:
        # - Each process is the guest, or holds a snapshot or is being forked to hold one, or was
        #   given up by ``Drop``, ``EndGuest`` or ``give_away``. No process is two of these, and
        #   none is forgotten.
        # - There is a takeover if and only if the phase is restoring. There is no guest if and only
        #   if the phase is absent.
        # - The copy of a kept snapshot is stopped, or is forking, or will be looked at.
        # - Each promise and each procedure waits for a snapshot, of the chain or apart, that is
        #   neither kept nor lost yet.
        # ``support.core_play.Play.check`` asserts this in ten thousand storms.
        #
        #: The number of the process that is the guest: it starts, serves or takes over.
        self.guest: int | None = None
        self.phase = Phase.absent
        #: The takeover under way, while the guest is being restored.
        self.takeover: Takeover | None = None
        #: Pages that were given to the processes which the guest has its state from.
        self.given = 0
        self.chain = Chain()
        #: The branch that the session is on.
        self.branch = names.FIRST
        #: Answers that wait for snapshots, and procedures with the snapshot that each waits for.
        self._promises: list[Promise] = []
        self._waiting: list[tuple[Snapshot, Procedure]] = []
        #: The idle reminder that counts while a snapshot is due. Earlier ones are ignored.
        self._due: Reminder | None = None
        #: How many idle reminders there were, which gives each its number.
        self._idle_reminders = 0
        #: Reminders to come that need not be asked for again.
        self._soon = set[Reminder]()
        #: Guests and copies that were lost since a request last ran to its end.
        self._losses = 0
        #: Copies that were dropped before they stood. An unknown process may have used the fork
        #: that the gate let through for each.
        self._unknown = 0
        #: Numbers of the last of these. Their loss may be seen before their maker reports why.
        self._lost_forks = deque[int](maxlen=_MAX_FORKING)
        #: Whether the gate refused the last fork.
        self._gate_refused = False
        #: The processes whose shared pages were read last.
        self._shares_known = frozenset[int]()
        #: Requests that set variables and ended within the last ``LATELY`` seconds, so that they
        #: may be run again. Later their values are dropped, because they take memory.
        self._values = deque[PastRequest]()

    def _emit(self, action: act.Action) -> None:
        self.actions.append(action)

    def _call_back(self, callback: Callable[..., object], *with_: Any) -> None:
        self._emit(act.Tell(callback, with_))

    def _next_number(self) -> int:
        """Return the number of a new process."""
        self._numbers += 1
        return self._numbers

    # --- a guest --------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether there is a guest that serves."""
        return self.phase is Phase.serving

    @property
    def restores(self) -> bool:
        """Whether a copy is about to take over as the guest."""
        return self.phase is Phase.restoring

    def guest_starts(self) -> int:
        """Return the number for a new guest, which the supervisor has the zygote fork."""
        self.guest = self._next_number()
        self.phase = Phase.starting
        self.given = 0
        return self.guest

    def guest_is_ready(self, *, idle: bool) -> None:
        """Serve by a new guest. Called by the supervisor when its locks are approved.

        Unless the session is ``idle`` a snapshot is taken before the waiting request is sent.
        """
        self.phase = Phase.serving
        if idle:
            self._take_when_idle()
        else:
            self._take()

    def end(self) -> None:
        """End the guest and all its copies. Their state is lost."""
        self._end_guest()
        self.takeover = self._due = None
        self._promises.clear()
        self._drop_all()
        self.branch = names.FIRST
        self._emit(act.EndAll())

    def _end_guest(self, *, empties: bool = False) -> int | None:
        """End the process that is the guest, if there is one; return its number.

        With ``empties``, /dev/shm is emptied then.
        """
        guest = self.guest
        has_failed = self.phase is Phase.starting
        self.guest = None
        self.phase = Phase.absent
        self._emit(act.EndGuest(guest, empties, has_failed))
        return guest

    # --- requests -------------------------------------------------------------------------------

    def cell_began(self) -> None:
        """Put off the snapshot that is due, because a request came. It was not sent yet.

        But the first snapshot of all is taken now, or nothing could go back to the state before
        this request. Not while another request runs, though: ``_take_when_idle`` says why.
        """
        if self._due is not None:
            self._due = None
            if not self.chain and self._world.is_idle():
                self._take()

    def cell_ended(
        self, request: PastRequest, answer: Callable[[], object], *, alone: bool = True
    ) -> None:
        """Record that a request ran to its end; ``answer`` is called when it may be answered.

        - A repeatable request, which comes out the same when it is run again, is safe if the state
          before it is. Then it is answered at once, and no snapshot is taken for it until about a
          second's work would have to be done again.
        - A short request is answered when the snapshot before it is kept. Until its own is kept, at
          most this one request would have to be run again.
        - A long request, and one with side effects, can't be run again. It is answered when its own
          snapshot is kept: then its effects are safe, whichever single process is killed next.

        If the request did not run ``alone`` and others still run, it is answered at once, and the
        snapshot waits for the end of the last one.
        """
        if not self.serves:
            return  # its guest was lost meanwhile: the session ends it when the outcome is known
        self._losses = 0
        newest = self.chain.newest()
        covered = self.chain.covers_all()
        if not alone:
            self._record(request)
            self._call_back(answer)
        elif request.repeatable and newest is not None and covered:
            self._record(request)
            self._call_back(answer)
            if not newest.repeatable:
                self._take()
        elif request.short and covered:
            self._record(request)
            self._call_back(answer)
            self._take_soon()
        else:
            suffices = request.short and newest is not None and newest.repeatable
            before = newest if suffices and newest is not None and not newest.kept else None
            self._record(request)
            if (own := self._take()) is None:
                self._call_back(answer)
            else:
                self._promises.append(Promise(answer, own, before))

    def _record(self, request: PastRequest) -> None:
        """Note that a request ran after the newest snapshot."""
        if self.chain:
            newest = self.chain[-1]
            newest.after.append(request)
            if newest.settled and self.chain.is_spare(newest, self.policy.undo_depth):
                # A copy may be spare now. It is ended at the next look, not on a cell's time.
                self._remind_once(_LOOK_DELAY, Cause.look)
        if isinstance(request.message, messages.SetVariables):
            self._values.append(request)
        # After ``LATELY`` such a request is not run again, so its values need not be kept.
        while self._values and request.ended - self._values[0].ended > LATELY:
            past = self._values.popleft()
            force_setattr(past, "message", replace(past.message, values={}))

    # --- answers and procedures that wait for snapshots -----------------------------------------

    def _advance(self, procedure: Procedure, value: Snapshot | None = None) -> None:
        """Advance a procedure until it waits for a snapshot that is neither kept nor lost yet."""
        try:
            snapshot = procedure.send(value)
            while snapshot.kept or snapshot.lost:
                snapshot = procedure.send(snapshot if snapshot.kept else None)
        except StopIteration:
            return
        self._waiting.append((snapshot, procedure))

    def _notify_waiters(self, snapshot: Snapshot) -> None:
        """Advance everybody who waits for a snapshot that is kept now, or lost."""
        if self.serves:
            for promise in tuple(self._promises):
                if promise.own is snapshot or (promise.before is snapshot and snapshot.kept):
                    self._promises.remove(promise)
                    self._call_back(promise.answer)
        self._resume_procedures(
            lambda awaited: awaited is snapshot, snapshot if snapshot.kept else None
        )

    def _resume_procedures(
        self, is_awaited: Callable[[Snapshot], bool], value: Snapshot | None
    ) -> None:
        """Advance the procedures that wait for one of these snapshots; they are sent ``value``."""
        for entry in tuple(self._waiting):
            if is_awaited(entry[0]) and entry in self._waiting:
                self._waiting.remove(entry)
                self._advance(entry[1], value)

    # --- a snapshot is due ----------------------------------------------------------------------

    def _take_soon(self) -> None:
        """Take a snapshot at once, or in idle time if all since the last one can be run again."""
        newest = self.chain.newest()
        if newest is not None and newest.repeatable:
            self._take_when_idle()
        else:
            self._take()

    def _take_when_idle(self) -> None:
        """Take a snapshot when no request has come for ``IDLE`` seconds.

        Never while a request is under way. The guest would fork only when that request has ended,
        but the snapshot would count as taken before it: after a kill, the request would be run
        again on top of its own effects.
        """
        self._idle_reminders += 1
        self._due = Reminder(Cause.idle, self._idle_reminders)
        self._emit(act.Remind(IDLE, self._due))

    def _take(self) -> Snapshot | None:
        """Have the guest fork a snapshot, as the newest of the chain; return it.

        Return None if none can be taken: the policy has no snapshots, too many are forking already,
        memory does not allow it, or a subshell runs something, of which half would be kept.
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
        snapshot = self._new_snapshot(
            self.guest, self._world.reading(self.guest, resident, self.given)
        )
        self.chain.append(snapshot)
        self._order_fork(snapshot.copy)
        return snapshot

    def copy_guest(self, on_snapshot: Callable[[Snapshot | None], None]) -> None:
        """Have a snapshot taken of the guest as it is; ``on_snapshot`` gets it, or None."""
        self._advance(self._copy_guest(on_snapshot))

    def _copy_guest(self, on_snapshot: Callable[[Snapshot | None], None]) -> Procedure:
        if (snapshot := self._take()) is not None:
            yield snapshot
        self._call_back(on_snapshot, self.chain.complete())

    # --- a snapshot is forked -------------------------------------------------------------------

    def _new_snapshot(self, maker: int | None, had: memory.Reading) -> Snapshot:
        return Snapshot(self._new_copy(maker), had)

    def _new_copy(self, maker: int | None) -> Copy:
        return Copy(self._next_number(), maker or 0, self._world.now())

    def _order_fork(self, copy: Copy) -> None:
        """Have a copy forked by its maker, within ``PATIENCE`` seconds."""
        self._emit(act.Fork(copy.maker, copy.number))
        self._remind(PATIENCE, Cause.late, copy.number)

    def _fork_apart(self, source: Snapshot | None = None) -> Snapshot | None:
        """Have a snapshot forked that stands apart from the chain; return it.

        It is forked from the guest, or from the ``source`` snapshot. Return None if that can't be
        done, or memory does not allow it.
        """
        if not self.serves or self.policy.snapshots == "off" or (source and not source.kept):
            return None
        if source is None and self._world.uses_device(self.guest):
            return None
        resident = self._world.resident(self.guest)
        if not (self._may_fork() and self._budget.affords(resident, self._drop_oldest)):
            return None
        if source is None:
            snapshot = self._new_snapshot(
                self.guest, self._world.reading(self.guest, resident, self.given)
            )
        else:
            snapshot = self._new_snapshot(source.copy.number, source.had)
            source.copy.forks.add(snapshot.copy.number)
            source.copy.stopped = False
            self._emit(act.Continue(source.copy.number))
            self._remind(PATIENCE, Cause.kept_waiting, snapshot.copy.number)
        self.chain.apart.append(snapshot)
        self._order_fork(snapshot.copy)
        return snapshot

    def _held_by(self, number: int) -> Snapshot | None:
        """Return the snapshot that a copy holds, or is being forked to hold; or None."""
        return next(
            (snapshot for snapshot in self.chain.all() if snapshot.copy.number == number), None
        )

    def is_copy(self, number: int) -> bool:
        """Return whether a process holds a snapshot, or is being forked to hold one."""
        return self._held_by(number) is not None

    def fork_stood(self, number: int, connections: int) -> None:
        """Note that a copy stands. The driver has made sure that its process is the guest's.

        ``connections`` is how many connections the guest had, as the copy reports.
        """
        if self.takeover is not None and number == self.guest:
            # The copy was still being forked when it was chosen to take over.
            self.takeover.stands = True
            return
        snapshot = self._held_by(number)
        if snapshot is None:
            return
        copy = snapshot.copy
        copy.stands = True
        snapshot.connections = connections
        self._gate_refused = False
        self._emit(act.Protect(number))  # before another cell could signal the copy
        if copy.maker == self.guest and self.serves:
            # A task may have run in the guest, and taken memory, before the guest forked.
            size = max(snapshot.had.size, self._world.resident(self.guest))
            snapshot.had = replace(snapshot.had, size=size)
        if not snapshot.served:
            self._budget.took(self._world.now() - copy.asked_at, snapshot.had.size)
        self._settle(snapshot)
        if self._waits_for_twin(snapshot):
            self._resume()
        self._notify_waiters(snapshot)

    def fork_parted(self, maker: int, number: int) -> None:
        """Note a copy's report that it has forked ``number`` and let go of that fork's descriptors.

        A copy that reports a fork which it was not asked for is dropped.
        """
        takeover = self.takeover
        snapshot = self._held_by(maker)
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
        """Note the report of a guest or copy that it could not fork ``number``."""
        snapshot = self._held_by(maker)
        if snapshot is not None:
            if number not in snapshot.copy.forks:
                self.copy_ended(maker, killed=False)
                return
            snapshot.copy.forks.discard(number)
        awaited = self._held_by(number)
        if awaited is not None and not awaited.kept:
            self._drop(awaited)
        if number in self._lost_forks:
            self._report_failed_fork(error)
        if snapshot is not None:
            self._settle(snapshot)

    def fork_not_asked(self, number: int, why: str) -> None:
        """Note that the host has no descriptors for a copy, so that nobody was asked to fork."""
        self._budget.say("files", f"the kernel can't open what one takes ({why})")
        if (awaited := self._held_by(number)) is not None:
            self._drop(awaited, was_asked=False)

    def fork_of_device_user(self, number: int) -> None:
        """Note that the guest uses a device by now, so that it was not asked to fork."""
        self._budget.say("device", memory.USES_DEVICE)
        if (awaited := self._held_by(number)) is not None:
            self._drop(awaited, was_asked=False)

    def why_no_copy(self) -> str:
        """Return why the guest can't be copied in its present state, or ""."""
        return memory.USES_DEVICE if self._world.uses_device(self.guest) else ""

    def fork_not_sent(self, number: int) -> None:
        """Note that the maker could not be told to fork: it is gone, or does not read."""
        self._do_without_fork(number)

    def _do_without_fork(self, number: int) -> None:
        """Drop a copy that has not come to stand."""
        snapshot = self._held_by(number)
        if snapshot is not None and not snapshot.kept:
            self._drop(snapshot)

    def _report_failed_fork(self, error: int) -> None:
        """Tell the user that a fork failed, unless the gate refused it: then try once more.

        The gate lets a fork through only while the host announces it. On a busy machine a fork may
        take so long that the host has given it up, and then the gate refuses it.
        """
        if error == errno.EPERM and not self._gate_refused:
            self._gate_refused = True
            self._take_when_idle()
            return
        self._budget.say("failed", f"one could not be made ({os.strerror(error)})")

    def copy_ended(self, number: int, *, killed: bool = True) -> None:
        """Go on without a copy that ended.

        If it was not ``killed`` it lied: it sent a message that it may not send, or its process is
        not the guest's.
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

    # --- a snapshot is kept: copies are few, stopped, and no larger than they may be ------------

    def _settle(self, snapshot: Snapshot) -> None:
        """Stop the copy of a snapshot that is kept, and drop snapshots that are too many now."""
        if snapshot.kept:
            self._stop_all()
            self._prune_chain(snapshot)
            # The fork that was let through has made this copy. A process that is still unknown is
            # none of ours.
            self._remind_once(_SWEEP_DELAY, Cause.sweep)
            self._remind_once(_LOOK_DELAY, Cause.look)

    def _stop_all(self, *, again: bool = False) -> None:
        """Stop the copies that only wait. With ``again``, stop also those stopped before.

        Waiting needs no processor time, and a waiting copy may do nothing else.
        """
        for snapshot in self.chain.all():
            if snapshot.settled and (again or not snapshot.copy.stopped):
                snapshot.copy.stopped = True
                self._emit(act.Stop(snapshot.copy.number))

    def _prune_chain(self, newest: Snapshot) -> None:
        """Drop the snapshots before ``newest`` that ``%undo`` does not need or may not have."""
        chain = self.chain
        bytes_max = self.policy.undo_max_bytes
        if newest not in chain:
            return
        for snapshot in chain[: chain.index(newest)]:
            if snapshot.kept and not snapshot.visible:
                self._drop(snapshot)
        while chain.index(newest) > self.policy.undo_depth:
            self._drop(chain[0])
        while chain.is_spare(newest, self.policy.undo_depth):
            self._drop(chain[0])
        while bytes_max is not None and chain.index(newest) and chain.cost() > bytes_max:
            self._drop(chain[0])

    def stop_again(self) -> None:
        """Stop copies again that the end of a guest, or of one of its threads, may have continued.

        The OS kernel sends them a signal then (prctl(2), PR_SET_PDEATHSIG). The driver calls
        ``copies_read`` next.
        """
        self._stop_all(again=True)

    def copies_read(self, readings: Mapping[int, CopyReading]) -> None:
        """Drop copies that hold more memory than they may, or do more than wait.

        ``readings`` are by the number of each copy. A copy can run before it is stopped, or when
        something has continued it. It may then get new pages, or write to pages that it shared with
        its guest. Those count as if the guest had written to them.
        """
        memory_max = self.policy.memory_max_bytes
        own_bytes_max = None if memory_max is None else slack(memory_max)
        for snapshot in self.chain.all():
            copy = snapshot.copy
            if copy.number in readings:
                before = copy.used
                copy.used, copy.grew, copy.rewrote = readings[copy.number]
                if before and copy.used - before > _WAITING_CPU and snapshot.settled:
                    self._drop(snapshot)  # nobody is charged for what it computes
        while (
            own_bytes_max is not None
            and sum(snapshot.copy.grew for snapshot in self.chain.all()) > own_bytes_max
        ):
            self._drop(max(self.chain.all(), key=lambda snapshot: snapshot.copy.grew))
        self._prune_checkpoints()
        if self.chain and self.chain[-1].settled:
            self._prune_chain(self.chain[-1])

    def doubts(self) -> frozenset[int]:
        """Return the processes whose shared pages must be read, because estimates may be too low.

        The pages that a child writes while it shares the guest's memory (clone(2), CLONE_VM) count
        as given to the child, and are in no estimate of what copies hold. Even so, a copy can't
        hold more for itself than all that it ever had. If the policy allows that much, nothing has
        to be read. What copies share with each other stays as it is, so it is read once; what a
        checkpoint shares with the guest changes, so it is read each time. The driver calls
        ``shares_read`` later.
        """
        most = self.policy.undo_max_bytes
        to_read = set[int]()
        if most is None or not self.policy.subprocess_execution or self.guest is None:
            return frozenset()
        kept_snapshots = self._kept_in_chain()
        checkpoints = list(self.chain.named().values())
        checkpoints_doubted = sum(snapshot.had.size for snapshot in checkpoints) > most
        if sum(snapshot.had.size for snapshot in kept_snapshots[:-1]) > most:
            to_read.update(snapshot.copy.number for snapshot in kept_snapshots)
        if checkpoints_doubted:
            to_read.update((self.guest, *(snapshot.copy.number for snapshot in checkpoints)))
        if not to_read <= self._shares_known:
            self._remind_once(_LOOK_DELAY, Cause.look)  # for the answer
        elif not checkpoints_doubted:
            return frozenset()
        return frozenset(to_read)

    def _kept_in_chain(self) -> list[Snapshot]:
        """Return the snapshots of the chain that are kept, the oldest first."""
        return [snapshot for snapshot in self.chain if snapshot.kept]

    def shares_read(self, processes: frozenset[int], shares: Mapping[int, Shares]) -> None:
        """Drop the oldest copies while they hold more memory for themselves than they may.

        ``processes`` are the processes that ``doubts`` returned. ``shares`` lacks those
        that are gone, and is empty if the OS kernel can't be asked. What the newest copy has, too,
        does not count as held by the older ones; nor what the guest has, for checkpoints.
        """
        self._shares_known = processes
        kept_snapshots = self._kept_in_chain()
        checkpoints = list(self.chain.named().values())
        if kept_snapshots:
            self._drop_over_limit(kept_snapshots[-1].copy.number, kept_snapshots[:-1], shares)
        if self.guest is not None:
            self._drop_over_limit(self.guest, checkpoints, shares)

    def _drop_over_limit(
        self, sharer: int, snapshots: list[Snapshot], shares: Mapping[int, Shares]
    ) -> None:
        """Drop the oldest of ``snapshots`` while they hold too much that ``sharer`` does not."""
        most = self.policy.undo_max_bytes
        numbers = [snapshot.copy.number for snapshot in snapshots]
        if most is None or not shares.keys() >= {sharer, *numbers}:
            return
        while snapshots and beyond(shares[sharer], [shares[number] for number in numbers]) > most:
            oldest = snapshots.pop(0)
            (self._drop_named if oldest.name else self._drop)(oldest)
            numbers.pop(0)
            # The pages of the dropped copy belong to fewer processes now: read again.
            self._shares_known = frozenset()

    def _prune_checkpoints(self) -> None:
        """Drop the oldest checkpoints while they may hold more memory than the policy allows."""
        bytes_max = self.policy.undo_max_bytes
        while bytes_max is not None and (checkpoints := list(self.chain.named().values())):
            if self._bytes_of_checkpoints(checkpoints) <= bytes_max:
                return
            self._drop_named(checkpoints[0])

    def _drop_named(self, snapshot: Snapshot) -> None:
        """Drop a checkpoint or branch that holds too much, and tell the user, who counts on it."""
        kind = "branch" if snapshot.is_branch else "checkpoint"
        why = "all that have names held more memory than undo_max_bytes allows"
        self._budget.notify(f"dropped {kind} {snapshot.name}: {why}")
        self._drop(snapshot)

    def _bytes_of_checkpoints(self, checkpoints: Iterable[Snapshot]) -> int:
        """Return how many bytes checkpoints hold and do not share with the guest, at most.

        If the guest's state does not descend from a checkpoint, the two may share nothing.
        """
        guest_reading = self._world.reading(
            self.guest, self._world.resident(self.guest), self.given
        )
        return sum(
            checkpoint.had.size
            if checkpoint.had.faults > self.given
            else min(
                checkpoint.had.size,
                memory.left_behind(checkpoint.had, guest_reading) + checkpoint.copy.rewrote,
            )
            for checkpoint in checkpoints
        )

    # --- a snapshot is lost ---------------------------------------------------------------------

    def _drop(self, snapshot: Snapshot, *, was_asked: bool = True) -> None:
        """Drop a snapshot and end its copy.

        Requests that ran after it count as run after the snapshot before it. ``was_asked`` is False
        if nobody was asked to fork the copy.
        """
        if snapshot in self.chain:
            self.chain.forget(snapshot)
        elif snapshot in self.chain.apart:
            self.chain.apart.remove(snapshot)
        else:
            return
        snapshot.lost = True
        self._emit(act.Drop(snapshot.copy.number))
        if not snapshot.copy.stands and was_asked:
            # The copy's process is not known, and another process may have used the fork that the
            # gate let through for it. Unknown processes can be ended only when no other copy is
            # forking: one may have forked and not reported yet.
            self._stop_all()
            self._lost_forks.append(snapshot.copy.number)
            self._unknown += 1
            self._sweep()
            self._remind(_SWEEP_DELAY, Cause.sweep)
        if self._waits_for_twin(snapshot):
            self._resume()
        self._notify_waiters(snapshot)

    def let_go(self, *copies: Snapshot | None) -> None:
        """Drop snapshots that are not needed after all."""
        for copy in copies:
            if copy is not None:
                self._drop(copy)

    def _drop_all(self) -> None:
        for snapshot in self.chain.all():
            self._drop(snapshot)

    def _drop_oldest(self) -> bool:
        """Drop the oldest snapshot of the chain; return whether there was one."""
        if self.chain:
            self._drop(self.chain[0])
            return True
        return False

    # --- unknown processes ----------------------------------------------------------------------
    #
    # The gate lets one fork through for each copy that is asked for. Where cells may start no
    # programs, a hostile guest could use that fork for a process of its own.

    def is_forking(self) -> bool:
        """Return whether a copy was asked for that does not stand yet."""
        return any(not snapshot.kept for snapshot in self.chain.all())

    def is_settled(self) -> bool:
        """Return whether no copy is being forked."""
        return all(snapshot.settled for snapshot in self.chain.all())

    def _may_fork(self) -> bool:
        """Return whether another fork may be asked for.

        Not while ``_MAX_UNKNOWN`` unknown processes may exist. They can't be ended while copies are
        being forked; if that never stopped, there would be more and more of them.
        """
        if self.policy.subprocess_execution:
            return True
        if self._unknown >= _MAX_UNKNOWN:
            self._sweep()
        return self._unknown < _MAX_UNKNOWN

    def _sweep(self) -> None:
        """End unknown processes, if no copy is being forked and cells may start no programs."""
        if self.policy.subprocess_execution or self.guest is None:
            return
        if self.is_settled() and self._world.others_are_settled():
            self._unknown = 0
            self._emit(act.EndUnknown())

    # --- reminders ------------------------------------------------------------------------------

    def _remind(self, seconds: float, cause: Cause, number: int = 0) -> None:
        self._emit(act.Remind(seconds, Reminder(cause, number)))

    def _remind_once(self, seconds: float, cause: Cause) -> None:
        """Have ``reminded`` called after some seconds, once for all calls of this until then."""
        if (reminder := Reminder(cause)) not in self._soon:
            self._soon.add(reminder)
            self._remind(seconds, cause)

    def reminded(self, reminder: Reminder) -> None:
        """Act on a reminder, if it still matters. Called by the driver.

        For ``Cause.look``, the driver looks at the copies afterwards. So it has no case here.
        """
        self._soon.discard(reminder)
        match reminder.cause:
            case Cause.idle if reminder == self._due:
                self._due = None
                if self._world.is_idle():
                    self._take()
            case Cause.late:
                self._do_without_fork(reminder.number)
            case Cause.kept_waiting:
                self._stop_waiting_for_report(reminder.number)
            case Cause.too_long if self.takeover is not None and reminder.number == self.guest:
                self._fail()
            case Cause.sweep:
                self._sweep()

    def _stop_waiting_for_report(self, number: int) -> None:
        """Stop waiting for a copy's report of what became of a fork."""
        for snapshot in self.chain.all():
            if number in snapshot.copy.forks:
                snapshot.copy.forks.discard(number)
                self._settle(snapshot)

    # --- the guest is lost, or given up ---------------------------------------------------------

    def guest_lost(self, stopped: Stopped, *, with_copies: bool = False) -> None:
        """Have the newest snapshot take over from a guest that ended, or must end.

        If the zygote ended, the guest is lost ``with_copies``: the gate ended with the zygote, so
        nothing would let the copies fork.
        """
        if self.restores:
            if with_copies:
                self._drop_all()
                self._fail()
            return
        running = self._release_guest(empties=True)
        if running is None:
            self._losses += 1
        if with_copies or self._losses > MAX_LOSSES:
            self._drop_all()
        self._begin_takeover(Takeover(stopped, self._world.now(), running))
        self._try_newest()

    def _release_guest(self, *, empties: bool = False) -> Any:
        """End the guest for a takeover; return the request that it had begun, or None.

        Copies that it was asked to fork apart from the chain are dropped. Those it was asked to
        fork for the chain may still take over, but procedures no longer wait for them.
        """
        running = self._world.running()
        self._due = None
        self._emit(act.Unwatch())
        former = self._end_guest(empties=empties)
        for promise in self._promises:
            promise.before = None
        for snapshot in self.chain.all():
            snapshot.copy.stopped = False  # the end of a guest continues its copies
        for snapshot in tuple(self.chain.apart):
            if snapshot.copy.maker == former and not snapshot.kept:
                self._drop(snapshot)
        self._resume_procedures(lambda awaited: awaited in self.chain, None)
        return running

    def _begin_takeover(self, takeover: Takeover) -> None:
        self.takeover = takeover
        self.phase = Phase.restoring

    def steps(self) -> list[UndoStep]:
        """Return the states that ``%undo`` can go back to, the nearest first.

        If the guest uses a device, leave out each state whose undo would take back more cells than
        the user asks for. No snapshots are made then, so one step might take back twenty cells.
        """
        steps = self.chain.steps(self.policy.undo_depth)
        if not self._world.uses_device(self.guest):
            return steps
        return [
            step
            for count, step in enumerate(steps, 1)
            if sum(request.is_step for request in step.undone) <= count
        ]

    def undo(self, step: UndoStep) -> None:
        """Go back to a state of the chain."""
        counts = tuple(request.message.execution_count for request in step.undone)
        stopped = Stopped("undo", undone=counts)
        running = self._release_guest()
        while self.chain and self.chain[-1] is not step.snapshot:
            self._drop(self.chain[-1])
        began_at = self._world.now()
        self._begin_takeover(
            Takeover(stopped, began_at, running, missed=step.again, undone=step.undone)
        )
        self._try(step.snapshot)

    def relock(self, plan: messages.Plan) -> None:
        """Have the newest snapshot, which has all that ran, take over under more locks.

        All other copies are dropped, because they have fewer locks. For the same reason the copy
        leaves no twin.
        """
        snapshot = self.chain.complete()
        self._release_guest()
        self._begin_takeover(Takeover(Stopped("narrowed"), self._world.now(), plan=plan))
        if snapshot is not None:
            self.chain.remove(snapshot)
        self._drop_all()
        if snapshot is None:
            self._try_newest()
        else:
            self._wake_as_guest(snapshot, snapshot.copy)
            self._resume()

    def adopt(self, had: memory.Reading, takeover: Takeover) -> int:
        """Have a copy of another session's guest become this session's; return its number.

        The copy takes over when its locks are ready (``locks_are_ready``).
        """
        self._release_guest()
        copy = self._new_copy(None)
        copy.stands = True
        self._begin_takeover(takeover)
        self._wake(copy, had)
        takeover.snapshot = Snapshot(copy, had)
        return copy.number

    def locks_are_ready(self, number: int) -> None:
        """Have the adopted copy take over. Called when the zygote has its locks ready."""
        takeover = self.takeover
        if takeover is None or number != self.guest or takeover.snapshot is None:
            return  # the copy ended meanwhile
        self._allow_time(takeover.snapshot, takeover.snapshot.copy)
        self._resume()

    # --- a copy becomes the guest ---------------------------------------------------------------

    def _try_newest(self) -> None:
        """Have the newest snapshot take over; if there is none, have a new guest started."""
        takeover = self.takeover
        snapshot = self.chain.newest()
        if takeover is None:
            return
        if snapshot is None:
            self.takeover = None
            self.phase = Phase.absent
            self._promises.clear()
            self._emit(act.StartAnew(takeover.stopped))
            return
        takeover.goes_back_to(snapshot)
        self._try(snapshot)

    def _try(self, snapshot: Snapshot) -> None:
        """Have the copy of a snapshot become the guest. A twin that it forks takes its place.

        The copy is told nothing else until the twin stands, or can't. The copy serves and not the
        twin, because the twin is the copy's child, and the zygote would not learn how it ends.
        """
        copy = snapshot.copy
        self._wake_as_guest(snapshot, copy)
        if snapshot.served < MAX_SERVED:
            snapshot.served += 1
            snapshot.copy = self._new_copy(copy.number)
            self._order_fork(snapshot.copy)
        else:
            self.chain.remove(snapshot)
            self._resume()

    def _wake_as_guest(self, snapshot: Snapshot, copy: Copy) -> None:
        """Wake a copy with the state of a snapshot, make it the guest, and limit its time."""
        self._wake(copy, snapshot.had)
        self._allow_time(snapshot, copy)

    def _wake(self, copy: Copy, had: memory.Reading) -> None:
        self.guest = copy.number
        self.given = had.faults
        self._emit(act.Wake(copy.number))
        self._remind_once(_LOOK_DELAY, Cause.look)  # the former guest's end continues all copies
        # First: as many programs as there may be would keep the copy from processor and gate.
        self._end_programs()

    def _end_programs(self) -> None:
        """End the programs that the former guest started: they would count as the new one's."""
        if self.policy.subprocess_execution:
            self._emit(act.EndUnknown())

    def _allow_time(self, snapshot: Snapshot, copy: Copy) -> None:
        if self.takeover is not None:
            leaves_chain = snapshot not in self.chain
            began_at = self._world.now()
            seconds = self.takeover.begins(snapshot, copy, began_at, leaves_chain=leaves_chain)
            self._remind(seconds, Cause.too_long, copy.number)

    def _waits_for_twin(self, snapshot: Snapshot) -> bool:
        """Return whether a takeover waits until this snapshot's twin has been forked."""
        takeover = self.takeover
        return takeover is not None and takeover.snapshot is snapshot and not takeover.is_told

    def _resume(self) -> None:
        """Tell the copy to take over. Nothing else is sent to it until it reports that it has."""
        takeover = self.takeover
        guest = self.guest
        if takeover is not None and guest is not None:
            again, inputs = takeover.tells()
            is_fork = takeover.stopped.why == "fork"
            plan = takeover.plan
            place = takeover.place
            self._emit(act.TakeOver(guest, again, inputs, plan, place, is_fork))

    def locks_are_on(self) -> None:
        """Note the zygote's report that the copy which takes over has the locks of the plan."""
        if self.takeover is not None:
            self.takeover.confined = True

    def emptied(self) -> None:
        """Note that the contents of /dev/shm were removed."""
        if self.takeover is not None:
            self.takeover.emptied = True

    def takeover_said(self, message: messages.FromGuest) -> None:
        """Act on a message of the copy that takes over."""
        takeover = self.takeover
        guest = self.guest
        if takeover is None or guest is None:
            return
        match takeover.hears(message):
            case Heard.wrong:
                self._fail()
            case Heard.progress:
                if isinstance(message, messages.Resumed):
                    self._end_programs()
                if takeover.next is not None:
                    self._emit(act.Replay(guest, takeover.next))
                else:
                    # What this state promised is safe. Answer before anything else is sent.
                    for promise in self._promises:
                        if promise.own is takeover.snapshot:
                            self._call_back(promise.answer)
                    self._promises.clear()
                    self._emit(act.Serve(guest))

    def served(self, number: int) -> None:
        """Serve by a copy that has taken over. Called by the driver when the session can see it."""
        takeover = self.takeover
        if takeover is None or number != self.guest or not takeover.caught_up:
            return  # the copy was lost meanwhile
        self.takeover = None
        self.phase = Phase.serving
        if takeover.snapshot is not None:
            takeover.snapshot.served = 0  # this state does not end every process that has it
        for request in takeover.ran_again(self._world.now()):
            self._record(request)
        if takeover.leaves_chain:
            for snapshot in tuple(self.chain):
                self._drop(snapshot)
        self._take_soon()
        self._emit(act.Restored(number, takeover.outcome()))

    def _fail(self, *, killed: bool = False) -> None:
        """Have another copy take over after one that ended, lied or was late.

        This is the twin if the state is still good, or else the copy of the snapshot before.
        """
        takeover = self.takeover
        if takeover is None:
            return
        snapshot = takeover.snapshot
        is_good = takeover.fails(self._world.now(), killed=killed)
        self._end_guest()
        self._begin_takeover(takeover)
        if not is_good:
            self.let_go(snapshot)  # its twin could not take over either
        self._try_newest()

    # --- names ----------------------------------------------------------------------------------

    def checkpoint(self, name: str, on_result: Callable[[str], None], cell: int = 0) -> None:
        """Keep the guest's state under a name; ``on_result`` is called with why not, or "".

        ``cell`` is the number of the cell that asks for it.
        """
        self._advance(self._checkpoint(name, on_result, cell))

    def _checkpoint(self, name: str, on_result: Callable[[str], None], cell: int) -> Procedure:
        self._call_back(on_result, (yield from self._keep_under_name(name, cell)))

    def _keep_under_name(self, name: str, cell: int = 0, *, is_branch: bool = False) -> Procedure:
        """Keep the guest's state under a name; return why that can't be done, or ""."""
        states_by_name = self.chain.named()
        bytes_max = self.policy.undo_max_bytes
        former = states_by_name.pop(name, None)
        if former is not None and former.is_branch and not is_branch:
            return "a branch has this name; choose another"
        if len(states_by_name) >= self.policy.max_branches:
            existing = names.listed(states_by_name)
            return f"max_branches allows {self.policy.max_branches}, and there are {existing}"
        if (
            bytes_max is not None
            and (size := self._bytes_of_checkpoints(states_by_name.values())) > bytes_max
        ):
            existing = names.listed(states_by_name)
            return f"{existing} may hold {size:,} bytes by now, undo_max_bytes allows {bytes_max:,}"
        checkpoint = self._fork_apart()
        if checkpoint is None or (yield checkpoint) is None:
            return self.why_no_copy() or "no copy of the state could be made"
        if former is not None:
            self._drop(former)
        checkpoint.name = name
        checkpoint.cell = cell
        checkpoint.is_branch = is_branch
        return ""

    def restore(self, name: str, refused: Callable[[str], None]) -> None:
        """Go back to a checkpoint, and keep it; ``refused`` is called if that can't be done."""
        self._advance(self._restore(name, refused))

    def _restore(self, name: str, refused: Callable[[str], None]) -> Procedure:
        if why := (yield from self._go_to_state(name)):
            self._call_back(refused, why)

    def _go_to_state(self, name: str, branch: str = "") -> Procedure:
        """Have a checkpoint take over; return why that can't be done, or "".

        Its twin is made while the guest lives, so that nothing is given up if it can't be made.
        """
        states_by_name = self.chain.named()
        guest = self.guest
        if (checkpoint := states_by_name.get(name)) is None:
            return names.not_kept(name, states_by_name)
        new_twin = self._fork_apart(checkpoint)
        twin = None if new_twin is None else (yield new_twin)
        if twin is None or not checkpoint.kept or not self.serves or self.guest != guest:
            self.let_go(twin)
            return "no copy of it could be made"
        running = self._release_guest()
        copy = checkpoint.copy
        checkpoint.copy = twin.copy
        self.chain.apart.remove(twin)
        stopped = Stopped("undo", detail=name, branch=branch)
        on_failure = Stopped("crash", PICKED_ENDED)
        self._begin_takeover(Takeover(stopped, self._world.now(), running, otherwise=on_failure))
        self._wake_as_guest(checkpoint, copy)
        self._resume()
        return ""

    def go_to_branch(self, name: str, start: str, on_result: Callable[[str], None]) -> None:
        """Keep the state under the current branch's name, and go to another branch or begin it.

        A new branch begins at the checkpoint or branch ``start``, or else at the current state.
        ``on_result`` is called with why that can't be done, or with "" if a branch began at the
        current state. A state that is restored is reported as after ``%restore``.
        """
        self._advance(self._go_to_branch(name, start, on_result))

    def _go_to_branch(self, name: str, start: str, on_result: Callable[[str], None]) -> Procedure:
        states_by_name = self.chain.named()
        former_branch = self.branch
        why = names.no_branch(former_branch, name, start, states_by_name)
        if not why:
            why = yield from self._keep_under_name(former_branch, is_branch=True)
        if why:
            self._call_back(on_result, why)
            return
        self.branch = name
        source = start or (name if name in states_by_name else "")
        if source and not (why := (yield from self._go_to_state(source, branch=name))):
            return
        if why:
            self.branch = former_branch
        self._call_back(on_result, why)

    def drop_name(self, name: str) -> str:
        """Drop a checkpoint, or a branch that the session is not on; return why not, or ""."""
        states_by_name = self.chain.named()
        if why := names.not_dropped(self.branch, name, states_by_name):
            return why
        self._drop(states_by_name[name])
        return ""

    # --- copies for other sessions --------------------------------------------------------------

    def fork(self, count: int, on_copies: Callable[[list[Snapshot]], None]) -> None:
        """Have ``count`` copies made of the guest as it is; ``on_copies`` gets those made."""
        self._advance(self._fork(count, on_copies))

    def _fork(self, count: int, on_copies: Callable[[list[Snapshot]], None]) -> Procedure:
        """Have one copy of the guest fork the others, and end it.

        Its end makes the others children of the zygote, which so learns how they end. Some are
        asked for ahead, so that the copy forks without a pause.
        """
        copies = list[Snapshot]()
        pending = deque[Snapshot]()
        source = self._fork_apart()
        if source is not None and (yield source) is not None:
            for _ in range(count):
                if (copy := self._fork_apart(source)) is None:
                    break
                pending.append(copy)
                if len(pending) == _MAX_FORKING:
                    if (yield pending[0]) is None:
                        break
                    copies.append(pending.popleft())
            for copy in pending:
                if (yield copy) is not None:
                    copies.append(copy)
            self._drop(source)
        self._call_back(on_copies, [copy for copy in copies if copy.kept])

    def give_away(self, snapshot: Snapshot) -> None:
        """Give a copy that stands apart from the chain to another session."""
        self.chain.apart.remove(snapshot)
