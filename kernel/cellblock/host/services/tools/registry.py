"""The tools of a worker: what cells are told of each, and the validation of its arguments.

An entry of the policy's ``tools`` is ``module:function``, or the name of an entry point of the
group ``cellblock.tools`` (``load``). Operations are the host's own (``load_operations``).

**Arguments are validated here**, by pydantic against the function's type hints, in the process that
runs the tool and right before it runs; what does not fit is answered as a ``ValidationError``. They
come from a hostile guest, and pydantic reports everything that does not fit: a megabyte that fits
nowhere makes a million errors, seconds in C and a gigabyte. So of a tool a list, tuple or set is
read only up to the first item that does not fit (``fail_fast``); of an operation only so many
arguments and entries are read. Covered are fields of TypedDicts and of standard dataclasses. Not
covered are dicts, ``*args``, pydantic's own models and dataclasses, and recursive types.
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic

from cellblock.analysis.names import REFUSED_BUILTINS, REFUSED_UNLESS_BOUND, RESERVED
from cellblock.errors import PolicyError
from cellblock.host.services.operations import catalog, files
from cellblock.host.services.tools.results import is_secret
from cellblock.policy import operations
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


GROUP: Final = "cellblock.tools"
#: Names that mean something else in a cell.
_RESERVED_NAMES: Final = {
    *vars(builtins), *REFUSED_BUILTINS, *REFUSED_UNLESS_BOUND, *RESERVED, *keyword.kwlist,
    "In", "Out", "ToolError", "display", "get_ipython", "getpass", "inputs", "ops",
}  # fmt: skip
_NAME_IT: Final = 'Give it one: def, or in a program tools={"name": …}.'
_MAX_DOC, _MAX_TEXT = 10_000, 300
_MODULES: Final = re.compile(r"\b(?:[^\W\d]\w*\.)+(?=[^\W\d])")
_MASK: Final = "'•••'"
#: Arguments of an operation, and entries of one.
_MAX_ARGUMENTS: Final = 1_000


class InvalidToolError(Exception):
    """An entry is no tool; says what to do about it."""

    def __init__(self, entry: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.entry, self.message, self.remedy = entry, message, remedy


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool: what cells are told of it, and what is called, which validates its arguments."""

    tool: Tool
    function: Callable[..., Any]


def load(entries: tuple[str, ...]) -> dict[str, RegisteredTool]:
    """Return the operator's tools by name. Raises InvalidToolError for the first that is none."""
    return register((entry, *_import_entry(entry)) for entry in entries)


def load_operations(grants: catalog.OperationGrants) -> dict[str, RegisteredTool]:
    """Return the operations that are granted, by name as cells have them."""
    section = operations.Operations.of_values(grants.tables)
    own = files.Files(section, project=grants.project, denied=grants.denied)
    found: dict[str, Callable[..., Any]] = {
        name: getattr(own, name) for name in section.with_roots()
    }
    if section.http is not None:
        from cellblock.host.services.operations.http import Fetcher  # noqa: PLC0415 - of an extra

        found["http"] = Fetcher(section.http).http
    if section.install is not None:
        from cellblock.host.services.operations.packages import Installer  # noqa: PLC0415 - start time

        found["install"] = Installer(section.install, grants.packages).install
    return {
        f"{catalog.PREFIX}{name}": RegisteredTool(
            tool := catalog.ALL[name], _with_bounded_validation(tool, function)
        )
        for name, function in found.items()
    }


def register(named: Iterable[tuple[str, str, Any]]) -> dict[str, RegisteredTool]:
    """Return tools by name, of entries, names and functions. Raises InvalidToolError."""
    found: dict[str, RegisteredTool] = {}
    for entry, name, function in named:
        if name in found:
            raise InvalidToolError(entry, f"another tool is named {name}", "Rename one of them.")
        if not name.isidentifier():
            message, remedy = f"{name} is no name that a cell can call", _NAME_IT
            raise InvalidToolError(entry, message, remedy)
        if name in _RESERVED_NAMES or name.startswith("_"):
            message = f"{name} can't be the name of a tool: it means something else in a cell"
            raise InvalidToolError(entry, message, "Rename the function.")
        if not callable(function):
            raise InvalidToolError(entry, "it is no function", "Name one.")
        try:
            found[name] = RegisteredTool(_described(name, function), with_validation(function))
        except Exception as exc:  # pydantic's have no common base
            message = f"its signature can't be used: {type(exc).__name__}: {exc}".partition("\n")[0]
            remedy = (
                "Give it type hints of data: str, int, list, dict, dataclasses, pydantic models."
            )
            raise InvalidToolError(entry, message, remedy) from None
    return found


def register_functions(
    given: Iterable[Callable[..., Any]] | Mapping[str, Any],
) -> dict[str, RegisteredTool]:
    """Return functions as tools, under their own names or a mapping's.

    Raises PolicyError for the first one that can't be a tool.
    """
    if isinstance(given, Mapping):
        pairs = [(name, function) for name, function in given.items()]
    else:
        pairs = [(str(getattr(one, "__name__", type(one).__name__)), one) for one in given]
    try:
        return register((name, name, function) for name, function in pairs)
    except InvalidToolError as exc:
        what, value = exc.message, repr(exc.entry)
        raise PolicyError(what, file="tools", key="", value=value, remedy=exc.remedy) from None


def _import_entry(entry: str) -> tuple[str, Any]:
    """Return the name and the function of an entry. Raises InvalidToolError."""
    module, colon, path = entry.partition(":")
    if not colon:
        return entry, _import_entry_point(entry)
    try:
        function: Any = importlib.import_module(module)
    except BaseException as exc:  # whatever a module does when it is imported
        message = f"{module} can't be imported: {type(exc).__name__}: {exc}"
        remedy = (
            f"Install what it needs for {sys.executable}; the notebook's folder is not searched."
        )
        raise InvalidToolError(entry, message, remedy) from None
    for part in path.split("."):
        function = getattr(function, part, None)
    if function is None:
        raise InvalidToolError(entry, f"{module} has no {path}", "Write module:function.")
    return path.rpartition(".")[2], function


def _import_entry_point(name: str) -> Any:
    points = importlib.metadata.entry_points(group=GROUP, name=name)
    if not points:
        known = sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})
        message = f"no installed package has an entry point of this name in the group {GROUP}"
        remedy = f"Known: {', '.join(known) or 'none'}. Or write module:function."
        raise InvalidToolError(name, message, remedy)
    if len({point.value for point in points}) > 1:
        raise InvalidToolError(name, "two packages have it", "Write module:function instead.")
    try:
        return next(iter(points)).load()
    except BaseException as exc:  # as above
        message = f"it can't be imported: {type(exc).__name__}: {exc}"
        raise InvalidToolError(
            name, message, f"Install what it needs for {sys.executable}."
        ) from None


# --- what cells are told ----------------------------------------------------------------------


def _described(name: str, function: Callable[..., Any]) -> Tool:
    signature = inspect.signature(function)
    unwrapped: Any = function.func if isinstance(function, functools.partial) else function
    try:
        hints = typing.get_type_hints(unwrapped, include_extras=True)
    except Exception:  # names that only a type checker knows; pydantic will say
        hints = {}
    returns = hints.get("return", signature.return_annotation)
    is_async = map(inspect.iscoroutinefunction, (function, type(function).__call__))
    return Tool(
        name=name,
        parameters=tuple(_parameter(one, hints) for one in signature.parameters.values()),
        returns=_text(returns),
        doc=(inspect.getdoc(function) or "")[:_MAX_DOC],
        is_async=any(is_async),
        secret_result=is_secret(returns),
    )


def _parameter(one: inspect.Parameter, hints: dict[str, Any]) -> Parameter:
    hint = hints.get(one.name, one.annotation)
    secret = is_secret(hint)
    default = None if one.default is one.empty else _default(one.default, secret=secret)
    return Parameter(
        name=one.name, kind=int(one.kind), annotation=_text(hint), default=default, secret=secret
    )


def _default(value: object, *, secret: bool) -> str:
    """Return the text of a default if it is a literal: any other may name what is here."""
    if secret:
        return _MASK
    text = repr(value)
    try:
        return text if len(text) <= _MAX_TEXT and ast.literal_eval(text) == value else "..."
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
    # A type's module is of no use in a cell; the texts of a Literal stay as they are.
    return (text if "'" in text else _MODULES.sub("", text))[:_MAX_TEXT]


# --- validation -------------------------------------------------------------------------------

#: Schemas that have the option ``fail_fast``, and keys under which there are no schemas.
_CONTAINERS: Final = frozenset({"frozenset", "list", "set", "tuple"})
_NO_SCHEMAS: Final = frozenset({"config", "default", "expected", "metadata", "serialization"})
#: Keys under which there is a dict of schemas by name.
_NAMED: Final = frozenset({"choices", "fields"})
#: References in one hint that are replaced by what they refer to.
_MAX_REFERENCES: Final = 100


def with_validation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with validation: it raises ``pydantic.ValidationError``.

    Raises what pydantic raises for type hints that it can't use.
    """
    try:
        return pydantic.validate_call(_with_fail_fast_hints(function))
    except Exception:  # hints that pydantic can't use: the next line raises
        return pydantic.validate_call(function)


def _with_fail_fast_hints(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with hints that are so annotated; other callables as they are."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return function

    @functools.wraps(function)
    def own(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    hints = typing.get_type_hints(function, include_extras=True)
    own.__annotations__ = {
        name: hint if name == "return" else Annotated[hint, _FailFast()]
        for name, hint in hints.items()
    }
    return own


class _FailFast:
    """An annotation of a type hint: sets ``fail_fast`` wherever its schema has that option."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        left, within = _MAX_REFERENCES, set[str]()

        def with_option(part: Any) -> Any:
            nonlocal left
            if isinstance(part, list | tuple):
                return type(part)(map(with_option, part))
            if not isinstance(part, dict):
                return part
            if part.get("type") != "definition-ref":
                found = {key: under(key, each) for key, each in part.items()}
                return found | ({"fail_fast": True} if part.get("type") in _CONTAINERS else {})
            # What is referred to takes the reference's place, unless it is within itself.
            name = part["schema_ref"]
            if name in within or not left:
                return part
            found = handler.resolve_ref_schema(part)  # type: ignore[assignment]
            if found["type"] == "model":  # it has its own validator, which knows no option
                return part
            left -= 1
            within.add(name)
            inline = with_option({key: each for key, each in found.items() if key != "ref"})
            within.discard(name)
            return inline

        def under(key: str, part: Any) -> Any:
            if key in _NAMED and isinstance(part, dict):
                return {name: with_option(each) for name, each in part.items()}
            return part if key in _NO_SCHEMAS else with_option(part)

        schema: CoreSchema = with_option(handler(source))
        return schema


def _with_bounded_validation(tool: Tool, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation with validation; it raises OperationError for too many arguments.

    They are counted first: pydantic can't be interrupted while it makes an error of each misfit.
    """
    validated = pydantic.validate_call(function)

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        if (many := len(args) + len(kwargs)) > _MAX_ARGUMENTS:
            message = f"it is given {many:,} arguments; {_MAX_ARGUMENTS:,} may be"
            raise catalog.OperationError("ValueError", message)
        for one in tool.parameters:
            given = kwargs.get(one.name)
            if not isinstance(given, dict | list) or one.annotation == "Any":  # Any is not read
                continue
            if len(given) > _MAX_ARGUMENTS:
                message = f"{one.name} has {len(given):,} entries; {_MAX_ARGUMENTS:,} may be given"
                raise catalog.OperationError("ValueError", message)
        return validated(*args, **kwargs)

    return bounded
