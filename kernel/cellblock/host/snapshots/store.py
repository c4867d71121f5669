r"""When a snapshot of the guest is taken, how it is made, and how long it is kept.

A snapshot is a copy of the guest that waits: a process that shares its memory with the guest until
one of them writes. ``Snapshots`` has those of one session, and takes each through these states:

::

    none ──────▶ due ──────▶ forking ──────▶ kept ──────▶ lost
          ran        take       ▲    stands   │
                                └─────────────┘
                                     go_to

- *due*: a request ran to its end (``ran``), or a guest began to serve. A snapshot is taken when
  nothing comes for ``IDLE`` seconds, or at once where what ran can't be run again (``take``). A
  request that comes before puts it off. None is taken that can't be afforded (``memory.Budget``).
- *forking*: the guest was asked to fork (``_ask``), and the zygote to let that through. It has
  ``PATIENCE`` seconds.
- *kept*: it has said that it stands, and its process is the guest's (``_stands``). It is stopped.
  The newest is used when a cell is killed, the older ones for ``%undo``: as many as the policy has
  room for (``_keep_few``). What each comes to hold is bounded (``look``).
- *lost*: it ended, could not be made, or was dropped.

Whoever is to serve forks first: a twin takes its place in the snapshot, which is forking and kept
once more (``go_to``), and holds the state while ``restore`` has the rest done. So a kill, ``%undo``
and ``%restore`` cost no snapshot, and what is killed while it takes over costs nothing.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import force_setattr, replace

from cellblock.host.guests.process import Guest
from cellblock.host.limits.monitor import slack
from cellblock.host.limits.processes import Gauge, page_faults, private_bytes
from cellblock.host.snapshots import memory
from cellblock.host.snapshots.branches import Branches
from cellblock.host.snapshots.chain import (
    LATELY,
    Chain,
    PastRequest,
    Snapshot,
    SnapshotState,
    UndoStep,
)
from cellblock.host.snapshots.memory import Budget, Reading
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.policy.model import Policy


#: Seconds without a request that count as idle time.
IDLE: Final = 0.02
#: Seconds that a snapshot may take to stand before the guest's next cell goes on without it.
PATIENCE: Final = 5.0
#: Snapshots that are being forked at a time, at most.
_MAX_FORKING: Final = 3
#: How often a state may serve and be kept all the same: it may be what ends those that have it.
MAX_SERVED: Final = 8
#: Seconds of the processor that one may use between two looks, which is to stand still.
_STILL: Final = 0.05
#: Seconds until what has come to stand, or was set going, is looked at.
_LOOK: Final = 0.1
#: Seconds after which processes that nobody knows are looked for again: one may have been in the
#: middle of its fork.
_AFTERWARDS: Final = 1.0
#: As many of them as there may be until nothing is being forked for a moment.
_MAX_UNKNOWN: Final = 3


class SnapshotOwner(Protocol):
    """What snapshots need of the session's requests."""

    def idle(self) -> bool:
        """Return whether no request is under way."""

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything: no snapshot can be taken."""

    def on_notice(self, text: str) -> None:
        """Tell the user why no snapshot is taken."""


class Serving(Protocol):
    """What snapshots need of the supervisor that has them."""

    zygote: Zygote | None

    @property
    def owner(self) -> SnapshotOwner:
        """The session's requests."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""

    def restore(self, name: str, refused: Callable[[str], None], *, branch: str) -> None:
        """Go back to a checkpoint; ``refused`` gets why that can't be done."""

    def on_snapshot_lost(self) -> None:
        """Replace a snapshot that ended while it was kept."""


class Snapshots:
    """The snapshots of a session's guest, which ``supervisor`` has."""

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        policy: Policy,
        supervisor: Serving,
    ) -> None:
        self._reactor, self._clock, self._policy = reactor, clock, policy
        self._supervisor = supervisor
        self._budget = Budget(policy.snapshots, clock, supervisor.owner.on_notice)
        self.chain = Chain()
        self.branches = Branches(supervisor, self)
        #: Runs while one is due.
        self._due: Timer | None = None
        self._numbers = 0
        #: The guest that serves, or is about to, and the zygote that lets its forks through.
        self._guest: Guest | None = None
        self._zygote: Zygote | None = None
        #: Pages that those were given whose state the guest has from them.
        self._given = 0
        #: What is to be done before long, once however often that is said.
        self._soon = set[Callable[[], Any]]()
        #: Snapshots that did not stand, whose forks something else may have taken.
        self._unknown = 0
        #: The last of them: that they are lost may be seen before the guest's word on why.
        self._lost_forks = deque[int](maxlen=_MAX_FORKING)
        #: Whether the last was refused by the gate.
        self._refused = False
        #: Of a fork: what it had when it was made, and whose it was.
        self.base: Reading | None = None
        self.parent: Snapshots | None = None
        #: Variables that were set so lately that they may be set once more; then values are let go.
        self._values = deque[PastRequest]()

    def narrow_to(self, policy: Policy) -> None:
        """Apply a narrower policy's limits, also to snapshots that are kept already."""
        self._policy = policy

    def begin(self, guest: Guest, zygote: Zygote) -> None:
        """Record the guest that serves, and its zygote: none of a guest before it is kept."""
        self._guest, self._zygote, self._given = guest, zygote, 0
        self.base = self.parent = None
        guest.lineage.users.append(self)

    def clear(self) -> None:
        """Drop all of them."""
        for snapshot in (*self.chain, *self.chain.apart):
            self._drop(snapshot)

    def drop_chain(self) -> None:
        """Drop all but checkpoints."""
        for snapshot in tuple(self.chain):
            self._drop(snapshot)

    def end(self) -> None:
        """Drop all, and have whatever else was forked ended: nothing of their guest is to go on."""
        guest, zygote = self._guest, self._zygote
        self._guest = self._zygote = None
        self.clear()
        self.branches.begin_anew()
        if guest is not None and self in guest.lineage.users:
            guest.lineage.users.remove(self)
        if guest is not None and zygote is not None:
            zygote.keep_only(guest, (), guest.lineage.others(self))

    # --- due ----------------------------------------------------------------------------------

    def ran(self, request: PastRequest, answer: Callable[[], None]) -> None:
        """Record that a request ran to its end, and call ``answer`` when it may be answered.

        A short one may be as soon as the one before it is kept: in the millisecond until its own
        snapshot stands, it is the only one to be run again. A long one can't be run again, so
        it is answered when what it did is safe, whichever one process is killed next; so is one
        with side effects. What comes out the same when it is run again is safe already: none is
        taken for it, until about a second's work would have to be done again.
        """
        newest = self.chain.newest()
        if request.repeatable and newest is not None and self.chain.covers_all():
            answer()
            self.record(request)
            if not newest.repeatable:
                self.take()
            return
        if request.short and self.chain.covers_all():
            answer()
            self.record(request)
            self.take_in_time()
            return
        if request.short and newest is not None and not newest.kept and newest.repeatable:
            # Not if that one takes over: it has not what ran since.
            newest.on_kept = answer
        self.record(request)
        self.take(answer)

    def record(self, request: PastRequest) -> None:
        """Record that a request ran to its end, and take no snapshot for that."""
        if self.chain:
            self.chain[-1].after.append(request)
        if isinstance(request.message, messages.SetVariables):
            self._values.append(request)
        while self._values and request.ended - self._values[0].ended > LATELY:
            past = self._values.popleft()
            force_setattr(past, "message", replace(past.message, values={}))

    def postpone(self) -> None:
        """Put off what is due: a request came, so this is no idle time.

        But the first of all is taken now, or nobody could go back to before that request.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None
            if not self.chain:
                self.take()

    def take_in_time(self) -> None:
        """Take a snapshot: at once, or when nothing comes for a while if that loses nothing."""
        newest = self.chain.newest()
        if newest is not None and newest.repeatable:
            self.take_when_idle()
        else:
            self.take()

    def take_when_idle(self) -> None:
        """Take a snapshot when nothing comes for a while.

        None while a request is under way: the guest would make it when that has ended, and it
        would count as made before.
        """

        def due() -> None:
            self._due = None
            if self._supervisor.owner.idle():
                self.take()

        self.postpone()
        self._due = self._reactor.call_later(IDLE, due)

    def take(self, decided: Callable[[], None] | None = None) -> None:
        """Take one now; ``decided`` is called once it stands, or it is certain that it will not."""
        self.postpone()
        guest, zygote = self._supervisor.guest, self._supervisor.zygote
        if guest is None or zygote is None or (made := self._take_of(guest, zygote)) is None:
            if decided is not None:
                decided()
            return
        made.on_decided, made.on_serving = decided, decided
        self._ask(guest, made)

    # --- forking ------------------------------------------------------------------------------

    def _take_of(self, guest: Guest, zygote: Zygote) -> Snapshot | None:
        """Return a snapshot to be asked for, as the newest; None where none can be afforded.

        Nor while a subshell runs something: half of that would be kept.
        """
        if self._supervisor.owner.runs_beside():
            return None
        forking = sum(not snapshot.kept for snapshot in self.chain)
        if self._policy.snapshots == "off" or forking >= _MAX_FORKING or not self._may_fork():
            return None
        resident = private_bytes(guest.pid)
        if not self._budget.allows(resident, self._drop_oldest):
            return None
        made = self._new(guest, memory.read(guest.pid, resident, self._given))
        if made is not None:
            self._guest, self._zygote = guest, zygote
            self.chain.append(made)
        return made

    def copy_apart(
        self,
        then: Callable[[Snapshot | None], None],
        source: Snapshot | None = None,
        *,
        name: str = "",
    ) -> None:
        """Have a copy made that is kept beside the others: of the guest, or of another such copy.

        ``then`` gets it when it stands, or None.
        """
        guest, zygote = self._supervisor.guest, self._supervisor.zygote
        made = None
        if guest is not None and zygote is not None and self._policy.snapshots != "off":
            resident = private_bytes(guest.pid)
            if self._may_fork() and self._budget.affords(resident, self._drop_oldest):
                had = memory.read(guest.pid, resident, self._given)
                self._guest, self._zygote = guest, zygote
                made = self._new(source.guest, source.had) if source else self._new(guest, had)
        if made is None or guest is None:
            then(None)
            return
        made.name, made.on_decided = name, lambda: then(made if made.kept else None)
        self.chain.apart.append(made)
        if source is None:
            self._ask(guest, made)
        else:
            self._have_forked(source, made)

    def fork(self, count: int, then: Callable[[list[Snapshot]], None]) -> None:
        """Have so many copies made of the guest as it is; ``then`` gets them, or fewer.

        A copy of the guest makes them, and ends: so they are nobody's children but the zygote's,
        which is told how they end. It is asked for some ahead, to fork without a pause.
        """
        made = list[Snapshot]()

        def begin(source: Snapshot | None) -> None:
            asked, decided, is_over = 0, list[Snapshot | None](), False

            def stands(copy: Snapshot | None) -> None:
                decided.append(copy)
                if copy is not None:
                    made.append(copy)
                go_on()

            def go_on() -> None:
                nonlocal asked, is_over
                while asked < count and asked - len(decided) < _MAX_FORKING and None not in decided:
                    asked += 1
                    self.copy_apart(stands, source)
                if len(decided) == asked and not is_over:
                    is_over = True
                    self.let_go(source)
                    then(made)

            if source is None:
                then(made)
            else:
                go_on()

        self.copy_apart(begin)

    def give_away(self, copy: Snapshot) -> None:
        """Have a copy that stands apart be another session's from now on."""
        self.chain.apart.remove(copy)

    def adopt(self, copy: Snapshot, zygote: Zygote, parent: Snapshots) -> None:
        """Have a copy of another session's guest serve here; what there is stays until it does."""
        if self._guest is None:
            self.base, self.parent = replace(copy.had, huge=None), parent
        self._zygote = zygote
        if self not in copy.guest.lineage.users:
            copy.guest.lineage.users.append(self)
        self._serve(copy.guest, copy.had)

    def checkpoint(
        self, name: str, then: Callable[[str], None], cell: int = 0, *, is_branch: bool = False
    ) -> None:
        """Keep the guest's state under a name; ``then`` gets why it is not kept, or nothing.

        ``cell`` is the number of the one that asks for it.
        """
        named, most = self.chain.named(), self._policy.undo_max_bytes
        former = named.pop(name, None)
        if former is not None and former.is_branch and not is_branch:
            then("a branch has this name; choose another")
        elif len(named) >= self._policy.max_branches:
            then(f"max_branches allows {self._policy.max_branches}, and there are {_listed(named)}")
        elif most is not None and (held := self._held_apart(named.values())) > most:
            then(f"{_listed(named)} may hold {held:,} bytes by now, undo_max_bytes allows {most:,}")
        else:

            def stands(made: Snapshot | None) -> None:
                if made is not None:
                    made.cell, made.is_branch = cell, is_branch
                    if former is not None:
                        self._drop(former)
                then("" if made is not None else "no copy of the state could be made")

            self.copy_apart(stands, name=name)

    def let_go(self, *copies: Snapshot | None) -> None:
        """Drop copies that are not wanted after all."""
        for copy in copies:
            if copy is not None:
                self._drop(copy)

    def _held_apart(self, checkpoints: Iterable[Snapshot]) -> int:
        """Return at most how many bytes checkpoints hold for themselves.

        One that the guest's state does not descend from may share nothing with it.
        """
        pid = self._guest.pid if self._guest is not None else None
        now = memory.read(pid, private_bytes(pid), self._given)
        return sum(
            one.had.size
            if one.had.faults > self._given
            else min(one.had.size, memory.left_behind(one.had, now) + one.rewrote)
            for one in checkpoints
        )

    def held_together(self) -> int:
        """Return at most how many bytes a sandbox and its forks hold; 0 where there are none.

        What they share counts once.
        """
        users = self._guest.lineage.users if self._guest is not None else []
        return sum(user.held_in_tree() for user in users) if len(users) > 1 else 0

    def held_in_tree(self) -> int:
        """Return what the guest holds, or a fork for itself, and what forks of it still hold."""
        if self._guest is None:
            return 0
        pid, users = self._guest.pid, self._guest.lineage.users
        now = Reading(private_bytes(pid), self._given + page_faults(pid))
        held = now.size if self.base is None else memory.added(self.base, now)
        forks = (one for one in users if isinstance(one, Snapshots) and one.parent is self)
        bases = sorted((one.base for one in forks if one.base), key=lambda one: one.faults)
        return held + sum(memory.left_behind(*both) for both in pairwise([*bases, now]))

    def _new(self, maker: Guest, had: Reading) -> Snapshot | None:
        """Return a snapshot to be made; None where there are no descriptors for its process."""
        guest = self._new_copy(maker)
        if guest is None:
            return None
        made = Snapshot(guest, self._numbers, self._clock(), had)
        self._hear(made)
        return made

    def _new_copy(self, maker: Guest) -> Guest | None:
        """Return the host's end of a copy, with the next number; None without descriptors."""
        try:
            guest = Guest(self._reactor, _ignore, _ignore, _ignore, check_sender=True)
        except OSError as exc:
            self._budget.say("files", f"the kernel can't open what one takes ({exc.strerror})")
            return None
        guest.lineage, guest.copied = maker.lineage, True
        self._numbers += 1
        return guest

    def _hear(self, snapshot: Snapshot) -> None:
        snapshot.guest.on_message = lambda message: self._on_message(snapshot, message)
        snapshot.guest.on_lost = lambda _: self._on_lost(snapshot)

    def _ask(self, maker: Guest, made: Snapshot) -> None:
        """Have ``maker``, a guest or a snapshot, fork."""
        if self._zygote is not None:
            # Only ``maker`` may use this fork: a running cell could take it otherwise. The pid is
            # None only for a snapshot that has not told it yet, and then the guest is gone.
            self._zygote.allow_fork(maker.lineage.number, maker.pid)
        number = made.number
        sent = maker.send_with(messages.Snapshot(id=number), made.guest.child_fds)
        made.guest.close_child_fds()

        def late() -> None:
            if made.state is SnapshotState.forking and made.number == number:
                self._drop(made)

        if sent:
            self._reactor.call_later(PATIENCE, late)
        else:
            self._drop(made)

    def not_standing(self, message: messages.SnapshotFailed) -> None:
        """Record that the guest could not fork."""
        for snapshot in (*self.chain, *self.chain.apart):
            if snapshot.number == message.id and snapshot.state is SnapshotState.forking:
                self._drop(snapshot)
                break
        if message.id in self._lost_forks:
            self._say_failed(message)

    def _say_failed(self, message: messages.SnapshotFailed) -> None:
        """Tell the user that a fork failed; but have another made first where it was not due.

        The gate lets a fork through that is due. It is due no more when it took so long that it was
        taken back, on a busy machine.
        """
        if message.errno == errno.EPERM and not self._refused:
            self._refused = True
            self.take_when_idle()
            return
        self._budget.say("failed", f"one could not be made ({os.strerror(message.errno)})")

    def _on_message(self, snapshot: Snapshot, message: messages.FromGuest) -> None:
        """Hear a snapshot: that it stands, and what becomes of each fork that it is asked for."""
        if snapshot.kept and self._parts(snapshot, message):
            self._go_on(snapshot)
        elif snapshot.kept or not self._stands(snapshot, message):
            self._drop(snapshot)
        else:
            self._stood(snapshot)

    def _stands(self, snapshot: Snapshot, message: messages.FromGuest) -> bool:
        """Return whether its first message is what it has to be, and its process the guest's."""
        if not isinstance(message, messages.SnapshotReady) or message.id != snapshot.number:
            return False
        known = {one.guest.pid for one in self.chain.all() if one is not snapshot}
        known.update(self.others())  # forks are in its session, too
        if self._guest is not None:
            known.add(self._guest.pid)
        if snapshot.guest.pid in known or not snapshot.guest.sender_is_ours():
            return False
        snapshot.state, snapshot.connections = SnapshotState.kept, message.connections
        if self._zygote is not None:
            self._zygote.protect(snapshot.guest)  # before the guest is sent another cell
        self._refused = False
        return True

    def _stood(self, snapshot: Snapshot) -> None:
        """Go on with one that has come to stand."""
        if not snapshot.served:
            # A task of the guest's may have gone on, and taken memory, before it forked.
            now = private_bytes(self._guest.pid) if self._guest is not None else 0
            snapshot.had = replace(snapshot.had, size=max(snapshot.had.size, now))
            self._budget.took(self._clock() - snapshot.asked_at, snapshot.had.size)
        self._go_on(snapshot)
        _tell_twin(snapshot)
        following, snapshot.on_kept = snapshot.on_kept, None
        if following is not None:
            following()

    def _go_on(self, snapshot: Snapshot) -> None:
        """Go on with one that is kept."""
        known = snapshot in self.chain or snapshot in self.chain.apart
        if known and snapshot.kept:
            self._stop_all()
            self._keep_few(snapshot)
            self._do_soon(_AFTERWARDS, self._sweep)  # the fork that was due made this one
            self._do_soon(_LOOK, self.look)
            _tell_decided(snapshot)

    def _do_soon(self, seconds: float, action: Callable[[], Any]) -> None:
        def do() -> None:
            self._soon.discard(action)
            action()

        if action not in self._soon:
            self._soon.add(action)
            self._reactor.call_later(seconds, do)

    def _have_forked(self, snapshot: Snapshot, made: Snapshot) -> None:
        """Have a snapshot fork ``made``; it is stopped again when it has parted with that."""
        snapshot.stopped = False
        snapshot.under_way.add(made.number)
        snapshot.guest.signal(signal.SIGCONT)
        self._ask(snapshot.guest, made)

        def late() -> None:
            """Go on without waiting for one that does not part with its fork."""
            if made.number in snapshot.under_way:
                snapshot.under_way.discard(made.number)
                self._go_on(snapshot)

        self._reactor.call_later(PATIENCE, late)

    def _parts(self, snapshot: Snapshot, message: messages.FromGuest) -> bool:
        """Return whether this says what became of a fork that a snapshot was asked for."""
        match message:
            case messages.SnapshotReady(id=number) if number in snapshot.under_way:
                snapshot.under_way.discard(number)
            case messages.SnapshotFailed(id=number) if number in snapshot.under_way:
                snapshot.under_way.discard(number)
                self.not_standing(message)
            case _:
                return False
        return True

    # --- lost ---------------------------------------------------------------------------------

    def _on_lost(self, snapshot: Snapshot) -> None:
        """Go on without a snapshot that ended."""
        could_take_over = snapshot.kept or snapshot.served > 0
        in_chain = snapshot in self.chain
        self._drop(snapshot)
        if in_chain and could_take_over:
            self._supervisor.on_snapshot_lost()

    def _drop(self, snapshot: Snapshot) -> None:
        """End one. What ran after it ran after the one before it, too."""
        if snapshot in self.chain:
            self.chain.forget(snapshot)
        elif snapshot in self.chain.apart:
            self.chain.apart.remove(snapshot)
        else:
            return
        was_forking = snapshot.state is SnapshotState.forking
        snapshot.state = SnapshotState.lost
        snapshot.guest.close()
        if was_forking:
            # Its pid is not known, and its fork may have been taken by something else. Others that
            # are being forked have theirs due still, or have forked and not said so.
            self._stop_all()
            self._lost_forks.append(snapshot.number)
            self._unknown += 1
            self._sweep()
            self._reactor.call_later(_AFTERWARDS, self._sweep)
        _tell_decided(snapshot)
        _tell_twin(snapshot)

    def _drop_oldest(self) -> bool:
        """Drop the oldest; return whether there was one."""
        if self.chain:
            self._drop(self.chain[0])
            return True
        return False

    # --- kept: few, still, and no larger than they may be -------------------------------------

    def _keep_few(self, newest: Snapshot) -> None:
        """Keep one that stands, and as many to step back to as the policy has room for."""
        chain, most = self.chain, self._policy.undo_max_bytes
        if newest not in chain:
            return
        for snapshot in chain[: chain.index(newest)]:
            if snapshot.kept and not snapshot.visible:
                self._drop(snapshot)
        while chain.index(newest) > self._policy.undo_depth:
            self._drop(chain[0])
        while most is not None and chain.index(newest) and chain.cost() > most:
            self._drop(chain[0])

    def _keep_few_apart(self) -> None:
        """Let go of the oldest checkpoint while they may hold more than copies may."""
        most = self._policy.undo_max_bytes
        while most is not None and (named := list(self.chain.named().values())):
            if self._held_apart(named) <= most:
                return
            self._drop(named[0])

    def _stop_all(self, *, again: bool = False) -> None:
        """Stop all that stand and have nothing to do, or only those that were not told to before.

        Waiting needs no processor, and nothing else may be done.
        """
        for snapshot in self.chain.all():
            if snapshot.settled and (again or not snapshot.stopped):
                snapshot.guest.signal(signal.SIGSTOP)
                snapshot.stopped = True

    def look(self) -> dict[int, int]:
        """See that all are still and hold no more than they may; return them as ``Chain.sizes``.

        What one does by itself it does before it is stopped, or when the end of a guest, or of one
        of its threads, has set it going (prctl(2), PR_SET_PDEATHSIG). It has pages of its own then:
        new ones, or for those that it shares with its guest. The latter are as many as if the
        guest had written to them, and are counted so.
        """
        chain, memory_max = self.chain, self._policy.memory_max_bytes
        most = None if memory_max is None else slack(memory_max)
        self._stop_all(again=True)
        for snapshot in chain.all():
            if _measure(snapshot) > _STILL and snapshot.settled:
                self._drop(snapshot)  # nobody is charged for what it computes
        while most is not None and sum(one.grew for one in chain.all()) > most:
            self._drop(max(chain.all(), key=lambda one: one.grew))
        self._keep_few_apart()
        if chain and chain[-1].settled:
            self._keep_few(chain[-1])
        return chain.sizes()

    # --- processes that nobody knows ----------------------------------------------------------

    def asked(self) -> bool:
        """Return whether the guest was asked for one that does not stand yet."""
        known = (*self.chain, *self.chain.apart)
        return any(one.state is SnapshotState.forking for one in known)

    def _may_fork(self) -> bool:
        """Return whether another fork may be due: not before what took those before it is ended.

        While something always is being forked it can't be: there would be more and more of it.
        """
        if self._unknown >= _MAX_UNKNOWN and not self._policy.subprocess_execution:
            self._sweep()
        return self._unknown < _MAX_UNKNOWN or self._policy.subprocess_execution

    def _sweep(self) -> None:
        """End what nobody knows, if nothing is being forked and it can't be a cell's."""
        users = self._guest.lineage.users if self._guest is not None else ()
        settled = all(user.is_settled() for user in (self, *users))
        if not self._policy.subprocess_execution and settled:
            self._end_unknown()

    def is_settled(self) -> bool:
        """Whether nothing is being forked."""
        return all(one.settled for one in (*self.chain, *self.chain.apart))

    def others(self) -> list[int]:
        """Return the processes of forks that descend from the same guest, and of their copies."""
        return self._guest.lineage.others(self) if self._guest is not None else []

    def holds(self, pid: int) -> bool:
        """Return whether a process is in a session of the guest's."""
        return self._guest is not None and self._guest.lineage.holds(pid)

    def pids(self) -> list[int]:
        """Return the processes that the guest and its copies are."""
        guests = (self._guest, *(one.guest for one in self.chain.all()))
        return [one.pid for one in guests if one is not None and one.pid is not None]

    def _end_unknown(self) -> None:
        """Have the zygote end whatever is neither the guest nor a snapshot that stands.

        A guest that is about to serve and has not told its pid yet is claimed for when it does.
        """
        guest, zygote = self._guest, self._zygote
        if guest is None or zygote is None or guest.pid is None:
            return
        zygote.keep_only(guest, self.pids(), self.others())
        self._unknown = 0

    # --- restoring ----------------------------------------------------------------------------

    def steps(self) -> list[UndoStep]:
        """Return what ``%undo`` can go back to, the nearest first."""
        return self.chain.steps(self._policy.undo_depth)

    def drop_newer(self, snapshot: Snapshot) -> None:
        """Drop what is newer than a snapshot of the chain."""
        while self.chain and self.chain[-1] is not snapshot:
            self._drop(self.chain[-1])

    def go_to(self, snapshot: Snapshot, then: Callable[[], None]) -> None:
        """Have the process of a snapshot serve; a twin that it forks takes its place.

        ``then`` is called when that stands, or none will: before, nothing may be asked of the
        process. It serves and not the twin, or the zygote would not be told how it ends: the twin
        is its child.
        """
        process = snapshot.guest
        self._serve(process, snapshot.had)
        for other in self.chain:
            # One that stands only now would be what takes over next, without what waits for it.
            other.stopped, other.on_kept = False, None
        snapshot.on_decided, snapshot.on_twin = None, then
        twin = self._new_copy(process) if snapshot.served < MAX_SERVED else None
        if twin is None:
            self._leave(snapshot)
            return
        snapshot.guest, snapshot.number, snapshot.state = twin, self._numbers, SnapshotState.forking
        snapshot.served += 1
        snapshot.grew, snapshot.rewrote, snapshot.used = 0, 0, 0.0
        snapshot.under_way.clear()
        self._hear(snapshot)
        self._ask(process, snapshot)

    def exchange(self, snapshot: Snapshot, twin: Snapshot) -> None:
        """Have the process of a snapshot serve, of which a twin was made apart."""
        process, snapshot.guest = snapshot.guest, twin.guest
        snapshot.number, snapshot.used, snapshot.stopped = twin.number, twin.used, twin.stopped
        snapshot.under_way.clear()
        self._hear(snapshot)
        self.chain.apart.remove(twin)
        self._serve(process, snapshot.had)

    def _leave(self, snapshot: Snapshot) -> None:
        """Keep a snapshot no more whose process serves, and has left no twin."""
        (self.chain if snapshot in self.chain else self.chain.apart).remove(snapshot)
        _tell_twin(snapshot)

    def go_alone(self, snapshot: Snapshot) -> None:
        """Have the process of a snapshot serve, and drop all others: there is to be no twin."""
        for other in (*self.chain, *self.chain.apart):
            if other is not snapshot:
                self._drop(other)
        self.chain.clear()
        self._serve(snapshot.guest, snapshot.had)

    def _serve(self, process: Guest, had: Reading) -> None:
        process.signal(signal.SIGCONT)
        self._guest, self._given = process, had.faults
        self._do_soon(_LOOK, self.look)  # the end of the guest before sets all going
        self.end_programs()  # first: as many as there may be would keep it from processor and gate

    def end_programs(self) -> None:
        """Have what the guest before had started ended: it would count as this one's."""
        if self._policy.subprocess_execution:
            self._end_unknown()


def _ignore(*_: Any) -> None: ...


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _tell_decided(snapshot: Snapshot) -> None:
    """Tell whoever waits until it is kept, or certain that it is not."""
    decided, snapshot.on_decided = snapshot.on_decided, None
    if decided is not None:
        decided()


def _tell_twin(snapshot: Snapshot) -> None:
    """Tell whoever waits until it has left a twin, or can't."""
    told, snapshot.on_twin = snapshot.on_twin, None
    if told is not None:
        told()


def _measure(snapshot: Snapshot) -> float:
    """Read what it has come to hold, and wrote to, if it did anything since that was read.

    Return the seconds of the processor that it has used since; 0 the first time.
    """
    pid, before = snapshot.guest.pid, snapshot.used
    if snapshot.kept and pid is not None:
        used = Gauge(pid).cpu()
        if used is not None and used != before:
            snapshot.used = used
            snapshot.grew, snapshot.rewrote = memory.taken(pid, snapshot.had)
    return snapshot.used - before if before else 0.0
