"""The messages on the comms of JupyterLab's extension, both ways. No effects: ``lab`` sends them.

First the requests of front ends, as types that validate them; then ``LabComm``, which seals the
host's messages; then functions that put cells, calls, gaps and so on into words.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from cellblock.analysis import RULES
from cellblock.analysis.findings import LINE_END
from cellblock.host.audit import log
from cellblock.render import outcomes, policy_card
from cellblock.render.text import clip, visible
from cellblock.wire.messages import CHECKPOINT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cellblock.analysis import Finding
    from cellblock.host.audit.log import Entry
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.status import Views
    from cellblock.host.services.tools.calls import CallRecord
    from cellblock.host.session.types import Outcome
    from cellblock.policy.model import Gap
    from cellblock.render.text import Question

VERSION: Final = 1
SECRET_BYTES: Final = 32
#: Characters of a cell's first line, or of a record's words.
_MAX_LINE: Final = 120
#: Characters of a call's arguments, or of a record's text.
_MOST_WORDS: Final = 500
#: The states of calls, by the status of their record.
_CALL_STATES: Final = {
    "unfinished": "running",
    "ok": "done",
    "error": "failed",
    "withdrawn": "failed",
    "refused": "denied",
}
#: The words for each kind of audit record.
_RECORDS: Final = {
    "admission": "Approvals read",
    "approval": "Consent decided",
    "artifact": "File copied out",
    "cell": "Cell checked",
    "connections": "Addresses requested",
    "crash": "Guest crashed",
    "credential": "Key sent",
    "enforcement": "Confinement in place",
    "failure": "No guest could be started",
    "forked": "Copied from another session",
    "gap": "Not done for now",
    "kept": "File kept",
    "kill": "Guest ended by the host",
    "lost": "Records lost",
    "narrowing": "Policy narrowed",
    "outcome": "Cell ended",
    "refusals": "Further calls refused",
    "restore": "Variables restored",
    "session-end": "Session ended",
    "session-start": "Session began",
    "tool": "Tool called",
    "undo": "Went back",
    "withheld": "Output not shown",
}
#: The fields of records that say how it went. The first that a record has is told.
_ENDINGS: Final = ("decision", "outcome", "change", "error", "why", "status", "detail", "text")
#: The labels of a question's answers.
_LABELS: Final = {
    "once": "Allow once",
    "session": "Allow until the kernel ends",
    "always": "Always allow",
    "no": "Do not allow",
}


# --- requests of front ends -----------------------------------------------------------------------

_Id = Annotated[str, Meta(max_length=100)]


class Request(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A request of a front end. The answer names its ``id``."""

    id: _Id


_Paths = Annotated[list[Annotated[str, Meta(max_length=4_096)]], Meta(max_length=100)]


class Check(Request, frozen=True, tag="check"):
    """Return the findings for which this cell would be denied."""

    code: str


class Answer(Request, frozen=True, tag="answer"):
    """Answer the host's question that has this id."""

    choice: Annotated[str, Meta(max_length=20)]


class Refresh(Request, frozen=True, tag="refresh"):
    """Tell these views again."""

    what: Annotated[list[Annotated[str, Meta(max_length=20)]], Meta(max_length=10)]


class Diff(Request, frozen=True, tag="diff"):
    """Tell the differences between a staged file and the user's own."""

    path: Annotated[str, Meta(max_length=4_096)]


class Keep(Request, frozen=True, tag="keep"):
    """Keep staged files, all for no paths, as they were in the list with this digest."""

    digest: Annotated[str, Meta(max_length=64)]
    paths: _Paths


class Drop(Request, frozen=True, tag="drop"):
    """Drop staged files, all for no paths."""

    paths: _Paths


class Undo(Request, frozen=True, tag="undo"):
    """Go back to the state before the last cell."""

    @property
    def cell(self) -> str:
        """The cell that does the same."""
        return "%undo"


class Checkpoint(Request, frozen=True, tag="checkpoint"):
    """Keep the state under a name."""

    name: Annotated[str, Meta(pattern=CHECKPOINT_NAME)]

    @property
    def cell(self) -> str:
        """The cell that does the same."""
        return f"%checkpoint {self.name}"


class Restore(Request, frozen=True, tag="restore"):
    """Go back to a state that has a name."""

    name: Annotated[str, Meta(pattern=CHECKPOINT_NAME)]

    @property
    def cell(self) -> str:
        """The cell that does the same."""
        return f"%restore {self.name}"


#: Requests that are run as the cells that do the same, and wait for their turn.
CellRequest = Undo | Checkpoint | Restore
CELL_KINDS: Final = frozenset({"undo", "checkpoint", "restore"})
AnyRequest = Answer | Check | Diff | Drop | Keep | Refresh | CellRequest


def read_request(data: Any) -> Any:
    """Return a front end's data as a request. Raises msgspec.ValidationError."""
    return msgspec.convert(data, AnyRequest)


# --- one comm -------------------------------------------------------------------------------------


class LabComm:
    """One comm with the extension. ``secret`` is shared with the front end that opened it."""

    def __init__(self, name: str, secret: bytes, identities: list[bytes]) -> None:
        self.name = name
        self.identities = identities
        self._secret = secret
        #: The number of the next message.
        self._number = 0
        #: The views that were told last, by kind. The same view is not told twice.
        self.told: dict[str, Any] = {}
        #: Id of the question that was told, until its answer is told too.
        self.asked = ""
        #: The check that waits for its time.
        self.check: Check | None = None

    def seal(self, kind: str, fields: dict[str, Any]) -> dict[str, str]:
        """Return the data of a message: its content with the next number, and the HMAC of that."""
        content = {"n": self._number, "kind": kind, **fields}
        self._number += 1
        body = msgspec.json.encode(content)
        return {"body": body.decode(), "mac": hmac.digest(self._secret, body, "sha256").hex()}


def read_secret(data: Any) -> bytes | str:
    """Return the secret in the data of a ``comm_open``, as bytes, or as text why it is refused."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return f"this kernel speaks version {VERSION}: install the extension that fits it"
    try:
        secret = base64.b64decode(data.get("secret", ""), validate=True)
    except (binascii.Error, ValueError, TypeError):
        secret = b""
    if len(secret) != SECRET_BYTES:
        return f"its secret is not {SECRET_BYTES} bytes in base64"
    return secret


# --- in words -------------------------------------------------------------------------------------


def finding_words(findings: Iterable[Finding], code: str) -> list[dict[str, Any]]:
    """Return findings for an editor: lines from 1, columns from 0 in UTF-16 code units."""
    lines = LINE_END.split(code)
    rows = list[dict[str, Any]]()
    for finding in findings:
        line = max(1, min(finding.line, len(lines)))
        text = lines[line - 1]
        rows.append(
            {
                "rule": finding.rule,
                "title": RULES[finding.rule].title,
                "reason": visible(outcomes.reason(finding)),
                "remedy": visible(finding.remedy),
                "allows": [visible(text) for text in finding.allows],
                "line": line,
                "column": _units(text, finding.column),
                "end_line": line,
                "end_column": _units(text, finding.end_column),
            }
        )
    return rows


def _units(text: str, column: int) -> int:
    """Return how many UTF-16 code units a line has before a column."""
    before = text[:column]
    return len(before) + sum(char > "\uffff" for char in before)


def cell_words(cell: CellRun, *, ended: bool) -> dict[str, Any]:
    """Return the event of a cell: its state and, once it has ended, its usage."""
    request = cell.request
    outcome = cell.outcome
    usage = None if outcome is None else outcome.usage
    calls = None if outcome is None else outcome.tool_calls
    return {
        "number": cell.count,
        "id": visible((request.cell_id or "")[:100]),
        "source": first_line(request.code),
        "state": _ending(outcome, ended=ended),
        "seconds": None if usage is None else round(usage.wall_seconds, 6),
        "memory_bytes": None if usage is None else usage.peak_memory_bytes,
        "output_bytes": None if usage is None else usage.output_bytes,
        "calls": 0 if calls is None else len(calls.records) + calls.left_out,
    }


def call_json(record: CallRecord, cell: int) -> dict[str, Any]:
    """Return the event of a call that cell ``cell`` made, with secrets masked."""
    fields = record.as_dict()
    arguments = [*map(repr, fields["args"])]
    arguments += [f"{key}={value!r}" for key, value in fields["kwargs"].items()]
    return {
        "id": str(record.number),
        "cell": cell,
        "tool": visible(record.tool.name),
        "arguments": clip(visible(", ".join(arguments)[:_MOST_WORDS]), _MOST_WORDS),
        "state": _CALL_STATES[record.status],
        "seconds": None if record.status == "unfinished" else fields["seconds"],
    }


def gap_json(gap: Gap) -> dict[str, Any]:
    """Return a gap as it is told."""
    return {
        "title": visible(gap.consequence),
        "why": visible(f"{gap.asked}; here: {gap.actual}"),
        "remedy": visible(gap.remedy),
        "matters": gap.matters,
    }


def question_json(question: Question) -> dict[str, Any]:
    """Return a question as it is told: without the code, which only the prompt needs."""
    offers: Mapping[str, str] = {**question.offers, "no": ""}
    return {
        "title": f"cellblock asks: {question.asks}",
        "text": "\n".join((*question.shown, *question.begins, *filter(None, [question.note]))),
        "choices": [
            {"id": scope, "label": _LABELS[scope], "meaning": meaning}
            for scope, meaning in offers.items()
        ],
    }


def record_words(entries: Iterable[Entry]) -> Iterator[dict[str, str]]:
    """Yield the audit records of one session as they are told, in their order."""
    counts: dict[object, object] = {}
    for entry in entries:
        record = entry.record
        title = _RECORDS.get(entry.kind, entry.kind)
        if entry.kind == "cell":
            counts[record.get("cell")] = record.get("count")
        if entry.kind in {"cell", "outcome"} and (count := counts.get(record.get("cell"))):
            title = title.replace("Cell", f"Cell {count}")
        ending = next((str(record[field]) for field in _ENDINGS if record.get(field)), "")
        details = ", ".join(filter(None, [str(record.get("name", "")), ending]))
        yield {
            "time": str(record.get("time", ""))[:40],
            "kind": visible(entry.kind),
            "words": visible(clip(f"{title}: {details}" if details else title, _MAX_LINE)),
            "text": log.words(entry)[:_MOST_WORDS],
        }


def first_line(code: str) -> str:
    """Return the first line of a cell, made visible and cut."""
    return visible(code.strip().partition("\n")[0][:_MAX_LINE])


def failure(outcome: Outcome) -> str:
    """Return why a request that ran as a cell failed; empty if it did not fail."""
    if outcome.error is not None:
        return outcome.error.evalue
    if outcome.findings:
        return outcomes.summary(outcome.findings)
    if outcome.stopped is not None:
        return f"it was stopped: {outcome.stopped.why}"
    return str(outcome.unwritten or outcome.unadmitted or "")


def _ending(outcome: Outcome | None, *, ended: bool) -> str:
    """Return a cell's state, in the extension's words."""
    if outcome is None:
        return "refused" if ended else "running"
    if outcome.stopped is not None:
        return "interrupted" if outcome.stopped.why == "interrupt" else "killed"
    if outcome.status == "ok":
        return "done"
    if outcome.error is not None:
        return "interrupted" if outcome.error.ename == "KeyboardInterrupt" else "error"
    return "refused"


def unverified(views: Views) -> str:
    """Return why it is not known that all of the policy holds here; empty if it is known."""
    if views.in_force is None or views.failed:
        return f"{(views.problem()[1].evalue or 'No policy is in force').rstrip('.')}."
    if views.report is None:
        return "No guest has reported its locks yet."
    return policy_card.unverified(views.gaps, views.backend, views.proved)


def budget_rows(views: Views) -> Iterator[dict[str, Any]]:
    """Yield a row for each budget of the session: what is used of it, and the limit."""
    for name, spent in views.budgets.items():
        fields = spent()._asdict()
        for unit, used in fields.items():
            if (limit := fields.get(f"max_{unit}")) is not None:
                yield {"name": name, "used": used, "limit": limit, "unit": unit}
