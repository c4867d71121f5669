"""How a session's requests go, one at a time: sent, begun, watched, ended, lost and sent again.

What is sent has been admitted (``host.session.session``). A guest is kept for it, and says how it
goes.
"""

from __future__ import annotations

import os
import re
import traceback
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.replay import can_run_again
from cellblock.errors import CellblockError, FrameTooLargeError
from cellblock.host.audit import records
from cellblock.host.guests.supervisor import MAX_LOSSES, Supervisor
from cellblock.host.services.network.relay import Relay
from cellblock.host.services.tools.calls import CellCalls
from cellblock.host.services.tools.session_tools import SessionTools
from cellblock.host.session import types
from cellblock.host.session.limits import Deadlines, Monitor
from cellblock.host.session.types import Claim, Front, Held, Refused, Step, Stopped, size_of
from cellblock.host.snapshots.chain import SHORT, PastRequest
from cellblock.policy.paths import open_unlinked
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Rules
    from cellblock.host.audit.recorder import Audit
    from cellblock.host.consent.admission.admission import Gate
    from cellblock.host.consent.approvals.approver import Clerk
    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.zygote import ZygoteSource
    from cellblock.host.services.tools.calls import Tooling
    from cellblock.host.session.limits import Bounds, Excess
    from cellblock.host.session.types import Front, Reactor, Scope, Terms, Usage, Why
    from cellblock.policy.model import Policy


# The user's part in a request: he is asked, answers and interrupts, and takes his time.

#: A second interrupt this soon after the first is the same key press, repeated.
REPEAT: Final = 0.5


class User:
    """``violation`` ends a guest for how it asks."""

    def __init__(
        self,
        keeper: Supervisor,
        under_way: UnderWay,
        front: Front,
        clerk: Clerk | None,
        clock: Callable[[], float],
        violation: Callable[[str], None],
    ) -> None:
        self._keeper, self._under_way, self._front = keeper, under_way, front
        self._clerk, self._clock, self._violation = clerk, clock, violation
        if clerk is not None:
            clerk.on_waiting(self._on_waiting)

    def is_asked(self, message: messages.InputRequest) -> None:
        """Put a cell's question, whose time does not count until it is answered."""
        request = self._under_way.request
        breach = types.question(message, request)
        if breach or request is None:
            self._violation(breach)
        elif request.over is None:
            request.questions += 1
            if self._front.asked(message):
                self._under_way.deadlines.pause()

    def answers(self, value: str, *, eof: bool) -> None:
        """Give the running cell what he typed; ``eof`` where there is nobody to ask."""
        request, guest = self._under_way.request, self._keeper.guest
        if guest is not None and request is not None and not guest.closed:
            try:
                guest.send(messages.Input(id=request.message.id, value=value, eof=eof))
            except CellblockError as exc:
                self._violation(str(exc))
                return
            request.questions = 0
            if self._clerk is None or not self._clerk.asks:
                self._under_way.deadlines.resume(request)

    def _on_waiting(self, asked: bool) -> None:
        """Leave out of a cell's time what he takes over a question of the host's."""
        request = self._under_way.request
        if request is not None and asked:
            self._under_way.deadlines.pause()
        elif request is not None and not request.questions and not request.ended:
            self._under_way.deadlines.resume(request)

    def interrupts(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        self._front.hurry()
        request = self._under_way.request
        if request is None:
            self._interrupts_nothing()
        elif request.interrupted_at is None:
            request.interrupted_at = self._clock()
            # Before its calls are refused: it would hear of that, go on, and be interrupted in
            # what it does about it.
            self._under_way.deadlines.interrupted(request)
            self._refuse()
        elif self._clock() - request.interrupted_at > REPEAT:
            self._refuse()
            self._keeper.replace(Stopped("interrupt"))

    def _interrupts_nothing(self) -> None:
        """Take back a question about a cell not sent yet, or interrupt a task between cells."""
        asked = self._clerk is not None and self._clerk.asks
        self._refuse()
        if not asked:
            self._keeper.interrupt()

    def _refuse(self) -> None:
        """Refuse what waits for the user's word, and what the cell asks for from now on."""
        if self._clerk is not None:
            self._clerk.interrupt()


# What is under way: one message to a guest, whom to tell, and how far it got.


class Request:
    """Bookkeeping of a session's one request. ``seconds`` are a limit of its own, if it has one."""

    def __init__(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        self.message, self.done, self.seconds = message, done, seconds
        #: The guest has read it: seen before anything else was sent after it.
        self.taken = False
        #: The guest says that it has read it and is busy with something else.
        self.heard = False
        #: The guest has taken it up.
        self.began = False
        self.began_at = 0.0
        #: It called a tool, or may have used a connection: what that did is not done again.
        self.called = False
        #: Its end was told; it is answered when a snapshot keeps what it did.
        self.ended = False
        #: How many cells it asked to step back over.
        self.undo = 0
        #: What it is answered with when that is done.
        self.reply: Any = None
        #: How often it was sent to another guest, because one was lost before it began.
        self.retried = 0
        #: The limit that it was interrupted for.
        self.over: Why | None = None
        self.interrupted_at: float | None = None
        #: It had not begun then, and what kept its guest from it was interrupted.
        self.nudged = False
        #: Questions that it put since the last one that was answered.
        self.questions = 0

    def renew(self) -> None:
        """Make it ready for another guest, which has all of its time."""
        self.over, self.nudged = None, False
        self.retried += 1

    def may_be_sent_again(self, lost: Why) -> bool:
        """Say whether another guest may get it: twice at most, where it may be what ends guests.

        What breaks the protocol before it has taken a cell up does so by itself, and so does every
        copy of it; a query is taken up unsaid.
        """
        told = isinstance(self.message, messages.Execute | messages.CommIn)
        most = MAX_LOSSES + 1 if told and lost == "violation" else 1
        return not self.began and self.interrupted_at is None and self.retried < most

    def stopped(self, why: Why, *, kept: bool = False) -> Stopped:
        """Return how it ended that is over a limit."""
        seconds = self.seconds if why == "timeout" else None
        return Stopped(why, kept=kept, seconds=seconds)


# The one request under way: sent to the guest that there is, watched, and ended.


class UnderWay:
    """At most one ``request``; ``violation`` ends a guest that can't be spoken to."""

    def __init__(  # noqa: PLR0913 - whom a request concerns
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        keeper: Supervisor,
        front: Front,
        desk: SessionTools,
        link: Relay,
        violation: Callable[[str], None],
        *,
        timeout: float | None,
        bounds: Bounds,
    ) -> None:
        self._clock, self._keeper, self._desk, self._link = clock, keeper, desk, link
        self._violation = violation
        self.request: Request | None = None
        self.deadlines = Deadlines(reactor, clock, keeper, front, timeout, self._abandon)
        self.monitor = Monitor(reactor, bounds, clock, self.on_excess, copies=keeper.snapshots.look)
        #: What the last one took, and calls of tools that it made.
        self.usage: Usage | None = None
        self.made = CellCalls()
        self._last_id = 0
        #: Queries that were answered with nothing, whose answers are yet to come.
        self._abandoned: set[int] = set()
        #: Why no guest is to be had any more.
        self._failure: str | None = None

    def next_id(self) -> int:
        """Return a number for a request."""
        self._last_id += 1
        return self._last_id

    def ready(self) -> None:
        """Have a guest ready, once it can be told which tools there are."""
        if not self._desk.awaited:
            self._keeper.ensure()

    def submit(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        """Have a guest take a message up; ``done`` gets its reply, or what it came to instead."""
        if self.request is not None:
            raise RuntimeError("one request at a time")
        self.ready()
        self.request = request = Request(message, done, seconds)
        if self._failure is not None:
            self.finish(request, self._failure)
        else:
            self._send(request)

    def take_up(self, request: Request, guest: Guest) -> None:
        """Have a request be under way that a guest is not told of."""
        self.request = request
        request.began, request.began_at = True, self._clock()
        self.monitor.begin(guest.pid)

    def send_what_waits(self) -> None:
        """Send the request to a guest that has come to serve."""
        if self.request is not None:
            self._send(self.request)

    def _send(self, request: Request) -> None:
        guest = self._keeper.guest
        self._desk.catch_up()
        if guest is None or guest.closed:
            return  # whoever comes next gets it
        guest.throttle(on=False)
        if isinstance(request.message, Claim):
            request.message.serve(request, guest)
            return
        self.deadlines.sent(request)
        request.taken = request.heard = False
        self._desk.begin()
        self.monitor.begin(guest.pid)
        try:
            guest.send(request.message)
        except FrameTooLargeError as exc:
            self.finish(request, f"it is too large to be sent: {exc}")
        except CellblockError as exc:
            self._violation(str(exc))
        except Exception as exc:  # noqa: BLE001 - too deep a comm message, say
            self.finish(request, f"it can't be sent: {type(exc).__name__}")

    # --- while it is --------------------------------------------------------------------------

    def hold_to(self, terms: Terms) -> None:
        """Hold requests to these limits, from the next one on."""
        self.deadlines.hold_to(terms.timeout)
        self.monitor.hold_to(terms.bounds)

    def on_excess(self, why: Excess, urgent: bool) -> None:
        """Act on what the monitor found; queries have a time of their own."""
        request = self.request
        if urgent:
            self._keeper.replace(Stopped(why))
        elif request is None or request.ended:
            return  # what is waited for is a snapshot
        elif isinstance(request.message, messages.Execute | messages.CommIn):
            self.deadlines.over(request, why)

    def _abandon(self, request: Request) -> None:
        """Answer a query with nothing. The guest keeps its state; its answer will be late."""
        self._keeper.interrupt()
        self._abandoned.add(request.message.id)
        self.finish(request, None)

    def is_late(self, number: int) -> bool:
        """Say whether a reply is to a query that nobody waits for any more; it comes once."""
        late = number in self._abandoned
        self._abandoned.discard(number)
        return late

    # --- its end ------------------------------------------------------------------------------

    def finish(self, request: Request, reply: Any) -> None:
        """End a request with a reply."""
        self.deadlines.stop()
        self.request = None
        ran = isinstance(reply, messages.Done | Refused)
        self.usage = self.monitor.end(reply.read_bytes if ran else 0)
        self.made = self._desk.end()
        if self._keeper.guest is not None:
            self._keeper.guest.throttle(on=True)
        request.done(reply)
        self._link.account()

    def answer(self, request: Request, reply: Any) -> None:
        """End a request with what its guest says, who is to answer for it."""
        try:
            self.finish(request, reply)
        except Exception as exc:  # noqa: BLE001 - a reply that can't be shown ends its guest
            traceback.print_exc()
            self.request, request.began = request, True
            self._violation(f"{type(exc).__name__} over a reply")

    def stop(self) -> Any:
        """Stop watching: the guest is no more. Return the message that it had taken up, or None."""
        self._abandoned.clear()
        self.monitor.lost()
        self._desk.drop()
        if self.request is None:
            return None
        self.deadlines.stop()
        return self.request.message if self.request.began else None

    def fail(self, detail: str) -> None:
        """End the request, and all that come, with the reason why no guest runs."""
        self._failure = detail
        if self.request is not None:
            self.finish(self.request, detail)


# ``%undo`` by itself: what the host does without asking the guest.

#: As ``guest.shell`` reads it; whatever else a cell says, the guest answers.
_ALONE: Final = re.compile(r"\s*%undo(?:[ \t]+([0-9]{1,9}))?[ \t]*(?:#[^\n]*)?\s*")


def asked_for(cell: str) -> int:
    """Return how many cells a cell steps back over that does nothing else; 0 for any other."""
    found = _ALONE.fullmatch(cell)
    return int(found[1] or 1) if found else 0


# What becomes of a request that ran to its end: answered once it is kept, or stepped back over.


class Settling:
    """Answers a request with a reply, if it still is the one ``under_way``."""

    def __init__(self, keeper: Supervisor, clock: Callable[[], float], under_way: UnderWay) -> None:
        self._keeper, self._clock, self._under_way = keeper, clock, under_way

    def keep(self, request: Request, reply: Any) -> None:
        """Answer what may have changed the state, and have a snapshot taken of that.

        ``Snapshots.ran`` decides which comes first.
        """
        now = self._clock()
        seconds = now - request.began_at
        short = seconds <= SHORT and not request.called
        exact = short and _comes_out_the_same(request)
        request.ended = True

        def answer() -> None:
            if self._under_way.request is request:
                self._under_way.answer(request, reply)

        effects = request.called
        ran = PastRequest(request.message, seconds, exact, ended=now, side_effects=effects)
        self._keeper.ran(ran, answer)

    def undo(self, request: Request, reply: messages.Done) -> None:
        """Step back, now that the cell which asked for it has ended."""
        request.ended, steps = True, request.undo
        request.reply = reply
        known = self._keeper.undo(steps)
        if known < steps:
            detail = f"{known} can be" if known else "there is nothing to undo"
            said = Refused(f"%undo {steps}: {detail}", reply.read_bytes)
            # By itself it changed nothing that would have to be undone, or kept.
            alone = asked_for(request.message.raw)
            (self._under_way.answer if alone else self.keep)(request, said)


def _comes_out_the_same(request: Request) -> bool:
    message = request.message
    if not isinstance(message, messages.Execute) or message.user_expressions or message.template:
        return False
    return can_run_again(message.source)


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
        zygotes: ZygoteSource,
        policy: Policy,
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
        self._link = Relay(reactor, addresses, self._on_breach, audit.asked)
        self._keeper = Supervisor(reactor, self, policy, prepare, zygotes, clock, self._link.admit)
        self._desk = SessionTools(
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
        zygote = self._keeper.zygote
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
        if request is not None and types.may_undo(request):
            request.undo = steps

    def _on_began(self, message: messages.Began) -> None:
        request, guest = self._under_way.request, self._keeper.guest
        known = guest is None or (request is not None and request.taken)
        breach = types.began(message, request, 0 if known or guest is None else guest.unread())
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
            guest.read_rest()
            if guest is self._keeper.guest:
                self._violation(what)

    def _violation(self, what: str) -> None:
        self._keeper.replace(Stopped("violation", f"protocol violation: {what}"))

    def _on_reply(self, message: Any) -> None:
        request, guest = self._under_way.request, self._keeper.guest
        breach = types.reply(message, request)
        if breach or request is None or guest is None:
            self._violation(breach)
            return
        guest.drain()
        guest.stop_waking()
        if not isinstance(message, messages.Done):
            self._under_way.answer(request, message)
            return
        self._under_way.deadlines.stop()
        if self._clerk is not None:
            self._clerk.end()  # it may not be answered yet: a snapshot is taken first
        if self._link.made_connections(self._keeper.snapshots.chain.had_connections):
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
        self._audit.enter(records.Failure(detail=records.said(detail)))
        self._front.failed(detail)
        self._under_way.fail(detail)
