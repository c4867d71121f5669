"""What executors of frameworks share: a sandbox that gets a framework's functions as its tools.

A framework says late which functions its code may call, and expects a call of one of them to end
the cell with an answer. So the sandbox is opened when it is asked for, or with the first cell;
tools that come before a cell has run open it again; and the answer is kept here.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import tempfile
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, Self, TypeVar

import pydantic

from cellblock.api.assigned import variable_line
from cellblock.api.blocking import Sandbox
from cellblock.api.fences import without_fence
from cellblock.api.images import not_sent, pictures
from cellblock.api.results import clipped, text_within, value_text
from cellblock.errors import GuestError
from cellblock.host.services.tools.calls import UNASKED, calling_cell
from cellblock.render.headings import Heading
from cellblock.render.text import verbatim_lines
from cellblock.wire.arrays import crosses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.api.images import Image
    from cellblock.api.results import Result, Variable
    from cellblock.policy.model import Policy

    Functions = Mapping[str, Callable[..., Any]]

#: What a model may give as the time of a cell.
Seconds = Annotated[
    float, pydantic.Field(gt=0, le=1_000_000, description="Seconds, at most the policy's.")
]
P = ParamSpec("P")
T = TypeVar("T")
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class AnswerGiven(Exception):
    """The answer has been given, and the cell ends here."""


class NoAnswer(Exception):
    """It was called where no cell can be ended by it."""


def _noting(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of ``Sandbox`` that notes that it was called: cells may have run since."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.has_run = True
        return method(self, *args, **kwargs)

    return call


class _LateTools(Sandbox):
    """A sandbox that can still get tools while no cell has run: it is opened again with them.

    A guest's tools are part of it from its start. Until a cell has run, a sandbox holds what the
    program gave it and nothing else: files and variables, which the one that replaces it gets.
    """

    def __init__(self, policy: str | Path | Policy, **arguments: Any) -> None:
        super().__init__(policy, **arguments)
        #: Paths that the program wrote, as cells have them, and what it called them.
        self._written: dict[str, str] = {}
        self.has_run = False

    def upload(self, source: Any, name: str = "") -> str:
        """Copy a file there, as ``Sandbox.upload``, and note its name."""
        path = super().upload(source, name)
        self._written[path] = name or PurePath(path).name
        return path

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file there, as ``Sandbox.write``, and note its name."""
        return self.upload(content.encode() if isinstance(content, str) else content, name)

    execute, load = _noting(Sandbox.execute), _noting(Sandbox.load)
    fork, try_variants = _noting(Sandbox.fork), _noting(Sandbox.try_variants)
    execute_async = _noting(Sandbox.execute_async)

    def become(self, other: _LateTools) -> None:
        """Go on as ``other``, which is open, with the files and variables of this one."""
        with tempfile.TemporaryDirectory() as folder:
            for number, (path, name) in enumerate(self._written.items()):
                copied = Path(folder, str(number))
                self.download(path, copied)
                other.upload(copied, name)
        for one in self.variables():
            other.set(one.name, self.get(one.name))
        self.drop()
        self.close()
        self._sandbox = self._inner = other._sandbox
        self._thread, other._thread = other._thread, None
        self._written = other._written


class AgentSandbox:
    """A sandbox that is opened when it is needed; ``final`` names the function that ends a cell.

    ``arguments`` are those of ``Sandbox``.
    """

    def __init__(self, policy: str | Path | Policy, final: str, arguments: dict[str, Any]) -> None:
        self._policy, self._final, self._arguments = policy, final, arguments
        self._sandbox: _LateTools | None = None
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

        Raises GuestError where a cell has run with others; else as
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

    @property
    def is_open(self) -> bool:
        """Whether the sandbox is open."""
        return self._sandbox is not None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, for files and variables, which is opened if it is not, with no tools yet.

        Raises GuestError after ``close``, and as ``Sandbox.open``.
        """
        return self._sandbox or self.opened({})

    def opened(self, functions: Functions) -> Sandbox:
        """Return the sandbox, open with these functions as its tools.

        Raises GuestError where a cell has run with others, and after ``close``; and as
        ``Sandbox.open``.
        """
        if self._closed:
            raise GuestError("the sandbox was closed: make another")
        signatures = {name: str(inspect.signature(one)) for name, one in functions.items()}
        before, own = self._sandbox, self._signatures
        if before is not None and signatures == own:
            return before
        if before is not None and before.has_run:
            raise GuestError(_other_tools(own, signatures))
        tools = {name: self._tool(name, one) for name, one in functions.items()}
        sandbox = _LateTools(self._policy, tools=tools, **self._arguments)
        sandbox.open()
        if before is None:
            self._sandbox = before = sandbox
        else:
            try:
                before.become(sandbox)
            finally:
                sandbox.close()  # nothing, where it has become the other
        self._signatures = signatures
        return before

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
        if name == self._final:  # it hands on an answer and does nothing: nobody is asked
            setattr(made, UNASKED, True)
        made.__annotations__ = {key: hint for key, hint in hints.items() if hint is not empty}
        return made  # type: ignore[no-any-return]


def _other_tools(own: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return why a sandbox in which cells have run can't have the tools that are wanted."""
    new, gone = sorted(wanted.items() - own.items()), sorted(own.keys() - wanted.keys())
    said = [f"it lacks {', '.join(name for name, _ in new)}"] if new else []
    said += [f"it has {', '.join(gone)} besides"] if gone else []
    return (
        f"cells have run with other tools: {', and '.join(said)}. A sandbox's tools are those of "
        "its first cell: make another one for these"
    )


def shown(result: Result) -> Any:
    """Return a cell's value if its text says the same, else that text: what a model is to read.

    Of a tuple, an array or a time, what crosses is of another type. A text has nothing in it that
    acts on a terminal: frameworks print what a cell came to.
    """
    value, text = result.value, value_text(result)
    if text is None or value is None or crosses(type(value)):
        return text
    if "".join(repr(value).split()) != "".join(text.split()):  # which breaks long ones
        return text
    return verbatim_lines(value) if isinstance(value, str) else value


def told(result: Result, limit: int, assigned: str, images: Sequence[Image]) -> str:
    """Return a result as text for a model that gets these pictures of it beside the text.

    ``assigned`` is what ``assigned_text`` says of its cell. ``limit`` characters at the most: where
    that cuts the result, the last line says what to do, as the model has no other way to the rest.
    """
    numbers = [f"{one.number}" for one in pictures(result)]
    names = [f"{number} of {len(numbers)}" for number in numbers]
    missing = not_sent(names, (one.number for one in images))
    notes = list(filter(None, [assigned, missing]))
    behind = _notes(notes)
    text, is_whole = text_within(result, limit - len(behind))
    if is_whole:
        return text + behind
    cut = Heading.SHORTENED.format(number=f"{limit:,}")
    behind = _notes([*notes, f"{cut}: print less, or a part of it at a time."])
    if len(behind) >= limit:
        return result.to_string(limit)
    return result.to_string(limit - len(behind)) + behind


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"\n\n{note}" for note in notes)


def described(variables: Sequence[Variable], limit: int) -> str:
    """Return variables as lines for a model, ``limit`` characters at the most."""
    return clipped("\n".join(map(variable_line, variables)) or Heading.NO_VARIABLES, limit)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature with hints that are no texts; without those that can't be read."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        found, empty = inspect.signature(function), inspect.Parameter.empty
        plain = [one.replace(annotation=empty) for one in found.parameters.values()]
        return found.replace(parameters=plain, return_annotation=empty)
