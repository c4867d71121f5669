"""What a tool calls secret: found in its type hints, and taken out of what it says went wrong."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pydantic

from cellblock.host.tools.record import MASK, is_secret_at, is_secret_named
from cellblock.tools import Secret
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.wire.messages import Tool

#: Texts and numbers of a call's secrets that are looked for; of more, no message is told.
MOST: Final = 100
_TYPES: Final = (pydantic.SecretStr, pydantic.SecretBytes)


def is_secret(hint: Any) -> bool:
    """Whether a hint says so, or one within it: of a model's field, say.

    What has a secret in it is secret as a whole.
    """
    seen: list[Any] = []
    left = [hint]
    while left:
        one = left.pop()
        if any(one is known for known in seen):
            continue
        seen.append(one)
        if one in _TYPES or _is_mark(one):
            return True
        left += _within(one)
    return False


def _is_mark(hint: Any) -> bool:
    return hint is Secret or isinstance(hint, Secret)


def _within(hint: Any) -> Iterator[Any]:
    """Yield what a hint is made of: marks, arguments, what it stands for, types of its fields."""
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
    # By their marks: those of TypedDict in typing_extensions are not those of typing's.
    typed = dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    if typed or hasattr(kind, "__required_keys__") or hasattr(kind, "_fields"):
        try:
            yield from typing.get_type_hints(kind, include_extras=True).values()
        except Exception:  # noqa: BLE001 - names that only a type checker sees
            yield Secret  # who knows


def masked(text: str, tool: Tool, arguments: bytes) -> str:
    """Return a text without what the secret arguments of a call have of texts and numbers."""
    if not any(one.secret for one in tool.parameters):
        return text
    try:
        args, kwargs = values.decode(msgspec.Raw(arguments))
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
        return MASK
    secret = [value for index, value in enumerate(args) if is_secret_at(tool, index)]
    secret += [value for key, value in kwargs.items() if is_secret_named(tool, key)]
    found = set(itertools.islice(_said(secret), 2 * MOST))
    if len(found) > MOST:
        return MASK
    for said in sorted(found, key=len, reverse=True):
        text = text.replace(said, MASK)
    return text


def _said(value: Any) -> Iterator[str]:
    """Yield what a message may have of a value, as it is and as it is written in code."""
    match value:
        case str() if value:
            yield from {value, repr(value)[1:-1]}
        case bytes() if value:
            yield from {value.decode(errors="replace"), repr(value)[2:-1]}
        case int() | float() if not isinstance(value, bool):
            yield str(value)
        case list():
            for one in value:
                yield from _said(one)
        case dict():
            for one in value.values():
                yield from _said(one)
