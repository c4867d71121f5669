"""Which guest serves a session, and where the next one comes from.

A session has one guest at a time, from one zygote; the supervisor replaces both when they end.
Which process is the guest, and how far it is, the core knows (``host.state.core``).

- It *starts* (``_start``): it was forked ahead, before there was a session (``take_guests``); or it
  is forked from the zygote, or from a new one where there is none, or where guests of this one
  would have more than they may (``narrow_to``). It reports its locks.
  After ``MAX_FAILED_STARTS`` that failed in a row none is started any more.
- It *serves* (``guest``): the session speaks to it. Its first cell may have a *spare* guest take
  its place, which has imported what that cell will (``begin``).
- It is *lost* (``replace``): the session ended it, it broke the protocol (``on_channel_lost``), it
  ended (``on_zygote``), or the zygote did (``on_zygote_lost``).
- A copy *restores* it. Where none can, a new guest is started (``on_gone``).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import structs

from cellblock.errors import CellblockError, GuestError
from cellblock.host.guests.process import Guest
from cellblock.host.guests.spare import SpareGuest, imported_ahead
from cellblock.host.guests.zygote import ZygoteSource, exit_reason, kill_session
from cellblock.host.session import types
from cellblock.host.session.types import NarrowingStep, Stopped
from cellblock.host.snapshots.driver import SnapshotOwner, Snapshots
from cellblock.host.state.core import PICKED_ENDED
from cellblock.host.state.takeover import Takeover
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.limits.shared_memory import SharedMemory
    from cellblock.host.reactor import Reactor
    from cellblock.host.session.types import SessionSettings
    from cellblock.host.state.chain import PastRequest, Snapshot
    from cellblock.policy.model import Policy


#: Guests in a row that may fail to start before no more are started.
MAX_FAILED_STARTS: Final = 3
#: Seconds until the next one, where the host itself could not start one.
NEXT_START = 0.5
#: Seconds that a guest which hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
#: Characters kept of what a guest writes before it is ready, and told of why none can be had.
LAST_WORDS: Final = 2_000
#: Of requests for locks. No two have the same, whoever shares a zygote: all hear of each.
_TICKETS: Final = itertools.count(1)


class Owner(SnapshotOwner, Protocol):
    """The session's requests, which the supervisor has guests for."""

    def on_ready(self, report: messages.LockReport) -> str:
        """Judge what a new guest's locks achieved; return why nothing may run in it, or nothing."""

    def on_served(self) -> None:
        """Send what waits to a guest that has come to serve."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what the guest says."""

    def on_text(self, text: messages.Stream) -> None:
        """Show what cells, and programs that they started, have written."""

    def on_loss(self, stopped: Stopped) -> None:
        """End what was lost with its guest; what never began is sent again."""

    def on_failure(self, detail: str) -> None:
        """End all requests: no guest can be had."""


class Supervisor:
    """Has guests for a session's requests, its ``owner``, forked from zygotes of ``zygotes``.

    ``on_network`` gets the sockets at which a guest's connections to listed hosts come, and one of
    the guest's network, if the host has a way into that.
    """

    def __init__(
        self,
        reactor: Reactor,
        owner: Owner,
        policy: Policy,
        prepare: messages.Prepare,
        zygotes: ZygoteSource,
        clock: Callable[[], float],
        on_network: Callable[
            [Mapping[messages.Neighbour, int], int | None], None
        ] = lambda _listeners, _network: None,
    ) -> None:
        self._reactor, self.owner = reactor, owner
        self.clock, self._on_network = clock, on_network
        #: What the next zygote is told, and where it comes from.
        self._prepare, self._next_zygotes = prepare, zygotes
        #: The zygote that there is, where it came from, and what it was told.
        self.zygote: Zygote | None = None
        self._zygotes, self._prepared = zygotes, prepare
        self._last_session = -1
        self.snapshots = Snapshots(reactor, clock, policy, self)
        self._core, self._play = self.snapshots.core, self.snapshots.play
        #: How processes ended since a copy was last woken to take over, by pid.
        self._exits: dict[int, int] = {}
        self._spare = SpareGuest(reactor, self.fork, imported_ahead(policy), prepare.cwd)
        #: The first request, where that came before there was a guest.
        self._first: Any = None
        # Sandboxes of a pool may wait for long.
        self._has_spare = not zygotes.is_shared
        #: Guests in a row that failed to start, and what they wrote.
        self._failed_starts = 0
        self._last_words = ""
        #: Called when locks are ready that were asked for by this ticket.
        self._on_locks: Callable[[str], None] | None = None
        self._ticket = 0
        self._held = False
        self._closed = False
        #: Seconds of processor time of what ended as nobody's child, in sessions of guests here.
        self.orphans_cpu = 0.0
        #: And of the zygote, while it answered calls of guests here.
        self.answering_cpu = 0.0
        #: Rulesets that guests have here; and whether the first is a fork of another's, to come.
        self.rulesets = 1
        self.awaits_fork = False

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self.snapshots.guest

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Have guests know these tools and folders of packages; before the first is started."""
        self._prepare = structs.replace(self._prepare, tools=tools, paths=paths)

    def shared_memory(self) -> int:
        """Return the bytes that guests hold in their /dev/shm."""
        own = self._own_memory()
        return 0 if own is None else own.held()

    def _own_memory(self) -> SharedMemory | None:
        lineage = self.snapshots.lineage
        if self.zygote is None or lineage is None:
            return None
        return self.zygote.shared_memory(lineage)

    def refresh(self, done: Callable[[str], None]) -> None:
        """Have layers forget what they looked up; ``done`` gets why that failed, or nothing.

        It is not called when the zygote is lost: then there is no guest, either.
        """
        if self.zygote is not None:
            self.zygote.refresh(done)

    def check_zygote(self) -> None:
        """Have a zygote replaced that hangs: a guest waits for its answers at the gate, too."""
        if self.zygote is not None:
            self.zygote.check()

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with what it says, or listen to it again."""
        self._held = held
        if self.guest is not None:
            self.guest.hold(held=held)

    def interrupt(self) -> None:
        """Interrupt the guest; one that is being restored does nothing that it could end."""
        guest = self.snapshots.current
        if guest is not None and not self._core.restores:
            guest.interrupt()

    # --- starting -----------------------------------------------------------------------------

    def ensure(self) -> None:
        """Have a guest started unless there is one."""
        self._play(self._core.cell_began)
        if self._core.guest is not None or self._closed or self.awaits_fork:
            return
        try:
            self._start()
        except OSError as exc:
            # The host may lack processes or descriptors only now.
            self._failed_starts += 1
            if self._failed_starts < MAX_FAILED_STARTS:
                self._reactor.call_later(NEXT_START, self.ensure)
            else:
                self.give_up(f"its process could not be started: {exc.strerror}")

    def _start(self) -> None:
        """Have a guest forked. Raises OSError."""
        if self.zygote is not None and self._prepared != self._prepare:
            self._leave_zygote(self.zygote)
        if self.zygote is None:
            self._zygotes, self._prepared = self._next_zygotes, self._prepare
            self.zygote = self._zygotes.get(self._prepare, self)
        self.rulesets = 1
        if (ahead := self._zygotes.take_guests()) is not None:
            guest, self._spare = ahead
            self._spare.fork_guest = self.fork
            self.snapshots.start(guest)
            guest.hold(held=False)  # its report has not been read yet
            return
        guest = Guest(self._reactor)
        self.snapshots.start(guest)
        self._zygotes.fork(self.zygote, guest)

    def fork(self, guest: Guest) -> Zygote | None:
        """Have the zygote fork a spare guest; return it."""
        if self.zygote is not None:
            self._zygotes.fork(self.zygote, guest)
        return self.zygote

    def _leave_zygote(self, zygote: Zygote) -> None:
        """Have it end with all that it started: its guests would have more than they may."""
        self._play(self._core.end)
        self.zygote = None
        if not self._zygotes.leave(zygote):
            kill_session(self._last_session)

    def _on_ready(self, report: messages.LockReport) -> None:
        """Have a guest serve whose locks are those that it has to have."""
        guest = self.snapshots.current
        missing = [lock for lock in self._prepare.plan.required if lock not in report.achieved]
        if missing:
            self.give_up(f"these locks were not applied: {', '.join(missing)}")
        elif refusal := self.owner.on_ready(report):
            self.give_up(refusal)
        elif guest is not None:
            self._failed_starts = 0
            if self.zygote is not None:
                self._on_network(self.zygote.listeners, self.zygote.network)
            guest.hold(held=self._held)
            self._tell_launch(guest)
            self.snapshots.begin(idle=self.owner.idle())
            if self._has_spare:
                self._spare.fork_later(report, idle=self.owner.idle())
            if (first := self._first) is not None:
                self._first = None
                self._use_spare(first)
            self.owner.on_served()

    def _tell_launch(self, guest: Guest) -> None:
        """Tell a guest that is about to serve what Jupyter started the kernel with."""
        if self._prepare.launch is not None:
            with contextlib.suppress(CellblockError):  # one that is gone will be replaced
                guest.send(self._prepare.launch)

    def give_up(self, detail: str) -> None:
        """End the guest and its copies for good, for a reason that the user is told."""
        self._closed = True
        self._play(self._core.end)
        self.owner.on_failure(detail[:LAST_WORDS])

    # --- serving ------------------------------------------------------------------------------

    def begin(self, message: Any) -> None:
        """Have a first cell served by the spare guest, where that has imported what it names.

        A spare forked before launch is used only once a guest with the same locks has reported
        ready.
        """
        if self._spare.ahead:
            self._first = message
        elif self._use_spare(message):
            self.owner.on_served()

    def _use_spare(self, message: Any) -> bool:
        spare = self._spare.take(message)
        if spare is None or self.guest is None or self.zygote is None:
            return False
        self._play(self._core.end)  # the guest has run nothing
        self.snapshots.start(spare)
        spare.hold(held=self._held)
        self._tell_launch(spare)
        self.snapshots.begin(idle=False)
        return True

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what the guest says, which starts or serves."""
        breach = types.unasked(message, served=self._core.serves)
        guest = self._core.guest
        if isinstance(message, messages.SnapshotFailed) and guest is not None:
            self._play(self._core.fork_failed, guest, message.id, message.errno)
        elif breach:
            self.replace(Stopped("violation", f"protocol violation: {breach}"))
        elif isinstance(message, messages.Ready):
            self._on_ready(message.report)
        elif isinstance(message, messages.NotReady):
            self.give_up(f"{message.lock}: {message.detail}")
        else:
            self.owner.on_message(message)

    def on_text(self, written: messages.Stream) -> None:
        """Take text that a guest wrote; before it is ready, its last words."""
        if self.guest is None:
            self._last_words = (self._last_words + written.text)[-LAST_WORDS:]
        else:
            self.owner.on_text(written)

    def ran(self, request: PastRequest, answer: Callable[[], None], *, alone: bool = True) -> None:
        """Record that a request ran to its end; ``answer`` is called when it may be answered.

        Where another runs still, its end is waited for before a snapshot is taken.
        """
        self._play(self._core.cell_ended, request, answer, alone=alone)

    # --- lost ---------------------------------------------------------------------------------

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; the newest snapshot takes over, or a fresh guest, with an empty /dev/shm.

        Else what takes over could hold too much from the start, by what the guest left there.
        """
        self._play(self._core.guest_lost, stopped)

    def empty_shared_memory(self) -> bool:
        """Remove what guests left in their /dev/shm; return whether there was anything."""
        own = self._own_memory()
        return own is not None and own.empty()

    def on_ending(self, guest: Guest | None, *, has_failed: bool) -> None:
        """Take leave of the process that was the guest; ``has_failed``: it was to be, and began."""
        self._spare.end()
        if guest is not None:
            self._failed_starts += has_failed
            if guest.session > 0:
                self._last_session = guest.session

    def on_channel_lost(self, guest: Guest, reason: str) -> None:
        """Act on a channel that broke; with no reason, the exit status will tell."""
        if reason:
            self.replace(Stopped("violation", reason))
            return

        def late() -> None:
            if guest is self.snapshots.current:
                self.replace(Stopped("violation", "protocol violation: it closed its channel"))

        self._reactor.call_later(EXIT_GRACE, late)

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Hear that a process ended, that locks are ready, or that no guest can be forked."""
        guest = self.snapshots.current
        match message:
            case messages.Reaped():
                self._on_ended(guest, message)
            case messages.Answered(id=number, user=user, seconds=seconds):
                own = guest is not None and guest.lineage.number == number
                if own and user == self.snapshots.user:  # not what a fork has asked
                    self.answering_cpu += seconds
            case messages.ForkFailed(id=number, detail=detail):
                if guest is not None and guest.lineage.number == number:
                    self.replace(Stopped("crash", detail))
            case messages.Narrowed():
                self._on_narrowed(message)
            case messages.ZygoteFailed():
                self.give_up(message.detail)

    def _on_ended(self, guest: Guest | None, ended: messages.Reaped) -> None:
        """Act on the end of the guest, or of an orphan: nobody else tells what that one used."""
        if self._core.restores:
            self._exits[ended.pid] = ended.status
        elif guest is not None and guest.pid == ended.pid:
            self._on_reaped(guest, ended.status)
        elif self.snapshots.had_started(ended):
            self.orphans_cpu += ended.seconds

    def _on_reaped(self, guest: Guest, status: int) -> None:
        """Replace a guest that ended, unless what it said last already is the reason to."""
        guest.reaped()
        guest.read_rest()
        if guest is self.snapshots.current:
            guest.drain()
            self.replace(Stopped("crash", exit_reason(status)))

    def on_zygote_lost(self, why: str) -> None:
        """End what there is, and replace it."""
        self.zygote = None
        if (guest := self.snapshots.current) is not None:
            kill_session(guest.session)
        if self._closed:
            self._play(self._core.end)
        else:
            self._play(self._core.guest_lost, Stopped("crash", why), with_copies=True)

    # --- restoring ----------------------------------------------------------------------------

    def undo(self, steps: int) -> int:
        """Go back to the state before the last ``steps`` cells; return how many there are.

        Fewer than asked for means that nothing was done.
        """
        known = self.snapshots.steps() if self._core.serves else []
        if 0 < steps <= len(known):
            self._play(self._core.undo, known[steps - 1])
        return len(known)

    def on_waking(self, guest: Guest) -> None:
        """Have it told how a copy ends that is to take over."""
        self._exits.clear()
        self._tell_serves(guest)

    def _tell_serves(self, guest: Guest) -> None:
        if self.zygote is not None:
            self.zygote.serves(guest)

    def on_serving(self, guest: Guest) -> None:
        """Listen to a copy that has taken over as to any guest."""
        self._failed_starts = 0
        self._tell_serves(guest)  # again: one that was tried before it stood had no number yet
        guest.hold(held=self._held)

    def on_restored(self, guest: Guest, outcome: Stopped) -> None:
        """Tell the session what became of its state, and send what waits."""
        self.owner.on_loss(outcome)
        status = None if guest.pid is None else self._exits.get(guest.pid)
        if status is None:
            self.owner.on_served()
        else:
            self._on_reaped(guest, status)  # it said so, and ended before it was heard

    def on_gone(self, stopped: Stopped) -> None:
        """Start anew: there is no snapshot of what was lost."""
        if self._closed:
            return
        if stopped.why == "fork":
            self.give_up("the fork ended before it could serve")
            return
        self._play(self._core.end)
        if self._failed_starts >= MAX_FAILED_STARTS:
            said = self._last_words.strip() or stopped.detail
            self.give_up(f"the guest ended {MAX_FAILED_STARTS} times while starting: {said}")
            return
        served = not self._failed_starts
        self.ensure()
        # One that never served lost nothing, and the next one serves what waits.
        if served:
            self.owner.on_loss(stopped)

    # --- forks ----------------------------------------------------------------------------------

    def adopt(
        self, copy: Snapshot, parent: Supervisor, of: str, place: messages.SessionSetup | None
    ) -> None:
        """Serve by a copy of another session's guest, whose audit log is called ``of``.

        With a ``place`` of its own it is under one ruleset more than that. One that does not take
        it does not serve (``guest.confine.landlock``). Raises GuestError.
        """
        if self.zygote is None:
            self._prepared, self.zygote = self._prepare, self._zygotes.get(self._prepare, self)
        if self.zygote is not parent.zygote:
            # Its numbers are other guests' there: their locks, their forks, and their ends.
            raise GuestError("a sandbox that took a new guest by %policy narrow has no forks")
        if not copy.kept:
            raise GuestError("the copy ended before it could serve")
        stopped = otherwise = Stopped("fork", of)
        if self._core.guest is not None:  # a variant that is picked and ends leaves it as it was
            otherwise = Stopped("crash", PICKED_ENDED)
        self.rulesets = parent.rulesets + (place is not None)
        plan = None if place is None else place.plan
        takeover = Takeover(stopped, self.clock(), otherwise=otherwise, plan=plan, place=place)
        guest = parent.snapshots.give_away(copy)
        number = self.snapshots.adopt(guest, copy.had, takeover, parent.snapshots)

        def ready(failure: str) -> None:
            self.awaits_fork = False
            if failure:
                self.give_up(f"the fork's locks can't be had: {failure}")
            else:
                self._play(self._core.locks_are_ready, number)

        if plan is None:
            ready("")
        else:
            self._on_locks, self._ticket = ready, next(_TICKETS)
            rulesets = parent.rulesets
            self.zygote.narrow(guest, plan, self._ticket, rulesets=rulesets, fork=True)

    # --- a narrower policy --------------------------------------------------------------------

    def narrow_to(self, settings: SessionSettings) -> None:
        """Have guests under a narrower policy from now on; where it takes another one, at once."""
        self._spare.end()
        own = self._prepare
        tools = tuple(tool for tool in own.tools if tool.name not in settings.tools_gone)
        self._prepare = structs.replace(settings.prepare, tools=tools, paths=own.paths)
        if self._prepare != own:
            self._next_zygotes = ZygoteSource(self._reactor, settings.zygote)
        self._core.policy = settings.policy  # also of snapshots that are kept already
        if settings.step is NarrowingStep.relock:
            # One that goes on without these locks is ended like any other that lies
            # (``guest.confine.landlock``).
            self._play(self._core.relock, settings.prepare.plan)
        elif settings.step is NarrowingStep.fresh:
            # Nothing of the guest and its snapshots is to be left.
            self.owner.on_stopping()
            self._play(self._core.end)
            self._failed_starts = 0
            self.ensure()

    def copy_guest(self, then: Callable[[Snapshot | None], None]) -> None:
        """Have a snapshot made of the guest as it is; ``then`` gets it, or None."""
        self._play(self._core.copy_guest, then)

    def prepare_locks(
        self, snapshot: Snapshot, plan: messages.Plan, then: Callable[[str], None]
    ) -> None:
        """Have more locks made ready for a snapshot; ``then`` gets why there are none, or nothing.

        The zygote makes them. From then on the snapshot is to take over (``narrow_to``): until
        another is asked for, nothing more can start.
        """
        guest = self.snapshots.process_of(snapshot)
        if guest is None or len(guest.lineage.users) > 1:
            then("the sandbox has forks, or is one")
            return
        self._on_locks, self._ticket = then, next(_TICKETS)
        if self.zygote is not None:
            self.zygote.narrow(guest, plan, self._ticket, rulesets=self.rulesets)
            self.rulesets += 1

    def _on_narrowed(self, message: messages.Narrowed) -> None:
        """Hear that locks are ready, can't be had, or are on the snapshot that takes over."""
        if message.ticket != self._ticket:
            return  # of a snapshot that is no more
        if message.ready or message.failure:
            then, self._on_locks = self._on_locks, None
            if then is not None:
                then(message.failure)
        else:
            self._play(self._core.locks_are_on)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> bool:
        """End guests and zygote; return whether they are gone, or their folder still is removed."""
        self._closed = True
        self._play(self._core.end)
        zygote, self.zygote = self.zygote, None
        return zygote is None or self._zygotes.end(zygote)
