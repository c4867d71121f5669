"""The key, and openai's client with bounds around what it reads. In the worker, which alone has it.

Works with the client's versions over httpx and over httpx2.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import openai

# What the client imports at its first call: not within that call's time.
import openai.resources.chat.completions

from cellblock.host.llm.failures import TOO_LARGE, UnusableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cellblock.host.llm.speech import Connection

#: Bytes that may come for each that a text may have: names, numbers and escapes around it.
_AROUND: Final = 4
_AROUND_PIECES: Final = 64
_ROOM: Final = 2**20
#: Seconds that a connection may take.
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
        said = "keyring is not installed for the host: pip install 'cellblock[keyring]'"
        raise UnusableError("NoKey", said, 0) from None
    except Exception as exc:  # noqa: BLE001 - its backends' errors have no common base
        said = f"the host's keyring can't be read: {type(exc).__name__}"
        raise UnusableError("NoKey", said, 0) from None
    if not found:
        raise UnusableError("NoKey", f"the host's keyring has no {service}:{user}", 0)
    return str(found).strip()


@lru_cache(maxsize=1)
def client_of(known: Connection, key: str) -> Any:
    """Return the client, which keeps its connections."""
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        del os.environ[name]  # addresses and headers that the policy does not name
    http: Any = openai.DefaultAsyncHttpxClient
    limits = _http().Limits(
        max_connections=known.max_in_flight, max_keepalive_connections=known.max_in_flight
    )
    return openai.AsyncOpenAI(
        api_key=key,
        base_url=known.base_url,
        max_retries=known.retries,
        timeout=openai.Timeout(known.timeout, connect=_CONNECTING, pool=None),
        default_headers={"Accept-Encoding": "identity"},
        http_client=http(
            follow_redirects=False, limits=limits, event_hooks={"response": [_bounding(known)]}
        ),
    )


def _http() -> Any:
    """Return the HTTP library that this version of the client is built on."""
    base = openai.DefaultAsyncHttpxClient.__mro__[1]
    return importlib.import_module(base.__module__.partition(".")[0])


def _bounding(known: Connection) -> Any:
    """Return what bounds a response, called before any of its body is read."""
    whole = _AROUND * known.max_bytes + _ROOM
    pieces = _AROUND_PIECES * known.max_bytes + _ROOM

    class Bounded(_http().AsyncByteStream):  # type: ignore[misc]
        """A body that ends with an error where it, or one event of it, would be too large."""

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
        # It was not asked for, and a little of it makes much.
        response.headers.pop("content-encoding", None)
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = Bounded(response.stream, pieces if streamed else whole)

    return bound
