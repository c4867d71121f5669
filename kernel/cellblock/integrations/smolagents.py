"""smolagents: a ``PythonExecutor`` that runs an agent's code in a sandbox.

    from smolagents import CodeAgent
    from cellblock.integrations.smolagents import SandboxExecutor

    with SandboxExecutor("agent.toml", project=".") as executor:
        agent = CodeAgent(tools=[…], model=model, executor=executor)
        agent.run("…")

The agent's tools run in the program, with arguments that are checked against their ``inputs``. So
does ``final_answer``: its first call gives the answer, and ends the cell.

Errors that only the program can mend are raised when a run begins (``send_variables``,
``send_tools``), before a model is called. An agent takes everything that a cell raises for a
mistake of the model's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import operator
from typing import TYPE_CHECKING, Any, Final

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from cellblock.api.results import logged
from cellblock.errors import CellblockError
from cellblock.host.services.tools.registry import hints_of, names_array, names_table
from cellblock.integrations.agents import AgentSandbox, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cellblock.policy.model import Policy

#: The types, by smolagents' names. Values of its other types can't be sent to a cell.
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": float,
    "array": list[Any],
    "object": dict[str, Any],
    "null": type(None),
}
#: Characters of a cell's log, as for smolagents' own executor. The model reads all of it.
_MAX_LOGS: Final = 50_000


class _LeftOut:
    """The default of an optional argument, if the tool doesn't say what it is."""


_LEFT_OUT: Final = _LeftOut()


class SandboxExecutor(AgentSandbox, PythonExecutor):  # type: ignore[misc]  # untyped
    """An executor that runs an agent's code as cells of a sandbox.

    ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``. ``max_print_outputs_length`` is
    the largest number of characters, by default 50,000, that the model reads of the text that a
    cell printed and displayed. The sandbox is opened when it is first used (``sandbox``), or when
    the agent's first run begins. The tools and managed agents of that run are functions in it.
    Calls of ``final_answer`` need no approval. ``close`` closes the sandbox; ``with`` and the
    agent's ``cleanup`` call it.
    """

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        max_print_outputs_length: int | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(policy, "final_answer", arguments)
        # An answer that is a table needs both in this process, and a guest's answer never makes the
        # host import anything.
        for name in ("pyarrow", "pandas"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self._max_logs = _MAX_LOGS if max_print_outputs_length is None else max_print_outputs_length
        self._tools: dict[str, Callable[..., Any]] = {}
        self._variables: dict[str, Any] = {}

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables of the sandbox, or keep them until it is open.

        Raises ExchangeError for values that ``Sandbox.set`` does not take. If the sandbox is not
        open, ``send_tools``, which opens it, raises that.
        """
        self._variables |= variables
        if self.is_open:
            self._hand_over()

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Make these tools the functions that cells can call, and open the sandbox if needed.

        Raises GuestError if cells have run with other tools, PolicyError for a function that can't
        be a tool, and like ``Sandbox.open`` and ``send_variables``.
        """
        self._tools = {name: _function(tool) for name, tool in tools.items()}
        self.opened(self._tools)
        self._hand_over()

    def _hand_over(self) -> None:
        variables, self._variables = self._variables, {}
        for name, value in variables.items():
            self.opened(self._tools).set(name, value)

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a cell. Raises InterpreterError with the reason if it fails, for the model."""
        variables, self._variables = self._variables, {}
        try:
            result = self.run(code_action, self._tools, variables)
        except CellblockError as exc:
            raise InterpreterError(str(exc)) from exc
        logs = logged(result, self._max_logs)
        if self.answer is not None:
            return CodeOutput(self.answer[0], logs, is_final_answer=True)
        if not result.success:
            raise InterpreterError(result.to_string())
        return CodeOutput(shown(result), logs, is_final_answer=False)

    def cleanup(self) -> None:
        """Close the sandbox. Called by the agent's ``cleanup``."""
        self.close()


def _function(tool: Any) -> Callable[..., Any]:
    """Return a tool, or a managed agent, as a function with hints for its inputs."""
    if not hasattr(tool, "inputs"):
        return tool  # type: ignore[no-any-return]

    def call(**kwargs: Any) -> Any:
        return tool(**{name: value for name, value in kwargs.items() if value is not _LEFT_OUT})

    forward = getattr(tool, "forward", tool)
    forward_parameters = inspect.signature(forward).parameters
    own = hints_of(forward)
    parameters = []
    for name, declared in tool.inputs.items():
        hint = _hint(declared["type"])
        nullable = declared.get("nullable", False)
        # smolagents calls tables and arrays objects, like dicts: the function's own hints say more.
        if names_table(own.get(name)) or names_array(own.get(name)):
            hint = own[name]
        default = (
            forward_parameters[name].default
            if name in forward_parameters
            else inspect.Parameter.empty
        )
        if nullable and default is inspect.Parameter.empty:
            default = _LEFT_OUT
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default,
                annotation=hint | None if nullable and hint is not Any else hint,
            )
        )
    # A signature has the parameters with defaults last.
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    typed: Any = call
    typed.__doc__, typed.__signature__ = tool.description, inspect.Signature(parameters)
    return call


def _hint(kinds: str | list[str]) -> Any:
    """Return the hint for one of smolagents' types, or for a list of them: their union."""
    hints = [_TYPES.get(kind, Any) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return Any if Any in hints else functools.reduce(operator.or_, hints)
