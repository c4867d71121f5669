"""From the policy's ``tools`` to functions that check their arguments. Runs in the worker.

An entry is ``module:function``, or the name of an entry point of the group ``cellblock.tools``.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.metadata
import inspect
import keyword
import re
import sys
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic

from cellblock.analysis.names import REFUSED_BUILTINS, REFUSED_UNLESS_BOUND, RESERVED
from cellblock.host.services.tools.results import is_secret
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


# Functions that check their arguments by their type hints, in time that a hostile caller bears.
#
# Pydantic tells of everything that does not fit: a megabyte that fits nowhere is a million
# errors, seconds in C and a gigabyte. So a list, tuple or set is read up to the first item that
# does not fit, in fields of a TypedDict or a dataclass, too. Not covered: dicts, ``*args``,
# fields of a model or a dataclass of pydantic's, which is built before, and of a type within
# itself.

#: Schemas that know the option, and what in one is no schema but a user's.
_CONTAINERS: Final = frozenset({"frozenset", "list", "set", "tuple"})
_NO_SCHEMAS: Final = frozenset({"config", "default", "expected", "metadata", "serialization"})
#: Of these the keys are names, of fields or tags, whatever they are.
_NAMED: Final = frozenset({"choices", "fields"})
#: References of one hint that are replaced by what they refer to.
_MOST_REFERENCES: Final = 100


class _Hasty:
    """Stands in a type hint; what it stands for is read up to the first thing that is wrong."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        found: CoreSchema = _Reading(handler).hasty(handler(source))
        return found


def with_validation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises ``pydantic.ValidationError`` for what does not fit.

    Raises what pydantic raises of hints that can't be used.
    """
    try:
        return pydantic.validate_call(_hurried(function))
    except Exception:
        return pydantic.validate_call(function)


def _hurried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with hints that say so; any other callable as it is."""
    if inspect.ismethod(function):
        return types.MethodType(_hurried(function.__func__), function.__self__)
    if not inspect.isfunction(function):
        return function
    own = _copied(function)
    hints = typing.get_type_hints(function, include_extras=True)
    own.__annotations__ = {
        name: hint if name == "return" else Annotated[hint, _Hasty()]
        for name, hint in hints.items()
    }
    return own


def _copied(function: types.FunctionType) -> types.FunctionType:
    """Return the same function, whose type hints may be others."""
    own = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__, own.__doc__ = function.__kwdefaults__, function.__doc__
    own.__module__, own.__qualname__ = function.__module__, function.__qualname__
    own.__dict__.update(function.__dict__)
    return own


class _Reading:
    """Makes a schema of a hint's, with the option set wherever it may be."""

    def __init__(self, handler: GetCoreSchemaHandler) -> None:
        self._handler, self._left = handler, _MOST_REFERENCES
        self._within: set[str] = set()

    def hasty(self, part: Any) -> Any:
        """Return a schema, or a part of one."""
        if isinstance(part, list | tuple):
            return type(part)(map(self.hasty, part))
        if not isinstance(part, dict):
            return part
        kind = part.get("type")
        if kind == "definition-ref":
            return self._there(part)
        found = {key: self._under(key, each) for key, each in part.items()}
        return found | {"fail_fast": True} if kind in _CONTAINERS else found

    def _under(self, key: str, part: Any) -> Any:
        if key in _NAMED and isinstance(part, dict):
            return {name: self.hasty(each) for name, each in part.items()}
        return part if key in _NO_SCHEMAS else self.hasty(part)

    def _there(self, reference: Any) -> Any:
        """Return what is referred to in its place; the reference, where that has no end."""
        name = reference["schema_ref"]
        if name in self._within or not self._left:
            return reference
        found: Any = self._handler.resolve_ref_schema(reference)
        if found["type"] == "model":  # it has its own validator, which knows no option
            return reference
        self._left -= 1
        self._within.add(name)
        inline = self.hasty({key: each for key, each in found.items() if key != "ref"})
        self._within.discard(name)
        return inline


GROUP: Final = "cellblock.tools"
#: Names that mean something else in a cell.
_TAKEN: Final = {
    *vars(builtins), *REFUSED_BUILTINS, *REFUSED_UNLESS_BOUND, *RESERVED, *keyword.kwlist,
    "In", "Out", "ToolError", "display", "get_ipython", "getpass", "inputs", "ops",
}  # fmt: skip
_NAME_IT: Final = 'Give it one: def, or in a program tools={"name": …}.'
_LONGEST_DOC, _LONGEST_TEXT = 10_000, 300
_MODULES: Final = re.compile(r"\b(?:[^\W\d]\w*\.)+(?=[^\W\d])")
_MASK: Final = "'•••'"


class InvalidToolError(Exception):
    """An entry is no tool; says what to do about it."""

    def __init__(self, entry: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.entry, self.message, self.remedy = entry, message, remedy


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool: what cells are told of it, and what is called."""

    tool: Tool
    function: Callable[..., Any]


def load(entries: tuple[str, ...]) -> dict[str, RegisteredTool]:
    """Return the tools by name. Raises InvalidToolError for the first entry that is none."""
    return register((entry, *_named(entry)) for entry in entries)


def register(named: Iterable[tuple[str, str, Any]]) -> dict[str, RegisteredTool]:
    """Return tools by name, of entries, names and functions. Raises InvalidToolError."""
    found: dict[str, RegisteredTool] = {}
    for entry, name, function in named:
        if name in found:
            raise InvalidToolError(entry, f"another tool is named {name}", "Rename one of them.")
        if not name.isidentifier():
            said, remedy = f"{name} is no name that a cell can call", _NAME_IT
            raise InvalidToolError(entry, said, remedy)
        if name in _TAKEN or name.startswith("_"):
            said = f"{name} can't be the name of a tool: it means something else in a cell"
            raise InvalidToolError(entry, said, "Rename the function.")
        found[name] = _registered(entry, name, function)
    return found


def _named(entry: str) -> tuple[str, Any]:
    module, colon, path = entry.partition(":")
    if not colon:
        return entry, _entry_point(entry)
    try:
        function: Any = importlib.import_module(module)
    except BaseException as exc:
        said = f"{module} can't be imported: {type(exc).__name__}: {exc}"
        remedy = (
            f"Install what it needs for {sys.executable}; the notebook's folder is not searched."
        )
        raise InvalidToolError(entry, said, remedy) from None
    for part in path.split("."):
        function = getattr(function, part, None)
    if function is None:
        raise InvalidToolError(entry, f"{module} has no {path}", "Write module:function.")
    return path.rpartition(".")[2], function


def _entry_point(name: str) -> Any:
    points = importlib.metadata.entry_points(group=GROUP, name=name)
    if not points:
        known = sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})
        said = f"no installed package has an entry point of this name in the group {GROUP}"
        remedy = f"Known: {', '.join(known) or 'none'}. Or write module:function."
        raise InvalidToolError(name, said, remedy)
    if len({point.value for point in points}) > 1:
        raise InvalidToolError(name, "two packages have it", "Write module:function instead.")
    try:
        return next(iter(points)).load()
    except BaseException as exc:
        said = f"it can't be imported: {type(exc).__name__}: {exc}"
        raise InvalidToolError(name, said, f"Install what it needs for {sys.executable}.") from None


def _registered(entry: str, name: str, function: Any) -> RegisteredTool:
    if not callable(function):
        raise InvalidToolError(entry, "it is no function", "Name one.")
    try:
        tool = _described(name, function)
        return RegisteredTool(tool, with_validation(function))
    except Exception as exc:
        said = f"its signature can't be used: {type(exc).__name__}: {exc}".partition("\n")[0]
        remedy = "Give it type hints of data: str, int, list, dict, dataclasses, pydantic models."
        raise InvalidToolError(entry, said, remedy) from None


def _described(name: str, function: Callable[..., Any]) -> Tool:
    signature, hints = inspect.signature(function), _hints(function)
    parameters = tuple(_parameter(one, hints) for one in signature.parameters.values())
    returns = hints.get("return", signature.return_annotation)
    return Tool(
        name=name,
        parameters=parameters,
        returns=_text(returns),
        doc=(inspect.getdoc(function) or "")[:_LONGEST_DOC],
        is_async=_is_async(function),
        secret_result=is_secret(returns),
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    unwrapped: Any = function.func if isinstance(function, functools.partial) else function
    try:
        return typing.get_type_hints(unwrapped, include_extras=True)
    except Exception:
        return {}


def _is_async(function: Callable[..., Any]) -> bool:
    method = getattr(function, "__call__", None)  # noqa: B004 - of an object that can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def _parameter(one: inspect.Parameter, hints: dict[str, Any]) -> Parameter:
    hint = hints.get(one.name, one.annotation)
    secret = is_secret(hint)
    default = None if one.default is one.empty else _default(one.default, secret=secret)
    return Parameter(
        name=one.name, kind=int(one.kind), annotation=_text(hint), default=default, secret=secret
    )


def _default(value: object, *, secret: bool) -> str:
    """Return the text of a default, where that says it all: any other may name what is here."""
    if secret:
        return _MASK
    text = repr(value)
    try:
        return text if len(text) <= _LONGEST_TEXT and ast.literal_eval(text) == value else "..."
    except (ValueError, SyntaxError):
        return "..."


def _text(hint: Any) -> str:
    if hint is inspect.Parameter.empty:
        return ""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint in (None, type(None)):
        return "None"
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    # Where a type is from is of no use in a cell; a Literal's texts stay as they are.
    return (text if "'" in text else _MODULES.sub("", text))[:_LONGEST_TEXT]
