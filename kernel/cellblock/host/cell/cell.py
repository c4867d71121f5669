"""Cells as every front runs them: a ``CellRun`` each.

``Front`` is what all fronts of a session have in common; a kernel is one, and a sandbox.
"""

from __future__ import annotations

import errno
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec.structs import replace

from cellblock.analysis import transform
from cellblock.analysis.dataflow import Bindings
from cellblock.analysis.transform import exceeded_limit
from cellblock.host.cell import status
from cellblock.host.cell.lacking import lacking
from cellblock.host.cell.transcript import OF_DISPLAY
from cellblock.host.output import gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import PolicyError
    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.outputs import Outputs
    from cellblock.host.cell.publishing import Parent
    from cellblock.host.cell.status import Views
    from cellblock.host.cell.written import Looks, Written
    from cellblock.host.consent.approver import Approver, Consult
    from cellblock.host.services.artifacts import ArtifactCollector, CellArtifacts
    from cellblock.host.services.tools.calls import Approval
    from cellblock.host.session.history import History
    from cellblock.host.session.types import ExecuteRequest, Outcome, Stopped
    from cellblock.host.state.names import BranchListing
    from cellblock.render.cards import Failure
    from cellblock.render.outcomes import Refusal
    from cellblock.wire import messages as wire


#: Names of one refused cell that are remembered.
_MOST_UNSET: Final = 1_000
#: Seconds between two ticks of the coarse clock, and more (clock_getres(2)).
_TICK: Final = 0.05
#: Calls about files, and numbers whose text says by itself that something was refused.
_OF_FILES: Final = frozenset({"database", "file", "process"})
_SAY_SO: Final = frozenset({errno.EACCES, errno.EPERM})


class CellRun:
    """One cell, from its arrival to its reply: what it publishes, and what it is answered with."""

    def __init__(self, front: Front, request: ExecuteRequest, outputs: Outputs) -> None:
        self._front, self.request, self._outputs = front, request, outputs
        #: Its number in the audit log, once it is decided about.
        self.number = 0
        self.count = request.execution_count
        #: How it ended; None until then, and for one that never came to the session.
        self.outcome: Outcome | None = None
        #: What the OS layer refused it, where that ended it.
        self.refusal: Refusal | None = None
        #: The files that were copied out.
        self.exported: CellArtifacts | None = None
        #: What errors that were shown said, as hashes.
        self._shown_errors = set[int]()
        self._metadata: dict[str, Any] = {}
        self._ended = False
        #: In seconds since 1970, by the clock of file systems, which may be a tick behind.
        self._began = time.time() - _TICK

    def start(self) -> None:
        """Echo the code, then run it."""
        front, request = self._front, self.request
        if excess := exceeded_limit(request.code):
            front.audit.too_long(request.code, self.count)
            self._fail(*front.views.too_long(*excess))
            return
        if not request.silent:
            echo = {"code": request.code, "execution_count": self.count}
            self._outputs.publish("execute_input", echo)
        self.show_gaps()
        if request.store_history and request.code.strip() and front.history is not None:
            source = transform(request.code).source
            front.history.store(self.count, request.code, source)
        if front.session is None and front.starting is not None:
            front.starting.ask(request, self._run)
        else:
            self._run()

    def _run(self) -> None:
        front = self._front
        if front.session is not None:
            if front.exports is not None:
                front.exports.begin()
            front.session.execute(self.request, self._done, self._decided)
            return
        # What the user allowed does not begin either, where the log could not take it.
        unwritten = front.audit.barred() if front.starting is not None else None
        views = front.views
        self._fail(*(views.unwritten(unwritten, runs=False) if unwritten else views.problem()))

    def _decided(self) -> None:
        """Say on a visible cell, above its output, that it is not on the audit log: once."""
        self.number = self._front.audit.number
        if self._ended or self.request.silent:
            return
        if (problem := self._front.audit.new_problem()) is not None:
            self._outputs.card(self._front.views.unwritten(problem, runs=True)[0])

    def show_gaps(self) -> None:
        """Show, above a session's first visible cell's output, what is not enforced here."""
        if self.request.silent:
            return
        outputs, views = self._outputs, self._front.views
        if card := views.gaps_once():
            outputs.card(card)
        if views.notice:
            outputs.notice(views.notice)
            views.notice = ""

    @property
    def failed(self) -> bool:
        """Whether an exception was shown."""
        return bool(self._shown_errors)

    def error(self, message: wire.Error) -> None:
        """Publish an exception: the cell's own, or another that it shows."""
        self._shown_errors.add(_hash(message))
        error, refusal = self._explained(message)
        if not self.request.silent:
            self._outputs.publish("error", error, OF_DISPLAY if message.of_display else None)
            if refusal is not None:
                self._outputs.card(self._front.views.refusal_card(refusal))

    def _explained(self, message: wire.Error) -> tuple[dict[str, Any], Refusal | None]:
        """Return an exception as it is published, and what the OS layer refused, if that is why."""
        error = gateway.clean_error(message.ename, message.evalue, message.traceback)
        call, views = message.failed_call, self._front.views
        refusal = views.refusal_of(call, self.request.code) if call is not None else None
        if refusal is not None:
            # Runners such as papermill show no more than this of an error.
            said = views.refusal_in_a_line(refusal)
            error["evalue"] = f"{error['evalue']} [{said}]".lstrip()
            if not self.request.allow_stdin:  # nor nbconvert more than the traceback
                error["traceback"] = [*error["traceback"], f"[{said}]"]
            elif call and call.kind in _OF_FILES and call.errno not in _SAY_SO:
                # What is denied seems missing in namespaces, a disk's fault where it is masked.
                why = views.refusal_reason(refusal)
                error["traceback"] = [*error["traceback"], f"[{why}]"]
        return error, refusal

    # --- its end ------------------------------------------------------------------------------

    def _done(self, outcome: Outcome) -> None:
        exports, self._ended = self._front.exports, True
        none = self.request.silent or self.request.subshell > 0 or outcome.usage is None
        if none:
            self._finish(outcome)
        elif exports is None:
            self._look(outcome)
        else:
            exports.after_cell(lambda found: self._look(outcome, found))

    def _look(self, outcome: Outcome, found: CellArtifacts | None = None) -> None:
        """Look at what the cell wrote where cells may keep folders locked; then finish."""
        front, request = self._front, self.request
        look = front.views.look(request.code, self._began, reads=request.allow_stdin)
        if look is None or front.looks is None:
            self._finish(outcome, found)
        else:
            front.looks.begin(look, lambda written: self._finish(outcome, found, written))

    def _finish(
        self,
        outcome: Outcome,
        found: CellArtifacts | None = None,
        written: Written | None = None,
    ) -> None:
        views, self.outcome = self._front.views, outcome
        self._record_usage(outcome)
        if outcome.status in ("denied", "refused") and not self.request.silent:
            bound = Bindings(transform(self.request.code).source).bound
            self._front.unset |= dict.fromkeys(sorted(bound)[:_MOST_UNSET], self.count)
        self._say_what_was_written(found, written)
        if outcome.status == "denied":
            self._fail(*views.denial(outcome.findings, outcome.label))
        elif outcome.stopped is not None:
            self._fail(*self._front.stopped_card(outcome.stopped))
        elif outcome.unwritten is not None:
            self._fail(*views.unwritten(outcome.unwritten, runs=False))
        elif outcome.unadmitted is not None:
            self._fail(*views.unadmitted(outcome.unadmitted))
        elif outcome.status == "ok":
            self._say_unset()
            expressions = gateway.clean_expressions(
                outcome.user_expressions, show=views.show_in_passing
            )
            self._reply("ok", outcome.payload, user_expressions=expressions, exits=outcome.exits)
        elif outcome.error is None or (views.failed and not self.failed):
            self._fail(*views.problem())
        else:
            if not outcome.error.is_shown and _hash(outcome.error) not in self._shown_errors:
                self.error(outcome.error)
            # The one that ended it: what a display or a callback raised is another output.
            error, self.refusal = self._explained(outcome.error)
            self._say_unset()
            self._reply("error", outcome.payload, **error)

    def _say_what_was_written(self, exported: CellArtifacts | None, found: Written | None) -> None:
        if exported:
            self._show_exported(exported)
        if found is None:
            return
        views = self._front.views
        lines = views.secrets_once(found), views.gpus_once(found), views.home_once(found)
        for line in lines:
            if line:
                self._outputs.notice(line)
        # Where somebody reads along; other runs say it when they end.
        if card := views.staging_once(found):
            self._outputs.card(card)
        if line := views.committed(found):
            self._outputs.notice(line)

    def _record_usage(self, outcome: Outcome) -> None:
        """Put what the cell took into its reply, and a cell that is numbered on the account."""
        if outcome.usage is None:
            return
        data: dict[str, Any] = {"usage": outcome.usage.as_dict()}
        if calls := outcome.tool_calls.as_list():
            data |= {"tool_calls": calls, "tool_calls_left_out": outcome.tool_calls.left_out}
        self._metadata = {"cellblock": data}
        if self.request.store_history and self.request.code:
            self._front.views.add_usage(self.count, self.request.code, outcome.usage)

    def _say_unset(self) -> None:
        """Say which names this cell read that a cell before it was to set, and was not run."""
        unset = self._front.unset
        if not unset or self.request.silent:
            return
        names = Bindings(transform(self.request.code).source)
        for name in sorted(names.read & unset.keys()):
            why = f"cell {unset.pop(name)}, which sets it, was not run"
            self._outputs.notice(f"notes: {name} is missing or old: {why}")
        for name in names.bound & unset.keys():
            del unset[name]

    def _show_exported(self, found: CellArtifacts) -> None:
        """Show which files were copied out, and put them into the reply and on the audit log."""
        self.exported = found
        self._front.audit.exported(found.artifacts)
        data = [one.as_dict() for one in found.artifacts]
        self._metadata.setdefault("cellblock", {})["artifacts"] = data
        self._outputs.card(self._front.views.artifacts(found))

    def _fail(self, bundle: dict[str, Any], failure: Failure) -> None:
        """Show a card of ours and end the cell as an error, for front ends and in the reply."""
        if not self.request.silent:
            self._outputs.card(bundle)
            self._outputs.publish("error", failure.published())
        self._reply("error", [], **failure.replied())

    def _reply(
        self,
        status: str,
        payload: list[dict[str, Any]],
        *,
        exits: Literal["ends", "stays"] | None = None,
        **fields: Any,
    ) -> None:
        show = self._front.views.show_in_passing
        ours = [] if exits is None else [{"source": "ask_exit", "keepkernel": exits == "stays"}]
        content = {
            "status": status,
            "execution_count": self.count,
            "user_expressions": {},
            "payload": [*gateway.clean_payload(payload, show=show), *ours],
            **fields,
        }
        request = self.request
        abort = status == "error" and request.stop_on_error and not request.silent
        self._front.end_cell(self, content, self._metadata, abort=abort)


def _hash(error: wire.Error) -> int:
    """Return what tells an error that was shown from others of its cell."""
    return hash((error.ename, error.evalue, *error.traceback))


class Front(ABC):
    """Takes cells, one at a time in each shell, and shows what a session says of them.

    Without a ``session`` nothing can run, and ``views`` know why.
    """

    def __init__(
        self, outputs: Outputs, views: Views, audit: Audit, history: History | None = None
    ) -> None:
        self.outputs, self.views, self.audit, self.history = outputs, views, audit, history
        self.session: CellSession | None = None
        #: Copies files out after cells, if the policy has that done.
        self.exports: ArtifactCollector | None = None
        #: Looks at what cells wrote, when they have ended.
        self.looks: Looks | None = None
        #: Where the user has to allow that there is a session: asks for it.
        self.starting: Starting | None = None
        #: Asks the user, where the policy has that and somebody can be asked. To be set before
        #: the session is made, as is what decides about calls in its place.
        self.approver: Approver | None = None
        self.approval: Approval | None = None
        #: Puts a question of the host's to its user, whatever the policy has users asked about.
        self.consult: Consult | None = None
        self.execution_count = 0
        #: What is in force where this is a fork of, and what the fork lacks.
        self.inherited: status.Views | None = None
        self.not_copied: tuple[str, ...] = ()
        #: It has the cell of a variant, whose variables are not those that its reader has.
        self.is_variant = False
        #: Names that a cell was to set which was refused, with its number.
        self.unset: dict[str, int] = {}
        #: The main shell's cell that runs.
        self.cell: CellRun | None = None

    def run(self, request: ExecuteRequest, parent: Parent) -> CellRun:
        """Run a cell, whose outputs belong to ``parent``; ``end_cell`` gets its end."""
        if request.store_history:
            self.execution_count += 1
        request = replace(request, execution_count=self.execution_count)
        outputs = self.outputs_of(request.subshell)
        cell = CellRun(self, request, outputs)
        if not request.subshell:
            self.cell = cell
        self.begin_outputs(outputs, parent, cell)
        self.on_cell(cell)
        cell.start()
        return cell

    def begin_outputs(self, outputs: Outputs, parent: Parent, cell: CellRun | None = None) -> None:
        """Show under ``parent`` what comes from now on; what was written before is not of it."""
        if self.session is not None:
            self.session.read_output()
        outputs.begin(parent, cell)

    def outputs_of(self, _subshell: int) -> Outputs:
        """Return what shows the outputs of a shell: those of one that is no more are the main's."""
        return self.outputs

    @abstractmethod
    def end_cell(
        self, cell: CellRun, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Answer a cell that ran; with ``abort``, refuse those queued behind it in its shell."""

    @abstractmethod
    def on_cell(self, cell: CellRun) -> None:
        """Note that a cell begins."""

    # --- what a session tells -----------------------------------------------------------------

    @abstractmethod
    def on_question(self, request: wire.InputRequest) -> bool:
        """Put the running cell's question; return whether somebody is asked.

        ``Session.answer`` takes the answer.
        """

    @abstractmethod
    def stop_holding(self) -> None:
        """Stop holding the guest for front ends that are behind: it must be heard now."""

    def on_sent(self, subshell: int) -> None:
        """Show what the guest shows from now on under the shell's cell: it was sent that."""
        self.outputs_of(subshell).on_sent()

    def on_awaits(self) -> None:  # noqa: B027 - fronts without comms do nothing
        """Take up comm messages: the running cell awaits from here on."""

    def on_output(self, message: wire.FromGuest) -> None:
        """Pass a guest's output on."""
        self.outputs_of(getattr(message, "subshell", 0)).show(message)

    def tell(self, text: wire.Stream) -> None:
        """Show text of the host's own under the main shell's cell, sent to a guest or not."""
        self.outputs.tell(text)

    def stopped_card(self, stopped: Stopped) -> status.Shown:
        """Return what is shown of a cell that was ended from outside."""
        return status.stopped_card(stopped, self.views.in_force, of_variant=self.is_variant)

    def on_restart(self, stopped: Stopped) -> None:
        """Show that a guest was lost while nothing ran, or before its request began."""
        self.outputs.card(self.stopped_card(stopped)[0])

    def on_undo(self, stopped: Stopped) -> None:
        """Show which cells were undone, and note it beside the cell that did it."""
        self.outputs.card(status.undone_card(stopped, self.views.in_force))
        if stopped.detail and self.history is not None:
            self.history.annotate(self.execution_count, f"# back at {stopped.detail}")
        elif stopped.undone and self.history is not None:
            counts = ", ".join(f"[{count}]" for count in stopped.undone)
            self.history.annotate(self.execution_count, f"# undid {counts}")

    def on_branches(self, found: BranchListing) -> None:
        """Show which branch the session is on, and which others there are."""
        self.outputs.card(status.branches_card(found))

    def on_forked(self, stopped: Stopped) -> None:
        """Remember what a fork lacks; it has the locks of what it is a fork of, and one more."""
        if stopped.restored is not None and (parents := self.inherited) is not None:
            self.not_copied = lacking(stopped.restored)
            self.views.inherit(parents)
            locks = {} if parents.report is None else parents.report.achieved
            self.audit.locked(parents.enforcement, parents.gaps, locks, parents.proved)

    def on_notice(self, text: str) -> None:
        """Say what is not kept any more, or for now, and why."""
        self.outputs.notice(text)

    def on_tools(self, tools: tuple[wire.Tool, ...]) -> None:
        """Remember the tools that cells may call: ``%tools`` lists them."""
        self.views.tools_in_force = tools

    def on_policy_error(self, error: PolicyError) -> None:
        """Remember why nothing can run under this policy: every cell says so."""
        self.views.refuse(error)

    def on_failure(self, detail: str) -> None:
        """Remember why no guest can be started: every cell says so."""
        self.views.fail(detail)

    def on_locks(self, report: wire.LockReport) -> str:
        """Take a new guest's report of its locks; return why nothing may run in it, or nothing."""
        refusal = self.views.locked(report)
        views = self.views
        self.audit.locked(views.enforcement, views.gaps, report.achieved, views.proved)
        self.outputs.on_new_guest()
        if self.cell is not None:
            self.cell.show_gaps()
        return refusal


# --- what fronts hand in ------------------------------------------------------------------------


class CellSession(Protocol):
    """The session that cells run in."""

    def execute(
        self,
        request: ExecuteRequest,
        done: Callable[[Outcome], None],
        decided: Callable[[], None],
    ) -> None:
        """Run a cell; ``done`` gets its outcome. ``decided`` is called when it is decided about."""

    def read_output(self) -> None:
        """Pass on what the guest has written by now."""


class Starting(Protocol):
    """What the first cell has to wait for, where a session takes the user's consent."""

    def ask(self, request: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell, which goes on once that is decided."""

    def interrupt(self) -> None:
        """Take the question back: there is no session."""
