"""The recorder: the methods by which a session and its front end write audit records.

``Audit`` has a method for each event, which makes a record of it (``records``) and writes that to
the session's ``Log``. It also knows when nothing may run, because the log is full, or is required
and can't be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.analysis.admission import sha256
from cellblock.host.audit import records
from cellblock.host.session.types import NarrowingStep
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellblock.analysis import Finding
    from cellblock.analysis.admission import Admitted
    from cellblock.errors import AuditError
    from cellblock.host.audit.log import Entry, Log
    from cellblock.host.consent.approver import Decision
    from cellblock.host.consent.request import ApprovalRequest
    from cellblock.host.services.artifacts import Artifact
    from cellblock.host.services.changes import Kept
    from cellblock.host.services.relay import RelayCounts
    from cellblock.host.services.tools.calls import CallRecord as Call
    from cellblock.host.services.tools.calls import KeyUse
    from cellblock.host.session.types import ExecuteRequest, Outcome, SessionSettings, Stopped
    from cellblock.policy.model import Enforcement, Gap


#: Why a cell or request is refused after it was allowed.
UNWRITTEN: Final = "the audit log could not be written"
USED_UP: Final = "the audit log has all the bytes that a session's may"


class Audit:
    """The audit of a session. Without a ``log``, all methods do nothing, and nothing is barred.

    ``required``: nothing may run that can't be recorded. ``sources``: the text of cells and of
    exceptions is recorded, too.
    """

    def __init__(
        self, log: Log | None = None, *, required: bool = False, sources: bool = False
    ) -> None:
        self._log = log
        self._required = required
        self._sources = sources
        #: The number of cells that were decided about.
        self._cells = 0

    @property
    def session(self) -> str:
        """The session's name in its log; empty without a log."""
        return self._log.session if self._log is not None else ""

    def tail(self, most: int) -> list[Entry]:
        """Return at most ``most`` of the last records; none without a log."""
        return self._log.tail(most) if self._log is not None else []

    def new_problem(self) -> AuditError | None:
        """Return why the log can't be written, once for each time it begins, to tell the user."""
        return self._log.new_problem() if self._log is not None else None

    def enter(self, record: records.Record, *, hurry: bool = False) -> AuditError | None:
        """Write a record. Return why it can't be written now, or None. ``hurry``: see ``Log``."""
        return self._log.enter(record, hurry=hurry) if self._log is not None else None

    def barred(self) -> AuditError | None:
        """Return why nothing may run, or None.

        That is if the log is full, or if it is required and can't be written.
        """
        if self._log is None:
            return None
        return self._log.used_up() or (self._log.problem() if self._required else None)

    def close(self) -> None:
        """Record the regular end of the session, and close the log."""
        if self._log is not None:
            self._log.end(records.SessionEnd(cells=self._cells))
            self._log = None

    # --- cells --------------------------------------------------------------------------------

    def decided(
        self,
        cell: ExecuteRequest,
        findings: Sequence[Finding],
        admitted: Iterable[str],
        *,
        by: str = "",
    ) -> AuditError | None:
        """Record the decision about a cell before it starts. Return why it may not start, or None.

        An allowed cell may not start if the log is full, or if it is required and can't be written.
        ``admitted`` are the names of its user_expressions that may run. ``by`` says what admitted
        the cell, under a policy that does not admit every cell.
        """
        if self._log is None:
            return None
        self._cells += 1
        decision: records.Decision = "denied" if findings else "allowed"
        record = self._decision(cell, decision, findings, admitted)
        if not findings and (full := self._log.used_up()) is not None:
            self.enter(records.refused(record, USED_UP, instead_of="allowed"))
            return full
        if by:
            record = replace(record, by=records.clipped(by))
        problem = self.enter(record, hurry=not findings)
        if problem is None or findings or not self._required:
            return None
        self._log.amend(records.refused(record, UNWRITTEN, instead_of="allowed"))
        self._log.new_problem()  # taken, since the cell's outcome tells the user
        return problem

    def undecided(self, cell: ExecuteRequest, why: str) -> None:
        """Record a cell that was refused because admission could not decide about it."""
        if self._log is not None:
            self._cells += 1
            record = self._decision(cell, "refused", (), ())
            # Its expressions weren't judged either, so they are refused, not denied.
            self.enter(records.refused(record, why, instead_of="denied"))

    def in_force(self, admitted: Admitted, source: str) -> None:
        """Record which cells or templates are admitted from now on."""
        templates = admitted.templates.values() if admitted.kind == "template" else ()
        self.enter(
            records.Admission(
                admission=admitted.kind,
                source=encodable(source),
                cells=len(admitted.cells),
                templates={each.name: sha256(each.source) for each in templates},
            )
        )

    def too_long(self, raw: str, count: int) -> None:
        """Record a cell that was refused without analysis, because it is too long."""
        if self._log is not None:
            self._cells += 1
            self.enter(
                records.Cell(
                    cell=self._cells,
                    count=count,
                    sha256=sha256(raw),
                    decision="refused",
                    why="it is too long to be looked at",
                )
            )

    def _decision(
        self,
        cell: ExecuteRequest,
        decision: records.Decision,
        findings: Sequence[Finding],
        admitted: Iterable[str],
    ) -> records.Cell:
        return records.Cell(
            cell=self._cells,
            count=cell.execution_count,
            sha256=sha256(cell.code),
            decision=decision,
            findings=records.findings_of(findings, sources=self._sources) if findings else (),
            expressions=records.expressions_of(cell, admitted) if cell.user_expressions else (),
            silent=cell.silent,
            source=encodable(cell.code) if self._sources else "",
        )

    @property
    def number(self) -> int:
        """The number of the last cell that was decided about."""
        return self._cells

    def ended(self, number: int, outcome: Outcome) -> None:
        """Record the outcome of an allowed cell."""
        if self._log is None:
            return
        error = outcome.error
        stopped = outcome.stopped
        self.enter(
            records.Outcome(
                cell=number,
                status=outcome.status,
                error=records.clipped_name(error.ename) if error is not None else "",
                message=records.clipped(error.evalue) if error and self._sources else "",
                why=stopped.why if stopped is not None else "",
                findings=records.findings_of(outcome.findings, sources=self._sources),
                usage=outcome.usage.as_dict() if outcome.usage is not None else {},
            )
        )

    def cut_off(self, number: int) -> None:
        """Record that an allowed cell had not ended when its session ended."""
        self.enter(records.Outcome(cell=number, status="stopped", why="shutdown"))

    def withheld(
        self,
        sizes: Mapping[str, int],
        types: Iterable[str],
        messages: int,
        comms: Iterable[str] = (),
        *,
        cell: int = 0,
    ) -> None:
        """Record a cell's output that was withheld; the last cell's unless ``cell`` is given.

        ``sizes`` are bytes by kind, ``types`` the mime types, ``messages`` the number of messages,
        ``comms`` the targets of widgets.
        """
        self.enter(
            records.Withheld(
                cell=cell or self._cells,
                bytes=dict(sizes),
                types=tuple(map(records.clipped, types)),
                messages=messages,
                comms=tuple(map(records.clipped, comms)),
            )
        )

    def called(self, call: Call) -> None:
        """Record a call of a tool, without its result, and without arguments if the log is full."""
        if self._log is None:
            return
        fields = call.as_dict()
        error = fields.get("error", {})
        full = self._log.used_up() is not None
        self.enter(
            records.Tool(
                cell=call.cell or self._cells,
                name=fields["name"],
                outcome=fields["status"],
                seconds=fields["seconds"],
                args=() if full else tuple(fields["args"]),
                kwargs={} if full else fields["kwargs"],
                error=records.clipped_name(error.get("type", "")),
                message=records.clipped(error.get("message", "")) if self._sources else "",
                tokens=call.tokens,
            )
        )

    def key_sent(self, cell: int, use: KeyUse) -> None:
        """Record that a request carries a credential: its name, and where the request goes."""
        self.enter(
            records.Credential(
                cell=cell or self._cells,
                name=use.credential,
                host=records.clipped(use.host),
                method=use.method,
                path=records.clipped(use.path),
            )
        )

    def refused_more(self, calls: int) -> None:
        """Record the number of refused calls that have no record of their own."""
        self.enter(records.Refusals(cell=self._cells, calls=calls))

    def approved(self, approval_request: ApprovalRequest, decision: Decision) -> str:
        """Record the decision about a request for consent.

        Return why the request may not be granted after all, or an empty string: that is if the log
        is required and can't be written.
        """
        record = records.Approval(
            cell=self._cells,
            of=approval_request.of,
            subjects=tuple(map(records.clipped, approval_request.subjects)),
            decision=decision.scope or "no",
            sha256=approval_request.sha256,
            asked=decision.asked,
            why=decision.why,
        )
        problem = self.enter(record)
        if problem is None or decision.scope is None or self._log is None or not self._required:
            return ""
        self._log.amend(replace(record, decision="no", why=UNWRITTEN))
        return UNWRITTEN

    def connected(self, account: RelayCounts) -> None:
        """Record the connections of guests to listed hosts, if there were any."""
        if account:
            self.enter(
                records.Connections(
                    cell=self._cells,
                    reached={
                        records.clipped(address): count
                        for address, count in account.reached.items()
                    },
                    refused={
                        records.clipped(address): count
                        for address, count in account.refused.items()
                    },
                    others=account.others,
                    shared=account.shared,
                )
            )

    def exported(self, artifacts: Iterable[Artifact]) -> None:
        """Record the artifacts that were copied out after the last cell."""
        for artifact in artifacts:
            self.enter(
                records.Artifact(
                    cell=self._cells,
                    name=encodable(artifact.name),
                    bytes=artifact.size_bytes,
                    type=artifact.content_type,
                    sha256=artifact.sha256,
                )
            )

    def kept(self, kept_files: Iterable[Kept], staged_in: str, by: str) -> None:
        """Record the staged changes that were kept, i.e. made in the project.

        They were staged by the session ``staged_in``. ``by`` says who asked to keep them.
        """
        for each in kept_files:
            self.enter(
                records.Kept(
                    cell=self._cells,
                    of=staged_in,
                    name=encodable(each.change.name),
                    change=each.change.kind,
                    bytes=each.change.size or 0,
                    by=by,
                    sha256=each.sha256,
                )
            )

    def narrowed(self, settings: SessionSettings) -> None:
        """Record a narrowing of the policy, which the last cell that was decided about asks for."""
        self.enter(
            records.Narrowing(
                fields={name: records.clipped(value) for name, value in settings.changed.items()},
                digest=settings.digest,
                cell=self._cells,
                guest="" if settings.step is NarrowingStep.none else settings.step.value,
            )
        )

    # --- guests -------------------------------------------------------------------------------

    def locked(
        self,
        enforcement: Mapping[str, Enforcement],
        gaps: Iterable[Gap],
        locks: Mapping[str, str],
        proved: str = "",
    ) -> None:
        """Record the enforcement of a new guest, and when the probes proved it."""
        self.enter(
            records.Enforcement(
                capabilities={name: str(each.status) for name, each in enforcement.items()},
                locks={name: records.clipped(text) for name, text in locks.items()},
                gaps=tuple(map(records.gap_of, gaps)),
                proved=records.clipped(proved),
            )
        )

    def lost(self, stopped: Stopped, *, cell: int = 0) -> None:
        """Record the end of a guest, and the snapshot that took its place if one did.

        ``cell`` is the number of the cell in which it ended; by default the last one.
        """
        cell, detail = cell or self._cells, records.clipped(stopped.detail)
        if stopped.why == "undo":
            self.enter(records.Undo(cell=cell, counts=stopped.undone, checkpoint=detail))
        elif stopped.why == "fork":
            self.enter(records.Forked(of=detail))
        elif stopped.why == "crash":  # the guest ended by itself
            self.enter(records.Crash(cell=cell, detail=detail))
        else:
            self.enter(records.Kill(cell=cell, why=stopped.why, detail=detail))
        if stopped.restored is not None:
            self.enter(records.restore_of(stopped.restored))
