"""DSPy: a ``CodeInterpreter`` that runs a module's code in a sandbox.

    import dspy
    from cellblock.integrations.dspy import SandboxInterpreter

    rlm = dspy.RLM("context, question -> answer", interpreter_factory=SandboxInterpreter)
    dspy.configure(interpreter_factory=lambda: SandboxInterpreter("agent.toml"))

Tools of a module, and ``llm_query``, run in the program, in the context that executes the cell:
its language model answers. What ``SUBMIT`` is first called with is the answer, and ends the cell.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from dspy.primitives.code_interpreter import (
    CodeExecutionError,
    CodeInterpreterError,
    FinalOutput,
)

from cellblock.errors import CellblockError
from cellblock.integrations.agents import AgentSandbox, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cellblock.policy.model import Policy


class SandboxInterpreter(AgentSandbox):
    """Runs a module's cells; ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``.

    ``tools`` are functions by name. They are part of the sandbox from its first cell on.
    """

    execution_instructions = (
        "Code runs as cells of a notebook, in a sandbox: what its policy refuses, it explains. "
        "Variables, imports and functions persist. Tools and SUBMIT are global functions."
    )

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: dict[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(policy, "SUBMIT", arguments)
        self._tools = dict(tools or {})
        #: What ``SUBMIT`` takes: each has a ``name``; None is one value, ``output``.
        self.output_fields = output_fields

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """Functions that cells may call, which DSPy adds its own to before the first cell."""
        return self._tools

    def start(self) -> None:
        """Do nothing: the sandbox is opened with the first cell, when all tools are known."""

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell; return the answer that it submits, or what it printed and its last value.

        Raises SyntaxError, CodeExecutionError for a cell that fails or is refused, and
        CodeInterpreterError where none can be run.
        """
        names = [str(one["name"]) for one in self.output_fields or ({"name": "output"},)]
        hidden = sorted(name for name in self._tools if name.startswith("_"))
        if hidden:  # DSPy's facade, which takes more than data, and goes without it then
            raise CodeExecutionError(f"a sandbox offers no tools such as {hidden[0]}")
        functions = {name: _function(tool) for name, tool in self._tools.items()}
        functions["SUBMIT"] = _submit(names)
        try:
            result = self.run(code, functions, variables or {})
        except CellblockError as exc:
            raise CodeInterpreterError(str(exc)) from exc
        if self.answer is not None:
            return FinalOutput(self.answer[0])
        if result.error is not None and result.error.type in ("SyntaxError", "IndentationError"):
            raise SyntaxError(result.error.message)
        if result.status in ("refused", "failed"):
            raise CodeInterpreterError(result.to_string())
        if not result.success:
            raise CodeExecutionError(result.to_string())
        value = shown(result)
        printed = result.output + result.error_output
        return value if not printed else printed if value is None else f"{printed}{value}"

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell as ``execute`` does."""
        return self.execute(code, variables)

    def shutdown(self) -> None:
        """End the sandbox."""
        self.close()


def _function(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that is called by names alone, as DSPy's own are."""
    signature = inspect.signature(tool)
    if inspect.iscoroutinefunction(tool):
        return tool

    @functools.wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        return tool(**signature.bind(*args, **kwargs).arguments)

    return call


def _submit(names: Iterable[str]) -> Callable[..., Any]:
    def submit(**values: Any) -> dict[str, Any]:
        return values

    made: Any = submit
    made.__doc__ = "Give the answer; the cell ends here."
    made.__signature__ = inspect.Signature(
        [inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD) for one in names]
    )
    return submit
