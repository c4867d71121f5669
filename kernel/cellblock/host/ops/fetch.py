"""``ops.http``. Runs in the worker, on its event loop.

Each hop is judged anew: method, host, port, path, then every address that the host has. Nothing is
kept from one call to the next: no connection, no cookie, no credential.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json as encoding
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urljoin

import httpx

from cellblock.host.ops import addresses, bodies, urls
from cellblock.host.ops.errors import OperationError, not_granted
from cellblock.host.ops.pinned import Pinned
from cellblock.policy.hosts import is_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cellblock.host.ops.settings import Http
    from cellblock.host.ops.urls import Url

    Resolve = Callable[[str, int], Awaitable[list[str]]]

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER: Final = 303
#: Redirects after which a POST goes on as a GET, as everybody does (RFC 9110, 15.4).
_AS_GET: Final = frozenset({301, 302})
#: Headers that say how a message is to be read, or by whom: cells do not write them.
_OURS: Final = frozenset(
    """
    accept-encoding connection content-encoding content-length expect host http2-settings keep-alive
    proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade via
    """.split()  # noqa: SIM905 - a table reads better
)
#: Headers that go along to another host; all others may be meant for the first alone.
_ANYBODYS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_MOST_HEADERS, _LONGEST_HEADERS = 50, 16 * 1_024
#: Requests at once; each may hold an answer of the cap's size.
_AT_ONCE: Final = 32


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name. Raises OperationError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise OperationError("ConnectError", f"{host}: no such host") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Makes requests within a table. ``resolve`` finds the addresses of a name."""

    def __init__(self, table: Http, resolve: Resolve = resolve) -> None:
        self._table, self._resolve = table, resolve
        self._grants = urls.Grants(table)
        self._context: ssl.SSLContext | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def http(  # noqa: PLR0913 - what a request is made of
        self,
        url: str,
        *,
        method: str = "GET",
        params: dict[str, str | int | float] | None = None,
        headers: dict[str, str] | None = None,
        json: Any = None,
        data: str | bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the cell's
    ) -> dict[str, Any]:
        """Have the host make an HTTP request that the policy grants.

        ``params`` are added to the address, ``json`` or ``data`` is sent as the body. The response
        has ``status``, ``headers``, ``content``, ``text`` and ``json()``; an error status is no
        exception.
        """
        seconds = min(self._table.timeout, timeout or self._table.timeout)
        sent = _headers(headers or {})
        body = self._body(json, data, sent)
        try:
            async with asyncio.timeout(max(0.0, seconds)), self._room:
                return await self._follow(method, urls.read(_with(url, params)), sent, body)
        except TimeoutError:
            said = f"it took longer than {seconds:g} s (timeout)"
            raise OperationError("TimeoutError", said) from None

    def _body(self, json: Any, data: str | bytes | None, headers: dict[str, str]) -> bytes | None:
        """Return what is sent, None for nothing; JSON is declared as such."""
        if json is not None:
            if data is not None:
                raise OperationError("ValueError", "give json or data, not both")
            headers.setdefault("content-type", "application/json")
            data = encoding.dumps(json)
        body = data.encode() if isinstance(data, str) else data
        if body is not None and len(body) > self._table.max_bytes:
            most = self._table.max_bytes
            said = f"its body has {len(body):,} bytes; {most:,} may be sent (max_bytes)"
            raise OperationError("TooLarge", said)
        return body

    async def _follow(
        self, method: str, url: Url, headers: dict[str, str], body: bytes | None
    ) -> dict[str, Any]:
        for _ in range(self._table.max_redirects + 1):
            answer = await self._ask(method, url, headers, body)
            onward = answer.pop("onward")
            if onward is None:
                return answer
            before, url = url, urls.read(urljoin(str(url), onward))
            if url.origin != before.origin:
                headers = {name: v for name, v in headers.items() if name in _ANYBODYS}
            status = answer["status"]
            if status == _SEE_OTHER or (status in _AS_GET and method == "POST"):
                method, body = "HEAD" if method == "HEAD" else "GET", None
        said = f"it was sent on more than {self._table.max_redirects} times (max_redirects)"
        raise OperationError("TooManyRedirects", said)

    async def _ask(
        self, method: str, url: Url, headers: dict[str, str], body: bytes | None
    ) -> dict[str, Any]:
        """Make one request, and read what is answered unless it sends us on."""
        private = self._grants.check(method, url)
        context = self._tls() if url.scheme == "https" else None
        transport = Pinned(await self._addresses(url, private=private), context)
        request = httpx.Request(
            method,
            str(url),
            headers=headers
            | {"host": url.authority, "accept-encoding": bodies.ACCEPTED, "connection": "close"},
            content=body,
            extensions={"judged": url},
        )
        try:
            response = await transport.handle_async_request(request)
            sent_on = response.status_code in _REDIRECTS and self._table.max_redirects > 0
            onward = response.headers.get("location") if sent_on else None
            content = b"" if onward is not None else await self._content(method, response)
        finally:
            await transport.aclose()
        return {
            "status": response.status_code,
            "url": str(url),
            "headers": dict(response.headers.items()),
            "content": content,
            "onward": onward,
        }

    async def _content(self, method: str, response: httpx.Response) -> bytes:
        packed = "" if method == "HEAD" else response.headers.get("content-encoding", "")
        return await bodies.gather(response.aiter_raw(), packed, self._table.max_bytes)

    async def _addresses(self, url: Url, *, private: bool) -> list[str]:
        """Return where the host is. Raises OperationError unless all of it may be asked."""
        if is_address(url.host):
            found = [str(ipaddress.ip_address(url.host.strip("[]")))]
        else:
            found = await self._resolve(url.host, url.port)
        if why := addresses.refusal(found, private=private):
            raise not_granted(f"{url.host}: {why}")
        return found

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            file = self._table.ca_file
            # Neither SSL_CERT_FILE nor anything else of the environment decides.
            self._context = (
                ssl.create_default_context(cafile=file)
                if file
                else httpx.create_ssl_context(trust_env=False)
            )
        return self._context


def _with(url: str, params: dict[str, str | int | float] | None) -> str:
    if not params:
        return url
    plain, _, _ = url.partition("#")
    return f"{plain}{'&' if '?' in plain else '?'}{urlencode(params)}"


def _headers(given: dict[str, str]) -> dict[str, str]:
    """Return a cell's headers by their names in small letters. Raises OperationError."""
    if len(given) > _MOST_HEADERS or sum(map(len, (*given, *given.values()))) > _LONGEST_HEADERS:
        raise OperationError("ValueError", "too many headers, or too long ones")
    found: dict[str, str] = {}
    for name, value in given.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise OperationError("ValueError", f"{name[:50]!r} is no header, or its value is none")
        if name.lower() in _OURS:
            raise OperationError("ValueError", f"{name!r} is a header that the host writes")
        found[name.lower()] = value
    return {"accept": "*/*", "user-agent": "cellblock"} | found
