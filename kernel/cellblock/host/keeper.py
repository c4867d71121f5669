"""Keeping a guest alive: starting it, checking its locks, noticing its end, starting the next."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.host.guest_process import Guest
from cellblock.host.outcome import Stopped
from cellblock.host.zygote_process import Zygote
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor

#: Guests in a row that may fail to start before the keeper gives up.
MAX_FAILED_STARTS = 3
#: Seconds a guest that hung up has to exit: one that ends by itself is all but gone by then.
EXIT_GRACE = 1.0
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

    def on_loss(self, stopped: Stopped) -> None:
        """Take note that a guest that served was lost; the next is on its way."""

    def on_failure(self, detail: str) -> None:
        """Take note that no guest can be had any more."""


class Keeper:
    """One guest at a time, from one zygote, both replaced when they end."""

    def __init__(
        self,
        reactor: Reactor,
        ward: Ward,
        prepare: messages.Prepare,
        spawn: Callable[[], tuple[socket.socket, int]],
    ) -> None:
        self._reactor, self._ward, self._prepare = reactor, ward, prepare
        self._spawn = spawn
        self._zygote: Zygote | None = None
        self._guest: Guest | None = None
        self._forks = 0
        self._failed_starts = 0
        self._last_words = ""
        self._closed = False

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""
        return self._guest if self._guest is not None and self._guest.ready else None

    def ensure(self) -> None:
        """Have a guest started unless there is one."""
        if self._guest is not None or self._closed:
            return
        if self._zygote is None:
            sock, pid = self._spawn()
            self._zygote = Zygote(sock, pid, self._reactor, self._on_zygote, self._zygote_lost)
            self._zygote.prepare(self._prepare)
        guest = Guest(self._reactor, self._on_message, self._on_text, self._on_lost)
        self._guest = guest
        self._forks += 1
        guest.number = self._forks
        self._zygote.fork(guest, guest.number, os.urandom(32))

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with what it says, or hear it again."""
        if self._guest is not None:
            self._guest.hold(held=held)

    def signal(self, number: int) -> None:
        """Send the guest a signal."""
        if self._guest is not None:
            self._guest.signal(number)

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest and start the next."""
        self._end()
        self._after(stopped)

    def close(self) -> bool:
        """End guest and zygote; say whether the zygote is gone, or still removes their folder."""
        self._closed = True
        self._end()
        zygote, self._zygote = self._zygote, None
        return zygote is None or zygote.end()

    # --- the guest ----------------------------------------------------------------------------

    def _on_message(self, message: messages.FromGuest) -> None:
        served = self._guest is not None and self._guest.ready
        if not isinstance(message, messages.Ready | messages.NotReady):
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
                    guest.pid, guest.pidfd = pid, pidfd
                else:
                    _kill(pid, pidfd)  # it was replaced before its pid was known
            case messages.Reaped(pid=pid, status=status):
                if guest is not None and guest.pid == pid:
                    guest.reaped()
                    guest.drain()
                    self.replace(Stopped("crash", _exit_reason(status)))
            case messages.ZygoteFailed():
                self._give_up(message.detail)

    def _zygote_lost(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.kill()
        if not self._closed:
            self.replace(Stopped("crash", "its zygote ended"))

    # --- ends ---------------------------------------------------------------------------------

    def _end(self) -> None:
        guest, self._guest = self._guest, None
        if guest is not None:
            self._failed_starts = 0 if guest.ready else self._failed_starts + 1
            guest.close()

    def _after(self, stopped: Stopped) -> None:
        if self._closed:
            return
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
        self._ward.on_failure(detail)


def _kill(pid: int, pidfd: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pidfd is None:
            os.kill(pid, signal.SIGKILL)
            return
        with os.fdopen(pidfd, "rb", buffering=0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _exit_reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"it exited with status {os.waitstatus_to_exitcode(status)}"
