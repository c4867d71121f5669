"""What a cell gets of a tool's result or exception. Runs in the process that runs the tool.

Values become plain data. Of an exception a cell gets the type and the message, without secret
arguments (``mask_secrets``) and without paths of this machine (``without_paths``).
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
import sys
import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pydantic

from cellblock.host.services.operations.catalog import OperationError
from cellblock.host.services.tools.calls import MASK, Answer, is_secret_at, is_secret_named, mask
from cellblock.render.text import encodable
from cellblock.tools import Secret
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.wire.messages import Tool


# --- secrets: marked in type hints, and masked in error messages ------------------------------

#: Texts and numbers in a call's secrets that are masked; with more, the whole message is.
MAX_SECRETS: Final = 100
_TYPES: Final = (pydantic.SecretStr, pydantic.SecretBytes)


def is_secret(hint: Any) -> bool:
    """Whether a type hint is marked secret, or anything within it, as a model's field.

    A value with a secret in it is secret as a whole.
    """
    seen: list[Any] = []
    left = [hint]
    while left:
        one = left.pop()
        if any(one is known for known in seen):
            continue
        seen.append(one)
        if one in _TYPES or one is Secret or isinstance(one, Secret):
            return True
        left += _within(one)
    return False


def _within(hint: Any) -> Iterator[Any]:
    """Yield the parts of a hint: marks, arguments, aliased types, types of its fields."""
    if isinstance(hint, list | tuple):
        yield from hint
        return
    yield from getattr(hint, "__metadata__", ())
    yield from typing.get_args(hint)
    for name in ("__value__", "__supertype__", "__bound__", "__constraints__", "__origin__"):
        yield getattr(hint, name, None)
    if isinstance(hint, dataclasses.InitVar):
        yield hint.type
    if isinstance(hint, type):
        yield from _fields(hint)


def _fields(kind: type) -> Iterator[Any]:
    if issubclass(kind, pydantic.BaseModel):
        for field in kind.model_fields.values():
            yield field.annotation
            yield from field.metadata
        for computed in getattr(kind, "__pydantic_computed_fields__", {}).values():
            yield computed.return_type
        return
    # By attributes, since typing_extensions has a TypedDict of its own.
    typed = dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    if typed or hasattr(kind, "__required_keys__") or hasattr(kind, "_fields"):
        try:
            yield from typing.get_type_hints(kind, include_extras=True).values()
        except Exception:  # names that only a type checker knows
            yield Secret  # unknown, so it counts as secret


def mask_secrets(text: str, tool: Tool, arguments: bytes) -> str:
    """Return ``text`` with the texts and numbers of a call's secret arguments masked."""
    if not any(one.secret for one in tool.parameters):
        return text
    try:
        args, kwargs = values.decode(msgspec.Raw(arguments))
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
        return MASK
    secret = [value for index, value in enumerate(args) if is_secret_at(tool, index)]
    secret += [value for key, value in kwargs.items() if is_secret_named(tool, key)]
    found = set(itertools.islice(_secret_texts(secret), 2 * MAX_SECRETS))
    if len(found) > MAX_SECRETS:
        return MASK
    return mask(text, found)


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
            for one in value:
                yield from _secret_texts(one)
        case dict():
            for one in value.values():
                yield from _secret_texts(one)


_MAX_KIND, _MAX_MESSAGE = 200, 2_000
#: Details of a validation error that a message has, and errors up to which it has any: pydantic
#: makes all details, a kilobyte each, to return one.
_SHOWN_DETAILS, _MAX_DETAILS = 20, 1_000
#: What may be an absolute path of this machine, or looks like one and stays. Possessive quantifiers
#: keep the time linear in the length of the message.
_PATH: Final = re.compile(
    r"""
    (?P<stays>
        # Addresses of the web, up to what may carry a path: a query, an empty name.
        (?<!\w)(?:https?|wss?|ftp|s3|gs)://(?:\[[0-9a-f:.]+\]|[\w.@%-]+)(?::\d+)?
            (?:/[\w.@%~+!$*()&-]+)*+/?
        # Requests, but not verbs, nor for what some machine has.
        | \b(?-i:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)[ ]
            (?!/(?:s?bin|boot|dev|etc|home|lib\d*|media|mnt\w*|opt|proc|root|run|srv|sys|tmp|usr
                |var|app|data|library|nix|private|snap|users|volumes|work\w*)\b)
            (?:/[\w.@%~+!$*()&-]+)++/?
        | </\w+>
    )
    # In quotes, spaces and all; an apostrophe before a letter ends nothing.
    | (?<=["'`])/(?:[^"'`\n]|'(?=\w))++(?=["'`]|\Z)
    # Not behind a word, nor behind one dot or two, where it is relative; but behind what a line
    # break is written as, or a colour.
    | (?:(?<!\w)(?<!(?<![\w.])\.)(?<!(?<![\w.])\.\.)|(?<=\\[nrt])|\x1b\[[0-9;]*+m(?=/))
        (?:file://[\w.-]*+)?
        /(?:[^\s"'`<>|:]|'(?=\w)|:(?!\d{1,7}+(?::\d{1,7}+)?+(?![\w/-])))*+
        # A name with a space in it goes on with another slash.
        (?:(?<![.,:;!?)\]}])[ ][^\s"'`<>|:/]++/(?:[^\s"'`<>|:]|'(?=\w))*+)*+
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: Punctuation that ends a sentence rather than a path.
_ENDS: Final = ".,:;!?)]}"
#: How plain data is made of values, by type.
_KINDS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (pydantic.BaseModel, lambda model: model.model_dump()),
    (pydantic.SecretStr | pydantic.SecretBytes, lambda secret: secret.get_secret_value()),
    (enum.Enum, lambda member: member.value),
    (msgspec.Struct, msgspec.structs.asdict),
    (dict, dict),
    (list | tuple | set | frozenset, list),
)


def encode_result(value: Any, max_bytes: int) -> Answer:
    """Return the answer with ``value``, or the error why it can't be sent to a cell."""
    try:
        return Answer(bytes(values.encode(values.plain(value, _data), max_bytes)))
    except (TypeError, ValueError) as exc:
        message = without_paths(f"what it returned does not cross: {exc}")
        return Answer(kind=type(exc).__name__, message=message)


def _data(value: Any) -> Any:
    """Return plain data for a value. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    for kind, data in _KINDS:
        if isinstance(value, kind):
            return data(value)
    raise TypeError(f"{type(value).__name__} is no data that crosses")


def encode_error(
    error: BaseException, tool: Tool | None = None, arguments: bytes | None = None
) -> Answer:
    """Return the answer for ``error``: its type and message, with nothing of this machine.

    ``tool`` has the names of the parameters, for a validation error, and says which of the encoded
    ``arguments`` are secret.
    """
    if isinstance(error, OperationError):
        # Its message is written by the host for cells: there is no path of this machine in it.
        return Answer(kind=error.kind, message=encodable(error.message)[:_MAX_MESSAGE])
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
        # Without the values: one of them may be secret.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        names = [one.name for one in tool.parameters] if tool is not None else []
        return "; ".join(_detail(detail, names) for detail in details[:_SHOWN_DETAILS])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _detail(detail: Any, names: list[str]) -> str:
    first, *rest = detail["loc"] or ("",)
    if isinstance(first, int) and first < len(names):
        first = names[first]
    where = ".".join(map(str, (first, *rest)))
    return f"{where}: {detail['msg']}" if where else str(detail["msg"])


def without_paths(text: str) -> str:
    """Return a text of bounded length without absolute paths of this machine.

    Web addresses stay. If a path is not in quotes and its last name has spaces, what follows the
    first space may stay.
    """
    return _PATH.sub(_hidden, encodable(text[: 2 * _MAX_MESSAGE]))[:_MAX_MESSAGE]


def _hidden(found: re.Match[str]) -> str:
    """Return the replacement of a match: ``<path>``, or the match itself if it is no path."""
    text = found[0]
    path = text.rstrip(_ENDS)
    if found["stays"] or not re.search(r"\w", path):
        return text
    return f"<path>{text[len(path) :]}"
