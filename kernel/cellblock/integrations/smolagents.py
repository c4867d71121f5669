"""smolagents: a ``PythonExecutor`` that runs an agent's code in a sandbox.

    from smolagents import CodeAgent
    from cellblock.integrations.smolagents import SandboxExecutor

    with SandboxExecutor("agent.toml", project=".") as executor:
        agent = CodeAgent(tools=[…], model=model, executor=executor)
        agent.run("…")

The agent's tools run in the program, with arguments that are checked against their ``inputs``. So
does ``final_answer``: what it is first called with is the answer, and ends the cell.

What only the program can mend is raised when a run begins (``send_variables``, ``send_tools``),
before a model is asked: an agent takes whatever a cell raises for the model's mistake.
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


class _LeftOut:
    """Stands for an argument that was not given, where the tool does not say what it is then."""


_LEFT_OUT: Final = _LeftOut()


class SandboxExecutor(AgentSandbox, PythonExecutor):  # type: ignore[misc]  # untyped
    """Runs an agent's cells; ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``.

    ``max_print_outputs_length`` is the most characters of what a cell printed and displayed that
    the model reads, 50,000 unless it is given. Nobody is asked about ``final_answer``. The sandbox
    is opened when it is asked for (``sandbox``), or when an agent's first run begins. Tools and
    managed agents of the agent are functions in it, those of the first run. ``close``, which
    ``with`` and the agent's ``cleanup`` call, ends it.
    """

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        max_print_outputs_length: int | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(policy, "final_answer", arguments)
        # A table as the answer needs both here, and no cell has the host import anything.
        for name in ("pyarrow", "pandas"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self._max_logs = _MAX_LOGS if max_print_outputs_length is None else max_print_outputs_length
        self._tools: dict[str, Callable[..., Any]] = {}
        self._variables: dict[str, Any] = {}

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables of the sandbox, once it is open: values as ``Sandbox.set`` takes them.

        Raises ExchangeError for others, as ``send_tools`` does where that opens the sandbox.
        """
        self._variables |= variables
        if self.is_open:
            self._hand_over()

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Have these tools in cells, and open the sandbox if it is not open.

        Raises GuestError where a cell has run with other tools, PolicyError for what can't be a
        tool, and as ``Sandbox.open`` and ``send_variables``.
        """
        self._tools = {name: _function(tool) for name, tool in tools.items()}
        self.opened(self._tools)
        self._hand_over()

    def _hand_over(self) -> None:
        variables, self._variables = self._variables, {}
        for name, value in variables.items():
            self.opened(self._tools).set(name, value)

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a cell. Raises InterpreterError, which tells the model why it failed."""
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
        """End the sandbox: what an agent calls that is cleaned up."""
        self.close()


def _function(tool: Any) -> Callable[..., Any]:
    """Return a tool, or a managed agent, as a function with the hints that its inputs are."""
    if not hasattr(tool, "inputs"):
        return tool  # type: ignore[no-any-return]

    def call(**kwargs: Any) -> Any:
        return tool(**{name: value for name, value in kwargs.items() if value is not _LEFT_OUT})

    forward = getattr(tool, "forward", tool)
    known, own = inspect.signature(forward).parameters, hints_of(forward)
    parameters = []
    for name, given in tool.inputs.items():
        hint, nullable = _hint(given["type"]), given.get("nullable", False)
        # smolagents calls a table an object, as it does a dict, and an array too.
        if names_table(own.get(name)) or names_array(own.get(name)):
            hint = own[name]
        default = known[name].default if name in known else inspect.Parameter.empty
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
    parameters.sort(key=lambda one: one.default is not inspect.Parameter.empty)
    made: Any = call
    made.__doc__, made.__signature__ = tool.description, inspect.Signature(parameters)
    return call


def _hint(kinds: str | list[str]) -> Any:
    """Return the hint for what smolagents calls a type, or for several of which a value has one."""
    hints = [_TYPES.get(kind, Any) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return Any if Any in hints else functools.reduce(operator.or_, hints)
