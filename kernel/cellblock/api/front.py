"""The front of one sandbox: outputs and results to the caller, questions to its callbacks."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import threading
import traceback
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from cellblock.api import results
from cellblock.api.results import result_of
from cellblock.errors import GuestError, PolicyError
from cellblock.host.cell.cell import Front
from cellblock.host.cell.outputs import Outputs
from cellblock.host.output import gateway

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import CellRun
    from cellblock.host.cell.output_log import OutputLog
    from cellblock.host.cell.status import Views
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.wire import messages as wire

    Ask = Callable[[str], Any]
    OnOutput = Callable[[results.Output], object]


#: Kinds of messages that are outputs; the others report progress.
_KINDS: Final = frozenset(get_args(results.Kind))
#: Characters of an answer that reach the cell.
LONGEST_ANSWER: Final = 1 << 20
#: Fronts whose cells wait for an answer of the callback that runs here.
ANSWERING: Final[contextvars.ContextVar[frozenset[object]]] = contextvars.ContextVar(
    "answering", default=frozenset()
)


class _Parent:
    """The request that outputs belong to (``host.cell.cell.Parent``)."""

    __slots__ = ("header",)

    def __init__(self, msg_id: str) -> None:
        self.header: Mapping[str, Any] = {"msg_id": msg_id}


class _NoFlowControl:
    """No backpressure: outputs are handed over at once (a ``FlowControl``)."""

    def admits(self) -> bool:
        return True

    def check(self) -> None: ...


class SandboxFront(Front):
    """Runs one cell at a time.

    ``ready`` is done when the first guest is, or has the exception why there can be none.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        views: Views,
        kept: OutputLog,
        audit: Audit,
        ask: Ask | None,
    ) -> None:
        super().__init__(Outputs(self, views, _NoFlowControl(), kept, audit), views, audit)
        self._loop, self._ask = loop, ask
        self.ready: asyncio.Future[None] = loop.create_future()
        self._stem, self._serial = os.urandom(8).hex(), itertools.count()
        self._run: CellRun | None = None
        self._done: asyncio.Future[results.Result] | None = None
        self._outputs: list[results.Output] = []
        self._on_output: OnOutput | None = None
        self._question: asyncio.Task[None] | None = None

    def execute(
        self, request: ExecuteRequest, on_output: OnOutput | None
    ) -> asyncio.Future[results.Result]:
        """Run a cell; ``on_output`` is called with each output as it comes, until the next cell."""
        self._outputs, self._on_output, self._run = [], on_output, None
        self._done = done = self._loop.create_future()
        try:
            run = self.run(request, _Parent(f"{self._stem}_{next(self._serial)}"))
        except BaseException:
            self.cell = self._done = None
            raise
        if not done.done():
            self._run = run
        return done

    def abandon(self, error: Exception) -> None:
        """Raise ``error`` for whoever waits."""
        for future in (self.ready, self._done):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting
        self._stop_asking()

    def interrupt(self) -> None:
        """Interrupt what runs; a second time, kill what goes on."""
        self._stop_asking()
        if self.session is not None:
            self.session.interrupt()

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
        """Hand an output to the caller; between cells, to the caller of the last one."""
        del parent
        if kind not in _KINDS:
            return
        output = results.Output(cast("results.Kind", kind), content, metadata or {}, tuple(buffers))
        if self.cell is not None:
            self._outputs.append(output)
        if self._on_output is not None:
            try:
                self._on_output(output)
            except BaseException as exc:  # the caller's fault: it ends no loop
                if isinstance(exc, KeyboardInterrupt) and _in_main_thread():
                    raise
                traceback.print_exc()

    def end_cell(self, content: dict[str, Any], metadata: dict[str, Any], *, abort: bool) -> None:
        """Set the result of the running cell."""
        del metadata, abort
        self._stop_asking()
        run = self.cell
        # Before the cell counts as ended: what is still buffered is its output.
        self.outputs.end()
        self.cell = None
        if run is None or self._done is None or self._done.done():
            return
        outputs, self._outputs = tuple(self._outputs), []
        self._done.set_result(result_of(run, content, outputs, self.outputs.left_out, self.views))

    # --- calls from the session ---------------------------------------------------------------

    def stop_holding(self) -> None:
        """Do nothing: the guest is never held."""

    def on_locks(self, report: wire.LockReport) -> str:
        """Record what a guest's locks achieved."""
        refusal = super().on_locks(report)
        if not refusal and not self.ready.done():
            self.ready.set_result(None)
        return refusal

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
        """Have the program answer a cell's question; without ``input=`` that is an EOFError."""
        ask = self._ask
        if ask is None:
            self._loop.call_soon(self._answer, "", True)
            return False
        if self._question is not None:
            return False
        prompt = gateway.clean_prompt(request.prompt)
        self._question = self._loop.create_task(self._put(ask, prompt))
        return True

    async def _put(self, ask: Ask, prompt: str) -> None:
        text, eof = "", False
        try:
            text = str(await answer_of(self._loop, ask, prompt, self))
        except EOFError:
            eof = True
        except Exception:  # noqa: BLE001 - the caller's fault, told to the caller
            traceback.print_exc()
            eof = True
        self._question = None
        self._answer(text[:LONGEST_ANSWER].encode("utf-8", "replace").decode(), eof)

    def _answer(self, text: str, eof: bool) -> None:
        if self.session is not None and self.cell is not None:
            self.session.answer(text, eof=eof)

    def _stop_asking(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()


async def answer_of(
    loop: asyncio.AbstractEventLoop, ask: Callable[[Any], Any], prompt: object, front: SandboxFront
) -> Any:
    """Return what the callback ``ask`` answers; to be awaited in a task of its own.

    It is called in a daemon thread, as it may wait for ever; if it is async, it runs on this
    loop. Raises what it raises; RuntimeError for what would end the loop.
    """
    ANSWERING.set(ANSWERING.get() | {front})
    context = contextvars.copy_context()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(take: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            take(value)

    def call() -> None:
        took, value = answer.set_result, None
        try:
            value = context.run(ask, prompt)
        except BaseException as exc:  # noqa: BLE001 - whoever awaits gets it
            took, value = answer.set_exception, _harmless(exc)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, took, value)

    threading.Thread(target=call, name="cellblock-input", daemon=True).start()
    said = await answer
    try:
        return await said if isawaitable(said) else said
    except SystemExit as exc:
        raise _harmless(exc) from exc


def _harmless(error: BaseException) -> Exception:
    """Return an exception that a future accepts and that ends no loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = RuntimeError(f"the callback raised {type(error).__name__}")
    made.__cause__ = error
    return made


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
