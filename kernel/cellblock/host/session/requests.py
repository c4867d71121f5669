"""A session's requests: each is sent to the guest, watched, and answered exactly once.

``Session`` submits requests, the supervisor reports the guest's messages and its loss, and a front
is told what to show. The main shell has at most one request at a time, and so has each subshell.
This module owns the requests under way and what they are measured by (deadlines, the monitor, tool
calls, connections). Which process is the guest is decided elsewhere (``host.state.core``).

The life of a request::

    admitted ──> sent ──> running ──> ending ──> done
        ^          │         │                    ^
        └──────────┘         └────────────────────┘
     its guest was lost     its guest was lost, or
     before it began        a query took too long

``admitted``
    The request may run, but has not been sent: a guest is being started or restored, or has not
    yet read what it was sent before. The first cell after a pause also waits until the layers show
    what the user changed meanwhile. A subshell's request also waits while a snapshot is forked, and
    while an undo, restore or narrowing has the guest to itself.
``sent``
    The request was written to the guest's channel. A guest that never takes it up is killed.
``running``
    The guest reported ``Began`` (a query is answered without it). From here on the request is
    never sent again, because the guest may have done part of it.
``ending``
    The guest reported ``Done``. The answer waits for a snapshot, or for cells to be undone.
``done``
    The request was answered.

A guest is not trusted to keep this order. A message that does not fit ends the guest
(``check_began``, ``check_question``, ``check_reply``).
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


#: Seconds within which a second interrupt counts as the first key press, repeated.
REPEAT: Final = 0.5
#: Questions that a cell may put to the user while none is answered. An honest cell may put more
#: than one: after a question was interrupted, the cell may put it again.
MAX_QUESTIONS: Final = 1_000

#: Shown once, before the first cell that can't see what the user changed.
_STALE_NOTICE: Final = (
    "can't be sure that cells see files that you change from now on ({}). Restart the kernel"
)
#: Matches a cell that is ``%undo`` and nothing else. Group 1 is the argument of ``%undo``.
_UNDO_ALONE: Final = re.compile(r"\s*+%undo((?:[ \t#][^\n]*+)?+)\s*+")
#: Requests that run a cell's code or change variables. All others are queries.
_CELL_CODE = messages.Execute | messages.CommIn | messages.SetVariables
#: The type of the guest's answer to each type of request.
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
    """How far a request is. The module's docstring explains the states."""

    admitted = 0
    sent = 1
    running = 2
    ending = 3
    done = 4


class InFlight:
    """A request under way: the message for the guest, the callback for its answer, its state.

    ``seconds`` is the request's own timeout, or None if only the policy's applies.
    """

    def __init__(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        self.message = message
        self.done = done
        self.seconds = seconds
        #: The subshell that the request is for; 0 is the main shell.
        self.subshell: int = getattr(message, "subshell", 0)
        #: The number of the request's cell in the audit log; 0 means the cell decided about last.
        self.number = 0
        #: Whether the layers were refreshed for this cell, or a refresh was tried and failed.
        self.refreshed = False
        #: Whether another request ran at the same time: what each of them did can't be told apart.
        self.overlapped = False
        #: Clock and counters when the request came; from when it was sent, at that moment.
        self.since = Mark(0.0, 0.0, 0)
        self.state = RequestState.admitted
        self.began_at = 0.0
        #: Whether the guest has read the request: its channel was seen empty after it was sent.
        self.read = False
        #: Whether the guest reported that it read the request, but is busy with something else.
        self.acknowledged = False
        #: Whether the cell awaits.
        self.awaits = False
        #: Whether the request called a tool or may have used a connection. It must not run twice.
        self.called = False
        #: Whether it asked the user, or showed an object that a page refers to by its id: a widget
        #: or a display. A second run would ask again, and show an object with another id.
        self.linked = False
        #: How many cells the request asked to undo.
        self.undo_steps = 0
        #: The checkpoint, restore or branch that the request asked for.
        self.checkpoint: messages.Checkpoint | messages.Branch | None = None
        #: The guest's reply while the request waits for an undo, a checkpoint or a branch.
        self.reply: Any = None
        #: How often the request was sent again because a guest was lost before it began.
        self.resent = 0
        #: The limit that the request was interrupted for.
        self.over: Why | None = None
        #: The deadlines of a subshell's request; None for the main shell's.
        self.deadlines: Deadlines[InFlight] | None = None
        self.interrupted_at: float | None = None
        #: The user interrupted the request while it still waited, so the guest was interrupted to
        #: end the task that was in its way.
        self.made_way = False
        #: Questions that the request put to the user since the last answer.
        self.questions = 0

    @property
    def began(self) -> bool:
        """Whether the guest has taken the request up."""
        return self.state >= RequestState.running

    @property
    def runs_code(self) -> bool:
        """Whether the request runs a cell's code; a query does not."""
        return isinstance(self.message, _CELL_CODE)

    def may_be_resent(self, lost: Why) -> bool:
        """Return whether the request may go to another guest, now that its guest was ``lost``.

        A request that may itself have ended its guest is sent again at most once. A cell that had
        not begun is not to blame for a violation: its guest, and each copy of that guest, breaks
        the protocol by itself. A query may be to blame, because guests begin it without reporting
        ``Began``.
        """
        most_resends = MAX_LOSSES + 1 if self.runs_code and lost == "violation" else 1
        return not self.began and self.interrupted_at is None and self.resent < most_resends

    def stopped(self, why: Why, end: messages.Done | None = None) -> Stopped:
        """Return the outcome of a request that exceeded a limit.

        ``end`` is the guest's report of its end; without it the guest was killed. An error in it
        is kept only if it is the interrupt itself, whose traceback shows where the cell was.
        """
        seconds = self.seconds if why == "timeout" else None
        error = None if end is None or not _is_interrupt(end.error) else end.error
        return Stopped(why, kept=end is not None, seconds=seconds, error=error)


class PolicyChange(Struct, frozen=True):
    """A narrower policy that waits for a guest. It takes the place of a request's message.

    ``serve`` is called with each guest that could take the policy. When the policy is in force the
    request ends with None, or with the ``Stopped`` of a guest that was replaced. The id is one that
    no request to a guest has, so no guest can answer it.
    """

    id: ClassVar[int] = -1

    serve: Callable[[InFlight, Guest], None]


class PolicyUnchanged(Struct, frozen=True):
    """The answer to a ``PolicyChange`` that could not be put in force. Nothing has changed."""

    why: str


# --- what a guest may say when ------------------------------------------------------------------
#
# Each check returns how a message breaks the protocol, or an empty string. The code of an honest
# guest keeps the protocol, whatever a cell does within the language. Whoever breaks it has taken
# over the process, so the guest is ended.


def check_began(message: messages.Began, request: InFlight | None, unread: int) -> str:
    """Check a guest's claim that it began a request.

    ``unread`` is the number of bytes in the channel that the guest has not read; 0 if it is known
    to have read the request.
    """
    if request is None or message.id != request.message.id or request.began:
        return "it claims to have begun what it was not told to"
    if _ANSWERS[type(request.message)] is not messages.Done:
        return "it claims to have begun a query"
    if unread:
        # If the host believed this, an interrupt could no longer end a guest that never takes the
        # request up.
        return "it claims to have begun what it has not read"
    return ""


def check_question(message: messages.InputRequest, request: InFlight | None) -> str:
    """Check a question that a cell puts to the user (``input``)."""
    if request is None or message.id != request.message.id or not request.began:
        return "a question of no cell"
    if not isinstance(request.message, messages.Execute) or not request.message.allow_stdin:
        return "a question where none may be asked"
    if request.questions > MAX_QUESTIONS:
        return "a storm of questions"
    return ""


def check_reply(message: Any, request: InFlight | None) -> str:
    """Check a guest's answer to a request."""
    if request is None or message.id != request.message.id or request.state is RequestState.ending:
        return "a reply to no request"
    if type(message) is not _ANSWERS[type(request.message)]:
        return "a reply of another kind"
    if isinstance(message, messages.Done) and not request.began:
        return "an end without a beginning"
    if isinstance(message, messages.Done) and message.value != messages.NOTHING:
        return "" if getattr(request.message, "value", False) is True else "a value unasked for"
    return ""


#: Seconds between checks of the zygote while a request is under way. A guest waits for the zygote
#: at each fork and signal, so a cell would wait for ever on a zygote that hangs.
CHECK: Final = 5.0
#: Seconds between looks at whether the guest has read its channel, while something waits for that.
LOOK: Final = 0.002


class Requests:
    """The requests under way: at most one per shell, over guests that come and go.

    The supervisor provides the guests, and reports their messages and their loss (``Owner`` in
    ``host.guests.supervisor``).
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
        self._front = front
        self._audit = audit
        self._approver = approver
        self._clock = clock
        self._addresses = settings.addresses
        self._reactor = reactor
        self._relay_user = RelayUser(self._audit.connected, self.on_notice)
        self._relay = self._make_relay()
        #: What ``Relay.came`` returned last: another number means that guests connected since.
        self._connections_seen = 0
        self._served = settings.served
        self.ports = self._make_ports()
        policy = settings.policy
        prepare = settings.prepare
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
            approver.on_waiting(self._on_approval_waiting)
        #: The main shell's request under way, and the subshells' requests by subshell.
        self.request: InFlight | None = None
        self.beside: dict[int, InFlight] = {}
        #: The subshells that exist, and whether the guest must still be told about them.
        self._subshells: tuple[int, ...] = ()
        self._subshells_unsent = False
        #: Whether the main shell's request waits until the guest has read its channel, and whether
        #: a timer will call ``_look`` to try again.
        self._main_waiting = self._look_scheduled = False
        #: Whether a timer will call ``_check``.
        self._check_scheduled = False
        #: An action that needs the guest to itself and waits until no subshell runs anything, and
        #: the callback for the case that the user interrupts the wait.
        self._exclusive: tuple[Callable[[], None], Callable[[], None]] | None = None
        #: What the request that ended last used, and its tool calls.
        self.usage: Usage | None = None
        self.tool_calls = CellCalls()
        #: Called with the source files that a guest had to compile.
        self.on_compiled: Callable[[Sequence[str]], None] | None = None
        #: Set for a fork whose folder lies in its parent's: called when that folder is too full
        #: for any cell to run.
        self.on_folder_lost: Callable[[], None] | None = None
        #: Whether the guest, or a guest that it is a copy of, has run anything.
        self.used = False
        self._last_id = 0
        #: When a cell ended last, and whether the user was told that the layers are stale.
        self._cell_ended = -messages.PAUSE
        self._stale_notice_shown = False
        #: Ids of queries that were answered with nothing because the guest took too long. Its late
        #: answers to them are no breach of the protocol.
        self._abandoned: set[int] = set()
        self._repeatable = RepeatableCells()
        #: Why no guest can be started any more, or None.
        self._failure: str | None = None

    # --- sending ------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return the id for a new request."""
        self._last_id += 1
        return self._last_id

    def prepare_guest(self) -> None:
        """Start a guest, unless there is one, or it is not known yet which tools cells have."""
        if not self.tools.awaited:
            self.supervisor.ensure()

    def submit(
        self,
        message: Any,
        done: Callable[[Any], None],
        seconds: float | None = None,
        number: int = 0,
    ) -> None:
        """Send a message to a guest; ``done`` is called with its reply, or why there is none.

        ``seconds`` is the request's own timeout. ``number`` is the number of its cell in the audit
        log. Raises RuntimeError if the shell has a request already.
        """
        request = InFlight(message, done, seconds)
        request.number = number
        request.since = self._monitor.mark()
        if self._request_of(request.subshell) is not None:
            raise RuntimeError("one request at a time")
        self.supervisor.begin(message)
        if request.subshell:
            self._submit_to_subshell(request)
            return
        steps = _steps_if_only_undo(message)
        guest = self.supervisor.guest
        if not steps or guest is None:
            self.prepare_guest()
        self.request = request
        if self._failure is not None:
            self.finish(request, self._failure)
        elif steps and guest is not None:
            # The host undoes cells without the guest, which may no longer listen. So this does not
            # call ``prepare_guest``, which would put off the snapshot that is due.
            request.state = RequestState.running
            request.began_at = self._clock()
            if not self._running_beside(request):
                self._monitor.begin(guest.pid)
            request.undo_steps = steps
            self._undo_when_alone(request, messages.Done(id=message.id))
        else:
            self._send(request)

    def _submit_to_subshell(self, request: InFlight) -> None:
        """Queue a subshell's request. It is sent when nothing has the guest to itself."""
        self.prepare_guest()
        self.beside[request.subshell] = request
        request.deadlines = self._new_deadlines()
        if self._failure is not None:
            self.finish(request, self._failure)
        else:
            self._send_waiting()

    def _new_deadlines(self) -> Deadlines[InFlight]:
        """Return deadlines for a subshell's request, which is killed instead of interrupted."""
        deadlines = Deadlines(
            self._reactor,
            self._clock,
            self.supervisor,
            self._front.stop_holding,
            self._abandon,
            interrupts=False,
        )
        deadlines.timeout = self._deadlines.timeout
        return deadlines

    def _deadlines_of(self, request: InFlight) -> Deadlines[InFlight]:
        return request.deadlines or self._deadlines

    def _send(self, request: InFlight) -> None:
        """Send the main shell's request as soon as the guest has read what it was sent before."""
        guest = self.supervisor.guest
        self.tools.catch_up()
        if guest is None or guest.closed:
            return  # the next guest gets the request (``on_served``)
        if self._subshells_unsent or not self.is_read():
            self._main_waiting = True
            self._send_waiting()
            return
        guest.throttle(on=False)
        if isinstance(request.message, PolicyChange):
            request.message.serve(request, guest)
        elif self._must_refresh(request):
            self.supervisor.refresh(partial(self._on_refreshed, request))
        else:
            self._send_to(guest, request)

    def _must_refresh(self, request: InFlight) -> bool:
        """Return whether layers could hide from this cell what the user changed before it.

        Only a cell that comes ``PAUSE`` or more after the last one is worth a refresh.
        """
        if not self._layers or request.refreshed or not _is_cell(request.message):
            return False
        return self._clock() - self._cell_ended >= messages.PAUSE

    def _on_refreshed(self, request: InFlight, failure: str) -> None:
        """Send a cell that waited for layers. ``failure`` says why they were not refreshed."""
        request.refreshed = True
        if failure and not self._stale_notice_shown:
            self._stale_notice_shown = True
            self.on_notice(_STALE_NOTICE.format(failure))
        if self.request is request and request.state is RequestState.admitted:
            self._send(request)

    def _send_to(self, guest: Guest, request: InFlight) -> None:
        """Write a request to the guest's channel, and start its deadlines and measurements."""
        guest.throttle(on=False)
        request.state = RequestState.sent
        self._check_later()
        request.read = request.acknowledged = False
        for overlapping in (running := self._running_beside(request)):
            overlapping.overlapped = request.overlapped = True
        self._deadlines_of(request).sent(request)
        self.tools.begin(request.subshell, request.number)
        if not running:
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
        except Exception as exc:  # for example a comm message that is nested too deeply
            self.finish(request, f"it can't be sent: {type(exc).__name__}")

    def _check_later(self) -> None:
        if not self._check_scheduled:
            self._check_scheduled = True
            self._reactor.call_later(CHECK, self._check)

    def _check(self) -> None:
        """Check that the zygote answers, and check again later while requests are under way."""
        self._check_scheduled = False
        if self._in_flight():
            self.supervisor.check_zygote()
            self._check_later()

    # --- subshells beside the main shell ----------------------------------------------------------

    def have_subshells(self, numbers: tuple[int, ...]) -> None:
        """Set which subshells exist, in this guest and in each that comes after it."""
        self._subshells = numbers
        self._subshells_unsent = True
        self._send_waiting()

    def when_alone(self, action: Callable[[], None], interrupted: Callable[[], None]) -> None:
        """Call ``action`` when no subshell runs anything, or ``interrupted`` after an interrupt.

        Until then, and while the main shell's request replaces the guest, no subshell begins
        anything (``_is_reserved``).
        """
        if self._running_beside(None):
            self._exclusive = action, interrupted
        else:
            action()

    def _run_exclusive(self) -> None:
        """Run the action that waits for the guest to be alone, if no subshell runs anything."""
        if self._exclusive is not None and not self._running_beside(None):
            (action, _), self._exclusive = self._exclusive, None
            action()

    def _is_reserved(self) -> bool:
        """Return whether subshells must wait, because the guest is copied or replaced just now.

        A copy forked while a subshell runs would hold half of what the subshell did, and a guest
        that is replaced takes the subshell's work with it.
        """
        request = self.request
        if self._exclusive is not None or self.supervisor.snapshots.is_forking():
            return True
        if request is None:
            return False
        undoes = request.undo_steps > 0 or request.checkpoint is not None
        return (undoes and request.state is RequestState.ending) or isinstance(
            request.message, PolicyChange
        )

    def _send_waiting(self) -> None:
        """Send one thing that waits, if the guest has read its channel; look again for the rest.

        One at a time, in this order: the list of subshells, the main shell's request, then the
        subshells' requests. With more in the channel at once, ``is_read`` could not say which of
        them the guest has read.
        """
        guest = self.supervisor.guest
        if guest is None or guest.closed:
            return
        if self.is_read():
            if self._subshells_unsent and not self.supervisor.snapshots.is_forking():
                self._subshells_unsent = False
                self._send_subshells(guest)
            elif self._main_waiting and not self._subshells_unsent:
                self._main_waiting = False
                if (request := self.request) is not None:
                    self._send(request)
            elif not self._is_reserved() and (waiting := self._waiting()):
                self._send_to(guest, waiting[0])
        if self._subshells_unsent or self._main_waiting or self._waiting():
            soon = self.supervisor.snapshots.is_forking() or not self.is_read()
            self._schedule_look(LOOK if soon else 10 * LOOK)

    def _schedule_look(self, seconds: float) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            self._reactor.call_later(seconds, self._look)

    def _look(self) -> None:
        """Try again to run or send what waits. Called by the timer of ``_schedule_look``."""
        self._look_scheduled = False
        self._run_exclusive()
        self._send_waiting()

    def _waiting(self) -> list[InFlight]:
        """Return the subshells' requests that were not sent yet."""
        return [
            request for request in self.beside.values() if request.state is RequestState.admitted
        ]

    def _send_subshells(self, guest: Guest) -> None:
        """Tell the guest which subshells exist. SIGURG makes it read that while a cell runs."""
        try:
            guest.send(messages.Subshells(numbers=self._subshells))
        except CellblockError as exc:
            self._violation(str(exc))
            return
        if self.request is not None:
            guest.signal(signal.SIGURG)

    def is_read(self) -> bool:
        """Return whether the guest has read everything that it was sent.

        If so, marks the requests as read. The host sees that a request was not read by the unread
        bytes in the guest's socket. So nothing may be sent after a request before this returns
        True: the host could not tell which of the two messages is unread.
        """
        guest = self.supervisor.guest
        unread = [
            request
            for request in self._in_flight()
            if request.state is RequestState.sent and not request.read
        ]
        if not unread or guest is None:
            return True
        if guest.unread():
            return False
        for request in unread:
            request.read = True
        return True

    def _in_flight(self) -> list[InFlight]:
        """Return the requests under way: the main shell's, then the subshells', oldest first."""
        return [*filter(None, [self.request]), *self.beside.values()]

    def _request_of(self, subshell: int) -> InFlight | None:
        """Return the request under way in a shell, or None."""
        return self.beside.get(subshell) if subshell else self.request

    def _find(self, number: int) -> InFlight | None:
        """Return the request under way whose id is ``number``, or None."""
        return next(
            (request for request in self._in_flight() if request.message.id == number), None
        )

    def _running_beside(self, request: InFlight | None) -> list[InFlight]:
        """Return the requests that the guest has beside ``request``.

        For None, return those of subshells that were sent and have not been answered.
        """
        if request is None:
            return [
                request_beside
                for request_beside in self.beside.values()
                if request_beside.state is not RequestState.admitted
            ]
        runs = RequestState.sent, RequestState.running
        return [
            request_beside
            for request_beside in self._in_flight()
            if request_beside is not request and request_beside.state in runs
        ]

    def _charged(self) -> InFlight | None:
        """Return the request that a lost guest is put down to: the main shell's, or the oldest."""
        return next((request for request in self._in_flight() if request.runs_code), None)

    # --- while a request is under way ---------------------------------------------------------

    def on_message(self, message: messages.FromGuest) -> None:
        """Act on a guest's message. Called by the supervisor."""
        match message:
            case messages.Began():
                self._on_began(message)
            case messages.Awaits() | messages.Queued():
                self._on_progress(message)
            case messages.InputRequest():
                self._on_question(message)
            case messages.Undo() | messages.Checkpoint() | messages.Branch():
                self._on_state_magic(message)
            case messages.ToolCall(subshell=subshell):
                self.tools.handle(message, self._request_of(subshell) or self.request)
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
        """Note that the guest has begun a request, which is never sent again from now on."""
        request = self._find(message.id)
        guest = self.supervisor.guest
        was_read = guest is None or (request is not None and request.read)
        breach = check_began(message, request, 0 if was_read or guest is None else guest.unread())
        if breach or request is None:
            self._violation(breach)
            return
        request.state = RequestState.running
        request.began_at = self._clock()
        self.used = True
        # If the user interrupted the request before it began, interrupt it now. But do not if an
        # interrupt that was sent to make way for it has yet to arrive: that will hit the request.
        if request.interrupted_at is not None and (message.interrupted or not request.made_way):
            self.supervisor.interrupt()

    def _on_progress(self, message: messages.Awaits | messages.Queued) -> None:
        """Note that the guest has read a request and is busy, or that the main cell awaits."""
        request = self._find(message.id)
        if request is not None and isinstance(message, messages.Queued):
            request.acknowledged = True
        elif request is not None and request is self.request:
            request.awaits = request.began
            self._front.on_awaits()

    def _on_state_magic(
        self, message: messages.Undo | messages.Checkpoint | messages.Branch
    ) -> None:
        """Note that the main shell's cell asks for an undo, checkpoint, restore or branch.

        The request is carried out when the cell ends (``_run_state_magic``). Comm handlers and
        threads may send these messages, too, and are ignored.
        """
        request = self.request
        if request is None or not request.began or not _is_cell(request.message):
            return
        if isinstance(message, messages.Undo):
            request.undo_steps = message.steps
        else:
            request.checkpoint = message

    def on_text(self, text: messages.Stream) -> None:
        """Show text that cells and the programs they started wrote. Called by the supervisor."""
        self._show(text)

    def _show(self, message: messages.FromGuest) -> None:
        """Count a guest's output, and pass it on to the front."""
        if (subshell := getattr(message, "subshell", 0)) and subshell not in self.beside:
            # That subshell runs nothing: show the output as the main shell's.
            message = msgspec.structs.replace(message, subshell=0)
        self._monitor.output_bytes += _size_of(message)
        if isinstance(message, messages.Error) and self._ends_at_limit(message):
            return
        if _links_to_page(message):
            for request in self._in_flight():
                request.linked = True
        self._front.on_output(message)

    def _ends_at_limit(self, error: messages.Error) -> bool:
        """Return whether an error is the interrupt of a cell that exceeded a limit.

        Such an error is not shown: the card of the request's ``Stopped`` has it.
        """
        request = self._request_of(error.subshell)
        return request is not None and request.over is not None and _is_interrupt(error)

    def on_excess(self, why: Excess, urgent: bool) -> None:
        """Act on a limit that is exceeded. Called by the monitor.

        If it is ``urgent`` the guest is killed. Otherwise the request is interrupted first.
        Queries are never interrupted here: they have deadlines of their own.
        """
        if self._failure is not None:
            return  # nothing runs
        if self.on_folder_lost is not None and self._monitor.is_past_forgiving:
            self.on_folder_lost()
            return
        running = [
            request
            for request in self._in_flight()
            if request.runs_code and request.state > RequestState.admitted
        ]
        if urgent:
            detail = ""
            if why == "memory" and self._monitor.is_estimate:
                detail = ESTIMATED
            elif why == "memory" and self._monitor.is_charged:
                detail = CHARGED
            self.supervisor.replace(Stopped(why, detail))
        elif running:
            # What concurrent requests use can't be told apart. It is counted from when the first
            # of them began, and charged to that request.
            earliest = min(running, key=lambda request: request.since)
            if earliest.state is not RequestState.ending:
                self._deadlines_of(earliest).over(earliest, why)

    def _abandon(self, request: InFlight) -> None:
        """Answer a query that takes too long with None. Called by its deadlines.

        The guest lives on, and may still send its answer, which is then ignored.
        """
        self.supervisor.interrupt()
        self._abandoned.add(request.message.id)
        self.finish(request, None)

    def _violation(self, problem: str) -> None:
        """End the guest because it broke the protocol; ``problem`` says how."""
        self.supervisor.replace(Stopped("violation", f"protocol violation: {problem}"))

    # --- the user: questions and interrupts ---------------------------------------------------

    def _on_question(self, message: messages.InputRequest) -> None:
        """Put a cell's question to the user; the cell's timeout stands still until the answer."""
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
        """Send what the user typed to the running cell; ``eof`` if there is nobody to ask."""
        request = self.request
        guest = self.supervisor.guest
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
        """Whether the host itself waits for the user's answer: an approval, not ``input``."""
        return self._approver is not None and self._approver.asks

    def _on_approval_waiting(self, waiting: bool) -> None:
        """Stop the cell's timeout while an approval waits for the user. Called by the approver."""
        request = self.request
        if request is not None and waiting:
            self._deadlines.pause()
        elif (
            request is not None
            and not request.questions
            and request.state is not RequestState.ending
        ):
            self._deadlines.resume(request)

    def interrupt(self) -> None:
        """Interrupt whatever runs. Kill a cell that goes on after an earlier interrupt.

        An interrupt within ``REPEAT`` seconds of the first counts as the same one.
        """
        self._front.stop_holding()
        if self._exclusive is not None:
            (_, interrupted), self._exclusive = self._exclusive, None
            interrupted()
            return
        request = self.request
        host_asks = self._host_asks
        if request is None:
            self._refuse_consent()
            # If the host asks, the interrupt was meant for a cell that was not sent yet.
            if not host_asks:
                self.supervisor.interrupt()
            self._interrupt_beside()
        elif request.interrupted_at is None:
            request.interrupted_at = self._clock()
            # Interrupt the cell first, then refuse its calls. In the other order the cell would see
            # the refusal, go on, and be interrupted while it handles the refusal.
            self._deadlines.interrupted(request)
            self._refuse_consent()
        elif self._clock() - request.interrupted_at > REPEAT:
            self._refuse_consent()
            self.supervisor.replace(Stopped("interrupt"))

    def _interrupt_beside(self) -> None:
        """Kill what subshells run if the user interrupts twice while the main shell runs nothing.

        What runs in a subshell can't be interrupted, so the first interrupt is only noted.
        """
        began = [request for request in self.beside.values() if request.began]
        if began and (interrupted_at := began[0].interrupted_at) is not None:
            if self._clock() - interrupted_at > REPEAT:
                self.supervisor.replace(Stopped("interrupt", of=began[0].subshell))
            return
        for request in began:
            request.interrupted_at = self._clock()

    def _refuse_consent(self) -> None:
        """Refuse the approval that the cell waits for, and all that it asks for from now on."""
        if self._approver is not None:
            self._approver.interrupt()

    # --- the end of a request -----------------------------------------------------------------

    def _on_reply(self, message: Any) -> None:
        """Act on a reply: answer the query, or record what the cell did and answer the cell."""
        if message.id in self._abandoned:
            self._abandoned.discard(message.id)
            return
        request = self._find(message.id)
        guest = self.supervisor.guest
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
            self._approver.end()  # now, because the answer may have to wait for a snapshot
        if self._has_connected():
            for in_flight in self._in_flight():
                in_flight.called = True
        failed = message.error is not None
        if request.over is not None and (failed or not request.undo_steps):
            self._record_and_answer(request, request.stopped(request.over, message))
        elif failed or not self._run_state_magic(request, message):
            self._record_and_answer(request, message)

    def _make_relay(self) -> Relay:
        return Relay(self._reactor, self._addresses, self._relay_user)

    def _replace_relay(self) -> None:
        """Switch to a new relay, and leave the shared one to the sandbox and its forks."""
        self._relay.leave(self._relay_user)
        self._relay = self._make_relay()
        self._connections_seen = 0

    def _make_ports(self) -> Ports:
        return Ports(self._reactor, *self._served, self.on_notice)

    def _replace_ports(self) -> None:
        """Switch to new ports, and leave the shared ones to the sandbox and its forks."""
        self.ports.leave()
        self.ports = self._make_ports()

    def open_ports(self) -> tuple[PortState, ...]:
        """Return the ports that are open to the user, and whether a server listens at each."""
        return self.ports.state()

    def _on_network(self, listeners: Mapping[messages.Neighbour, int], network: int | None) -> None:
        """Connect a zygote's guests to the listed hosts, and the user to the guests' ports.

        Called by the supervisor when a guest is ready. ``listeners`` are the sockets at which
        connections to listed hosts arrive; ``network`` is a descriptor of the guests' network, or
        None if the host has no way into it.
        """
        if self.ports.is_shared and not self.ports.serves(network):
            self._replace_ports()
        self.ports.serve(network)
        if self._relay.is_shared and not self._relay.serves(listeners):
            self._replace_relay()
        self._relay.serve(listeners)

    def _has_connected(self) -> bool:
        """Return whether the guest had a connection to a listed host since the request began.

        A connection that was open before counts too.
        """
        before = self._connections_seen
        self._connections_seen = self._relay.came()
        if not self._relay.has_hosts:
            return False
        return self._connections_seen != before or self.supervisor.snapshots.chain.had_connections()

    def _run_state_magic(self, request: InFlight, reply: messages.Done) -> bool:
        """Carry out the undo, checkpoint, restore or branch that a cell asked for.

        Return False if the cell asked for none of these; otherwise the request is answered later.
        """
        if request.undo_steps:
            self._undo_when_alone(request, reply)
        elif isinstance(request.checkpoint, messages.Branch):
            self._do_branch(request, request.checkpoint, reply)
        elif request.checkpoint is not None:
            self._do_checkpoint(request, request.checkpoint, reply)
        else:
            return False
        return True

    def _record_and_answer(self, request: InFlight, reply: Any) -> None:
        """Record a request that may have changed the guest's state, and answer it.

        ``Core.cell_ended`` decides whether a snapshot is taken, and whether the answer waits for
        it.
        """
        ended_at = self._clock()
        message = request.message
        seconds = ended_at - request.began_at
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
            if self._request_of(request.subshell) is request:
                self._answer(request, reply)

        # A request that ran beside another is not run again: alone it could come out differently.
        must_not_rerun = request.called or request.overlapped
        past_request = PastRequest(
            message,
            seconds,
            repeatable=repeatable,
            ended=ended_at,
            side_effects=must_not_rerun,
            is_unparsed=isinstance(message, messages.Execute)
            and isinstance(reply, messages.Done)
            and reply.error is not None  # a cell without an error was Python; don't parse it
            and not is_python(message.raw),
        )
        self.supervisor.ran(past_request, answer, alone=not self._running_beside(request))

    def _undo_when_alone(self, request: InFlight, reply: messages.Done) -> None:
        """Undo cells as soon as no subshell runs anything."""

        def interrupted() -> None:
            self._refuse_undo(request, reply, "it waited for subshells, and was interrupted")

        request.state = RequestState.ending
        request.reply = reply
        self.when_alone(lambda: self._undo(request, reply), interrupted)

    def _undo(self, request: InFlight, reply: messages.Done) -> None:
        """Undo cells, or refuse. The supervisor reports the undo itself by ``on_loss``."""
        steps = request.undo_steps
        possible = self.supervisor.undo(steps)
        if possible < steps:
            last = "cell" if possible == 1 else f"{possible} cells"
            detail = (
                f"only the last {last} can be undone" if possible else "there is nothing to undo"
            )
            if why := self.supervisor.snapshots.why_no_copy():
                detail += f": {why}"
            self._refuse_undo(request, reply, detail)

    def _refuse_undo(self, request: InFlight, reply: messages.Done, why: str) -> None:
        """Answer a cell's ``%undo`` with the reason why it is refused."""
        refused = Refused(f"%undo {request.undo_steps}: {why}", reply.read_bytes)
        if _steps_if_only_undo(request.message):
            self._answer(request, refused)  # the cell changed nothing that a snapshot would keep
        else:
            self._record_and_answer(request, refused)

    def _do_checkpoint(
        self, request: InFlight, message: messages.Checkpoint, reply: messages.Done
    ) -> None:
        """Keep the state as a checkpoint, or restore one, as soon as no subshell runs anything."""
        magic = f"%{'restore' if message.restores else 'checkpoint'} {message.name}"

        def on_result(refusal: str) -> None:
            if self.request is request:
                refused = Refused(f"{magic}: {refusal}", reply.read_bytes)
                self._record_and_answer(request, refused if refusal else reply)

        def carry_out() -> None:
            if message.restores:
                self.supervisor.snapshots.restore(message.name, on_result)
            else:
                number = request.message.execution_count
                self.supervisor.snapshots.checkpoint(message.name, on_result, number)

        request.state = RequestState.ending
        request.reply = reply
        self.when_alone(
            carry_out, lambda: on_result("it waited for subshells, and was interrupted")
        )

    def _do_branch(self, request: InFlight, message: messages.Branch, reply: messages.Done) -> None:
        """Go to a branch, drop one or list them, as soon as no subshell runs anything."""
        snapshots = self.supervisor.snapshots
        name = message.name
        start = message.start or ""
        magic = " ".join(filter(None, ("%branch", "-d" * message.drops, name, start)))

        def on_result(refusal: str) -> None:
            if self.request is request:
                if not refusal:  # a state that is restored comes by ``on_loss`` instead
                    begins = name is not None and not message.drops
                    self._front.on_branches(snapshots.listing(begins=begins))
                refused = Refused(f"{magic}: {refusal}", reply.read_bytes)
                self._record_and_answer(request, refused if refusal else reply)

        def carry_out() -> None:
            if name is None:
                on_result("")
            elif message.drops:
                on_result(snapshots.drop_name(name))
            else:
                snapshots.go_to_branch(name, start, on_result)

        request.state = RequestState.ending
        request.reply = reply
        self.when_alone(
            carry_out, lambda: on_result("it waited for subshells, and was interrupted")
        )

    def _answer(self, request: InFlight, reply: Any) -> None:
        """End a request with its guest's reply. A reply that can't be shown ends the guest."""
        try:
            self.finish(request, reply)
        except Exception as exc:  # the guest chose the reply's content, so anything may be raised
            traceback.print_exc()
            # Put the request back as running: then the loss of the guest answers it.
            request.state = RequestState.running
            if request.subshell:
                self.beside[request.subshell] = request
            else:
                self.request = request
            self._violation(f"{type(exc).__name__} over a reply")

    def finish(self, request: InFlight, reply: Any) -> None:
        """End a request: stop its deadlines, account for what it used, and answer it.

        ``reply`` is the guest's message, or why there is none: ``Stopped``, ``Refused`` or the text
        of an error.
        """
        guest = self.supervisor.guest
        ran = isinstance(reply, messages.Done | Refused)
        self._deadlines_of(request).stop()
        request.state = RequestState.done
        if _is_cell(request.message):
            self._cell_ended = self._clock()
        if request.subshell:
            self.beside.pop(request.subshell, None)
        else:
            self.request = None
        running = self._running_beside(request)
        read_bytes = reply.read_bytes if ran else 0
        if running:
            self.usage = self._monitor.usage_since(request.since, read_bytes)
            self._monitor.go_on(min(running_request.since for running_request in running))
        else:
            self.usage = self._monitor.end(read_bytes)
        if isinstance(reply, messages.Done) and reply.compiled and self.on_compiled is not None:
            self.on_compiled(reply.compiled)
        self.tool_calls = self.tools.end(request.subshell)
        if guest is not None and not running:
            guest.throttle(on=True)
        self._relay.say(self._relay_user)
        for port in self.ports.news():
            if port.url:
                notice = f"a server of yours is at {port.url} (port {port.number})"
            else:
                notice = (
                    f"no browser reaches port {port.number}: ports in the policy does not list it"
                )
            self._front.on_notice(f"says: {notice}")
        request.done(reply)
        self._relay.account(self._relay_user)
        if self._exclusive is not None or self._waiting():
            # Not at once: the caller has yet to record the request and to have a snapshot taken.
            self._schedule_look(0)

    def continue_from(self, parent: Requests) -> None:
        """Take over a parent's state in a fork of its session.

        The fork goes on with the parent's request ids and its knowledge of repeatable cells. It
        shares the parent's relay and ports, because its guest is in the same network, and joins the
        monitors of the sandbox's forks.
        """
        self._last_id = parent._last_id
        self._repeatable = copy.deepcopy(parent._repeatable)
        self._relay.leave(self._relay_user)
        self._relay = parent._relay.join(self._relay_user)
        self._connections_seen = self._relay.came()
        self.ports.leave()
        self.ports = parent.ports.join()
        self._monitor.forks_folders = parent.forks_folders
        self._monitor.forks = parent._monitor.forks
        self._monitor.forks.append(self._monitor)

    @property
    def forks_folders(self) -> set[ForksFolder]:
        """The folders of a sandbox's forks. Each counts towards its own fork's limit only."""
        return self._monitor.forks_folders

    # --- called by the supervisor -------------------------------------------------------------

    def on_ready(self, report: messages.LockReport) -> str:
        """Let the front judge a guest's locks; return why nothing may run in it, or nothing."""
        return self._front.on_locks(report)

    def on_served(self) -> None:
        """Send what waits to a guest that begins to serve, and knows of no subshell."""
        self._subshells_unsent = bool(self._subshells)
        if self.request is not None:
            self._send(self.request)
        self._send_waiting()

    def runs_beside(self) -> bool:
        """Return whether a subshell runs anything. If so, no snapshot can be taken."""
        runs = RequestState.sent, RequestState.running
        return any(request.state in runs for request in self.beside.values())

    def idle(self) -> bool:
        """Return whether no request is under way."""
        return not self._in_flight()

    def running(self) -> Any:
        """Return the message of the oldest request that the guest has begun, or None."""
        return next((request.message for request in self._in_flight() if request.began), None)

    def on_stopping(self) -> None:
        """Stop watching requests: the guest is gone."""
        self._abandoned.clear()
        self._monitor.lost()
        self.tools.drop()
        self._main_waiting = False
        for request in self._in_flight():
            self._deadlines_of(request).stop()

    def on_loss(self, stopped: Stopped) -> None:
        """End the requests that were lost with their guest. Send again those that had not begun.

        ``stopped`` says why the guest was lost and what was restored. The request that the loss is
        put down to ends with ``stopped``, the others with a copy of it that has ``beside`` set.
        """
        if stopped.why == "fork":
            self._audit.lost(stopped)
            self.used = True
            self._front.on_forked(stopped)
            return
        self.used = self.used and stopped.restored is not None
        request = self.request
        exclusive = self._exclusive
        self._exclusive = None
        charged = self._charged() if stopped.of is None else self.beside.get(stopped.of)
        self._audit.lost(stopped, cell=0 if charged is None else charged.number)
        stopped = replace(stopped, of=None)
        beside_stop = stopped if charged is None else replace(stopped, beside=True)
        # The card of a request that ends shows the loss. If none ends, the front shows it itself.
        shown_by_request = request is not None
        for beside in tuple(self.beside.values()):
            if beside.may_be_resent(stopped.why):
                beside.resent += beside.state is not RequestState.admitted
                beside.state = RequestState.admitted
            else:
                shown_by_request = True
                self.finish(beside, stopped if beside is charged else beside_stop)
        if request is not charged:
            stopped = beside_stop
        if stopped.why == "undo" and request is not None:
            self._front.on_undo(stopped)
            self.finish(request, request.reply)
        elif not shown_by_request:
            self._front.on_restart(stopped)
        elif request is None:
            pass
        elif request.may_be_resent(stopped.why):
            request.state = RequestState.admitted
            request.over = None
            request.made_way = False
            request.resent += 1
            self._front.on_restart(stopped)
        else:
            self.finish(request, stopped)
        # An action of the main shell's request is void, as that request was ended or is sent again.
        # A narrowing between cells has no request yet, and still waits.
        if request is None:
            self._exclusive = exclusive
            self._run_exclusive()

    def on_notice(self, text: str) -> None:
        """Tell the user something, by way of the front, and enter it in the audit log."""
        self._audit.enter(records.Notice(text=text))
        self._front.on_notice(text)

    def on_failure(self, detail: str) -> None:
        """End the requests under way and all later ones: no guest can be started.

        ``detail`` is the reason, which the user sees.
        """
        self._audit.enter(records.Failure(detail=records.clipped(detail)))
        self._front.on_failure(detail)
        self.fail(detail)

    def fail(self, detail: str) -> None:
        """End the requests under way and all later ones with this error."""
        self._failure = detail
        for request in self._in_flight():
            self.finish(request, detail)

    # --- the session --------------------------------------------------------------------------

    def narrow_to(self, settings: SessionSettings) -> None:
        """Enforce the host's part of narrower settings from the next request on."""
        self._deadlines.timeout = settings.policy.timeout
        self._monitor.narrow_to(settings.policy)
        if settings.tools is not None:
            self.tools.narrow_to(settings.tools, settings.tools_gone)
        self._addresses = settings.addresses
        if self._relay.is_shared:
            # A session that shares its relay gets a new guest, of another zygote: it needs a relay
            # of its own.
            self._replace_relay()
        self._relay.narrow_to(settings.addresses)
        self._served = settings.served
        if self.ports.is_shared:
            self._replace_ports()
        self.ports.narrow_to(*self._served[:2])
        self.used = self.used and settings.step is not NarrowingStep.fresh

    def open_folder(self, path: str) -> int:
        """Open a folder that guests write to; return its descriptor.

        Under a layer that folder has what cells wrote there and nothing else. Raises OSError, also
        if the path is a link.
        """
        written = self.open_written(path)
        return self.open_as_seen(path) if written is None else written

    def open_written(self, path: str) -> int | None:
        """Open what guests wrote to a folder under a layer; None if no layer covers the path.

        Raises OSError.
        """
        for layer in self._layers:
            if within(path, layer.root):
                return open_unlinked(f"{layer.folder}/{UPPER}{path[len(layer.root) :]}", FOLDER)
        return None

    def open_as_seen(self, path: str) -> int:
        """Open a folder as guests see it; return its descriptor. Raises OSError, also for a link.

        Under a layer, the folder shows what cells wrote over the user's files, and nothing that
        the policy denies. What the host writes there is staged, as it is for guests: the OS
        kernel does that. May be called from any thread.
        """
        zygote = self.supervisor.zygote
        # A copy of the items, because the event loop's thread may change them meanwhile.
        folders_seen = () if zygote is None else tuple(zygote.seen_folders.items())
        for root, folder in folders_seen:
            if within(path, root):
                return open_beneath(folder, path[len(root) :])
        if any(within(path, layer.root) for layer in self._layers):
            raise OSError(errno.EAGAIN, "the interpreter of cells is being started")
        return open_unlinked(path, FOLDER)

    def seen_roots(self) -> tuple[str, ...]:
        """Return the folders that look different to guests than to the host."""
        zygote = self.supervisor.zygote
        return () if zygote is None else tuple(zygote.seen_folders)

    def disconnect(self) -> None:
        """End the guest's connections and tool calls, and account for what they reached."""
        self._addresses = ()
        self._served = NOT_SERVED
        self._replace_relay()
        self._replace_ports()
        self.tools.drop()

    def close(self) -> bool:
        """End guest and zygote; return whether they and their folder are gone."""
        self._monitor.lost()
        if self._monitor in self._monitor.forks:
            self._monitor.forks.remove(self._monitor)
        self.tools.close()
        return self.supervisor.close()


def _is_cell(message: Any) -> bool:
    return isinstance(message, messages.Execute)


def _steps_if_only_undo(message: Any) -> int:
    """Return how many cells to undo, for a cell that is only ``%undo``; 0 for any other message."""
    match = _UNDO_ALONE.fullmatch(message.raw) if _is_cell(message) else None
    return steps_of_undo(match[1]) if match else 0


def _is_interrupt(error: messages.Error | None) -> bool:
    return error is not None and error.ename == KeyboardInterrupt.__name__


def _links_to_page(message: messages.FromGuest) -> bool:
    """Return whether a message refers to an object of the front end: a widget, or a display id."""
    return isinstance(message, messages.CommOut) or bool(getattr(message, "display_id", None))


def _size_of(message: messages.FromGuest) -> int:
    """Return the number of bytes in a message that a front end may show."""
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
