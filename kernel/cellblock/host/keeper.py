"""Keeping a guest alive: starting it, checking its locks, noticing its end, and what comes next.

What comes next is the newest snapshot, which has everything the guest had before the request
that was under way; where there is none, a fresh guest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.host import conduct, ends
from cellblock.host.outcome import Stopped
from cellblock.host.pace import Pace
from cellblock.host.relocking import Relocking
from cellblock.host.request import MAX_LOSSES
from cellblock.host.restorer import Restorer
from cellblock.host.restoring import Restoring
from cellblock.host.snapshots import Snapshots
from cellblock.host.supply import LAST_WORDS, Supply
from cellblock.host.terms import Step
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.copies import Ran
    from cellblock.host.guest_process import Guest
    from cellblock.host.keeping import Settings
    from cellblock.host.reactor import Reactor
    from cellblock.host.terms import Terms
    from cellblock.host.ward import Ward
    from cellblock.host.zygotes import Forker, Zygotes

#: Seconds until the next one, where the host itself could not start one.
NEXT_START = 0.5
#: Seconds a guest that hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
#: All that is known where what stands between host and guests went without a word.
ZYGOTE_ENDED = "its zygote ended"


class Keeper:
    """One guest at a time, from one zygote, both replaced when they end."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a keeper is made of
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

    def hold_to(self, terms: Terms) -> None:
        """Start guests under these terms from now on; with a fresh one, at once."""
        self.supply.hold_to(terms)
        self.snapshots.hold_to(terms.snapshots)
        if terms.step is Step.relock:
            self._relock(terms)
        elif terms.step is Step.fresh:
            self._begin_anew()

    def _relock(self, terms: Terms) -> None:
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
        elif breach := conduct.unasked(message, served=served):
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
            self.replace(Stopped("crash", ends.exit_reason(status)))

    def _zygote_lost(self) -> None:
        zygote = self.supply.part()
        self.snapshots.clear()  # their gate is gone with it
        if zygote is not None:
            zygote.kill()
        if self._guest is not None:
            ends.empty(self._guest.lineage.session)
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
