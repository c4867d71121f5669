"""One cell, from its arrival to its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.analysis import transform
from cellblock.analysis.transform import exceeded_limit
from cellblock.host.output import gateway
from cellblock.host.session.types import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.errors import PolicyError
    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.outputs import Outputs
    from cellblock.host.cell.status import Views
    from cellblock.host.consent.approvals.approver import Clerk
    from cellblock.host.services.artifacts import ArtifactCollector, CellArtifacts
    from cellblock.host.services.tools.calls import Approval
    from cellblock.host.session.history import History
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import Outcome, Stopped
    from cellblock.render.cards import Failure
    from cellblock.wire import messages as wire


class CellRun:
    """What a running cell publishes, and what it is answered with."""

    def __init__(self, station: Station, asked: Asked) -> None:
        self._station, self._asked = station, asked
        self.silent, self.store, self.raw = asked.silent, asked.store, asked.code
        if self.store:
            station.execution_count += 1
        self.count = station.execution_count
        #: How it ended; None until then, and for one that never came to the session.
        self.outcome: Outcome | None = None
        #: The files that were copied out.
        self.exported: CellArtifacts | None = None
        self._error: dict[str, Any] | None = None
        self._metadata: dict[str, Any] = {}
        self._ended = False

    def start(self) -> None:
        """Say what runs, then run it."""
        station = self._station
        if excess := exceeded_limit(self.raw):
            station.audit.too_long(self.raw, self.count)
            self.fail(*station.views.too_long(*excess))
            return
        if not self.silent:
            echo = {"code": self.raw, "execution_count": self.count}
            station.outputs.publish("execute_input", echo)
        self.show_gaps()
        if self.store and self.raw.strip() and station.history is not None:
            station.history.store(self.count, self.raw, transform(self.raw).source)
        if station.session is None and station.starting is not None:
            station.starting.ask(self._cell(), self._run)
        else:
            self._run()

    def _run(self) -> None:
        station = self._station
        if station.session is None:
            # What the user allowed does not begin either, where the log could not take it.
            unwritten = station.audit.barred() if station.starting is not None else None
            views = station.views
            self.fail(*(views.unwritten(unwritten, runs=False) if unwritten else views.problem()))
            return
        if station.exports is not None:
            station.exports.begin()
        station.session.execute(self._cell(), self._done, self._tell_unwritten)

    def _tell_unwritten(self) -> None:
        """Say on a visible cell, above its output, that it is not on the audit log: once."""
        if self._ended or self.silent:
            return
        if (problem := self._station.audit.untold()) is not None:
            self._station.outputs.card(self._station.views.unwritten(problem, runs=True)[0])

    def _cell(self) -> Cell:
        return Cell(
            raw=self.raw,
            execution_count=self.count,
            silent=self.silent,
            store_history=self.store,
            allow_stdin=self._asked.allow_stdin,
            user_expressions=self._asked.expressions,
            timeout=self._asked.timeout,
        )

    @property
    def failed(self) -> bool:
        """Whether an exception of its was taken note of."""
        return self._error is not None

    def error(self, message: wire.Error) -> None:
        """Publish an exception; the reply repeats the last one."""
        self._error = gateway.clean_error(message.ename, message.evalue, message.traceback)
        if not self.silent:
            self._station.outputs.publish("error", self._error)

    def _done(self, outcome: Outcome) -> None:
        exports, self._ended = self._station.exports, True
        if exports is None or self.silent or outcome.usage is None:
            self._finish(outcome)
        else:
            exports.after_cell(lambda found: self._finish(outcome, found))

    def _finish(self, outcome: Outcome, found: CellArtifacts | None = None) -> None:
        views, self.outcome = self._station.views, outcome
        self._account(outcome)
        if found:
            self._tell_of(found)
        if outcome.status == "denied":
            self.fail(*views.denial(outcome.findings, outcome.label))
        elif outcome.stopped is not None:
            from cellblock.host.cell import status  # noqa: PLC0415 - few are

            self.fail(*status.shown(outcome.stopped, views.in_force))
        elif outcome.unwritten is not None:
            self.fail(*views.unwritten(outcome.unwritten, runs=False))
        elif outcome.unadmitted is not None:
            self.fail(*views.unadmitted(outcome.unadmitted))
        elif outcome.status == "error":
            self._failed(outcome)
        else:
            self._reply(self._content(outcome))

    def _content(self, outcome: Outcome) -> dict[str, Any]:
        show = self._station.views.show_in_passing
        return {
            "status": "ok",
            "execution_count": self.count,
            "user_expressions": gateway.clean_expressions(outcome.user_expressions, show=show),
            "payload": gateway.clean_payload(outcome.payload, show=show),
        }

    def _tell_of(self, found: CellArtifacts) -> None:
        """Show which files were copied out, and put them into the reply and on the audit log."""
        self.exported = found
        self._station.audit.exported(found.artifacts)
        told = [one.as_dict() for one in found.artifacts]
        self._metadata.setdefault("cellblock", {})["artifacts"] = told
        self._station.outputs.card(self._station.views.artifacts(found))

    def _account(self, outcome: Outcome) -> None:
        """Put what the cell took into its reply, and a cell that is numbered on the account."""
        if outcome.usage is not None:
            self._metadata = {"cellblock": {"usage": outcome.usage.as_dict()}}
            if made := outcome.tool_calls.as_list():
                left_out = outcome.tool_calls.left_out
                self._metadata["cellblock"] |= {
                    "tool_calls": made,
                    "tool_calls_left_out": left_out,
                }
            if self.store and self.raw:
                self._station.views.account.add(self.count, self.raw, outcome.usage)

    def _failed(self, outcome: Outcome) -> None:
        """Reply with the exception that was published; a session's own failure is shown now."""
        if self._error is None and self._station.views.failed:
            self.fail(*self._station.views.problem())
            return
        if self._error is None and outcome.error is not None:
            self.error(outcome.error)
        self._end_with_error(self._error or {}, outcome.payload)

    def fail(self, bundle: dict[str, Any], failure: Failure) -> None:
        """Show a card of ours and end the cell as an error, where all look and in the reply."""
        if not self.silent:
            self._station.outputs.card(bundle)
            self._station.outputs.publish("error", failure.published())
        self._end_with_error(failure.replied(), [])

    def show_gaps(self) -> None:
        """Show, above a session's first visible cell's output, what is not enforced here."""
        if self.silent:
            return
        outputs, views = self._station.outputs, self._station.views
        if card := views.gaps_once():
            outputs.card(card)
        if views.notice:
            outputs.notice(views.notice)
            views.notice = ""

    def _end_with_error(self, error: dict[str, Any], payload: list[dict[str, Any]]) -> None:
        content = {
            "status": "error",
            "execution_count": self.count,
            "user_expressions": {},
            "payload": gateway.clean_payload(payload, show=self._station.views.show_in_passing),
            **error,
        }
        abort = self._asked.stop_on_error and not self.silent
        self._station.end_cell(content, self._metadata, abort=abort)

    def _reply(self, content: dict[str, Any]) -> None:
        self._station.end_cell(content, self._metadata, abort=False)


# A session's front, as far as it is the same for every one: what is shown of what it tells.


class Station(ABC):
    """Where cells come in, one at a time, and where what a session says of them arrives.

    Without a ``session`` nothing can run, and ``views`` know why.
    """

    def __init__(
        self, outputs: Outputs, views: Views, audit: Audit, history: History | None = None
    ) -> None:
        self.outputs, self.views, self.audit, self.history = outputs, views, audit, history
        self.session: Session | None = None
        #: What copies files out after cells, if the policy has that done.
        self.exports: ArtifactCollector | None = None
        #: Where the user has to allow that there is a session: what asks for it.
        self.starting: Starting | None = None
        #: Asks the user, where the policy has that and somebody is there to be asked. To be set
        #: before the session is founded, as is what decides about calls in its place.
        self.clerk: Clerk | None = None
        self.approval: Approval | None = None
        self.execution_count = 0
        #: The cell that runs.
        self.cell: CellRun | None = None

    def run(self, asked: Asked, parent: Parent) -> CellRun:
        """Run a cell, whose outputs belong to ``parent``; ``end_cell`` gets its end."""
        self.cell = cell = CellRun(self, asked)
        self.outputs.begin(parent, cell)
        cell.start()
        return cell

    @abstractmethod
    def end_cell(self, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool) -> None:
        """Answer the running cell; with ``abort``, what was to run next is not."""

    # --- what a session tells -----------------------------------------------------------------

    @abstractmethod
    def asked(self, request: wire.InputRequest) -> bool:
        """Put the running cell's question, or don't."""

    def consulted(self, text: str, told: Callable[[str], None]) -> Callable[[], None] | None:  # noqa: ARG002 - who can ask does
        """Put a question of the host's to whoever runs the cell; None: nobody can be asked."""
        return None

    @abstractmethod
    def hurry(self) -> None:
        """Stop holding the guest."""

    def shown(self, message: wire.FromGuest) -> None:
        """Pass a guest's output on."""
        self.outputs.shown(message)

    def restarted(self, stopped: Stopped) -> None:
        """Say that the guest was lost while nothing ran."""
        from cellblock.host.cell import status  # noqa: PLC0415 - few guests are lost

        self.outputs.card(status.shown(stopped, self.views.in_force)[0])

    def undone(self, stopped: Stopped) -> None:
        """Show which cells were undone, and note it beside the cell that did it."""
        from cellblock.host.cell import status  # noqa: PLC0415 - as above

        self.outputs.card(status.undone(stopped, self.views.in_force))
        if stopped.undone and self.history is not None:
            counts = ", ".join(f"[{count}]" for count in stopped.undone)
            self.history.annotate(self.execution_count, f"# undid {counts}")

    def noticed(self, text: str) -> None:
        """Say that no snapshots are taken for now."""
        self.outputs.notice(f"takes no snapshot: {text}. A killed cell may cost its variables")

    def equipped(self, tools: tuple[wire.Tool, ...]) -> None:
        """Remember the tools: ``%tools`` lists them."""
        self.views.tools_in_force = tools

    def refused(self, error: PolicyError) -> None:
        """Remember why the policy can't be kept: every cell says so."""
        self.views.refuse(error)

    def failed(self, detail: str) -> None:
        """Remember why no guest runs: every cell says so."""
        self.views.fail(detail)

    def locked(self, report: wire.LockReport) -> str:
        """Take note of what a guest's locks achieved."""
        refusal = self.views.locked(report)
        views = self.views
        self.audit.locked(views.enforcement, views.gaps, report.achieved, views.proved)
        self.outputs.forget_comms()
        if self.cell is not None:
            self.cell.show_gaps()
        return refusal


# What the way of a cell needs of whoever wants it run, and what is handed in.


class Parent(Protocol):
    """What outputs belong to: a request."""

    @property
    def header(self) -> Mapping[str, Any]:
        """Its header; ``msg_id`` tells it from all others."""


class Publisher(Protocol):
    """Takes what is shown: a type of Jupyter's and the content that goes with it."""

    def publish(
        self,
        kind: str,
        content: Any,
        parent: Any,
        *,
        buffers: Sequence[bytes] = (),
        metadata: Any = None,
    ) -> None:
        """Show it to whoever looks."""


class Brake(Protocol):
    """Holds a guest up whose output nobody takes."""

    def admits(self) -> bool:
        """Say whether output may still be published."""

    def check(self) -> None:
        """Look whether too much waits; called after every message of the guest's."""


class Starting(Protocol):
    """What the first cell has to wait for, where a session takes the user's consent."""

    def ask(self, cell: Cell, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell, which goes on once that is decided."""

    def interrupt(self) -> None:
        """Take the question back: there is no session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A cell as it is handed in.

    ``store`` gives it a number of its own. ``timeout`` are seconds that it may run, where the
    policy does not allow fewer.
    """

    code: str
    silent: bool = False
    store: bool = True
    allow_stdin: bool = False
    stop_on_error: bool = True
    expressions: dict[str, str] = field(default_factory=dict)
    timeout: float | None = None
