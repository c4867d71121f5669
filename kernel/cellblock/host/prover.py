"""Running the suite of probes: a zygote as any other, and guests of its that never serve.

What is proved is the real launch path: the same wrapper, zygote, fork, descriptors and locks as a
kernel's, under the policy in question. Two guests are forked: one tries all probes, another has a
thread before its locks, and is to refuse to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.guest.trying import EARLIER_THREAD
from cellblock.host import ends
from cellblock.host.guest_process import Guest
from cellblock.host.numbers import translation_for
from cellblock.host.reactor import Reactor
from cellblock.host.zygote_process import Zygote
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.host.relay.reach import Reach
    from cellblock.wire.messages import LockReport

#: Seconds that a suite may take; it takes half of one, and what a policy preloads.
PATIENCE: Final = 60.0
_LONGEST: Final = 500


class Loop(Reactor, Protocol):
    """A reactor that somebody runs."""

    def run(self) -> None:
        """Serve until ``stop``."""

    def stop(self) -> None:
        """End ``run``."""


class Prover:
    """One suite. ``report``, ``results``, ``touched`` and ``failure`` say what came of it."""

    def __init__(
        self,
        loop: Loop,
        prepare: messages.Prepare,
        spawn: Callable[[], tuple[socket.socket, int]],
        look: Callable[[], set[str]],
        reach: Reach | None = None,
    ) -> None:
        self._loop, self._prepare, self._spawn = loop, prepare, spawn
        self._look, self._reach = look, reach
        self._guest: Guest | None = None
        self._last_words = ""
        self.report: LockReport | None = None
        self.results: dict[str, messages.Attempt] = {}
        self.failure = ""
        #: The probes of which something is to be seen outside.
        self.touched: set[str] = set()

    def run(self, trial: messages.Trial) -> None:
        """Have both guests try. Never raises for what they do."""
        try:
            sock, pid = self._spawn()
        except OSError as error:
            self.failure = f"no zygote could be started: {error}"
            return
        translation = translation_for(self._prepare.plan)
        zygote = Zygote(sock, pid, self._loop, self._on_zygote, self._on_lost, translation)
        late = self._loop.call_later(PATIENCE, lambda: self._fail("it took too long"))
        try:
            zygote.prepare(self._prepare)
            self._fork(zygote, trial)
            self.touched = self._look()  # now: the zygote removes what lies in its folder
            if not self.failure:
                self._fork(zygote, _with_thread(trial))
        finally:
            late.cancel()
            zygote.end()

    def _fork(self, zygote: Zygote, trial: messages.Trial) -> None:
        self._guest = guest = Guest(
            self._loop,
            lambda message: self._on_message(message, threaded=trial.thread),
            self._on_text,
            lambda reason: self._on_end(reason, threaded=trial.thread),
        )
        try:
            if self._reach is not None:
                guest.theirs.append(self._reach.admit())
            zygote.fork(guest, trial=trial)
            self._loop.run()
        finally:
            guest.close()

    def _on_message(self, message: Any, *, threaded: bool) -> None:
        if isinstance(message, messages.Tried):
            self.results |= message.results
            self._loop.stop()
        elif isinstance(message, messages.Ready):
            self.report = self.report or message.report
        elif isinstance(message, messages.NotReady) and threaded:
            self.results[EARLIER_THREAD] = _refused_for(message)
            self._loop.stop()
        elif isinstance(message, messages.NotReady):
            self._fail(f"{message.lock}: {message.detail}")
        else:
            self._fail("a guest said something else than what it tried")

    def _on_text(self, _kind: messages.StreamName, text: str) -> None:
        self._last_words = (self._last_words + text)[-_LONGEST:]

    def _on_end(self, reason: str, *, threaded: bool) -> None:
        if threaded:
            self._loop.stop()  # what it did not say is unwitnessed
        else:
            self._fail(reason or f"a guest ended: {self._last_words.strip() or 'it said nothing'}")

    def _on_zygote(self, message: Any, pidfd: int | None) -> None:
        guest = self._guest
        if isinstance(message, messages.Forked):
            if guest is not None and guest.pidfd is None and message.id == guest.number:
                guest.pid, guest.pidfd, guest.lineage.session = message.pid, pidfd, message.pid
            else:
                ends.kill(message.pid, pidfd)
        elif isinstance(message, messages.ZygoteFailed):
            self._fail(message.detail)

    def _on_lost(self) -> None:
        self._fail("its zygote ended")

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why[:_LONGEST]
        self._loop.stop()


def _with_thread(trial: messages.Trial) -> messages.Trial:
    import msgspec  # noqa: PLC0415

    return msgspec.structs.replace(trial, probes=(), thread=True)


def _refused_for(message: messages.NotReady) -> messages.Attempt:
    """Return what it is worth that a guest with a thread did not start: only for that reason."""
    outcome: Any = "refused" if message.lock == "process" else "unwitnessed"
    return messages.Attempt(outcome=outcome, detail=message.detail[:_LONGEST])
