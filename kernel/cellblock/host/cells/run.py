"""One cell, from its arrival to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.analysis import size, transform
from cellblock.host.outcome import Cell, Outcome
from cellblock.host.output import gateway

if TYPE_CHECKING:
    from cellblock.host.artifacts import Exported
    from cellblock.host.cells.front import Asked
    from cellblock.host.cells.station import Station
    from cellblock.render.bundle import Failure
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
        self.exported: Exported | None = None
        self._error: dict[str, Any] | None = None
        self._metadata: dict[str, Any] = {}
        self._ended = False

    def start(self) -> None:
        """Say what runs, then run it."""
        station = self._station
        if excess := size.excess(self.raw):
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

    def _finish(self, outcome: Outcome, found: Exported | None = None) -> None:
        views, self.outcome = self._station.views, outcome
        self._account(outcome)
        if found:
            self._tell_of(found)
        if outcome.status == "denied":
            self.fail(*views.denial(outcome.findings, outcome.label))
        elif outcome.stopped is not None:
            from cellblock.host.cells import stops  # noqa: PLC0415 - few are

            self.fail(*stops.shown(outcome.stopped, views.in_force))
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

    def _tell_of(self, found: Exported) -> None:
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
