"""``Front``, which takes cells and shows what the session answers, and ``CellRun``, one cell.

``jupyter.kernel`` and ``api.front`` derive from ``Front``. A front hands each cell to
``Front.run``, which makes a ``CellRun``. The steps of a ``CellRun``, each of which may be the last:

    start ── source too long ───────────────────────────────────────────► _fail
      │ echo, gaps, history; consent, if the session still needs it
      ▼
    _run ── no session ─────────────────────────────────────────────────► _fail
      │ Session.execute; _decided when the cell's audit record is written
      ▼
    _done ── artifacts are copied out ──► _look ── a thread looks at files ──► _finish
                                                                                 │
                                              cards, then _reply or _fail ◄──────┘

``_fail`` shows a card of cellblock's own and replies with an error. Either way the reply reaches
the front through ``end_cell``, once.
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


#: Names that are remembered of one cell that was not run, of those that it would have set.
_MOST_UNSET: Final = 1_000
#: Seconds. File systems stamp files with a coarse clock (clock_getres(2)), which may be behind
#: ``time.time()`` by a tick, and a tick is shorter than this.
_CLOCK_TICK: Final = 0.05
#: The kinds of failed calls that are about files.
_FILE_KINDS: Final = frozenset({"database", "file", "process"})
#: The most addresses in one card.
_MOST_ADDRESSES: Final = 5
#: The errors whose own text says already that something was refused.
_REFUSED_BY_TEXT: Final = frozenset({errno.EACCES, errno.EPERM})


class CellRun:
    """One cell, from its request to its reply. Publishes its outputs and makes its reply."""

    def __init__(self, front: Front, request: ExecuteRequest, outputs: Outputs) -> None:
        self._front = front
        self.request = request
        self._outputs = outputs
        #: The cell's number in the audit log; 0 until the session has decided about the cell.
        self.number = 0
        self.count = request.execution_count
        #: None until the cell has ended, and for a cell that never reached the session.
        self.outcome: Outcome | None = None
        #: The policy's refusal, if the exception that ended the cell came from one.
        self.refusal: Refusal | None = None
        #: The policy's fields about which a card was shown.
        self._refused_by = set[str]()
        #: The addresses that failed programs of the cell were given, in order, each once.
        self._addresses = dict[str, None]()
        #: The files that were copied out after the cell.
        self.exported: CellArtifacts | None = None
        #: Hashes of the exceptions that were shown (``_hash``).
        self._shown_errors = set[int]()
        self._metadata: dict[str, Any] = {}
        self._ended = False
        #: When the cell began, in seconds since 1970. Files that it writes are not older, though
        #: their clock may be a tick behind.
        self._began = time.time() - _CLOCK_TICK

    def start(self) -> None:
        """Show the code and what is not enforced, then run the cell.

        A session that needs the user's consent first asks for that, on behalf of the first cell.
        """
        front = self._front
        request = self.request
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
        # There is no session. Even one that the user has allowed does not begin if the audit log
        # can't be written; then the card says so.
        unwritten = front.audit.barred() if front.starting is not None else None
        views = front.views
        self._fail(*(views.unwritten(unwritten, runs=False) if unwritten else views.problem()))

    def _decided(self) -> None:
        """Take the cell's audit number, and say above its output if the log can't be written.

        Called by the session when it has decided about the cell. Each problem of the log is shown
        once, under the first cell that is visible and still runs.
        """
        self.number = self._front.audit.number
        if self._ended or self.request.silent:
            return
        if (problem := self._front.audit.new_problem()) is not None:
            self._outputs.card(self._front.views.unwritten(problem, runs=True)[0])

    def show_gaps(self) -> None:
        """Show the card of gaps and the session's notice, above the first visible cell's output."""
        if self.request.silent:
            return
        outputs = self._outputs
        views = self._front.views
        if card := views.gaps_once():
            outputs.card(card)
        if views.notice:
            outputs.notice(views.notice)
            views.notice = ""

    @property
    def failed(self) -> bool:
        """Whether an exception was shown, or would have been if the cell were not silent."""
        return bool(self._shown_errors)

    def error(self, message: wire.Error) -> None:
        """Publish an exception, with a card if the policy was behind the call that failed.

        The exception is the one that ended the cell or another that the cell shows, such as a
        formatter's.
        """
        self._shown_errors.add(_hash(message))
        error, refusal = self._explained(message)
        if not self.request.silent:
            self._outputs.publish("error", error, OF_DISPLAY if message.of_display else None)
            if refusal is not None:
                self._refused_by.add(refusal.field)
                self._outputs.card(self._front.views.refusal_card(refusal))

    def program_failed(self, address: str) -> None:
        """Note that a program of the cell failed, and the address that it was given."""
        if len(self._addresses) < _MOST_ADDRESSES:
            self._addresses[address] = None

    def _show_why_programs_failed(self) -> None:
        """Show one card, below all other output, if the policy kept programs from a network."""
        views = self._front.views
        refusal = views.refusal_of_programs(list(self._addresses), self.request.code)
        if refusal is None or self.request.silent or refusal.field in self._refused_by:
            return
        self._outputs.card(views.refusal_card(refusal))

    def _explained(self, message: wire.Error) -> tuple[dict[str, Any], Refusal | None]:
        """Return the content of an exception's message, and the policy's refusal behind it, if any.

        The refusal is also put into the exception's text, in one line, for readers who get no card.
        """
        call = message.failed_call
        views = self._front.views
        refusal = views.refusal_of(call, self.request.code) if call is not None else None
        # A card stands below the user's own frames.
        lines = message.folded if refusal is not None and message.folded else message.traceback
        error = gateway.clean_error(message.ename, message.evalue, lines)
        if refusal is not None:
            # Runners such as papermill show only an error's value.
            sentence = views.refusal_in_a_line(refusal)
            error["evalue"] = f"{error['evalue']} [{sentence}]".lstrip()
            if not self.request.allow_stdin:
                # Nobody reads along, so a runner may show this. nbconvert shows only the traceback.
                error["traceback"] = [*error["traceback"], f"[{sentence}]"]
            elif call and call.kind in _FILE_KINDS and call.errno not in _REFUSED_BY_TEXT:
                # In namespaces a denied file seems to be missing, and a masked one seems to be a
                # fault of the disk. The reader of the traceback must see that it was refused.
                reason = views.refusal_reason(refusal)
                error["traceback"] = [*error["traceback"], f"[{reason}]"]
        return error, refusal

    # --- the cell's end -----------------------------------------------------------------------

    def _done(self, outcome: Outcome) -> None:
        """Take the outcome from the session: copy artifacts out if the policy asks for that."""
        exports = self._front.exports
        self._ended = True
        # A cell without usage did not run, so it wrote nothing. Files are copied and looked for
        # only after cells that somebody sees, in the main shell.
        unchecked = self.request.silent or self.request.subshell > 0 or outcome.usage is None
        if unchecked:
            self._finish(outcome)
        elif exports is None:
            self._look(outcome)
        else:
            exports.after_cell(lambda exported: self._look(outcome, exported))

    def _look(self, outcome: Outcome, exported: CellArtifacts | None = None) -> None:
        """Look for files that the user should hear of, if the views want that; then finish.

        A thread looks, since a cell may keep a folder locked for as long as it likes (ADR 0003).
        """
        front = self._front
        request = self.request
        look = front.views.look(request.code, self._began, reads=request.allow_stdin)
        if look is None or front.looks is None:
            self._finish(outcome, exported)
        else:
            front.looks.begin(look, lambda written: self._finish(outcome, exported, written))

    def _finish(
        self,
        outcome: Outcome,
        exported: CellArtifacts | None = None,
        written: Written | None = None,
    ) -> None:
        """Show how the cell ended, and reply."""
        views = self._front.views
        self.outcome = outcome
        self._record_usage(outcome)
        if outcome.status in ("denied", "refused") and not self.request.silent:
            # Later cells that read these names will hear that this cell did not run.
            bound = Bindings(transform(self.request.code).source).bound
            self._front.unset |= dict.fromkeys(sorted(bound)[:_MOST_UNSET], self.count)
        self._show_files(exported, written)
        if outcome.status == "denied":
            self._fail(*views.denial(outcome.findings, outcome.label))
        elif outcome.stopped is not None:
            self._fail(*self._front.stopped_card(outcome.stopped))
        elif outcome.unwritten is not None:
            self._fail(*views.unwritten(outcome.unwritten, runs=False))
        elif outcome.unadmitted is not None:
            self._fail(*views.unadmitted(outcome.unadmitted))
        elif outcome.status == "ok":
            self._show_why_programs_failed()
            self._note_unset()
            expressions = gateway.clean_expressions(
                outcome.user_expressions, show=views.show_in_passing
            )
            self._reply("ok", outcome.payload, user_expressions=expressions, exits=outcome.exits)
        elif outcome.error is None or (views.failed and not self.failed):
            self._fail(*views.problem())
        else:
            if not outcome.error.is_shown and _hash(outcome.error) not in self._shown_errors:
                self.error(outcome.error)
            # ``error`` may have been called for other exceptions, as those of a display or a
            # callback. The reply has the exception that ended the cell.
            error, self.refusal = self._explained(outcome.error)
            self._show_why_programs_failed()
            self._note_unset()
            self._reply("error", outcome.payload, **error)

    def _show_files(self, exported: CellArtifacts | None, written: Written | None) -> None:
        """Show the files that were copied out, and what the look at the cell's folders found."""
        if exported:
            self._show_exported(exported)
        if written is None:
            return
        views = self._front.views
        lines = views.secrets_once(written), views.gpus_once(written), views.home_once(written)
        for line in lines:
            if line:
                self._outputs.notice(line)
        # Runs without a reader get no card for each cell: they say it when they end.
        if card := views.staging_once(written):
            self._outputs.card(card)
        if line := views.committed(written):
            self._outputs.notice(line)

    def _record_usage(self, outcome: Outcome) -> None:
        """Put the cell's usage and tool calls into the reply, and a numbered cell's into %usage."""
        if outcome.usage is None:
            return
        data: dict[str, Any] = {"usage": outcome.usage.as_dict()}
        if calls := outcome.tool_calls.as_list():
            data |= {"tool_calls": calls, "tool_calls_left_out": outcome.tool_calls.left_out}
        self._metadata = {"cellblock": data}
        if self.request.store_history and self.request.code:
            self._front.views.add_usage(self.count, self.request.code, outcome.usage)

    def _note_unset(self) -> None:
        """Note which names this cell read that an earlier cell would have set, but was not run."""
        unset = self._front.unset
        if not unset or self.request.silent:
            return
        names = Bindings(transform(self.request.code).source)
        for name in sorted(names.read & unset.keys()):
            reason = f"cell {unset.pop(name)}, which sets it, was not run"
            self._outputs.notice(f"notes: {name} is missing or old: {reason}")
        for name in names.bound & unset.keys():
            del unset[name]

    def _show_exported(self, exported: CellArtifacts) -> None:
        """Show which files were copied out, and put them into the reply and on the audit log."""
        self.exported = exported
        self._front.audit.exported(exported.artifacts)
        data = [artifact.as_dict() for artifact in exported.artifacts]
        self._metadata.setdefault("cellblock", {})["artifacts"] = data
        self._outputs.card(self._front.views.artifacts(exported))

    def _fail(self, bundle: dict[str, Any], failure: Failure) -> None:
        """Show a card and an error, both cellblock's own, and reply with the error.

        The card is what users read. The error makes front ends and runners stop.
        """
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
        """Make the reply's content and hand it to the front.

        The guest's payload is cleaned, and has no ``ask_exit`` after that. The host adds one if
        the outcome says that the cell asked to exit (``exits``).
        """
        show = self._front.views.show_in_passing
        own = [] if exits is None else [{"source": "ask_exit", "keepkernel": exits == "stays"}]
        content = {
            "status": status,
            "execution_count": self.count,
            "user_expressions": {},
            "payload": [*gateway.clean_payload(payload, show=show), *own],
            **fields,
        }
        request = self.request
        abort = status == "error" and request.stop_on_error and not request.silent
        self._front.end_cell(self, content, self._metadata, abort=abort)


def _hash(error: wire.Error) -> int:
    """Return a hash that tells an exception from the others of its cell."""
    return hash((error.ename, error.evalue, *error.traceback))


class Front(ABC):
    """A front of one session: takes cells, one at a time in each shell, and shows their outputs.

    The owner sets ``session`` and the services that it has. While ``session`` is None no cell can
    run, and each shows the problem that ``views`` have. The ``on_…`` methods are called by the
    session.
    """

    def __init__(
        self, outputs: Outputs, views: Views, audit: Audit, history: History | None = None
    ) -> None:
        self.outputs = outputs
        self.views = views
        self.audit = audit
        self.history = history
        self.session: CellSession | None = None
        #: Copies files out after cells, if the policy says so.
        self.exports: ArtifactCollector | None = None
        #: Looks at the files that cells wrote, when they have ended.
        self.looks: Looks | None = None
        #: Asks the user to allow the session, if that is needed before there is one.
        self.starting: Starting | None = None
        #: Asks the user about imports and calls, if the policy says so and there is a user to ask.
        #: Set before the session is made.
        self.approver: Approver | None = None
        #: Decides about calls in the user's place. Set before the session is made.
        self.approval: Approval | None = None
        #: Puts a question of the host's own to the user, whatever the policy says about asking.
        self.consult: Consult | None = None
        self.execution_count = 0
        #: Of a fork: the views of the session that it was forked from.
        self.inherited: status.Views | None = None
        #: Of a fork: what it lacks, such as running threads, in words.
        self.not_copied: tuple[str, ...] = ()
        #: Whether this front runs the cell of a variant, in a guest apart from its reader's.
        self.is_variant = False
        #: Names that a cell would have set if it had not been denied or refused, with its number.
        self.unset: dict[str, int] = {}
        #: The cell that came last in the main shell.
        self.cell: CellRun | None = None

    def run(self, request: ExecuteRequest, parent: Parent) -> CellRun:
        """Run a cell and show its outputs under ``parent``; ``end_cell`` gets the reply."""
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
        """Show outputs under ``parent`` from now on.

        First reads the outputs that wait in the channel: they belong to the earlier parent.
        """
        if self.session is not None:
            self.session.read_output()
        outputs.begin(parent, cell)

    def outputs_of(self, _subshell: int) -> Outputs:
        """Return the ``Outputs`` of a subshell, or the main shell's if that subshell is gone."""
        return self.outputs

    @abstractmethod
    def end_cell(
        self, cell: CellRun, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Answer a cell; with ``abort``, refuse the cells queued behind it in its shell."""

    @abstractmethod
    def on_cell(self, cell: CellRun) -> None:
        """Note that a cell begins."""

    # --- called by the session ----------------------------------------------------------------

    @abstractmethod
    def on_question(self, request: wire.InputRequest) -> bool:
        """Put the running cell's question to the user; return whether there is a user to ask.

        ``Session.answer`` takes the answer.
        """

    @abstractmethod
    def stop_holding(self) -> None:
        """Read from the guest again, though front ends are behind: the host needs its answer."""

    def on_sent(self, subshell: int) -> None:
        """Show outputs under the shell's last cell from now on: it has been sent to the guest."""
        self.outputs_of(subshell).on_sent()

    def on_awaits(self) -> None:  # noqa: B027 - fronts without comms do nothing
        """Pass comm messages to the guest: the running cell awaits from here on."""

    def on_output(self, message: wire.FromGuest) -> None:
        """Pass a guest's output on."""
        self.outputs_of(getattr(message, "subshell", 0)).show(message)

    def tell(self, text: wire.Stream) -> None:
        """Show the host's own text under the main shell's last cell, sent to a guest or not."""
        self.outputs.tell(text)

    def stopped_card(self, stopped: Stopped) -> status.Shown:
        """Return the card and error of a cell that was ended from outside."""
        return status.stopped_card(stopped, self.views.in_force, of_variant=self.is_variant)

    def on_restart(self, stopped: Stopped) -> None:
        """Show that a guest was lost while nothing ran, or before its request began."""
        self.outputs.card(self.stopped_card(stopped)[0])

    def on_undo(self, stopped: Stopped) -> None:
        """Show which cells were undone, and note that in the history, beside the last cell."""
        self.outputs.card(status.undone_card(stopped, self.views.in_force))
        if stopped.detail and self.history is not None:
            self.history.annotate(self.execution_count, f"# back at {stopped.detail}")
        elif stopped.undone and self.history is not None:
            counts = ", ".join(f"[{count}]" for count in stopped.undone)
            self.history.annotate(self.execution_count, f"# undid {counts}")

    def on_branches(self, listing: BranchListing) -> None:
        """Show which branch the session is on, and which others there are."""
        self.outputs.card(status.branches_card(listing))

    def on_forked(self, stopped: Stopped) -> None:
        """Take over a fork: remember what it lacks, and what is enforced in it.

        A fork reports no locks. It has those of the guest that it was forked from, and one more.
        """
        if stopped.restored is not None and (parents := self.inherited) is not None:
            self.not_copied = lacking(stopped.restored)
            self.views.inherit(parents)
            locks = {} if parents.report is None else parents.report.achieved
            self.audit.locked(parents.enforcement, parents.gaps, locks, parents.proved)

    def on_notice(self, text: str) -> None:
        """Show a line of the host's, such as why a checkpoint is kept no longer."""
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
        """Take a new guest's report of its locks.

        Return why nothing may run in the guest, or an empty text.
        """
        refusal = self.views.locked(report)
        views = self.views
        self.audit.locked(views.enforcement, views.gaps, report.achieved, views.proved)
        self.outputs.on_new_guest()
        if self.cell is not None:
            self.cell.show_gaps()
        return refusal


# --- what fronts provide ------------------------------------------------------------------------


class CellSession(Protocol):
    """The session that cells run in."""

    def execute(
        self,
        request: ExecuteRequest,
        done: Callable[[Outcome], None],
        decided: Callable[[], None],
    ) -> None:
        """Run a cell; ``done`` gets its outcome, at once if the cell is denied.

        ``decided`` is called when it is settled whether the cell runs; it may be called twice.
        """

    def read_output(self) -> None:
        """Read and show the outputs that the guest has written by now."""


class Starting(Protocol):
    """The question whether a session may begin, which the first cell waits for."""

    def ask(self, request: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask the user on behalf of a cell; call ``go_on`` when that is decided."""

    def interrupt(self) -> None:
        """Withdraw the question: no session begins."""
