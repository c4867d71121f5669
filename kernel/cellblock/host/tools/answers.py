"""What a tool returned, or raised, in the form in which a cell gets it. Runs in the worker."""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pydantic

from cellblock.host.ops.errors import OperationError
from cellblock.host.tools.secrets import masked
from cellblock.host.tools.speech import Raised, Returned
from cellblock.render.text import encodable
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.wire.messages import Tool

_LONGEST_KIND, _LONGEST_MESSAGE = 200, 2_000
#: What of a validation error is told in detail; and how many details it may have for that, since
#: pydantic makes all of them, a kilobyte each, to tell one.
_DETAILS, _MOST_DETAILS = 20, 1_000
#: Absolute paths of this machine, but not those within addresses.
_PATH: Final = re.compile(r"(?<![\w.:/])(?:file://)?(?:/[\w.@+~-]+){2,}/?")
#: Kinds of values to how data is made of them.
_KINDS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (pydantic.BaseModel, lambda model: model.model_dump()),
    (pydantic.SecretStr | pydantic.SecretBytes, lambda secret: secret.get_secret_value()),
    (enum.Enum, lambda member: member.value),
    (msgspec.Struct, msgspec.structs.asdict),
    (dict, dict),
    (list | tuple | set | frozenset, list),
)


def returned(number: int, value: Any, most: int) -> Returned | Raised:
    """Return the answer that carries ``value``, or what keeps it from being carried."""
    try:
        return Returned(number=number, value=values.encode(values.plain(value, _data), most))
    except (TypeError, ValueError) as exc:
        said = f"what it returned does not cross: {exc}"
        return Raised(number=number, kind=type(exc).__name__, message=scrubbed(said))


def _data(value: Any) -> Any:
    """Return data for a value that is made of some. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    for kind, data in _KINDS:
        if isinstance(value, kind):
            return data(value)
    raise TypeError(f"{type(value).__name__} is no data that crosses")


def raised(
    number: int, error: BaseException, tool: Tool | None = None, arguments: bytes | None = None
) -> Raised:
    """Return the answer that tells of ``error``: its type and message, and nothing of this host.

    ``tool`` names the parameters that a validation error counts, and which of the ``arguments``,
    encoded, no message may have.
    """
    if isinstance(error, OperationError):
        # What it says is the cell's own words and ours: no path of this machine is in it.
        return Raised(number=number, kind=error.kind, message=_sent(error.message))
    kind = type(error).__name__[:_LONGEST_KIND]
    try:
        message = _message(error, tool)
        if tool is not None and arguments is not None:
            message = masked(message, tool, arguments)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        message = ""
    return Raised(number=number, kind=kind, message=scrubbed(message))


def _message(error: BaseException, tool: Tool | None) -> str:
    if isinstance(error, pydantic.ValidationError):
        if (many := error.error_count()) > _MOST_DETAILS:
            return f"{many:,} values do not fit the type hints"
        # Without the values: one of them may be secret.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        names = [one.name for one in tool.parameters] if tool is not None else []
        return "; ".join(_detail(detail, names) for detail in details[:_DETAILS])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _detail(detail: Any, names: list[str]) -> str:
    first, *rest = detail["loc"] or ("",)
    if isinstance(first, int) and first < len(names):
        first = names[first]
    where = ".".join(map(str, (first, *rest)))
    return f"{where}: {detail['msg']}" if where else str(detail["msg"])


def scrubbed(text: str) -> str:
    """Return a text without absolute paths of this machine, as it crosses."""
    return _PATH.sub("<path>", _sent(text[: 2 * _LONGEST_MESSAGE]))


def _sent(text: str) -> str:
    """Return a text as it crosses: of bounded length, and without surrogates."""
    return encodable(text)[:_LONGEST_MESSAGE]
