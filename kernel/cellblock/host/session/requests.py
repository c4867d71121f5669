"""A session's requests: sent to the guest, watched, and answered exactly once.

The main shell has one at a time, and so has each subshell beside it.

The life of a request::

    admitted ──> sent ──> running ──> ending ──> done
        ^          │         │                    ^
        └──────────┘         └────────────────────┘
     its guest was lost     its guest was lost, or
     before it began        a query took too long

``admitted``
    It may run, and no guest has it yet: one is being started, or restored. One that comes after a
    pause waits until layers show what the user changed meanwhile. One of a subshell also
    waits while a snapshot is made, and while something needs the guest for itself.
``sent``
    It was written to the guest's channel. A guest that never takes it up is killed.
``running``
    The guest said that it began (a query is answered without that). From here on it is never
    sent again.
``ending``
    The guest said that it ended; the answer waits for a snapshot, or for cells to be undone.
``done``
    Answered.

A guest is not trusted to keep this order: what does not fit ends it (``check_began``,
``check_question``, ``check_reply``).
"""

from __future__ import annotations

import copy
import errno
import re
import signal
import traceback
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cellblock.analysis.dataflow import RepeatableCells
from cellblock.analysis.magic_table import SHOWN_BY_HOST
from cellblock.analysis.magics import steps_of_undo
from cellblock.analysis.transform import is_python
from cellblock.descriptors import FOLDER, open_beneath, open_unlinked
from cellblock.errors import CellblockError, FrameTooLargeError
from cellblock.host.audit import records
from cellblock.host.guests.supervisor import Supervisor
from cellblock.host.limits.deadlines import Deadlines
from cellblock.host.limits.monitor import Mark, Monitor
from cellblock.host.services.ports import Ports, PortState
from cellblock.host.services.relay import Relay, RelayUser
from cellblock.host.services.tools.broker import Broker
from cellblock.host.services.tools.calls import CellCalls, Tooling
from cellblock.host.session.types import (
    CHARGED,
    ESTIMATED,
    NOT_SERVED,
    NarrowingStep,
    Refused,
    Stopped,
)
from cellblock.host.state.chain import PastRequest
from cellblock.host.state.core import MAX_LOSSES
from cellblock.policy.paths import within
from cellblock.wire import messages
from cellblock.wire.messages import UPPER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import Front
    from cellblock.host.consent.approver import Approver
    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.zygote import ZygoteSource
    from cellblock.host.limits.monitor import Excess
    from cellblock.host.limits.scratch import ForksFolder
    from cellblock.host.reactor import Reactor
    from cellblock.host.session.types import SessionSettings, Usage, Why


#: A second interrupt this soon after the first is the same key press, repeated.
REPEAT: Final = 0.5
#: Questions that a cell may put while none is answered: one that is interrupted may ask again.
MAX_QUESTIONS: Final = 1_000

#: Said once, before the cell that was to see what the user changed.
_STALE: Final = (
    "cellblock: cells may not see files that you change from now on ({}). Restart the kernel.\n"
)
#: A cell that is ``%undo`` and nothing else, with its argument.
_UNDO_ALONE: Final = re.compile(r"\s*+%undo((?:[ \t#][^\n]*+)?+)\s*+")
_CELL_CODE = messages.Execute | messages.CommIn | messages.SetVariables
_ANSWERS: Final[dict[type, type]] = {
    messages.Execute: messages.Done,
    messages.CommIn: messages.Done,
    messages.Complete: messages.Completed,
    messages.Inspect: messages.Inspected,
    messages.ListVariables: messages.Variables,
    messages.GetVariable: messages.VariableValue,
    messages.ShrinkImage: messages.ShrunkImage,
    messages.SetVariables: messages.Done,
}


class RequestState(IntEnum):
    """See the module's docstring."""

    admitted = 0
    sent = 1
    running = 2
    ending = 3
    done = 4


class InFlight:
    """The request under way: what the guest is sent, who is told of the end, how far it is.

    ``seconds`` is its own timeout, where it has one.
    """

    def __init__(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        self.message, self.done, self.seconds = message, done, seconds
        #: The subshell that it is for; 0 is the main shell.
        self.subshell: int = getattr(message, "subshell", 0)
        #: The number of its cell in the audit log; 0 where it is the last that was decided about.
        self.number = 0
        #: Layers have been refreshed for it, if they had to be.
        self.refreshed = False
        #: Another ran at the same time, so that what either did can't be told apart.
        self.overlapped = False
        #: Where clock and counters were when it came, and then when it went to the guest.
        self.since = Mark(0.0, 0.0, 0)
        self.state = RequestState.admitted
        self.began_at = 0.0
        #: The guest has read it: the channel was seen to be empty after it.
        self.read = False
        #: The guest says that it has read it and is busy with something else.
        self.acknowledged = False
        #: Its cell awaits.
        self.awaits = False
        #: It called a tool, or may have used a connection: it must not run twice.
        self.called = False
        #: It asked the user, or showed what a page has a link to: both can be had once.
        self.linked = False
        #: How many cells it asked to undo, and what it is answered with once they are.
        self.undo_steps = 0
        #: The checkpoint that it asked for, or to go back to; or the branch.
        self.checkpoint: messages.Checkpoint | messages.Branch | None = None
        self.reply: Any = None
        #: How often it was sent to another guest, because one was lost before it began.
        self.resent = 0
        #: The limit that it was interrupted for.
        self.over: Why | None = None
        #: What watches it, where that is not the session's own.
        self.deadlines: Deadlines[InFlight] | None = None
        self.interrupted_at: float | None = None
        #: It was interrupted before it began, and the guest was interrupted to make way for it.
        self.made_way = False
        #: Questions that it put since the last one that was answered.
        self.questions = 0

    @property
    def began(self) -> bool:
        """Whether the guest has taken it up."""
        return self.state >= RequestState.running

    @property
    def runs_code(self) -> bool:
        """Whether it runs a cell's code: a query does not."""
        return isinstance(self.message, _CELL_CODE)

    def may_be_resent(self, lost: Why) -> bool:
        """Return whether another guest may get it, as the one that had it was lost.

        Twice at most, where it may be what ends guests. A guest that breaks the protocol before
        it has taken a cell up does so by itself, and so does every copy of it; a query is taken
        up without saying so.
        """
        most = MAX_LOSSES + 1 if self.runs_code and lost == "violation" else 1
        return not self.began and self.interrupted_at is None and self.resent < most

    def stopped(self, why: Why, end: messages.Done | None = None) -> Stopped:
        """Return how it ended that is over a limit; ``end`` is the guest's word, if it had one."""
        seconds = self.seconds if why == "timeout" else None
        error = None if end is None or not _is_interrupt(end.error) else end.error
        return Stopped(why, kept=end is not None, seconds=seconds, error=error)


class PolicyChange(Struct, frozen=True):
    """A narrower policy that waits for a guest, as a request's message; no guest has this id.

    ``serve`` is called with each guest that could take it. The request ends with None, or with the
    ``Stopped`` of a guest that was replaced, when the policy is in force.
    """

    id: ClassVar[int] = -1

    serve: Callable[[InFlight, Guest], None]


class PolicyUnchanged(Struct, frozen=True):
    """A narrower policy could not be put in force: nothing has changed."""

    why: str


# --- what a guest may say when ------------------------------------------------------------------
#
# Each check returns how the protocol was broken, or nothing. An honest guest keeps it by its own
# code, whatever a cell does with the language alone: who breaks it has taken over the process.


def check_began(message: messages.Began, request: InFlight | None, unread: int) -> str:
    """Check a claim to have begun; ``unread`` are bytes still on their way to the guest."""
    if request is None or message.id != request.message.id or request.began:
        return "it claims to have begun what it was not told to"
    if _ANSWERS[type(request.message)] is not messages.Done:
        return "it claims to have begun a query"
    if unread:
        # Believed, it would keep an interrupt from ending a guest that never takes it up.
        return "it claims to have begun what it has not read"
    return ""


def check_question(message: messages.InputRequest, request: InFlight | None) -> str:
    """Check a question to the user."""
    if request is None or message.id != request.message.id or not request.began:
        return "a question of no cell"
    if not isinstance(request.message, messages.Execute) or not request.message.allow_stdin:
        return "a question where none may be asked"
    if request.questions > MAX_QUESTIONS:
        return "a storm of questions"
    return ""


def check_reply(message: Any, request: InFlight | None) -> str:
    """Check what claims to answer a request."""
    if request is None or message.id != request.message.id or request.state is RequestState.ending:
        return "a reply to no request"
    if type(message) is not _ANSWERS[type(request.message)]:
        return "a reply of another kind"
    if isinstance(message, messages.Done) and not request.began:
        return "an end without a beginning"
    if isinstance(message, messages.Done) and message.value != messages.NOTHING:
        return "" if getattr(request.message, "value", False) is True else "a value unasked for"
    return ""


#: Seconds after which a request that is under way has the zygote checked, again and again. A guest
#: waits for it in each fork and signal, and a cell that waits for a zygote that hangs never ends.
CHECK: Final = 5.0
#: Seconds between looks at whether the guest has read what was sent, or a subshell may go on.
LOOK: Final = 0.002


class Requests:
    """One request of each shell at a time, over guests that come and go.

    The supervisor has guests for it, and tells it what they say and that they are lost.
    """

    def __init__(
        self,
        reactor: Reactor,
        front: Front,
        settings: SessionSettings,
        zygotes: ZygoteSource,
        audit: Audit,
        *,
        clock: Callable[[], float],
        approver: Approver | None = None,
    ) -> None:
        self._front, self._audit, self._approver, self._clock = front, audit, approver, clock
        self._addresses, self._reactor = settings.addresses, reactor
        self._relay_user = RelayUser(self._audit.asked, self.on_notice)
        self._relay = self._make_relay()
        #: What it said of connections last.
        self._came = 0
        self._served = settings.served
        self.ports = self._make_ports()
        policy, prepare = settings.policy, settings.prepare
        self._layers = prepare.plan.layers
        self.supervisor = Supervisor(
            reactor, self, policy, prepare, zygotes, clock, self._on_network
        )
        self.tools = Broker(
            reactor,
            self.supervisor,
            settings.tools or Tooling(policy=policy),
            audit,
            clock=clock,
            requests=self,
            violation=self._violation,
            show=front.tell,
        )
        self._deadlines = Deadlines(
            reactor, clock, self.supervisor, front.stop_holding, self._abandon
        )
        self._deadlines.timeout = policy.timeout
        copies = self.supervisor.snapshots.look
        self._monitor = Monitor(
            reactor,
            policy,
            (prepare.scratch,),
            clock,
            self.on_excess,
            copies=copies,
            layers=prepare.plan.layers,
            shared_memory=self.supervisor.shared_memory,
        )
        self._monitor.others = self.supervisor.snapshots.others
        self._monitor.holds = self.supervisor.snapshots.holds
        self.supervisor.snapshots.programs = self._monitor.programs
        self.supervisor.snapshots.programs_held = lambda: self._monitor.programs_held
        self.supervisor.snapshots.programs_shown = lambda: self._monitor.programs_shown
        self._monitor.orphans_cpu = lambda: self.supervisor.orphans_cpu
        self._monitor.answering_cpu = lambda: self.supervisor.answering_cpu
        self._monitor.held_together = self.supervisor.snapshots.held_together
        if approver is not None:
            approver.on_waiting(self._on_waiting)
        #: The main shell's request under way, and those of subshells by number.
        self.request: InFlight | None = None
        self.beside: dict[int, InFlight] = {}
        #: The subshells that there are, and whether the guest has yet to be told of them.
        self._subshells: tuple[int, ...] = ()
        self._to_tell = False
        #: The main shell's request is to be sent; and it is looked soon what can be.
        self._main_waits = self._looks = False
        #: The zygote is to be checked while a request is under way.
        self._checks = False
        #: What waits until no subshell runs anything, and what is done instead if interrupted.
        self._alone: tuple[Callable[[], None], Callable[[], None]] | None = None
        #: What the last one took, and the calls of tools that it made.
        self.usage: Usage | None = None
        self.tool_calls = CellCalls()
        #: Called with the source files that a guest has had to compile.
        self.on_compiled: Callable[[Sequence[str]], None] | None = None
        #: Of a fork with a folder in its parent's: called when that is too full for any cell.
        self.on_folder_lost: Callable[[], None] | None = None
        #: Whether the guest, or one that it is a copy of, has run anything.
        self.used = False
        self._last_id = 0
        #: When the main shell's last cell ended, and whether the user knows that layers are stale.
        self._cell_ended = -messages.PAUSE
        self._told_stale = False
        #: Queries that were answered with nothing, whose answers are yet to come.
        self._abandoned: set[int] = set()
        self._repeatable = RepeatableCells()
        #: Why no guest can be had any more.
        self._failure: str | None = None

    # --- sending ------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return a number for a request."""
        self._last_id += 1
        return self._last_id

    def prepare_guest(self) -> None:
        """Have a guest ready, once it can be told which tools there are."""
        if not self.tools.awaited:
            self.supervisor.ensure()

    def submit(
        self,
        message: Any,
        done: Callable[[Any], None],
        seconds: float | None = None,
        number: int = 0,
    ) -> None:
        """Send a message to a guest; ``done`` gets its reply, or why there is none.

        ``number`` is that of its cell in the audit log.
        """
        request = InFlight(message, done, seconds)
        request.number, request.since = number, self._monitor.mark()
        if self._of(request.subshell) is not None:
            raise RuntimeError("one request at a time")
        self.supervisor.begin(message)
        if request.subshell:
            self._submit_beside(request)
            return
        steps, guest = _steps_if_only_undo(message), self.supervisor.guest
        if not steps or guest is None:
            self.prepare_guest()
        self.request = request
        if self._failure is not None:
            self.finish(request, self._failure)
        elif steps and guest is not None:
            # Done without the guest, which may be past hearing, and no snapshot is put off for it.
            request.state, request.began_at = RequestState.running, self._clock()
            if not self._others(request):
                self._monitor.begin(guest.pid)
            request.undo_steps = steps
            self._undo_when_alone(request, messages.Done(id=message.id))
        else:
            self._send(request)

    def _submit_beside(self, request: InFlight) -> None:
        self.prepare_guest()
        self.beside[request.subshell] = request
        request.deadlines = self._new_deadlines()
        if self._failure is not None:
            self.finish(request, self._failure)
        else:
            self._send_what_waits()

    def _new_deadlines(self) -> Deadlines[InFlight]:
        """Return what watches a subshell's request."""
        made = Deadlines(
            self._reactor,
            self._clock,
            self.supervisor,
            self._front.stop_holding,
            self._abandon,
            interrupts=False,
        )
        made.timeout = self._deadlines.timeout
        return made

    def _deadlines_of(self, request: InFlight) -> Deadlines[InFlight]:
        return request.deadlines or self._deadlines

    def _send(self, request: InFlight) -> None:
        """Send the main shell's request, as soon as the guest has read what was sent before it."""
        guest = self.supervisor.guest
        self.tools.catch_up()
        if guest is None or guest.closed:
            return  # whoever comes next gets it
        if self._to_tell or not self.is_read():
            self._main_waits = True
            self._send_what_waits()
            return
        guest.throttle(on=False)
        if isinstance(request.message, PolicyChange):
            request.message.serve(request, guest)
        elif self._must_refresh(request):
            self.supervisor.refresh(partial(self._on_refreshed, request))
        else:
            self._send_to(guest, request)

    def _must_refresh(self, request: InFlight) -> bool:
        """Whether the user may have changed files since the last cell, which layers would hide."""
        if not self._layers or request.refreshed or not _is_cell(request.message):
            return False
        return self._clock() - self._cell_ended >= messages.PAUSE

    def _on_refreshed(self, request: InFlight, failure: str) -> None:
        """Send a cell that waited for layers; ``failure`` says why they are as they were."""
        request.refreshed = True
        if failure and not self._told_stale:
            self._told_stale = True
            self._front.tell(messages.Stream(name="stderr", text=_STALE.format(failure)))
        if self.request is request and request.state is RequestState.admitted:
            self._send(request)

    def _send_to(self, guest: Guest, request: InFlight) -> None:
        guest.throttle(on=False)
        request.state = RequestState.sent
        self._check_later()
        request.read = request.acknowledged = False
        for other in (others := self._others(request)):
            other.overlapped = request.overlapped = True
        self._deadlines_of(request).sent(request)
        self.tools.begin(request.subshell, request.number)
        if not others:
            self._monitor.begin(guest.pid)
        request.since = self._monitor.mark()
        if _is_cell(request.message):
            self._front.on_sent(request.subshell)
        try:
            guest.send(request.message)
        except FrameTooLargeError as exc:
            self.finish(request, f"it is too large to be sent: {exc}")
        except CellblockError as exc:
            self._violation(str(exc))
        except Exception as exc:  # a comm message that is nested too deep, say
            self.finish(request, f"it can't be sent: {type(exc).__name__}")

    def _check_later(self) -> None:
        if not self._checks:
            self._checks = True
            self._reactor.call_later(CHECK, self._check)

    def _check(self) -> None:
        self._checks = False
        if self._all():
            self.supervisor.check_zygote()
            self._check_later()

    # --- subshells beside the main shell ----------------------------------------------------------

    def have_subshells(self, numbers: tuple[int, ...]) -> None:
        """Have these subshells, and no others, in each guest."""
        self._subshells, self._to_tell = numbers, True
        self._send_what_waits()

    def when_alone(self, action: Callable[[], None], interrupted: Callable[[], None]) -> None:
        """Call ``action`` when no subshell runs anything; ``interrupted``, if the user won't wait.

        Until then, and while the main shell's request has the guest replaced, none begins anything.
        """
        if self._others(None):
            self._alone = action, interrupted
        else:
            action()

    def _go_on_alone(self) -> None:
        if self._alone is not None and not self._others(None):
            (action, _), self._alone = self._alone, None
            action()

    def _is_reserved(self) -> bool:
        """Return whether no subshell may begin anything: who would be copied, or is replaced."""
        request = self.request
        if self._alone is not None or self.supervisor.snapshots.asked():
            return True
        if request is None:
            return False
        undoes = request.undo_steps > 0 or request.checkpoint is not None
        return (undoes and request.state is RequestState.ending) or isinstance(
            request.message, PolicyChange
        )

    def _send_what_waits(self) -> None:
        """Send what waits, one after the other as the guest reads it; look again for the rest."""
        guest = self.supervisor.guest
        if guest is None or guest.closed:
            return
        if self.is_read():
            if self._to_tell and not self.supervisor.snapshots.asked():
                self._to_tell = False
                self._tell(guest)
            elif self._main_waits and not self._to_tell:
                self._main_waits = False
                if (request := self.request) is not None:
                    self._send(request)
            elif not self._is_reserved() and (waiting := self._waiting()):
                self._send_to(guest, waiting[0])
        if self._to_tell or self._main_waits or self._waiting():
            soon = self.supervisor.snapshots.asked() or not self.is_read()
            self._look_in(LOOK if soon else 10 * LOOK)

    def _look_in(self, seconds: float) -> None:
        if not self._looks:
            self._looks = True
            self._reactor.call_later(seconds, self._look)

    def _look(self) -> None:
        self._looks = False
        self._go_on_alone()
        self._send_what_waits()

    def _waiting(self) -> list[InFlight]:
        return [one for one in self.beside.values() if one.state is RequestState.admitted]

    def _tell(self, guest: Guest) -> None:
        """Tell the guest of its subshells; a cell that runs is interrupted to have that read."""
        try:
            guest.send(messages.Subshells(numbers=self._subshells))
        except CellblockError as exc:
            self._violation(str(exc))
            return
        if self.request is not None:
            guest.signal(signal.SIGURG)

    def is_read(self) -> bool:
        """Return whether the guest has read all that it was sent: what comes next hides none of it.

        Until it has begun a request, unread bytes in its socket show that it has not read that.
        """
        guest = self.supervisor.guest
        unread = [one for one in self._all() if one.state is RequestState.sent and not one.read]
        if not unread or guest is None:
            return True
        if guest.unread():
            return False
        for one in unread:
            one.read = True
        return True

    def _all(self) -> list[InFlight]:
        """Return the requests under way, the main shell's first, then those that are oldest."""
        return [*filter(None, [self.request]), *self.beside.values()]

    def _of(self, subshell: int) -> InFlight | None:
        """Return the request of a shell."""
        return self.beside.get(subshell) if subshell else self.request

    def _find(self, number: int) -> InFlight | None:
        """Return the request with this id."""
        return next((one for one in self._all() if one.message.id == number), None)

    def _others(self, request: InFlight | None) -> list[InFlight]:
        """Return what else the guest runs; for None, what subshells run or wait to end."""
        if request is None:
            return [one for one in self.beside.values() if one.state is not RequestState.admitted]
        runs = RequestState.sent, RequestState.running
        return [one for one in self._all() if one is not request and one.state in runs]

    def _charged(self) -> InFlight | None:
        """Return what is charged with what the guest takes: the main shell's, or the oldest."""
        return next((one for one in self._all() if one.runs_code), None)

    # --- while it is under way ----------------------------------------------------------------

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on what a guest says."""
        match message:
            case messages.Began():
                self._on_began(message)
            case messages.Awaits() | messages.Queued():
                self._on_progress(message)
            case messages.InputRequest():
                self._on_question(message)
            case messages.Undo() | messages.Checkpoint() | messages.Branch():
                self._on_going_back(message)
            case messages.ToolCall(subshell=subshell):
                self.tools.handle(message, self._of(subshell) or self.request)
            case messages.ToolWithdrawn():
                self.tools.handle(message, self.request)
            case messages.Breach(operation=operation):
                self.supervisor.replace(Stopped("breach", operation))
            case messages.Done() | messages.QueryReply():
                self._on_reply(message)
            case messages.Show(what=what) if what not in SHOWN_BY_HOST:
                self._violation("a table that the host does not have")
            case _:
                self._show(message)

    def _on_began(self, message: messages.Began) -> None:
        request, guest = self._find(message.id), self.supervisor.guest
        known = guest is None or (request is not None and request.read)
        breach = check_began(message, request, 0 if known or guest is None else guest.unread())
        if breach or request is None:
            self._violation(breach)
            return
        request.state, request.began_at, self.used = RequestState.running, self._clock(), True
        # The user interrupted it before it began. Do it now, unless an interrupt that was sent to
        # make way for it has not arrived yet: that one will hit it.
        if request.interrupted_at is not None and (message.interrupted or not request.made_way):
            self.supervisor.interrupt()

    def _on_progress(self, message: messages.Awaits | messages.Queued) -> None:
        request = self._find(message.id)
        if request is not None and isinstance(message, messages.Queued):
            request.acknowledged = True
        elif request is not None and request is self.request:
            request.awaits = request.began
            self._front.on_awaits()

    def _on_going_back(self, asked: messages.Undo | messages.Checkpoint | messages.Branch) -> None:
        """Note that a cell asks for it; a handler or a thread may say so, too, and gets nothing."""
        request = self.request
        if request is None or not request.began or not _is_cell(request.message):
            return
        if isinstance(asked, messages.Undo):
            request.undo_steps = asked.steps
        else:
            request.checkpoint = asked

    def on_text(self, text: messages.Stream) -> None:
        """Show what cells, and programs that they started, have written."""
        self._show(text)

    def _show(self, message: messages.FromGuest) -> None:
        if (subshell := getattr(message, "subshell", 0)) and subshell not in self.beside:
            message = msgspec.structs.replace(message, subshell=0)  # as of the main shell
        self._monitor.output_bytes += _size_of(message)
        if isinstance(message, messages.Error) and self._ends_at_limit(message):
            return
        if _links(message):
            for one in self._all():
                one.linked = True
        self._front.on_output(message)

    def _ends_at_limit(self, error: messages.Error) -> bool:
        """Return whether an error is the interrupt of a cell at a limit: ``Stopped`` says it."""
        request = self._of(error.subshell)
        return request is not None and request.over is not None and _is_interrupt(error)

    def on_excess(self, why: Excess, urgent: bool) -> None:
        """Act on a limit that the monitor found exceeded; queries have a deadline of their own."""
        if self._failure is not None:
            return  # nothing runs
        if self.on_folder_lost is not None and self._monitor.is_past_forgiving:
            self.on_folder_lost()
            return
        sent = [one for one in self._all() if one.runs_code and one.state > RequestState.admitted]
        if urgent:
            detail = ""
            if why == "memory" and self._monitor.is_estimate:
                detail = ESTIMATED
            elif why == "memory" and self._monitor.is_charged:
                detail = CHARGED
            self.supervisor.replace(Stopped(why, detail))
        elif sent:
            # What requests take that run at the same time can't be told apart. It counts from
            # when the first of them began, and for that one.
            first = min(sent, key=lambda one: one.since)
            if first.state is not RequestState.ending:
                self._deadlines_of(first).over(first, why)

    def _abandon(self, request: InFlight) -> None:
        """Answer a query with nothing. The guest keeps its state; its answer will be late."""
        self.supervisor.interrupt()
        self._abandoned.add(request.message.id)
        self.finish(request, None)

    def _violation(self, what: str) -> None:
        self.supervisor.replace(Stopped("violation", f"protocol violation: {what}"))

    # --- the user: questions and interrupts ---------------------------------------------------

    def _on_question(self, message: messages.InputRequest) -> None:
        """Put a cell's question; its time stands still until there is an answer."""
        request = self.request
        breach = check_question(message, request)
        if breach or request is None:
            self._violation(breach)
        elif request.over is None:
            request.questions += 1
            request.linked = True
            if self._front.on_question(message):
                self._deadlines.pause()

    def answer_question(self, value: str, *, eof: bool) -> None:
        """Give the running cell what the user typed; ``eof`` where there is nobody to ask."""
        request, guest = self.request, self.supervisor.guest
        if guest is not None and request is not None and not guest.closed:
            try:
                guest.send(messages.Input(id=request.message.id, value=value, eof=eof))
            except CellblockError as exc:
                self._violation(str(exc))
                return
            request.questions = 0
            if not self._host_asks:
                self._deadlines.resume(request)

    @property
    def _host_asks(self) -> bool:
        return self._approver is not None and self._approver.asks

    def _on_waiting(self, asked: bool) -> None:
        """Stop the cell's time while the user is asked a question of the host's."""
        request = self.request
        if request is not None and asked:
            self._deadlines.pause()
        elif (
            request is not None
            and not request.questions
            and request.state is not RequestState.ending
        ):
            self._deadlines.resume(request)

    def interrupt(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        self._front.stop_holding()
        if self._alone is not None:
            (_, interrupted), self._alone = self._alone, None
            interrupted()
            return
        request, asked = self.request, self._host_asks
        if request is None:
            self._refuse_consent()
            if not asked:  # else it was about a cell that is not sent yet
                self.supervisor.interrupt()
            self._interrupt_beside()
        elif request.interrupted_at is None:
            request.interrupted_at = self._clock()
            # First, and then its calls are refused: else it would hear of the refusal, go on, and
            # be interrupted in what it does about that.
            self._deadlines.interrupted(request)
            self._refuse_consent()
        elif self._clock() - request.interrupted_at > REPEAT:
            self._refuse_consent()
            self.supervisor.replace(Stopped("interrupt"))

    def _interrupt_beside(self) -> None:
        """Kill what subshells run where nothing else does, and the user interrupts it twice."""
        began = [one for one in self.beside.values() if one.began]
        if began and (at := began[0].interrupted_at) is not None:
            if self._clock() - at > REPEAT:
                self.supervisor.replace(Stopped("interrupt", of=began[0].subshell))
            return
        for one in began:
            one.interrupted_at = self._clock()

    def _refuse_consent(self) -> None:
        """Refuse what the cell waits to be allowed, and what it asks for from now on."""
        if self._approver is not None:
            self._approver.interrupt()

    # --- its end ------------------------------------------------------------------------------

    def _on_reply(self, message: Any) -> None:
        if message.id in self._abandoned:
            self._abandoned.discard(message.id)
            return
        request, guest = self._find(message.id), self.supervisor.guest
        breach = check_reply(message, request)
        if breach or request is None or guest is None:
            self._violation(breach)
            return
        if not request.subshell:
            guest.stop_waking()
        if not isinstance(message, messages.Done):
            self._answer(request, message)
            return
        self._deadlines_of(request).stop()
        if self._approver is not None:
            self._approver.end()  # the answer may have to wait for a snapshot
        if self._has_connected():
            for one in self._all():
                one.called = True
        failed = message.error is not None
        if request.over is not None and (failed or not request.undo_steps):
            self._keep(request, request.stopped(request.over, message))
        elif failed or not self._goes_back(request, message):
            self._keep(request, message)

    def _make_relay(self) -> Relay:
        return Relay(self._reactor, self._addresses, self._relay_user)

    def _take_relay(self) -> None:
        """Have a relay of one's own, and leave the one before to forks and whom they are of."""
        self._relay.leave(self._relay_user)
        self._relay, self._came = self._make_relay(), 0

    def _make_ports(self) -> Ports:
        return Ports(self._reactor, *self._served, self.on_notice)

    def _take_ports(self) -> None:
        """Have ports of one's own, and leave the ones before to forks and whom they are of."""
        self.ports.leave()
        self.ports = self._make_ports()

    def open_ports(self) -> tuple[PortState, ...]:
        """Return the ports that are open to the user, and whether somebody listens at each."""
        return self.ports.state()

    def _on_network(self, listeners: Mapping[messages.Neighbour, int], network: int | None) -> None:
        """Have guests of a zygote be connected to what is listed, and be reached at ports."""
        if self.ports.is_shared and not self.ports.serves(network):
            self._take_ports()
        self.ports.serve(network)
        if self._relay.is_shared and not self._relay.serves(listeners):
            self._take_relay()
        self._relay.serve(listeners)

    def _has_connected(self) -> bool:
        """Return whether a guest connected to a listed host, or had before what runs began."""
        before, self._came = self._came, self._relay.came()
        if not self._relay.has_hosts:
            return False
        return self._came != before or self.supervisor.snapshots.chain.had_connections()

    def _goes_back(self, request: InFlight, reply: messages.Done) -> bool:
        """Do what a cell asked for with the states before it, or its own; return whether it did."""
        if request.undo_steps:
            self._undo_when_alone(request, reply)
        elif isinstance(request.checkpoint, messages.Branch):
            self._do_branch(request, request.checkpoint, reply)
        elif request.checkpoint is not None:
            self._do_checkpoint(request, request.checkpoint, reply)
        else:
            return False
        return True

    def _keep(self, request: InFlight, reply: Any) -> None:
        """Answer a request that may have changed the guest's state, and have a snapshot taken.

        ``Core.cell_ended`` decides which comes first.
        """
        now, message = self._clock(), request.message
        seconds = now - request.began_at
        repeatable = (
            isinstance(message, messages.Execute)
            and self._repeatable.judge(message.source)  # it may define what a later one calls
            and not message.user_expressions
            and not (message.template or message.view)
            and isinstance(reply, messages.Done)
            and reply.error is None
            and reply.repeatable
            and not (request.called or request.linked or request.overlapped)
            and request.interrupted_at is None
        )
        request.state = RequestState.ending

        def answer() -> None:
            if self._of(request.subshell) is request:
                self._answer(request, reply)

        # What ran beside another is not run again by itself.
        once = request.called or request.overlapped
        past = PastRequest(
            message,
            seconds,
            repeatable=repeatable,
            ended=now,
            side_effects=once,
            is_unparsed=isinstance(message, messages.Execute)
            and isinstance(reply, messages.Done)
            and reply.error is not None  # else it need not be parsed
            and not is_python(message.raw),
        )
        self.supervisor.ran(past, answer, alone=not self._others(request))

    def _undo_when_alone(self, request: InFlight, reply: messages.Done) -> None:
        """Undo cells when no subshell runs anything."""

        def interrupted() -> None:
            self._refuse_undo(request, reply, "it waited for subshells, and was interrupted")

        request.state, request.reply = RequestState.ending, reply
        self.when_alone(lambda: self._undo(request, reply), interrupted)

    def _undo(self, request: InFlight, reply: messages.Done) -> None:
        """Undo cells, now that the one which asked for that has ended."""
        steps = request.undo_steps
        known = self.supervisor.undo(steps)
        if known < steps:
            last = "cell" if known == 1 else f"{known} cells"
            detail = f"only the last {last} can be undone" if known else "there is nothing to undo"
            if why := self.supervisor.snapshots.why_no_copy():
                detail += f": {why}"
            self._refuse_undo(request, reply, detail)

    def _refuse_undo(self, request: InFlight, reply: messages.Done, why: str) -> None:
        refused = Refused(f"%undo {request.undo_steps}: {why}", reply.read_bytes)
        if _steps_if_only_undo(request.message):
            self._answer(request, refused)  # it changed nothing that a snapshot would keep
        else:
            self._keep(request, refused)

    def _do_checkpoint(
        self, request: InFlight, asked: messages.Checkpoint, reply: messages.Done
    ) -> None:
        """Keep the state under a name, or go back to one, when no subshell runs anything."""
        magic = f"%{'restore' if asked.restores else 'checkpoint'} {asked.name}"

        def done(refusal: str) -> None:
            if self.request is request:
                refused = Refused(f"{magic}: {refusal}", reply.read_bytes)
                self._keep(request, refused if refusal else reply)

        def do() -> None:
            if asked.restores:
                self.supervisor.snapshots.restore(asked.name, done)
            else:
                number = request.message.execution_count
                self.supervisor.snapshots.checkpoint(asked.name, done, number)

        request.state, request.reply = RequestState.ending, reply
        self.when_alone(do, lambda: done("it waited for subshells, and was interrupted"))

    def _do_branch(self, request: InFlight, asked: messages.Branch, reply: messages.Done) -> None:
        """Go to a branch, drop one or list them, when no subshell runs anything."""
        snapshots, name, start = self.supervisor.snapshots, asked.name, asked.start or ""
        magic = " ".join(filter(None, ("%branch", "-d" * asked.drops, name, start)))

        def done(refusal: str) -> None:
            if self.request is request:
                if not refusal:  # and a state that is gone back to is told of by itself
                    begins = name is not None and not asked.drops
                    self._front.on_branches(snapshots.listing(begins=begins))
                refused = Refused(f"{magic}: {refusal}", reply.read_bytes)
                self._keep(request, refused if refusal else reply)

        def do() -> None:
            if name is None:
                done("")
            elif asked.drops:
                done(snapshots.drop_name(name))
            else:
                snapshots.go_to_branch(name, start, done)

        request.state, request.reply = RequestState.ending, reply
        self.when_alone(do, lambda: done("it waited for subshells, and was interrupted"))

    def _answer(self, request: InFlight, reply: Any) -> None:
        """End a request with what its guest said; a reply that can't be shown ends the guest."""
        try:
            self.finish(request, reply)
        except Exception as exc:  # whatever the guest put into it
            traceback.print_exc()
            request.state = RequestState.running
            if request.subshell:
                self.beside[request.subshell] = request
            else:
                self.request = request
            self._violation(f"{type(exc).__name__} over a reply")

    def finish(self, request: InFlight, reply: Any) -> None:
        """End a request with a reply."""
        guest, ran = self.supervisor.guest, isinstance(reply, messages.Done | Refused)
        self._deadlines_of(request).stop()
        request.state = RequestState.done
        if _is_cell(request.message):
            self._cell_ended = self._clock()
        if request.subshell:
            self.beside.pop(request.subshell, None)
        else:
            self.request = None
        others = self._others(request)
        read_bytes = reply.read_bytes if ran else 0
        if others:
            self.usage = self._monitor.taken(request.since, read_bytes)
            self._monitor.go_on(min(one.since for one in others))
        else:
            self.usage = self._monitor.end(read_bytes)
        if isinstance(reply, messages.Done) and reply.compiled and self.on_compiled is not None:
            self.on_compiled(reply.compiled)
        self.tool_calls = self.tools.end(request.subshell)
        if guest is not None and not others:
            guest.throttle(on=True)
        self._relay.say(self._relay_user)
        for one in self.ports.news():
            if one.url:
                said = f"a server of yours is at {one.url} (port {one.number})"
            else:
                said = f"no browser reaches port {one.number}: ports in the policy does not list it"
            self._front.on_notice(f"says: {said}")
        request.done(reply)
        self._relay.account(self._relay_user)
        if self._alone is not None or self._waiting():
            # Not now: what has ended is yet to be recorded, and a snapshot of it to be taken.
            self._look_in(0)

    def continue_from(self, parent: Requests) -> None:
        """Go on numbering, and knowing what cells do again alike, where a fork's parent is."""
        self._last_id, self._repeatable = parent._last_id, copy.deepcopy(parent._repeatable)
        self._relay.leave(self._relay_user)
        self._relay = parent._relay.join(self._relay_user)  # they are in the same network
        self._came = self._relay.came()
        self.ports.leave()
        self.ports = parent.ports.join()
        self._monitor.forks_folders = parent.forks_folders
        self._monitor.forks = parent._monitor.forks
        self._monitor.forks.append(self._monitor)

    @property
    def forks_folders(self) -> set[ForksFolder]:
        """The folders of a sandbox's forks, of which each counts for its fork alone."""
        return self._monitor.forks_folders

    # --- what the supervisor tells ------------------------------------------------------------

    def on_ready(self, report: messages.LockReport) -> str:
        """Let the front judge what a guest's locks achieved."""
        return self._front.on_locks(report)

    def on_served(self) -> None:
        """Send what waits to a guest that has come to serve, which knows of no subshell."""
        self._to_tell = bool(self._subshells)
        if self.request is not None:
            self._send(self.request)
        self._send_what_waits()

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything: no snapshot can be taken."""
        runs = RequestState.sent, RequestState.running
        return any(one.state in runs for one in self.beside.values())

    def idle(self) -> bool:
        """Return whether no request is under way."""
        return not self._all()

    def running(self) -> Any:
        """Return the message that the guest has begun, or None."""
        return next((one.message for one in self._all() if one.began), None)

    def on_stopping(self) -> None:
        """Stop watching: the guest is no more."""
        self._abandoned.clear()
        self._monitor.lost()
        self.tools.drop()
        self._main_waits = False
        for one in self._all():
            self._deadlines_of(one).stop()

    def on_loss(self, stopped: Stopped) -> None:
        """End what was lost with its guest; what never began is sent again."""
        if stopped.why == "fork":
            self._audit.lost(stopped)
            self.used = True
            self._front.on_forked(stopped)
            return
        self.used = self.used and stopped.restored is not None
        request = self.request
        alone, self._alone = self._alone, None
        charged = self._charged() if stopped.of is None else self.beside.get(stopped.of)
        self._audit.lost(stopped, cell=0 if charged is None else charged.number)
        stopped = replace(stopped, of=None)
        with_it = stopped if charged is None else replace(stopped, beside=True)
        told = request is not None
        for one in tuple(self.beside.values()):
            if one.may_be_resent(stopped.why):
                one.resent += one.state is not RequestState.admitted
                one.state = RequestState.admitted
            else:
                told = True
                self.finish(one, stopped if one is charged else with_it)
        if request is not charged:
            stopped = with_it
        if stopped.why == "undo" and request is not None:
            self._front.on_undo(stopped)
            self.finish(request, request.reply)
        elif not told:
            self._front.on_restart(stopped)
        elif request is None:
            pass
        elif request.may_be_resent(stopped.why):
            request.state, request.over, request.made_way = RequestState.admitted, None, False
            request.resent += 1
            self._front.on_restart(stopped)
        else:
            self.finish(request, stopped)
        if request is None:
            self._alone = alone
            self._go_on_alone()

    def on_notice(self, text: str) -> None:
        """Let the front tell the user."""
        self._audit.enter(records.Notice(text=text))
        self._front.on_notice(text)

    def on_failure(self, detail: str) -> None:
        """End the request, and all that come, with the reason why no guest runs."""
        self._audit.enter(records.Failure(detail=records.clipped(detail)))
        self._front.on_failure(detail)
        self.fail(detail)

    def fail(self, detail: str) -> None:
        """End the request, and all that come, with this error."""
        self._failure = detail
        for one in self._all():
            self.finish(one, detail)

    # --- the session --------------------------------------------------------------------------

    def narrow_to(self, settings: SessionSettings) -> None:
        """Enforce what the host does of narrower settings, from the next request on."""
        self._deadlines.timeout = settings.policy.timeout
        self._monitor.narrow_to(settings.policy)
        if settings.tools is not None:
            self.tools.narrow_to(settings.tools, settings.tools_gone)
        self._addresses = settings.addresses
        if self._relay.is_shared:  # then a new guest comes, of another zygote
            self._take_relay()
        self._relay.narrow_to(settings.addresses)
        self._served = settings.served
        if self.ports.is_shared:
            self._take_ports()
        self.ports.narrow_to(*self._served[:2])
        self.used = self.used and settings.step is not NarrowingStep.fresh

    def open_folder(self, path: str) -> int:
        """Open a folder that guests write, wherever it is. Raises OSError, for a link too.

        Under a layer it has what cells wrote there, and nothing else.
        """
        written = self.open_written(path)
        return self.open_as_seen(path) if written is None else written

    def open_written(self, path: str) -> int | None:
        """Open what guests wrote in a folder under a layer; None where none is. Raises OSError."""
        for layer in self._layers:
            if within(path, layer.root):
                return open_unlinked(f"{layer.folder}/{UPPER}{path[len(layer.root) :]}", FOLDER)
        return None

    def open_as_seen(self, path: str) -> int:
        """Open a folder as guests see it. Raises OSError, for a link too.

        Under a layer that is what cells wrote there over what the user has, and nothing denied.
        What is written there is staged: the OS kernel does so for guests and host alike.
        """
        zygote = self.supervisor.zygote
        seen = () if zygote is None else tuple(zygote.seen_folders.items())
        for root, folder in seen:  # any thread may ask
            if within(path, root):
                return open_beneath(folder, path[len(root) :])
        if any(within(path, layer.root) for layer in self._layers):
            raise OSError(errno.EAGAIN, "the interpreter of cells is being started")
        return open_unlinked(path, FOLDER)

    def seen_roots(self) -> tuple[str, ...]:
        """Return the folders that guests see otherwise than the host does."""
        zygote = self.supervisor.zygote
        return () if zygote is None else tuple(zygote.seen_folders)

    def disconnect(self) -> None:
        """End guests' connections and calls, and account for what they asked for."""
        self._addresses, self._served = (), NOT_SERVED
        self._take_relay()
        self._take_ports()
        self.tools.drop()

    def close(self) -> bool:
        """End guest and zygote; return whether they are gone, or still remove their folder."""
        self._monitor.lost()
        if self._monitor in self._monitor.forks:
            self._monitor.forks.remove(self._monitor)
        self.tools.close()
        return self.supervisor.close()


def _is_cell(message: Any) -> bool:
    return isinstance(message, messages.Execute)


def _steps_if_only_undo(message: Any) -> int:
    """Return how many cells a cell undoes that does nothing else; 0 for any other message."""
    found = _UNDO_ALONE.fullmatch(message.raw) if _is_cell(message) else None
    return steps_of_undo(found[1]) if found else 0


def _is_interrupt(error: messages.Error | None) -> bool:
    return error is not None and error.ename == KeyboardInterrupt.__name__


def _links(message: messages.FromGuest) -> bool:
    """Return whether it names something of the front end's: a widget, or a display to update."""
    return isinstance(message, messages.CommOut) or bool(getattr(message, "display_id", None))


def _size_of(message: messages.FromGuest) -> int:
    """Return the bytes of a message that a front end may get to see."""
    match message:
        case messages.Stream(text=text):
            return _bytes_of(text)
        case messages.Display(data=data) | messages.Result(data=data):
            return sum(map(_bytes_of, data.values()))
        case messages.CommOut(content=content, buffers=buffers):
            return _bytes_of(content) + sum(map(len, buffers))
        case messages.Error(traceback=lines):
            return sum(map(_bytes_of, lines))
    return 0


def _bytes_of(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    return len(value) if isinstance(value, bytes) else len(msgspec.msgpack.encode(value))
