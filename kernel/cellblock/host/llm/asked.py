"""What a cell asks of a language model, read strictly: nothing that is not named here goes on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from cellblock.host.llm.offer import CHAT

if TYPE_CHECKING:
    from cellblock.host.tools.provider import Call
    from cellblock.policy.sections import Llm

#: Tokens that a message, and a call, may take beyond what they say.
PER_MESSAGE: Final = 16
PER_CALL: Final = 64
_MOST_MESSAGES, _MOST_STOPS, _LONGEST_STOP = 10_000, 4, 1_000
_LONGEST_REASON: Final = 300


class WrongError(Exception):
    """A call that is not made; says why."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation; texts only."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_STOP)]


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    stream: bool = False


class _Prompt(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prompt: str
    system: str | None = None

    @property
    def messages(self) -> list[Message]:
        before = [] if self.system is None else [Message("system", self.system)]
        return [*before, Message("user", self.prompt)]


class _Chat(_Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=_MOST_MESSAGES)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may be made, with every number within the policy's."""

    model: str
    messages: list[Message]
    max_tokens: int
    temperature: float | None = None
    stop: list[str] = []
    stream: bool = False

    def most_tokens(self) -> int:
        """Return how many tokens it may take at most: none is shorter than a byte."""
        said = sum(len(one.content.encode()) + PER_MESSAGE for one in self.messages)
        return said + PER_CALL + self.max_tokens


_Nothing = Annotated[list[Any], msgspec.Meta(max_length=0)]
_prompt: Final = msgspec.msgpack.Decoder(tuple[_Nothing, _Prompt]).decode
_chat: Final = msgspec.msgpack.Decoder(tuple[_Nothing, _Chat]).decode


def read(call: Call, llm: Llm) -> Wanted:
    """Return what ``call`` asks for. Raises WrongError."""
    try:
        _, given = (_chat if call.tool.name == CHAT else _prompt)(call.arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise WrongError(_reason(exc)) from None
    if given.temperature is not None and not math.isfinite(given.temperature):
        raise WrongError("temperature: not a number")
    model = given.model if given.model is not None else llm.models[0]
    if model not in llm.models:
        known = ", ".join(llm.models)
        raise WrongError(f"model: {model[:100]!r} is not allowed; the policy names {known}")
    most = llm.max_tokens_per_call
    if given.max_tokens is not None and given.max_tokens > most:
        raise WrongError(f"max_tokens: {most:,} at most (llm.max_tokens_per_call)")
    return Wanted(
        model=model,
        messages=given.messages,
        max_tokens=given.max_tokens or most,
        temperature=given.temperature,
        stop=[given.stop] if isinstance(given.stop, str) else given.stop or [],
        stream=given.stream,
    )


def _reason(exc: Exception) -> str:
    """Say which argument is wrong, as a cell named it."""
    what, _, where = str(exc).partition(" - at `$[1]")
    name = where.rstrip("`").removeprefix(".")
    return (f"{name}: {what}" if name else what)[:_LONGEST_REASON]
