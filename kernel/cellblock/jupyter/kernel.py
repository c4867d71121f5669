"""The kernel: Jupyter's messages in their order, over one session.

Shell requests are answered one at a time, as they came. Neither debugger nor subshells are offered.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from cellblock.host.cell.cell import Asked, Station
from cellblock.host.cell.outputs import Outputs
from cellblock.jupyter import replies
from cellblock.jupyter.channels import Brake, Channels, Control
from cellblock.jupyter.prompts import Questions

if TYPE_CHECKING:
    from collections.abc import Callable

    import zmq

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.output_log import Kept
    from cellblock.host.cell.status import Views
    from cellblock.host.session.history import History
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import Stopped
    from cellblock.jupyter.messages import Composer, Message
    from cellblock.jupyter.reactor import ZmqReactor
    from cellblock.wire import messages as wire


# From an ``execute_request`` to what it asks for.

#: User expressions that are answered, characters of a name, and of all texts.
MOST_EXPRESSIONS = 100
LONGEST_NAME = 1_000
LONGEST_EXPRESSIONS = 400_000


def asked(message: Message) -> Asked:
    """Return what a request asks for; anything but text is no source, and runs as none."""
    content = message.content
    silent, code = bool(content.get("silent", False)), content.get("code")
    return Asked(
        code=code if isinstance(code, str) else "",
        silent=silent,
        store=bool(content.get("store_history", True)) and not silent,
        allow_stdin=bool(content.get("allow_stdin")),
        stop_on_error=bool(content.get("stop_on_error", True)),
        expressions=_expressions(content.get("user_expressions")),
    )


def _expressions(given: Any) -> dict[str, str]:
    """Return user_expressions, as many and as long as are answered."""
    pairs = islice(given.items(), MOST_EXPRESSIONS) if isinstance(given, dict) else ()
    left, taken = LONGEST_EXPRESSIONS, dict[str, str]()
    for name, text in pairs:
        if isinstance(text, str) and len(name) <= LONGEST_NAME and len(text) <= left:
            taken[name] = text
            left -= len(text)
    return taken


# Cells that were sent before a failure was seen, and arrive after it.
#
# A notebook that runs all its cells sends them one by one, and ``stop_on_error`` is to abort
# those behind one that fails ("Messaging in Jupyter", execute_request). A denial is answered
# within a millisecond, when the next cell may still be on its way through the server.

#: Seconds in which nobody reads an error and runs another cell for it.
BLINK = 0.1


class Stragglers:
    """Tells the cells to abort from those that somebody runs knowing of the failure.

    Front ends that people look at name the cell in a request's metadata (``cellId``). Programs
    don't; they wait for each reply, and have their next request heard at once.
    """

    def __init__(self) -> None:
        self._failed: object = None
        self._until = 0.0

    def begin(self, failed: Message) -> None:
        """Take what comes within a blink of now for sent before ``failed`` was answered."""
        self._failed = failed.metadata.get("cellId")
        self._until = time.monotonic() + BLINK

    def among(self, message: Message) -> bool:
        """Say whether ``message`` is one of them; if so, the next has as long again."""
        if self._failed is None or time.monotonic() >= self._until:
            return False
        cell = message.metadata.get("cellId")
        if cell is None or cell == self._failed or not message.content.get("stop_on_error", True):
            return False
        self._until = time.monotonic() + BLINK
        return True


#: Seconds after a reply before history is written.
IDLE_WRITE = 0.5
#: Seconds that the first cell waits for a subscriber; libzmq tries again within a fifth of one.
UNHEARD = 0.5


class Kernel(Station):
    """Sequence and bookkeeping."""

    history: History

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
        outputs = Outputs(self.channels, views, self._brake, kept, audit)
        super().__init__(outputs, views, audit, history)
        self._queue: deque[Message] = deque()
        #: When the first cell runs even if nobody has subscribed to what comes of it.
        self._unheard_until: float | None = None
        self._current: Message | None = None
        self.questions = Questions(self.channels)
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
        reactor.watch(sockets["iopub"], self._on_iopub)
        control = Control(self.channels, self.interrupt, reactor.stop)
        reactor.watch(sockets["control"], control.take)
        reactor.watch(sockets["shell"], self._on_shell)
        reactor.watch(sockets["stdin"], self._on_stdin)
        reactor.watch(sockets["hb"], self.channels.beat)

    # --- sockets ------------------------------------------------------------------------------

    def _on_iopub(self) -> None:
        self.channels.greet()
        self._pump()

    def _on_shell(self) -> None:
        self._queue.extend(self.channels.receive("shell"))
        self._pump()

    def _on_stdin(self) -> None:
        for message in self.channels.receive("stdin"):
            self.questions.answer(message)

    # --- shell: one at a time -----------------------------------------------------------------

    def _pump(self) -> None:
        while self._queue and self._current is None and self._is_heard(self._queue[0]):
            message = self._queue.popleft()
            self.channels.status("busy", message)
            self._current = message
            try:
                self._handle(message)
            except Exception as exc:  # noqa: BLE001 - a fault of ours costs one request, not a kernel
                self._fault(message, exc)

    def _is_heard(self, message: Message) -> bool:
        """Have a cell wait for somebody to see what comes of it, but not for long.

        A front end that was there before the kernel tries again to connect, with each of its
        sockets at a time of its own; outputs that it had not subscribed to yet it would wait for.
        """
        if self.channels.has_greeted or message.kind != "execute_request":
            return True
        if self._unheard_until is None:
            self._unheard_until = time.monotonic() + UNHEARD
            self._reactor.call_later(UNHEARD, self._pump)
        return time.monotonic() >= self._unheard_until

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
            self.cell = None
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
        self._reply(replies.kernel_info())

    def _is_complete(self, message: Message) -> None:
        self._reply(replies.is_complete(str(message.content.get("code", ""))))

    def _history(self, message: Message) -> None:
        self._reply({"history": replies.history(self.history, message.content)})

    def _shutdown(self, message: Message) -> None:
        self._reply(message.content)
        self._reactor.stop()

    # --- shell: through the guest -------------------------------------------------------------

    def _execute(self, message: Message) -> None:
        if self._stragglers.among(message):
            self._abort(message)
            self._finished()
            return
        self.run(asked(message), message)

    def end_cell(self, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool) -> None:
        """Answer the running cell; with ``abort``, refuse the cells queued behind it."""
        message, self.cell = self._current, None
        self.questions.withdraw()
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
            self._reply(empty if reply is None else replies.completions(reply, code, cursor))

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
        content = replies.comm_content(message.content)
        if self.session is None or not self.outputs.comms.arrived(message.kind, content, message):
            self._finished()
            return
        self.outputs.begin(message)

        def done(ended: Stopped | str | None) -> None:
            if ended is not None:
                from cellblock.host.cell import status  # noqa: PLC0415 - few do

                self.outputs.card(status.unheard(ended, self.views.in_force))
                if isinstance(ended, str) and message.kind == "comm_open":
                    self.outputs.comms.unheard(content, message)
            self.outputs.end()
            self._finished()

        self.session.comm(message.kind, content, message.metadata, message.buffers, done)

    def interrupt(self) -> None:
        """Interrupt what runs, as the front end's button and Ctrl-C do."""
        self.questions.withdraw()
        if self.session is not None:
            self.session.interrupt()
        elif self.starting is not None:
            self.starting.interrupt()

    # --- what a session tells -----------------------------------------------------------------

    def asked(self, request: wire.InputRequest) -> bool:
        """Put a cell's question to the front end that sent it."""
        if self.session is None:
            return False
        return self.questions.put(request, self._current, self.session.answer)

    def consulted(self, text: str, told: Callable[[str], None]) -> Callable[[], None] | None:
        """Put a question of the host's to the front end that sent the running cell."""
        return self.questions.consult(text, self._current, told)

    def _hold(self, held: bool) -> None:
        if self.session is not None:
            self.session.hold(held=held)

    def hurry(self) -> None:
        """Hear the guest though front ends are behind."""
        self._brake.let_go()


def _at_cursor(message: Message) -> tuple[str, int]:
    code = str(message.content.get("code", ""))
    cursor = message.content.get("cursor_pos")
    if type(cursor) is not int or not 0 <= cursor <= len(code):
        cursor = len(code)
    return code, cursor
