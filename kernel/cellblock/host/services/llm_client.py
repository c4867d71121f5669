"""Asking an endpoint by openai's client, in the worker, which alone has the key.

What an endpoint answers is as hostile as what a cell says: it is bounded before it is read, and
checked, since the client makes models of whatever came. What goes wrong is told in our words, and
the endpoint's where they help; exceptions of the client quote requests, addresses and keys, and go
no further. Works with the client's versions over httpx and over httpx2.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import msgspec
import openai
import openai.resources.chat.completions  # now: not within the first call's time

from cellblock.host.services.tools import runner
from cellblock.host.services.tools.calls import MASK, mask
from cellblock.policy.model import Llm
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOO_LARGE: Final = "the endpoint's answer is too large (tool_max_bytes)"
NO_COMPLETION: Final = "the endpoint's answer is no completion"
#: Events of a stream that may come for each token, and beside them.
_EVENTS, _MORE_EVENTS = 4, 1_000
_MAX_NAME: Final = 200


class UnusableError(Exception):
    """An endpoint that can't be asked, or an answer that can't be used.

    ``tokens`` is None if it may have cost something.
    """

    def __init__(self, kind: str, message: str, tokens: int | None = None) -> None:
        super().__init__(message)
        self.failure: Failure = (kind, message, tokens)


#: Kind, message, and tokens that it cost: None if that may be anything.
Failure = tuple[str, str, int | None]


async def complete(llm: dict[str, Any], max_bytes: int, request: dict[str, Any]) -> dict[str, Any]:
    """Ask an endpoint; return a ``llm.Outcome``, as data.

    ``llm`` is the policy's section, ``max_bytes`` bounds the text of the answer.
    """
    known = Llm(**llm | {"models": tuple(llm["models"])})
    redactor = Redactor("")
    try:
        key = await asyncio.to_thread(key_of, known.key_env, known.keyring)
        redactor = Redactor(key)
        answer = await _ask(client_of(known, max_bytes, key), known, max_bytes, request, redactor)
        return _completed(answer, max_bytes, request, redactor)
    except Exception as exc:  # whatever the client makes of what it got
        kind, message, tokens = _failure_of(exc, redactor)
    return {"kind": kind, "message": message, "tokens": tokens}


async def _ask(
    client: Any, llm: Llm, max_bytes: int, request: dict[str, Any], redactor: Redactor
) -> EndpointAnswer:
    options: dict[str, Any] = {
        "model": request["model"],
        "messages": request["messages"],
        llm.token_parameter: request["max_tokens"],
    }
    if request["temperature"] is not None:
        options["temperature"] = request["temperature"]
    if request["stop"]:
        options["stop"] = request["stop"]
    create = client.chat.completions.create
    if not request["stream"]:
        completion = msgspec.convert(await create(**options), _Completion, from_attributes=True)
        choice = completion.choices[0]
        text, reason = choice.message.content or "", choice.finish_reason or ""
        return EndpointAnswer(text, reason, completion.model or "", completion.usage)
    stream = await create(**options, stream=True, stream_options={"include_usage": True})
    events = _EVENTS * request["max_tokens"] + _MORE_EVENTS
    return await _read_stream(stream, redactor, max_bytes, events)


def _completed(
    answer: EndpointAnswer, max_bytes: int, request: dict[str, Any], redactor: Redactor
) -> dict[str, Any]:
    text = redactor.text(encodable(answer.text))
    if answer.usage is not None:
        tokens = answer.usage.prompt_tokens + answer.usage.completion_tokens
    else:  # the endpoint does not tell: as many as there are bytes
        tokens = sum(len(message["content"].encode()) for message in request["messages"])
        tokens += len(encodable(answer.text).encode())
    if len(text.encode()) > max_bytes:
        raise UnusableError("AnswerTooLarge", TOO_LARGE, tokens)
    value = {
        "text": text,
        # Redacted before they are cut: half of a key would not be seen as one.
        "finish_reason": redactor.text(encodable(answer.finish_reason))[:_MAX_NAME],
        "model": redactor.text(encodable(answer.model))[:_MAX_NAME],
        "prompt_tokens": answer.usage.prompt_tokens if answer.usage else None,
        "completion_tokens": answer.usage.completion_tokens if answer.usage else None,
    }
    return {"value": value, "tokens": tokens}


# --- what went wrong --------------------------------------------------------------------------

_MAX_DETAIL, _MAX_REDACTED = 300, 2_000
_REFUSED_KEY: Final = (401, 403)
_REDIRECTS: Final = range(300, 400)
_FAILED: Final = range(400, 600)
#: What the client's HTTP library, whichever it is, calls a request that was never sent.
_NOT_SENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout")


def _failure_of(exc: Exception, redactor: Redactor) -> Failure:
    """Return what a cell is told of an exception, of ours or the client's."""
    cause = exc.__cause__
    for one in (exc, cause):
        if isinstance(one, UnusableError):
            return one.failure
    status = getattr(exc, "status_code", None)
    if isinstance(exc, openai.APIStatusError) and isinstance(status, int):
        return _failure_of_status(status, exc, redactor)
    cost = 0 if type(cause).__name__ in _NOT_SENT else None
    if isinstance(exc, openai.APITimeoutError):
        return "TimeoutError", "the endpoint did not answer in time (llm.timeout)", cost
    if isinstance(exc, openai.APIConnectionError):
        return "ConnectionError", "the endpoint can't be reached, or hung up", cost
    if isinstance(exc, openai.APIError):  # told in the middle of a stream
        return "EndpointError", f"the endpoint says: {_detail(exc, redactor)}", None
    return "EndpointError", NO_COMPLETION, None


def _failure_of_status(status: int, exc: Any, redactor: Redactor) -> Failure:
    if status in _REFUSED_KEY:
        # Whatever it says of the key is not for cells.
        return "AuthenticationError", f"the endpoint refuses the host's key ({status})", 0
    if status in _REDIRECTS:
        return "EndpointError", f"the endpoint is elsewhere, which is not followed ({status})", 0
    name, cost = type(exc).__name__[:_MAX_NAME], 0 if status in _FAILED else None
    detail = _detail(exc, redactor)
    return name, f"the endpoint refuses ({status})" + (f": {detail}" if detail else ""), cost


def _detail(exc: Any, redactor: Redactor) -> str:
    """Return the endpoint's own words, if it has any: one line, bounded, without the key."""
    body = getattr(exc, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    if not isinstance(message, str):
        return ""
    # Redacted before it is cut; all that is done to it after that is short.
    message = redactor.error(redactor.text(encodable(message))[:_MAX_REDACTED])
    line = " ".join(message.split())
    return "".join(c for c in line if c.isprintable())[:_MAX_DETAIL]


# --- the key and the client -------------------------------------------------------------------

#: Bytes that may come for each of a text, in all and in the events of a stream: names, numbers and
#: escapes around it.
_AROUND: Final = 4
_AROUND_PIECES: Final = 64
_ROOM: Final = 2**20
#: Seconds that connecting may take.
_CONNECTING: Final = 10.0
#: Sent where an endpoint needs no key.
_NO_KEY: Final = "none"


@lru_cache(maxsize=1)
def key_of(variable: str, keyring: str) -> str:
    """Return the key. Raises UnusableError."""
    if variable:
        found = os.environ.get(variable, "").strip()
        if not found:
            raise UnusableError("NoKey", f"the host's environment has no {variable}", 0)
    elif keyring:
        found = _from_keyring(*keyring.split(":", 1))
    else:
        return _NO_KEY
    if not (found.isascii() and found.isprintable()):
        raise UnusableError("NoKey", "the host's key can't be sent: it is no line of ASCII", 0)
    return found


def _from_keyring(service: str, user: str) -> str:
    try:
        import keyring  # noqa: PLC0415 - optional

        found = keyring.get_password(service, user)
    except ImportError:
        message = "keyring is not installed for the host: pip install 'cellblock[keyring]'"
        raise UnusableError("NoKey", message, 0) from None
    except Exception as exc:  # its backends' errors have no common base
        message = f"the host's keyring can't be read: {type(exc).__name__}"
        raise UnusableError("NoKey", message, 0) from None
    if not found:
        raise UnusableError("NoKey", f"the host's keyring has no {service}:{user}", 0)
    return str(found).strip()


@lru_cache(maxsize=1)
def client_of(llm: Llm, max_bytes: int, key: str) -> Any:
    """Return the client, which keeps its connections."""
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        del os.environ[name]  # addresses and headers that the policy does not name
    http: Any = openai.DefaultAsyncHttpxClient
    limits = _http().Limits(
        max_connections=llm.max_in_flight, max_keepalive_connections=llm.max_in_flight
    )
    return openai.AsyncOpenAI(
        api_key=key,
        base_url=llm.base_url,
        max_retries=llm.retries,
        timeout=openai.Timeout(llm.timeout, connect=_CONNECTING, pool=None),
        default_headers={"Accept-Encoding": "identity"},
        http_client=http(
            follow_redirects=False, limits=limits, event_hooks={"response": [_bounding(max_bytes)]}
        ),
    )


def _http() -> Any:
    """Return the HTTP library that this version of the client is built on."""
    base = openai.DefaultAsyncHttpxClient.__mro__[1]
    return importlib.import_module(base.__module__.partition(".")[0])


def _bounding(max_bytes: int) -> Any:
    """Return a hook that bounds a response before any of its body is read."""
    whole = _AROUND * max_bytes + _ROOM
    pieces = _AROUND_PIECES * max_bytes + _ROOM

    class Bounded(_http().AsyncByteStream):  # type: ignore[misc]
        """A body that raises where it, or one event of it, is too large."""

        def __init__(self, inner: Any, most: int) -> None:
            self._inner, self._most = inner, most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = event = 0
            async for data in self._inner:
                size += len(data)
                event = 0 if b"\n\n" in data or b"\r\n\r\n" in data else event + len(data)
                if size > self._most or event > whole:
                    raise UnusableError("AnswerTooLarge", TOO_LARGE)
                yield data

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: Any) -> None:
        # Compressed data was not asked for, and a little of it makes much.
        response.headers.pop("content-encoding", None)
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = Bounded(response.stream, pieces if streamed else whole)

    return bound


# --- answers ----------------------------------------------------------------------------------

#: Seconds between pieces.
_PIECE_SECONDS: Final = 0.1

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Usage(msgspec.Struct, frozen=True):
    """The tokens that a call took, as the endpoint counts."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens


class _Text(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Text
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    model: str | None = None
    usage: Usage | None = None


class _Part(msgspec.Struct):
    delta: _Text
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: Annotated[list[_Part], msgspec.Meta(max_length=1)]
    model: str | None = None
    usage: Usage | None = None


class EndpointAnswer(msgspec.Struct, frozen=True):
    """A whole answer; ``usage`` is None if the endpoint does not tell."""

    text: str
    finish_reason: str
    model: str
    usage: Usage | None


async def _read_stream(
    stream: Any, redactor: Redactor, max_bytes: int, max_events: int
) -> EndpointAnswer:
    """Return an answer that comes in pieces, and send them on, ten times a second at most.

    Raises UnusableError and msgspec.ValidationError.
    """
    text, sent, due = "", 0, 0.0
    parts = list[str]()
    size, reason, model, usage = 0, "", "", None
    async with stream as chunks:
        async for chunk in chunks:
            max_events -= 1
            read = msgspec.convert(chunk, _Chunk, from_attributes=True)
            model, usage = read.model or model, read.usage or usage
            for part in read.choices:
                reason = part.finish_reason or reason
                parts.append(part.delta.content or "")
                size += len(parts[-1].encode("utf-8", "replace"))
            if size > max_bytes or not max_events:
                raise UnusableError("AnswerTooLarge", TOO_LARGE)
            if (now := asyncio.get_running_loop().time()) >= due:
                due, text = now + _PIECE_SECONDS, encodable("".join(parts))
                safe = redactor.safe(text)
                if len(safe) > sent:
                    runner.send_piece(safe[sent:])
                    sent = len(safe)
    if not parts:
        raise UnusableError("EndpointError", NO_COMPLETION)
    return EndpointAnswer("".join(parts), reason, model, usage)


# --- redaction: endpoints quote keys, whole or in part ----------------------------------------

#: Shorter ones are no secrets, and stand in any text.
_MIN_KEY: Final = 8
#: What looks like a key, or like part of one.
_KEY_LIKE: Final = re.compile(r"\bsk-[\w*.…-]{4,}|\b[Bb]earer\s+\S+|\b\S*\*{3,}\S*")


class Redactor:
    """Removes one key from texts."""

    def __init__(self, key: str) -> None:
        plain = key.strip()
        forms = {plain, quote(plain, safe=""), base64.b64encode(plain.encode()).decode()}
        self._forms = forms if len(plain) >= _MIN_KEY else set[str]()

    def text(self, text: str) -> str:
        """Return ``text`` without the key."""
        return mask(text, self._forms)

    def error(self, text: str) -> str:
        """Return a short text in which nothing looks like a key, either."""
        return _KEY_LIKE.sub(MASK, self.text(text))

    def safe(self, text: str) -> str:
        """Return as much of a growing text as can't become a key, without it."""
        clean = self.text(text)
        begun = (form[:size] for form in self._forms for size in range(1, len(form)))
        held = max((len(one) for one in begun if clean.endswith(one)), default=0)
        return clean[: len(clean) - held]
