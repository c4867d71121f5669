"""How a session's requests go, one at a time: sent, begun, watched, ended, lost and sent again.

What is sent has been admitted (``host.session``). A guest is kept for it, and says how it goes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cellblock.host import conduct
from cellblock.host.audit import entries, records
from cellblock.host.keeper import Keeper
from cellblock.host.outcome import Front, Stopped
from cellblock.host.relay.link import Link
from cellblock.host.settling import Settling
from cellblock.host.terms import Held, Step
from cellblock.host.tools.desk import Desk
from cellblock.host.under_way import UnderWay
from cellblock.host.usage import size_of
from cellblock.host.user import User
from cellblock.policy.paths import open_unlinked
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Rules
    from cellblock.host.admission.gate import Gate
    from cellblock.host.approvals.clerk import Clerk
    from cellblock.host.audit.trail import Audit
    from cellblock.host.guest_process import Guest
    from cellblock.host.keeping import Settings
    from cellblock.host.monitor import Bounds
    from cellblock.host.reactor import Reactor
    from cellblock.host.request import Request
    from cellblock.host.terms import Scope, Terms
    from cellblock.host.tools import Tooling
    from cellblock.host.zygotes import Zygotes

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Course:
    """One request at a time, over guests that come and go; ``rules`` are the session's."""

    def __init__(  # noqa: PLR0913 - what a session is made of
        self,
        reactor: Reactor,
        front: Front,
        rules: Rules,
        *,
        prepare: messages.Prepare,
        timeout: float | None,
        bounds: Bounds,
        clock: Callable[[], float],
        zygotes: Zygotes,
        snapshots: Settings,
        audit: Audit,
        gate: Gate,
        tools: Tooling | None = None,
        addresses: tuple[str, ...] = (),
        scope: Scope | None = None,
        clerk: Clerk | None = None,
    ) -> None:
        self._front, self._rules, self._audit, self._gate = front, rules, audit, gate
        self._timeout = timeout
        self._scratch = prepare.scratch
        self._clock = clock
        self._link = Link(reactor, addresses, self._on_breach, audit.asked)
        self._keeper = Keeper(reactor, self, prepare, zygotes, snapshots, clock, self._link.way)
        self._desk = Desk(
            reactor, self._keeper, lambda: self._under_way.request, self._violation, front.shown
        )
        self._under_way = UnderWay(
            reactor,
            clock,
            self._keeper,
            front,
            self._desk,
            self._link,
            self._violation,
            timeout=timeout,
            bounds=bounds,
        )
        self._settling = Settling(self._keeper, clock, self._under_way)
        if tools is not None:
            self._desk.set_up(tools, clock)
        #: The guest that there is, or one that it is a copy of, has run something.
        self.used = False
        self._scope = scope
        #: Asks the user, where the policy has that; None where nobody is asked.
        self._clerk = clerk
        self._user = User(self._keeper, self._under_way, front, clerk, clock, self._violation)

    def answer(self, value: str, *, eof: bool = False) -> None:
        """Give the running cell what the user typed; ``eof`` where there is nobody to ask."""
        self._user.answers(value, eof=eof)

    def interrupt(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        self._user.interrupts()

    def open_folder(self, path: str) -> int:
        """Open a folder that guests write, wherever it is. Raises OSError, for a link too."""
        zygote = self._keeper.supply.zygote
        if path == self._scratch and zygote is not None and zygote.folder is not None:
            return os.open(".", FOLDER, dir_fd=zygote.folder)
        return open_unlinked(path, FOLDER)

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with its output until front ends have taken theirs, or go on."""
        self._keeper.hold(held=held)

    def disconnect(self) -> None:
        """End the way out of guests, and account for what they asked for."""
        self._link.hold_to(())
        self._desk.drop()

    def close(self) -> bool:
        """End guest and zygote; say whether they are gone, or their folder still is removed."""
        self.disconnect()
        self._under_way.monitor.lost()
        self._desk.close()
        return self._keeper.close()

    # --- a narrower policy --------------------------------------------------------------------

    def adopt(self, terms: Terms) -> None:
        """Hold cells to these terms from now on; where it takes another guest, have it begin."""
        self._audit.narrowed(terms)
        self._rules, self._gate, self._timeout = terms.rules, terms.gate, terms.timeout
        self._under_way.hold_to(terms)
        self._desk.hold_to(terms.tools, terms.tools_gone)
        self._link.hold_to(terms.addresses)
        if self._scope is not None:
            self._scope.adopt(terms)
        if self._clerk is not None:
            self._clerk.hold_to(terms.digest, terms.changed)
        self.used = self.used and terms.step is not Step.fresh
        self._keeper.hold_to(terms)

    # --- what the keeper tells ----------------------------------------------------------------

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what a guest says."""
        request = self._under_way.request
        match message:
            case messages.Began():
                self._on_began(message)
            case messages.Heard(id=number):
                if request is not None and request.message.id == number:
                    request.heard = True
            case messages.InputRequest():
                self._user.is_asked(message)
            case messages.Undo(steps=steps):
                self._note_undo(steps)
            case messages.ToolCall() | messages.ToolWithdrawn():
                self._desk.heard(message, request)
            case messages.Breach(operation=operation):
                self._keeper.replace(Stopped("breach", operation))
            case messages.Done() | messages.Completed() | messages.Inspected():
                if not self._under_way.is_late(message.id):
                    self._on_reply(message)
            case _:
                self._show(message)

    def _note_undo(self, steps: int) -> None:
        request = self._under_way.request
        if request is not None and conduct.may_undo(request):
            request.undo = steps

    def _on_began(self, message: messages.Began) -> None:
        request, guest = self._under_way.request, self._keeper.guest
        known = guest is None or (request is not None and request.taken)
        breach = conduct.began(message, request, 0 if known or guest is None else guest.unread())
        if breach or request is None:
            self._violation(breach)
            return
        request.began, request.began_at = True, self._clock()
        self.used = True
        # Interrupted before: what was to make way for it has been, or that is about to hit it.
        if request.interrupted_at is not None and (message.interrupted or not request.nudged):
            self._keeper.interrupt()

    def _on_breach(self, what: str) -> None:
        """End a guest for what it told the relay, once it is known what it had begun before."""
        guest = self._keeper.guest
        if guest is not None:
            guest.hear_out()
            if guest is self._keeper.guest:
                self._violation(what)

    def _violation(self, what: str) -> None:
        self._keeper.replace(Stopped("violation", f"protocol violation: {what}"))

    def _on_reply(self, message: Any) -> None:
        request, guest = self._under_way.request, self._keeper.guest
        breach = conduct.reply(message, request)
        if breach or request is None or guest is None:
            self._violation(breach)
            return
        guest.drain()
        guest.let_sleep()
        if not isinstance(message, messages.Done):
            self._under_way.answer(request, message)
            return
        self._under_way.deadlines.stop()
        if self._clerk is not None:
            self._clerk.end()  # it may not be answered yet: a snapshot is taken first
        if self._link.made_connections(self._keeper.snapshots.ring.connected):
            request.called = True
        if request.undo and message.error is None:
            self._settling.undo(request, message)
        else:
            over = request.over
            ended = message if over is None else request.stopped(over, kept=True)
            self._settling.keep(request, ended)

    def _step_back(self, request: Request, steps: int, guest: Guest) -> None:
        """Do a cell that asks for this alone without the guest, which may be past hearing."""
        self._under_way.take_up(request, guest)
        request.undo = steps
        self._settling.undo(request, messages.Done(id=request.message.id))

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Show text that was written below Python."""
        self._show(messages.Stream(name=kind, text=text))

    def _show(self, message: messages.FromGuest) -> None:
        self._under_way.monitor.output_bytes += size_of(message)
        self._front.shown(message)

    def on_ready(self, report: messages.LockReport) -> str:
        """Let the front judge what a guest's locks achieved."""
        return self._front.locked(report)

    def on_served(self) -> None:
        """Send what waits."""
        self._under_way.send_what_waits()

    def idle(self) -> bool:
        """Say whether no request is under way."""
        return self._under_way.request is None

    def on_stopping(self) -> Any:
        """Stop watching the request whose guest is no more; return its message, or None."""
        return self._under_way.stop()

    def on_notice(self, text: str) -> None:
        """Let the front tell the user."""
        self._audit.enter(records.Notice(text=text))
        self._front.noticed(text)

    def on_loss(self, stopped: Stopped) -> None:
        """End the request that was lost with its guest; one that never began runs in the next."""
        request, finish = self._under_way.request, self._under_way.finish
        self._audit.lost(stopped)
        if stopped.why == "undo" and request is not None:
            self._front.undone(stopped)
            finish(request, request.reply)
        elif stopped.why == "narrowed" and request is not None:
            finish(request, Held(request.message.terms, stopped))
        elif request is None:
            self._front.restarted(stopped)
        elif request.may_be_sent_again(stopped.why):
            request.renew()
            self._front.restarted(stopped)
        else:
            finish(request, stopped)

    def on_failure(self, detail: str) -> None:
        """End the request, and all that come, with the reason why no guest runs."""
        self._audit.enter(records.Failure(detail=entries.said(detail)))
        self._front.failed(detail)
        self._under_way.fail(detail)
