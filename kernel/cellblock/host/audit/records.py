"""What can be entered in an audit log. A record's kind is its tag; defaults are left out.

A field that is added needs a default; one that changes its meaning takes a new ``VERSION``.
What comes from a guest or a cell is bounded before (``entries``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cellblock.analysis.admission import sha256
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cellblock import analysis
    from cellblock.host.session import types
    from cellblock.policy import model


VERSION: Final = 1

Decision = Literal["allowed", "denied", "refused"]


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One thing that happened."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a cell that the policy refuses. ``excerpt`` takes ``audit.sources``."""

    rule: str
    line: int
    column: int
    subject: str = ""
    excerpt: str = ""


class Expression(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user_expression that came with a cell; none is allowed where the cell is refused."""

    sha256: str
    decision: Decision


class Gap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked for and not enforced; ``contradicted`` if a probe saw that it is not."""

    capability: str
    status: str
    asked: str
    consequence: str
    actual: str = ""
    contradicted: bool = False


# --- a session --------------------------------------------------------------------------------


class SessionStart(Record, frozen=True, kw_only=True, tag="session-start"):
    """Always the first record. ``backend`` is what was chosen, ``asked`` what the policy names."""

    cellblock: str
    python: str
    os_kernel: str
    uid: int
    pid: int
    project: str
    policy: str
    digest: str
    mode: str
    backend: str
    asked: str = ""
    admission: str = "any"
    approvals: str = "never"


class Admission(Record, frozen=True, kw_only=True, tag="admission"):
    """What may run, as it was read from ``source``: how many cells, and templates by their hash."""

    admission: str
    source: str
    cells: int = 0
    templates: dict[str, str] = {}


class Narrowing(Record, frozen=True, kw_only=True, tag="narrowing"):
    """The policy became narrower: by the decision ``cell``, or by a notebook's ``file``.

    ``fields`` are what changed, as TOML has it, ``digest`` is of the policy since then. ``guest``
    says whether it got more locks (``relock``), or a new one began with it (``fresh``).
    """

    fields: dict[str, str]
    digest: str
    cell: int = 0
    file: str = ""
    guest: str = ""


class Enforcement(Record, frozen=True, kw_only=True, tag="enforcement"):
    """A guest was locked: what each capability is worth, and what is missing.

    ``proved`` is when the suite of probes saw what counts here; empty where it did not.
    """

    capabilities: dict[str, str]
    locks: dict[str, str]
    gaps: tuple[Gap, ...] = ()
    proved: str = ""


class Notice(Record, frozen=True, kw_only=True, tag="gap"):
    """Something that the policy asks for is not done for now."""

    text: str


class Failure(Record, frozen=True, kw_only=True, tag="failure"):
    """No guest can be had any more."""

    detail: str


class SessionEnd(Record, frozen=True, kw_only=True, tag="session-end"):
    """Always the last record of a session that was ended in good order."""

    cells: int


# --- a cell -----------------------------------------------------------------------------------


class Cell(Record, frozen=True, kw_only=True, tag="cell"):
    """A decision about a cell, written before it starts. ``cell`` counts a session's decisions.

    ``sha256`` is of the source as it came. ``why`` says why one was refused that has no findings,
    ``by`` what admitted it where not every cell is.
    """

    cell: int
    count: int
    sha256: str
    decision: Decision
    why: str = ""
    by: str = ""
    findings: tuple[Finding, ...] = ()
    expressions: tuple[Expression, ...] = ()
    silent: bool = False
    source: str = ""


class Outcome(Record, frozen=True, kw_only=True, tag="outcome"):
    """How a cell ended that was allowed, and what it took. ``error`` is an exception's type."""

    cell: int
    status: str
    error: str = ""
    message: str = ""
    why: str = ""
    findings: tuple[Finding, ...] = ()
    usage: dict[str, float] = {}


class Withheld(Record, frozen=True, kw_only=True, tag="withheld"):
    """What a cell said and nobody was shown: bytes by kind, types, messages, widgets."""

    cell: int
    bytes: dict[str, int] = {}
    types: tuple[str, ...] = ()
    messages: int = 0
    comms: tuple[str, ...] = ()


class Tool(Record, frozen=True, kw_only=True, tag="tool"):
    """A call of a tool that ended; ``cell`` is the last that was decided.

    Arguments that the operator calls secret are masked, and what is large is only measured.
    ``error`` is an exception's type; ``message`` takes ``audit.sources``. ``tokens`` is what a
    language model took, or may have taken.
    """

    cell: int
    name: str
    outcome: str
    seconds: float
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    error: str = ""
    message: str = ""
    tokens: int = 0


class Credential(Record, frozen=True, kw_only=True, tag="credential"):
    """A request of a call carries a key of the policy's, by its ``name``; said before it is sent.

    ``host`` and ``path`` are of the request, without its query: a redirect is one of its own.
    """

    cell: int
    name: str
    host: str
    method: str
    path: str


class Refusals(Record, frozen=True, kw_only=True, tag="refusals"):
    """So many calls were refused besides those that are entered one by one, of one cell."""

    cell: int
    calls: int


class Approval(Record, frozen=True, kw_only=True, tag="approval"):
    """The decision about what takes the user's consent; ``cell`` is the last that was decided.

    ``of`` is call, import or start, ``sha256`` of exactly what was asked for. ``decision`` is for
    how long it is allowed, or no; ``asked``, if the user was and said so just now.
    """

    cell: int
    of: str
    subjects: tuple[str, ...]
    decision: str
    sha256: str
    asked: bool = False
    why: str = ""


class Connections(Record, frozen=True, kw_only=True, tag="connections"):
    """Where connections to listed hosts went, and how often; ``cell`` is the last decided.

    ``reached`` were tried, with the listed name that led there; ``refused`` are where a name led
    that may not be reached. ``others`` counts connections to more addresses than these. ``shared``
    says that they may be of a fork, or of what this is a fork of: these have one network.
    """

    cell: int
    reached: dict[str, int] = {}
    refused: dict[str, int] = {}
    others: int = 0
    shared: bool = False


class Artifact(Record, frozen=True, kw_only=True, tag="artifact"):
    """A file was copied out after a cell; ``name`` is that of the copy."""

    cell: int
    name: str
    bytes: int
    type: str
    sha256: str


class Kept(Record, frozen=True, kw_only=True, tag="kept"):
    """A staged file was kept: made, changed or deleted in the project.

    ``of`` is the session that staged it, ``cell`` the last that was decided in this log's session;
    ``by`` says who asked.
    """

    cell: int
    of: str
    name: str
    change: str
    bytes: int
    by: str
    sha256: str = ""


# --- a guest ----------------------------------------------------------------------------------


class Kill(Record, frozen=True, kw_only=True, tag="kill"):
    """The host ended a guest; ``cell`` is the last that was decided."""

    cell: int
    why: str
    detail: str = ""


class Crash(Record, frozen=True, kw_only=True, tag="crash"):
    """A guest ended by itself."""

    cell: int
    detail: str = ""


class Undo(Record, frozen=True, kw_only=True, tag="undo"):
    """Cells were stepped back over; the numbers are those that front ends show.

    Or a ``checkpoint`` was gone back to.
    """

    cell: int
    counts: tuple[int, ...] = ()
    checkpoint: str = ""


class Forked(Record, frozen=True, kw_only=True, tag="forked"):
    """The session goes on from a copy of another session's guest, whose log is called ``of``."""

    of: str


class Restore(Record, frozen=True, kw_only=True, tag="restore"):
    """A snapshot took over; numbers of what it does not have."""

    threads: int = 0
    tasks: int = 0
    files: int = 0
    connections: int = 0
    again: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


# --- the log itself ---------------------------------------------------------------------------


class Lost(Record, frozen=True, kw_only=True, tag="lost"):
    """Records before this one could not be written, and were more than memory is kept for."""

    records: int


# --- what values, and texts of others, become in a record: bounded, and as they can be written ----

#: Characters of a text that a guest may have written.
_LONGEST: Final = 200


def clipped(text: str) -> str:
    """Return a text of others, bounded."""
    return encodable(text[:_LONGEST])


def clipped_name(text: str) -> str:
    """Return what should be a name, or nothing: a guest may say anything."""
    return text[:_LONGEST] if _is_name(text) else ""


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.lstrip("%").split("."))


def expressions_of(cell: types.ExecuteRequest, admitted: Iterable[str]) -> tuple[Expression, ...]:
    """Return a cell's expressions as they are entered; ``admitted`` are names of those that run."""
    names = set(admitted)
    return tuple(
        Expression(sha256=sha256(text), decision="allowed" if name in names else "denied")
        for name, text in cell.user_expressions.items()
    )


def refused(record: Cell, why: str, *, instead_of: Decision) -> Cell:
    """Return a cell's record as that of one that is refused, with the expressions decided so."""
    expressions = (
        replace(each, decision="refused") if each.decision == instead_of else each
        for each in record.expressions
    )
    return replace(record, decision="refused", why=why, expressions=tuple(expressions))


def gap_of(gap: model.Gap) -> Gap:
    """Return a gap as it is entered."""
    return Gap(**{name: getattr(gap, name) for name in Gap.__struct_fields__})


def restore_of(restored: types.Restored) -> Restore:
    """Return what a snapshot that took over lacks, as it is entered."""
    return Restore(
        threads=len(restored.threads),
        tasks=restored.tasks,
        files=restored.files,
        connections=restored.connections,
        again=restored.again,
        missed=restored.missed,
    )


def findings_of(findings: Sequence[analysis.Finding], *, sources: bool) -> tuple[Finding, ...]:
    """Return findings as they are entered: names that were refused, but no text beside them."""
    return tuple(
        Finding(
            rule=f.rule,
            line=f.line,
            column=f.column,
            subject=clipped(f.subject) if sources or _is_name(f.subject) else "",
            excerpt=clipped(f.excerpt) if sources else "",
        )
        for f in findings
    )
