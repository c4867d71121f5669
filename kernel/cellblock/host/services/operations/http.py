"""``ops.http``: runs in the worker of operations, on its event loop.

Each hop is judged anew: its method, host, port and path (``urls``), then each address of the host
(``addresses``). A name is resolved once, and only those addresses are connected to, so it doesn't
matter what the name resolves to a moment later (DNS rebinding). TLS and the Host header use the
name. Nothing is kept from one call to the next, and no proxy, environment variable or cookie of
this machine takes part. The policy's credentials (``keys``) are added hop by hop, to a request that
was judged, and are removed from answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import ipaddress
import json as encoding
import re
import socket
import ssl
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urljoin

import certifi
import httpcore

from cellblock.host.services import addresses
from cellblock.host.services.operations import urls
from cellblock.host.services.operations.catalog import not_granted
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.operations.keys import Key, Keys, check_way, without_keys
from cellblock.host.services.tools.calls import KeyUse, report_use
from cellblock.policy.headers import FORWARDED_HEADERS, HOST_HEADERS, compared, is_header
from cellblock.policy.network import is_address

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterator,
        Mapping,
        Sequence,
    )

    from cellblock.host.services.operations.urls import Url
    from cellblock.policy.credentials import Credential
    from cellblock.policy.operations import Http

    Resolve = Callable[[str, int], Awaitable[list[str]]]


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER: Final = 303
#: Redirects after which a POST becomes a GET, as in all clients (RFC 9110, 15.4).
_REPEATED_AS_GET: Final = frozenset({301, 302})
#: Headers that state another method, path or host than the request does, and that some servers
#: obey. They would get around the policy's rules. Names with the wildcards of fnmatch.
_ROUTING_HEADERS: Final = (
    "*-method-override",
    "forwarded",
    "x-envoy-original-*",
    "x-forwarded-*",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-http-method*",
    "x-http-path-override",
    "x-method*",
    "x-ms-original-url",
    "x-original-*",
    "x-override-*",
    "x-proxy-url",
    "x-request-uri",
    "x-request-url",
    "x-rewrite-*",
    "x-script-name",
    "x-waws-unencoded-url",
)
#: The header with the second path of WebDAV's COPY and MOVE.
_DESTINATION: Final = "destination"
_ROUTING_PATTERN: Final = re.compile("|".join(map(fnmatch.translate, _ROUTING_HEADERS)))
_MAX_HEADERS, _MAX_HEADER_BYTES = 50, 16 * 1_024
#: Requests at the same time: each may hold an answer of ``max_bytes`` in memory.
_MAX_CONCURRENT: Final = 32
#: Addresses of one host that are tried.
_MAX_ADDRESSES: Final = 4
#: Methods whose requests have a Content-Length even without a body (RFC 9110, 8.6).
_METHODS_WITH_LENGTH: Final = frozenset({"PATCH", "POST", "PUT"})


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name. Raises OperationError."""
    loop = asyncio.get_running_loop()
    try:
        address_infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise OperationError("ConnectError", f"{host}: no such host") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in address_infos))


class Fetcher:
    """The client for requests that the policy's section ``table`` grants.

    ``credentials`` are the policy's, by name. ``resolve`` returns the addresses of a name.
    """

    def __init__(
        self,
        table: Http,
        resolve: Resolve = resolve,
        *,
        credentials: Mapping[str, Credential] = MappingProxyType({}),
    ) -> None:
        self._table, self._resolve = table, resolve
        self._keys = Keys(credentials)
        self._rules = urls.HttpRules(table)
        self._context: ssl.SSLContext | None = None
        self._room = asyncio.Semaphore(_MAX_CONCURRENT)

    async def http(
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
        """Make a request, as ``catalog.HTTP`` describes."""
        seconds = min(self._table.timeout, timeout or self._table.timeout)
        sent_headers = _headers(headers or {}, self._table.paths)
        body = self._body(json, data, sent_headers)
        try:
            async with asyncio.timeout(max(0.0, seconds)), self._room:
                return await self._follow(
                    method, urls.parse_url(_with_params(url, params)), sent_headers, body
                )
        except TimeoutError:
            message = f"it took longer than {seconds:g} s (timeout)"
            raise OperationError("TimeoutError", message) from None

    def _body(self, json: Any, data: str | bytes | None, headers: dict[str, str]) -> bytes | None:
        """Return the body to send, or None. For JSON, add a content type to ``headers``.

        Raises OperationError for one that is too large.
        """
        if json is not None:
            if data is not None:
                raise OperationError("ValueError", "give json or data, not both")
            headers.setdefault("content-type", "application/json")
            data = encoding.dumps(json)
        body = data.encode() if isinstance(data, str) else data
        if body is not None and len(body) > self._table.max_bytes:
            most = self._table.max_bytes
            message = f"its body has {len(body):,} bytes; {most:,} may be sent (max_bytes)"
            raise OperationError("TooLarge", message)
        return body

    async def _follow(
        self, method: str, url: Url, headers: dict[str, str], body: bytes | None
    ) -> dict[str, Any]:
        """Make a request and follow its redirects. Return the last answer."""
        #: The keys that any request of this call has carried, which are removed from its answer.
        carried = list[Key]()
        for _ in range(self._table.max_redirects + 1):
            answer, redirect = await self._request(method, url, headers, body, carried)
            if redirect is None:
                return answer
            before, url = url, urls.parse_url(urljoin(str(url), redirect))
            if url.origin != before.origin:
                headers = {
                    name: value for name, value in headers.items() if name in FORWARDED_HEADERS
                }
            status = answer["status"]
            if status == _SEE_OTHER or (status in _REPEATED_AS_GET and method == "POST"):
                method, body = "HEAD" if method == "HEAD" else "GET", None
        message = f"it was sent on more than {self._table.max_redirects} times (max_redirects)"
        raise OperationError("TooManyRedirects", message)

    async def _request(
        self,
        method: str,
        url: Url,
        headers: dict[str, str],
        body: bytes | None,
        carried: list[Key],
    ) -> tuple[dict[str, Any], str | None]:
        """Make one request; return its answer, and the address of a redirect to follow or None.

        The body of such a redirect is not read. The keys that the request carries are added to
        ``carried``.
        """
        private = self._rules.check(method, url)
        keys = self._keys.at(url, headers)
        if is_address(url.host):
            resolved = [str(ipaddress.ip_address(url.host.strip("[]")))]
        else:
            resolved = await self._resolve(url.host, url.port)
        if why := addresses.refusal(resolved, private=private):
            raise not_granted(f"{url.host}: {why}")
        check_way(url, keys, resolved)
        own_headers = {"host": url.authority, "accept-encoding": "identity", "connection": "close"}
        if body is None and method in _METHODS_WITH_LENGTH:
            body = b""
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self._tls() if url.scheme == "https" else None,
            max_connections=1,
            http1=True,
            http2=False,
            network_backend=_PinnedBackend(resolved),
        )
        address = httpcore.URL(
            scheme=url.scheme.encode(),
            host=url.host.strip("[]").encode(),
            port=url.port,
            target=url.target.encode(),
        )
        for key in keys:
            report_use(KeyUse(key.name, url.authority, method, url.path))
        carried += keys
        own_headers |= dict(key.field for key in keys)
        raw = [(name.encode(), value.encode()) for name, value in (headers | own_headers).items()]
        with _http_errors_of(url.host):
            async with pool, pool.stream(method, address, headers=raw, content=body) as response:
                # Keys are removed before the headers are read for a redirect, so that a location
                # can't carry a key to another host.
                received = _decode_headers(response.headers, carried)
                sends_on = response.status in _REDIRECTS and self._table.max_redirects > 0
                redirect = received.get("location") if sends_on else None
                content = b""
                if redirect is None:
                    packed = "" if method == "HEAD" else received.get("content-encoding", "")
                    chunks = response.aiter_stream()
                    content = await _read_body(chunks, packed, self._table.max_bytes)
                    content = without_keys(content, carried)
        answer = {"status": response.status, "url": str(url), "headers": received}
        return answer | {"content": content}, redirect

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            # Named here, so that SSL_CERT_FILE and other variables don't count.
            file = self._table.ca_file or certifi.where()
            self._context = ssl.create_default_context(cafile=file)
        return self._context


class _PinnedBackend(httpcore.AnyIOBackend):
    """A backend that connects to one of ``addresses``, whatever host the pool names."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses[:_MAX_ADDRESSES]

    async def connect_tcp(
        self, host: str, port: int, *rest: Any, **options: Any
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to the first address that accepts one."""
        del host
        last: Exception = httpcore.ConnectError("it has no address")
        for address in self._addresses:
            try:
                return await super().connect_tcp(address, port, *rest, **options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                last = exc
        raise last


@contextlib.contextmanager
def _http_errors_of(host: str) -> Iterator[None]:
    """Raise exceptions of httpcore as OperationError."""
    try:
        yield
    except httpcore.TimeoutException:
        raise OperationError("TimeoutError", f"{host}: it does not answer") from None
    except httpcore.NetworkError as exc:
        raise OperationError("ConnectError", f"{host}: {_cause(exc)}") from None
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
        raise OperationError("ProtocolError", f"{host}: its answer is not plain HTTP") from None


def _cause(error: BaseException | None) -> str:
    """Return the cause of an error, in words that reveal nothing of this machine."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not valid: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"no TLS: {error.reason or 'the connection was closed'}"
        if isinstance(error, OSError) and error.strerror and not isinstance(error, socket.gaierror):
            return error.strerror
        error = error.__cause__ or error.__context__
    return "the connection failed"


def _with_params(url: str, params: dict[str, str | int | float] | None) -> str:
    if not params:
        return url
    plain, _, _ = url.partition("#")
    return f"{plain}{'&' if '?' in plain else '?'}{urlencode(params)}"


def _headers(cell_headers: dict[str, str], paths: Collection[str]) -> dict[str, str]:
    """Return a cell's headers, with names in lower case and defaults. Raises OperationError.

    ``paths`` are those that the policy grants.
    """
    if (
        len(cell_headers) > _MAX_HEADERS
        or sum(map(len, (*cell_headers, *cell_headers.values()))) > _MAX_HEADER_BYTES
    ):
        raise OperationError("ValueError", "too many headers, or too long ones")
    headers: dict[str, str] = {}
    for name, value in cell_headers.items():
        if not is_header(name, value):
            raise OperationError("ValueError", f"{name[:50]!r} or its value is not valid")
        canonical_name = compared(name)
        if canonical_name in HOST_HEADERS:
            raise OperationError("ValueError", f"{name!r} is a header that the host writes")
        if _ROUTING_PATTERN.fullmatch(canonical_name) or (
            canonical_name == _DESTINATION and "/" not in paths
        ):
            reason = "some servers take another method, path or host from it"
            raise not_granted(f"{name!r}: {reason}. Ask for those with method and url")
        headers[name.lower()] = value
    return {"accept": "*/*", "user-agent": "cellblock"} | headers


def _decode_headers(raw: Sequence[tuple[bytes, bytes]], carried: Sequence[Key]) -> dict[str, str]:
    """Return an answer's headers without keys: names in lower case, values of the same joined."""
    headers: dict[str, str] = {}
    try:
        pairs = [(name.decode(), value.decode()) for name, value in raw]
    except UnicodeDecodeError:
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
    for name, value in pairs:
        key = without_keys(name, carried).lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return {name: without_keys(value, carried) for name, value in headers.items()}


async def _read_body(chunks: AsyncIterator[bytes], encoding: str, most: int) -> bytes:
    """Return a whole body. Raises OperationError beyond ``most`` bytes, and if it is compressed."""
    if encoding.strip().lower() not in ("", "identity"):
        message = f"its body is compressed as {encoding[:40]!r}, which was not asked for"
        raise OperationError("ProtocolError", message)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise OperationError("TooLarge", f"its body has more than {most:,} bytes (max_bytes)")
    return bytes(body)
