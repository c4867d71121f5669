"""A session: the one object that knows how a cell is run.

The kernel, and whatever other fronts there are, hand it cells and listen; it analyses them and
tells how each ended. What happens in between is ``host.course``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.analysis import analyse, analyse_expression, transform
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.host import undo
from cellblock.host.audit import records
from cellblock.host.course import Course
from cellblock.host.outcome import Cell, Outcome, Refused, Stopped, outcome_of, refusal
from cellblock.host.request import Request
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import PolicyError
    from cellblock.host.narrower import Narrower

_SHOWS_POLICY = f"%{SHOWS_POLICY}"


class Session(Course):
    """Cells in, outcomes out."""

    def start(self) -> None:
        """Have a guest ready before the first request."""
        self._desk.open(self._equipped, self._refused)
        self._ready()

    def _equipped(self, tools: tuple[messages.Tool, ...]) -> None:
        self._front.equipped(tools)
        self._ready()

    def _refused(self, error: PolicyError) -> None:
        self._audit.enter(records.Failure(detail=records.said(str(error))))
        self._front.refused(error)
        self._fail(str(error))

    def execute(self, cell: Cell, done: Callable[[Outcome], None]) -> None:
        """Run ``cell``; ``done`` gets its outcome, at once when it is denied.

        What is decided about it is on the audit log before it starts (promise P9).
        """
        if _SHOWS_POLICY in cell.raw and (narrower := self._narrower_for(cell.raw)) is not None:
            narrower.settle(cell, self._rules, done)
            return
        source = transform(cell.raw).source
        findings = analyse(source, self._rules)
        expressions, refused = ({}, {}) if findings else self._admit(cell.user_expressions)
        unwritten = self._audit.decided(cell, findings, expressions)
        if findings or unwritten is not None:
            done(
                Outcome("denied" if findings else "refused", findings=findings, unwritten=unwritten)
            )
            return
        message = messages.Execute(
            id=self._next_id(),
            source=source,
            raw=cell.raw,
            execution_count=cell.execution_count,
            silent=cell.silent,
            store_history=cell.store_history,
            user_expressions=expressions,
            allow_stdin=cell.allow_stdin,
        )

        number = self._audit.number

        def finish(reply: messages.Done | Stopped | Refused | str) -> None:
            outcome = outcome_of(reply, refused, self._usage, self._made)
            done(outcome)
            self._audit.ended(number, outcome)  # nobody waits for it

        steps, guest = undo.asked_for(cell.raw), self._keeper.guest
        if steps and guest is not None and self._request is None:
            self._step_back(Request(message, finish), steps, guest)
        else:
            self._submit(message, finish)

    def _narrower_for(self, source: str) -> Narrower | None:
        """Return what settles a cell that narrows the policy and says nothing else."""
        may = not self._rules.language or SHOWS_POLICY in self._rules.magics
        if self._scope is None or not may:
            return None
        from cellblock.host import narrowing  # noqa: PLC0415 - few sessions get here

        if not narrowing.is_alone(source):
            return None
        from cellblock.host.narrower import Answering, Narrower  # noqa: PLC0415 - as above

        answering = Answering(self._submit, self._finish, lambda: self._request)
        return Narrower(self._scope, self._audit, self._keeper, self, answering)

    def _admit(self, expressions: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        """Split user_expressions into those that may run and the replies of those that may not."""
        admitted, refused = {}, {}
        for name, text in expressions.items():
            findings = analyse_expression(text, self._rules)
            if findings:
                refused[name] = refusal(findings)
            else:
                admitted[name] = text
        return admitted, refused

    def complete(self, code: str, cursor: int, done: Callable[[Any], None]) -> None:
        """Ask the guest for completions; ``done`` gets ``Completed`` or None."""
        message = messages.Complete(id=self._next_id(), code=code, cursor=cursor)
        self._submit(message, _only(messages.Completed, done))

    def inspect(self, code: str, cursor: int, detail: int, done: Callable[[Any], None]) -> None:
        """Ask the guest about a name; ``done`` gets ``Inspected`` or None."""
        message = messages.Inspect(id=self._next_id(), code=code, cursor=cursor, detail=detail)
        self._submit(message, _only(messages.Inspected, done))

    def comm(
        self,
        kind: str,
        content: Any,
        metadata: Any,
        buffers: Any,
        done: Callable[[Stopped | str | None], None],
    ) -> None:
        """Hand a comm message to the guest; ``done`` gets what kept it from being handled, or None.

        Its handler may run as long as a cell: it is what a button's click starts.
        """
        message = messages.CommIn(
            id=self._next_id(),
            kind=kind,
            content=content,
            metadata=metadata,
            buffers=buffers,
        )
        self._submit(
            message, lambda reply: done(None if isinstance(reply, messages.Done) else reply)
        )


def _only(kind: type, done: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda reply: done(reply if isinstance(reply, kind) else None)
