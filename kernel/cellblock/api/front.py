"""The front of one sandbox: the program's end of its session.

``SandboxFront`` implements ``host.cell.cell.Front``. The session calls it: it collects a cell's
outputs and makes them a ``Result`` when the cell ends, hands each output to the program's
``on_output`` at once, and puts the cell's ``input()`` to the program's ``input``. ``ProgramPrompt``
puts approvals to the program's ``approve``. ``AsyncSandbox`` creates one front, and calls
``execute``, ``ask``, ``interrupt`` and ``abandon``.

Everything runs on the sandbox's loop, except that the program's ``input`` and ``approve`` are
called in a thread (``answer_of``), since they may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import threading
import traceback
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

from cellblock.api.results import ApprovalRequest, result_of
from cellblock.api.session_file import MOST_CELLS, MOST_CHARACTERS
from cellblock.api.widget_words import WidgetWords
from cellblock.errors import GuestError, PolicyError
from cellblock.host.cell.cell import Front
from cellblock.host.cell.outputs import Outputs
from cellblock.host.cell.transcript import LATE, Kind, Output
from cellblock.host.consent.approver import Approver, No, offered
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.output import gateway
from cellblock.wire import arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.api.result_parts import Origin
    from cellblock.api.results import Result
    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.output_log import OutputLog
    from cellblock.host.cell.status import Views
    from cellblock.host.consent.approver import Answer, Wording
    from cellblock.host.consent.request import ApprovalRequest as HostRequest
    from cellblock.host.session.session import Session
    from cellblock.host.session.types import ExecuteRequest, Stopped
    from cellblock.policy.model import Policy
    from cellblock.wire import messages as wire

    Ask = Callable[[str], Any]
    Approve = Callable[[ApprovalRequest], Any]
    OnOutput = Callable[[Output], object]


T = TypeVar("T")
#: The messages that are outputs. The others, such as ``status``, report progress.
_KINDS: Final = frozenset(get_args(Kind))
#: Characters of an answer to ``input()`` that the cell gets.
MAX_ANSWER: Final = 1 << 20
#: In a callback of the program's: the fronts whose cells wait for the callback's answer. A call
#: that would wait for such a cell raises instead (``AsyncSandbox._turn``).
ANSWERING: Final[contextvars.ContextVar[frozenset[object]]] = contextvars.ContextVar(
    "answering", default=frozenset()
)


@dataclass(frozen=True, slots=True)
class _Parent:
    """The request that outputs belong to, as ``host.cell`` takes it."""

    header: Mapping[str, Any]


class _NoFlowControl:
    """Flow control that admits everything: outputs are handed over at once."""

    def admits(self) -> bool:
        return True

    def check(self) -> None: ...


class SandboxFront(Front):
    """The front of a sandbox, which runs one cell at a time.

    ``ask`` is the program's ``input`` callback. ``ready`` is done when the guest is locked and
    ready, or raises why there can be no guest. For a fork, it is done when the copy serves.
    """

    session: Session | None

    def __init__(self, views: Views, output_log: OutputLog, audit: Audit, ask: Ask | None) -> None:
        super().__init__(Outputs(self, views, _NoFlowControl(), output_log, audit), views, audit)
        self.loop = asyncio.get_running_loop()
        self._ask = ask
        self.ready: asyncio.Future[None] = self.loop.create_future()
        #: The stem and counter of message ids: outputs of different cells have different parents.
        self._stem = os.urandom(8).hex()
        self._serial = itertools.count()
        #: The result of the running cell, and the session's reply to a request that is no cell.
        self._done: asyncio.Future[Result] | None = None
        self._answered: asyncio.Future[Any] | None = None
        self._outputs: list[Output] = []
        #: Text that earlier cells' threads, tasks and programs printed since the last result.
        self._late: list[Output] = []
        #: The request of the cell that was run last.
        self._parent: _Parent | None = None
        self._on_output: OnOutput | None = None
        self._widgets = WidgetWords()
        #: Puts the cell's ``input()`` to the program, and waits for the answer.
        self._question: asyncio.Task[None] | None = None
        #: The sources of the last cells whose effects are in the variables, by the cells' numbers.
        #: ``AsyncSandbox.save`` writes them.
        self.cells: dict[int, str] = {}
        #: The session that a fork copied the variables from, while they still exist.
        self.origin: Origin | None = None

    def execute(
        self, request: ExecuteRequest, on_output: OnOutput | None
    ) -> asyncio.Future[Result]:
        """Run a cell, and return the future of its result.

        ``on_output`` is called with each output when it arrives, until the next cell runs.
        """
        self._on_output = on_output
        self._done = future = self.loop.create_future()
        try:
            self._parent = _Parent({"msg_id": f"{self._stem}_{next(self._serial)}"})
            self.run(request, self._parent)
        except BaseException:
            self.cell = self._done = None
            self._outputs.clear()
            raise
        return future

    def abandon(self, error: Exception) -> None:
        """Raise ``error`` in all calls that wait for this front. Called when the sandbox closes."""
        for future in (self.ready, self._done, self._answered):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # read: asyncio would log it if nobody waits
        self._stop_asking()

    def ask(self, send: Callable[[Session, Callable[[Any], None]], None]) -> asyncio.Future[Any]:
        """Send the session a request that runs no cell; return the future of its reply.

        ``send`` is called with the session and the callback for the reply. The reply
        is None if the session has none.
        """
        self._answered = answered = self.loop.create_future()

        def settle(reply: Any) -> None:
            if not answered.done():
                answered.set_result(reply)

        if self.session is not None:
            send(self.session, settle)
        return answered

    def interrupt(self) -> None:
        """Interrupt the running cell; a second call kills it."""
        self._stop_asking()
        if self.session is not None:
            self.session.interrupt()

    def on_cell(self, cell: CellRun) -> None:
        """Do nothing: a program needs no message that a cell begins."""

    # --- outputs ------------------------------------------------------------------------------

    def publish(
        self,
        kind: str,
        content: Any,
        parent: Any,
        *,
        buffers: Sequence[bytes] = (),
        metadata: Any = None,
    ) -> None:
        """Take an output: hand it to ``on_output``, and keep it for the cell's result.

        Between cells, it goes to the ``on_output`` of the last cell. The host's own notices and
        cards between cells, for example that the guest ended, are also in the next result. Text
        that anything but the running cell prints is in the next result's ``late_output``.
        """
        if kind not in _KINDS:
            return
        output = Output(cast("Kind", kind), content, metadata or {}, tuple(buffers))
        self._widgets.take(output)
        is_own = self.cell is not None and parent is self._parent and metadata != LATE
        if output.kind == "stream" and not is_own:
            output = replace(output, late=True)
            self._late.append(output)
        if self.cell is not None or output.ours or output.by_host:
            self._outputs.append(output)
        if self._on_output is not None:
            try:
                self._on_output(output)
            except BaseException as exc:
                # A mistake in the program's callback must not end the session's loop. A Ctrl-C that
                # arrives while the callback runs in the main thread is meant for the program.
                is_main = threading.current_thread() is threading.main_thread()
                if isinstance(exc, KeyboardInterrupt) and is_main:
                    raise
                traceback.print_exc()

    def end_cell(
        self, cell: CellRun, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Set the result of the running cell. Called by the cell when it has ended.

        If the result can't be made, which is a defect of the host, its caller gets the exception.
        """
        del cell, metadata, abort
        self._stop_asking()
        run = self.cell
        future = self._done
        try:
            result = self._result(run, content)
        except Exception as exc:  # else the caller of ``execute`` would wait for ever
            self._outputs.clear()
            if future is None or future.done():
                raise
            future.set_exception(exc)
        else:
            if result is not None and future is not None and not future.done():
                self._note(result)
                future.set_result(result)
        finally:
            self.cell = None

    def _result(self, run: CellRun | None, content: Mapping[str, Any]) -> Result | None:
        """Return the result of a cell that ended; None if nobody waits for it any more."""
        # This publishes buffered output, so it comes before `cell` is cleared: the output is still
        # this cell's.
        left_out = self.outputs.end()
        self.cell = None
        if run is None or self._done is None or self._done.done():
            return None
        outputs, self._outputs = tuple(self._outputs), []
        late, self._late = self._late, []
        session = self.audit.session
        return result_of(
            run,
            content,
            outputs,
            late,
            left_out,
            self.views,
            session,
            self.origin,
            widgets=self._widgets.end_cell(outputs),
        )

    def _note(self, result: Result) -> None:
        """Remember a cell that ran, for ``save``, unless a restore undid it.

        Forget the oldest cells if there are more than a session file may hold, and all cells if the
        variables are gone.
        """
        state = result.stop.state if result.stop is not None else ""
        if state == "gone":
            self._forget()
        elif state == "kept" or result.status in ("ok", "error"):
            self.cells[result.execution_count] = result.source
            room = MOST_CHARACTERS - sum(map(len, self.cells.values()))
            while room < 0 or len(self.cells) > MOST_CELLS:
                room += len(self.cells.pop(next(iter(self.cells))))

    def _forget(self) -> None:
        """Forget the cells and the origin of variables that are gone with their guest."""
        self.cells.clear()
        self.origin = None

    @property
    def late_output(self) -> str:
        """The text printed since the last cell ended; empty while a cell runs.

        The next result will have it.
        """
        return "".join(output.content["text"] for output in self._late) if self.cell is None else ""

    # --- calls from the session ---------------------------------------------------------------

    def stop_holding(self) -> None:
        """Do nothing: this front never makes the guest wait."""

    def on_locks(self, report: wire.LockReport) -> str:
        """Record what a guest's locks achieved. Return why it may not serve, or "".

        The sandbox is ready if it may serve.
        """
        refusal = super().on_locks(report)
        if not refusal and not self.ready.done():
            self.ready.set_result(None)
        return refusal

    def on_forked(self, stopped: Stopped) -> None:
        """Record that the copy serves, so that the fork is ready."""
        super().on_forked(stopped)
        if not self.ready.done():
            self.ready.set_result(None)

    def on_restart(self, stopped: Stopped) -> None:
        """Record that another guest took over; forget the cells if the variables are gone."""
        super().on_restart(stopped)
        # A copy that was to serve this sandbox did not: a fork can't be opened, and a sandbox that
        # was to go on from a fork is as it was.
        if self.inherited is not None and not self.ready.done():
            self.ready.set_exception(GuestError(stopped.detail))
        if not stopped.kept and stopped.restored is None:
            self._forget()

    def on_undo(self, stopped: Stopped) -> None:
        """Forget the cells that were undone; all cells after a return to a checkpoint.

        Nobody recorded which cells led to a checkpoint.
        """
        super().on_undo(stopped)
        for number in stopped.undone or tuple(self.cells):
            self.cells.pop(number, None)

    def on_policy_error(self, error: PolicyError) -> None:
        """Fail ``open``: the policy can't be enforced."""
        super().on_policy_error(error)
        if not self.ready.done():
            self.ready.set_exception(error)

    def on_failure(self, detail: str) -> None:
        """Fail ``open``: no guest can be started."""
        super().on_failure(detail)
        if not self.ready.done():
            self.ready.set_exception(GuestError(self.views.problem()[1].report))

    def on_question(self, request: wire.InputRequest) -> bool:
        """Put a cell's ``input()`` to the program. Return whether the program is asked.

        Without ``input=`` the cell gets EOFError.
        """
        ask = self._ask
        prompt = gateway.clean_prompt(request.prompt)
        if ask is None:
            self.loop.call_soon(self._answer, "", True)
            return False
        if self._question is not None:
            return False
        self._question = self.loop.create_task(self._put(lambda: ask(prompt)))
        return True

    async def _put(self, ask: Callable[[], Any]) -> None:
        """Wait for the program's answer, and send it to the cell."""
        try:
            text, eof = await answer_of(self, ask, str, silent=EOFError), False
        except EOFError:
            text, eof = "", True
        self._question = None
        # Lone surrogates can't cross to the guest: they become question marks.
        self._answer(text[:MAX_ANSWER].encode("utf-8", "replace").decode(), eof)

    def _answer(self, text: str, eof: bool) -> None:
        if self.session is not None and self.cell is not None:
            self.session.answer(text, eof=eof)

    def _stop_asking(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()


async def answer_of(
    front: SandboxFront,
    ask: Callable[[], Any],
    read: Callable[[Any], T],
    *,
    silent: type[Exception] | tuple[()] = (),
) -> T:
    """Call ``ask``, a callback of the program's, and return ``read(answer)``.

    ``ask`` is called in a daemon thread, because it may block for ever; if it returns an awaitable,
    that is awaited on this loop. An exception of ``ask`` or ``read`` is printed, unless its type is
    in ``silent``, and raised as EOFError. Await it in a task of its own: it sets ``ANSWERING`` in
    the task's context, so that the callback can't wait for the cell that waits for it.
    """
    ANSWERING.set(ANSWERING.get() | {front})
    context = contextvars.copy_context()
    loop = front.loop
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            set_outcome(value)

    def call() -> None:
        set_outcome, value = answer.set_result, None
        try:
            value = context.run(ask)
        except BaseException as exc:  # noqa: BLE001 - raised where the answer is awaited
            set_outcome, value = answer.set_exception, _harmless(exc)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, set_outcome, value)

    threading.Thread(target=call, name="cellblock-input", daemon=True).start()
    try:
        value = await answer
        return read(await value if isawaitable(value) else value)
    except (Exception, SystemExit) as exc:
        if not isinstance(exc, silent):
            traceback.print_exception(_harmless(exc))
        raise EOFError from exc


def _harmless(error: BaseException) -> Exception:
    """Return ``error``, or a RuntimeError in its place if it could end the loop.

    A future does not accept StopIteration, and a task lets SystemExit and KeyboardInterrupt through
    to the loop.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    harmless = RuntimeError(f"the callback raised {type(error).__name__}")
    harmless.__cause__ = error
    return harmless


# --- approvals: the program's answers ------------------------------------------------------------

#: The answers that ``approve`` may return.
_ANSWERS: Final[dict[object, Answer]] = {
    True: "once",
    "once": "once",
    "session": "session",
    False: "no",
    None: "no",
}


class ProgramPrompt:
    """The prompt that puts approval requests to the program's ``approve``, one at a time."""

    def __init__(self, approve: Approve, front: SandboxFront) -> None:
        self._approve = approve
        self._front = front
        self._asking: asyncio.Task[None] | None = None

    def __call__(
        self,
        request: HostRequest,
        cell: ExecuteRequest | None,
        note: str,
        answered: Callable[[Answer], None],
    ) -> Callable[[], None]:
        """Ask the program, call ``answered`` with its answer, and return what cancels the question.

        An exception or an unknown answer means no.
        """
        del note  # it tells a person who mistyped an answer what to type
        self._asking = self._front.loop.create_task(self._put(request, cell, answered))
        return self.close

    def close(self) -> None:
        """Cancel the question."""
        if self._asking is not None:
            self._asking.cancel()

    async def _put(
        self, request: HostRequest, cell: ExecuteRequest | None, answered: Callable[[Answer], None]
    ) -> None:
        answer: Answer = "no"
        with contextlib.suppress(EOFError):
            answer = await answer_of(
                self._front,
                lambda: self._approve(approval_request_of(request, cell)),
                _checked_answer,
            )
        answered(answer)


def _checked_answer(value: object) -> Answer:
    if isinstance(value, No):  # from cellblock's own fronts: a no that says who gave it
        return value
    if isinstance(value, bool | str | None) and value in _ANSWERS:
        return _ANSWERS[value]
    raise TypeError(f"approve= returns True, False, 'once' or 'session', not {value!r}")


def approval_request_of(request: HostRequest, cell: ExecuteRequest | None) -> ApprovalRequest:
    """Return a host's request as the program gets it, with the cell that it comes from, if any.

    Raises ValueError and msgspec.MsgspecError if the guest sent arguments that can't be decoded.
    """
    count, source = (0, "") if cell is None else (cell.execution_count, cell.code)
    args, kwargs = arrays.arguments_or_words(request.arguments) if request.arguments else ([], {})
    return ApprovalRequest(
        kind="import" if request.of == "import" else "call",
        names=request.subjects,
        args=tuple(args),
        kwargs=kwargs,
        text="\n".join([f"may cell [{count}] {request.asks}", *request.shown]),
        source=source,
        execution_count=count,
        # A program can't allow something for always: its answers end with its sandbox.
        offers=tuple(answer for answer in offered(request) if answer != "always"),
    )


def approver_of(
    policy: Policy, front: SandboxFront, prompt: ProgramPrompt, wording: Wording
) -> Approver:
    """Return the approver that asks by ``prompt``, and keeps the answers for this sandbox alone.

    ``wording`` says who answers: the program, or a person whom the program asks. Raises PolicyError
    if the policy requires no approvals.
    """
    if policy.approvals == "never":
        problem = "approve= would never be called: this policy asks nobody"
        remedy = 'Leave approve= out, or choose a policy with approvals = "prompt".'
        raise policy.error(problem, "approvals", policy.approvals, remedy)
    grants = Grants(GrantContext(scope="", policy=policy.name, digest=""), None)
    observe = front.audit.approved
    tell = front.outputs.notice
    return Approver(prompt, grants, observe=observe, tell=tell, wording=wording)
