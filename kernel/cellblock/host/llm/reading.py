"""What an endpoint answers, read strictly. Runs in the worker.

The client makes its models of whatever came, without checking it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from cellblock.host.llm.failures import NO_COMPLETION, TOO_LARGE, UnusableError
from cellblock.host.tools import progress
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from cellblock.host.llm.redaction import Redactor

#: Seconds between pieces.
_PACE: Final = 0.1

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Usage(msgspec.Struct, frozen=True):
    """What a call took, as the endpoint counts."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    model: str | None = None
    usage: Usage | None = None


class _Part(msgspec.Struct):
    delta: _Said
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: Annotated[list[_Part], msgspec.Meta(max_length=1)]
    model: str | None = None
    usage: Usage | None = None


class Answer(msgspec.Struct, frozen=True):
    """All of an answer; ``usage`` is None where the endpoint does not tell."""

    text: str
    finish_reason: str
    model: str
    usage: Usage | None


def whole(completion: Any) -> Answer:
    """Return an answer that came at once. Raises msgspec.ValidationError."""
    read = msgspec.convert(completion, _Completion, from_attributes=True)
    choice = read.choices[0]
    text, reason = choice.message.content or "", choice.finish_reason or ""
    return Answer(text, reason, read.model or "", read.usage)


async def gathered(stream: Any, redactor: Redactor, *, most_bytes: int, most_events: int) -> Answer:
    """Return an answer that comes in pieces, and tell of them as they come.

    Raises UnusableError and msgspec.ValidationError.
    """
    heard, teller = list[str](), _Teller(redactor)
    size, reason, model, usage = 0, "", "", None
    async with stream as chunks:
        async for chunk in chunks:
            most_events -= 1
            read = msgspec.convert(chunk, _Chunk, from_attributes=True)
            model, usage = read.model or model, read.usage or usage
            for part in read.choices:
                reason = part.finish_reason or reason
                heard.append(text := part.delta.content or "")
                size += len(text.encode("utf-8", "replace"))
                teller.add(text)
            if size > most_bytes or not most_events:
                raise UnusableError("AnswerTooLarge", TOO_LARGE)
    if not heard:
        raise UnusableError("EndpointError", NO_COMPLETION)
    return Answer("".join(heard), reason, model, usage)


class _Teller:
    """Tells what has come of a text, ten times a second at most."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text, self._told, self._due = "", 0, 0.0

    def add(self, text: str) -> None:
        self._text += encodable(text)
        now = asyncio.get_running_loop().time()
        if now < self._due:
            return
        self._due = now + _PACE
        safe = self._redactor.safe(self._text)
        if len(safe) > self._told:
            progress.give(safe[self._told :])
            self._told = len(safe)
