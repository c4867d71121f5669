"""What crosses the lab comm: requests of a front end, and what the host says, sealed and in words.

No effects here: ``lab`` says when.
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
#: Characters of the first line of a cell, and of a call's arguments or a record.
_LINE: Final = 120
_MOST_WORDS: Final = 500
_CALL_STATES: Final = {
    "unfinished": "running",
    "ok": "done",
    "error": "failed",
    "withdrawn": "failed",
    "refused": "denied",
}
#: What each record of the audit log tells of; the fields that say how it went, the first there is.
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
_ENDINGS: Final = ("decision", "outcome", "change", "error", "why", "status", "detail", "text")
_LABELS: Final = {
    "once": "Allow once",
    "session": "Allow until the kernel ends",
    "always": "Always allow",
    "no": "Do not allow",
}


# --- what a front end asks ------------------------------------------------------------------------

_Id = Annotated[str, Meta(max_length=100)]


class Request(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A request, which is answered under its ``id``."""

    id: _Id


_Paths = Annotated[list[Annotated[str, Meta(max_length=4_096)]], Meta(max_length=100)]


class Check(Request, frozen=True, tag="check"):
    """Look for what would keep this cell from being run."""

    code: str


class Answer(Request, frozen=True, tag="answer"):
    """Answer the question of this id."""

    choice: Annotated[str, Meta(max_length=20)]


class Refresh(Request, frozen=True, tag="refresh"):
    """Say these again."""

    what: Annotated[list[Annotated[str, Meta(max_length=20)]], Meta(max_length=10)]


class Diff(Request, frozen=True, tag="diff"):
    """Show how a staged file differs from the user's."""

    path: Annotated[str, Meta(max_length=4_096)]


class Keep(Request, frozen=True, tag="keep"):
    """Keep staged files, or all, as they were in the list with this digest."""

    digest: Annotated[str, Meta(max_length=64)]
    paths: _Paths


class Drop(Request, frozen=True, tag="drop"):
    """Drop staged files, or all."""

    paths: _Paths


class Undo(Request, frozen=True, tag="undo"):
    """Go back to the state before the last cell."""

    @property
    def cell(self) -> str:
        """The cell that does it."""
        return "%undo"


class Checkpoint(Request, frozen=True, tag="checkpoint"):
    """Keep the state under a name."""

    name: Annotated[str, Meta(pattern=CHECKPOINT_NAME)]

    @property
    def cell(self) -> str:
        """The cell that does it."""
        return f"%checkpoint {self.name}"


class Restore(Request, frozen=True, tag="restore"):
    """Go back to a state that has a name."""

    name: Annotated[str, Meta(pattern=CHECKPOINT_NAME)]

    @property
    def cell(self) -> str:
        """The cell that does it."""
        return f"%restore {self.name}"


#: Are done as the cells that say so, and wait for their turn as those do.
CellRequest = Undo | Checkpoint | Restore
CELL_KINDS: Final = frozenset({"undo", "checkpoint", "restore"})
AnyRequest = Answer | Check | Diff | Drop | Keep | Refresh | CellRequest


def read_request(data: Any) -> Any:
    """Return the request that a front end's data is. Raises msgspec.ValidationError."""
    return msgspec.convert(data, AnyRequest)


# --- one comm -------------------------------------------------------------------------------------


class LabComm:
    """One comm, as the front end that opened it knows it; ``secret`` is theirs and the host's."""

    def __init__(self, name: str, secret: bytes, identities: list[bytes]) -> None:
        self.name = name
        self.identities = identities
        self._secret = secret
        self._number = 0
        #: What it was told last, by kind: the same is not told twice.
        self.told: dict[str, Any] = {}
        #: The question that it was told of.
        self.asked = ""
        #: A check that waits.
        self.check: Check | None = None

    def seal(self, kind: str, fields: dict[str, Any]) -> dict[str, str]:
        """Return the data of a message: its next number, and a code for exactly that."""
        content = {"n": self._number, "kind": kind, **fields}
        self._number += 1
        body = msgspec.json.encode(content)
        return {"body": body.decode(), "mac": hmac.digest(self._secret, body, "sha256").hex()}


def read_secret(data: Any) -> bytes | str:
    """Return the secret of a ``comm_open``'s data, or why there is none."""
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
    """Return findings as an editor takes them: lines from 1, columns in UTF-16 code units."""
    lines = LINE_END.split(code)
    told = list[dict[str, Any]]()
    for one in findings:
        line = max(1, min(one.line, len(lines)))
        text = lines[line - 1]
        told.append(
            {
                "rule": one.rule,
                "title": RULES[one.rule].title,
                "reason": visible(outcomes.reason(one)),
                "remedy": visible(one.remedy),
                "allows": [visible(text) for text in one.allows],
                "line": line,
                "column": _units(text, one.column),
                "end_line": line,
                "end_column": _units(text, one.end_column),
            }
        )
    return told


def _units(text: str, column: int) -> int:
    """Return how many UTF-16 code units come before a column, within the text."""
    before = text[:column]
    return len(before) + sum(char > "\uffff" for char in before)


def cell_words(cell: CellRun, *, ended: bool) -> dict[str, Any]:
    """Return what is told of a cell: that it runs, or how it ended and what it took."""
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


def call_words(record: CallRecord, cell: int) -> dict[str, Any]:
    """Return what is told of a call, with secrets masked."""
    fields = record.as_dict()
    given = [*map(repr, fields["args"])]
    given += [f"{key}={value!r}" for key, value in fields["kwargs"].items()]
    return {
        "id": str(record.number),
        "cell": cell,
        "tool": visible(record.tool.name),
        "arguments": clip(visible(", ".join(given)[:_MOST_WORDS]), _MOST_WORDS),
        "state": _CALL_STATES[record.status],
        "seconds": None if record.status == "unfinished" else fields["seconds"],
    }


def gap_words(gap: Gap) -> dict[str, Any]:
    """Return what is told of a gap."""
    return {
        "title": visible(gap.consequence),
        "why": visible(f"{gap.asked}; here: {gap.actual}"),
        "remedy": visible(gap.remedy),
        "matters": gap.matters,
    }


def question_words(asked: Question) -> dict[str, Any]:
    """Return what is told of a question, but whose it is; the code in its prompt is left out."""
    offers: Mapping[str, str] = {**asked.offers, "no": ""}
    return {
        "title": f"cellblock asks: {asked.asks}",
        "text": "\n".join((*asked.shown, *asked.begins, *filter(None, [asked.note]))),
        "choices": [
            {"id": scope, "label": _LABELS[scope], "meaning": meaning}
            for scope, meaning in offers.items()
        ],
    }


def record_words(entries: Iterable[Entry]) -> Iterator[dict[str, str]]:
    """Yield what is told of records of the audit log, of one session and in order."""
    counts: dict[object, object] = {}
    for entry in entries:
        record = entry.record
        what = _RECORDS.get(entry.kind, entry.kind)
        if entry.kind == "cell":
            counts[record.get("cell")] = record.get("count")
        if entry.kind in {"cell", "outcome"} and (count := counts.get(record.get("cell"))):
            what = what.replace("Cell", f"Cell {count}")
        ending = next((str(record[each]) for each in _ENDINGS if record.get(each)), "")
        details = ", ".join(filter(None, [str(record.get("name", "")), ending]))
        yield {
            "time": str(record.get("time", ""))[:40],
            "kind": visible(entry.kind),
            "words": visible(clip(f"{what}: {details}" if details else what, _LINE)),
            "text": log.words(entry)[:_MOST_WORDS],
        }


def first_line(code: str) -> str:
    """Return the first line of a cell, visible and not too long."""
    return visible(code.strip().partition("\n")[0][:_LINE])


def failure(outcome: Outcome) -> str:
    """Return why a cell of the extension's came to nothing, or nothing."""
    if outcome.error is not None:
        return outcome.error.evalue
    if outcome.findings:
        return outcomes.summary(outcome.findings)
    if outcome.stopped is not None:
        return f"it was stopped: {outcome.stopped.why}"
    return str(outcome.unwritten or outcome.unadmitted or "")


def _ending(outcome: Outcome | None, *, ended: bool) -> str:
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
    """Return why it is not known that all of the policy holds here, or nothing."""
    if views.in_force is None or views.failed:
        return f"{(views.problem()[1].evalue or 'No policy is in force').rstrip('.')}."
    if views.report is None:
        return "No guest has reported its locks yet."
    return policy_card.unverified(views.gaps, views.backend, views.proved)


def budget_rows(views: Views) -> Iterator[dict[str, Any]]:
    """Yield a row for each of a session's budgets: how much of it is used."""
    for name, ask in views.budgets.items():
        fields = ask()._asdict()
        for unit, used in fields.items():
            if (limit := fields.get(f"max_{unit}")) is not None:
                yield {"name": name, "used": used, "limit": limit, "unit": unit}
