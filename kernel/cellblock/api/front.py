"""The front of one sandbox: outputs and results to the caller, questions to its callbacks."""

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
#: Kinds of messages that are outputs; the others report progress.
_KINDS: Final = frozenset(get_args(Kind))
#: Characters of an answer that reach the cell.
MAX_ANSWER: Final = 1 << 20
#: Fronts whose cells wait for an answer of the callback that runs here.
ANSWERING: Final[contextvars.ContextVar[frozenset[object]]] = contextvars.ContextVar(
    "answering", default=frozenset()
)


@dataclass(frozen=True, slots=True)
class _Parent:
    """The request that outputs belong to."""

    header: Mapping[str, Any]


class _NoFlowControl:
    """No backpressure: outputs are handed over at once."""

    def admits(self) -> bool:
        return True

    def check(self) -> None: ...


class SandboxFront(Front):
    """Runs one cell at a time.

    ``ready`` is done when the first guest is, or has the exception why there can be none.
    """

    session: Session | None

    def __init__(self, views: Views, kept: OutputLog, audit: Audit, ask: Ask | None) -> None:
        super().__init__(Outputs(self, views, _NoFlowControl(), kept, audit), views, audit)
        self.loop, self._ask = asyncio.get_running_loop(), ask
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self._stem, self._serial = os.urandom(8).hex(), itertools.count()
        self._done: asyncio.Future[Result] | None = None
        self._answered: asyncio.Future[Any] | None = None
        self._outputs: list[Output] = []
        #: What cells printed after their end, by what they had left running, since the last result.
        self._late: list[Output] = []
        #: The request of the cell that was run last.
        self._parent: _Parent | None = None
        self._on_output: OnOutput | None = None
        self._widgets = WidgetWords()
        self._question: asyncio.Task[None] | None = None
        #: The last cells whose doing is in the variables, by their numbers, for ``save``.
        self.cells: dict[int, str] = {}
        #: The session that the variables came from by a fork, until they are gone.
        self.origin: Origin | None = None

    def execute(
        self, request: ExecuteRequest, on_output: OnOutput | None
    ) -> asyncio.Future[Result]:
        """Run a cell; ``on_output`` is called with each output as it comes, until the next cell."""
        self._on_output = on_output
        self._done = done = self.loop.create_future()
        try:
            self._parent = _Parent({"msg_id": f"{self._stem}_{next(self._serial)}"})
            self.run(request, self._parent)
        except BaseException:
            self.cell = self._done = None
            self._outputs.clear()
            raise
        return done

    def abandon(self, error: Exception) -> None:
        """Raise ``error`` for whoever waits."""
        for future in (self.ready, self._done, self._answered):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting
        self._stop_asking()

    def ask(self, what: Callable[[Session, Callable[[Any], None]], None]) -> asyncio.Future[Any]:
        """Ask the session for something that is no cell; return its answer, None if it has none."""
        self._answered = answered = self.loop.create_future()

        def settle(reply: Any) -> None:
            if not answered.done():
                answered.set_result(reply)

        if self.session is not None:
            what(self.session, settle)
        return answered

    def interrupt(self) -> None:
        """Interrupt what runs; a second time, kill what goes on."""
        self._stop_asking()
        if self.session is not None:
            self.session.interrupt()

    def on_cell(self, cell: CellRun) -> None:
        """Tell nobody."""

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
        """Hand an output to the caller; between cells, to the caller of the last one.

        What is said of the guest between cells, such as its end, is in the next result too. So is
        what is printed, as ``late_output``, with what other cells than the running one print.
        """
        if kind not in _KINDS:
            return
        output = Output(cast("Kind", kind), content, metadata or {}, tuple(buffers))
        self._widgets.take(output)
        is_own = self.cell is not None and parent is self._parent and metadata != LATE
        if output.kind == "stream" and not output.by_host and not is_own:
            output = replace(output, late=True)
            self._late.append(output)
        if self.cell is not None or output.ours or output.by_host:
            self._outputs.append(output)
        if self._on_output is not None:
            try:
                self._on_output(output)
            except BaseException as exc:  # the caller's fault: it ends no loop
                is_main = threading.current_thread() is threading.main_thread()
                if isinstance(exc, KeyboardInterrupt) and is_main:
                    raise
                traceback.print_exc()

    def end_cell(
        self, cell: CellRun, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool
    ) -> None:
        """Set the result of the running cell, or why there can be none: a mistake of the host's."""
        del cell, metadata, abort
        self._stop_asking()
        run, done = self.cell, self._done
        try:
            result = self._result(run, content)
        except Exception as exc:  # whoever waits has no other way to learn of it
            self._outputs.clear()
            if done is None or done.done():
                raise
            done.set_exception(exc)
        else:
            if result is not None and done is not None and not done.done():
                self._note(result)
                done.set_result(result)
        finally:
            self.cell = None

    def _result(self, run: CellRun | None, content: Mapping[str, Any]) -> Result | None:
        # Before the cell counts as ended: what is still buffered is its output.
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
        """Remember a cell that ran, unless what it did is gone; forget the oldest."""
        state = result.stop.state if result.stop is not None else ""
        if state == "gone":
            self._forget()
        elif state == "kept" or result.status in ("ok", "error"):
            self.cells[result.execution_count] = result.source
            left = MOST_CHARACTERS - sum(map(len, self.cells.values()))
            while left < 0 or len(self.cells) > MOST_CELLS:
                left += len(self.cells.pop(next(iter(self.cells))))

    def _forget(self) -> None:
        """Forget where the variables came from, which are gone with a guest."""
        self.cells.clear()
        self.origin = None

    @property
    def late_output(self) -> str:
        """What was printed since the last cell ended: the next result will have it."""
        return "".join(one.content["text"] for one in self._late) if self.cell is None else ""

    # --- calls from the session ---------------------------------------------------------------

    def stop_holding(self) -> None:
        """Do nothing: the guest is never held."""

    def on_locks(self, report: wire.LockReport) -> str:
        """Record what a guest's locks achieved."""
        refusal = super().on_locks(report)
        if not refusal and not self.ready.done():
            self.ready.set_result(None)
        return refusal

    def on_forked(self, stopped: Stopped) -> None:
        """Record that the copy serves."""
        super().on_forked(stopped)
        if not self.ready.done():
            self.ready.set_result(None)

    def on_restart(self, stopped: Stopped) -> None:
        """Record that the sandbox goes on as before, and not as the copy that was to serve.

        Cells that are gone with a guest are forgotten.
        """
        super().on_restart(stopped)
        if self.inherited is not None and not self.ready.done():
            self.ready.set_exception(GuestError(stopped.detail))
        if not stopped.kept and stopped.restored is None:
            self._forget()

    def on_undo(self, stopped: Stopped) -> None:
        """Forget the cells that were undone; of a checkpoint nobody knows which led there."""
        super().on_undo(stopped)
        for number in stopped.undone or tuple(self.cells):
            self.cells.pop(number, None)

    def on_policy_error(self, error: PolicyError) -> None:
        """Remember why the policy can't be kept."""
        super().on_policy_error(error)
        if not self.ready.done():
            self.ready.set_exception(error)

    def on_failure(self, detail: str) -> None:
        """Remember why no guest runs."""
        super().on_failure(detail)
        if not self.ready.done():
            self.ready.set_exception(GuestError(self.views.problem()[1].report))

    def on_question(self, request: wire.InputRequest) -> bool:
        """Ask the program a cell's question; without ``input=`` that is an EOFError."""
        ask, prompt = self._ask, gateway.clean_prompt(request.prompt)
        if ask is None:
            self.loop.call_soon(self._answer, "", True)
            return False
        if self._question is not None:
            return False
        self._question = self.loop.create_task(self._put(lambda: ask(prompt)))
        return True

    async def _put(self, ask: Callable[[], Any]) -> None:
        try:
            text, eof = await answer_of(self, ask, str, silent=EOFError), False
        except EOFError:
            text, eof = "", True
        self._question = None
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
    """Return what ``read`` makes of a callback's answer; to be awaited in a task of its own.

    It is called in a daemon thread, as it may wait for ever; if it is async, it runs on this
    loop. Whatever it raises is printed, unless it is ``silent``, and raised as an EOFError.
    """
    ANSWERING.set(ANSWERING.get() | {front})
    context, loop = contextvars.copy_context(), front.loop
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(take: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            take(value)

    def call() -> None:
        took, value = answer.set_result, None
        try:
            value = context.run(ask)
        except BaseException as exc:  # noqa: BLE001 - whoever awaits gets it
            took, value = answer.set_exception, _harmless(exc)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, took, value)

    threading.Thread(target=call, name="cellblock-input", daemon=True).start()
    try:
        value = await answer
        return read(await value if isawaitable(value) else value)
    except (Exception, SystemExit) as exc:
        if not isinstance(exc, silent):
            traceback.print_exception(_harmless(exc))
        raise EOFError from exc


def _harmless(error: BaseException) -> Exception:
    """Return an exception that a future accepts and that ends no loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = RuntimeError(f"the callback raised {type(error).__name__}")
    made.__cause__ = error
    return made


# --- the program's own answer where its policy asks for consent -----------------------------------

_ANSWERS: Final[dict[object, Answer]] = {
    True: "once",
    "once": "once",
    "session": "session",
    False: "no",
    None: "no",
}


class ProgramPrompt:
    """Asks the program's ``approve``, one request at a time."""

    def __init__(self, approve: Approve, front: SandboxFront) -> None:
        self._approve, self._front = approve, front
        self._asking: asyncio.Task[None] | None = None

    def __call__(
        self,
        request: HostRequest,
        cell: ExecuteRequest | None,
        note: str,
        answered: Callable[[Answer], None],
    ) -> Callable[[], None]:
        """Ask; return what cancels that. An exception or an unknown answer is a no."""
        del note  # for who mistypes
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
    if isinstance(value, No):  # a front of ours knows who said so
        return value
    if isinstance(value, bool | str | None) and value in _ANSWERS:
        return _ANSWERS[value]
    raise TypeError(f"approve= returns True, False, 'once' or 'session', not {value!r}")


def approval_request_of(request: HostRequest, cell: ExecuteRequest | None) -> ApprovalRequest:
    """Return a request as the program gets it. Raises ValueError, msgspec.MsgspecError."""
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
        # Nothing is for always: a program's answers end with its sandbox.
        offers=tuple(one for one in offered(request) if one != "always"),
    )


def approver_of(
    policy: Policy, front: SandboxFront, prompt: ProgramPrompt, wording: Wording
) -> Approver:
    """Return what asks the program, or by it a person, as the ``wording`` says.

    Raises PolicyError for a policy that asks nobody.
    """
    if policy.approvals == "never":
        what = "approve= would never be called: the policy has nobody asked"
        remedy = 'Leave approve= out, or choose a policy with approvals = "prompt".'
        raise policy.error(what, "approvals", policy.approvals, remedy)
    given = Grants(GrantContext(scope="", policy=policy.name, digest=""), None)
    observe, tell = front.audit.approved, front.outputs.notice
    return Approver(prompt, given, observe=observe, tell=tell, wording=wording)
