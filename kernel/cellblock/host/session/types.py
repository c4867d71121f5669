"""What goes into a session and what comes out: requests, outcomes, usage, settings."""

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


#: Findings of a guest that are shown.
MAX_GUEST_FINDINGS: Final = 100
#: Characters of a guest's finding, and of why a cell was stopped, that are kept.
MAX_FINDING_TEXT: Final = 500
#: The lines of a guest's finding that are kept: those that allow one module or magic by its name.
_OF_A_NAME: Final = re.compile(r'add\.(?:allowed_modules|magics) = \["@?\w{1,60}"\]', re.ASCII)
_MOST_LINES: Final = 4
MAX_DETAIL: Final = 1_000

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
    """A cell that a front wants run, as Jupyter's ``execute_request`` has it."""

    code: str
    #: Its number: the front's last one where it is silent or not stored.
    execution_count: int = 0
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = False
    stop_on_error: bool = True
    user_expressions: dict[str, str] = field(default_factory=dict)
    #: Seconds that it may run, where the policy does not allow fewer.
    timeout: float | None = None
    #: The subshell that it is for; 0 is the main shell.
    subshell: int = 0
    #: What the front end calls it in its notebook, and cells that it has deleted there; empty where
    #: each cell's outputs are shown by themselves.
    cell: str = ""
    deleted: tuple[str, ...] = ()
    #: Whether its last expression's value is asked for.
    value: bool = False

    @property
    def cell_id(self) -> str | None:
        """The front end's id of the cell; None if it sent none.

        A front that has to tell such cells apart calls them by their code, with a space in it. The
        id of a notebook's cell has no space (JEP 62).
        """
        return self.cell if self.cell and " " not in self.cell else None


# --- how a request ends -------------------------------------------------------------------------


class Restored(Struct, frozen=True):
    """A snapshot took over; this is what it lacks of the guest's state."""

    #: Names of threads that ran, as the guest reports them.
    threads: tuple[str, ...] = ()
    tasks: int = 0
    #: Open files that could not be set back to what they were.
    files: int = 0
    connections: int = 0
    #: What was in /dev/shm was removed.
    emptied: bool = False
    #: Cells too recent to be in the snapshot: run again, and not.
    again: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


#: The detail of ``Stopped`` where it could only be estimated what processes share of memory.
ESTIMATED: Final = "estimated"
#: The same where there is too much only with memory of the OS kernel's.
CHARGED: Final = "charged"


class Stopped(Struct, frozen=True):
    """A cell was ended from outside, or a guest was lost."""

    why: Why
    detail: str = ""
    #: The guest lives on, with what the cell did until then.
    kept: bool = False
    #: A snapshot of it took over.
    restored: Restored | None = None
    #: The cells that were undone, where that was asked for.
    undone: tuple[int, ...] = ()
    #: The branch that the session is on now, where a cell went to one.
    branch: str = ""
    #: The cell's own timeout, where that was less than the policy's.
    seconds: float | None = None
    #: The subshell whose request brought it about; None for the main shell, or where nobody knows.
    of: int | None = None
    #: It ended with another that ran at the same time, whose end this is.
    beside: bool = False
    #: What the guest would have shown of the interrupt: where the cell was.
    error: messages.Error | None = None

    def __post_init__(self) -> None:
        """Bound what may be a guest's own words: a card repeats them several times."""
        force_setattr(self, "detail", self.detail[:MAX_DETAIL])


class Refused(Struct, frozen=True):
    """A cell ran, and the host would not do what it asked for at its end."""

    detail: str
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request took. ``read_bytes`` is the guest's word, all else the host measured."""

    wall_seconds: float
    cpu_seconds: float
    #: The most memory that the guest had resident at once, what it had before included.
    peak_memory_bytes: int
    #: Text and rich output as it came from the guest, shown or not.
    output_bytes: int
    #: Read from disk; the page cache does not count (getrusage(2), ru_inblock).
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


class Outcome(Struct, frozen=True):
    """How a cell ended. Unless it is ok, exactly one of error to unadmitted is set."""

    status: Literal["ok", "error", "denied", "refused", "stopped"]
    user_expressions: dict[str, Any] = field(default_factory=dict)
    payload: list[dict[str, Any]] = field(default_factory=list)
    #: The user ends the session, and what becomes of the kernel; None where cells go on.
    exits: Literal["ends", "stays"] | None = None
    error: messages.Error | None = None
    findings: tuple[Finding, ...] = ()
    stopped: Stopped | None = None
    #: It did not run, because it could not be entered in a required audit log.
    unwritten: AuditError | None = None
    #: It did not run, because what was approved can't be trusted.
    unadmitted: AdmissionError | None = None
    #: What the findings are in, where that is not the cell.
    label: str = ""
    #: None for a cell that did not run.
    usage: Usage | None = None
    tool_calls: CellCalls = field(default_factory=CellCalls)
    #: Its last expression's value, as the guest encoded it.
    value: bytes = messages.NOTHING
    #: How a program that ``!`` ran failed, as the guest says: its status, 0 for none.
    program_status: int = 0


#: What ended a request: the guest's answer, or why there is none. A text: no guest could be had.
Reply = messages.Done | Stopped | Refused | str


def outcome_of(
    reply: Reply,
    refused_expressions: Mapping[str, Any],
    usage: Usage | None = None,
    tool_calls: CellCalls | None = None,
) -> Outcome:
    """Return the outcome of a cell that ``reply`` ended."""
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
    expressions, status = {**reply.user_expressions, **refused_expressions}, reply.program_status
    return Outcome(
        "ok", expressions, reply.payload, value=reply.value, program_status=status, **common
    )


def _guest_finding(raw: dict[str, Any]) -> Finding:
    """Read a finding that a guest reports; a field that is not of its type becomes empty."""
    fields: dict[str, Any] = {}
    for key in ("rule", "excerpt", "subject", "why", "remedy", "rewrite"):
        value = raw.get(key)
        fields[key] = value[:MAX_FINDING_TEXT] if isinstance(value, str) else ""
    for key in ("line", "column", "end_column"):
        value = raw.get(key, 0)
        fields[key] = value if isinstance(value, int) and 0 <= value < 2**31 else 0
    lines = raw.get("allows")
    lines = lines[:_MOST_LINES] if isinstance(lines, list | tuple) else []
    # What a user is told to put in a policy, a guest does not choose.
    allows = tuple(one for one in lines if isinstance(one, str) and _OF_A_NAME.fullmatch(one))
    return Finding(**fields, allows=allows)


# --- what a session enforces --------------------------------------------------------------------


class NarrowingStep(Enum):
    """What has to happen to the guest before cells run under a narrower policy."""

    none = "none"
    """Nothing: the host enforces what changed."""

    relock = "relock"
    """A copy of the guest replaces it, under more locks."""

    fresh = "fresh"
    """A new guest, of a new zygote."""


class SessionSettings(Struct, frozen=True, kw_only=True):
    """What a session enforces, until narrower settings replace these.

    The fields from ``step`` on say how these differ from the settings before them.
    """

    policy: Policy
    rules: Rules
    #: Decides which cells may run at all.
    gate: AdmissionGate
    prepare: messages.Prepare
    #: Starts a zygote. Raises OSError.
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
        """What guests reach by way of the relay."""
        listed = self.policy.network_access
        return listed if self.prepare.plan.neighbours and isinstance(listed, tuple) else ()

    @property
    def served(self) -> Served:
        """What users reach of guests' servers, and which ports are listed hosts' there."""
        policy = self.policy
        if not self.prepare.plan.serves:
            return NOT_SERVED
        return policy.ports, policy.port_hosts, loopback_ports(policy.network_access)


#: Ports, hosts that browsers may ask for there, and ports at which no cell can listen.
Served = tuple[tuple[int, ...] | Literal["any"], tuple[str, ...], frozenset[int]]
NOT_SERVED: Final[Served] = (), (), frozenset()


def unasked(message: messages.FromGuest, *, served: bool) -> str:
    """Return how a message about guests themselves breaks the protocol, or nothing.

    ``served`` says that this guest was ready before.
    """
    if isinstance(message, messages.TrialResults):
        return "nobody asked what it tried"
    if isinstance(message, messages.SnapshotReady | messages.Resumed):
        return "it speaks as a snapshot"
    if isinstance(message, messages.Preloaded):
        return "it speaks as a spare guest"
    if served and isinstance(message, messages.Ready | messages.NotReady):
        # Claims about locks count once, before the first user byte.
        return "a second report of its locks"
    return ""
