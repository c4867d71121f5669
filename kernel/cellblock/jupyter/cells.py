"""One execute_request, from its arrival to its reply."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from cellblock.analysis import transform
from cellblock.host.outcome import Cell, Outcome
from cellblock.host.output import gateway
from cellblock.jupyter import size

if TYPE_CHECKING:
    from cellblock.jupyter.kernel import Kernel
    from cellblock.jupyter.messages import Message
    from cellblock.render.bundle import Failure
    from cellblock.wire import messages as wire


#: User expressions that are answered, characters of a name, and of all texts.
MOST_EXPRESSIONS = 100
LONGEST_NAME = 1_000
LONGEST_EXPRESSIONS = 400_000


class CellRun:
    """What a running cell publishes, and its reply."""

    def __init__(self, kernel: Kernel, message: Message) -> None:
        self._kernel, self._message = kernel, message
        content = message.content
        self.silent = bool(content.get("silent", False))
        self.store = bool(content.get("store_history", True)) and not self.silent
        code = content.get("code")
        #: Anything but text is no source: it runs as none.
        self.raw = code if isinstance(code, str) else ""
        if self.store:
            kernel.execution_count += 1
        self.count = kernel.execution_count
        self._error: dict[str, Any] | None = None
        self._metadata: dict[str, Any] = {}
        self._ended = False

    def start(self) -> None:
        """Say what runs, then run it."""
        kernel = self._kernel
        if excess := size.excess(self.raw):
            kernel.audit.too_long(self.raw, self.count)
            self.fail(*kernel.views.too_long(*excess))
            return
        if not self.silent:
            echo = {"code": self.raw, "execution_count": self.count}
            kernel.channels.publish("execute_input", echo, self._message)
        self.show_gaps()
        if self.store and self.raw.strip():
            kernel.history.store(self.count, self.raw, transform(self.raw).source)
        if kernel.session is None:
            self.fail(*kernel.views.problem())
            return
        kernel.session.execute(self._cell(), self._done)
        self._tell_unwritten()

    def _tell_unwritten(self) -> None:
        """Say on a visible cell, above its output, that it is not on the audit log: once."""
        kernel, problem = self._kernel, self._kernel.audit.problem
        if problem is not None and kernel.audit.untold and not self._ended and not self.silent:
            kernel.audit.untold = False
            kernel.outputs.card(kernel.views.unwritten(problem, runs=True)[0])

    def _cell(self) -> Cell:
        return Cell(
            raw=self.raw,
            execution_count=self.count,
            silent=self.silent,
            store_history=self.store,
            allow_stdin=bool(self._message.content.get("allow_stdin")),
            user_expressions=self._expressions(),
        )

    def _expressions(self) -> dict[str, str]:
        """Return the request's user_expressions, as many and as long as are answered."""
        asked = self._message.content.get("user_expressions")
        pairs = islice(asked.items(), MOST_EXPRESSIONS) if isinstance(asked, dict) else ()
        left, taken = LONGEST_EXPRESSIONS, dict[str, str]()
        for name, text in pairs:
            if isinstance(text, str) and len(name) <= LONGEST_NAME and len(text) <= left:
                taken[name] = text
                left -= len(text)
        return taken

    @property
    def failed(self) -> bool:
        """Whether an exception of its was taken note of."""
        return self._error is not None

    def error(self, message: wire.Error) -> None:
        """Publish an exception; the reply repeats the last one."""
        self._error = gateway.clean_error(message.ename, message.evalue, message.traceback)
        if not self.silent:
            self._kernel.channels.publish("error", self._error, self._message)

    def _done(self, outcome: Outcome) -> None:
        views, self._ended = self._kernel.views, True
        self._account(outcome)
        show = views.show_in_passing
        if outcome.status == "denied":
            self.fail(*views.denial(outcome.findings))
        elif outcome.stopped is not None:
            self.fail(*views.stopped(outcome.stopped))
        elif outcome.unwritten is not None:
            self.fail(*views.unwritten(outcome.unwritten, runs=False))
        elif outcome.status == "error":
            self._failed(outcome)
        else:
            self._reply(
                {
                    "status": "ok",
                    "execution_count": self.count,
                    "user_expressions": gateway.clean_expressions(
                        outcome.user_expressions, show=show
                    ),
                    "payload": gateway.clean_payload(outcome.payload, show=show),
                },
            )

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
                self._kernel.views.account.add(self.count, self.raw, outcome.usage)

    def _failed(self, outcome: Outcome) -> None:
        """Reply with the exception that was published; a session's own failure is shown now."""
        if self._error is None and self._kernel.views.failed:
            self.fail(*self._kernel.views.problem())
            return
        if self._error is None and outcome.error is not None:
            self.error(outcome.error)
        self._end_with_error(self._error or {}, outcome.payload)

    def fail(self, bundle: dict[str, Any], failure: Failure) -> None:
        """Show a card of ours and end the cell as an error, on iopub and in the reply."""
        if not self.silent:
            self._kernel.outputs.card(bundle)
            self._kernel.channels.publish("error", failure.published(), self._message)
        self._end_with_error(failure.replied(), [])

    def show_gaps(self) -> None:
        """Show, above a session's first visible cell's output, what is not enforced here."""
        if self.silent:
            return
        if card := self._kernel.views.gaps_once():
            self._kernel.outputs.card(card)
        if self._kernel.views.notice:
            self._kernel.outputs.notice(self._kernel.views.notice)
            self._kernel.views.notice = ""

    def _end_with_error(self, error: dict[str, Any], payload: list[dict[str, Any]]) -> None:
        content = {
            "status": "error",
            "execution_count": self.count,
            "user_expressions": {},
            "payload": gateway.clean_payload(payload, show=self._kernel.views.show_in_passing),
            **error,
        }
        abort = bool(self._message.content.get("stop_on_error", True)) and not self.silent
        self._kernel.end_cell(content, self._metadata, abort=abort)

    def _reply(self, content: dict[str, Any]) -> None:
        self._kernel.end_cell(content, self._metadata, abort=False)
