"""A session: decides about each cell, has it run, and tells how it ended.

Fronts (the kernel, sandboxes) hand it requests and are told through their ``Front``. What
happens to an admitted request is ``requests``.

Cells that say nothing but ``%changes keep`` or ``%changes drop`` are the host's to do (``Keeper``).
A guest has no part in it: no code of a cell's can keep a file. Whether one is kept, a person says,
whatever else the policy has users asked about: with the code that stands in the question, at the
front end that sent the cell. What is asked about is what was read when the question was put, by its
digest, so threads that go on beside it change nothing of it.
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


#: Seconds of one step of copying.
_STEP: Final = 0.02
_MAGIC: Final = "changes"
_WORDS: Final = ("keep", "drop")
#: Characters of a cell that is looked at.
_LONGEST: Final = 20_000
OVERWRITE: Final = "--overwrite"


def asked_in(cell: str) -> list[str] | None:
    """Return the words behind ``%changes`` in a cell that keeps or drops; None for any other."""
    if f"%{_MAGIC}" not in cell or len(cell) > _LONGEST:
        return None
    lines = [line.strip() for line in cell.splitlines()]
    said = [line for line in lines if line and not line.startswith("#")]
    if len(said) != 1 or said[0].split()[0] != f"%{_MAGIC}" or said[0].split()[1:2] == []:
        return None
    if said[0].split()[1] not in _WORDS:
        return None
    try:
        return shlex.split(said[0], comments=True)[1:]
    except ValueError:  # a quote that is not closed
        return said[0].split()[1:]


class Keeper:
    """Does what such cells say, for one session."""

    def __init__(self, reactor: Reactor, front: Front, policy: str) -> None:
        self._reactor, self._front = reactor, front
        self._grants = Grants(GrantContext(scope="", policy=policy, digest=""), None)
        self._steps = keeping.StepRunner(reactor, _STEP)
        #: A listing under way.
        self._listing: threads.Work[list[Change]] | None = None
        self._failed: Callable[[str], None] = lambda _why: None
        self._approver: Approver | None = None

    def handles(self, request: ExecuteRequest, ruling: Ruling, rules: Rules) -> bool:
        """Return whether a cell keeps or drops, and says nothing else."""
        allowed = not rules.language or _MAGIC in rules.magics
        plain = not ruling.findings and ruling.run is None
        return allowed and plain and asked_in(request.code) is not None

    def run(self, request: ExecuteRequest, done: Done, *, admitted_by: str = "") -> None:
        """Do what a cell says; ``done`` gets the outcome."""
        audit, words = self._front.audit, asked_in(request.code) or []
        if (unwritten := audit.decided(request, (), (), by=admitted_by)) is not None:
            done(Outcome("refused", unwritten=unwritten))
            return
        number = audit.number

        def ended(outcome: Outcome) -> None:
            self._approver = None
            done(outcome)
            audit.ended(number, outcome)

        def failed(why: str) -> None:
            error = messages.Error(ename="ChangesError", evalue=why, traceback=[why])
            ended(Outcome("error", error=error))

        self._failed, staged = failed, self._front.views.listable()
        if staged is None:
            failed("nothing is staged under this policy")
        elif words[0] == "drop":
            self._drop(staged, words[1:], ended)
        else:
            self._keep(staged, words[1:], request, ended)

    def interrupt(self) -> bool:
        """Keep nothing of what is asked about or copied now; return whether anything is."""
        if self._approver is not None:
            self._approver.interrupt()
        elif self._steps.runs or self._listing is not None:
            self.close()
            self._failed(f"{Heading.NOT_KEPT}it was interrupted")
        else:
            return False
        return True

    def close(self) -> None:
        """Take back what is not whole: the session ends."""
        self._steps.stop()
        if self._listing is not None:
            self._listing.forget()
            self._listing = None

    # --- dropping -----------------------------------------------------------------------------

    def _drop(self, staged: Staged, words: Sequence[str], ended: Done) -> None:
        def dropped(outcome: Future[Sequence[Change]]) -> None:
            try:
                rows = _rows(staged, outcome.result())
            except (ChangesError, OSError) as error:
                self._failed(str(error))
                return
            self._front.outputs.card(tables.settled_changes(rows, kept=False))
            ended(Outcome("ok"))

        if words:
            self._failed("%changes drop takes nothing: it drops all that is staged")
        else:
            threads.begin(self._reactor, staged.drop, dropped)

    # --- keeping ------------------------------------------------------------------------------

    def _keep(
        self, staged: Staged, words: Sequence[str], request: ExecuteRequest, ended: Done
    ) -> None:
        """Read what is to be kept, ask, and keep it."""
        options = [word for word in words if word.startswith("--")]
        if other := next((word for word in options if word != OVERWRITE), None):
            self._failed(f"%changes keep has no option {other}: there is {OVERWRITE}")
            return
        paths = [word for word in words if not word.startswith("--")]

        def listed(outcome: Future[list[Change]]) -> None:
            self._listing = None
            try:
                self._ask(staged, outcome.result(), (options, paths), request, ended)
            except (ChangesError, OSError) as error:
                self._failed(str(error))

        chosen = partial(staged.chosen, paths, overwrite=bool(options))
        self._listing = threads.begin(self._reactor, chosen, listed)

    def _ask(
        self,
        staged: Staged,
        chosen: Sequence[Change],
        asked: tuple[Sequence[str], Sequence[str]],
        request: ExecuteRequest,
        ended: Done,
    ) -> None:
        """Ask about what is to be kept, and keep it. Raises ChangesError."""
        options, paths = asked
        words = [staged.id, *options, *staged.named(paths)]
        command = shlex.join(words)
        if not chosen:
            raise ChangesError("nothing is staged that could be kept")
        if self._front.consult is None or not request.allow_stdin:
            raise ChangesError(self._front.views.how_to_keep.refused.format(command))
        if not of_keeping(chosen, {}, paths).whole:
            where = f"`cellblock changes keep {command}` in a terminal"
            raise ChangesError(f"{too_many(chosen)}, or keep them with {where}")

        def read(digests: Mapping[str, str]) -> None:
            self._front.outputs.card(self._front.views.changes_card(staged, chosen, digests))
            wanted = of_keeping(chosen, digests, paths)
            approver.ask_keeping(wanted, lambda decision: decided(decision, digests))

        def decided(decision: Decision, digests: Mapping[str, str]) -> None:
            approver.end()
            self._approver = None
            if decision.scope is None:
                self._failed(f"{Heading.NOT_KEPT}{decision.why}")
            else:
                self._steps.run(keeping.steps(staged, chosen, digests), kept, self._failed)

        def kept(found: Sequence[Kept]) -> None:
            self._front.audit.kept(found, staged.session, "a code")
            self._front.outputs.card(tables.settled_changes(_rows(staged, chosen), kept=True))
            ended(Outcome("ok"))

        prompt, audit = Prompt(self._front.consult, self._grants), self._front.audit
        approver = self._approver = Approver(
            prompt, self._grants, observe=audit.approved, tell=self._front.outputs.notice
        )
        approver.begin(request)
        self._steps.run(keeping.digests(staged, chosen), read, self._failed)


def _rows(staged: Staged, changes: Sequence[Change]) -> list[tables.ChangeRow]:
    return [
        tables.ChangeRow(staged.label(one), one.kind, one.size, one.before, one.why_not, "")
        for one in changes
    ]


#: A cell that ends the session and says nothing else, as IPython has it.
_EXIT: Final = re.compile(r"\s*(?:exit|quit)(?:\((?P<keeps>True|keep_kernel=True)?\))?\s*")


def open_audit(policy: Policy | None, written: Counter[str] | None = None) -> Audit:
    """Return the audit log that a policy asks for, bounded with those that count in ``written``."""
    if policy is None or not policy.audit.log:
        return Audit()
    asked = policy.audit
    size = asked.max_bytes
    log = Log(Path(asked.folder), max_bytes=size, fsync=asked.fsync, written=written)
    return Audit(log, required=asked.required, sources=asked.sources)


def record_start(config: SessionConfig, front: Front) -> None:
    """Enter in the audit log that a session begins, whether or not cells may run there yet."""
    audit, scratch = front.audit, config.scratch
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


#: Why a cell of a subshell is refused that narrows the policy, or keeps files.
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
    """Return the session of a front; the last two arguments are those of ``settings_of``."""
    if front.inherited is None:  # nobody could have written to its folder before
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
        policy, own = paths.without_scratch(config.policy, config.scratch), front.audit.session
        staged = changes.of_layers(layers, policy, own, config.names, config.adopted)
        front.views.staged = changes.begin(replace(staged, base=config.prepare.cwd))
        changes.sweep_in_thread()
        front.views.told_of_staging = config.adopted is not None
    session.looks = front.looks = Looks(reactor)
    if services := granted_services(config):
        front.exports = services.exports(reactor, session.requests.open_folder)
    return session


class Session:
    """Requests in, outcomes out.

    Without a ``narrower`` no cell can narrow the policy, without a ``keeper`` none keep files.
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
        self._front, self._audit = front, front.audit
        self.settings = settings
        self.requests = Requests(
            reactor, front, settings, zygotes, front.audit, clock=clock, approver=approver
        )
        self._narrower, self._keeper = narrower, keeper
        #: Looks at what cells wrote; None where nobody is told.
        self.looks: Looks | None = None
        #: Asks the user, where the policy has that; None where nobody is asked.
        self._approver = approver
        #: The numbers, in the audit log, of the cells that were sent and have not ended.
        self._running = set[int]()
        #: Names of refused builtins that cells bound, before a fork, too. Going back to an earlier
        #: state leaves them here; the guest looks at the variables themselves.
        self.own_builtins = frozenset[str]()

    def start(self, parent: Session | None = None) -> None:
        """Have a guest ready before the first request; a fork has the tools of its ``parent``."""
        known = {} if parent is None else parent.requests.tools.from_workers
        self.requests.tools.open(self._on_tools, self._on_tools_failed, known)
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
        """Run a cell; ``done`` gets its outcome, at once when it is denied.

        The decision about it is on the audit log before it starts (promise P9). Where the user
        may approve of what it imports, the decision waits for the answer. ``decided`` is called
        when there is one, or more than once.
        """
        approver = self._approver
        if approver is None:
            self._decide(request, done)
            decided()
            return

        def ended(outcome: Outcome) -> None:
            approver.end()
            done(outcome)

        def answered(answer: Decision) -> None:
            self._decide(request, ended, answer=answer)
            decided()

        approver.begin(request)
        self._decide(request, ended, ask=answered)
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

        With ``ask`` the user may be asked about its imports; ``answer`` is what the user said.
        """
        try:
            ruling = self.settings.gate.judge(request.code)
        except AdmissionError as error:
            self._audit.undecided(request, records.clipped(str(error)))
            done(Outcome("refused", unadmitted=error))
            return
        narrower, keeper = self._narrower, self._keeper
        narrows = narrower is not None and narrower.handles(request, ruling, self)
        keeps = keeper is not None and keeper.handles(request, ruling, self.settings.rules)
        if not (narrows or keeps):
            if (leaving := _EXIT.fullmatch(request.code)) is not None and not ruling.findings:
                keeps_kernel = leaving["keeps"] is not None
                self._leave(request, done, keeps=keeps_kernel, admitted_by=ruling.by)
            else:
                self._analyse(request, ruling, done, ask=ask, answer=answer)
            return
        if request.subshell:
            self._audit.undecided(request, IN_SUBSHELL)
            done(_failed("SubshellRefused", IN_SUBSHELL))
            return
        if self._approver is not None:
            self._approver.end()  # what goes on beside it asks nobody on its behalf
        if keeper is not None and keeps:
            keeper.run(request, done, admitted_by=ruling.by)
        elif narrower is not None:
            by = ruling.by

            def narrow(weighed: Weighed) -> None:
                self.requests.when_alone(
                    lambda: narrower.narrow(request, self, weighed, done, admitted_by=by),
                    lambda: done(_failed("KeyboardInterrupt", "it waited for subshells")),
                )

            narrower.weigh_cell(request, self, narrow)

    def _leave(self, request: ExecuteRequest, done: Done, *, keeps: bool, admitted_by: str) -> None:
        """Have the front end end its session: the user typed so, and no guest is asked."""
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
        """Look for what the policy denies in a cell that is admitted; send it if there is none."""
        source, template = _source_of(request, ruling)
        granted = self._granted()
        rules = self._permitting(granted)
        findings = ruling.findings or analyse(source, rules)
        if findings and ask is not None and not ruling.findings and template is None:
            if self._ask_user(source, findings, ask):
                return
        elif findings and answer is not None and answer.remedy:
            said: dict[str, Any] = {"remedy": answer.remedy, "rewrite": "", "allows": ()}
            findings = tuple(replace(one, **said) for one in findings)
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
            asked = ruling.view
            view = None if asked is None else messages.View(asked.name, asked.argument)
            message = messages.Execute(
                id=self.requests.next_id(),
                # Nobody approved its text: no magic or ``get_ipython`` of a cell's is given it.
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
        """Return why what the user said counts for nothing: the log could not be written."""
        return self._audit.barred() if answer is not None and answer.why == UNWRITTEN else None

    def _send(
        self, message: messages.Execute, refused: dict[str, Any], done: Done, timeout: float | None
    ) -> None:
        """Send an admitted cell; ``refused`` are replies of expressions that were not admitted."""
        number = self._audit.number

        def finish(reply: Reply) -> None:
            self._running.discard(number)
            outcome = outcome_of(reply, refused, self.requests.usage, self.requests.tool_calls)
            done(outcome)
            self._audit.ended(number, outcome)  # nobody waits for it

        self._running.add(number)
        limit = self.settings.policy.timeout
        own = timeout if timeout is not None and (limit is None or timeout < limit) else None
        self.requests.submit(message, finish, own, number)

    def _admit(
        self, request: ExecuteRequest, rules: Rules
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Split user_expressions into those that may run and the replies of those that may not."""
        admitted, refused = {}, {}
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
        """Return what would keep a cell from being run; nothing runs, and nobody is asked.

        Raises AdmissionError where nothing can be decided.
        """
        request = ExecuteRequest(code=code)
        ruling = self.settings.gate.judge(code)
        rules, narrower, keeper = self.settings.rules, self._narrower, self._keeper
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

    # --- what the user approves of ------------------------------------------------------------

    def _granted(self) -> messages.Granted | None:
        return None if self._approver is None else self._approver.granted(self.settings.rules)

    def _permitting(self, granted: messages.Granted | None) -> Rules:
        rules = self.settings.rules.with_own(self.own_builtins)
        return rules if granted is None else rules.granting(granted.modules, granted.packages)

    def _ask_user(
        self, source: str, findings: tuple[Finding, ...], answered: Callable[[Decision], None]
    ) -> bool:
        """Ask about a cell's imports, if nothing else is wrong with it; return whether it was so.

        The cell is decided about anew then: what is allowed may have changed meanwhile.
        """
        approver = self._approver
        imports = () if approver is None else approver.wanted(findings, self.settings.rules)
        if approver is None or not imports:
            return False
        if analyse(source, granting(self._permitting(self._granted()), imports)):
            return False
        approver.ask_imports(imports, answered)
        return True

    # --- other requests -----------------------------------------------------------------------

    def complete(self, code: str, cursor: int, done: Callable[[Any], None]) -> None:
        """Ask the guest for completions; ``done`` gets ``Completed`` or None."""
        message = messages.Complete(id=self.requests.next_id(), code=code, cursor=cursor)
        self._query(message, done)

    def inspect(self, code: str, cursor: int, detail: int, done: Callable[[Any], None]) -> None:
        """Ask the guest about a name; ``done`` gets ``Inspected`` or None."""
        number = self.requests.next_id()
        message = messages.Inspect(id=number, code=code, cursor=cursor, detail=detail)
        self._query(message, done)

    def variables(self, done: Callable[[Any], None]) -> None:
        """Ask the guest what is in its namespace; ``done`` gets ``Variables`` or None."""
        message = messages.ListVariables(id=self.requests.next_id())
        self._query(message, done)

    def get_variable(self, name: str, done: Callable[[Any], None]) -> None:
        """Ask the guest for a variable's value; ``done`` gets ``VariableValue`` or None."""
        message = messages.GetVariable(id=self.requests.next_id(), name=name)
        self._query(message, done)

    def shrink_image(
        self, image: bytes, most: int, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        """Have the guest make an image of ``most`` bytes of one; ``done`` gets ``ShrunkImage``.

        Or None, after so many ``seconds``. The guest reads the file, because a guest wrote it: no
        decoder of the host's is fed by one.
        """
        number = self.requests.next_id()
        self._query(messages.ShrinkImage(id=number, image=image, most=most), done, seconds)

    def set_variables(
        self, values: Mapping[str, messages.Value], done: Callable[[Reply], None]
    ) -> None:
        """Set variables of the guest's, all or none; ``done`` gets how that ended.

        It may take as a cell may. A table takes a library that cells may import: else it is
        refused as their import is.
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
        """Whether the main shell's cell awaits, and comm messages can be taken up meanwhile."""
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
        """Hand a comm message to the guest; ``done`` gets what kept it from being handled, or None.

        Its handler may run as long as a cell: it is what a button's click starts.
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
        """Give the running cell what the user typed; ``eof`` where there is nobody to ask."""
        self.requests.answer_question(value, eof=eof)

    def interrupt(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        if self._keeper is None or not self._keeper.interrupt():
            self.requests.interrupt()

    def hold(self, *, held: bool) -> None:
        """Have the guest wait with its output until front ends have taken theirs, or go on."""
        self.requests.supervisor.hold(held=held)

    def read_output(self) -> None:
        """Pass on what the guest has written by now, unless it has to wait with it."""
        guest = self.requests.supervisor.guest
        if guest is not None:
            guest.read_output()

    @property
    def offers_subshells(self) -> bool:
        """Whether cells may run beside others: not where the user is asked, for one of them."""
        return self._approver is None

    def have_subshells(self, numbers: tuple[int, ...]) -> None:
        """Have these subshells, and no others."""
        self.requests.have_subshells(numbers)

    # --- the session itself -------------------------------------------------------------------

    def adopt(self, settings: SessionSettings) -> None:
        """Enforce narrower settings from now on; replace the guest where that takes another."""
        self._audit.narrowed(settings)
        self.settings = settings
        self.requests.narrow_to(settings)  # first: it holds, whatever fails of what is shown
        if self._narrower is not None:
            self._narrower.adopt(settings)
        if self._approver is not None:
            self._approver.narrow_to(settings.digest)
        self.requests.supervisor.narrow_to(settings)

    def disconnect(self) -> None:
        """End the way out of guests, and account for what goes on: nobody hears of it later."""
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
        """End guest and zygote; return whether they are gone, or still remove their folder."""
        self.disconnect()
        return self.requests.close()


def _failed(name: str, why: str) -> Outcome:
    return Outcome("error", error=messages.Error(ename=name, evalue=why, traceback=[why]))


def _source_of(request: ExecuteRequest, ruling: Ruling) -> tuple[str, messages.Template | None]:
    """Return the source that is to run, and for a template what it is started with."""
    if ruling.run is None:
        return (request.code if ruling.findings else transform(request.code).source), None
    template = ruling.run.template
    return template.source, messages.Template(name=template.name, state=ruling.run.state)
