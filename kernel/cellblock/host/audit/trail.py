"""What a session and its front enter in the audit log, and what waits while it can't be written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.errors import AuditError
from cellblock.host.audit import records
from cellblock.host.audit.log import body
from cellblock.host.terms import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellblock.analysis import Finding
    from cellblock.host.audit.log import Log
    from cellblock.host.outcome import Cell, Outcome, Restored, Stopped
    from cellblock.host.relay.reach import Account
    from cellblock.host.terms import Terms
    from cellblock.host.tools.record import Record as Call
    from cellblock.policy.enforcement import Enforcement, Gap

#: Bytes of records that wait for a log that can't be written, but for one record of any size.
MOST_WAITING: Final = 1 << 20
_BY_ITSELF: Final = "crash"


class Audit:
    """A session's entries; without a ``log`` nothing is entered, and nothing is required."""

    def __init__(
        self, log: Log | None = None, *, required: bool = False, sources: bool = False
    ) -> None:
        self._log, self._required, self._sources = log, required, sources
        self._waiting: list[bytes] = []
        self._lost = self._cells = 0
        #: Why the log can't be written now, and whether the user has yet to be told.
        self.problem: AuditError | None = None
        self.untold = False

    def enter(self, record: records.Record, *, hurry: bool = False) -> AuditError | None:
        """Write a record. One that can't be written waits for the next; returned is why.

        In a ``hurry``, because a cell waits for it, what others did to the file is left to the next
        record to find.
        """
        if self._log is None:
            return None
        self._hold(record)
        try:
            self._log.write(self._due(), hurry=hurry)
        except AuditError as exc:
            self.untold = self.untold or self.problem is None
            self.problem = exc
        else:
            self._waiting, self._lost = [], 0
            self.problem, self.untold = None, False
        return self.problem

    def close(self) -> None:
        """Write that the session ended in good order."""
        if self._log is not None:
            self.enter(records.SessionEnd(cells=self._cells))
            if self.problem is not None:
                lost = len(self._waiting) + self._lost
                print(f"cellblock: {lost} audit records lost: {self.problem}", file=sys.stderr)  # noqa: T201
            self._log.close()
            self._log = None

    def _hold(self, record: records.Record) -> None:
        entry = body(record)
        waiting = sum(map(len, self._waiting))
        if self._lost or (waiting and waiting + len(entry) > MOST_WAITING):
            self._lost += 1
        else:
            self._waiting.append(entry)

    def _due(self) -> list[bytes]:
        if not self._lost:
            return self._waiting
        return [*self._waiting, body(records.Lost(records=self._lost))]

    # --- cells --------------------------------------------------------------------------------

    def decided(
        self, cell: Cell, findings: Sequence[Finding], admitted: Iterable[str]
    ) -> AuditError | None:
        """Enter a decision about a cell before it starts; ``admitted`` are its expressions' names.

        Returned is why it may not start after all: the log is required and can't be written.
        """
        if self._log is None:
            return None
        self._cells += 1
        decision: records.Decision = "denied" if findings else "allowed"
        record = self._decision(cell, decision, findings, admitted)
        problem = self.enter(record, hurry=not findings)
        if problem is None or findings or not self._required:
            return None
        if not self._lost:
            why = "the audit log could not be written"
            self._waiting[-1] = body(replace(record, decision="refused", why=why))
        self.untold = False
        return problem

    def too_long(self, raw: str, count: int) -> None:
        """Enter a cell that was refused before it was looked at."""
        if self._log is not None:
            self._cells += 1
            why, digest = "it is too long to be looked at", records.sha256(raw)
            self.enter(
                records.Cell(
                    cell=self._cells, count=count, sha256=digest, decision="refused", why=why
                )
            )

    def _decision(
        self,
        cell: Cell,
        decision: records.Decision,
        findings: Sequence[Finding],
        admitted: Iterable[str],
    ) -> records.Cell:
        return records.Cell(
            cell=self._cells,
            count=cell.execution_count,
            sha256=records.sha256(cell.raw),
            decision=decision,
            findings=records.findings_of(findings, sources=self._sources) if findings else (),
            expressions=_expressions(cell, admitted) if cell.user_expressions else (),
            silent=cell.silent,
            source=records.whole(cell.raw) if self._sources else "",
        )

    @property
    def number(self) -> int:
        """The number of the last decision."""
        return self._cells

    def ended(self, number: int, outcome: Outcome) -> None:
        """Enter how an allowed cell ended."""
        if self._log is None:
            return
        error, stopped = outcome.error, outcome.stopped
        self.enter(
            records.Outcome(
                cell=number,
                status=outcome.status,
                error=records.name(error.ename) if error is not None else "",
                message=records.said(error.evalue) if error and self._sources else "",
                why=stopped.why if stopped is not None else "",
                findings=records.findings_of(outcome.findings, sources=self._sources),
                usage=outcome.usage.as_dict() if outcome.usage is not None else {},
            )
        )

    def withheld(
        self,
        sizes: Mapping[str, int],
        types: Iterable[str],
        messages: int,
        comms: Iterable[str] = (),
    ) -> None:
        """Enter what the last cell said and nobody was shown."""
        self.enter(
            records.Withheld(
                cell=self._cells,
                bytes=dict(sizes),
                types=tuple(map(records.said, types)),
                messages=messages,
                comms=tuple(map(records.said, comms)),
            )
        )

    def called(self, call: Call) -> None:
        """Enter a call of a tool, without what it returned."""
        if self._log is None:
            return
        told = call.as_dict()
        error = told.get("error", {})
        self.enter(
            records.Tool(
                cell=self._cells,
                name=told["name"],
                outcome=told["status"],
                seconds=told["seconds"],
                args=tuple(told["args"]),
                kwargs=told["kwargs"],
                error=records.name(error.get("type", "")),
                message=records.said(error.get("message", "")) if self._sources else "",
            )
        )

    def asked(self, account: Account) -> None:
        """Enter what guests asked the relay for, if they did."""
        if account:
            self.enter(
                records.Connections(
                    cell=self._cells,
                    reached=_bounded(account.reached),
                    refused=_bounded(account.refused),
                    others=account.others,
                )
            )

    def narrowed(self, terms: Terms) -> None:
        """Enter that the policy becomes narrower, as the last cell that was decided asks for."""
        self.enter(
            records.Narrowing(
                fields={name: records.said(value) for name, value in terms.changed.items()},
                digest=terms.digest,
                cell=self._cells,
                guest="" if terms.step is Step.none else terms.step.value,
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
        """Enter what is enforced in a new guest, and when probes saw that."""
        self.enter(
            records.Enforcement(
                capabilities={name: str(each.status) for name, each in enforcement.items()},
                locks={name: records.said(text) for name, text in locks.items()},
                gaps=tuple(map(_gap, gaps)),
                proved=records.said(proved),
            )
        )

    def lost(self, stopped: Stopped) -> None:
        """Enter that a guest is no more, and what took its place."""
        cell, detail = self._cells, records.said(stopped.detail)
        if stopped.why == "undo":
            self.enter(records.Undo(cell=cell, counts=stopped.undone))
        elif stopped.why == _BY_ITSELF:
            self.enter(records.Crash(cell=cell, detail=detail))
        else:
            self.enter(records.Kill(cell=cell, why=stopped.why, detail=detail))
        if stopped.restored is not None:
            self.enter(_restore(stopped.restored))


def _expressions(cell: Cell, admitted: Iterable[str]) -> tuple[records.Expression, ...]:
    names = set(admitted)
    return tuple(
        records.Expression(
            sha256=records.sha256(text), decision="allowed" if name in names else "denied"
        )
        for name, text in cell.user_expressions.items()
    )


def _bounded(times: Mapping[str, int]) -> dict[str, int]:
    return {records.said(address): number for address, number in times.items()}


def _gap(gap: Gap) -> records.Gap:
    return records.Gap(
        capability=gap.capability,
        status=str(gap.status),
        asked=gap.asked,
        consequence=gap.consequence,
        actual=gap.actual,
        contradicted=gap.contradicted,
    )


def _restore(restored: Restored) -> records.Restore:
    return records.Restore(
        threads=len(restored.threads),
        tasks=restored.tasks,
        files=restored.files,
        connections=restored.connections,
        again=restored.again,
        missed=restored.missed,
    )
