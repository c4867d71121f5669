"""What executors of frameworks share: a sandbox that gets a framework's functions as its tools.

A framework says late which functions its code may call, and expects a call of one of them to end
the cell with an answer. So the sandbox is opened with the first cell, and the answer is kept here.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.api.blocking import Sandbox
from cellblock.api.fences import without_fence
from cellblock.api.results import clipped
from cellblock.errors import GuestError
from cellblock.host.services.tools.calls import calling_cell
from cellblock.render.text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cellblock.api.results import Result, Variable
    from cellblock.policy.model import Policy

    Functions = Mapping[str, Callable[..., Any]]

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class AnswerGiven(Exception):
    """The answer has been given, and the cell ends here."""


class NoAnswer(Exception):
    """It was called where no cell can be ended by it."""


class AgentSandbox:
    """A sandbox that is opened with its first cell; ``final`` names the function that ends one.

    ``arguments`` are those of ``Sandbox``.
    """

    def __init__(self, policy: str | Path | Policy, final: str, arguments: dict[str, Any]) -> None:
        self._policy, self._final, self._arguments = policy, final, arguments
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._functions: Functions = {}
        self._signatures: dict[str, str] = {}
        #: What frameworks keep for the thread that runs a cell: functions are called in a copy.
        self._context = contextvars.copy_context()
        #: The answer that the last cell has given, in a tuple.
        self.answer: tuple[Any] | None = None
        #: What the final function was first called with, by the number of the cell that called it;
        #: and the number of the last cell that has ended.
        self._answers: dict[int, tuple[Any]] = {}
        self._ended = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox; no cell runs after that."""
        sandbox, self._sandbox, self._closed = self._sandbox, None, True
        if sandbox is not None:
            sandbox.close()

    def run(self, code: str, functions: Functions, variables: Mapping[str, Any]) -> Result:
        """Set variables and run a cell, which may call ``functions``; ``answer`` is what it gave.

        Raises GuestError where these are others than those of the first cell; else as
        ``Sandbox.open``, ``set`` and ``execute``.
        """
        sandbox = self.opened(functions)
        self._functions, self._context = functions, contextvars.copy_context()
        self.answer = None
        self._answers.clear()
        for name, value in variables.items():
            sandbox.set(name, value)
        result = sandbox.execute(without_fence(code))
        self._ended = result.execution_count
        self.answer = self._answers.get(self._ended)
        return result

    def opened(self, functions: Functions) -> Sandbox:
        """Return the sandbox, which is opened if it is not, with these functions as its tools."""
        if self._closed:
            raise GuestError("the sandbox was closed: make another")
        signatures = {name: str(inspect.signature(one)) for name, one in functions.items()}
        if self._sandbox is None:
            tools = {name: self._tool(name, one) for name, one in functions.items()}
            sandbox = Sandbox(self._policy, tools=tools, **self._arguments)
            sandbox.open()
            self._sandbox, self._signatures = sandbox, signatures
        elif signatures != self._signatures:
            changed = ", ".join(sorted(dict(signatures.items() ^ self._signatures.items())))
            raise GuestError(f"cells have run without {changed}: make another sandbox for that")
        return self._sandbox

    def _note(self, value: Any) -> None:
        """Keep the answer of the cell whose call runs in this thread. Raises NoAnswer.

        A thread or a task may outlive its cell, and has nothing to answer for the next one.
        """
        cell = calling_cell.get()
        if not cell:
            remedy = "call it in the cell itself, or by asyncio.to_thread"
            raise NoAnswer(f"{self._final} was called in a thread, which answers no cell: {remedy}")
        if cell <= self._ended:
            raise NoAnswer(f"the cell that called {self._final} has ended: it answers no other")
        self._answers.setdefault(cell, (value,))

    def _tool(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls the one which has this name when it is called."""
        signature = _signature(function)
        by_name = all(one.kind in _BY_NAME for one in signature.parameters.values())

        def bound(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            given = signature.bind(*args, **kwargs)
            if by_name:
                return functools.partial(self._functions[name], **given.arguments)
            return functools.partial(self._functions[name], *given.args, **given.kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            value = self._context.copy().run(bound(*args, **kwargs))
            if name != self._final:
                return value
            self._note(value)
            raise AnswerGiven

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            context = self._context.copy()
            return await asyncio.create_task(bound(*args, **kwargs)(), context=context)

        made: Any = call_async if inspect.iscoroutinefunction(function) else call
        made.__name__, made.__doc__, made.__signature__ = name, function.__doc__, signature
        hints = {one.name: one.annotation for one in signature.parameters.values()}
        hints["return"] = signature.return_annotation
        empty = inspect.Signature.empty
        made.__annotations__ = {key: hint for key, hint in hints.items() if hint is not empty}
        return made  # type: ignore[no-any-return]


def shown(result: Result) -> Any:
    """Return a cell's value, or its text; a text with nothing in it that acts on a terminal.

    Frameworks print what a cell came to.
    """
    value = result.result if result.value is None else result.value
    return visible_lines(value) if isinstance(value, str) else value


def described(variables: Sequence[Variable], limit: int) -> str:
    """Return variables as lines for a model, ``limit`` characters at the most."""
    lines = [
        " ".join(filter(None, (one.name, one.type, one.shape, f"{one.size} bytes")))
        for one in variables
    ]
    return clipped("\n".join(lines) or "There are no variables.", limit)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature with hints that are no texts; without those that can't be read."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        found, empty = inspect.signature(function), inspect.Parameter.empty
        plain = [one.replace(annotation=empty) for one in found.parameters.values()]
        return found.replace(parameters=plain, return_annotation=empty)
