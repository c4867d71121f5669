"""Asks an endpoint, through openai's client. What the worker runs, for each call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.host.llm import client, failures, reading
from cellblock.host.llm.failures import UnusableError
from cellblock.host.llm.redaction import Redactor
from cellblock.host.llm.speech import Connection
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from cellblock.host.llm.reading import Answer

#: Events that may come for each token, and beside them.
_EVENTS, _MORE_EVENTS = 4, 1_000
_LONGEST_NAME: Final = 200


async def complete(connection: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return ``speech.Completed`` or ``speech.Failed``, as data; raises nothing of the client's."""
    known = msgspec.convert(connection, Connection)
    redactor = Redactor("")
    try:
        key = await asyncio.to_thread(client.key_of, known.key_env, known.keyring)
        redactor = Redactor(key)
        answer = await _asked(client.client_of(known, key), known, wanted, redactor)
        return _completed(answer, known, wanted, redactor)
    except Exception as exc:  # noqa: BLE001 - whatever the client makes of what it got
        kind, message, tokens = failures.told(exc, redactor)
    return {"type": "failed", "kind": kind, "message": message, "tokens": tokens}


async def _asked(
    asker: Any, known: Connection, wanted: dict[str, Any], redactor: Redactor
) -> Answer:
    options: dict[str, Any] = {
        "model": wanted["model"],
        "messages": wanted["messages"],
        known.token_parameter: wanted["max_tokens"],
    }
    if wanted["temperature"] is not None:
        options["temperature"] = wanted["temperature"]
    if wanted["stop"]:
        options["stop"] = wanted["stop"]
    create = asker.chat.completions.create
    if not wanted["stream"]:
        return reading.whole(await create(**options))
    stream = await create(**options, stream=True, stream_options={"include_usage": True})
    events = _EVENTS * wanted["max_tokens"] + _MORE_EVENTS
    return await reading.gathered(stream, redactor, most_bytes=known.max_bytes, most_events=events)


def _completed(
    answer: Answer, known: Connection, wanted: dict[str, Any], redactor: Redactor
) -> dict[str, Any]:
    text, tokens = redactor.text(encodable(answer.text)), _cost(answer, wanted)
    if len(text.encode()) > known.max_bytes:
        raise UnusableError("AnswerTooLarge", failures.TOO_LARGE, tokens)
    value = {
        "text": text,
        # The key is out of them before they are cut: half of it would not be seen as one.
        "finish_reason": redactor.text(encodable(answer.finish_reason))[:_LONGEST_NAME],
        "model": redactor.text(encodable(answer.model))[:_LONGEST_NAME],
        "prompt_tokens": answer.usage.prompt_tokens if answer.usage else None,
        "completion_tokens": answer.usage.completion_tokens if answer.usage else None,
    }
    return {"type": "completed", "value": value, "tokens": tokens}


def _cost(answer: Answer, wanted: dict[str, Any]) -> int:
    """Return the tokens it took; where the endpoint does not tell, as many as there are bytes."""
    if answer.usage is not None:
        return answer.usage.prompt_tokens + answer.usage.completion_tokens
    said = sum(len(message["content"].encode()) for message in wanted["messages"])
    return said + len(encodable(answer.text).encode())
