"""DSPy: a ``CodeInterpreter`` that runs a module's code in a sandbox.

    import dspy
    from cellblock.integrations.dspy import SandboxInterpreter

    rlm = dspy.RLM("context, question -> answer", interpreter_factory=SandboxInterpreter)
    dspy.configure(interpreter_factory=lambda: SandboxInterpreter("agent.toml", project="."))

Tools of a module, and ``llm_query``, run in the program, in the context that executes the cell:
its language model answers. What ``SUBMIT`` is first called with is the answer, and ends the cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import math
from typing import TYPE_CHECKING, Any, Final

import pydantic
from dspy.primitives.code_interpreter import (
    CodeExecutionError,
    CodeInterpreterError,
    FinalOutput,
)
from pydantic_core import PydanticSerializationError, to_jsonable_python

from cellblock.api.results import logged
from cellblock.errors import CellblockError
from cellblock.integrations.agents import AgentSandbox, shown
from cellblock.wire import arrays, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from cellblock.policy.model import Policy


#: Types that are data as they are, and may be keys of a dict.
_SCALARS: Final = (str, int, float, bool, type(None))
#: Integers that cross as data; larger ones are written into a cell.
_MOST: Final = 2**63


class SandboxInterpreter(AgentSandbox):
    """Runs a module's cells; ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``.

    ``tools`` are functions by name. They are part of the sandbox from its first cell on. Inputs are
    what DSPy's own interpreter takes: models, dataclasses, enums and the like become data; and
    arrays and tables, which stay what they are.
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
        """Do nothing: the sandbox is opened when it is asked for, or with the first cell."""

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
            given, assignments = _inputs(variables or {})
            if assignments:
                assigned = self.run("\n".join(assignments), functions, given)
                if not assigned.success:
                    raise CodeInterpreterError(assigned.to_string())
                given = {}
            result = self.run(code, functions, given)
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
        printed = logged(result)
        return value if not printed else printed if value is None else f"{printed}{value}"

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell as ``execute`` does."""
        return self.execute(code, variables)

    def shutdown(self) -> None:
        """End the sandbox."""
        self.close()


def _inputs(variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return variables that can be set, and the lines of a cell that make the others.

    A sandbox sets no name that begins with ``_``, as DSPy's own tables have while they cross, and
    takes neither dicts with other keys than texts nor large integers.
    """
    given, lines = dict[str, Any](), list[str]()
    for name, value in variables.items():
        data = value if arrays.crosses(type(value)) else _data(name, value)
        if not _can_be_set(data):
            lines.append(f"{name} = {_literal(data)}")
        elif name.startswith("_"):
            passing = f"dspy{name}"
            given[passing] = data
            lines.append(f"{name} = {passing}\ndel {passing}")
        else:
            given[name] = data
    return given, lines


def _data(name: str, value: Any) -> Any:
    """Return a value as DSPy's own interpreter gives it to cells. Raises CodeInterpreterError."""
    if isinstance(value, _SCALARS):
        return values.plain(value)  # of a subclass, what it is a subclass of
    if isinstance(value, dict):
        keys = [_data(name, key) for key in value]
        if not all(isinstance(key, _SCALARS) for key in keys):
            raise CodeInterpreterError(f"{name}: a key of a dict is neither a text nor a number")
        return dict(zip(keys, [_data(name, one) for one in value.values()], strict=True))
    if isinstance(value, list | tuple):
        return [_data(name, one) for one in value]
    if isinstance(value, set | frozenset):
        items = [_data(name, one) for one in value]
        with contextlib.suppress(TypeError):
            items.sort()
        return items
    if isinstance(value, pydantic.BaseModel):
        return _data(name, value.model_dump(mode="json"))
    try:
        return _data(name, to_jsonable_python(value))
    except PydanticSerializationError:
        kind = type(value).__name__
        raise CodeInterpreterError(f"{name}: {kind} is no data that crosses") from None


def _can_be_set(data: Any) -> bool:
    if isinstance(data, dict):
        return all(isinstance(key, str) and _can_be_set(one) for key, one in data.items())
    if isinstance(data, list):
        return all(map(_can_be_set, data))
    return not isinstance(data, int) or -_MOST <= data < _MOST


def _literal(data: Any) -> str:
    """Return data as source, in which the numbers that are none are calls."""
    if isinstance(data, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(one)}' for key, one in data.items())}}}"
    if isinstance(data, list):
        return f"[{', '.join(map(_literal, data))}]"
    if isinstance(data, float) and not math.isfinite(data):
        return f"float('{data}')"
    return repr(data)


def _function(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that is called by names alone, as DSPy's own are."""
    signature = inspect.signature(tool)

    @functools.wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _with_texts_as_keys(tool(**signature.bind(*args, **kwargs).arguments))

    @functools.wraps(tool)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return _with_texts_as_keys(await tool(**signature.bind(*args, **kwargs).arguments))

    return call_async if inspect.iscoroutinefunction(tool) else call


def _with_texts_as_keys(value: Any) -> Any:
    """Return a tool's result with the keys that it has in JSON, as DSPy gives it to cells."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        keys = [key if isinstance(key, str) else json.dumps(key) for key in value]
        return dict(zip(keys, map(_with_texts_as_keys, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(_with_texts_as_keys, value))
    return value


def _submit(names: Iterable[str]) -> Callable[..., Any]:
    def submit(**values: Any) -> dict[str, Any]:
        return values

    made: Any = submit
    made.__doc__ = "Give the answer; the cell ends here."
    made.__signature__ = inspect.Signature(
        [inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD) for one in names]
    )
    return submit
