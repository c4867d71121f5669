"""A session: decides about each cell, has it run, and reports its outcome.

Fronts (the kernel, sandboxes) hand in requests and get outcomes. The session judges a cell
(admission, the source check, the user's approval), enters the decision in the audit log, and sends
an admitted cell on its way, which ``requests`` describes.

Three kinds of cells never reach a guest:

- ``%policy narrow`` and nothing else: see ``narrowing``
- ``exit`` or ``quit`` and nothing else: the front end ends its session
- ``%changes keep`` or ``%changes drop`` and nothing else: the host carries it out (``Keeper``). No
  guest has a part in that, so no code in a cell can keep a file. A person decides whether files are
  kept, under every policy, by typing the code in the question at the front end that sent the cell.
  The question names files by the digest of what was read when it was put, so threads that run
  meanwhile can't change what is kept.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock import __version__
from cellblock.analysis import analyse, analyse_expression, bound_builtins, transform
from cellblock.analysis.analyser import as_written
from cellblock.analysis.findings import in_a_line
from cellblock.analysis.imports import granting
from cellblock.analysis.names import BINDABLE_BUILTINS
from cellblock.errors import AdmissionError, ChangesError
from cellblock.host import threads
from cellblock.host.audit import records
from cellblock.host.audit.log import Log
from cellblock.host.audit.recorder import UNWRITTEN, Audit
from cellblock.host.cell.written import Looks
from cellblock.host.consent.approver import Approver, Prompt
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.request import of_keeping, too_many
from cellblock.host.guests import background
from cellblock.host.services import changes, keeping
from cellblock.host.session.config import granted_services
from cellblock.host.session.narrowing import Narrower, Weighed, recorded_changes, settings_of
from cellblock.host.session.requests import Requests, RequestState
from cellblock.host.session.types import ExecuteRequest, Outcome, outcome_of
from cellblock.policy import paths
from cellblock.render import tables
from cellblock.render.headings import Heading
from cellblock.render.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.admission import Ruling
    from cellblock.errors import AuditError, PolicyError
    from cellblock.host.cell.cell import Front
    from cellblock.host.consent.approver import Decision
    from cellblock.host.guests.zygote import ZygoteSource
    from cellblock.host.reactor import Reactor
    from cellblock.host.services.changes import Change, Kept, Staged
    from cellblock.host.session.config import SessionConfig
    from cellblock.host.session.narrowing import MakeTools, TakeWorker
    from cellblock.host.session.types import (
        Reply,
        SessionSettings,
        Stopped,
    )
    from cellblock.policy.model import Policy

    Done = Callable[[Outcome], None]


#: Seconds that one step of copying may take before the event loop has its turn.
_STEP_SECONDS: Final = 0.02
_MAGIC: Final = "changes"
_COMMANDS: Final = ("keep", "drop")
#: Characters of a cell. A longer cell is not looked at for ``%changes``.
_LONGEST_MAGIC_CELL: Final = 20_000
OVERWRITE: Final = "--overwrite"


def asked_in(cell: str) -> list[str] | None:
    """Return the words after ``%changes`` in a cell that only keeps or drops; None for others."""
    if f"%{_MAGIC}" not in cell or len(cell) > _LONGEST_MAGIC_CELL:
        return None
    lines = [line.strip() for line in cell.splitlines()]
    statements = [line for line in lines if line and not line.startswith("#")]
    if (
        len(statements) != 1
        or statements[0].split()[0] != f"%{_MAGIC}"
        or statements[0].split()[1:2] == []
    ):
        return None
    if statements[0].split()[1] not in _COMMANDS:
        return None
    try:
        return shlex.split(statements[0], comments=True)[1:]
    except ValueError:  # a quote that is not closed
        return statements[0].split()[1:]


class Keeper:
    """Carries out one session's ``%changes keep`` and ``%changes drop`` cells.

    ``policy`` is the policy's name, which the question shows.
    """

    def __init__(self, reactor: Reactor, front: Front, policy: str) -> None:
        self._reactor = reactor
        self._front = front
        self._grants = Grants(GrantContext(scope="", policy=policy, digest=""), None)
        self._steps = keeping.StepRunner(reactor, _STEP_SECONDS)
        #: The listing of staged changes that is under way, or None.
        self._listing: threads.Work[list[Change]] | None = None
        self._failed: Callable[[str], None] = lambda _why: None
        self._approver: Approver | None = None

    def handles(self, request: ExecuteRequest, ruling: Ruling, rules: Rules) -> bool:
        """Return whether a cell is only ``%changes keep`` or ``%changes drop``."""
        allowed = not rules.language or _MAGIC in rules.magics
        plain = not ruling.findings and ruling.run is None
        return allowed and plain and asked_in(request.code) is not None

    def run(self, request: ExecuteRequest, done: Done, *, admitted_by: str = "") -> None:
        """Keep or drop what a cell says; ``done`` is called with the outcome.

        ``admitted_by`` says what admitted the cell, for the audit log.
        """
        audit = self._front.audit
        words = asked_in(request.code) or []
        if (unwritten := audit.decided(request, (), (), by=admitted_by)) is not None:
            done(Outcome("refused", unwritten=unwritten))
            return
        number = audit.number

        def on_outcome(outcome: Outcome) -> None:
            self._approver = None
            done(outcome)
            audit.ended(number, outcome)

        def fail(why: str) -> None:
            error = messages.Error(ename="ChangesError", evalue=why, traceback=[why])
            on_outcome(Outcome("error", error=error))

        self._failed = fail
        staged = self._front.views.listable()
        if staged is None:
            fail("nothing is staged under this policy")
        elif words[0] == "drop":
            self._drop(staged, words[1:], on_outcome)
        else:
            self._keep(staged, words[1:], request, on_outcome)

    def interrupt(self) -> bool:
        """Abandon the question or copying under way; return whether there was any."""
        if self._approver is not None:
            self._approver.interrupt()
        elif self._steps.runs or self._listing is not None:
            self.close()
            self._failed(f"{Heading.NOT_KEPT}it was interrupted")
        else:
            return False
        return True

    def close(self) -> None:
        """Stop, and remove a copy that is not complete. Called when the session ends."""
        self._steps.stop()
        if self._listing is not None:
            self._listing.forget()
            self._listing = None

    # --- dropping -----------------------------------------------------------------------------

    def _drop(self, staged: Staged, words: Sequence[str], on_outcome: Done) -> None:
        def on_dropped(outcome: Future[Sequence[Change]]) -> None:
            try:
                rows = _rows(staged, outcome.result())
            except (ChangesError, OSError) as error:
                self._failed(str(error))
                return
            self._front.outputs.card(tables.settled_changes(rows, kept=False))
            on_outcome(Outcome("ok"))

        if words:
            self._failed("%changes drop takes nothing: it drops all that is staged")
        else:
            threads.begin(self._reactor, staged.drop, on_dropped)

    # --- keeping ------------------------------------------------------------------------------

    def _keep(
        self, staged: Staged, words: Sequence[str], request: ExecuteRequest, on_outcome: Done
    ) -> None:
        """List the changes that ``words`` name, ask the user about them, and keep them."""
        options = [option for option in words if option.startswith("--")]
        if unknown := next((option for option in options if option != OVERWRITE), None):
            self._failed(f"%changes keep has no option {unknown}: there is {OVERWRITE}")
            return
        names = [option for option in words if not option.startswith("--")]

        def on_listed(outcome: Future[list[Change]]) -> None:
            self._listing = None
            try:
                self._ask(staged, outcome.result(), (options, names), request, on_outcome)
            except (ChangesError, OSError) as error:
                self._failed(str(error))

        chosen = partial(staged.chosen, names, overwrite=bool(options))
        self._listing = threads.begin(self._reactor, chosen, on_listed)

    def _ask(
        self,
        staged: Staged,
        chosen: Sequence[Change],
        selection: tuple[Sequence[str], Sequence[str]],
        request: ExecuteRequest,
        on_outcome: Done,
    ) -> None:
        """Ask the user whether to keep the ``chosen`` changes, and keep them. Raises ChangesError.

        ``selection`` has the options and the names that the cell gave.
        """
        options, paths = selection
        words = [staged.id, *options, *staged.named(paths)]
        command = shlex.join(words)
        if not chosen:
            raise ChangesError("nothing is staged that could be kept")
        if self._front.consult is None or not request.allow_stdin:
            raise ChangesError(self._front.views.how_to_keep.refused.format(command))
        if not of_keeping(chosen, {}, paths).whole:
            where = f"`cellblock changes keep {command}` in a terminal"
            raise ChangesError(f"{too_many(chosen)}, or keep them with {where}")

        def ask_user(digests: Mapping[str, str]) -> None:
            self._front.outputs.card(self._front.views.changes_card(staged, chosen, digests))
            approval_request = of_keeping(chosen, digests, paths)
            approver.ask_keeping(approval_request, lambda decision: on_decision(decision, digests))

        def on_decision(decision: Decision, digests: Mapping[str, str]) -> None:
            approver.end()
            self._approver = None
            if decision.scope is None:
                self._failed(f"{Heading.NOT_KEPT}{decision.why}")
            else:
                self._steps.run(keeping.steps(staged, chosen, digests), on_kept, self._failed)

        def on_kept(kept_files: Sequence[Kept]) -> None:
            self._front.audit.kept(kept_files, staged.session, "a code")
            self._front.outputs.card(tables.settled_changes(_rows(staged, chosen), kept=True))
            on_outcome(Outcome("ok"))

        prompt = Prompt(self._front.consult, self._grants)
        audit = self._front.audit
        approver = self._approver = Approver(
            prompt, self._grants, observe=audit.approved, tell=self._front.outputs.notice
        )
        approver.begin(request)
        self._steps.run(keeping.digests(staged, chosen), ask_user, self._failed)


def _rows(staged: Staged, changes: Sequence[Change]) -> list[tables.ChangeRow]:
    return [
        tables.ChangeRow(
            staged.label(change), change.kind, change.size, change.before, change.why_not, ""
        )
        for change in changes
    ]


#: Matches a cell that is only ``exit`` or ``quit``, as IPython spells them.
_EXIT_CELL: Final = re.compile(r"\s*(?:exit|quit)(?:\((?P<keeps>True|keep_kernel=True)?\))?\s*")


def open_audit(policy: Policy | None, written: Counter[str] | None = None) -> Audit:
    """Return the audit log that a policy asks for.

    All logs that count their bytes in ``written`` share one bound.
    """
    if policy is None or not policy.audit.log:
        return Audit()
    settings = policy.audit
    size = settings.max_bytes
    log = Log(Path(settings.folder), max_bytes=size, fsync=settings.fsync, written=written)
    return Audit(log, required=settings.required, sources=settings.sources)


def record_start(config: SessionConfig, front: Front) -> None:
    """Enter in the audit log that a session begins, and how a notebook narrowed its policy.

    This is entered whether or not cells may run yet.
    """
    audit = front.audit
    scratch = config.scratch
    policy = paths.without_scratch(config.operators or config.policy, scratch)
    system = os.uname()
    audit.enter(
        records.SessionStart(
            cellblock=__version__,
            python=".".join(map(str, sys.version_info[:3])),
            os_kernel=f"{system.sysname} {system.release}",
            uid=os.getuid(),
            pid=os.getpid(),
            project=encodable(str(config.project)),
            policy=policy.name,
            digest=policy.digest(),
            mode=policy.mode,
            backend=front.views.backend,
            asked=policy.backend,
            admission=policy.admission,
            approvals=policy.approvals,
        )
    )
    if config.operators is not None and config.operators != config.policy:
        audit.enter(
            records.Narrowing(
                fields=recorded_changes(config.operators, config.policy, scratch),
                digest=paths.without_scratch(config.policy, scratch).digest(),
                file=encodable(config.notebook),
            )
        )


#: Why a subshell's cell is refused if it narrows the policy or keeps files.
IN_SUBSHELL: Final = (
    "%policy narrow and %changes keep are for cells of the notebook: this one is of a subshell, "
    "which runs beside them. Run it there."
)


def open_session(
    config: SessionConfig,
    reactor: Reactor,
    front: Front,
    zygotes: ZygoteSource,
    make_tools: MakeTools | None = None,
    take_worker: TakeWorker = lambda: None,
) -> Session:
    """Return the session of a front. ``settings_of`` explains the last two arguments."""
    # A folder that is inherited could have been written to by cells.
    if front.inherited is None:
        background.place_font_list(Path(config.prepare.scratch))
    settings = settings_of(config, front, make_tools, take_worker)
    front.views.templates_in_force = settings.gate.templates
    narrower = Narrower(reactor, config, front, settings.tools)
    keeper = Keeper(reactor, front, config.policy.name)
    session = Session(
        reactor,
        front,
        settings,
        zygotes,
        narrower=narrower,
        keeper=keeper,
        approver=front.approver,
    )
    front.views.ports = session.requests.open_ports
    if config.lists_staged and (layers := config.prepare.plan.layers):
        policy = paths.without_scratch(config.policy, config.scratch)
        own = front.audit.session
        staged = changes.of_layers(layers, policy, own, config.names, config.adopted)
        front.views.staged = changes.begin(replace(staged, base=config.prepare.cwd))
        changes.sweep_in_thread()
        front.views.told_of_staging = config.adopted is not None
    session.looks = front.looks = Looks(reactor)
    if services := granted_services(config):
        front.exports = services.exports(reactor, session.requests.open_folder)
    return session


class Session:
    """One user's session: takes requests, and calls back with their outcomes.

    Without a ``narrower`` no cell can narrow the policy. Without a ``keeper`` no cell can keep
    files. Without an ``approver`` the user is never asked.
    """

    def __init__(
        self,
        reactor: Reactor,
        front: Front,
        settings: SessionSettings,
        zygotes: ZygoteSource,
        *,
        clock: Callable[[], float] = time.monotonic,
        narrower: Narrower | None = None,
        keeper: Keeper | None = None,
        approver: Approver | None = None,
    ) -> None:
        self._front = front
        self._audit = front.audit
        self.settings = settings
        self.requests = Requests(
            reactor, front, settings, zygotes, front.audit, clock=clock, approver=approver
        )
        self._narrower = narrower
        self._keeper = keeper
        #: Looks at what cells wrote; None if nobody is told.
        self.looks: Looks | None = None
        #: Asks the user, if the policy wants that; None if nobody is asked.
        self._approver = approver
        #: Audit log numbers of the cells that were sent and have not ended.
        self._running = set[int]()
        #: Names of refused builtins that cells bound themselves, in this session or before it was
        #: forked. A restore does not remove names here; the guest, which checks the cell too, looks
        #: at the variables themselves.
        self.own_builtins = frozenset[str]()

    def start(self, parent: Session | None = None) -> None:
        """Start tools and a guest before the first request; a fork has its ``parent``'s tools."""
        parent_tools = {} if parent is None else parent.requests.tools.from_workers
        self.requests.tools.open(self._on_tools, self._on_tools_failed, parent_tools)
        self.requests.prepare_guest()

    def _on_tools(self, tools: tuple[messages.Tool, ...]) -> None:
        if self._approver is not None:
            self._approver.folders = self.requests.tools.folders
        self._front.on_tools(tools)
        self.requests.prepare_guest()

    def _on_tools_failed(self, error: PolicyError) -> None:
        self._audit.enter(records.Failure(detail=records.clipped(str(error))))
        self._front.on_policy_error(error)
        self.requests.fail(str(error))

    # --- cells --------------------------------------------------------------------------------

    def execute(
        self, request: ExecuteRequest, done: Done, decided: Callable[[], None] = lambda: None
    ) -> None:
        """Run a cell; ``done`` is called with its outcome, before this returns if it is denied.

        The decision is in the audit log before the cell starts (promise P9). If the user may
        approve what the cell imports, the decision waits for the answer. ``decided`` is called
        when the decision is made; it may be called twice.
        """
        approver = self._approver
        if approver is None:
            self._decide(request, done)
            decided()
            return

        def on_outcome(outcome: Outcome) -> None:
            approver.end()
            done(outcome)

        def answered(answer: Decision) -> None:
            self._decide(request, on_outcome, answer=answer)
            decided()

        approver.begin(request)
        self._decide(request, on_outcome, ask=answered)
        if not approver.asks:
            decided()

    def _decide(
        self,
        request: ExecuteRequest,
        done: Done,
        *,
        ask: Callable[[Decision], None] | None = None,
        answer: Decision | None = None,
    ) -> None:
        """Decide about a cell, and send it if it may run.

        If ``ask`` is given the user may be asked about imports; it is called with the answer, which
        then comes back as ``answer``.
        """
        try:
            ruling = self.settings.gate.judge(request.code)
        except AdmissionError as error:
            self._audit.undecided(request, records.clipped(str(error)))
            done(Outcome("refused", unadmitted=error))
            return
        narrower = self._narrower
        keeper = self._keeper
        narrows = narrower is not None and narrower.handles(request, ruling, self)
        keeps = keeper is not None and keeper.handles(request, ruling, self.settings.rules)
        if not (narrows or keeps):
            if (
                exit_cell := _EXIT_CELL.fullmatch(request.code)
            ) is not None and not ruling.findings:
                keeps_kernel = exit_cell["keeps"] is not None
                self._leave(request, done, keeps=keeps_kernel, admitted_by=ruling.by)
            else:
                self._analyse(request, ruling, done, ask=ask, answer=answer)
            return
        if request.subshell:
            self._audit.undecided(request, IN_SUBSHELL)
            done(_failed("SubshellRefused", IN_SUBSHELL))
            return
        if self._approver is not None:
            # Calls of threads that still run must not be approved on this cell's behalf.
            self._approver.end()
        if keeper is not None and keeps:
            keeper.run(request, done, admitted_by=ruling.by)
        elif narrower is not None:
            admitted_by = ruling.by

            def narrow(weighed: Weighed) -> None:
                self.requests.when_alone(
                    lambda: narrower.narrow(request, self, weighed, done, admitted_by=admitted_by),
                    lambda: done(_failed("KeyboardInterrupt", "it waited for subshells")),
                )

            narrower.weigh_cell(request, self, narrow)

    def _leave(self, request: ExecuteRequest, done: Done, *, keeps: bool, admitted_by: str) -> None:
        """End the front end's session, as the user typed ``exit`` or ``quit``.

        No guest takes part. With ``keeps`` the kernel goes on.
        """
        unwritten = self._audit.decided(request, (), (), by=admitted_by)
        outcome = Outcome("ok", exits="stays" if keeps else "ends")
        if unwritten is not None:
            outcome = Outcome("refused", unwritten=unwritten)
        else:
            self._audit.ended(self._audit.number, outcome)
        done(outcome)

    def _analyse(
        self,
        request: ExecuteRequest,
        ruling: Ruling,
        done: Done,
        *,
        ask: Callable[[Decision], None] | None,
        answer: Decision | None,
    ) -> None:
        """Check the source of a cell, and send it if the policy denies nothing in it.

        ``ask`` and ``answer`` are those of ``_decide``.
        """
        source, template = _source_of(request, ruling)
        granted = self._granted()
        rules = self._permitting(granted)
        findings = ruling.findings or analyse(source, rules)
        if findings and ask is not None and not ruling.findings and template is None:
            if self._ask_user(source, findings, ask):
                return
        elif findings and answer is not None and answer.remedy:
            refusal: dict[str, Any] = {"remedy": answer.remedy, "rewrite": "", "allows": ()}
            findings = tuple(replace(finding, **refusal) for finding in findings)
        elif findings and (problem := self._lost_answer(answer)) is not None:
            self._audit.undecided(request, UNWRITTEN)
            done(Outcome("refused", unwritten=problem))
            return
        expressions, refused = ({}, {}) if findings else self._admit(request, rules)
        if findings and not ruling.findings and template is None:
            findings = tuple(as_written(findings, request.code, transform(request.code)))
        unwritten = self._audit.decided(request, findings, expressions, by=ruling.by)
        if findings:
            label = f"template {template.name}" if template is not None else ""
            done(Outcome("denied", findings=findings, unwritten=unwritten, label=label))
        elif unwritten is not None:
            done(Outcome("refused", unwritten=unwritten))
        else:
            if rules.language and template is None:
                self.own_builtins |= bound_builtins(source)
            ruled_view = ruling.view
            view = (
                None if ruled_view is None else messages.View(ruled_view.name, ruled_view.argument)
            )
            message = messages.Execute(
                id=self.requests.next_id(),
                # A view's text was approved by nobody, so no magic or ``get_ipython`` of a cell's
                # may get it.
                source=source if view is None else "",
                raw=request.code,
                execution_count=request.execution_count,
                silent=request.silent,
                store_history=request.store_history,
                user_expressions=expressions,
                allow_stdin=request.allow_stdin and not request.subshell,
                subshell=request.subshell,
                template=template,
                view=view,
                granted=granted,
                value=request.value,
                cell_id=request.cell_id,
            )
            self._send(message, refused, done, request.timeout)

    def _lost_answer(self, answer: Decision | None) -> AuditError | None:
        """Return why the user's answer is void: the audit log could not be written. Else None."""
        return self._audit.barred() if answer is not None and answer.why == UNWRITTEN else None

    def _send(
        self, message: messages.Execute, refused: dict[str, Any], done: Done, timeout: float | None
    ) -> None:
        """Send an admitted cell.

        ``refused`` has the replies of its user_expressions that were not admitted. ``timeout``
        counts only if it is less than the policy's.
        """
        number = self._audit.number

        def finish(reply: Reply) -> None:
            self._running.discard(number)
            outcome = outcome_of(reply, refused, self.requests.usage, self.requests.tool_calls)
            done(outcome)
            self._audit.ended(number, outcome)  # after ``done``: nobody waits for this entry

        self._running.add(number)
        limit = self.settings.policy.timeout
        own = timeout if timeout is not None and (limit is None or timeout < limit) else None
        self.requests.submit(message, finish, own, number)

    def _admit(
        self, request: ExecuteRequest, rules: Rules
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Judge a cell's user_expressions; return those that may run, and replies for the rest."""
        admitted = {}
        refused = {}
        for name, text in request.user_expressions.items():
            ruling = self.settings.gate.judge_expression(text)
            if findings := ruling.findings or analyse_expression(text, rules):
                first = findings[0]
                refused[name] = {
                    "status": "error",
                    "ename": "PolicyDenied",
                    "evalue": f"{first.rule}: {first.subject} {first.why}",
                    "traceback": [
                        f"{f.rule}: {f.why}. {in_a_line(f.remedy, f.allows, rules)}".rstrip()
                        for f in findings
                    ],
                }
            else:
                admitted[name] = text
        return admitted, refused

    def check(self, code: str) -> tuple[Finding, ...]:
        """Return the findings that would keep a cell from running. Nothing runs, nobody is asked.

        Raises AdmissionError if nothing can be decided.
        """
        request = ExecuteRequest(code=code)
        ruling = self.settings.gate.judge(code)
        rules = self.settings.rules
        narrower = self._narrower
        keeper = self._keeper
        if narrower is not None and narrower.handles(request, ruling, self):
            return narrower.check(code, rules)
        if keeper is not None and keeper.handles(request, ruling, rules):
            return ()
        if ruling.findings:
            return ruling.findings
        if ruling.run is not None:
            return analyse(ruling.run.template.source, self._permitting(self._granted()))
        transformed = transform(code)
        findings = analyse(transformed.source, self._permitting(self._granted()))
        return tuple(as_written(findings, code, transformed))

    # --- approvals ----------------------------------------------------------------------------

    def _granted(self) -> messages.Granted | None:
        """Return the imports that the user approved so far, or None if nobody is asked."""
        return None if self._approver is None else self._approver.granted(self.settings.rules)

    def _permitting(self, granted: messages.Granted | None) -> Rules:
        """Return the rules, with what the user granted and the builtins that cells bound."""
        rules = self.settings.rules.with_own(self.own_builtins)
        return rules if granted is None else rules.granting(granted.modules, granted.packages)

    def _ask_user(
        self, source: str, findings: tuple[Finding, ...], answered: Callable[[Decision], None]
    ) -> bool:
        """Ask the user about a cell's imports if these are all that is denied; return whether so.

        After the answer the cell is decided about anew, because what is allowed may have changed
        meanwhile.
        """
        approver = self._approver
        imports = (
            () if approver is None else approver.imports_to_ask_about(findings, self.settings.rules)
        )
        if approver is None or not imports:
            return False
        if analyse(source, granting(self._permitting(self._granted()), imports)):
            return False
        approver.ask_imports(imports, answered)
        return True

    # --- other requests -----------------------------------------------------------------------

    def complete(self, code: str, cursor: int, done: Callable[[Any], None]) -> None:
        """Ask the guest for completions; ``done`` is called with ``Completed``, or None."""
        message = messages.Complete(id=self.requests.next_id(), code=code, cursor=cursor)
        self._query(message, done)

    def inspect(self, code: str, cursor: int, detail: int, done: Callable[[Any], None]) -> None:
        """Ask the guest about a name; ``done`` is called with ``Inspected``, or None."""
        number = self.requests.next_id()
        message = messages.Inspect(id=number, code=code, cursor=cursor, detail=detail)
        self._query(message, done)

    def variables(self, done: Callable[[Any], None]) -> None:
        """Ask the guest for the names of its variables; ``done`` gets ``Variables`` or None."""
        message = messages.ListVariables(id=self.requests.next_id())
        self._query(message, done)

    def get_variable(self, name: str, done: Callable[[Any], None]) -> None:
        """Ask the guest for a variable's value; ``done`` is called with it, or with None."""
        message = messages.GetVariable(id=self.requests.next_id(), name=name)
        self._query(message, done)

    def shrink_image(
        self, image: bytes, most: int, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        """Have the guest make a version of an image that has ``most`` bytes at most.

        ``done`` is called with ``ShrunkImage``, or with None after ``seconds``. The guest decodes
        the image because a guest wrote it: no decoder in the host may be fed by a guest.
        """
        number = self.requests.next_id()
        self._query(messages.ShrinkImage(id=number, image=image, most=most), done, seconds)

    def set_variables(
        self, values: Mapping[str, messages.Value], done: Callable[[Reply], None]
    ) -> None:
        """Set variables in the guest, all of them or none; ``done`` is called with the reply.

        Setting them may take as long as a cell. An array or table needs a library that cells may
        import; if they may not, it is refused as that import is.
        """
        if (unwritten := self._audit.barred()) is not None:
            done(str(unwritten))
            return
        libraries = {
            value.library if isinstance(value, messages.Frame) else "numpy"
            for value in values.values()
            if not isinstance(value, messages.Data)
        }
        needed = "\n".join(f"import {library}" for library in sorted(libraries))
        if findings := analyse(needed, self.settings.rules):
            first = findings[0]
            remedy = in_a_line(first.remedy, first.allows, self.settings.rules)
            done(f"{first.rule}: {first.subject} {first.why}. {remedy}".rstrip())
            return
        self.own_builtins |= BINDABLE_BUILTINS.intersection(values)
        message = messages.SetVariables(id=self.requests.next_id(), values=dict(values))
        self.requests.submit(message, done)

    def _query(
        self, message: messages.Query, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        def finish(reply: Any) -> None:
            done(reply if isinstance(reply, messages.QueryReply) else None)

        self.requests.submit(message, finish, seconds)

    @property
    def awaits(self) -> bool:
        """Whether the main shell's cell awaits, so that comm messages can be handled meanwhile."""
        request = self.requests.request
        return request is not None and request.awaits and request.state is RequestState.running

    def comm(
        self,
        kind: str,
        content: Any,
        metadata: Any,
        buffers: Any,
        done: Callable[[Stopped | str | None], None],
        subshell: int = 0,
    ) -> None:
        """Send a comm message to the guest; ``done`` gets why it was not handled, or None.

        The handler, for example of a button's click, may run as long as a cell.
        """
        if (unwritten := self._audit.barred()) is not None:
            done(str(unwritten))
            return
        message = messages.CommIn(
            id=self.requests.next_id(),
            kind=kind,
            content=content,
            metadata=metadata,
            buffers=buffers,
            granted=self._granted(),
            subshell=subshell,
        )
        self.requests.submit(
            message, lambda reply: done(None if isinstance(reply, messages.Done) else reply)
        )

    def answer(self, value: str, *, eof: bool = False) -> None:
        """Send what the user typed to the running cell; ``eof`` if there is nobody to ask."""
        self.requests.answer_question(value, eof=eof)

    def interrupt(self) -> None:
        """Interrupt whatever runs. Kill a cell that goes on after an earlier interrupt."""
        if self._keeper is None or not self._keeper.interrupt():
            self.requests.interrupt()

    def hold(self, *, held: bool) -> None:
        """Hold back the guest's output while front ends are behind, or let it go on."""
        self.requests.supervisor.hold(held=held)

    def read_output(self) -> None:
        """Pass on what the guest has written by now, unless its output is held."""
        guest = self.requests.supervisor.guest
        if guest is not None:
            guest.read_output()

    @property
    def offers_subshells(self) -> bool:
        """Whether cells may run in subshells: not if the user may be asked about cells."""
        return self._approver is None

    def have_subshells(self, numbers: tuple[int, ...]) -> None:
        """Set which subshells exist."""
        self.requests.have_subshells(numbers)

    # --- the session itself -------------------------------------------------------------------

    def adopt(self, settings: SessionSettings) -> None:
        """Enforce narrower settings from now on; replace the guest if ``settings.step`` says so."""
        self._audit.narrowed(settings)
        self.settings = settings
        # First what is enforced: it must hold, even if showing the change fails.
        self.requests.narrow_to(settings)
        if self._narrower is not None:
            self._narrower.adopt(settings)
        if self._approver is not None:
            self._approver.narrow_to(settings.digest)
        self.requests.supervisor.narrow_to(settings)

    def disconnect(self) -> None:
        """End guests' connections and calls; enter in the audit log which cells were cut off.

        Called before ``close``: what cells do from now on is neither shown nor recorded.
        """
        self.requests.disconnect()
        if self._keeper is not None:
            self._keeper.close()
        if self._narrower is not None:
            self._narrower.close()
        if self.looks is not None:
            self.looks.close()
        while self._running:
            self._audit.cut_off(self._running.pop())

    def close(self) -> bool:
        """End guest and zygote; return whether they and their folder are gone."""
        self.disconnect()
        return self.requests.close()


def _failed(name: str, why: str) -> Outcome:
    return Outcome("error", error=messages.Error(ename=name, evalue=why, traceback=[why]))


def _source_of(request: ExecuteRequest, ruling: Ruling) -> tuple[str, messages.Template | None]:
    """Return the source to run, and for a template, the template's name and state."""
    if ruling.run is None:
        return (request.code if ruling.findings else transform(request.code).source), None
    template = ruling.run.template
    return template.source, messages.Template(name=template.name, state=ruling.run.state)
