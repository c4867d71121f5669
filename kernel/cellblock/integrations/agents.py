"""``AgentSandbox``: the base of frameworks' executors, whose functions become a sandbox's tools.

Two things differ from a program's own sandbox. A framework says late which functions its code may
call. So the sandbox is opened when it is first needed, and opened again if other tools come before
a cell has run:

    not open ─ first use ─> open ─ first cell ─> has run: its tools can't change any more
                            └ other tools ─> replaced by a sandbox with these tools

And a framework expects that calling one of its functions (``SUBMIT``, ``final_answer``) ends the
cell with an answer. That function keeps the answer here, and raises ``AnswerGiven`` in the cell.

Below are the texts that the integrations show a model.
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

#: The timeout that a model may give a cell.
Seconds = Annotated[
    float, pydantic.Field(gt=0, le=1_000_000, description="Seconds, at most the policy's.")
]
P = ParamSpec("P")
T = TypeVar("T")
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class AnswerGiven(Exception):
    """The exception that ends the cell that has given its answer."""


class NoAnswer(Exception):
    """The final function, which ends a cell with its answer, was called by no running cell."""


def _noting(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of ``Sandbox`` that also sets ``has_run``, because it may run a cell."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.has_run = True
        return method(self, *args, **kwargs)

    return call


class _LateTools(Sandbox):
    """A sandbox that can be replaced by another with other tools, as long as no cell has run.

    A guest's tools are fixed when it starts. Until a cell has run, the sandbox has only files and
    variables that the program gave it, and the sandbox that replaces it gets those.
    """

    def __init__(self, policy: str | Path | Policy, **arguments: Any) -> None:
        super().__init__(policy, **arguments)
        #: The files that the program wrote: its names for them, by their paths as cells see them.
        self._written: dict[str, str] = {}
        #: Whether a cell may have run.
        self.has_run = False

    def upload(self, source: Any, name: str = "") -> str:
        """Copy a file like ``Sandbox.upload``, and remember its name."""
        path = super().upload(source, name)
        self._written[path] = name or PurePath(path).name
        return path

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file like ``Sandbox.write``, and remember its name."""
        return self.upload(content.encode() if isinstance(content, str) else content, name)

    execute, load = _noting(Sandbox.execute), _noting(Sandbox.load)
    fork, try_variants = _noting(Sandbox.fork), _noting(Sandbox.try_variants)
    execute_async = _noting(Sandbox.execute_async)

    def become(self, replacement: _LateTools) -> None:
        """Take over the guest of ``replacement``, which is open and has other tools.

        Copy this sandbox's files and variables there first. The program keeps this object.
        """
        with tempfile.TemporaryDirectory() as folder:
            for number, (path, name) in enumerate(self._written.items()):
                copied = Path(folder, str(number))
                self.download(path, copied)
                replacement.upload(copied, name)
        for variable in self.variables():
            replacement.set(variable.name, self.get(variable.name))
        self.drop()
        self.close()
        self._sandbox = self._inner = replacement._sandbox
        self._thread, replacement._thread = replacement._thread, None
        self._written = replacement._written


class AgentSandbox:
    """The base of an executor: a sandbox that is opened when it is first needed.

    ``final`` is the name of the function that ends a cell with an answer. ``arguments`` are those
    of ``Sandbox``.
    """

    def __init__(self, policy: str | Path | Policy, final: str, arguments: dict[str, Any]) -> None:
        self._policy = policy
        self._final = final
        self._arguments = arguments
        self._sandbox: _LateTools | None = None
        self._closed = False
        #: The functions that cells may call now, by name. Tools look them up at each call, so that
        #: a framework may pass new ones of the same signatures with each cell.
        self._functions: Functions = {}
        #: The signatures of the sandbox's tools, as text.
        self._signatures: dict[str, str] = {}
        #: The context of the thread that runs a cell. Functions are called in a copy of it, since
        #: frameworks keep state there.
        self._context = contextvars.copy_context()
        #: The answer that the last cell has given, in a tuple; None if it gave none.
        self.answer: tuple[Any] | None = None
        #: The first answer of each cell, by the cell's number.
        self._answers: dict[int, tuple[Any]] = {}
        #: The number of the last cell that has ended.
        self._ended = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sandbox. It can't be opened again."""
        sandbox, self._sandbox, self._closed = self._sandbox, None, True
        if sandbox is not None:
            sandbox.close()

    def run(self, code: str, functions: Functions, variables: Mapping[str, Any]) -> Result:
        """Set variables and run a cell, which may call ``functions``; set ``answer``.

        Raises GuestError if cells have run with other functions, and like ``Sandbox.open``, ``set``
        and ``execute``.
        """
        sandbox = self.opened(functions)
        self._functions = functions
        self._context = contextvars.copy_context()
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
        """The sandbox, for files and variables. It is opened without tools if it isn't open.

        Raises GuestError after ``close``, and like ``Sandbox.open``.
        """
        return self._sandbox or self.opened({})

    def opened(self, functions: Functions) -> Sandbox:
        """Return the sandbox, open, with these functions as its tools.

        Raises GuestError if cells have run with other functions, and after ``close``. Raises like
        ``Sandbox.open``.
        """
        if self._closed:
            raise GuestError("the sandbox was closed: make another")
        signatures = {
            name: str(inspect.signature(function)) for name, function in functions.items()
        }
        present = self._sandbox
        own = self._signatures
        if present is not None and signatures == own:
            return present
        if present is not None and present.has_run:
            raise GuestError(_other_tools(own, signatures))
        tools = {name: self._tool(name, function) for name, function in functions.items()}
        sandbox = _LateTools(self._policy, tools=tools, **self._arguments)
        sandbox.open()
        if present is None:
            self._sandbox = present = sandbox
        else:
            try:
                present.become(sandbox)
            finally:
                sandbox.close()  # does nothing if its guest was taken over
        self._signatures = signatures
        return present

    def _note(self, value: Any) -> None:
        """Keep an answer for the cell whose call runs in this thread.

        Raises NoAnswer if the cell is not known, or has ended: a thread or task that outlives its
        cell must not answer the next one.
        """
        cell = calling_cell.get()
        if not cell:
            remedy = "call it in the cell itself, or by asyncio.to_thread"
            raise NoAnswer(f"{self._final} was called in a thread, which answers no cell: {remedy}")
        if cell <= self._ended:
            raise NoAnswer(f"the cell that called {self._final} has ended: it answers no other")
        self._answers.setdefault(cell, (value,))

    def _tool(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a tool with the signature of ``function``.

        It calls the function that has this name at the time of the call. The final function's tool
        keeps the answer and ends the cell.
        """
        signature = _signature(function)
        by_name = all(parameter.kind in _BY_NAME for parameter in signature.parameters.values())

        def bound(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            arguments = signature.bind(*args, **kwargs)
            if by_name:
                return functools.partial(self._functions[name], **arguments.arguments)
            return functools.partial(self._functions[name], *arguments.args, **arguments.kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            value = self._context.copy().run(bound(*args, **kwargs))
            if name != self._final:
                return value
            self._note(value)
            raise AnswerGiven

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            context = self._context.copy()
            return await asyncio.create_task(bound(*args, **kwargs)(), context=context)

        tool: Any = call_async if inspect.iscoroutinefunction(function) else call
        tool.__name__, tool.__doc__, tool.__signature__ = name, function.__doc__, signature
        hints = {
            parameter.name: parameter.annotation for parameter in signature.parameters.values()
        }
        hints["return"] = signature.return_annotation
        empty = inspect.Signature.empty
        if name == self._final:  # it only passes on an answer, so it needs no approval
            setattr(tool, UNASKED, True)
        tool.__annotations__ = {key: hint for key, hint in hints.items() if hint is not empty}
        return tool  # type: ignore[no-any-return]


def _other_tools(own: Mapping[str, str], wanted_tools: Mapping[str, str]) -> str:
    """Return why a sandbox whose cells have run can't have other tools.

    ``own`` and ``wanted_tools`` are signatures by name.
    """
    lacking = sorted(wanted_tools.items() - own.items())
    superfluous = sorted(own.keys() - wanted_tools.keys())
    parts = [f"it lacks {', '.join(name for name, _ in lacking)}"] if lacking else []
    parts += [f"it has {', '.join(superfluous)} besides"] if superfluous else []
    return (
        f"cells have run with other tools: {', and '.join(parts)}. A sandbox's tools are those of "
        "its first cell: make another one for these"
    )


# --- texts for models -----------------------------------------------------------------------------


def shown(result: Result) -> Any:
    """Return a cell's value if its text says the same, else its text, for a model to read.

    They differ for tuples, arrays and times, which arrive as values of another type. A text has no
    characters that act on a terminal, because frameworks print the values of cells.
    """
    value = result.value
    text = value_text(result)
    if text is None or value is None or crosses(type(value)):
        return text
    if "".join(repr(value).split()) != "".join(text.split()):  # the text may have line breaks
        return text
    return verbatim_lines(value) if isinstance(value, str) else value


def told(result: Result, limit: int, assigned: str, images: Sequence[Image]) -> str:
    """Return a result as a text for a model, at most ``limit`` characters.

    ``images`` are the pictures that the model gets beside the text. ``assigned`` is the sentence of
    ``assigned_text``, or "". If the result is cut, the last line says what the model can do about
    it: it has no other way to read the rest.
    """
    numbers = [f"{picture.number}" for picture in pictures(result)]
    names = [f"{number} of {len(numbers)}" for number in numbers]
    missing_note = not_sent(names, (picture.number for picture in images))
    notes = list(filter(None, [assigned, missing_note]))
    ending = _notes(notes)
    text, is_whole = text_within(result, limit - len(ending))
    if is_whole:
        return text + ending
    cut = Heading.SHORTENED.format(number=f"{limit:,}")
    ending = _notes([*notes, f"{cut}: print less, or a part of it at a time."])
    if len(ending) >= limit:
        return result.to_string(limit)
    return result.to_string(limit - len(ending)) + ending


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"\n\n{note}" for note in notes)


def described(variables: Sequence[Variable], limit: int) -> str:
    """Return variables as lines for a model, at most ``limit`` characters."""
    return clipped("\n".join(map(variable_line, variables)) or Heading.NO_VARIABLES, limit)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature with evaluated hints, or without hints if that fails."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        signature = inspect.signature(function)
        empty = inspect.Parameter.empty
        plain = [parameter.replace(annotation=empty) for parameter in signature.parameters.values()]
        return signature.replace(parameters=plain, return_annotation=empty)
