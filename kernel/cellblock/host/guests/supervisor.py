"""Keeping a guest alive: starting it, checking its locks, noticing its end, and what comes next.

What comes next is the newest snapshot, which has everything the guest had before the request
that was under way; where there is none, a fresh guest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cellblock.host.guests import zygote
from cellblock.host.guests.process import Guest
from cellblock.host.guests.zygote import kill_session
from cellblock.host.guests.zygotes import Own
from cellblock.host.session import types
from cellblock.host.session.types import Step, Stopped
from cellblock.host.snapshots.forking import Pace
from cellblock.host.snapshots.restore import Relocking, Restorer, Restoring
from cellblock.host.snapshots.store import Snapshots
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.zygotes import Forker, Zygotes
    from cellblock.host.session.types import Reactor, SessionSettings
    from cellblock.host.snapshots.copies import Ran
    from cellblock.host.snapshots.forking import Settings


#: Guests in a row that may be lost by themselves, with nothing run in between: a state that ends
#: every guest which has it is not restored for ever. What a cell ends does not count: the user can
#: run another, or step back.
MAX_LOSSES: Final = 8
# Where a keeper's next guest comes from: the zygote, what that was told, how often none came.

#: Guests in a row that may fail to start before the keeper gives up.
MAX_FAILED_STARTS: Final = 3
#: Characters kept of what a guest writes before it is ready, and told of why none can be had.
LAST_WORDS: Final = 2_000


class Supply:
    """``heard`` gets what the zygote says besides, ``lost`` is called when it is gone.

    ``way`` returns the descriptor at which a guest asks for connections, if any. Raises OSError.
    """

    def __init__(
        self,
        reactor: Reactor,
        prepare: messages.Prepare,
        zygotes: Zygotes,
        heard: Callable[[messages.FromZygote], None],
        lost: Callable[[], None],
        way: Callable[[], list[int]],
    ) -> None:
        self._reactor, self._prepare, self._zygotes = reactor, prepare, zygotes
        self._heard, self._lost, self.way = heard, lost, way
        #: The zygote behind the guests, and what that was told.
        self.zygote: Forker | None = None
        self._told = prepare
        #: The guest that was asked for last, until it is no more; the session of the last one.
        self._due: Guest | None = None
        self._session = -1
        #: Guests in a row that did not come to serve, and what they wrote.
        self.failed = 0
        self._last_words = ""

    # --- the zygote ---------------------------------------------------------------------------

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Have guests know these tools and folders of packages; before the first is started."""
        self._prepare = msgspec.structs.replace(self._prepare, tools=tools, paths=paths)

    def hold_to(self, terms: SessionSettings) -> None:
        """Have guests under these terms from now on."""
        own = self._prepare
        tools = tuple(tool for tool in own.tools if tool.name not in terms.tools_gone)
        self._prepare = msgspec.structs.replace(terms.prepare, tools=tools, paths=own.paths)
        if self._prepare != own:
            self._zygotes = Own(self._reactor, terms.zygote)

    @property
    def outdated(self) -> bool:
        """Whether guests of the zygote that there is would have more than they may."""
        return self.zygote is not None and self._told != self._prepare

    def leave(self, snapshots: Snapshots) -> None:
        """Have the zygote go, with all it started."""
        zygote = self.part()
        snapshots.end()
        if zygote is not None and not zygote.quit():
            kill_session(self._session)

    def part(self) -> Forker | None:
        """Give the zygote away: the next guest comes from another."""
        zygote, self.zygote = self.zygote, None
        return zygote

    def serves(self, guest: Guest | None) -> None:
        """Take note that a snapshot is to serve, whose end is to be told."""
        if guest is not None and self.zygote is not None:
            self.zygote.serves(guest)

    # --- guests -------------------------------------------------------------------------------

    def guest(
        self,
        on_message: Callable[[messages.FromGuest], None],
        on_text: Callable[[messages.StreamName, str], None],
        on_lost: Callable[[str], None],
    ) -> Guest:
        """Return the host's end of a guest to come. Raises OSError."""
        if self.zygote is None:
            self._told = self._prepare
            self.zygote = self._zygotes.one(self._prepare, self._hear, self._lost)
        way = self.way()
        try:
            guest = Guest(self._reactor, on_message, on_text, on_lost)
        except OSError:
            for fd in way:
                os.close(fd)
            raise
        guest.theirs += way
        return guest

    def fork(self, guest: Guest) -> None:
        """Have a guest forked."""
        self._due = guest
        if self.zygote is not None:
            self.zygote.fork(guest)

    def _hear(self, message: messages.FromZygote, pidfd: int | None) -> None:
        """Learn which process a guest is; pass on whatever else the zygote says."""
        guest = self._due
        if not isinstance(message, messages.Forked):
            self._heard(message)
        elif guest is not None and guest.number == message.id:
            guest.pid, guest.pidfd, guest.lineage.session = message.pid, pidfd, message.pid
            self._session = message.pid
        else:
            zygote.kill(message.pid, pidfd)  # it was replaced before its pid was known

    def missing(self, report: messages.LockReport) -> str:
        """Return which locks a guest lacks that it has to have, or nothing."""
        missing = [lock for lock in self._prepare.plan.required if lock not in report.achieved]
        return f"these locks were not applied: {', '.join(missing)}" if missing else ""

    # --- none ---------------------------------------------------------------------------------

    def overheard(self, text: str) -> None:
        """Take what a guest writes before it is ready: its last words, it may be."""
        self._last_words = (self._last_words + text)[-LAST_WORDS:]

    def came(self, *, well: bool) -> None:
        """Take note of a guest that is no more, or could not be started; ``well`` if it served."""
        self._due = None
        self.failed = 0 if well else self.failed + 1

    @property
    def dry(self) -> bool:
        """Whether so many failed that no more are started."""
        return self.failed >= MAX_FAILED_STARTS

    def said(self, detail: str) -> str:
        """Return why no guest is to be had: ``detail``, or what the last ones wrote."""
        said = self._last_words.strip() or detail
        return f"the guest ended {MAX_FAILED_STARTS} times while starting: {said}"


#: Seconds until the next one, where the host itself could not start one.
NEXT_START = 0.5
#: Seconds a guest that hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
#: All that is known where what stands between host and guests went without a word.
ZYGOTE_ENDED = "its zygote ended"


class Keeper:
    """One guest at a time, from one zygote, both replaced when they end."""

    def __init__(
        self,
        reactor: Reactor,
        ward: Ward,
        prepare: messages.Prepare,
        zygotes: Zygotes,
        settings: Settings,
        clock: Callable[[], float],
        way: Callable[[], list[int]] = list,
    ) -> None:
        self._reactor, self._ward, self._clock = reactor, ward, clock
        self.supply = Supply(reactor, prepare, zygotes, self._on_zygote, self._zygote_lost, way)
        self._guest: Guest | None = None
        self.snapshots = Snapshots(reactor, settings, clock, ward.on_notice, self._on_copy_lost)
        self._restorer = Restorer(reactor, self.snapshots, self.supply, self)
        self._pace = Pace(reactor, self.snapshots, self._serving, ward.idle)
        self.locks = Relocking(self.snapshots, self._restorer, self._pace, self.supply)
        #: Guests lost since one ran anything to its end.
        self._losses = 0
        self._held = False
        self._closed = False

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self._guest if self._guest is not None and self._guest.ready else None

    def ensure(self) -> None:
        """Have a guest started unless there is one."""
        self._pace.moved()
        if self._guest is not None or self._closed:
            return
        try:
            self._start()
        except OSError as exc:
            self._not_started(exc)

    def _start(self) -> None:
        if self.supply.outdated:
            self.supply.leave(self.snapshots)
        guest = self.supply.guest(self._on_message, self.on_text, self._on_lost)
        self._guest = guest
        self.supply.fork(guest)

    def _not_started(self, exc: OSError) -> None:
        """Try again in a while: the host may lack processes or descriptors only now."""
        self.supply.came(well=False)
        if not self.supply.dry:
            self._reactor.call_later(NEXT_START, self.ensure)
        else:
            self._give_up(f"its process could not be started: {exc.strerror}")

    def hold_to(self, terms: SessionSettings) -> None:
        """Start guests under these terms from now on; with a fresh one, at once."""
        self.supply.hold_to(terms)
        self.snapshots.hold_to(terms.snapshots)
        if terms.step is Step.relock:
            self._relock(terms)
        elif terms.step is Step.fresh:
            self._begin_anew()

    def _relock(self, terms: SessionSettings) -> None:
        """Have the newest copy, which has all that ran, go on in the guest's place."""
        stopped, copy = Stopped("narrowed"), self.snapshots.ring.whole()
        self._ward.on_stopping()
        self._end()
        if copy is None:
            self.on_gone(stopped)
        else:
            self.locks.promote(copy, stopped, terms.prepare.plan, self._clock())

    def _begin_anew(self) -> None:
        """End the guest and all copies; the next one has nothing of theirs."""
        self._ward.on_stopping()
        self._end()
        self.snapshots.end()
        self._losses = self.supply.failed = 0
        self.ensure()

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with what it says, or hear it again."""
        self._held = held
        if self.guest is not None:
            self.guest.hold(held=held)

    def interrupt(self) -> None:
        """Interrupt the guest; one that is being restored does nothing that it could end."""
        if self._guest is not None and not self._restorer.busy:
            self._guest.interrupt()

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; the newest snapshot takes over, or a fresh guest."""
        if self._restorer.busy:
            return
        running = self._ward.on_stopping()
        self._end()
        if running is None:
            self._losses += 1
        if self._losses > MAX_LOSSES:
            self.snapshots.clear()
        if not self._closed:
            self._restorer.restore(Restoring(stopped, running, now=self._clock()))

    def close(self) -> bool:
        """End guest and zygote; say whether the zygote is gone, or still removes their folder."""
        self._closed = True
        self._end()
        self.snapshots.clear()
        zygote = self.supply.part()
        return zygote is None or zygote.end()

    # --- snapshots ----------------------------------------------------------------------------

    def ran(self, ran: Ran, then: Callable[[], None] | None = None) -> None:
        """Take note that a request ran to its end, and a snapshot of what it left behind.

        ``then`` is called once that stands, or it is certain that it will not. What comes out
        the same when it is run again waits for idle time.
        """
        self._losses = 0
        self.snapshots.ring.ran(ran)
        if then is None:
            self._pace.take_in_time()
        else:
            self._pace.take(then, twice=not ran.short)

    def _serving(self) -> tuple[Guest, Forker] | None:
        guest, zygote = self.guest, self.supply.zygote
        return None if guest is None or zygote is None else (guest, zygote)

    def undo(self, steps: int) -> int:
        """Go back to the state before the last ``steps`` cells; return how many there are.

        Fewer than asked for means that nothing was done.
        """
        known = self.snapshots.steps()
        if 0 < steps <= len(known):
            step = known[steps - 1]
            running = self._ward.on_stopping()
            self._end()
            self.snapshots.drop_after(step.copy)
            self.snapshots.pop()
            counts = tuple(ran.message.execution_count for ran in step.undone)
            stopped = Stopped("undo", undone=counts)
            now = self._clock()
            restoring = Restoring(stopped, running, step.again, step.undone, now=now)
            self._restorer.promote(step.copy, restoring)
        return len(known)

    def _on_copy_lost(self) -> None:
        """Replace a copy that ended while it stood, unless that happens again and again."""
        self._losses += 1
        if self._losses <= MAX_LOSSES and self.guest is not None:
            self._pace.take_when_idle()

    # --- restoring ----------------------------------------------------------------------------

    def on_trying(self, guest: Guest | None) -> None:
        """Take note which copy is to serve; None when that failed."""
        self._guest = guest
        self.supply.serves(guest)

    def on_restored(self, restoring: Restoring, guest: Guest) -> None:
        """Serve by a guest that has taken over."""
        self.supply.serves(guest)  # again: one that was tried before it stood had no number yet
        guest.on_message, guest.on_text = self._on_message, self.on_text
        guest.on_lost, guest.ready = self._on_lost, True
        guest.hold(held=self._held)
        self._pace.take_in_time()
        self._ward.on_loss(restoring.outcome())
        status = self._restorer.ended(guest)
        if status is None:
            self._ward.on_served()
        else:
            self._on_reaped(guest, status)  # it said so, and ended before it was heard

    # --- the guest ----------------------------------------------------------------------------

    def _on_message(self, message: messages.FromGuest) -> None:
        served = self._guest is not None and self._guest.ready
        if isinstance(message, messages.NotStanding):
            self.snapshots.not_standing(message)
        elif breach := types.unasked(message, served=served):
            self.replace(Stopped("violation", f"protocol violation: {breach}"))
        elif not isinstance(message, messages.Ready | messages.NotReady):
            self._ward.on_message(message)
        elif isinstance(message, messages.Ready):
            self._on_ready(message)
        else:
            self._give_up(f"{message.lock}: {message.detail}")

    def _on_ready(self, message: messages.Ready) -> None:
        if missing := self.supply.missing(message.report):
            self._give_up(missing)
        elif refusal := self._ward.on_ready(message.report):
            self._give_up(refusal)
        elif self._guest is not None:
            self._guest.ready = True
            self._guest.hold(held=self._held)
            if self.supply.zygote is not None:
                self.snapshots.begin(self._guest, self.supply.zygote)
            self._pace.take_when_idle()
            self._ward.on_served()

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Take text that was written below Python; before a guest is ready, its last words."""
        if self.guest is None:
            self.supply.overheard(text)
        else:
            self._ward.on_text(kind, text)

    def _on_lost(self, reason: str) -> None:
        """Handle a channel that broke; with no reason, the exit status will tell."""
        guest = self._guest
        if reason:
            self.replace(Stopped("violation", reason))
        elif guest is not None:
            self._reactor.call_later(EXIT_GRACE, lambda: self._outlived(guest))

    def _outlived(self, guest: Guest) -> None:
        if guest is self._guest:
            self.replace(Stopped("violation", "protocol violation: it closed its channel"))

    # --- the zygote ---------------------------------------------------------------------------

    def _on_zygote(self, message: messages.FromZygote) -> None:
        guest = self._guest
        match message:
            case messages.Reaped(pid=pid, status=status):
                if self._restorer.busy:
                    self._restorer.reaped(pid, status)
                elif guest is not None and guest.pid == pid:
                    self._on_reaped(guest, status)
            case messages.Confined():
                self.locks.heard(message)
            case messages.ZygoteFailed():
                self._give_up(message.detail)

    def _on_reaped(self, guest: Guest, status: int) -> None:
        """Replace a guest that ended, unless what it said last already is the reason to."""
        guest.reaped()
        guest.hear_out()
        if guest is self._guest:
            guest.drain()
            self.replace(Stopped("crash", zygote.exit_reason(status)))

    def _zygote_lost(self) -> None:
        zygote = self.supply.part()
        self.snapshots.clear()  # their gate is gone with it
        if zygote is not None:
            zygote.kill()
        if self._guest is not None:
            kill_session(self._guest.lineage.session)
        if self._closed:
            return
        if self._restorer.busy:
            self._restorer.fail()
        else:
            self.replace(Stopped("crash", ZYGOTE_ENDED))

    # --- ends ---------------------------------------------------------------------------------

    def _end(self) -> None:
        guest, self._guest = self._guest, None
        if guest is not None:
            self.supply.came(well=guest.ready or guest.copied)
            guest.drain()
            guest.close()

    def on_gone(self, stopped: Stopped) -> None:
        """Start anew: there is no snapshot of what was lost."""
        if self._closed:
            return
        self.snapshots.end()
        if self.supply.dry:
            self._give_up(self.supply.said(stopped.detail))
            return
        served = not self.supply.failed
        self.ensure()
        # One that never served lost nothing, and the next one serves what waits.
        if served:
            self._ward.on_loss(stopped)

    def _give_up(self, detail: str) -> None:
        self._closed = True
        self._end()
        self.snapshots.end()
        self._ward.on_failure(detail[:LAST_WORDS])


# What a keeper tells, and whom.


class Ward(Protocol):
    """Whom a keeper keeps a guest for."""

    def on_ready(self, report: messages.LockReport) -> str:
        """Take a confined guest's report; return why nothing may run in it, or nothing."""

    def on_served(self) -> None:
        """Begin: a guest is ready."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Take any message but those about the guest's start."""

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Take text that was written below Python."""

    def idle(self) -> bool:
        """Say whether no request is under way."""

    def on_stopping(self) -> Any:
        """Stop watching what runs, for its guest is no more; return its message, or None."""

    def on_loss(self, stopped: Stopped) -> None:
        """Take note that a guest that served was lost, and what became of its state."""

    def on_notice(self, text: str) -> None:
        """Take note of something that the user is to know."""

    def on_failure(self, detail: str) -> None:
        """Take note that no guest can be had any more."""
