"""How a session's requests go, one at a time: sent, begun, watched, ended, lost and sent again.

What is sent has been admitted (``host.session``). A guest is kept for it, and says how it goes.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from cellblock.errors import CellblockError, FrameTooLargeError
from cellblock.host import conduct
from cellblock.host.audit import records
from cellblock.host.deadlines import Deadlines
from cellblock.host.keeper import Keeper
from cellblock.host.monitor import Monitor
from cellblock.host.outcome import Front, Refused, Stopped
from cellblock.host.relay.link import Link
from cellblock.host.request import Request
from cellblock.host.settling import Settling
from cellblock.host.terms import Claim, Held, Step
from cellblock.host.tools.desk import Desk
from cellblock.host.tools.record import Made
from cellblock.host.usage import size_of
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.analysis import Rules
    from cellblock.host.audit.trail import Audit
    from cellblock.host.guest_process import Guest
    from cellblock.host.monitor import Bounds, Excess
    from cellblock.host.reactor import Reactor
    from cellblock.host.snapshots import Settings
    from cellblock.host.terms import Scope, Terms
    from cellblock.host.tools import Tooling
    from cellblock.host.usage import Usage

#: A second interrupt this soon after the first is the same key press, repeated.
REPEAT = 0.5


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
        zygote: Callable[[], tuple[socket.socket, int]],
        snapshots: Settings,
        audit: Audit,
        tools: Tooling | None = None,
        addresses: tuple[str, ...] = (),
        scope: Scope | None = None,
    ) -> None:
        self._front, self._rules, self._audit = front, rules, audit
        self._clock = clock
        self._link = Link(reactor, addresses, self._on_breach, audit.asked)
        self._keeper = Keeper(reactor, self, prepare, zygote, snapshots, clock, self._link.way)
        self._deadlines = Deadlines(
            reactor, clock, self._keeper, front, timeout, self._abandon_query
        )
        self._settling = Settling(self._keeper, clock, self._answer, lambda: self._request)
        self._monitor = Monitor(
            reactor, bounds, clock, self._on_excess, copies=self._keeper.snapshots.sizes
        )
        self._usage: Usage | None = None
        #: Calls of tools that the last request made.
        self._made = Made()
        self._request: Request | None = None
        self._last_id = 0
        self._failure: str | None = None
        self._abandoned: set[int] = set()
        self._desk = Desk(reactor, self._keeper, lambda: self._request, self._violation)
        if tools is not None:
            self._desk.set_up(tools, clock)
        #: The guest that there is, or one that it is a copy of, has run something.
        self.used = False
        self._scope = scope

    def answer(self, value: str) -> None:
        """Give the running cell what the user typed."""
        request, guest = self._request, self._keeper.guest
        if guest is not None and request is not None and not guest.closed:
            try:
                guest.send(messages.Input(id=request.message.id, value=value))
            except CellblockError as exc:
                self._violation(str(exc))
                return
            request.questions = 0
            self._deadlines.resume(request)

    def interrupt(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        request = self._request
        self._front.hurry()
        if request is None:
            self._keeper.interrupt()  # a task between cells
        elif request.interrupted_at is None:
            request.interrupted_at = self._clock()
            self._deadlines.interrupted(request)
        elif self._clock() - request.interrupted_at > REPEAT:
            self._keeper.replace(Stopped("interrupt"))

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with its output until front ends have taken theirs, or go on."""
        self._keeper.hold(held=held)

    def disconnect(self) -> None:
        """End the way out of guests, and account for what they asked for."""
        self._link.hold_to(())

    def close(self) -> bool:
        """End guest and zygote; say whether they are gone, or their folder still is removed."""
        self.disconnect()
        self._monitor.lost()
        self._desk.close()
        return self._keeper.close()

    def _ready(self) -> None:
        """Have a guest ready, once it can be told which tools there are."""
        if not self._desk.awaited:
            self._keeper.ensure()

    # --- requests under way -------------------------------------------------------------------

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _submit(self, message: Any, done: Callable[[Any], None]) -> None:
        if self._request is not None:
            raise RuntimeError("one request at a time")
        self._ready()
        self._request = request = Request(message, done)
        if self._failure is not None:
            self._finish(request, self._failure)
        else:
            self._send(request)

    def _send(self, request: Request) -> None:
        guest = self._keeper.guest
        if guest is None or guest.closed:
            return  # whoever comes next gets it
        if isinstance(request.message, Claim):
            request.message.serve(request, guest)
            return
        self._deadlines.sent(request)
        request.taken = request.heard = False
        self._desk.begin()
        self._monitor.begin(guest.pid)
        try:
            guest.send(request.message)
        except FrameTooLargeError as exc:
            self._finish(request, f"it is too large to be sent: {exc}")
        except CellblockError as exc:
            self._violation(str(exc))
        except Exception as exc:  # noqa: BLE001 - too deep a comm message, say
            self._finish(request, f"it can't be sent: {type(exc).__name__}")

    # --- a narrower policy --------------------------------------------------------------------

    def adopt(self, terms: Terms) -> None:
        """Hold cells to these terms from now on; where it takes another guest, have it begin."""
        self._audit.narrowed(terms)
        self._rules = terms.rules
        self._deadlines.hold_to(terms.timeout)
        self._monitor.hold_to(terms.bounds)
        self._desk.hold_to(terms.tools, terms.tool_names)
        self._link.hold_to(terms.addresses)
        if self._scope is not None:
            self._scope.adopt(terms)
        self.used = self.used and terms.step is not Step.fresh
        self._keeper.hold_to(terms)

    def _on_excess(self, why: Excess, urgent: bool) -> None:
        """Act on what the monitor found; queries have a time of their own."""
        request = self._request
        if urgent:
            self._keeper.replace(Stopped(why))
        elif request is None or request.ended:
            return  # what is waited for is a snapshot
        elif isinstance(request.message, messages.Execute | messages.CommIn):
            self._deadlines.over(request, why)

    def _abandon_query(self, request: Request) -> None:
        """Answer a query with nothing. The guest keeps its state; its answer will be late."""
        self._keeper.interrupt()
        self._abandoned.add(request.message.id)
        self._finish(request, None)

    def _finish(self, request: Request, reply: Any) -> None:
        self._deadlines.stop()
        self._request = None
        ran = isinstance(reply, messages.Done | Refused)
        self._usage = self._monitor.end(reply.read_bytes if ran else 0)
        self._made = self._desk.end()
        request.done(reply)
        self._link.account()

    # --- what the keeper tells ----------------------------------------------------------------

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what a guest says."""
        match message:
            case messages.Began():
                self._on_began(message)
            case messages.Heard(id=number):
                if self._request is not None and self._request.message.id == number:
                    self._request.heard = True
            case messages.InputRequest():
                self._on_question(message)
            case messages.Undo(steps=steps):
                self._note_undo(steps)
            case messages.ToolCall() | messages.ToolWithdrawn():
                self._desk.heard(message, self._request)
            case messages.Breach(operation=operation):
                self._keeper.replace(Stopped("breach", operation))
            case messages.Done() | messages.Completed() | messages.Inspected():
                if message.id in self._abandoned:
                    self._abandoned.discard(message.id)
                else:
                    self._on_reply(message)
            case _:
                self._monitor.output_bytes += size_of(message)
                self._front.shown(message)

    def _note_undo(self, steps: int) -> None:
        if self._request is not None and conduct.may_undo(self._request):
            self._request.undo = steps

    def _on_began(self, message: messages.Began) -> None:
        request, guest = self._request, self._keeper.guest
        known = guest is None or (request is not None and request.taken)
        breach = conduct.began(message, request, 0 if known or guest is None else guest.unread())
        if breach or request is None:
            self._violation(breach)
            return
        request.began, request.began_at = True, self._clock()
        self.used = True
        if request.interrupted_at is not None:
            self._keeper.interrupt()

    def _on_question(self, message: messages.InputRequest) -> None:
        request = self._request
        breach = conduct.question(message, request)
        if breach or request is None:
            self._violation(breach)
        elif request.over is None:
            request.questions += 1
            if self._front.asked(message):
                self._deadlines.pause()

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
        request, guest = self._request, self._keeper.guest
        breach = conduct.reply(message, request)
        if breach or request is None or guest is None:
            self._violation(breach)
            return
        guest.drain()
        if not isinstance(message, messages.Done):
            self._answer(request, message)
            return
        self._deadlines.stop()
        if self._link.made_connections(self._keeper.snapshots.connected):
            request.called = True
        if request.undo and message.error is None:
            self._settling.undo(request, message)
        else:
            over = request.over
            self._settling.keep(request, Stopped(over, kept=True) if over is not None else message)

    def _answer(self, request: Request, reply: Any) -> None:
        try:
            self._finish(request, reply)
        except Exception as exc:  # noqa: BLE001 - a reply that can't be shown ends its guest
            traceback.print_exc()
            self._request, request.began = request, True
            self._violation(f"{type(exc).__name__} over a reply")

    def _step_back(self, request: Request, steps: int, guest: Guest) -> None:
        """Do a cell that asks for this alone without the guest, which may be past hearing."""
        self._request, request.undo = request, steps
        request.began, request.began_at = True, self._clock()
        self._monitor.begin(guest.pid)
        self._settling.undo(request, messages.Done(id=request.message.id))

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Show text that was written below Python."""
        message = messages.Stream(name=kind, text=text)
        self._monitor.output_bytes += size_of(message)
        self._front.shown(message)

    def on_ready(self, report: messages.LockReport) -> str:
        """Let the front judge what a guest's locks achieved."""
        return self._front.locked(report)

    def on_served(self) -> None:
        """Send what waits."""
        if self._request is not None:
            self._send(self._request)

    def idle(self) -> bool:
        """Say whether no request is under way."""
        return self._request is None

    def on_stopping(self) -> Any:
        """Stop watching the request whose guest is no more; return its message, or None."""
        self._abandoned.clear()
        self._monitor.lost()
        self._desk.drop()
        if self._request is None:
            return None
        self._deadlines.stop()
        return self._request.message if self._request.began else None

    def on_notice(self, text: str) -> None:
        """Let the front tell the user."""
        self._audit.enter(records.Notice(text=text))
        self._front.noticed(text)

    def on_loss(self, stopped: Stopped) -> None:
        """End the request that was lost with its guest; one that never began runs in the next."""
        request = self._request
        self._audit.lost(stopped)
        if stopped.why == "undo" and request is not None:
            self._front.undone(stopped)
            self._finish(request, request.reply)
        elif stopped.why == "narrowed" and request is not None:
            self._finish(request, Held(request.message.terms, stopped))
        elif request is None:
            self._front.restarted(stopped)
        elif request.began or request.retried or request.interrupted_at is not None:
            self._finish(request, stopped)
        else:
            request.renew()
            self._front.restarted(stopped)

    def on_failure(self, detail: str) -> None:
        """End the request, and all that come, with the reason why no guest runs."""
        self._audit.enter(records.Failure(detail=records.said(detail)))
        self._front.failed(detail)
        self._fail(detail)

    def _fail(self, detail: str) -> None:
        self._failure = detail
        if self._request is not None:
            self._finish(self._request, detail)
