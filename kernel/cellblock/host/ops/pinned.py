"""A transport of httpx's that connects to addresses which were judged, and to nothing else.

A name is resolved once, by whoever makes one of these; that it means another address a moment later
(DNS rebinding) changes nothing. TLS and the Host header go by the name. No proxy, no environment,
no cookie, no credential of this machine's has a part in it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

from cellblock.host.ops.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from cellblock.host.ops.urls import Url

#: Addresses of one host that are tried.
_MOST_ADDRESSES = 4


class _Backend(httpcore.AnyIOBackend):
    """Connects to one of ``addresses``, whatever host it is told."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses[:_MOST_ADDRESSES]

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - that is the point
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to the first address that takes one."""
        last: Exception = httpcore.ConnectError("it has no address")
        for address in self._addresses:
            try:
                return await super().connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                last = exc
        raise last


class _Stream(httpx.AsyncByteStream):
    """A body as it comes; what goes wrong in it is told as what goes wrong before it."""

    def __init__(self, stream: Any, host: str) -> None:
        self._stream, self._host = stream, host

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with told(self._host):
            async for part in self._stream:
                yield part


class Pinned(httpx.AsyncBaseTransport):
    """Asks one host, at ``addresses``. The request carries the ``Url`` that was judged."""

    def __init__(self, addresses: Sequence[str], context: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=1,
            http1=True,
            http2=False,
            network_backend=_Backend(addresses),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises OperationError."""
        url: Url = request.extensions["judged"]
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=url.scheme.encode(),
                host=url.host.strip("[]").encode(),
                port=url.port,
                target=url.target.encode(),
            ),
            headers=request.headers.raw,
            content=request.stream,
        )
        with told(url.host):
            answer = await self._pool.handle_async_request(sent)
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Stream(answer.stream, url.host),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Hang up."""
        await self._pool.aclose()


@contextlib.contextmanager
def told(host: str) -> Iterator[None]:
    """Turn what httpcore raises into what a cell is told."""
    try:
        yield
    except httpcore.TimeoutException:
        raise OperationError("TimeoutError", f"{host}: it does not answer") from None
    except httpcore.NetworkError as exc:
        raise OperationError("ConnectError", f"{host}: {_why(exc)}") from None
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
        raise OperationError("ProtocolError", f"{host}: its answer is no plain HTTP") from None


def _why(error: BaseException | None) -> str:
    """Return what is behind an error, in words that hold nothing of this machine's."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate does not hold: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"no TLS: {error.reason or 'the connection was closed'}"
        if isinstance(error, OSError) and error.strerror and not isinstance(error, socket.gaierror):
            return error.strerror
        error = error.__cause__ or error.__context__
    return "the connection failed"
