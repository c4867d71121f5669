"""DSPy: a ``CodeInterpreter`` that runs a module's code in a sandbox.

    import dspy
    from cellblock.integrations.dspy import SandboxInterpreter

    rlm = dspy.RLM("context, question -> answer", interpreter_factory=SandboxInterpreter)
    dspy.configure(interpreter_factory=lambda: SandboxInterpreter("agent.toml", project="."))

Tools of a module, and ``llm_query``, run in the program, in the context of the call that runs the
cell, so that its language model answers. The first call of ``SUBMIT`` gives the answer, and ends
the cell.
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


#: Types that can be sent as they are, and may be keys of a dict.
_SCALARS: Final = (str, int, float, bool, type(None))
#: The bound of integers that can be sent; larger ones are written into a cell as literals.
_INTEGER_LIMIT: Final = 2**63


class SandboxInterpreter(AgentSandbox):
    """An interpreter that runs a module's code as cells of a sandbox.

    ``policy`` and ``arguments`` are those of ``cellblock.Sandbox``. ``tools`` are functions by
    name, which can't change once a cell has run. Inputs may be anything that DSPy's own interpreter
    takes: models, dataclasses, enums and the like become plain data. Arrays and tables stay what
    they are.
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
        #: The arguments of ``SUBMIT``, each with a ``name``; None for one argument, ``output``.
        self.output_fields = output_fields

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The functions that cells may call. DSPy adds its own before the first cell."""
        return self._tools

    def start(self) -> None:
        """Do nothing: the sandbox is opened when it is first needed."""

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a cell. Return its answer if it submits one, else its printed text and its value.

        Raises SyntaxError for source that is not Python, CodeExecutionError for a cell that fails
        or is refused, and CodeInterpreterError if no cell can be run.
        """
        names = [str(field["name"]) for field in self.output_fields or ({"name": "output"},)]
        hidden = sorted(name for name in self._tools if name.startswith("_"))
        if hidden:  # a facade of DSPy's, which needs more than data; DSPy goes on without it
            raise CodeExecutionError(f"a sandbox offers no tools such as {hidden[0]}")
        functions = {name: _function(tool) for name, tool in self._tools.items()}
        functions["SUBMIT"] = _submit(names)
        try:
            settable, assignments = _inputs(variables or {})
            if assignments:
                assigned = self.run("\n".join(assignments), functions, settable)
                if not assigned.success:
                    raise CodeInterpreterError(assigned.to_string())
                settable = {}
            result = self.run(code, functions, settable)
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
        """Run a cell like ``execute``."""
        return self.execute(code, variables)

    def shutdown(self) -> None:
        """Close the sandbox."""
        self.close()


def _inputs(variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the variables that can be set, and lines of a cell that make the others.

    A sandbox can't set names that begin with ``_``, which DSPy's own tables have while they are
    passed, nor dicts with keys other than texts, nor large integers.
    """
    settable = dict[str, Any]()
    lines = list[str]()
    for name, value in variables.items():
        data = value if arrays.crosses(type(value)) else _as_data(name, value)
        if not _can_be_set(data):
            lines.append(f"{name} = {_literal(data)}")
        elif name.startswith("_"):
            passing = f"dspy{name}"
            settable[passing] = data
            lines.append(f"{name} = {passing}\ndel {passing}")
        else:
            settable[name] = data
    return settable, lines


def _as_data(name: str, value: Any) -> Any:
    """Return a value as data, like DSPy's own interpreter. Raises CodeInterpreterError.

    ``name`` is the input's name, for the error.
    """
    if isinstance(value, _SCALARS):
        return values.plain(value)  # a value of a subclass becomes one of its base type
    if isinstance(value, dict):
        keys = [_as_data(name, key) for key in value]
        if not all(isinstance(key, _SCALARS) for key in keys):
            raise CodeInterpreterError(f"{name}: a key of a dict is neither a text nor a number")
        return dict(zip(keys, [_as_data(name, item) for item in value.values()], strict=True))
    if isinstance(value, list | tuple):
        return [_as_data(name, item) for item in value]
    if isinstance(value, set | frozenset):
        items = [_as_data(name, item) for item in value]
        with contextlib.suppress(TypeError):
            items.sort()
        return items
    if isinstance(value, pydantic.BaseModel):
        return _as_data(name, value.model_dump(mode="json"))
    try:
        return _as_data(name, to_jsonable_python(value))
    except PydanticSerializationError:
        kind = type(value).__name__
        raise CodeInterpreterError(f"{name}: {kind} can't be passed as data") from None


def _can_be_set(data: Any) -> bool:
    if isinstance(data, dict):
        return all(isinstance(key, str) and _can_be_set(value) for key, value in data.items())
    if isinstance(data, list):
        return all(map(_can_be_set, data))
    return not isinstance(data, int) or -_INTEGER_LIMIT <= data < _INTEGER_LIMIT


def _literal(data: Any) -> str:
    """Return data as Python source; infinities and NaN, which have no literals, as calls."""
    if isinstance(data, dict):
        return (
            f"{{{', '.join(f'{_literal(key)}: {_literal(value)}' for key, value in data.items())}}}"
        )
    if isinstance(data, list):
        return f"[{', '.join(map(_literal, data))}]"
    if isinstance(data, float) and not math.isfinite(data):
        return f"float('{data}')"
    return repr(data)


def _function(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a tool with keyword arguments only, like DSPy."""
    signature = inspect.signature(tool)

    @functools.wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _with_texts_as_keys(tool(**signature.bind(*args, **kwargs).arguments))

    @functools.wraps(tool)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return _with_texts_as_keys(await tool(**signature.bind(*args, **kwargs).arguments))

    return call_async if inspect.iscoroutinefunction(tool) else call


def _with_texts_as_keys(value: Any) -> Any:
    """Return a tool's result with the keys of dicts as in JSON, like DSPy passes it to cells."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        keys = [key if isinstance(key, str) else json.dumps(key) for key in value]
        return dict(zip(keys, map(_with_texts_as_keys, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(_with_texts_as_keys, value))
    return value


def _submit(names: Iterable[str]) -> Callable[..., Any]:
    def submit(**values: Any) -> dict[str, Any]:
        return values

    typed: Any = submit
    typed.__doc__ = "Give the answer; the cell ends here."
    typed.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return submit
