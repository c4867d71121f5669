"""What goes into a session and what comes out of it: cells, outcomes, and what a front is told."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import msgspec

from cellblock.analysis import Finding
from cellblock.host.services.tools.calls import CellCalls
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from cellblock.analysis import Rules
    from cellblock.errors import AdmissionError, AuditError, PolicyError
    from cellblock.host.consent.admission.admission import Gate
    from cellblock.host.guests.process import Guest
    from cellblock.host.services.tools.calls import Tooling
    from cellblock.host.session.limits import Bounds
    from cellblock.host.session.requests import Request
    from cellblock.policy.model import Policy


#: Findings of a guest's that are shown.
MOST_REFUSED = 100
#: Characters that are kept of why a cell was stopped.
MOST_DETAIL = 1_000

Why = Literal[
    "timeout",
    "cpu",
    "memory",
    "scratch",
    "interrupt",
    "crash",
    "violation",
    "breach",
    "silent",
    "undo",
    "narrowed",
]


@dataclass(frozen=True, slots=True)
class Cell:
    """One execute request as a front hands it in."""

    raw: str
    execution_count: int
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = False
    user_expressions: dict[str, str] = field(default_factory=dict)
    #: Seconds that it may run, where the policy does not allow fewer.
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot took over; what of the state it does not have."""

    #: Names of threads that ran, as the guest told them.
    threads: tuple[str, ...] = ()
    tasks: int = 0
    #: Open files that could not be set back to what they were.
    files: int = 0
    connections: int = 0
    #: Cells whose effect was too young to be in the snapshot: run again, and not.
    again: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """A cell that was ended from outside, and what ended it."""

    why: Why
    detail: str = ""
    #: The guest lives on: its variables are there, with what the cell did until then.
    kept: bool = False
    #: A snapshot of it took over.
    restored: Restored | None = None
    #: Cells that were stepped back over, when that was asked for.
    undone: tuple[int, ...] = ()
    #: Seconds that it had, where that was less than the policy's.
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Bound what may be a guest's own words: a card repeats them several times."""
        object.__setattr__(self, "detail", self.detail[:MOST_DETAIL])


@dataclass(frozen=True, slots=True)
class Refused:
    """A cell that ran, and what the host would not do for it at its end."""

    detail: str
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended; exactly one of the five after payload is set unless status is ok."""

    status: Literal["ok", "error", "denied", "refused", "stopped"]
    user_expressions: dict[str, Any] = field(default_factory=dict)
    payload: list[dict[str, Any]] = field(default_factory=list)
    error: messages.Error | None = None
    findings: tuple[Finding, ...] = ()
    stopped: Stopped | None = None
    #: Why it may not run, though it was allowed: the audit log is required.
    unwritten: AuditError | None = None
    #: Why nobody can tell whether it may run: what was approved, or is shipped, can't be trusted.
    unadmitted: AdmissionError | None = None
    #: What the findings are in, where that is not the cell.
    label: str = ""
    #: What it took; None when it did not run.
    usage: Usage | None = None
    #: The calls of tools that it made.
    tool_calls: CellCalls = field(default_factory=CellCalls)


class Front(Protocol):
    """What a session tells its front while a request runs and between requests."""

    def shown(self, message: messages.FromGuest) -> None:
        """Output: Stream, Display, Result, Clear, Error, CommOut, or a view that was asked for."""

    def asked(self, request: messages.InputRequest) -> bool:
        """Put the running cell's question, or don't; ``Session.answer`` goes back."""

    def consulted(self, text: str, told: Callable[[str], None]) -> Callable[[], None] | None:
        """Put a question of the host's to whoever runs the cell; None where nobody can be asked.

        ``told`` gets the answer, unless what is returned was called before.
        """

    def hurry(self) -> None:
        """Stop holding the guest for front ends that are behind: it must be heard now."""

    def restarted(self, stopped: Stopped) -> None:
        """Tell that a guest was lost while nothing ran, or before its request began."""

    def undone(self, stopped: Stopped) -> None:
        """Tell that cells were undone, as the running one asked for."""

    def equipped(self, tools: tuple[messages.Tool, ...]) -> None:
        """Take note of the tools that cells may call."""

    def refused(self, error: PolicyError) -> None:
        """Nothing can run under this policy; requests end as errors from now on."""

    def noticed(self, text: str) -> None:
        """Tell the user that no snapshots are taken for now, and why."""

    def failed(self, detail: str) -> None:
        """No guest can be started; requests end as errors from now on."""

    def locked(self, report: messages.LockReport) -> str:
        """Take a guest's report; return why nothing may run in it, or nothing."""


def outcome_of(
    reply: messages.Done | Stopped | Refused | str,
    refused: dict[str, Any],
    usage: Usage | None = None,
    made: CellCalls | None = None,
) -> Outcome:
    """Turn what ended a cell into its outcome; ``refused`` are user_expressions never sent.

    A text says why it never ran.
    """
    outcome = _outcome_of(reply, refused, usage)
    return outcome if made is None else replace(outcome, tool_calls=made)


def _outcome_of(
    reply: messages.Done | Stopped | Refused | str, refused: dict[str, Any], usage: Usage | None
) -> Outcome:
    if isinstance(reply, Stopped):
        return Outcome("stopped", stopped=reply, usage=usage)
    if isinstance(reply, Refused):
        text = reply.detail
        error = messages.Error(ename="UndoRefused", evalue=text, traceback=[text])
        return Outcome("error", error=error, usage=usage)
    if isinstance(reply, str):
        error = messages.Error(ename="GuestFailed", evalue=reply, traceback=[reply])
        return Outcome("error", error=error)
    if reply.refused:
        shown = reply.refused[:MOST_REFUSED]
        return Outcome("denied", findings=tuple(_finding(raw) for raw in shown), usage=usage)
    if reply.error is not None:
        return Outcome("error", error=reply.error, payload=reply.payload, usage=usage)
    return Outcome("ok", reply.user_expressions | refused, reply.payload, usage=usage)


def _finding(raw: dict[str, Any]) -> Finding:
    """Read a guest's finding; whatever does not fit becomes one plain statement."""
    fields: dict[str, Any] = {}
    for key in ("rule", "excerpt", "subject", "why", "remedy", "rewrite"):
        value = raw.get(key)
        fields[key] = value[:500] if isinstance(value, str) else ""
    for key in ("line", "column", "end_column"):
        value = raw.get(key, 0)
        fields[key] = value if isinstance(value, int) and 0 <= value < 2**31 else 0
    return Finding(**fields)


def refusal(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the value of a user_expression that was refused."""
    first = findings[0]
    return {
        "status": "error",
        "ename": "PolicyDenied",
        "evalue": f"{first.rule}: {first.subject} {first.why}",
        "traceback": [f"{f.rule}: {f.why}. {f.remedy}" for f in findings],
    }


# What a request costs, as the host measured it, and the session's account of its cells.

#: Cells that are remembered one by one, and characters of their first line.
MOST_CELLS: Final = 1_000
LONGEST_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request took. ``read_bytes`` is the guest's word, all else the host's."""

    wall_seconds: float
    cpu_seconds: float
    #: The most memory resident at once of the guest, what it had before the cell included.
    peak_memory_bytes: int
    #: Text and rich output as it came from the guest, shown or not.
    output_bytes: int
    #: Read from disk; what was in the page cache counts as nothing (getrusage(2), ru_inblock).
    read_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data, times to the microsecond."""
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "output_bytes": self.output_bytes,
            "read_bytes": self.read_bytes,
        }


def size_of(message: messages.FromGuest) -> int:
    """Return the bytes of a message that a front end may get to see."""
    match message:
        case messages.Stream(text=text):
            return _size(text)
        case messages.Display(data=data) | messages.Result(data=data):
            return sum(map(_size, data.values()))
        case messages.CommOut(content=content, buffers=buffers):
            return _size(content) + sum(map(len, buffers))
        case messages.Error(traceback=lines):
            return sum(map(_size, lines))
    return 0


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    return len(value) if isinstance(value, bytes) else len(msgspec.msgpack.encode(value))


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of the account: its number, the first line of its source, what it took."""

    number: int
    line: str
    usage: Usage


class Account:
    """The cells of a session, oldest first; the last ``MOST_CELLS`` of them one by one."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=MOST_CELLS)
        #: Cells that ran, and what all of them took.
        self.cells = 0
        self.wall_seconds = self.cpu_seconds = 0.0
        self.output_bytes = self.read_bytes = 0

    def add(self, number: int, source: str, usage: Usage) -> None:
        """Enter a cell that ended."""
        line = source.lstrip()[:LONGEST_LINE].partition("\n")[0]
        self._entries.append(Entry(number, line, usage))
        self.cells += 1
        self.wall_seconds += usage.wall_seconds
        self.cpu_seconds += usage.cpu_seconds
        self.output_bytes += usage.output_bytes
        self.read_bytes += usage.read_bytes

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries, oldest first."""
        return iter(self._entries)


# What a guest may say when. Each rule returns how it was broken, or nothing.
#
# An honest guest keeps all of them by its own code, whatever a cell does with the language
# alone: who breaks one has taken over the process, and is ended for it.

#: Questions that a cell may repeat while none is answered: one that is interrupted may ask again.
MAX_QUESTIONS = 1_000
#: What answers what.
_ANSWERS: dict[type, type] = {
    messages.Execute: messages.Done,
    messages.CommIn: messages.Done,
    messages.Complete: messages.Completed,
    messages.Inspect: messages.Inspected,
}


def unasked(message: messages.FromGuest, *, served: bool) -> str:
    """Judge what is said of guests themselves; ``served`` if this one has come to serve before."""
    if isinstance(message, messages.Tried):
        return "nobody asked what it tried"
    if isinstance(message, messages.Standing | messages.Resumed):
        return "it speaks as a snapshot"
    if served and isinstance(message, messages.Ready | messages.NotReady):
        # Claims about locks count once, before the first user byte.
        return "a second report of its locks"
    return ""


def began(message: messages.Began, request: Request | None, unread: int) -> str:
    """Judge a claim to have taken up a request; ``unread`` are bytes still on their way to it."""
    if request is None or message.id != request.message.id or request.began:
        return "it claims to have begun what it was not told to"
    if _ANSWERS[type(request.message)] is not messages.Done:
        return "it claims to have begun a query"
    if unread:
        # Believed, it would keep an interrupt from ending a guest that never takes it up.
        return "it claims to have begun what it has not read"
    return ""


def question(message: messages.InputRequest, request: Request | None) -> str:
    """Judge a question to the user."""
    if request is None or message.id != request.message.id or not request.began:
        return "a question of no cell"
    if not isinstance(request.message, messages.Execute) or not request.message.allow_stdin:
        return "a question where none may be asked"
    if request.questions > MAX_QUESTIONS:
        return "a storm of questions"
    return ""


def may_undo(request: Request) -> bool:
    """Say whether a wish to step back is heeded: a cell's. A handler or a thread may utter one."""
    return isinstance(request.message, messages.Execute) and request.began


def reply(message: Any, request: Request | None) -> str:
    """Judge what says that it answers a request."""
    if request is None or message.id != request.message.id or request.ended:
        return "a reply to no request"
    if type(message) is not _ANSWERS[type(request.message)]:
        return "a reply of another kind"
    if isinstance(message, messages.Done) and not request.began:
        return "an end without a beginning"
    return ""


# What a session needs of the loop it lives in.


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Make the call not happen; harmless when it already has."""


class Reactor(Protocol):
    """Readiness of descriptors, and time. Single-threaded; callbacks run one after another."""

    def watch(
        self, fd: int, on_ready: Callable[[], None], *, read: bool = True, write: bool = False
    ) -> None:
        """Call ``on_ready`` whenever ``fd`` is readable, with ``write`` also when writable."""

    def unwatch(self, fd: int) -> None:
        """Stop watching ``fd``; harmless when it is not watched."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Call ``action`` once, no earlier than ``seconds`` from now."""

    def expect(self) -> None:
        """Take note that an answer may come at once; a loop may look out for it, briefly."""


# What a session holds cells to, when its policy becomes narrower, and who knows the policy.


class Step(Enum):
    """What it takes to have cells run under narrower terms."""

    none = "none"
    """Nothing: the guest has no part in it."""

    relock = "relock"
    """A copy of the guest goes on in its place, under more locks."""

    fresh = "fresh"
    """A new guest, of a new zygote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a session holds cells to from some moment on, and what changed for that."""

    policy: Policy
    #: Field to value, as TOML has it, and the whole policy's digest: for the audit log.
    changed: Mapping[str, str]
    digest: str
    step: Step
    rules: Rules
    timeout: float | None
    bounds: Bounds
    prepare: messages.Prepare
    zygote: Callable[[], tuple[socket.socket, int]]
    #: What a relay connects to, where there is a list.
    addresses: tuple[str, ...]
    tools: Tooling | None
    #: Names of tools that there are no more.
    tools_gone: frozenset[str]
    #: Which cells may run at all.
    gate: Gate


@dataclass(frozen=True, slots=True)
class Claim:
    """Terms that wait for a guest, as a request's message: none of a guest's has this id.

    ``serve`` is called with the request and each guest that could take it.
    """

    id: ClassVar[int] = -1

    terms: Terms
    serve: Callable[[Request, Guest], None]


@dataclass(frozen=True, slots=True)
class Held:
    """Terms that are in force; ``stopped`` says what became of a guest that got more locks."""

    terms: Terms
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True)
class NotHeld:
    """Why terms could not be put in force; nothing has changed."""

    why: str


class Scope(Protocol):
    """The policy of a session, which can become narrower."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""

    def weigh(self, changes: Mapping[str, Any]) -> tuple[Policy, tuple[PolicyError, ...]]:
        """Return a narrower policy, or all that is wrong with the changes."""

    def locking(self) -> Step | None:
        """Say what it takes to lay more locks on the guest that there is; None if it can't be."""

    def terms(self, policy: Policy, step: Step) -> Terms:
        """Return the terms of a narrower policy. Raises PolicyError if it can't be kept."""

    def adopt(self, terms: Terms) -> None:
        """Hold to these terms from now on, whatever is shown, kept and said."""

    def told(self, held: Held, *, used: bool) -> None:
        """Show what is in force now; ``used`` says that there were variables before."""
