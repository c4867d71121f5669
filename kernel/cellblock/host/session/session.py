"""A session: the one object that knows how a cell is run.

The kernel, and whatever other fronts there are, hand it cells and listen; it analyses them and
tells how each ended. What happens in between is ``host.session.requests``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from cellblock.analysis import analyse, analyse_expression, transform
from cellblock.analysis.analyser import as_written
from cellblock.analysis.imports import granting
from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.errors import AdmissionError
from cellblock.host.audit import records
from cellblock.host.audit.recorder import UNWRITTEN
from cellblock.host.session import requests
from cellblock.host.session.requests import Course, Request
from cellblock.host.session.types import Cell, Outcome, Refused, Stopped, outcome_of, refusal
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.admission import Ruling
    from cellblock.errors import AuditError, PolicyError
    from cellblock.host.consent.approver import Approver
    from cellblock.host.consent.prompt import Decision
    from cellblock.host.session.narrowing import Narrower


_SHOWS_POLICY = f"%{SHOWS_POLICY}"


def _nothing() -> None: ...


class Session(Course):
    """Cells in, outcomes out."""

    #: The number of the cell that was sent and has not ended.
    _sent = 0

    def start(self) -> None:
        """Have a guest ready before the first request."""
        self._desk.open(self._equipped, self._refused)
        self._under_way.ready()

    def _equipped(self, tools: tuple[messages.Tool, ...]) -> None:
        if self._approver is not None:
            self._approver.folders = self._desk.folders
        self._front.equipped(tools)
        self._under_way.ready()

    def _refused(self, error: PolicyError) -> None:
        self._audit.enter(records.Failure(detail=records.said(str(error))))
        self._front.refused(error)
        self._under_way.fail(str(error))

    def execute(
        self, cell: Cell, done: Callable[[Outcome], None], decided: Callable[[], None] = _nothing
    ) -> None:
        """Run ``cell``; ``done`` gets its outcome, at once when it is denied.

        What is decided about it is on the audit log before it starts (promise P9). Where the user
        may approve of what it imports, it is decided when he has answered. ``decided`` is called
        when it is, or more than once.
        """
        approver = self._approver
        if approver is None:
            self._decide(cell, done)
            decided()
            return

        def ended(outcome: Outcome) -> None:
            approver.end()
            done(outcome)

        def answered(answer: Decision) -> None:
            self._decide(cell, ended, answer)
            decided()

        approver.begin(cell)
        self._decide(cell, ended, answered=answered)
        if not approver.asks:
            decided()

    def _decide(
        self,
        cell: Cell,
        done: Callable[[Outcome], None],
        answer: Decision | None = None,
        answered: Callable[[Decision], None] | None = None,
    ) -> None:
        """Decide about a cell; ``answer`` is the user's, ``answered`` is for him to be asked."""
        try:
            ruling = self._gate.judge(cell.raw)
        except AdmissionError as error:
            self._audit.undecided(cell, records.said(str(error)))
            done(Outcome("refused", unadmitted=error))
            return
        if _SHOWS_POLICY in cell.raw and (narrower := self._narrower_for(cell, ruling)) is not None:
            if self._approver is not None:
                self._approver.end()  # what goes on beside it asks nobody on its behalf
            narrower.settle(cell, self._rules, done, by=ruling.by)
            return
        source, template = _source_of(cell, ruling)
        granted = self._granted()
        rules = self._permitting(granted)
        findings = ruling.findings or analyse(source, rules)
        if findings and answered is not None and not (ruling.findings or template):
            if self._ask_user(source, findings, answered):
                return
        elif findings and answer is not None and answer.asked:
            findings = _after_no(findings, self._approver)
        elif findings and (problem := self._undone(answer)) is not None:
            self._audit.undecided(cell, UNWRITTEN)
            done(Outcome("refused", unwritten=problem))
            return
        expressions, refused = ({}, {}) if findings else self._admit(cell.user_expressions, rules)
        findings = _told(findings, cell, ruling)
        unwritten = self._audit.decided(cell, findings, expressions, by=ruling.by)
        if findings or unwritten is not None:
            status: Literal["denied", "refused"] = "denied" if findings else "refused"
            label = f"template {template.name}" if template is not None else ""
            done(Outcome(status, findings=findings, unwritten=unwritten, label=label))
            return
        self._run(
            messages.Execute(
                id=self._under_way.next_id(),
                source=source,
                raw=cell.raw,
                execution_count=cell.execution_count,
                silent=cell.silent,
                store_history=cell.store_history,
                user_expressions=expressions,
                allow_stdin=cell.allow_stdin,
                template=template,
                granted=granted,
            ),
            refused,
            done,
            self._own_limit(cell.timeout),
        )

    def _run(
        self,
        message: messages.Execute,
        refused: dict[str, Any],
        done: Callable[[Outcome], None],
        seconds: float | None,
    ) -> None:
        """Run what was admitted, for ``seconds`` where that is less than the policy has.

        ``refused`` are the replies of expressions that were not admitted.
        """
        number = self._audit.number

        def finish(reply: messages.Done | Stopped | Refused | str) -> None:
            self._sent = 0
            outcome = outcome_of(reply, refused, self._under_way.usage, self._under_way.made)
            done(outcome)
            self._audit.ended(number, outcome)  # nobody waits for it

        self._sent = number
        steps, guest = requests.asked_for(message.raw), self._keeper.guest
        if steps and guest is not None and self._under_way.request is None:
            self._step_back(Request(message, finish), steps, guest)
        else:
            self._under_way.submit(message, finish, seconds)

    def disconnect(self) -> None:
        """End the way out of guests, and account for what goes on: nobody hears of it later."""
        super().disconnect()
        if self._sent:
            self._audit.cut_off(self._sent)
            self._sent = 0

    def _own_limit(self, seconds: float | None) -> float | None:
        """Return a cell's limit where that is less than the policy's."""
        narrower = seconds is not None and (self._timeout is None or seconds < self._timeout)
        return seconds if narrower else None

    def _narrower_for(self, cell: Cell, ruling: Ruling) -> Narrower | None:
        """Return what settles a cell that narrows the policy and says nothing else."""
        may = not self._rules.language or SHOWS_POLICY in self._rules.magics
        admitted = not ruling.findings and ruling.run is None
        if self._scope is None or not may or not admitted:
            return None
        from cellblock.policy.narrow_requests import is_alone  # noqa: PLC0415 - few sessions get here

        if not is_alone(cell.raw):
            return None
        from cellblock.host.session.narrowing import Answering, Narrower  # noqa: PLC0415 - as above

        under_way = self._under_way
        answering = Answering(under_way.submit, under_way.finish, lambda: under_way.request)
        return Narrower(self._scope, self._audit, self._keeper, self, answering)

    def _admit(
        self, expressions: dict[str, str], rules: Rules
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Split user_expressions into those that may run and the replies of those that may not."""
        admitted, refused = {}, {}
        for name, text in expressions.items():
            ruling = self._gate.judge_expression(text)
            findings = ruling.findings or analyse_expression(text, rules)
            if findings:
                refused[name] = refusal(findings)
            else:
                admitted[name] = text
        return admitted, refused

    # --- what the user approves of ------------------------------------------------------------

    def _granted(self) -> messages.Granted | None:
        return None if self._approver is None else self._approver.granted(self._rules)

    def _undone(self, answer: Decision | None) -> AuditError | None:
        """Return why what the user said counts for nothing, where the log could not be written."""
        return self._audit.barred() if answer is not None and answer.why == UNWRITTEN else None

    def _permitting(self, granted: messages.Granted | None) -> Rules:
        if granted is None:
            return self._rules
        return self._rules.granting(granted.modules, granted.packages)

    def _ask_user(
        self,
        source: str,
        findings: tuple[Finding, ...],
        answered: Callable[[Decision], None],
    ) -> bool:
        """Ask about a cell's imports, if nothing else is wrong with it; say whether that is so.

        It is decided anew after that: what is allowed, and what was approved of, may be others.
        """
        approver = self._approver
        imports = () if approver is None else approver.wanted(findings, self._rules)
        if approver is None or not imports:
            return False
        if analyse(source, granting(self._permitting(self._granted()), imports)):
            return False
        approver.ask_imports(imports, answered)
        return True

    def complete(self, code: str, cursor: int, done: Callable[[Any], None]) -> None:
        """Ask the guest for completions; ``done`` gets ``Completed`` or None."""
        message = messages.Complete(id=self._under_way.next_id(), code=code, cursor=cursor)
        self._under_way.submit(message, _only(messages.Completed, done))

    def inspect(self, code: str, cursor: int, detail: int, done: Callable[[Any], None]) -> None:
        """Ask the guest about a name; ``done`` gets ``Inspected`` or None."""
        message = messages.Inspect(
            id=self._under_way.next_id(), code=code, cursor=cursor, detail=detail
        )
        self._under_way.submit(message, _only(messages.Inspected, done))

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
        if (unwritten := self._audit.barred()) is not None:
            done(str(unwritten))
            return
        message = messages.CommIn(
            id=self._under_way.next_id(),
            kind=kind,
            content=content,
            metadata=metadata,
            buffers=buffers,
            granted=self._granted(),
        )
        self._under_way.submit(
            message, lambda reply: done(None if isinstance(reply, messages.Done) else reply)
        )


def _source_of(cell: Cell, ruling: Ruling) -> tuple[str, messages.Template | None]:
    """Return the source that is to run, and for a template what it is started with."""
    if ruling.run is None:
        return (cell.raw if ruling.findings else transform(cell.raw).source), None
    template = ruling.run.template
    return template.source, messages.Template(name=template.name, state=ruling.run.state)


def _told(findings: tuple[Finding, ...], cell: Cell, ruling: Ruling) -> tuple[Finding, ...]:
    """Return findings by the cell's own lines, where they are about what IPython made of it."""
    if not findings or ruling.findings or ruling.run is not None:
        return findings
    return tuple(as_written(findings, cell.raw, transform(cell.raw)))


def _after_no(findings: tuple[Finding, ...], approver: Approver | None) -> tuple[Finding, ...]:
    """Return findings as they are told where the answer was no."""
    remedy = "" if approver is None else approver.manner.remedy
    return tuple(replace(one, remedy=remedy, rewrite="") for one in findings)


def _only(kind: type, done: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda reply: done(reply if isinstance(reply, kind) else None)
