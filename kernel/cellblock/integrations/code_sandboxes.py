"""Datalayer's code-sandboxes: a provider whose sandboxes run here, under a policy.

    from cellblock.integrations.code_sandboxes import CellblockSandbox

    with CellblockSandbox(policy="agent.toml") as sandbox:
        print(sandbox.run_code("6 * 7").text)

It is made by its class: ``Sandbox.create`` knows the package's own variants alone. There is one
context, and what a policy does not allow, such as ``commands`` under preset safe, fails as a cell
would: that is ``code_error``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from code_sandboxes.base import Sandbox as Provider
from code_sandboxes.exceptions import VariableNotFoundError
from code_sandboxes.models import CodeError, ExecutionResult, Logs, OutputMessage, Result

from cellblock.api.blocking import Sandbox
from cellblock.errors import CellblockError, ExchangeError, GuestError

if TYPE_CHECKING:
    from pathlib import Path

    from code_sandboxes.models import SandboxConfig

    from cellblock.policy.model import Policy


class CellblockSandbox(Provider):  # type: ignore[misc]  # untyped
    """Runs code in a sandbox of cellblock's.

    ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``. Of ``config`` the timeout
    counts, where the policy does not allow less, and ``env_vars``, which cells can read; what else
    is limited the policy says.
    """

    def __init__(
        self,
        config: SandboxConfig | None = None,
        *,
        policy: str | Path | Policy = "safe",
        **arguments: Any,
    ) -> None:
        super().__init__(config)
        self._policy, self._arguments = policy, arguments
        self._sandbox: Sandbox | None = None

    def start(self) -> None:
        """Open the sandbox. Raises what ``cellblock.Sandbox.open`` does."""
        if self._sandbox is None:
            given = {"env": self.config.env_vars} if self.config.env_vars else {}
            sandbox = Sandbox(self._policy, **(given | self._arguments))
            sandbox.open()
            self._sandbox, self._created_at, self._started = sandbox, time.time(), True

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
        """Run a cell. A cell that is refused or stopped is a ``code_error`` that says why.

        The callbacks are called when it has ended. Raises ValueError for another ``language`` than
        Python, and for ``envs``: a sandbox has its variables from its start (``env_vars``).
        """
        del context  # there is one
        if language != "python" or envs:
            raise ValueError("cells are Python, and have their environment from env_vars")
        begun, seconds = time.time(), timeout or self.config.timeout
        try:
            result = self._open.execute(code, timeout=seconds)
        except CellblockError as exc:
            return ExecutionResult(execution_ok=False, execution_error=str(exc))
        logs = Logs(stdout=_lines(result.output), stderr=_lines(result.error_output, error=True))
        rich = [] if result.rich_result is None else [(result.rich_result, True)]
        shown = [
            Result(data=dict(one.data), is_main_result=main)
            for one, main in [*((display, False) for display in result.displays), *rich]
        ]
        error = result.error
        failure = None
        if not result.success and error is not None:
            trace = error.traceback if result.status == "error" else result.to_string()
            failure = CodeError(name=error.type, value=error.message, traceback=trace)
        for called, values in ((on_stdout, logs.stdout), (on_stderr, logs.stderr)):
            for value in values if called is not None else ():
                called(value)
        for value in shown if on_result is not None else ():
            on_result(value)
        if failure is not None and on_error is not None:
            on_error(failure)
        return ExecutionResult(
            results=shown,
            logs=logs,
            execution_ok=result.status not in ("refused", "failed"),
            execution_error=result.to_string() if result.status in ("refused", "failed") else None,
            code_error=failure,
            execution_count=result.execution_count,
            started_at=begun,
            completed_at=time.time(),
            interrupted=result.stop is not None and result.stop.why in ("interrupt", "timeout"),
        )

    def get_variable(self, name: str, context: Any = None) -> Any:
        """Return a variable's value. Raises VariableNotFoundError for what can't be had."""
        del context
        try:
            return self._open.get(name)
        except ExchangeError as exc:
            raise VariableNotFoundError(str(exc)) from exc

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copy a file to where a cell opens it as ``remote_path``."""
        self._open.upload(local_path, remote_path)

    def download_file(self, remote_path: str, local_path: str) -> None:
        """Copy the file out that a cell opens as ``remote_path``."""
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


def _lines(text: str, *, error: bool = False) -> list[OutputMessage]:
    now = time.time()
    return [
        OutputMessage(line=line.removesuffix("\n"), timestamp=now, error=error)
        for line in text.splitlines(keepends=True)
    ]
