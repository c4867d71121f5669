"""What goes into a session and what comes out of it: cells, outcomes, and what a front is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cellblock.analysis import Finding
from cellblock.host.tools.record import Made
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import AdmissionError, AuditError, PolicyError
    from cellblock.host.usage import Usage

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
    tool_calls: Made = field(default_factory=Made)


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
    made: Made | None = None,
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
