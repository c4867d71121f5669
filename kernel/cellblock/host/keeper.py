"""Keeping a guest alive: starting it, checking its locks, noticing its end, and what comes next.

What comes next is the newest snapshot, which has everything the guest had before the request
that was under way; where there is none, a fresh guest.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.errors import CellblockError
from cellblock.host.guest_process import Guest
from cellblock.host.outcome import Stopped
from cellblock.host.restoring import Restoring
from cellblock.host.snapshots import Settings, Snapshots
from cellblock.host.zygote_process import Zygote
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor
    from cellblock.host.snapshots import Copy, Ran

#: Guests in a row that may fail to start before the keeper gives up.
MAX_FAILED_STARTS = 3
#: Guests in a row that may be lost with nothing run in between: a state that ends every guest
#: which has it is not restored for ever.
MAX_LOSSES = 8
#: Seconds a guest that hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
#: Seconds without a request that count as idle time.
IDLE = 0.02
#: Characters kept of what a guest writes before it is ready.
LAST_WORDS = 2_000


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


class Keeper:
    """One guest at a time, from one zygote, both replaced when they end."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a keeper is made of
        self,
        reactor: Reactor,
        ward: Ward,
        prepare: messages.Prepare,
        spawn: Callable[[], tuple[socket.socket, int]],
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._reactor, self._ward, self._prepare = reactor, ward, prepare
        self._spawn, self._clock = spawn, clock
        self._zygote: Zygote | None = None
        self._guest: Guest | None = None
        self._snapshots = Snapshots(
            reactor, settings, clock, self._on_stepped_back, self._on_copy_lost
        )
        self._restoring: Restoring | None = None
        self._forks = 0
        #: Counts requests and snapshots, so that a timer knows whether there was one meanwhile.
        self._moves = 0
        self._failed_starts = 0
        #: Guests lost since one ran anything to its end.
        self._losses = 0
        self._last_words = ""
        self._held = False
        self._closed = False

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self._guest if self._guest is not None and self._guest.ready else None

    def ensure(self) -> None:
        """Have a guest started unless there is one."""
        self._moves += 1
        if self._guest is not None or self._closed:
            return
        if self._zygote is None:
            sock, pid = self._spawn()
            self._zygote = Zygote(sock, pid, self._reactor, self._on_zygote, self._zygote_lost)
            self._zygote.prepare(self._prepare)
        guest = Guest(self._reactor, self._on_message, self._on_text, self._on_lost)
        self._guest = guest
        self._forks += 1
        guest.number = guest.lineage.number = self._forks
        self._zygote.fork(guest, guest.number, os.urandom(32))

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with what it says, or hear it again."""
        self._held = held
        if self.guest is not None:
            self.guest.hold(held=held)

    def signal(self, number: int) -> None:
        """Send the guest a signal; one that is being restored does nothing that it could end."""
        if self._guest is not None and self._restoring is None:
            self._guest.signal(number)

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; the newest snapshot takes over, or a fresh guest."""
        if self._restoring is not None:
            return
        running = self._ward.on_stopping()
        self._end()
        self._losses += 1
        if self._losses > MAX_LOSSES:
            self._snapshots.clear()
        if not self._closed:
            self._restore(Restoring(stopped, running, now=self._clock()))

    def close(self) -> bool:
        """End guest and zygote; say whether the zygote is gone, or still removes their folder."""
        self._closed = True
        self._end()
        self._snapshots.clear()
        zygote, self._zygote = self._zygote, None
        return zygote is None or zygote.end()

    # --- snapshots ----------------------------------------------------------------------------

    def covers(self) -> bool:
        """Say whether nothing that ended would be missing if the guest were killed now."""
        return self._snapshots.covers()

    def when_covered(self, then: Callable[[], None]) -> bool:
        """Have ``then`` called when that is so because a snapshot under way stands; else False."""
        return self._snapshots.when_kept(then)

    def ran(self, ran: Ran, then: Callable[[], None] | None = None) -> None:
        """Take note that a request ran to its end, and a snapshot of what it left behind.

        ``then`` is called once that stands, or it is certain that it will not. What comes out
        the same when it is run again waits for idle time.
        """
        self._losses = 0
        self._snapshots.ran(ran)
        if then is None:
            self._take_in_time()
        else:
            self._take(then)

    def _take_in_time(self) -> None:
        """Take a snapshot: at once, or when nothing comes for a while if that loses nothing."""
        if self._snapshots.can_wait():
            self._take_when_idle()
        else:
            self._take()

    def _take_when_idle(self) -> None:
        """Take a snapshot when nothing comes for a while.

        Not while something runs: what is asked for then is made when it has ended, and would
        count as made before it.
        """
        self._moves += 1
        now = self._moves

        def idle() -> None:
            if now == self._moves and self._ward.idle():
                self._take()

        self._reactor.call_later(IDLE, idle)

    def _take(self, then: Callable[[], None] | None = None) -> None:
        guest, zygote = self.guest, self._zygote
        self._moves += 1
        if guest is not None and zygote is not None:
            self._snapshots.take(guest, zygote, then)
        elif then is not None:
            then()

    def copies(self) -> dict[int, int]:
        """Return the processes of the snapshots, and how many bytes each has from its guest."""
        copies = self._snapshots.copies
        return {copy.guest.pid: copy.size for copy in copies if copy.guest.pid is not None}

    def undo(self, steps: int) -> int:
        """Go back to the state before the last ``steps`` cells; return how many there are.

        Fewer than asked for means that nothing was done.
        """
        known = self._snapshots.steps()
        if 0 < steps <= len(known):
            step = known[steps - 1]
            running = self._ward.on_stopping()
            self._end()
            self._snapshots.drop_after(step.copy)
            self._snapshots.pop()
            counts = tuple(ran.message.execution_count for ran in step.undone)
            stopped = Stopped("undo", undone=counts)
            now = self._clock()
            restoring = Restoring(stopped, running, step.again, step.undone, now=now)
            self._promote(step.copy, restoring)
        return len(known)

    def _on_copy_lost(self) -> None:
        """Replace a copy that ended while it stood, unless that happens again and again."""
        self._losses += 1
        if self._losses <= MAX_LOSSES and self.guest is not None:
            self._take_when_idle()

    def _on_stepped_back(self, why: str) -> None:
        self._ward.on_notice(why)

    # --- restoring ----------------------------------------------------------------------------

    def _restore(self, restoring: Restoring) -> None:
        copy = self._snapshots.pop()
        if copy is None:
            self._after(restoring.stopped)
        else:
            restoring.since(copy)
            self._promote(copy, restoring)

    def _promote(self, copy: Copy, restoring: Restoring) -> None:
        """Have a copy take over; until it says that it did, nothing is sent to it."""
        self._restoring, guest = restoring, copy.guest
        restoring.began(guest, self._reactor, self._restoration_failed)
        guest.on_message = lambda message: self._on_restoring(copy, message)
        guest.on_text = self._on_text
        guest.on_lost = lambda _: self._restoration_failed(restoring, guest)
        self._guest = guest
        try:
            guest.send(messages.Resume(seed=os.urandom(32), inputs=restoring.inputs()))
        except CellblockError:
            self._restoration_failed(restoring, guest)

    def _restoration_failed(self, restoring: Restoring, guest: Guest) -> None:
        if self._restoring is not restoring or self._guest is not guest:
            return
        self._restoring, self._guest = None, None
        restoring.unwatch()
        guest.close()
        if not self._closed:
            self._restore(restoring)

    def _on_restoring(self, copy: Copy, message: messages.FromGuest) -> None:
        """Hear a guest that is restored: that it stands, that it took over, that it caught up."""
        restoring, guest = self._restoring, copy.guest
        if restoring is None or guest is not self._guest:
            return
        try:
            serves = restoring.heard(message, guest)
            if isinstance(message, messages.Resumed):
                self._snapshots.clear_up()
            if serves:
                self._restored(restoring, copy)
            else:
                self._catch_up(restoring, guest, message)
        except CellblockError:
            self._restoration_failed(restoring, guest)

    def _catch_up(self, restoring: Restoring, guest: Guest, message: messages.FromGuest) -> None:
        if isinstance(message, messages.Resumed) and self._zygote is not None:
            # Before the first of what is run again, or %undo could not go there.
            self._snapshots.take(guest, self._zygote)
        if isinstance(message, messages.Resumed | messages.Done):
            restoring.go_on(guest)

    def _restored(self, restoring: Restoring, copy: Copy) -> None:
        self._restoring, guest = None, copy.guest
        copy.settle()  # it has what waited to be safe; what comes next is not sent yet
        for ran in restoring.again:
            self._snapshots.ran(ran)  # an older copy lacks it, should this guest end at once
        restoring.unwatch()
        guest.on_message, guest.on_text = self._on_message, self._on_text
        guest.on_lost, guest.ready = self._on_lost, True
        guest.hold(held=self._held)
        self._take_in_time()
        self._ward.on_loss(restoring.outcome())
        self._ward.on_served()

    # --- the guest ----------------------------------------------------------------------------

    def _on_message(self, message: messages.FromGuest) -> None:
        served = self._guest is not None and self._guest.ready
        if isinstance(message, messages.NotStanding):
            self._snapshots.not_standing(message)
        elif isinstance(message, messages.Standing | messages.Resumed):
            self.replace(Stopped("violation", "protocol violation: it speaks as a snapshot"))
        elif not isinstance(message, messages.Ready | messages.NotReady):
            self._ward.on_message(message)
        elif served:
            # Claims about locks count once, before the first user byte.
            self.replace(Stopped("violation", "protocol violation: a second report of its locks"))
        elif isinstance(message, messages.Ready):
            self._on_ready(message)
        else:
            self._give_up(f"{message.lock}: {message.detail}")

    def _on_ready(self, message: messages.Ready) -> None:
        missing = [k for k in self._prepare.plan.required if k not in message.report.achieved]
        if missing:
            self._give_up(f"these locks were not applied: {', '.join(missing)}")
        elif refusal := self._ward.on_ready(message.report):
            self._give_up(refusal)
        elif self._guest is not None:
            self._guest.ready = True
            self._guest.hold(held=self._held)
            self._take_when_idle()
            self._ward.on_served()

    def _on_text(self, kind: messages.StreamName, text: str) -> None:
        if self.guest is None:
            self._last_words = (self._last_words + text)[-LAST_WORDS:]
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

    def _on_zygote(self, message: messages.FromZygote, pidfd: int | None) -> None:
        guest = self._guest
        match message:
            case messages.Forked(id=number, pid=pid):
                if guest is not None and guest.number == number:
                    guest.pid, guest.pidfd, guest.lineage.session = pid, pidfd, pid
                else:
                    _kill(pid, pidfd)  # it was replaced before its pid was known
            case messages.Reaped(pid=pid, status=status):
                if guest is not None and guest.pid == pid and self._restoring is None:
                    self._on_reaped(guest, status)
            case messages.ZygoteFailed():
                self._give_up(message.detail)

    def _on_reaped(self, guest: Guest, status: int) -> None:
        """Replace a guest that ended, unless what it said last already is the reason to."""
        guest.reaped()
        guest.hear_out()
        if guest is self._guest:
            guest.drain()
            self.replace(Stopped("crash", _exit_reason(status)))

    def _zygote_lost(self) -> None:
        zygote, self._zygote = self._zygote, None
        self._snapshots.clear()  # their gate is gone with it
        if zygote is not None:
            zygote.kill()
        if self._guest is not None:
            _empty(self._guest.lineage.session)
        if self._closed:
            return
        if self._restoring is not None and self._guest is not None:
            self._restoration_failed(self._restoring, self._guest)
        else:
            self.replace(Stopped("crash", "its zygote ended"))

    # --- ends ---------------------------------------------------------------------------------

    def _end(self) -> None:
        guest, self._guest = self._guest, None
        if guest is not None:
            self._failed_starts = 0 if guest.ready or guest.copied else self._failed_starts + 1
            guest.drain()
            guest.close()

    def _after(self, stopped: Stopped) -> None:
        if self._closed:
            return
        self._snapshots.end()
        if self._failed_starts >= MAX_FAILED_STARTS:
            said = self._last_words.strip() or stopped.detail
            self._give_up(f"the guest ended {MAX_FAILED_STARTS} times while starting: {said}")
            return
        self.ensure()
        # One that never served lost nothing, and the next one serves what waits.
        if not self._failed_starts:
            self._ward.on_loss(stopped)

    def _give_up(self, detail: str) -> None:
        self._closed = True
        self._end()
        self._snapshots.end()
        self._ward.on_failure(detail)


def _kill(pid: int, pidfd: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pidfd is None:
            os.kill(pid, signal.SIGKILL)
            return
        with os.fdopen(pidfd, "rb", buffering=0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _empty(session: int) -> None:
    """Kill whatever is in a guest's session: with the zygote went who knew its descendants.

    No other session has its number while anything is in it (setsid(2)).
    """
    for entry in os.scandir("/proc") if session > 0 else ():
        with contextlib.suppress(ValueError, OSError):
            if os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)


def _exit_reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"it exited with status {os.waitstatus_to_exitcode(status)}"
