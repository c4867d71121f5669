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
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.names import REFUSED_BUILTINS, REFUSED_UNLESS_BOUND, RESERVED
from cellblock.host.tools.checking import checked
from cellblock.host.tools.secrets import is_secret
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


class NoToolError(Exception):
    """An entry is no tool; says what to do about it."""

    def __init__(self, entry: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.entry, self.message, self.remedy = entry, message, remedy


@dataclass(frozen=True, slots=True)
class Registered:
    """A tool: what cells are told of it, and what is called."""

    tool: Tool
    function: Callable[..., Any]


def load(entries: tuple[str, ...]) -> dict[str, Registered]:
    """Return the tools by name. Raises NoToolError for the first entry that is none."""
    return collected((entry, *_named(entry)) for entry in entries)


def collected(named: Iterable[tuple[str, str, Any]]) -> dict[str, Registered]:
    """Return tools by name, of entries, names and functions. Raises NoToolError."""
    found: dict[str, Registered] = {}
    for entry, name, function in named:
        if name in found:
            raise NoToolError(entry, f"another tool is named {name}", "Rename one of them.")
        if not name.isidentifier():
            said, remedy = f"{name} is no name that a cell can call", _NAME_IT
            raise NoToolError(entry, said, remedy)
        if name in _TAKEN or name.startswith("_"):
            said = f"{name} can't be the name of a tool: it means something else in a cell"
            raise NoToolError(entry, said, "Rename the function.")
        found[name] = _registered(entry, name, function)
    return found


def _named(entry: str) -> tuple[str, Any]:
    module, colon, path = entry.partition(":")
    if not colon:
        return entry, _entry_point(entry)
    try:
        function: Any = importlib.import_module(module)
    except BaseException as exc:  # noqa: BLE001 - whatever a module does when it is imported
        said = f"{module} can't be imported: {type(exc).__name__}: {exc}"
        remedy = (
            f"Install what it needs for {sys.executable}; the notebook's folder is not searched."
        )
        raise NoToolError(entry, said, remedy) from None
    for part in path.split("."):
        function = getattr(function, part, None)
    if function is None:
        raise NoToolError(entry, f"{module} has no {path}", "Write module:function.")
    return path.rpartition(".")[2], function


def _entry_point(name: str) -> Any:
    points = importlib.metadata.entry_points(group=GROUP, name=name)
    if not points:
        known = sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})
        said = f"no installed package has an entry point of this name in the group {GROUP}"
        remedy = f"Known: {', '.join(known) or 'none'}. Or write module:function."
        raise NoToolError(name, said, remedy)
    if len({point.value for point in points}) > 1:
        raise NoToolError(name, "two packages have it", "Write module:function instead.")
    try:
        return next(iter(points)).load()
    except BaseException as exc:  # noqa: BLE001 - as above
        said = f"it can't be imported: {type(exc).__name__}: {exc}"
        raise NoToolError(name, said, f"Install what it needs for {sys.executable}.") from None


def _registered(entry: str, name: str, function: Any) -> Registered:
    if not callable(function):
        raise NoToolError(entry, "it is no function", "Name one.")
    try:
        tool = _described(name, function)
        return Registered(tool, checked(function))
    except Exception as exc:  # noqa: BLE001 - pydantic's errors have no common base
        said = f"its signature can't be used: {type(exc).__name__}: {exc}".partition("\n")[0]
        remedy = "Give it type hints of data: str, int, list, dict, dataclasses, pydantic models."
        raise NoToolError(entry, said, remedy) from None


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
    except Exception:  # noqa: BLE001 - names that only a type checker sees; pydantic will say
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
