"""Which guest serves a session, and where the next one comes from.

A session has one guest at a time, from one zygote; the supervisor replaces both when they end.

::

             ensure          Ready               lost                resumed
    no guest ──────▶ starting ─────▶ serving ─────────▶ restoring ─────────▶ serving
        ▲               │                                   │
        └───────────────┴─── it ended, or did not start ────┘
                        │
                        └─── MAX_FAILED_STARTS times in a row ──▶ given up

- *starting* (``_start``): a guest is forked from the zygote, or from a new one where there is none,
  or where guests of this one would have more than they may (``narrow_to``). It reports its locks.
- *serving* (``guest``): the session speaks to it. Its first cell may have a *spare* guest take its
  place, which has imported what that cell will (``begin``).
- *lost* (``replace``): the session ended it, it broke the protocol (``_on_lost``), it ended
  (``on_zygote``), or the zygote did (``on_zygote_lost``).
- *restoring*: the newest snapshot takes over (``snapshots.restore``). It has the guest's state from
  just before the request that was running. Where none can, a new guest is started (``on_gone``).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import structs

from cellblock.errors import CellblockError, GuestError
from cellblock.host.guests.process import Guest
from cellblock.host.guests.spare import SpareGuest, imported_ahead
from cellblock.host.guests.zygote import ZygoteSource, exit_reason, kill_session
from cellblock.host.session import types
from cellblock.host.session.types import NarrowingStep, Stopped
from cellblock.host.snapshots.branches import why_not_named
from cellblock.host.snapshots.restore import Restoration
from cellblock.host.snapshots.store import SnapshotOwner, Snapshots
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.zygote import Zygote
    from cellblock.host.reactor import Reactor
    from cellblock.host.session.types import SessionSettings
    from cellblock.host.snapshots.chain import PastRequest, Snapshot
    from cellblock.policy.model import Policy


#: Guests in a row that may be lost by themselves, with nothing run in between: a state that ends
#: every guest which has it is not restored for ever. What a cell ends does not count: the user can
#: run another, or step back.
MAX_LOSSES: Final = 8
#: Guests in a row that may fail to start before no more are started.
MAX_FAILED_STARTS: Final = 3
#: Seconds until the next one, where the host itself could not start one.
NEXT_START = 0.5
#: Seconds that a guest which hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
#: Characters kept of what a guest writes before it is ready, and told of why none can be had.
LAST_WORDS: Final = 2_000
PICKED_ENDED: Final = "what was picked ended before it could go on"
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

    def on_stopping(self) -> Any:
        """Stop watching the guest; return the message that it had begun, or None."""

    def on_loss(self, stopped: Stopped) -> None:
        """End what was lost with its guest; what never began is sent again."""

    def on_failure(self, detail: str) -> None:
        """End all requests: no guest can be had."""


class Supervisor:
    """Has guests for a session's requests, its ``owner``, forked from zygotes of ``zygotes``.

    ``relay`` returns the descriptor at which a guest asks for connections, if any. Raises OSError.
    """

    def __init__(
        self,
        reactor: Reactor,
        owner: Owner,
        policy: Policy,
        prepare: messages.Prepare,
        zygotes: ZygoteSource,
        clock: Callable[[], float],
        relay: Callable[[], list[int]] = list,
    ) -> None:
        self._reactor, self.owner = reactor, owner
        self.clock, self.relay = clock, relay
        #: What the next zygote is told, and where it comes from.
        self._prepare, self._next_zygotes = prepare, zygotes
        #: The zygote that there is, where it came from, and what it was told.
        self.zygote: Zygote | None = None
        self._zygotes, self._prepared = zygotes, prepare
        #: The guest that there is: it starts, serves, or is a snapshot that is tried.
        self._guest: Guest | None = None
        self._last_session = -1
        self.snapshots = Snapshots(reactor, clock, policy, self)
        self._restoration: Restoration | None = None
        self._spare = SpareGuest(reactor, self.fork, imported_ahead(policy), prepare.cwd)
        #: The first request, where that came before there was a guest.
        self._first: Any = None
        # A relay serves one guest at a time; sandboxes of a pool may wait for long.
        self._has_spare = not (prepare.plan.relayed or zygotes.is_shared)
        #: Guests in a row that failed to start, and what they wrote; guests that were lost since
        #: one ran anything to its end.
        self._failed_starts = 0
        self._last_words = ""
        self._losses = 0
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
        return self._guest if self._guest is not None and self._guest.ready else None

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Have guests know these tools and folders of packages; before the first is started."""
        self._prepare = structs.replace(self._prepare, tools=tools, paths=paths)

    def shared_memory(self) -> int:
        """Return the bytes that guests hold in their /dev/shm."""
        own = self.zygote.shared_memory if self.zygote is not None else None
        return 0 if own is None else own.held()

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
        if self._guest is not None and self._restoring() is None:
            self._guest.interrupt()

    # --- starting -----------------------------------------------------------------------------

    def ensure(self) -> None:
        """Have a guest started unless there is one."""
        self.snapshots.postpone()
        if self._guest is not None or self._closed or self.awaits_fork:
            return
        try:
            self._start()
        except OSError as exc:
            # The host may lack processes or descriptors only now.
            self._failed_starts += 1
            if self._failed_starts < MAX_FAILED_STARTS:
                self._reactor.call_later(NEXT_START, self.ensure)
            else:
                self._give_up(f"its process could not be started: {exc.strerror}")

    def _start(self) -> None:
        """Have a guest forked. Raises OSError."""
        if self.zygote is not None and self._prepared != self._prepare:
            self._leave_zygote(self.zygote)
        if self.zygote is None:
            self._zygotes, self._prepared = self._next_zygotes, self._prepare
            self.zygote = self._zygotes.get(self._prepare, self)
        self.rulesets = 1
        if (ahead := self._zygotes.take_guests()) is not None:
            self._guest, self._spare = guest, _ = ahead
            self._spare.fork_guest = self.fork
            self._speak_with(guest)
            guest.hold(held=False)  # its report has not been read yet
            return
        relay = self.relay()
        try:
            guest = Guest(self._reactor, self._on_message, self.on_text, self._on_lost)
        except OSError:
            for fd in relay:
                os.close(fd)
            raise
        guest.child_fds += relay
        self._guest = guest
        self._zygotes.fork(self.zygote, guest)

    def _speak_with(self, guest: Guest) -> None:
        """Hear what a guest says that was forked for another than this."""
        guest.on_message, guest.on_text = self._on_message, self.on_text
        guest.on_lost = self._on_lost

    def fork(self, guest: Guest) -> Zygote | None:
        """Have the zygote fork a spare guest; return it."""
        if self.zygote is not None:
            self._zygotes.fork(self.zygote, guest)
        return self.zygote

    def _leave_zygote(self, zygote: Zygote) -> None:
        """Have it end with all that it started: its guests would have more than they may."""
        self.zygote = None
        self.snapshots.end()
        if not self._zygotes.leave(zygote):
            kill_session(self._last_session)

    def _on_ready(self, report: messages.LockReport) -> None:
        """Have a guest serve whose locks are those that it has to have."""
        guest, zygote = self._guest, self.zygote
        missing = [lock for lock in self._prepare.plan.required if lock not in report.achieved]
        if missing:
            self._give_up(f"these locks were not applied: {', '.join(missing)}")
        elif refusal := self.owner.on_ready(report):
            self._give_up(refusal)
        elif guest is not None:
            guest.ready = True
            guest.hold(held=self._held)
            self._tell_launch(guest)
            if zygote is not None:
                self.snapshots.begin(guest, zygote)
            if self.owner.idle():
                self.snapshots.take_when_idle()
            else:
                self.snapshots.take()  # before what waits is sent
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

    def _give_up(self, detail: str) -> None:
        self._closed = True
        self._end()
        self.snapshots.end()
        self.owner.on_failure(detail[:LAST_WORDS])

    # --- serving ------------------------------------------------------------------------------

    def begin(self, message: Any) -> None:
        """Have a first cell served by the spare guest, where that has imported what it names.

        One that was forked ahead is used when there is a guest whose locks it has.
        """
        if self._spare.ahead:
            self._first = message
        elif self._use_spare(message):
            self.owner.on_served()

    def _use_spare(self, message: Any) -> bool:
        spare = self._spare.take(message)
        if spare is None or self.guest is None or self.zygote is None:
            return False
        self.snapshots.end()  # and with it the guest that has run nothing
        self._end()
        self._speak_with(spare)
        self._guest, spare.ready = spare, True
        spare.hold(held=self._held)
        self._tell_launch(spare)
        self.snapshots.begin(spare, self.zygote)
        self.snapshots.take()
        return True

    def _on_message(self, message: messages.FromGuest) -> None:
        breach = types.unasked(message, served=self.guest is not None)
        if isinstance(message, messages.SnapshotFailed):
            self.snapshots.not_standing(message)
        elif breach:
            self.replace(Stopped("violation", f"protocol violation: {breach}"))
        elif isinstance(message, messages.Ready):
            self._on_ready(message.report)
        elif isinstance(message, messages.NotReady):
            self._give_up(f"{message.lock}: {message.detail}")
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
        self._losses = 0
        if alone:
            self.snapshots.ran(request, answer)
        else:
            self.snapshots.record(request)
            answer()

    def on_snapshot_lost(self) -> None:
        """Replace a snapshot that ended while it was kept, unless that happens again and again."""
        self._losses += 1
        if self._losses <= MAX_LOSSES and self.guest is not None:
            self.snapshots.take_when_idle()

    # --- lost ---------------------------------------------------------------------------------

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; the newest snapshot takes over, or a fresh guest, with an empty /dev/shm.

        Else what takes over could hold too much from the start, by what the guest left there.
        """
        if self._restoring() is not None:
            return
        running = self._stop()
        own = self.zygote.shared_memory if self.zygote is not None else None
        emptied = own is not None and own.empty()
        if running is None:
            self._losses += 1
        if self._losses > MAX_LOSSES:
            self.snapshots.clear()
        if not self._closed:
            self._restoration = Restoration(self._reactor, self, stopped, running, emptied=emptied)
            self._restoration.restore_newest()

    def _stop(self) -> Any:
        """End the guest; return the request that it had taken up, or None."""
        running = self.owner.on_stopping()
        self._end()
        return running

    def _end(self) -> None:
        self._spare.end()
        guest, self._guest = self._guest, None
        if guest is not None:
            served = guest.ready or guest.copied
            self._failed_starts = 0 if served else self._failed_starts + 1
            if guest.lineage.session > 0:
                self._last_session = guest.lineage.session
            guest.drain()
            guest.close()

    def _on_lost(self, reason: str) -> None:
        """Act on a channel that broke; with no reason, the exit status will tell."""
        guest = self._guest
        if reason:
            self.replace(Stopped("violation", reason))
        elif guest is not None:

            def late() -> None:
                if guest is self._guest:
                    self.replace(Stopped("violation", "protocol violation: it closed its channel"))

            self._reactor.call_later(EXIT_GRACE, late)

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Hear that a process ended, that locks are ready, or that no guest can be forked."""
        guest, restoration = self._guest, self._restoring()
        match message:
            case messages.Reaped(pid=pid, status=status):
                if restoration is not None:
                    restoration.reaped(pid, status)
                elif guest is not None and guest.pid == pid:
                    self._on_reaped(guest, status)
                elif guest is not None and self.zygote is not None:
                    # An orphan: nobody else who waits for it tells what it used.
                    self.orphans_cpu += message.seconds * self.zygote.is_of(message, guest)
            case messages.Answered(id=number, seconds=seconds):
                if guest is not None and guest.lineage.number == number:
                    self.answering_cpu += seconds
            case messages.Narrowed():
                self._on_narrowed(message)
            case messages.ZygoteFailed():
                self._give_up(message.detail)

    def _on_reaped(self, guest: Guest, status: int) -> None:
        """Replace a guest that ended, unless what it said last already is the reason to."""
        guest.reaped()
        guest.read_rest()
        if guest is self._guest:
            guest.drain()
            self.replace(Stopped("crash", exit_reason(status)))

    def on_zygote_lost(self, why: str) -> None:
        """End what there is, and replace it."""
        self.zygote = None
        self._spare.end()
        self.snapshots.clear()  # nobody lets forks of theirs through any more
        if self._guest is not None:
            kill_session(self._guest.lineage.session)
        if self._closed:
            return
        if (restoration := self._restoring()) is not None:
            restoration.fail()
        else:
            self.replace(Stopped("crash", why))

    # --- restoring ----------------------------------------------------------------------------

    def _restoring(self) -> Restoration | None:
        """Return the restoration that is under way, or None."""
        found = self._restoration
        return found if found is not None and found.is_running else None

    def undo(self, steps: int) -> int:
        """Go back to the state before the last ``steps`` cells; return how many there are.

        Fewer than asked for means that nothing was done.
        """
        known = self.snapshots.steps()
        if 0 < steps <= len(known):
            step = known[steps - 1]
            running = self._stop()
            self.snapshots.drop_newer(step.snapshot)
            counts = tuple(request.message.execution_count for request in step.undone)
            stopped = Stopped("undo", undone=counts)
            self._restoration = Restoration(
                self._reactor, self, stopped, running, missed=step.again, undone=step.undone
            )
            self._restoration.restore(step.snapshot)
        return len(known)

    def restore(self, name: str, refused: Callable[[str], None], *, branch: str = "") -> None:
        """Go back to a checkpoint, which is kept; ``refused`` gets why that can't be done.

        ``branch`` is the one that goes on from there, where it is begun or gone to.
        """
        checkpoint = self.snapshots.chain.named().get(name)
        if checkpoint is None:
            refused(why_not_named(self.snapshots.chain.named(), name))
            return
        guest = self.guest

        def stands(twin: Snapshot | None) -> None:
            if twin is None or not checkpoint.kept or self.guest is not guest:
                self.snapshots.let_go(twin)
                refused("no copy of it could be made")
                return
            running, process = self._stop(), checkpoint.guest
            self.snapshots.exchange(checkpoint, twin)
            stopped = Stopped("undo", detail=name, branch=branch)
            self._restoration = Restoration(self._reactor, self, stopped, running)
            self._restoration.otherwise = Stopped("crash", PICKED_ENDED)
            self._restoration.restore(checkpoint, process)

        self.snapshots.copy_apart(stands, checkpoint)

    def on_trying(self, guest: Guest | None) -> None:
        """Record which snapshot is tried; None when that failed."""
        self._guest = guest
        self._tell_serves(guest)

    def _tell_serves(self, guest: Guest | None) -> None:
        if guest is not None and self.zygote is not None:
            self.zygote.serves(guest)

    def on_restored(self, restoration: Restoration, guest: Guest) -> None:
        """Serve by a snapshot that has taken over."""
        self._tell_serves(guest)  # again: one that was tried before it stood had no number yet
        guest.on_message, guest.on_text = self._on_message, self.on_text
        guest.on_lost, guest.ready = self._on_lost, True
        guest.hold(held=self._held)
        outcome = restoration.outcome()
        if restoration.leaves_chain:
            self.snapshots.drop_chain()
        self.snapshots.take_in_time()
        self.owner.on_loss(outcome)
        status = restoration.exit_status(guest)
        if status is None:
            self.owner.on_served()
        else:
            self._on_reaped(guest, status)  # it said so, and ended before it was heard

    def on_gone(self, stopped: Stopped) -> None:
        """Start anew: there is no snapshot of what was lost."""
        if self._closed:
            return
        if stopped.why == "fork":
            self._give_up("the fork ended before it could serve")
            return
        self.snapshots.end()
        if self._failed_starts >= MAX_FAILED_STARTS:
            said = self._last_words.strip() or stopped.detail
            self._give_up(f"the guest ended {MAX_FAILED_STARTS} times while starting: {said}")
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
        stopped = otherwise = Stopped("fork", of)
        if self._guest is not None:  # a variant that is picked and ends leaves it as it was
            otherwise = Stopped("crash", PICKED_ENDED)
        self._stop()
        self.rulesets = parent.rulesets + (place is not None)
        parent.snapshots.give_away(copy)
        self.snapshots.adopt(copy, self.zygote, parent.snapshots)
        plan = None if place is None else place.plan
        restoration = Restoration(self._reactor, self, stopped, plan=plan)
        restoration.place, restoration.otherwise = place, otherwise
        self._restoration = restoration

        def ready(failure: str) -> None:
            self.awaits_fork = False
            if failure:
                copy.guest.close()
                self._give_up(f"the fork's locks can't be had: {failure}")
            else:
                restoration.restore(copy, copy.guest)

        if plan is None:
            ready("")
        else:
            self._on_locks, self._ticket = ready, next(_TICKETS)
            rulesets = parent.rulesets
            self.zygote.narrow(copy.guest, plan, self._ticket, rulesets=rulesets, fork=True)

    # --- a narrower policy --------------------------------------------------------------------

    def narrow_to(self, settings: SessionSettings) -> None:
        """Have guests under a narrower policy from now on; where it takes another one, at once."""
        self._spare.end()
        own = self._prepare
        tools = tuple(tool for tool in own.tools if tool.name not in settings.tools_gone)
        self._prepare = structs.replace(settings.prepare, tools=tools, paths=own.paths)
        if self._prepare != own:
            self._next_zygotes = ZygoteSource(self._reactor, settings.zygote)
        self.snapshots.narrow_to(settings.policy)
        if settings.step is NarrowingStep.relock:
            self._relock(settings)
        elif settings.step is NarrowingStep.fresh:
            # Nothing of the guest and its snapshots is to be left.
            self._stop()
            self.snapshots.end()
            self._losses = self._failed_starts = 0
            self.ensure()

    def copy_guest(self, then: Callable[[Snapshot | None], None]) -> None:
        """Have a snapshot made of the guest as it is; ``then`` gets it, or None."""
        self.snapshots.take(lambda: then(self.snapshots.chain.complete()))

    def prepare_locks(
        self, snapshot: Snapshot, plan: messages.Plan, then: Callable[[str], None]
    ) -> None:
        """Have more locks made ready for a snapshot; ``then`` gets why there are none, or nothing.

        The zygote makes them. From then on the snapshot is to take over (``narrow_to``): until
        another is asked for, nothing more can start.
        """
        if len(snapshot.guest.lineage.users) > 1:
            then("the sandbox has forks, or is one")
            return
        self._on_locks, self._ticket = then, next(_TICKETS)
        if self.zygote is not None:
            self.zygote.narrow(snapshot.guest, plan, self._ticket, rulesets=self.rulesets)
            self.rulesets += 1

    def _on_narrowed(self, message: messages.Narrowed) -> None:
        """Hear that locks are ready, can't be had, or are on the snapshot that takes over."""
        if message.ticket != self._ticket:
            return  # of a snapshot that is no more
        if message.ready or message.failure:
            then, self._on_locks = self._on_locks, None
            if then is not None:
                then(message.failure)
        elif (restoration := self._restoring()) is not None:
            restoration.confined = True

    def _relock(self, settings: SessionSettings) -> None:
        """Have the newest snapshot, which has all that ran, go on under the locks made ready.

        One that goes on without is ended like any other that lies (``guest.confine.landlock``).
        """
        stopped, snapshot = Stopped("narrowed"), self.snapshots.chain.complete()
        self._stop()
        if snapshot is None:
            self.on_gone(stopped)
        else:
            self.snapshots.go_alone(snapshot)
            plan = settings.prepare.plan
            self._restoration = Restoration(self._reactor, self, stopped, plan=plan)
            self._restoration.restore(snapshot, snapshot.guest)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> bool:
        """End guests and zygote; return whether they are gone, or their folder still is removed."""
        self._closed = True
        self._end()
        self.snapshots.end()
        zygote, self.zygote = self.zygote, None
        return zygote is None or self._zygotes.end(zygote)
