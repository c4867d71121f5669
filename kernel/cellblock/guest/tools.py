"""Tools as cells see them: plain functions with the operator's signature and documentation."""

from __future__ import annotations

import ast
import inspect
import sys
from asyncio import events
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.loop import GuestLoop
from cellblock.guest.operations import PREFIX, RESULTS
from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from cellblock.guest.calls import Calls

_KINDS: Final = tuple(inspect._ParameterKind)  # noqa: SLF001 - by number


class _Text:
    """Stands in a signature for what only the host has; shown as it is written there."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def build_tools(
    tools: tuple[messages.Tool, ...], most: int, calls: Callable[[], Calls]
) -> dict[str, Any]:
    """Return a function for each tool, by name. ``calls`` finds the guest's when one is called.

    ``most`` are the bytes that the arguments of one call may take.
    """
    return {tool.name: _function(tool, most, calls) for tool in tools}


def _function(tool: messages.Tool, most: int, calls: Callable[[], Calls]) -> Any:
    name, signature = tool.name, signature_of(tool)
    result = RESULTS.get(tool.name, _as_it_is)
    cap = (tool.max_bytes, "max_bytes") if tool.max_bytes else (most, "tool_max_bytes")

    def packed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{name}() {exc}") from None
        return pack(name, signature, args, kwargs, cap)

    def call(*args: Any, **kwargs: Any) -> Any:
        return result(calls().block(name, packed(args, kwargs)))

    async def wait(*args: Any, **kwargs: Any) -> Any:
        return result(await calls().wait(name, packed(args, kwargs)))

    def as_one_can(*args: Any, **kwargs: Any) -> Any:
        # In a thread without a loop nobody could wait for a coroutine. In a plain cell a loop is
        # marked as running that does not turn: nobody awaits there.
        loop = events._get_running_loop()  # noqa: SLF001
        if loop is not None and loop.is_running():
            return wait(*args, **kwargs)
        value = call(*args, **kwargs)
        if isinstance(loop, GuestLoop):
            loop.settled = value
        return value

    function = as_one_can if tool.is_async or name.startswith(PREFIX) else call
    for made in (call, wait, as_one_can):
        made.__name__, made.__qualname__ = name.rpartition(".")[2], name
    function.__doc__, function.__module__ = tool.doc, "tools"
    vars(function)["__signature__"] = signature
    return function


def _as_it_is(value: Any) -> Any:
    return value


def pack(
    name: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cap: tuple[int, str],
) -> msgspec.Raw:
    """Return the arguments encoded, in as many bytes as ``cap`` has, which names what sets that.

    Raises TypeError or ValueError that names the wrong one.
    """
    what = "the arguments"
    try:
        positional, named = [], {}
        for index, value in enumerate(args):
            what = f"argument {index + 1}"
            positional.append(values.plain(value, _data))
        for key, value in kwargs.items():
            what = f"argument {key!r}"
            named[key] = values.plain(value, _data)
        what = "the arguments"
        return values.encode((positional, named), *cap)
    except (TypeError, ValueError) as exc:
        parameter = _parameter(signature, what)
        raise type(exc)(f"{name}(): {parameter}: {exc}") from None


def _data(value: Any) -> Any:
    """Return data for a value of numpy's, where cells have that. Raises TypeError."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no data that crosses")


def _parameter(signature: inspect.Signature, what: str) -> str:
    """Name the parameter behind ``argument 2``, where it has one of its own."""
    position = what.removeprefix("argument ")
    names = [p.name for p in signature.parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    if position.isdigit() and int(position) <= len(names):
        return f"argument {names[int(position) - 1]!r}"
    return what


def signature_of(tool: messages.Tool) -> inspect.Signature:
    """Return a tool's signature, as the operator wrote it."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            one.name,
            _KINDS[one.kind],
            default=empty if one.default is None else _default(one.default),
            annotation=_Text(one.annotation) if one.annotation else empty,
        )
        for one in tool.parameters
    ]
    returns = _Text(tool.returns) if tool.returns else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=returns)


def _default(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _Text(text)
    return _Text(text) if value is ... else value
