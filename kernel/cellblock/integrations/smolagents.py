"""smolagents: a ``PythonExecutor`` that runs an agent's code in a sandbox.

    from smolagents import CodeAgent
    from cellblock.integrations.smolagents import SandboxExecutor

    with SandboxExecutor("agent.toml") as executor:
        agent = CodeAgent(tools=[…], model=model, executor=executor)
        agent.run("…")

The agent's tools run in the program, with arguments that are checked against their ``inputs``. So
does ``final_answer``: what it is first called with is the answer, and ends the cell.
"""

from __future__ import annotations

import functools
import inspect
import operator
from typing import TYPE_CHECKING, Any, Final

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from cellblock.api.results import clipped
from cellblock.errors import CellblockError, ExchangeError
from cellblock.integrations.agents import AgentSandbox, shown
from cellblock.wire import arrays

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.policy.model import Policy

#: What smolagents calls types; the others are objects that do not cross.
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": float,
    "array": list[Any],
    "object": dict[str, Any],
    "null": type(None),
}
#: Characters of what a cell printed, as smolagents' own executor has it: the model reads them all.
_MAX_LOGS: Final = 50_000


class SandboxExecutor(AgentSandbox, PythonExecutor):  # type: ignore[misc]  # untyped
    """Runs an agent's cells; ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``.

    The sandbox is opened with the first cell. Tools and managed agents of the agent are functions
    in it. ``close``, which ``with`` and the agent's ``cleanup`` call, ends it.
    """

    def __init__(self, policy: str | Path | Policy = "safe", **arguments: Any) -> None:
        super().__init__(policy, "final_answer", arguments)
        self._tools: dict[str, Callable[..., Any]] = {}
        self._variables: dict[str, Any] = {}

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Have these tools in cells; other ones than before the first cell are refused there."""
        self._tools = {name: _function(tool) for name, tool in tools.items()}

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables before the next cell: values as ``Sandbox.set`` takes them.

        Raises ExchangeError for others at once: the program can mend that, and the model can't.
        """
        for name, value in variables.items():
            try:
                arrays.encode(value, arrays.loaded)
            except (ImportError, TypeError, ValueError) as exc:
                raise ExchangeError(f"{name}: {exc}") from exc
        self._variables |= variables

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a cell. Raises InterpreterError, which tells the model why it failed."""
        try:
            result = self.run(code_action, self._tools, self._variables)
        except CellblockError as exc:
            raise InterpreterError(str(exc)) from exc
        self._variables = {}
        logs = clipped(result.output + result.error_output, _MAX_LOGS)
        if self.answer is not None:
            return CodeOutput(self.answer[0], logs, is_final_answer=True)
        if not result.success:
            raise InterpreterError(result.to_string())
        return CodeOutput(shown(result), logs, is_final_answer=False)

    def cleanup(self) -> None:
        """End the sandbox: what an agent calls that is cleaned up."""
        self.close()


def _function(tool: Any) -> Callable[..., Any]:
    """Return a tool, or a managed agent, as a function with the hints that its inputs are."""
    if not hasattr(tool, "inputs"):
        return tool  # type: ignore[no-any-return]

    def call(**kwargs: Any) -> Any:
        # None is what stands for a default here, which a tool's own function knows.
        return tool(**{name: value for name, value in kwargs.items() if value is not None})

    parameters = []
    for name, given in tool.inputs.items():
        hint, nullable = _hint(given["type"]), given.get("nullable", False)
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if nullable else inspect.Parameter.empty,
                annotation=hint | None if nullable and hint is not Any else hint,
            )
        )
    parameters.sort(key=lambda one: one.default is None)
    made: Any = call
    made.__doc__, made.__signature__ = tool.description, inspect.Signature(parameters)
    return call


def _hint(kinds: str | list[str]) -> Any:
    """Return the hint for what smolagents calls a type, or for several of which a value has one."""
    hints = [_TYPES.get(kind, Any) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return Any if Any in hints else functools.reduce(operator.or_, hints)
