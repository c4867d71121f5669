"""Language models, the worker's end: calls an endpoint with openai's client.

``llm`` starts the worker, which runs ``complete``. Only the worker has the key.

An endpoint's answer is as hostile as a cell's request. It is bounded before it is read, and then
validated, since the client builds its models from whatever came. Cells get errors in cellblock's
words, and the endpoint's own message where it helps, without the key. Exceptions of the client
quote requests, addresses and keys, so they go no further. Works with the client's versions over
httpx and over httpx2.
"""

from __future__ import annotations

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

from cellblock.host.services.secret_values import NoSecretError, read_secret
from cellblock.host.services.tools.calls import MASK, mask
from cellblock.policy.model import Llm
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOO_LARGE: Final = "the endpoint's answer is too large (tool_max_bytes)"
NO_COMPLETION: Final = "the endpoint's answer is not a completion"
_MAX_NAME: Final = 200


class UnusableError(Exception):
    """An endpoint can't be called, or its answer can't be used.

    ``tokens`` is how many the call took, None if that isn't known.
    """

    def __init__(self, kind: str, message: str, tokens: int | None = None) -> None:
        super().__init__(message)
        self.failure: Failure = (kind, message, tokens)


#: A failure's kind, its message, and the tokens that it cost, None if that isn't known.
Failure = tuple[str, str, int | None]


async def complete(llm: dict[str, Any], max_bytes: int, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to an endpoint. Return a ``llm.Outcome`` as data.

    ``llm`` is the policy's section, ``request`` a ``llm.CompletionRequest`` as data. ``max_bytes``
    bounds the text of the answer.
    """
    section = Llm(**llm | {"models": tuple(llm["models"])})
    redactor = Redactor("")
    try:
        key = key_of(section.key_env)
        redactor = Redactor(key)
        answer = await _send(client_of(section, max_bytes, key), section, request)
        return _completed(answer, max_bytes, request, redactor)
    except Exception as exc:  # the client may raise anything for a hostile answer
        kind, message, tokens = _failure_of(exc, redactor)
    return {"kind": kind, "message": message, "tokens": tokens}


async def _send(client: Any, llm: Llm, request: dict[str, Any]) -> _Completion:
    options: dict[str, Any] = {
        "model": request["model"],
        "messages": request["messages"],
        llm.token_parameter: request["max_tokens"],
    }
    if request["temperature"] is not None:
        options["temperature"] = request["temperature"]
    if request["stop"]:
        options["stop"] = request["stop"]
    answer = await client.chat.completions.create(**options)
    return msgspec.convert(answer, _Completion, from_attributes=True)


def _completed(
    answer: _Completion, max_bytes: int, request: dict[str, Any], redactor: Redactor
) -> dict[str, Any]:
    """Return the outcome of an answer, without the key. Raises UnusableError if it is too large."""
    choice = answer.choices[0]
    usage = answer.usage
    content = encodable(choice.message.content or "")
    text = redactor.text(content)
    if usage is not None:
        tokens = usage.prompt_tokens + usage.completion_tokens
    else:  # the endpoint does not say, so a token for each byte: no call takes more
        tokens = sum(len(message["content"].encode()) for message in request["messages"])
        tokens += len(content.encode())
    if len(text.encode()) > max_bytes:
        raise UnusableError("AnswerTooLarge", TOO_LARGE, tokens)
    value = {
        "text": text,
        # Redacted before they are cut: half of a key would not be recognised.
        "finish_reason": redactor.text(encodable(choice.finish_reason or ""))[:_MAX_NAME],
        "model": redactor.text(encodable(answer.model or ""))[:_MAX_NAME],
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
    }
    return {"value": value, "tokens": tokens}


# --- what went wrong --------------------------------------------------------------------------

_MAX_DETAIL, _MAX_REDACTED = 300, 2_000
_KEY_REFUSED_STATUSES: Final = (401, 403)
_REDIRECT_STATUSES: Final = range(300, 400)
_FAILED_STATUSES: Final = range(400, 600)
#: Errors of the client's HTTP library, httpx or httpx2, for a request that was never sent.
_NOT_SENT_ERRORS: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout")


def _failure_of(exc: Exception, redactor: Redactor) -> Failure:
    """Return the failure that a cell is shown for an exception, the client's or this module's."""
    cause = exc.__cause__
    for error in (exc, cause):  # the client wraps what _bounding raises
        if isinstance(error, UnusableError):
            return error.failure
    status = getattr(exc, "status_code", None)
    if isinstance(exc, openai.APIStatusError) and isinstance(status, int):
        return _failure_of_status(status, exc, redactor)
    cost = 0 if type(cause).__name__ in _NOT_SENT_ERRORS else None
    if isinstance(exc, openai.APITimeoutError):
        return "TimeoutError", "the endpoint did not answer in time (llm.timeout)", cost
    if isinstance(exc, openai.APIConnectionError):
        return "ConnectionError", "the endpoint can't be reached, or hung up", cost
    return "EndpointError", NO_COMPLETION, None


def _failure_of_status(status: int, exc: Any, redactor: Redactor) -> Failure:
    if status in _KEY_REFUSED_STATUSES:
        # The endpoint's message may quote the key.
        return "AuthenticationError", f"the endpoint refuses the host's key ({status})", 0
    if status in _REDIRECT_STATUSES:
        return "EndpointError", f"the endpoint redirects, which is not followed ({status})", 0
    name, cost = type(exc).__name__[:_MAX_NAME], 0 if status in _FAILED_STATUSES else None
    detail = _detail(exc, redactor)
    return name, f"the endpoint refuses ({status})" + (f": {detail}" if detail else ""), cost


def _detail(exc: Any, redactor: Redactor) -> str:
    """Return the endpoint's own error message in one short line without the key, or ""."""
    body = getattr(exc, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    if not isinstance(message, str):
        return ""
    # Redacted before it is cut, since part of a key would not be recognised; then cut, so that what
    # follows takes little time.
    message = redactor.error(redactor.text(encodable(message))[:_MAX_REDACTED])
    line = " ".join(message.split())
    return "".join(char for char in line if char.isprintable())[:_MAX_DETAIL]


# --- the key and the client -------------------------------------------------------------------

#: A response may have this many bytes for each byte of text, for names, numbers and escapes, and
#: so many more.
_AROUND: Final = 4
_ROOM: Final = 2**20
#: Seconds that connecting may take.
_CONNECTING: Final = 10.0
#: The key that is sent to an endpoint which needs none.
_NO_KEY: Final = "none"


@lru_cache(maxsize=1)
def key_of(variable: str) -> str:
    """Return the key in an environment variable. Raises UnusableError."""
    if not variable:
        return _NO_KEY
    try:
        return read_secret(f"env:{variable}")
    except NoSecretError as exc:
        raise UnusableError("NoKey", exc.message, 0) from None


@lru_cache(maxsize=1)
def client_of(llm: Llm, max_bytes: int, key: str) -> Any:
    """Return the client, the same for each call, so that connections are reused."""
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        # The client would take addresses and headers from them that the policy does not name.
        del os.environ[name]
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
    most = _AROUND * max_bytes + _ROOM

    class Bounded(_http().AsyncByteStream):  # type: ignore[misc]
        """A body that raises once it is too large."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for data in self._inner:
                size += len(data)
                if size > most:
                    raise UnusableError("AnswerTooLarge", TOO_LARGE)
                yield data

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: Any) -> None:
        # Not decompressed: compressed data was not asked for, and a little of it can make much.
        response.headers.pop("content-encoding", None)
        response.stream = Bounded(response.stream)

    return bound


# --- answers ----------------------------------------------------------------------------------

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


# --- redaction: endpoints quote keys, whole or in part ----------------------------------------

#: Shorter keys are not secret, and would be found in any text.
_MIN_KEY: Final = 8
#: Words that look like a key, or like part of one.
_KEY_LIKE: Final = re.compile(
    r"(?<!\S)(?=[^\w\s]*+\w)\S*?\*{3,}\S*|\bsk-[\w*.…-]{4,}|\b[Bb]earer\s+\S+"
)


class Redactor:
    """The removal of one key from texts."""

    def __init__(self, key: str) -> None:
        plain = key.strip()
        forms = {plain, quote(plain, safe=""), base64.b64encode(plain.encode()).decode()}
        self._forms = forms if len(plain) >= _MIN_KEY else set[str]()

    def text(self, text: str) -> str:
        """Return ``text`` without the key."""
        return mask(text, self._forms)

    def error(self, text: str) -> str:
        """Return a short text without the key, and without words that look like any key."""
        return _KEY_LIKE.sub(MASK, self.text(text))
