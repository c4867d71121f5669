"""Datalayer's code-sandboxes: a provider whose sandboxes run here, under a policy.

    from cellblock.integrations.code_sandboxes import CellblockSandbox

    with CellblockSandbox(policy="agent.toml") as sandbox:
        print(sandbox.run_code("6 * 7").text)

Create it by its class, because ``Sandbox.create`` knows only the package's own variants. There is
only one context. Whatever the policy refuses, such as ``commands`` under preset safe, fails like a
cell, with a ``code_error``.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import re
import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final

from code_sandboxes.base import Sandbox as Provider
from code_sandboxes.exceptions import VariableNotFoundError
from code_sandboxes.models import CodeError, ExecutionResult, Logs, OutputMessage, Result

from cellblock.api.blocking import Sandbox
from cellblock.api.sandbox import INTERRUPT_TIMEOUT
from cellblock.errors import CellblockError, ExchangeError, GuestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from code_sandboxes.models import SandboxConfig

    from cellblock.api.results import Result as CellResult
    from cellblock.host.cell.transcript import Output
    from cellblock.policy.model import Policy


#: Lines of a cell that are messages of their own: a message takes 600 bytes even for an empty line.
MAX_LINES: Final = 100_000
_LINE_ENDS: Final = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE: Final = re.compile(rf"[^{_LINE_ENDS}]*(?:\r\n|[{_LINE_ENDS}])|[^{_LINE_ENDS}]+")


class CellblockSandbox(Provider):  # type: ignore[misc]  # untyped
    """A provider that runs code in a sandbox of cellblock's.

    ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``. Only two settings of ``config``
    count: the timeout, unless the policy's is shorter, and ``env_vars``, which cells can read. The
    policy sets all other limits.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        policy: str | Path | Policy = "safe",
        **arguments: Any,
    ) -> None:
        super().__init__(config)
        self._policy = policy
        self._arguments = arguments
        self._sandbox: Sandbox | None = None

    def start(self) -> None:
        """Open the sandbox. Raises like ``cellblock.Sandbox.open``."""
        if self._sandbox is None:
            environment = {"env": self.config.env_vars} if self.config.env_vars else {}
            sandbox = Sandbox(self._policy, **(environment | self._arguments))
            sandbox.open()
            self._sandbox = sandbox
            self._created_at = time.time()
            self._started = True

    def stop(self) -> None:
        """Close the sandbox: its variables and files are gone."""
        sandbox, self._sandbox, self._started = self._sandbox, None, False
        if sandbox is not None:
            sandbox.close()

    def run_code(
        self,
        code: str,
        language: str = "python",
        context: Any = None,
        on_stdout: Any = None,
        on_stderr: Any = None,
        on_result: Any = None,
        on_error: Any = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> ExecutionResult:
        """Run a cell. If it is refused or stopped, the result's ``code_error`` says why.

        The callbacks are called in the thread of the caller, while the cell prints and shows. If a
        callback raises, the cell is interrupted, and the exception is raised here. Raises
        ValueError for a ``language`` other than Python, and for ``envs``, because a sandbox gets
        its environment when it starts (``env_vars``).
        """
        del context  # there is only one
        began = time.time()
        try:
            with self._run(code, language, envs, timeout) as run:
                for event in run.events:
                    printed = on_stderr if getattr(event, "error", False) else on_stdout
                    handler = on_result if isinstance(event, Result) else printed
                    if handler is not None:
                        handler(event)
                execution = _execution_of(run.outcome.result(), began)
        except CellblockError as exc:
            return ExecutionResult(execution_ok=False, execution_error=str(exc))
        if execution.code_error is not None and on_error is not None:
            on_error(execution.code_error)
        return execution

    async def run_code_async(self, *args: Any, **kwargs: Any) -> ExecutionResult:
        """Run a cell like ``run_code``, in a thread, which also calls the callbacks.

        Cancelling the call interrupts the cell, and kills it if it goes on.
        """
        task = asyncio.ensure_future(asyncio.to_thread(self.run_code, *args, **kwargs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            while not task.done():
                self.interrupt()
                await asyncio.wait({task}, timeout=INTERRUPT_TIMEOUT)
            raise

    def run_code_streaming(
        self,
        code: str,
        language: str = "python",
        context: Any = None,
        envs: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[OutputMessage | Result | CodeError]:
        """Run a cell like ``run_code``. Yield its outputs as they come, and then why it failed.

        Closing the iterator before its end interrupts the cell.
        """
        del context
        began = time.time()
        try:
            with self._run(code, language, envs, timeout) as run:
                yield from run.events
                execution = _execution_of(run.outcome.result(), began)
        except CellblockError as exc:
            execution = ExecutionResult(execution_ok=False, execution_error=str(exc))
        yield from _failures(execution)

    async def run_code_streaming_async(
        self, code: str, *args: Any, **kwargs: Any
    ) -> AsyncIterator[OutputMessage | Result | CodeError]:
        """Yield like ``run_code_streaming``, with the same arguments, without blocking the loop."""
        loop = asyncio.get_running_loop()
        events = asyncio.Queue[Any]()

        def put(event: Any) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        callbacks = {"on_stdout": put, "on_stderr": put, "on_result": put}
        task = asyncio.ensure_future(self.run_code_async(code, *args, **callbacks, **kwargs))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            for failure in _failures(task.result()):
                yield failure
        finally:
            task.cancel()
            await asyncio.wait({task})

    @contextlib.contextmanager
    def _run(
        self, code: str, language: str, envs: dict[str, str] | None, timeout: float | None
    ) -> Iterator[_Run]:
        """Run a cell, and end it when the context is left. ``interrupt`` reaches the cell.

        Raises like ``run_code``.
        """
        if language != "python" or envs:
            raise ValueError("cells are Python, and have their environment from env_vars")
        run = _Run(self._open, code, timeout or self.config.timeout)
        self._interrupt_requested.clear()
        self._executing_event.set()
        try:
            yield run
        finally:
            run.end()
            self._executing_event.clear()

    def get_variable(self, name: str, context: Any = None) -> Any:
        """Return a variable's value. Raises VariableNotFoundError if it can't be read."""
        del context
        try:
            return self._open.get(name)
        except ExchangeError as exc:
            raise VariableNotFoundError(str(exc)) from exc

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copy a file so that cells can open it as ``remote_path``."""
        self._open.upload(local_path, remote_path)

    def download_file(self, remote_path: str, local_path: str) -> None:
        """Copy out the file that cells open as ``remote_path``."""
        self._open.download(remote_path, local_path)

    def _get_internal_variable(self, name: str, context: Any = None) -> Any:
        return self.get_variable(name, context)

    def _set_internal_variable(self, name: str, value: Any, context: Any = None) -> None:
        del context
        self._open.set(name, value)

    def _do_interrupt(self) -> bool:
        self._open.interrupt()
        return True

    @property
    def _open(self) -> Sandbox:
        if self._sandbox is None:
            raise GuestError("the sandbox was not started: use `with`, or call start()")
        return self._sandbox


class _Run:
    """A cell that runs in a thread, and the outputs that it shows meanwhile."""

    def __init__(self, sandbox: Sandbox, code: str, seconds: float) -> None:
        self._sandbox = sandbox
        self._code = code
        self._seconds = seconds
        #: The outputs; None at the end.
        self._outputs: queue.SimpleQueue[Output | None] = queue.SimpleQueue()
        #: The cell's result, or the exception of ``Sandbox.execute``.
        self.outcome: Future[CellResult] = Future()
        threading.Thread(target=self._execute, name="cellblock-run", daemon=True).start()

    def _execute(self) -> None:
        try:
            result = self._sandbox.execute(
                self._code, timeout=self._seconds, on_output=self._outputs.put
            )
        except BaseException as exc:  # noqa: BLE001 - raised where the outcome is awaited
            self.outcome.set_exception(exc)
        else:
            self.outcome.set_result(result)
        self._outputs.put(None)

    @property
    def events(self) -> Iterator[OutputMessage | Result]:
        """Yield the cell's outputs as messages and results, until the cell has ended."""
        messages = _Messages()
        while (output := self._outputs.get()) is not None:
            content = output.content
            if output.kind == "stream":
                yield from messages.of(content["text"], error=content["name"] == "stderr")
            elif output.is_notice:
                yield from messages.of(f"{content['data']['text/plain']}\n", error=True)
            elif output.kind in ("display_data", "execute_result") and not output.ours:
                main = output.kind == "execute_result"
                yield Result(data=dict(content["data"]), is_main_result=main)

    def end(self) -> None:
        """Interrupt the cell if it still runs; a second interrupt kills it."""
        while not self.outcome.done():
            self._sandbox.interrupt()
            wait([self.outcome], timeout=INTERRUPT_TIMEOUT)


def _execution_of(result: CellResult, began: float) -> ExecutionResult:
    """Return a result in the package's types. ``began`` is when the cell began."""
    rich = [] if result.rich_result is None else [(result.rich_result, True)]
    results = [
        Result(data=dict(shown_display.data), is_main_result=main)
        for shown_display, main in [*((display, False) for display in result.displays), *rich]
    ]
    error = result.error
    failure = None
    code = None
    messages = _Messages()
    if error is not None and error.type == "SystemExit":  # the code ended itself: no failure
        status = error.message
        code = int(status) if re.fullmatch(r"-?\d{1,9}", status) else int(bool(status))
    elif not result.success and error is not None:
        trace = error.traceback if result.status == "error" else result.to_string()
        failure = CodeError(name=error.type, value=error.message, traceback=trace)
    return ExecutionResult(
        results=results,
        logs=Logs(
            stdout=list(messages.of(result.output)),
            stderr=[
                *messages.of(result.error_output, error=True),
                *messages.of("".join(f"{line}\n" for line in result.notices), error=True),
            ],
        ),
        execution_ok=result.status not in ("refused", "failed"),
        execution_error=result.to_string() if result.status in ("refused", "failed") else None,
        code_error=failure,
        execution_count=result.execution_count,
        started_at=began,
        completed_at=time.time(),
        interrupted=_was_interrupted(result),
        exit_code=code,
    )


def _was_interrupted(result: CellResult) -> bool:
    if result.stop is not None:
        return result.stop.why in ("interrupt", "timeout")
    return result.error is not None and result.error.type == "KeyboardInterrupt"


def _failures(execution: ExecutionResult) -> Iterator[CodeError]:
    """Yield why a cell failed, in the way that the package's own iterators end."""
    if not execution.execution_ok:
        problem = execution.execution_error
        yield CodeError(name="SandboxExecutionError", value=problem, traceback="")
    if execution.code_error is not None:
        yield execution.code_error


class _Messages:
    """The messages of one cell: one for each line.

    After ``MAX_LINES`` messages, the whole rest of a text is one message.
    """

    def __init__(self) -> None:
        self._lines_left = MAX_LINES
        self._now = time.time()

    def of(self, text: str, *, error: bool = False) -> Iterator[OutputMessage]:
        """Yield a text's lines. A text without a newline at its end gives a part of a line."""
        end = 0
        for line in _LINE.finditer(text):
            if not self._lines_left:
                break
            self._lines_left -= 1
            end = line.end()
            yield self._message(line[0], error=error)
        if end < len(text):
            yield self._message(text[end:], error=error)

    def _message(self, text: str, *, error: bool) -> OutputMessage:
        line = text.removesuffix("\n")
        ends = text.endswith("\n")
        return OutputMessage(line=line, timestamp=self._now, error=error, terminated=ends)
