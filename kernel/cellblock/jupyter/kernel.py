"""``Kernel``: answers Jupyter's requests, in their order, over one session.

Each shell answers its requests one at a time, in the order in which they came. There is the main
shell and, beside it, a shell for each subshell (JEP 91):

    _on_shell ──► Shell.queue ──► _answer_queued: status busy, handler ──► _finish: status idle
                                                     │                        ▲
                                                     └── session ── reply ────┘

A handler may answer at once, or when the session calls back. The control channel is answered at
once, whatever runs. Cells are not accepted there, and no debugger is offered.
"""

from __future__ import annotations

import sys
import time
import traceback
import uuid
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cellblock.host.cell import status
from cellblock.host.cell.cell import Front
from cellblock.host.cell.outputs import Outputs
from cellblock.host.session.types import ExecuteRequest
from cellblock.jupyter import messages
from cellblock.jupyter.channels import Backpressure, Channels
from cellblock.jupyter.input_requests import HostQuestion, InputRequests
from cellblock.jupyter.messages import Message
from cellblock.policy.vocabulary import LAB_TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import zmq

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.output_log import OutputLog
    from cellblock.host.cell.status import Views
    from cellblock.host.reactor import Timer
    from cellblock.host.session.history import History
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import Stopped
    from cellblock.jupyter.ipykernel_options import IPKernelOptions
    from cellblock.jupyter.lab import Lab
    from cellblock.jupyter.messages import MessageCodec
    from cellblock.jupyter.reactor import ZmqReactor
    from cellblock.render.text import Question
    from cellblock.wire import messages as wire

#: Seconds between the last reply and writing the history, so that it is not written between cells
#: that come one by one.
IDLE_WRITE = 0.5
#: Seconds that the first cell waits for a subscriber. libzmq connects again within 0.2 s.
SUBSCRIBER_WAIT = 0.5
#: Seconds after an error. A cell that arrives within them was sent by a front end, or a user, that
#: did not know of the error yet.
ABORT_WINDOW = 0.1
#: User expressions of one request that are answered.
MOST_EXPRESSIONS = 100
#: Characters of an expression's name.
LONGEST_NAME = 1_000
#: Characters of all expressions of one request.
LONGEST_EXPRESSIONS = 400_000


SUBSHELL_REQUESTS = frozenset(
    {"create_subshell_request", "delete_subshell_request", "list_subshell_request"}
)
#: Added to ipykernel's words for a message that names an unknown subshell.
NO_SUBSHELL = "make one by a create_subshell_request on control"
#: Subshells that may exist at once: each may hold outputs in the host's memory.
MOST_SUBSHELLS = 10
_COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})
#: The messages that a subshell takes. The main shell answers others that name a subshell.
_BESIDE = _COMMS | {"execute_request"}


class Shell:
    """The queue of the main shell or of one subshell, and the request that it answers.

    ``number`` is the guest's number for the shell; 0 is the main shell.
    """

    def __init__(self, number: int, outputs: Outputs) -> None:
        self.number = number
        self.outputs = outputs
        self.queue: deque[Message] = deque()
        #: The request that is being answered.
        self.current: Message | None = None
        #: The front end's id of the cell that failed last.
        self.failed_cell: object = None
        #: Until when cells that arrive may have been sent before the failure was seen, in
        #: ``time.monotonic()``.
        self.abort_until = 0.0
        #: Whether a front end has deleted the subshell. It stays until its request has ended.
        self.is_deleted = False
        #: Whether this is no subshell of a front end's, but the shell that takes comm messages
        #: while the main shell's cell awaits. The guest has no thread for it.
        self.is_beside = False


class Kernel(Front):
    """The front of a Jupyter kernel. Keeps the order of requests; the session decides about cells.

    Made by ``assembly``, which sets ``session`` when there is one.
    """

    history: History
    session: Session | None

    def __init__(
        self,
        reactor: ZmqReactor,
        sockets: dict[str, zmq.Socket[bytes]],
        codec: MessageCodec,
        history: History,
        views: Views,
        log: OutputLog,
        audit: Audit,
    ) -> None:
        self._reactor = reactor
        self.channels = Channels(sockets, codec, reactor)
        self._backpressure = Backpressure(reactor, self.channels.iopub, self._hold)
        outputs = Outputs(self.channels, views, self._backpressure, log, audit)
        super().__init__(outputs, views, audit, history)
        self.input_requests = InputRequests(self.channels)
        self.consult = self.consulted
        #: Handles the comms of JupyterLab's extension; None until a front end opens one.
        self.lab: Lab | None = None
        #: The host's question that waits for an answer.
        self.question: HostQuestion | None = None
        #: How many questions there were, for their ids.
        self._question_count = 0
        self._main = Shell(0, outputs)
        #: All shells by number, including deleted ones that still run a request.
        self._shells = {0: self._main}
        #: How many subshells were made, for their numbers.
        self._made_subshells = 0
        #: Subshells by the front ends' id for each.
        self._subshells: dict[str, Shell] = {}
        #: When the first cell runs even if nobody has subscribed to iopub.
        self._subscriber_deadline: float | None = None
        #: The timer that writes the history.
        self._history_due: Timer | None = None
        #: Seconds after an error in which cells that arrive are aborted.
        self.abort_window = ABORT_WINDOW
        #: The option behind each cell that the kernel itself queued, by the message's id.
        self._first: dict[str, str] = {}
        #: Whether the kernel is shut down for a restart: another one starts in its place.
        self.restarts = False
        #: The handlers of shell requests.
        self._handlers = {
            "kernel_info_request": self._kernel_info,
            "execute_request": self._execute,
            "complete_request": self._complete,
            "inspect_request": self._inspect,
            "is_complete_request": self._is_complete,
            "history_request": self._history,
            "comm_info_request": self._comm_info,
            "connect_request": self._connect,
            "comm_open": self._comm,
            "comm_msg": self._comm,
            "comm_close": self._comm,
            "shutdown_request": self._shutdown,
        }
        # The loop calls back in this order. iopub first: a front end that subscribes and sends a
        # request at once is greeted before it is answered. Control before shell: an interrupt must
        # not hit a cell that was sent after it.
        reactor.watch(sockets["iopub"], self._on_iopub)
        reactor.watch(sockets["control"], self._on_control)
        reactor.watch(sockets["shell"], self._on_shell)
        reactor.watch(sockets["stdin"], self._on_stdin)
        reactor.watch(sockets["hb"], self.channels.beat)

    # --- sockets ------------------------------------------------------------------------------

    def _on_iopub(self) -> None:
        self.channels.greet()
        self._answer_all()  # a cell may have waited for a subscriber

    def _on_stdin(self) -> None:
        for message in self.channels.receive("stdin"):
            self.input_requests.on_reply(message)

    def _on_shell(self) -> None:
        for message in self._take_arrived():
            if self.lab is None or not self.lab.has(message):
                self.channels.echoes.arrived(message)
        self._answer_all()

    def _take_arrived(self) -> list[Message]:
        """Queue the messages that have arrived on the shell socket; return them."""
        arrived = self.channels.receive("shell")
        for message in arrived:
            if message.kind not in _COMMS or not self._is_for_lab(message):
                self._shell_of(message).queue.append(message)
        return arrived

    def _is_for_lab(self, message: Message) -> bool:
        """Return whether a comm message is for the host itself; if so, answer it.

        It is answered at once, whatever runs, since a cell may wait for the answer. Only requests
        that act like cells are queued.
        """
        if self.lab is None:
            if message.kind != "comm_open" or message.content.get("target_name") != LAB_TARGET:
                return False
            from cellblock.jupyter.lab import Lab  # noqa: PLC0415 - few front ends open one

            self.lab = Lab(self, self._reactor)
        if not self.lab.has(message):
            return False
        if self.lab.takes_its_turn(message):
            self._main.queue.append(message)
            return True
        self.channels.status("busy", message)
        self.lab.receive(message)
        self.channels.status("idle", message)
        if self._main.current is not None:
            # Front ends keep one status for a kernel, and would take that ``idle`` for the end of
            # the running cell.
            self.channels.status("busy", self._main.current)
        return True

    def _shell_of(self, message: Message) -> Shell:
        """Return the shell that answers a message."""
        name = message.header.get("subshell_id")
        subshell = self._subshells.get(name) if isinstance(name, str) else None
        if subshell is not None and message.kind in _BESIDE:
            return subshell
        return self._beside_main() if self._goes_beside(message) else self._main

    def _goes_beside(self, message: Message) -> bool:
        """Return whether a comm message may be answered while the main shell's cell runs.

        It may while the cell awaits. It overtakes queued cells, as under ipykernel: these wait for
        the running cell, which may wait for this message.
        """
        if message.kind not in _COMMS or self.session is None or not self.session.awaits:
            return False
        if self.lab is not None and self.lab.has(message):
            return False  # ``_is_for_lab`` queued it to take its turn
        # Not where users approve: what they approved for the cell would be allowed to the handler.
        return self._offers_subshells

    def _beside_main(self) -> Shell:
        """Return the shell for comm messages beside the main shell's cell; make it if needed."""
        shell_beside = next((shell for shell in self._shells.values() if shell.is_beside), None)
        if shell_beside is None:
            self._made_subshells += 1
            shell_beside = Shell(self._made_subshells, self.outputs.beside())
            shell_beside.is_beside = True
            self._shells[shell_beside.number] = shell_beside
        return shell_beside

    def on_awaits(self) -> None:
        """Answer the comm messages that came before the running cell began to await."""
        waiting = self._main.queue
        self._main.queue = deque()
        for message in waiting:
            shell = self._beside_main() if self._goes_beside(message) else self._main
            shell.queue.append(message)
        self._reactor.call_later(0, self._answer_all)

    def _on_control(self) -> None:
        """Answer the requests on control: kernel info, interrupts, shutdown, subshells.

        Without statuses: front ends keep one status for a kernel, and would take the idle after an
        interrupt for the end of the running cell.
        """
        for message in self.channels.receive("control"):
            content: dict[str, Any] = {"status": "ok"}
            match message.kind:
                case "kernel_info_request":
                    self.channels.reply("control", content | self._info(), message)
                case "interrupt_request":
                    self.interrupt()
                    self.channels.reply("control", content, message)
                case "shutdown_request":
                    content["restart"] = self.restarts = bool(message.content.get("restart"))
                    self.channels.reply("control", content, message)
                    self.channels.publish("shutdown_reply", content, message)
                    self._reactor.stop()
                case _ if self._offers_subshells and message.kind in SUBSHELL_REQUESTS:
                    self._answer_about_subshells(message)
                case _:
                    self.channels.not_offered("control", message)

    # --- subshells ----------------------------------------------------------------------------

    @property
    def _offers_subshells(self) -> bool:
        return self.session is not None and self.session.offers_subshells

    def _info(self) -> dict[str, Any]:
        return messages.kernel_info(subshells=self._offers_subshells)

    def _answer_about_subshells(self, message: Message) -> None:
        """Make, delete or list subshells; with statuses, as under ipykernel."""
        self.channels.status("busy", message)
        content, name = dict[str, Any](), message.content.get("subshell_id")
        match message.kind:
            case "list_subshell_request":
                content["subshell_id"] = list(self._subshells)
            case "create_subshell_request" if len(self._subshells) < MOST_SUBSHELLS:
                content["subshell_id"] = self._create_subshell()
            case "create_subshell_request":
                content = _error("TooManySubshells", f"there are {MOST_SUBSHELLS}: delete one")
            case _ if isinstance(name, str) and name in self._subshells:
                self._delete_subshell(name)
            case _:
                content = _unknown_subshell(name)
        self.channels.reply("control", {"status": "ok"} | content, message)
        self.channels.status("idle", message)

    def _create_subshell(self) -> str:
        """Make a subshell; return its id."""
        self._made_subshells += 1
        name = str(uuid.uuid4())
        shell = Shell(self._made_subshells, self.outputs.beside())
        self._subshells[name] = self._shells[shell.number] = shell
        self._tell_subshells()
        return name

    def _delete_subshell(self, name: str) -> None:
        """Delete a subshell when its request has ended; abort its queued cells.

        The main shell answers its other queued requests.
        """
        shell = self._subshells.pop(name)
        shell.is_deleted = True
        self._abort_queued(shell)
        self._main.queue.extend(shell.queue)
        shell.queue.clear()
        if shell.current is None:
            self._forget(shell)

    def _forget(self, shell: Shell) -> None:
        del self._shells[shell.number]
        self._tell_subshells()

    def _tell_subshells(self) -> None:
        """Tell the session the numbers of the subshells, without the main shell."""
        if self.session is not None:
            numbers = [shell.number for shell in self._shells.values() if not shell.is_beside]
            self.session.have_subshells(tuple(numbers)[1:])

    def outputs_of(self, subshell: int) -> Outputs:
        """Return the ``Outputs`` of a subshell, or the main shell's if that subshell is gone."""
        return self._shells.get(subshell, self._main).outputs

    # --- shell: one at a time -----------------------------------------------------------------

    def _answer_all(self) -> None:
        for shell in tuple(self._shells.values()):
            self._answer_queued(shell)

    def _answer_queued(self, shell: Shell) -> None:
        """Handle queued requests until one is being answered, or must wait for a subscriber."""
        while shell.queue and shell.current is None and self._has_audience(shell.queue[0]):
            message = shell.queue.popleft()
            self.channels.status("busy", message)
            shell.current = message
            try:
                handler = self._handlers.get(message.kind)
                if handler is None:
                    self.channels.not_offered("shell", message)
                    self._finish(shell)
                else:
                    handler(message, shell)
            except Exception as exc:  # noqa: BLE001 - a fault of ours costs one request, not a kernel
                traceback.print_exception(exc)
                if shell.current is message:
                    # The request did not reach a guest, so nothing else will answer it.
                    error = _error(type(exc).__name__, str(exc))
                    count = {"execution_count": self.execution_count}
                    self.channels.reply("shell", error | count, message)
                    if shell is self._main:
                        self.cell = None
                    self._finish(shell)

    def _has_audience(self, message: Message) -> bool:
        """Return whether to handle this request now: the first cell waits for a subscriber.

        A front end that was there before the kernel connects each of its sockets in its own time.
        It would never get outputs that were published before it had subscribed. The wait ends after
        ``SUBSCRIBER_WAIT`` seconds.
        """
        if self.channels.has_greeted or message.kind != "execute_request":
            return True
        if self._subscriber_deadline is None:
            self._subscriber_deadline = time.monotonic() + SUBSCRIBER_WAIT
            self._reactor.call_later(SUBSCRIBER_WAIT, self._answer_all)
        return time.monotonic() >= self._subscriber_deadline

    def _reply(self, content: Any, shell: Shell) -> None:
        """Answer the current request of a shell and end it."""
        message = shell.current
        if message is not None:
            self.channels.reply("shell", {"status": "ok"} | content, message)
        self._finish(shell)

    def _finish(self, shell: Shell) -> None:
        """End a shell's request with the status idle; the next one is handled from the loop."""
        message = shell.current
        shell.current = None
        self.channels.status("idle", message)
        if shell.is_beside and self._main.current is not None:
            self.channels.status("busy", self._main.current)  # as in ``_is_for_lab``
        if shell.is_deleted:
            self._forget(shell)
        if shell.queue:
            self._reactor.call_later(0, lambda: self._answer_queued(shell))

    def _kernel_info(self, _message: Message, shell: Shell) -> None:
        self._reply(self._info(), shell)

    def _connect(self, _message: Message, shell: Shell) -> None:
        self._reply(self.channels.ports(), shell)

    def _is_complete(self, message: Message, shell: Shell) -> None:
        self._reply(messages.is_complete(str(message.content.get("code", ""))), shell)

    def _history(self, message: Message, shell: Shell) -> None:
        self._reply({"history": messages.history_entries(self.history, message.content)}, shell)

    def _shutdown(self, message: Message, shell: Shell) -> None:
        self.restarts = bool(message.content.get("restart"))
        self._reply(message.content, shell)
        self._reactor.stop()

    # --- cells --------------------------------------------------------------------------------

    def heed(self, options: IPKernelOptions) -> None:
        """Apply ipykernel's options about requests; name the options without effect on stderr."""
        if options.abort_seconds is not None:
            self.abort_window = options.abort_seconds
        if options.unused:
            reason = "these options are for parts of ipykernel that are not here"
            sys.stderr.write(f"cellblock: {reason}: {', '.join(options.unused)}\n")

    def run_first(self, cells: Sequence[tuple[str, str]]) -> None:
        """Run cells before any that a front end sends.

        Each of ``cells`` is the option that asks for the cell, and the cell's source. The policy
        applies to these cells as to all others. Their output is not shown, as under ipykernel. If
        one fails, stderr and a notice above the first output of a front end's cell say so.
        """
        for option, source in cells:
            number = uuid.uuid4().hex
            content = {"code": source, "silent": True, "stop_on_error": False}
            self._first[number] = option
            self._main.queue.append(Message.own("execute_request", number, content))
        self._reactor.call_later(0, self._answer_all)

    def _report_first(self, option: str, content: dict[str, Any]) -> None:
        """Report the failure of a cell that an option asked for."""
        line = f"{option} failed: {content.get('ename')}: {content.get('evalue')}"
        sys.stderr.write(f"cellblock: {line}\n")
        self.views.notice = "; and ".join(filter(None, (self.views.notice, f"says: {line}")))

    def _execute(self, message: Message, shell: Shell) -> None:
        name = message.header.get("subshell_id")
        if shell is self._main and name is not None:
            # Cells are not run in another shell than the one that they name.
            error = _unknown_subshell(name)
            self.channels.publish("error", error, message)
            count = {"execution_count": self.execution_count}
            self.channels.reply("shell", error | count, message)
            self._finish(shell)
        elif self._follows_failure(message, shell):
            self._abort(message)
            self._finish(shell)
        else:
            if shell is self._main:
                self.channels.echoes.begin(message)
            self.run(replace(cell_of(message), subshell=shell.number), message)

    def end_cell(
        self, cell: CellRun, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Answer a cell; with ``abort``, abort the cells queued behind it in its shell.

        The reply may wait for messages about captured output (``CaptureEchoes``).
        """
        shell = self._shells[cell.request.subshell]
        if self.lab is not None:
            self.lab.on_cell(cell, ended=True)
        answer = partial(self._answer_cell, shell, content, metadata, abort=abort)
        shell.outputs.end()
        if shell is not self._main:
            answer()
            return
        self.cell = None
        self.input_requests.cancel()
        self.channels.echoes.answer(answer)

    def _answer_cell(
        self, shell: Shell, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Send the reply to a cell, and abort the cells behind it if it failed."""
        message = shell.current
        if abort:
            # Take these before the reply: cells that are sent after it are meant to run.
            while self._take_arrived():
                pass
        if message is not None:
            if message.identities:
                self.channels.reply("shell", content, message, metadata=metadata)
            elif content["status"] == "error":
                self._report_first(self._first[message.header["msg_id"]], content)
            if abort:
                shell.failed_cell = message.metadata.get("cellId")
                shell.abort_until = time.monotonic() + self.abort_window
                self._abort_queued(shell)
        self._finish(shell)
        if self._history_due is not None:
            self._history_due.cancel()
        self._history_due = self._reactor.call_later(IDLE_WRITE, self._write_history)
        if abort:
            self._reactor.call_later(0, self._answer_all)

    def _write_history(self, looks: int = 10) -> None:
        """Write the history when no cell runs, since the disk may be slow.

        After ``looks`` attempts it is written even beside a cell.
        """
        if looks and any(shell.current is not None for shell in self._shells.values()):
            look = partial(self._write_history, looks - 1)
            self._history_due = self._reactor.call_later(IDLE_WRITE, look)
        else:
            self.history.flush()

    def _follows_failure(self, message: Message, shell: Shell) -> bool:
        """Return whether a cell was sent before the failure of an earlier cell was seen.

        A notebook that runs all its cells sends one request after the other, and ``stop_on_error``
        must abort the cells behind one that fails ("Messaging in Jupyter", execute_request). A
        denial is answered within a millisecond, when the next cell may still be on its way through
        the server. Interactive front ends name the cell in a request's metadata (``cellId``).
        Programs do not; they wait for each reply, so their next request is run at once.
        """
        if shell.failed_cell is None or time.monotonic() >= shell.abort_until:
            return False
        cell = message.metadata.get("cellId")
        if cell is None or cell == shell.failed_cell:
            return False
        if not message.content.get("stop_on_error", True):
            return False
        shell.abort_until = time.monotonic() + self.abort_window
        return True

    def _abort_queued(self, shell: Shell) -> None:
        """Abort the queued cells of a shell; other requests stay in the queue."""
        waiting = shell.queue
        shell.queue = deque()
        for message in waiting:
            if message.kind != "execute_request":
                shell.queue.append(message)
                continue
            self.channels.status("busy", message)
            self._abort(message)
            self.channels.status("idle", message)

    def _abort(self, message: Message) -> None:
        # Without an execution count, with which front ends would show the cell as having run.
        self.channels.reply("shell", {"status": "aborted"}, message)

    # --- other requests that need the guest ---------------------------------------------------

    def _complete(self, message: Message, shell: Shell) -> None:
        code, cursor = _at_cursor(message)

        def done(reply: wire.Completed | None) -> None:
            self._reply(messages.completions(reply, code, cursor), shell)

        if self.session is None:
            done(None)
        else:
            self.session.complete(code, cursor, done)

    def _inspect(self, message: Message, shell: Shell) -> None:
        code, cursor = _at_cursor(message)
        detail = 1 if message.content.get("detail_level") == 1 else 0

        def done(reply: wire.Inspected | None) -> None:
            data = {} if reply is None else self.views.show_in_passing(reply.data)
            self._reply({"found": bool(data), "data": data, "metadata": {}}, shell)

        if self.session is None:
            done(None)
        else:
            self.session.inspect(code, cursor, detail, done)

    def _comm_info(self, message: Message, shell: Shell) -> None:
        target = message.content.get("target_name")
        comms = self.outputs.comms.listing(target if isinstance(target, str) else None)
        self._reply({"comms": comms}, shell)

    def _comm(self, message: Message, shell: Shell) -> None:
        """Pass a front end's comm message to the guest, if the gateway knows the comm."""
        if self.lab is not None and self.lab.has(message):
            self.lab.receive(message, partial(self._finish, shell))
            return
        content = messages.comm_content(message.content)
        if self.session is None or not self.outputs.comms.from_front(
            message.kind, content, message
        ):
            self._finish(shell)
            return
        outputs = shell.outputs
        self.begin_outputs(outputs, message)

        def done(failure: Stopped | str | None) -> None:
            if failure is not None:
                outputs.card(status.comm_failure_card(failure, self.views.in_force))
                if isinstance(failure, str) and message.kind == "comm_open":
                    self.outputs.comms.refuse_open(content, message)
            outputs.end()
            self._finish(shell)

        self.session.comm(
            message.kind, content, message.metadata, message.buffers, done, shell.number
        )

    def interrupt(self) -> None:
        """Interrupt the running cell, or the question that it waits for.

        Called for the front end's button and for Ctrl-C.
        """
        self.input_requests.cancel()
        if self.session is not None:
            self.session.interrupt()
        elif self.starting is not None:
            self.starting.interrupt()

    # --- calls from the session ---------------------------------------------------------------

    def on_cell(self, cell: CellRun) -> None:
        """Tell JupyterLab's extension that a cell begins."""
        if self.lab is not None:
            self.lab.on_cell(cell)

    def on_locks(self, report: wire.LockReport) -> str:
        """Take a new guest's report of its locks, and tell JupyterLab's extension.

        Return why nothing may run in the guest, or an empty text.
        """
        refusal = super().on_locks(report)
        if self.lab is not None:
            self.lab.on_guest()
        return refusal

    def look_for_proof(self) -> bool:
        """Look for a proof of the policy on this machine; return whether there is one now.

        A proof that contradicts what the policy requires ends the guest.
        """
        views = self.views
        if views.proved or views.report is None:
            return bool(views.proved)
        refusal = views.look_for_proof()
        if views.proved:
            self.audit.locked(views.enforcement, views.gaps, views.report.achieved, views.proved)
            if self.lab is not None:
                self.lab.on_guest()
        if refusal and self.session is not None:
            self.session.requests.supervisor.give_up(refusal)
        return bool(views.proved)

    def on_question(self, request: wire.InputRequest) -> bool:
        """Put a cell's question to the front end that sent it."""
        if self.session is None:
            return False
        cell = self._main.current
        return self.input_requests.ask_for_cell(request, cell, self.session.answer)

    def consulted(
        self, question: Question, answered: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Put a question of the host's to the front end that sent the running cell.

        The user may answer at the prompt or in JupyterLab's extension; the first answer counts.
        Return the function that withdraws the question, or None if nobody can be asked.
        """
        cell = self._main.current

        def on_typed(typed: str) -> None:
            self._have_question(None)
            answered(typed)

        withdraw = self.input_requests.ask_for_host(str(question), cell, on_typed)
        if withdraw is None or cell is None:
            return None

        def cancel() -> None:
            self._have_question(None)
            withdraw()

        self._question_count += 1
        self._have_question(
            HostQuestion(f"question-{self._question_count}", question, cell, answered, withdraw)
        )
        return cancel

    def _have_question(self, question: HostQuestion | None) -> None:
        """Set the open question, or None, and tell JupyterLab's extension."""
        self.question = question
        if self.lab is not None:
            self.lab.on_question()

    def choose(self, choice: str) -> None:
        """Answer the open question by a choice made in JupyterLab's extension.

        The prompt is withdrawn, and the answer is what the user would have typed there.
        """
        question = self.question
        if question is not None:
            self._have_question(None)
            question.withdraw()
            question.answered(
                f"{question.asked.code} {choice}" if choice in question.asked.offers else "no"
            )

    def _hold(self, must_hold: bool) -> None:
        if self.session is not None:
            self.session.hold(held=must_hold)

    def stop_holding(self) -> None:
        """Read from the guest again, though front ends are behind."""
        self._backpressure.let_go()


def _error(name: str, text: str) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": text, "traceback": [text]}


def _unknown_subshell(name: object) -> dict[str, Any]:
    """Return the error for a message that names an unknown subshell.

    Name and text are ipykernel's, since front ends compare them.
    """
    error = _error("UnknownSubshellError", f"Unknown subshell_id {str(name)[:100]!r}")
    error["traceback"].append(NO_SUBSHELL)
    return error


def cell_of(message: Message) -> ExecuteRequest:
    """Return the cell of an ``execute_request``, bounded. Code that is not text counts as empty."""
    content = message.content
    silent = bool(content.get("silent", False))
    sent_code = content.get("code")
    code = sent_code if isinstance(sent_code, str) else ""
    sent_expressions = content.get("user_expressions")
    cell = message.metadata.get("cellId")
    sent_deleted = message.metadata.get("deletedCells")
    deleted = sent_deleted if isinstance(sent_deleted, list) else ()
    expressions = dict[str, str]()
    room = LONGEST_EXPRESSIONS
    for name, text in islice(
        sent_expressions.items() if isinstance(sent_expressions, dict) else (), MOST_EXPRESSIONS
    ):
        if isinstance(text, str) and len(name) <= LONGEST_NAME and len(text) <= room:
            expressions[name] = text
            room -= len(text)
    return ExecuteRequest(
        code=code,
        silent=silent,
        store_history=bool(content.get("store_history", True)) and not silent,
        allow_stdin=bool(content.get("allow_stdin")),
        stop_on_error=bool(content.get("stop_on_error", True)),
        user_expressions=expressions,
        # Cells without an id from the front end are told apart by their source.
        cell=cell if isinstance(cell, str) and cell else f"code {hash(code)}",
        deleted=tuple(islice(map(str, deleted), MOST_EXPRESSIONS)),
    )


def _at_cursor(message: Message) -> tuple[str, int]:
    """Return a request's code and cursor; the end of the code if the cursor is not within it."""
    code = str(message.content.get("code", ""))
    cursor = message.content.get("cursor_pos")
    if type(cursor) is not int or not 0 <= cursor <= len(code):
        cursor = len(code)
    return code, cursor
