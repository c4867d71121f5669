"""One call of a tool as it is told of later: in a reply's metadata, and on the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from cellblock.host.output.jsonable import Cleaner, TooLargeError
from cellblock.wire import values

if TYPE_CHECKING:
    from cellblock.wire.messages import Tool

#: Bytes of arguments, and of a result, that are told; of more only how much it was.
MOST_TOLD: Final = 4_096
MASK: Final = "•••"
_POSITIONAL, _REST, _NAMED_REST = (0, 1), 2, 4
Status = Literal["ok", "error", "withdrawn", "refused", "unfinished"]


class Record(msgspec.Struct, frozen=True):
    """A call and what came of it, secrets included: ``as_dict`` is for everybody's eyes."""

    number: int
    tool: Tool
    #: As they crossed, or how many bytes they were.
    arguments: bytes | int
    status: Status
    #: The value, where ``status`` is ok; or again its size.
    value: bytes | int = 0
    kind: str = ""
    message: str = ""
    #: Of a language model.
    tokens: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON data in which secrets are masked and what is large is only measured."""
        args, kwargs = _arguments(self.tool, self.arguments)
        told: dict[str, Any] = {"name": self.tool.name, "args": args, "kwargs": kwargs}
        told["status"] = self.status
        if self.status == "ok":
            told["result"] = MASK if self.tool.secret_result else _told(self.value)
        elif self.kind:
            told["error"] = {"type": self.kind, "message": self.message}
        if self.tokens:
            told["tokens"] = self.tokens
        return told | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True, slots=True)
class Made:
    """The calls that a cell made: the first of them, and how many more."""

    records: tuple[Record, ...] = ()
    left_out: int = 0

    def as_list(self) -> list[dict[str, Any]]:
        """Return them as JSON data."""
        return [record.as_dict() for record in self.records]


def kept(encoded: bytes) -> bytes | int:
    """Return what a record keeps of encoded data: it outlives the call."""
    return encoded if len(encoded) <= MOST_TOLD else len(encoded)


def _told(encoded: bytes | int) -> Any:
    if isinstance(encoded, int):
        return f"… {encoded:,} bytes"
    try:
        return _cleaned(values.decode(msgspec.Raw(encoded)))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "… no data"


def _cleaned(value: Any) -> Any:
    try:
        return Cleaner(nodes=MOST_TOLD, chars=8 * MOST_TOLD, depth=32).clean(value)
    except TooLargeError:
        return "… too deep"


def _arguments(tool: Tool, encoded: bytes | int) -> tuple[list[Any], dict[str, Any]]:
    """Return args and kwargs, secret ones masked."""
    data = _told(encoded)
    match data:
        case [list() as args, dict() as kwargs]:
            pass
        case _:
            return [data], {}
    return (
        [MASK if is_secret_at(tool, index) else value for index, value in enumerate(args)],
        {key: MASK if is_secret_named(tool, key) else kwargs[key] for key in kwargs},
    )


def is_secret_at(tool: Tool, index: int) -> bool:
    """Say whether an argument by its place is kept out of what others see."""
    positional = [one for one in tool.parameters if one.kind in _POSITIONAL]
    rest = [one for one in tool.parameters if one.kind == _REST]
    found = positional[index : index + 1] or rest
    return any(one.secret for one in found)


def is_secret_named(tool: Tool, key: str) -> bool:
    """Say the same of an argument by its name."""
    named = [one for one in tool.parameters if one.name == key and one.kind != 0]
    found = named or [one for one in tool.parameters if one.kind == _NAMED_REST]
    return any(one.secret for one in found)
