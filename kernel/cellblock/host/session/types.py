"""The values that a session takes and gives: requests, outcomes, usage, settings.

Fronts, guests' modules and the audit log import these; they import nothing of the session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from cellblock.analysis import Finding
from cellblock.host.services.tools.calls import CellCalls
from cellblock.policy.network import loopback_ports
from cellblock.wire import messages

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Rules
    from cellblock.errors import AdmissionError, AuditError
    from cellblock.host.consent.admission import AdmissionGate
    from cellblock.host.services.tools.calls import Tooling
    from cellblock.policy.model import Policy


#: Findings reported by a guest that are shown.
MAX_GUEST_FINDINGS: Final = 100
#: Characters kept of each text in a guest's finding.
MAX_FINDING_TEXT: Final = 500
#: Matches the policy lines of a guest's finding that are kept: they allow one module or magic by
#: its name, and nothing else.
_OF_A_NAME: Final = re.compile(r'add\.(?:allowed_modules|magics) = \["@?\w{1,60}"\]', re.ASCII)
_MOST_LINES: Final = 4
#: Characters kept of why a cell was stopped.
MAX_DETAIL: Final = 1_000

#: Why a cell was stopped, or its guest lost.
Why = Literal[
    "timeout",
    "cpu",
    "memory",
    "forks",
    "deep",
    "files",
    "folders",
    "locked",
    "mapped",
    "scratch",
    "interrupt",
    "crash",
    "violation",
    "breach",
    "silent",
    "undo",
    "narrowed",
    "fork",
]


class ExecuteRequest(Struct, frozen=True, kw_only=True):
    """A cell that a front wants run, with the fields of Jupyter's ``execute_request``."""

    code: str
    #: The cell's number. A cell that is silent or not stored has the number of the last one.
    execution_count: int = 0
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = False
    stop_on_error: bool = True
    user_expressions: dict[str, str] = field(default_factory=dict)
    #: Seconds that the cell may run, unless the policy allows fewer.
    timeout: float | None = None
    #: The subshell that the cell is for; 0 is the main shell.
    subshell: int = 0
    #: The front end's id for the cell in its notebook, and the ids of cells deleted there. Empty if
    #: the front end shows each request's outputs by themselves.
    cell: str = ""
    deleted: tuple[str, ...] = ()
    #: Whether the value of the cell's last expression is wanted.
    value: bool = False

    @property
    def cell_id(self) -> str | None:
        """The front end's id of the cell; None if it sent none.

        A front that must tell cells without ids apart puts their code into ``cell``, with a space
        added. The id of a notebook's cell has no space (JEP 62).
        """
        return self.cell if self.cell and " " not in self.cell else None


# --- how a request ends -------------------------------------------------------------------------


class Restored(Struct, frozen=True):
    """What the state that was restored lacks of the lost guest's state."""

    #: Names of the threads that were lost, as the guest reports them.
    threads: tuple[str, ...] = ()
    #: Numbers of tasks that were lost, of open files that could not be set back, of connections.
    tasks: int = 0
    files: int = 0
    connections: int = 0
    #: Whether the contents of /dev/shm were removed.
    emptied: bool = False
    #: Numbers of the cells too recent to be in the snapshot: those run again, and those not.
    again: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


#: The detail of a ``Stopped`` for memory if shared memory could only be estimated.
ESTIMATED: Final = "estimated"
#: The detail if the limit was exceeded only together with the OS kernel's memory for the guest.
CHARGED: Final = "charged"


class Stopped(Struct, frozen=True):
    """The end of a cell that was stopped from outside, or of a guest that was lost."""

    why: Why
    detail: str = ""
    #: Whether the guest lives on, with what the cell did until then.
    kept: bool = False
    #: What a snapshot that took over lacks; None if no snapshot did.
    restored: Restored | None = None
    #: Numbers of the cells that were undone, if an undo was asked for.
    undone: tuple[int, ...] = ()
    #: The branch that the session is on now, if a cell went to one.
    branch: str = ""
    #: The cell's own timeout, if that was less than the policy's.
    seconds: float | None = None
    #: The subshell whose request caused this; None for the main shell, or if that is not known.
    of: int | None = None
    #: Whether the request ended only because another, which ran at the same time, was stopped.
    beside: bool = False
    #: The guest's error for the interrupt, whose traceback shows where the cell was.
    error: messages.Error | None = None

    def __post_init__(self) -> None:
        """Bound the detail: a guest may have chosen it, and a card repeats it several times."""
        force_setattr(self, "detail", self.detail[:MAX_DETAIL])


class Refused(Struct, frozen=True):
    """The end of a cell that ran, but whose undo, checkpoint or branch the host refused."""

    detail: str
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request used. The guest reports ``read_bytes``; the host measures all else."""

    wall_seconds: float
    cpu_seconds: float
    #: The most memory that the guest had resident at once, including what it had before.
    peak_memory_bytes: int
    #: Bytes of text and rich output that the guest sent, whether or not they were shown.
    output_bytes: int
    #: Bytes read from disk, not from the page cache (getrusage(2), ru_inblock).
    read_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the usage as JSON data, times rounded to the microsecond."""
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "peak_memory_bytes": self.peak_memory_bytes,
            "output_bytes": self.output_bytes,
            "read_bytes": self.read_bytes,
        }


class Outcome(Struct, frozen=True):
    """How a cell ended.

    Unless the status is "ok", ``error``, ``findings``, ``stopped``, ``unwritten`` or ``unadmitted``
    says why.
    """

    status: Literal["ok", "error", "denied", "refused", "stopped"]
    user_expressions: dict[str, Any] = field(default_factory=dict)
    payload: list[dict[str, Any]] = field(default_factory=list)
    #: Whether the kernel ends or stays, if the user ended the session; None if cells go on.
    exits: Literal["ends", "stays"] | None = None
    error: messages.Error | None = None
    findings: tuple[Finding, ...] = ()
    stopped: Stopped | None = None
    #: Set if the cell did not run because it could not be entered in a required audit log.
    unwritten: AuditError | None = None
    #: Set if the cell did not run because the store of approvals can't be trusted.
    unadmitted: AdmissionError | None = None
    #: What the findings are in, if not in the cell itself: a template.
    label: str = ""
    #: None for a cell that did not run.
    usage: Usage | None = None
    tool_calls: CellCalls = field(default_factory=CellCalls)
    #: The value of the cell's last expression, as the guest encoded it.
    value: bytes = messages.NOTHING
    #: The exit status of a program that ``!`` ran and that failed, as the guest reports it; or 0.
    program_status: int = 0


#: What ended a request: the guest's answer, or why there is none. A text says why no guest could
#: be started.
Reply = messages.Done | Stopped | Refused | str


def outcome_of(
    reply: Reply,
    refused_expressions: Mapping[str, Any],
    usage: Usage | None = None,
    tool_calls: CellCalls | None = None,
) -> Outcome:
    """Return the outcome of a cell that ``reply`` ended.

    ``refused_expressions`` has the replies of user_expressions that were not admitted.
    """
    common: dict[str, Any] = {"usage": usage, "tool_calls": tool_calls or CellCalls()}
    match reply:
        case Stopped():
            return Outcome("stopped", stopped=reply, **common)
        case Refused(detail=text):
            error = messages.Error(ename="UndoRefused", evalue=text, traceback=[text])
            return Outcome("error", error=error, **common)
        case str():
            error = messages.Error(ename="GuestFailed", evalue=reply, traceback=[reply])
            return Outcome("error", error=error, **common | {"usage": None})
    if reply.refused:
        findings = tuple(map(_guest_finding, reply.refused[:MAX_GUEST_FINDINGS]))
        return Outcome("denied", findings=findings, **common)
    if reply.error is not None:
        return Outcome("error", error=reply.error, payload=reply.payload, **common)
    expressions = {**reply.user_expressions, **refused_expressions}
    status = reply.program_status
    return Outcome(
        "ok", expressions, reply.payload, value=reply.value, program_status=status, **common
    )


def _guest_finding(raw: dict[str, Any]) -> Finding:
    """Return a finding that a guest reports. A field of the wrong type becomes empty."""
    fields: dict[str, Any] = {}
    for key in ("rule", "excerpt", "subject", "why", "remedy", "rewrite"):
        value = raw.get(key)
        fields[key] = value[:MAX_FINDING_TEXT] if isinstance(value, str) else ""
    for key in ("line", "column", "end_column"):
        value = raw.get(key, 0)
        fields[key] = value if isinstance(value, int) and 0 <= value < 2**31 else 0
    lines = raw.get("allows")
    lines = lines[:_MOST_LINES] if isinstance(lines, list | tuple) else []
    # Users are told to put these lines in their policy, so a guest must not choose them freely.
    allows = tuple(line for line in lines if isinstance(line, str) and _OF_A_NAME.fullmatch(line))
    return Finding(**fields, allows=allows)


# --- what a session enforces --------------------------------------------------------------------


class NarrowingStep(Enum):
    """What has to happen to the guest before cells run under a narrower policy."""

    none = "none"
    """Nothing: the host alone enforces what changed."""

    relock = "relock"
    """A copy of the guest takes its place, under more locks."""

    fresh = "fresh"
    """A new guest, of a new zygote, takes its place."""


class SessionSettings(Struct, frozen=True, kw_only=True):
    """What a session enforces until narrower settings replace these.

    The fields from ``step`` on say how these settings differ from those before them.
    """

    policy: Policy
    rules: Rules
    #: Decides which cells may run at all.
    gate: AdmissionGate
    prepare: messages.Prepare
    #: Starts a zygote; returns its socket and pid. Raises OSError.
    zygote: Callable[[], tuple[socket.socket, int]]
    tools: Tooling | None = None
    step: NarrowingStep = NarrowingStep.none
    #: Changed fields with their values as TOML, and the policy's digest: for the audit log.
    changed: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    #: Names of tools that are no longer offered.
    tools_gone: frozenset[str] = frozenset()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that guests may reach by way of the relay."""
        listed = self.policy.network_access
        return listed if self.prepare.plan.neighbours and isinstance(listed, tuple) else ()

    @property
    def served(self) -> Served:
        """The ports at which the user reaches guests' servers, and hosts browsers may ask for."""
        policy = self.policy
        if not self.prepare.plan.serves:
            return NOT_SERVED
        return policy.ports, policy.port_hosts, loopback_ports(policy.network_access)


#: Ports that are served to the user, hosts that browsers may ask for there, and ports at which no
#: cell can listen, because listed hosts are reached at them.
Served = tuple[tuple[int, ...] | Literal["any"], tuple[str, ...], frozenset[int]]
NOT_SERVED: Final[Served] = (), (), frozenset()


def unasked(message: messages.FromGuest, *, served: bool) -> str:
    """Return how a message that nobody asked for breaks the protocol, or an empty string.

    ``served`` says whether this guest reported ready before.
    """
    if isinstance(message, messages.TrialResults):
        return "nobody asked what it tried"
    if isinstance(message, messages.SnapshotReady | messages.Resumed):
        return "it speaks as a snapshot"
    if isinstance(message, messages.Preloaded):
        return "it speaks as a spare guest"
    if served and isinstance(message, messages.Ready | messages.NotReady):
        # A guest's report of its locks counts once, before any user code ran in it.
        return "a second report of its locks"
    return ""
