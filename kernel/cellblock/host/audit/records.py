"""The records of an audit log, a class each. A record's kind is its tag; defaults are left out.

``docs/audit.md`` describes them for users. A new field needs a default; a field whose meaning
changes needs a new ``VERSION``. Texts that come from a guest or a cell are bounded before they get
here, by the functions at the end of this module.
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
    """An event of a session."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a cell that the policy refuses. ``excerpt`` is only set with ``audit.sources``."""

    rule: str
    line: int
    column: int
    subject: str = ""
    excerpt: str = ""


class Expression(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user_expression that came with a cell. None is allowed if the cell is refused."""

    sha256: str
    decision: Decision


class Gap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A capability that the policy asks for and that is not enforced.

    ``contradicted``: a probe saw that it is not.
    """

    capability: str
    status: str
    asked: str
    consequence: str
    actual: str = ""
    contradicted: bool = False


# --- a session --------------------------------------------------------------------------------


class SessionStart(Record, frozen=True, kw_only=True, tag="session-start"):
    """A session began: always the first record.

    ``backend`` is the one that was chosen, ``asked`` the one that the policy names.
    """

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
    """The cells or templates that may run from now on, as they were read from ``source``.

    ``cells`` is the number of approved cells; ``templates`` are hashes by name.
    """

    admission: str
    source: str
    cells: int = 0
    templates: dict[str, str] = {}


class Narrowing(Record, frozen=True, kw_only=True, tag="narrowing"):
    """The policy was narrowed, by the cell of number ``cell``, or by a notebook's ``file``.

    ``fields`` are the fields that changed, in TOML; ``digest`` is the narrower policy's. ``guest``
    says whether the guest got more locks (``relock``), or was replaced by a new one (``fresh``).
    """

    fields: dict[str, str]
    digest: str
    cell: int = 0
    file: str = ""
    guest: str = ""


class Enforcement(Record, frozen=True, kw_only=True, tag="enforcement"):
    """A guest was locked: the status of each capability, the locks, and the gaps.

    ``proved`` is when the probes proved the enforcement that counts here; empty if they did not.
    """

    capabilities: dict[str, str]
    locks: dict[str, str]
    gaps: tuple[Gap, ...] = ()
    proved: str = ""


class Notice(Record, frozen=True, kw_only=True, tag="gap"):
    """Something that the policy asks for can't be done for now; ``text`` says what."""

    text: str


class Failure(Record, frozen=True, kw_only=True, tag="failure"):
    """No guest can be started any more."""

    detail: str


class SessionEnd(Record, frozen=True, kw_only=True, tag="session-end"):
    """The session ended regularly: always the last record."""

    cells: int


# --- a cell -----------------------------------------------------------------------------------


class Cell(Record, frozen=True, kw_only=True, tag="cell"):
    """The decision about a cell, written before the cell starts.

    ``cell`` numbers the session's decisions from 1, ``count`` is the number that front ends show.
    ``sha256`` is of the source as it came. ``why`` says why a cell without findings was refused.
    ``by`` says what admitted the cell, under a policy that does not admit every cell.
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
    """The outcome of an allowed cell, and its usage. ``error`` is the type of an exception."""

    cell: int
    status: str
    error: str = ""
    message: str = ""
    why: str = ""
    findings: tuple[Finding, ...] = ()
    usage: dict[str, float] = {}


class Withheld(Record, frozen=True, kw_only=True, tag="withheld"):
    """Output of a cell that was withheld: bytes by kind, mime types, messages, widgets."""

    cell: int
    bytes: dict[str, int] = {}
    types: tuple[str, ...] = ()
    messages: int = 0
    comms: tuple[str, ...] = ()


class Tool(Record, frozen=True, kw_only=True, tag="tool"):
    """A call of a tool has ended. ``cell`` is the last cell that was decided about.

    Arguments that the operator marked as secret are masked; of large ones there is only the size.
    ``error`` is the type of an exception; ``message`` is only set with ``audit.sources``.
    ``tokens`` is how many tokens a language model used, or may have used.
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
    """An HTTP request of a call carries the policy's credential ``name``.

    The worker reports it before it sends the request. ``host`` and ``path`` are the request's,
    without its query. The request after a redirect has a record of its own.
    """

    cell: int
    name: str
    host: str
    method: str
    path: str


class Refusals(Record, frozen=True, kw_only=True, tag="refusals"):
    """The number of a cell's refused calls that have no record of their own."""

    cell: int
    calls: int


class Approval(Record, frozen=True, kw_only=True, tag="approval"):
    """The decision about a request for consent. ``cell`` is the last cell that was decided about.

    ``of`` is the request's kind, ``sha256`` the hash of exactly this request. ``decision`` is the
    scope in which it is allowed, or "no". ``asked``: the user was asked just now and decided so.
    """

    cell: int
    of: str
    subjects: tuple[str, ...]
    decision: str
    sha256: str
    asked: bool = False
    why: str = ""


class Connections(Record, frozen=True, kw_only=True, tag="connections"):
    """Connections to listed hosts, counted by address. ``cell`` is the last cell decided about.

    ``reached`` are addresses that were connected to, or tried; ``refused`` are addresses of a
    listed name that may not be reached. Each has the listed name. ``others`` counts connections to
    further addresses. ``shared``: the session shares its network with its forks or the session that
    it was forked from, so the connections may be theirs.
    """

    cell: int
    reached: dict[str, int] = {}
    refused: dict[str, int] = {}
    others: int = 0
    shared: bool = False


class Artifact(Record, frozen=True, kw_only=True, tag="artifact"):
    """A file was copied out after a cell. ``name`` is the copy's."""

    cell: int
    name: str
    bytes: int
    type: str
    sha256: str


class Kept(Record, frozen=True, kw_only=True, tag="kept"):
    """A staged change was kept: a file was made, changed or deleted in the project.

    ``of`` is the session that staged it, ``by`` says who asked. ``cell`` is the last cell that this
    log's session decided about.
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
    """The host ended a guest. ``cell`` is the last cell that was decided about."""

    cell: int
    why: str
    detail: str = ""


class Crash(Record, frozen=True, kw_only=True, tag="crash"):
    """A guest ended by itself."""

    cell: int
    detail: str = ""


class Undo(Record, frozen=True, kw_only=True, tag="undo"):
    """Cells were undone, or the session went back to a ``checkpoint``.

    ``counts`` are the numbers of the undone cells that front ends show.
    """

    cell: int
    counts: tuple[int, ...] = ()
    checkpoint: str = ""


class Forked(Record, frozen=True, kw_only=True, tag="forked"):
    """The session began with a copy of another session's guest; ``of`` is that session's name."""

    of: str


class Restore(Record, frozen=True, kw_only=True, tag="restore"):
    """A snapshot took over: how much of the lost guest it does not have, and cells run again."""

    threads: int = 0
    tasks: int = 0
    files: int = 0
    connections: int = 0
    again: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


# --- the log itself ---------------------------------------------------------------------------


class Lost(Record, frozen=True, kw_only=True, tag="lost"):
    """The number of records before this one that were given up, since the log can't be written."""

    records: int


# --- values and foreign texts for records: bounded, and encodable ---------------------------------

#: The most characters of a text that a guest may have written.
_LONGEST: Final = 200


def clipped(text: str) -> str:
    """Return a text that a guest or a cell may have written, bounded."""
    return encodable(text[:_LONGEST])


def clipped_name(text: str) -> str:
    """Return a name, bounded, or "" if the text isn't one: a guest may send any text."""
    return text[:_LONGEST] if _is_name(text) else ""


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.lstrip("%").split("."))


def expressions_of(cell: types.ExecuteRequest, admitted: Iterable[str]) -> tuple[Expression, ...]:
    """Return the records of a cell's expressions. ``admitted`` are the names of those that run."""
    names = set(admitted)
    return tuple(
        Expression(sha256=sha256(text), decision="allowed" if name in names else "denied")
        for name, text in cell.user_expressions.items()
    )


def refused(record: Cell, why: str, *, instead_of: Decision) -> Cell:
    """Return a cell's record as a refusal; its ``instead_of`` expressions are refused, too."""
    expressions = (
        replace(each, decision="refused") if each.decision == instead_of else each
        for each in record.expressions
    )
    return replace(record, decision="refused", why=why, expressions=tuple(expressions))


def gap_of(gap: model.Gap) -> Gap:
    """Return the record of a gap."""
    return Gap(**{name: getattr(gap, name) for name in Gap.__struct_fields__})


def restore_of(restored: types.Restored) -> Restore:
    """Return the record of a snapshot that took over."""
    return Restore(
        threads=len(restored.threads),
        tasks=restored.tasks,
        files=restored.files,
        connections=restored.connections,
        again=restored.again,
        missed=restored.missed,
    )


def findings_of(findings: Sequence[analysis.Finding], *, sources: bool) -> tuple[Finding, ...]:
    """Return the records of findings. Without ``sources`` they have refused names, but no text."""
    return tuple(
        Finding(
            rule=finding.rule,
            line=finding.line,
            column=finding.column,
            subject=clipped(finding.subject) if sources or _is_name(finding.subject) else "",
            excerpt=clipped(finding.excerpt) if sources else "",
        )
        for finding in findings
    )
