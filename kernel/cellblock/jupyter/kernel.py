"""The kernel: Jupyter's messages in their order, over one session.

Shell requests are answered one at a time, as they came. Neither debugger nor subshells are offered.
"""

from __future__ import annotations

import traceback
from collections import deque
from typing import TYPE_CHECKING, Any

from cellblock.jupyter import info
from cellblock.jupyter.cells import CellRun
from cellblock.jupyter.channels import Channels
from cellblock.jupyter.control import Control
from cellblock.jupyter.outflow import Brake
from cellblock.jupyter.outputs import Outputs
from cellblock.jupyter.questions import Questions
from cellblock.jupyter.stragglers import Stragglers

if TYPE_CHECKING:
    from collections.abc import Callable

    import zmq

    from cellblock.errors import PolicyError
    from cellblock.host.audit.trail import Audit
    from cellblock.host.history import History
    from cellblock.host.kept import Kept
    from cellblock.host.outcome import Stopped
    from cellblock.host.session import Session
    from cellblock.jupyter.messages import Composer, Message
    from cellblock.jupyter.reactor import ZmqReactor
    from cellblock.jupyter.views import Views
    from cellblock.wire import messages as wire

#: Seconds after a reply before history is written.
IDLE_WRITE = 0.5


class Kernel:
    """Sequence and bookkeeping; also the session's ``Front``."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it is put together from
        self,
        reactor: ZmqReactor,
        sockets: dict[str, zmq.Socket[bytes]],
        composer: Composer,
        history: History,
        views: Views,
        kept: Kept,
        audit: Audit,
    ) -> None:
        self._reactor = reactor
        self.channels = Channels(sockets, composer)
        self._brake = Brake(reactor, self.channels.outflow, self._hold)
        self.outputs = Outputs(self.channels, views, self._brake, kept, audit)
        self.history, self.views, self.audit = history, views, audit
        self.session: Session | None = None
        self.execution_count = 0
        self._queue: deque[Message] = deque()
        self._current: Message | None = None
        self._cell: CellRun | None = None
        self._questions = Questions(self.channels)
        self._stragglers = Stragglers()
        self._shell = {
            "kernel_info_request": self._kernel_info,
            "execute_request": self._execute,
            "complete_request": self._complete,
            "inspect_request": self._inspect,
            "is_complete_request": self._is_complete,
            "history_request": self._history,
            "comm_info_request": self._comm_info,
            "comm_open": self._comm,
            "comm_msg": self._comm,
            "comm_close": self._comm,
            "shutdown_request": self._shutdown,
        }
        # iopub first: who subscribes and asks at once is greeted before it is answered. Control
        # before shell: an interrupt must not hit a cell that was sent after it.
        reactor.watch(sockets["iopub"], self.channels.greet)
        control = Control(self.channels, self.interrupt, reactor.stop)
        reactor.watch(sockets["control"], control.take)
        reactor.watch(sockets["shell"], self._on_shell)
        reactor.watch(sockets["stdin"], self._on_stdin)
        reactor.watch(sockets["hb"], self.channels.beat)

    # --- sockets ------------------------------------------------------------------------------

    def _on_shell(self) -> None:
        self._queue.extend(self.channels.receive("shell"))
        self._pump()

    def _on_stdin(self) -> None:
        for message in self.channels.receive("stdin"):
            text = self._questions.answer(message)
            if text is not None and self.session is not None:
                self.session.answer(text)

    # --- shell: one at a time -----------------------------------------------------------------

    def _pump(self) -> None:
        while self._queue and self._current is None:
            message = self._queue.popleft()
            self.channels.status("busy", message)
            self._current = message
            try:
                self._handle(message)
            except Exception as exc:  # noqa: BLE001 - a fault of ours costs one request, not a kernel
                self._fault(message, exc)

    def _handle(self, message: Message) -> None:
        handler = self._shell.get(message.kind)
        if handler is None:
            self.channels.not_offered("shell", message)
            self._finished()
        else:
            handler(message)

    def _fault(self, message: Message, exc: Exception) -> None:
        """Answer a request that our own code failed on; nothing of it reached a guest."""
        traceback.print_exception(exc)
        if self._current is message:
            error = {"ename": type(exc).__name__, "evalue": str(exc), "traceback": []}
            count = {"execution_count": self.execution_count}
            self.channels.reply("shell", {"status": "error", **error, **count}, message)
            self._cell = None
            self._finished()

    def _reply(self, content: Any) -> None:
        """Answer the current shell request and end it."""
        message = self._current
        if message is not None:
            self.channels.reply("shell", {"status": "ok"} | content, message)
        self._finished()

    def _finished(self) -> None:
        message, self._current = self._current, None
        self.channels.status("idle", message)
        if self._queue:
            self._reactor.call_later(0, self._pump)

    def _kernel_info(self, _message: Message) -> None:
        self._reply(info.kernel_info())

    def _is_complete(self, message: Message) -> None:
        self._reply(info.is_complete(str(message.content.get("code", ""))))

    def _history(self, message: Message) -> None:
        self._reply({"history": info.history(self.history, message.content)})

    def _shutdown(self, message: Message) -> None:
        self._reply(message.content)
        self._reactor.stop()

    # --- shell: through the guest -------------------------------------------------------------

    def _execute(self, message: Message) -> None:
        if self._stragglers.among(message):
            self._abort(message)
            self._finished()
            return
        self._cell = CellRun(self, message)
        self.outputs.begin(message, self._cell)
        self._cell.start()

    def end_cell(self, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool) -> None:
        """Answer the running cell; with ``abort``, refuse the cells queued behind it."""
        message, self._cell = self._current, None
        self._questions.withdraw()
        self.outputs.end()
        if abort:
            # Before the reply: who has read that sends the next cell knowing of the failure.
            while arrived := self.channels.receive("shell"):
                self._queue.extend(arrived)
        if message is not None:
            self.channels.reply("shell", content, message, metadata=metadata)
            if abort:
                self._stragglers.begin(message)
                self._abort_queued()
        self._finished()
        self._reactor.call_later(IDLE_WRITE, self.history.flush)

    def _abort_queued(self) -> None:
        waiting, self._queue = self._queue, deque()
        for message in waiting:
            if message.kind != "execute_request":
                self._queue.append(message)
                continue
            self.channels.status("busy", message)
            self._abort(message)
            self.channels.status("idle", message)

    def _abort(self, message: Message) -> None:
        """Answer a cell behind one that failed; with a count it would be shown as having run."""
        self.channels.reply("shell", {"status": "aborted"}, message)

    def _ask_guest(self, ask: Callable[[Session], None], without: dict[str, Any]) -> None:
        """Query the guest, or reply ``without`` one."""
        if self.session is None:
            self._reply(without)
        else:
            ask(self.session)

    def _complete(self, message: Message) -> None:
        code, cursor = _at_cursor(message)
        empty = {"matches": [], "cursor_start": cursor, "cursor_end": cursor, "metadata": {}}

        def done(reply: wire.Completed | None) -> None:
            self._reply(empty if reply is None else info.completions(reply, code, cursor))

        self._ask_guest(lambda s: s.complete(code, cursor, done), empty)

    def _inspect(self, message: Message) -> None:
        code, cursor = _at_cursor(message)
        detail = 1 if message.content.get("detail_level") == 1 else 0
        nothing: dict[str, Any] = {"found": False, "data": {}, "metadata": {}}

        def done(reply: wire.Inspected | None) -> None:
            data = {} if reply is None else self.views.show_in_passing(reply.data)
            self._reply({"found": bool(data), "data": data, "metadata": {}})

        self._ask_guest(lambda s: s.inspect(code, cursor, detail, done), nothing)

    def _comm_info(self, message: Message) -> None:
        target = message.content.get("target_name")
        comms = self.outputs.comms.listing(target if isinstance(target, str) else None)
        self._reply({"comms": comms})

    def _comm(self, message: Message) -> None:
        content = info.comm_content(message.content)
        if self.session is None or not self.outputs.comms.arrived(message, content):
            self._finished()
            return
        self.outputs.begin(message)

        def done(ended: Stopped | str | None) -> None:
            if ended is not None:
                self.outputs.card(self.views.unheard(ended))
            self.outputs.end()
            self._finished()

        self.session.comm(message.kind, content, message.metadata, message.buffers, done)

    def interrupt(self) -> None:
        """Interrupt what runs, as the front end's button and Ctrl-C do."""
        self._questions.withdraw()
        if self.session is not None:
            self.session.interrupt()

    # --- the session's front ------------------------------------------------------------------

    def shown(self, message: wire.FromGuest) -> None:
        """Pass a guest's output on."""
        self.outputs.shown(message)

    def asked(self, request: wire.InputRequest) -> bool:
        """Put a cell's question to the front end that sent it."""
        return self._questions.put(request, self._current)

    def _hold(self, held: bool) -> None:
        if self.session is not None:
            self.session.hold(held=held)

    def hurry(self) -> None:
        """Hear the guest though front ends are behind."""
        self._brake.let_go()

    def restarted(self, stopped: Stopped) -> None:
        """Say that the guest was lost while nothing ran."""
        self.outputs.card(self.views.lost(stopped))

    def undone(self, stopped: Stopped) -> None:
        """Show which cells were undone, and note it beside the cell that did it."""
        self.outputs.card(self.views.undone(stopped))
        if stopped.undone:
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
        if self._cell is not None:
            self._cell.show_gaps()
        return refusal


def _at_cursor(message: Message) -> tuple[str, int]:
    code = str(message.content.get("code", ""))
    cursor = message.content.get("cursor_pos")
    if type(cursor) is not int or not 0 <= cursor <= len(code):
        cursor = len(code)
    return code, cursor
