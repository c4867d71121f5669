"""The registry: makes tools of functions, validates their arguments, and encodes their results.

It runs in the process that runs the tools: a worker, or a program with functions of its own. An
entry of the policy's ``tools`` is ``module:function`` (``load``); ``operations.loading`` makes
tools of the host's own functions.

**Arguments are validated here**, by pydantic against the function's type hints, right before the
tool runs, and also before a user is asked about the call. Arguments that do not fit are answered as
a ``ValidationError``. Since they come from a hostile guest, and pydantic makes an error of each
value that does not fit, the number of values is bounded first.

Results become plain data. Of an exception a cell gets the type and the message, without secret
arguments (``mask_secrets``) and without paths of this machine (``without_paths``).
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import keyword
import operator
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pydantic

from cellblock.analysis.names import REFUSED_BUILTINS, RESERVED
from cellblock.errors import PolicyError
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.tools.calls import MASK, Answer, is_secret_at, is_secret_named, mask
from cellblock.host.services.tools.path_free import MAX_MESSAGE, without_paths
from cellblock.render.text import encodable
from cellblock.tools import Secret
from cellblock.wire import arrays, values
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


#: Names that mean something else in a cell, so that no tool may have them.
_RESERVED_NAMES: Final = {
    *vars(builtins), *REFUSED_BUILTINS, *RESERVED, *keyword.kwlist,
    "In", "Out", "ToolError", "display", "get_ipython", "getpass", "inputs", "ops",
}  # fmt: skip
_NAME_REMEDY: Final = 'Give it one: def, or in a program tools={"name": …}.'
_MAX_DOC, _MAX_TEXT = 10_000, 300
#: A name with the modules that it is in before it.
_QUALIFIED: Final = re.compile(r"\b((?:[^\W\d]\w*\.)+)([^\W\d]\w*)")


class InvalidToolError(Exception):
    """An entry can't be used as a tool: ``message`` says why, ``remedy`` what to do."""

    def __init__(self, entry: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.entry = entry
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool: its description for cells, and the function to call, which validates its arguments.

    ``check`` only validates arguments, and raises what ``function`` raises if they do not fit.
    """

    tool: Tool
    function: Callable[..., Any]
    check: Callable[..., object]


def load(entries: tuple[str, ...]) -> dict[str, RegisteredTool]:
    """Import the operator's tools, and return them by name. Raises InvalidToolError."""
    return register((entry, *_import_entry(entry)) for entry in entries)


def register(entries: Iterable[tuple[str, str, Any]]) -> dict[str, RegisteredTool]:
    """Return tools by name. Each item is a tool's entry, for error messages, its name and function.

    Raises InvalidToolError for the first that can't be a tool.
    """
    registered: dict[str, RegisteredTool] = {}
    for entry, name, function in entries:
        if name in registered:
            raise InvalidToolError(entry, f"another tool is named {name}", "Rename one of them.")
        if not name.isidentifier():
            message = f"{name} is not a name that a cell can call"
            remedy = _NAME_REMEDY
            raise InvalidToolError(entry, message, remedy)
        if name in _RESERVED_NAMES or name.startswith("_"):
            message = f"{name} can't be the name of a tool: it means something else in a cell"
            raise InvalidToolError(entry, message, "Rename the function.")
        if not callable(function):
            raise InvalidToolError(entry, "it is not a function", "Name one.")
        try:
            tool = _described(name, function)
            registered[name] = with_validation(tool, function)
        except Exception as exc:  # pydantic's exceptions have no common base
            message = f"its signature can't be used: {type(exc).__name__}: {exc}".partition("\n")[0]
            remedy = (
                "Give it type hints of data: str, int, list, dict, dataclasses, pydantic models."
            )
            raise InvalidToolError(entry, message, remedy) from None
    return registered


def register_functions(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Any],
) -> dict[str, RegisteredTool]:
    """Return a program's functions as tools, named by themselves or by a mapping.

    Raises PolicyError for the first one that can't be a tool.
    """
    if isinstance(functions, Mapping):
        pairs = [(name, function) for name, function in functions.items()]
    else:
        pairs = [
            (str(getattr(function, "__name__", type(function).__name__)), function)
            for function in functions
        ]
    try:
        return register((name, name, function) for name, function in pairs)
    except InvalidToolError as exc:
        problem = exc.message
        value = repr(exc.entry)
        raise PolicyError(problem, file="tools", value=value, remedy=exc.remedy) from None


def _import_entry(entry: str) -> tuple[str, Any]:
    """Return the name and the function of an entry. Raises InvalidToolError."""
    module, _, path = entry.partition(":")
    try:
        function: Any = importlib.import_module(module)
    except BaseException as exc:  # a module may raise anything when it is imported
        message = f"{module} can't be imported: {type(exc).__name__}: {exc}"
        remedy = (
            f"Install what it needs for {sys.executable}; the notebook's folder is not searched."
        )
        raise InvalidToolError(entry, message, remedy) from None
    for attribute in path.split("."):
        function = getattr(function, attribute, None)
    if function is None:
        raise InvalidToolError(entry, f"{module} has no {path}", "Write module:function.")
    return path.rpartition(".")[2], function


# --- the description of a tool for cells ------------------------------------------------------


def _described(name: str, function: Callable[..., Any]) -> Tool:
    """Return the description of a function as a tool."""
    signature = inspect.signature(function)
    unwrapped: Any = function.func if isinstance(function, functools.partial) else function
    try:
        hints = typing.get_type_hints(unwrapped, include_extras=True)
    except Exception:  # a name that only type checkers know: pydantic will raise for it
        hints = {}
    returns = hints.get("return", signature.return_annotation)
    is_async = map(inspect.iscoroutinefunction, (function, type(function).__call__))
    return Tool(
        name=name,
        parameters=tuple(_parameter(each, hints) for each in signature.parameters.values()),
        returns=_text(returns),
        doc=(inspect.getdoc(function) or "")[:_MAX_DOC],
        is_async=any(is_async),
        secret_result=is_secret(returns),
    )


def _parameter(parameter: inspect.Parameter, hints: dict[str, Any]) -> Parameter:
    hint = hints.get(parameter.name, parameter.annotation)
    secret = is_secret(hint)
    default = (
        None if parameter.default is parameter.empty else _default(parameter.default, secret=secret)
    )
    return Parameter(
        name=parameter.name,
        kind=int(parameter.kind),
        annotation=_text(hint),
        default=default,
        secret=secret,
    )


def _default(value: object, *, secret: bool) -> str:
    """Return the text of a default; ``MASK`` if it is secret, "..." if too long or not a literal.

    The text of any other object may reveal something of this machine.
    """
    if secret:
        return f"'{MASK}'"
    text = repr(value)
    try:
        return text if len(text) <= _MAX_TEXT and ast.literal_eval(text) == value else "..."
    except (ValueError, SyntaxError):
        return "..."


def _text(hint: Any) -> str:
    """Return the text of a type hint."""
    if hint is inspect.Parameter.empty:
        return ""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint in (None, type(None)):
        return "None"
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    # Modules are left out, since they mean nothing in a cell. A table keeps its library, since
    # several have a type of that name. A hint with quotes, such as a Literal, stays as it is.
    return (text if "'" in text else _QUALIFIED.sub(_short, text))[:_MAX_TEXT]


def _short(match: re.Match[str]) -> str:
    name = f"{match[1].partition('.')[0]}.{match[2]}"
    return name if arrays.is_table_name(name) else match[2]


# --- validation -------------------------------------------------------------------------------

#: Values in one call's arguments, without keys of dicts. So many errors take 0.1 s and 40 MB.
MAX_VALUES: Final = 100_000
#: Bytes of an array of texts: numpy makes each item as wide as the longest.
MAX_ARRAY_BYTES: Final = 64 << 20
#: Bytes of a character in such an array, and characters of a number among the texts.
_CHARACTER, _NUMBER = 4, 64


#: The callables whose hints pydantic reads.
_FUNCTIONS: Final = (types.FunctionType, types.MethodType, functools.partial)


def with_validation(tool: Tool, function: Callable[..., Any]) -> RegisteredTool:
    """Return ``function`` as a tool that validates its arguments.

    The tool raises ``pydantic.ValidationError`` for arguments that do not fit, and ValueError for
    too many values. Values are counted before pydantic reads them, because it makes an error of
    each misfit and can't be interrupted meanwhile. It doesn't read the arguments of parameters with
    the hint Any, so their values are not counted. Raises TypeError for a callable that is not a
    function, and whatever pydantic raises for hints that it can't use.
    """
    if not isinstance(function, _FUNCTIONS):
        raise TypeError("classes and objects that are called are not taken: pass a function")
    # pydantic can check of a table only its type.
    takes_tables = any(map(names_table, hints_of(function).values()))
    config = pydantic.ConfigDict(arbitrary_types_allowed=takes_tables)

    @functools.wraps(function)
    def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    unwrapped: Any = function.func if isinstance(function, functools.partial) else function
    hints = hints_of(unwrapped)
    if any(map(names_array, hints.values())):
        given.__annotations__ = {name: _as_array(hint) for name, hint in hints.items()}
    else:
        given.__annotations__ = unwrapped.__annotations__
    validated = pydantic.validate_call(config=config)(given)
    names = [each.name for each in tool.parameters]
    unread = {each.name for each in tool.parameters if each.annotation == "Any"}

    def check(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named_values = (*itertools.zip_longest(names[: len(args)], args), *kwargs.items())
        if _has_more_values(
            (value for name, value in named_values if name not in unread), MAX_VALUES
        ):
            raise ValueError(f"it is given more than {MAX_VALUES:,} values: give fewer, or a text")
        return validated(*args, **kwargs)

    @functools.wraps(function)
    def validating(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = check(*args, **kwargs)
        return function(*args, **kwargs)

    return RegisteredTool(tool, validating, check)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's type hints, without marks; {} if they can't be read."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def names_array(hint: Any) -> bool:
    """Return whether a type hint is numpy's array, or a union with it."""
    numpy = sys.modules.get("numpy")
    origin = typing.get_origin(hint)
    # From numpy 2.5 on ``NDArray`` is an alias (``type NDArray[…] = ndarray[…]``).
    kinds = (hint, origin, typing.get_origin(getattr(origin, "__value__", None)))
    return numpy is not None and (
        any(kind is numpy.ndarray for kind in kinds)
        or (origin in _UNIONS and any(map(names_array, typing.get_args(hint))))
    )


_UNIONS: Final = (typing.Union, types.UnionType)


def _as_array(hint: Any) -> Any:
    """Return a hint whose arrays are validated by ``_made_array``: arrays arrive as lists."""
    if typing.get_origin(hint) in _UNIONS:
        return functools.reduce(operator.or_, map(_as_array, typing.get_args(hint)))
    return _Array if names_array(hint) else hint


def _made_array(value: Any) -> Any:
    """Return an array for a list of numbers or texts. Raises ValueError for anything else."""
    numpy: Any = sys.modules["numpy"]
    if isinstance(value, list) and (size := _text_bytes(value)) > MAX_ARRAY_BYTES:
        raise ValueError(
            f"Input should be shorter texts, or fewer: in an array each takes as much as the "
            f"longest, here {size:,} bytes in all, and {MAX_ARRAY_BYTES:,} are the most"
        )
    array = numpy.asarray(value) if isinstance(value, list) else None
    if array is None or array.dtype.kind not in "biufcUS":
        raise ValueError("Input should be an array, or a list that is one")
    return array


def _text_bytes(value: list[Any]) -> int:
    """Return the most bytes that numpy's array takes for a list with texts; 0 without texts."""
    pending = [value]
    number = 0
    longest = 0
    while pending:
        for item in pending.pop():
            if isinstance(item, list):
                pending.append(item)
                continue
            number += 1
            if isinstance(item, str | bytes):
                longest = max(longest, len(item), _NUMBER)
    return number * longest * _CHARACTER


_Array = typing.Annotated[typing.Any, pydantic.PlainValidator(_made_array)]


def names_table(hint: Any) -> bool:
    """Return whether a type hint is a table, or contains one."""
    return arrays.is_table(hint) or any(map(names_table, typing.get_args(hint)))


def _has_more_values(values: Iterable[Any], most: int) -> bool:
    """Return whether there are more than ``most`` values, those in lists and dicts included."""
    pending = [list(values)]
    count = 0
    while pending and count <= most:
        items = pending.pop()
        count += len(items)
        for item in items:
            if isinstance(item, dict):
                pending.append(list(item.values()))
            elif isinstance(item, list):
                pending.append(item)
    return count > most


# --- secrets: marked in type hints, and masked in error messages ------------------------------

#: Texts and numbers of a call's secrets that are masked. If there are more, the whole message is.
MAX_SECRETS: Final = 100
_TYPES: Final = (pydantic.SecretStr, pydantic.SecretBytes)


def is_secret(hint: Any) -> bool:
    """Return whether a type hint is marked secret, or a part of it, such as a model's field.

    A value that contains a secret is secret as a whole.
    """
    seen_hints: list[Any] = []
    pending = [hint]
    while pending:
        inner = pending.pop()
        if any(inner is seen_hint for seen_hint in seen_hints):
            continue
        seen_hints.append(inner)
        if inner in _TYPES or inner is Secret or isinstance(inner, Secret):
            return True
        pending += _within(inner)
    return False


def _within(hint: Any) -> Iterator[Any]:
    """Yield the parts of a hint: its marks and arguments, aliased types, types of its fields."""
    if isinstance(hint, list | tuple):
        yield from hint
        return
    yield from getattr(hint, "__metadata__", ())
    yield from typing.get_args(hint)
    yield getattr(hint, "__origin__", None)
    yield from _aliased(hint)
    if isinstance(hint, dataclasses.InitVar):
        yield hint.type
    if isinstance(hint, type):
        yield from _fields(hint)


#: The attributes of a type alias, a NewType and a type variable that have the hint pydantic reads.
_ALIASED: Final = ("__value__", "__supertype__", "__bound__", "__default__")


def _aliased(hint: Any) -> Iterable[Any]:
    """Return the hints that a named hint is an alias of, with the names in them resolved."""

    def annotated() -> None:
        pass

    try:
        module = sys.modules.get(getattr(hint, "__module__", ""))
        hints = [getattr(hint, name, None) for name in _ALIASED]
        hints += getattr(hint, "__constraints__", None) or ()
        annotated.__annotations__ = {str(number): inner for number, inner in enumerate(hints)}
        names = {} if module is None else vars(module)
        return typing.get_type_hints(annotated, names, include_extras=True).values()
    except Exception:  # a name that can't be resolved
        return (Secret,)  # unknown, so it counts as secret


def _fields(kind: type) -> Iterator[Any]:
    """Yield the hints of the fields of a model, dataclass, struct or tuple."""
    if issubclass(kind, pydantic.BaseModel):
        for field in kind.model_fields.values():
            yield field.annotation
            yield from field.metadata
        for computed in getattr(kind, "__pydantic_computed_fields__", {}).values():
            yield computed.return_type
        return
    # A TypedDict is recognised by its attributes, since typing_extensions has one of its own.
    typed = dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    if typed or hasattr(kind, "__required_keys__") or hasattr(kind, "_fields"):
        try:
            yield from typing.get_type_hints(kind, include_extras=True).values()
        except Exception:  # a name that only type checkers know: unknown, so counts as secret
            yield Secret


def mask_secrets(text: str, tool: Tool, arguments: bytes) -> str:
    """Return ``text`` with the texts and numbers of a call's secret arguments masked."""
    if not any(parameter.secret for parameter in tool.parameters):
        return text
    try:
        args, kwargs = values.decode(msgspec.Raw(arguments))
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
        return MASK
    secret = [value for index, value in enumerate(args) if is_secret_at(tool, index)]
    secret += [value for key, value in kwargs.items() if is_secret_named(tool, key)]
    texts = set(itertools.islice(_secret_texts(secret), 2 * MAX_SECRETS))
    if len(texts) > MAX_SECRETS:
        return MASK
    return mask(text, texts)


def _secret_texts(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a value, as they are and as ``repr`` writes them."""
    match value:
        case str() if value:
            yield from {value, repr(value)[1:-1]}
        case bytes() if value:
            yield from {value.decode(errors="replace"), repr(value)[2:-1]}
        case int() | float() if not isinstance(value, bool):
            yield str(value)
        case list():
            for item in value:
                yield from _secret_texts(item)
        case dict():
            for item in value.values():
                yield from _secret_texts(item)


# --- results and exceptions, as cells get them --------------------------------------------------

_MAX_KIND: Final = 200
#: Details of a validation error that a message has, and the number of misfits beyond which it has
#: none: pydantic makes the details of all, a kilobyte each, to return one.
_SHOWN_DETAILS, _MAX_DETAILS = 20, 1_000
#: Functions that make plain data of values, by type.
_KINDS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (pydantic.BaseModel, lambda model: model.model_dump()),
    (pydantic.SecretStr | pydantic.SecretBytes, lambda secret: secret.get_secret_value()),
    (enum.Enum, lambda member: member.value),
    (msgspec.Struct, msgspec.structs.asdict),
    (dict, dict),
    (list | tuple | set | frozenset, list),
)


def encode_result(value: Any, max_bytes: int) -> Answer:
    """Return an answer with ``value``, or with the error that says why it can't be sent."""
    try:
        return Answer(bytes(values.encode(values.plain(value, _data), max_bytes)))
    except Exception as exc:  # a table's library may raise anything
        message = without_paths(f"what it returned can't be passed: {exc}")
        return Answer(kind=type(exc).__name__, message=message)


def _data(value: Any) -> Any:
    """Return plain data for a value. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for kind, data in _KINDS:
        if isinstance(value, kind):
            return data(value)
    return arrays.image(value) or arrays.data(value)


def encode_error(
    error: BaseException, tool: Tool | None = None, arguments: bytes | None = None
) -> Answer:
    """Return the answer for ``error``: its type and message, without paths of this machine.

    ``tool`` is given for the names of its parameters, which a validation error needs, and to find
    the secrets in the encoded ``arguments``, which are masked.
    """
    if isinstance(error, OperationError):
        # The host wrote the message for cells: there is no path of this machine in it.
        return Answer(kind=error.kind, message=encodable(error.message)[:MAX_MESSAGE])
    if isinstance(error, arrays.NotLoadedError) and tool is not None:
        return Answer(kind="ValidationError", message=_of_other_library(error, tool))
    kind = type(error).__name__[:_MAX_KIND] or "Exception"  # a type may have no name
    try:
        message = _message(error, tool)
        if tool is not None and arguments is not None:
            message = mask_secrets(message, tool, arguments)
    except Exception:  # an exception's own __str__ may raise anything
        message = ""
    return Answer(kind=kind, message=without_paths(message))


def _message(error: BaseException, tool: Tool | None) -> str:
    if isinstance(error, pydantic.ValidationError):
        if (many := error.error_count()) > _MAX_DETAILS:
            return f"{many:,} values do not fit the type hints"
        details = error.errors(include_url=False)
        parameters = tool.parameters if tool is not None else ()
        return "; ".join(_detail(detail, parameters) for detail in details[:_SHOWN_DETAILS])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _detail(detail: Any, parameters: tuple[Parameter, ...]) -> str:
    """Return the place of a misfit, and what is wrong. The value isn't shown: it may be secret."""
    first, *rest = detail["loc"] or ("",)
    parameter = next((each for each in parameters if each.name == first), None)
    if isinstance(first, int) and first < len(parameters):
        parameter = parameters[first]
        first = parameter.name
    where = ".".join(map(str, (first, *rest)))
    message = str(detail["msg"])
    if detail["type"] == "is_instance_of" and parameter is not None:
        tables = [
            each for each in _tables_in(parameter) if each.endswith(f".{detail['ctx']['class']}")
        ]
        if len(tables) == 1:
            message = _other_table(where, arrays.table_name(type(detail["input"])), tables[0])
    return f"{where}: {message}" if where else message


def _tables_in(parameter: Parameter) -> list[str]:
    """Return the names of the tables in a parameter's hint."""
    names = re.findall(r"\b\w+\.\w+", parameter.annotation)
    return [name for name in dict.fromkeys(names) if arrays.is_table_name(name)]


def _other_table(where: str, given_kind: str, expected: str) -> str:
    """Return a message that a value should be the ``expected`` table, and how to convert it.

    ``given_kind`` is the name of the table that it is, empty if it is something else.
    """
    message = f"Input should be a {expected}"
    if not given_kind:
        return message
    # A value within another one has no name of its own.
    call = arrays.conversion(where if where.isidentifier() else "df", given_kind, expected)
    return f"{message}, not a {given_kind}" + (f": pass {call}" if call else "")


def _of_other_library(error: arrays.NotLoadedError, tool: Tool) -> str:
    """Return a message about a table whose library only cells have, and what to pass instead."""
    takes = [(each.name, table) for each in tool.parameters for table in _tables_in(each)]
    ways = [
        f"{name}: {_other_table(name, error.table, table)}"
        for name, table in takes
        if arrays.conversion(name, error.table, table)
    ]
    return ways[0] if len(ways) == 1 else f"{error}: pass lists or dicts"
