"""The MCP server over streamable HTTP: many sessions, whose sandboxes share a zygote.

Every request needs the bearer token (``mcp.access``). A session ends when its client ends it, or
when its client has made no request for a while. A stream that a client holds open to receive
notifications (GET) does not count as a request. Protocol 2026-07-28 has no sessions over HTTP: a
client that asks for that version gets the list of supported versions, and falls back (ADR 0048).

    _open ─> _serve: Session, transport ─> serving ─> session and sandbox ended
               │ first request fails            │ client ends it, or is idle
               └────────────> cancelled <───────┘
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import anyio
import mcp_types as types
import uvicorn
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from cellblock.errors import CellblockError
from cellblock.mcp.server import make_server
from cellblock.mcp.session import Session

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from cellblock.api.sandbox import AsyncSandboxPool
    from cellblock.mcp.settings import HttpSettings

PATH: Final = "/mcp"
#: Bytes of a request: a cell's source is at most 4 MiB, and JSON may double it.
MAX_BODY: Final = 10 << 20
_ERROR: Final = 400
_NO_TOKEN: Final = 401
#: The SDK's own check of names is off: it compares only the beginnings of names, and
#: ``mcp.access`` has checked them before a request reaches the SDK.
_CHECKED: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)
#: Seconds that a new session waits for the place of a session that is ending.
_ENDING: Final = 5.0


class _Client:
    """The transport of a session, and the deadline at which the session ends if it is idle."""

    def __init__(self, number: str, idle: float) -> None:
        # The SDK's own idle timeout is not used: it doesn't run while a client holds a stream open
        # (GET), which most clients do all the time.
        self.transport = StreamableHTTPServerTransport(number, security_settings=_CHECKED)
        #: Ends the session when its deadline passes.
        self.scope = anyio.CancelScope()
        self._idle = idle
        #: The number of requests that are being answered, without streams.
        self._under_way = 0

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. The session has no deadline while any request is being answered."""
        if scope["method"] == "GET":
            await self.transport.handle_request(scope, receive, send)
            return
        self._under_way += 1
        self.scope.deadline = math.inf
        try:
            await self.transport.handle_request(scope, receive, send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.scope.deadline = anyio.current_time() + self._idle

    def expect_more(self, seconds: float) -> None:
        """End the session if no further request comes within ``seconds``.

        Called after the first request: a client that stops there did not get what it needs.
        """
        if not self._under_way:
            self.scope.deadline = min(self.scope.deadline, anyio.current_time() + seconds)


class HttpServer:
    """An ASGI application that opens a session for each client."""

    def __init__(self, pool: AsyncSandboxPool, settings: HttpSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._access = settings.access()
        self._app = RequestBodyLimitMiddleware(self._route, MAX_BODY)
        #: The sessions that may be used, by id.
        self._sessions: dict[str, _Client] = {}
        #: The task that serves each session, until the session's sandbox has ended too.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Nothing of a request is read before its headers are checked."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        request_headers = request.headers
        refusal = self._access.refusal(
            request_headers.getlist("authorization"),
            request_headers.getlist("host"),
            request_headers.getlist("origin"),
        )
        if refusal is not None:
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == _NO_TOKEN else None
            response: Response = PlainTextResponse(refusal.text, refusal.status, headers)
            await response(scope, receive, send)
        elif scope["path"].rstrip("/") != PATH:
            await PlainTextResponse(f"There is {PATH} only.", 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def close(self) -> None:
        """End all sessions, and wait until their sandboxes have ended."""
        for task in (tasks := tuple(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that was let in: by its session, or by a new one."""
        request = Request(scope, receive)
        version = request.headers.get("mcp-protocol-version")
        number = request.headers.get("mcp-session-id")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            response = await _other_version(request, version)
            await response(scope, receive, send)
        elif number is None:
            await self._open(scope, receive, send)
        elif (client := self._sessions.get(number)) is not None:
            await client.answer(scope, receive, send)
        else:
            await _error("No such session", 404)(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open a session, and answer its first request. If that fails, end the session."""
        if not await self._has_room():
            await _error("Too many open sessions", 503)(scope, receive, send)
            return
        number = uuid4().hex
        client = self._sessions[number] = _Client(number, self._settings.idle)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._serve(number, client, ready))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))
        status = _ERROR

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await ready
            await client.answer(scope, receive, watch)
            client.expect_more(self._settings.opening)
        finally:
            if status >= _ERROR:
                self._sessions.pop(number, None)
                task.cancel()

    async def _has_room(self) -> bool:
        """Return whether another session may be opened.

        If there are too many, wait a while for sessions that their clients have ended.
        """
        until = asyncio.get_running_loop().time() + _ENDING
        while len(self._sessions) >= self._settings.max_sessions:
            ended_sessions = (
                number
                for number, client in self._sessions.items()
                if client.transport.is_terminated
            )
            tasks = [self._tasks[number] for number in ended_sessions]
            seconds_left = until - asyncio.get_running_loop().time()
            if not tasks or seconds_left <= 0:
                return False
            await asyncio.wait(tasks, timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def _serve(self, number: str, client: _Client, ready: asyncio.Future[None]) -> None:
        """Serve a session until its client ends it, or is idle for too long.

        ``ready`` is done when the transport can take requests.
        """
        try:
            async with Session(self._pool) as session:
                server = make_server(session)
                async with client.transport.connect() as (read, write):
                    ready.set_result(None)
                    with client.scope:
                        await server.run(read, write, server.create_initialization_options())
                    await client.transport.terminate()
        finally:
            self._sessions.pop(number, None)
            if not ready.done():
                ready.cancel()


async def _other_version(request: Request, version: str) -> Response:
    """Return the response to a request of an unsupported version: the versions that there are."""
    try:
        number = (await request.json()).get("id")
    except (ValueError, AttributeError, RecursionError):
        number = None
    data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version[:100]}
    return _error(
        "Unsupported protocol version: sessions need the initialize handshake",
        _ERROR,
        code=types.UNSUPPORTED_PROTOCOL_VERSION,
        number=number if isinstance(number, int | str) else None,
        data=data,
    )


def _error(
    message: str,
    status: int,
    *,
    code: int = types.INVALID_REQUEST,
    number: int | str | None = None,
    data: Any = None,
) -> Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error}, status)


def listen(settings: HttpSettings) -> socket.socket:
    """Return a socket that listens for clients. Raises CellblockError if that can't be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        address = f"{settings.host}, port {settings.port}"
        problem = f"nothing can listen at {address}: {os.strerror(error.errno or 0)}"
        raise CellblockError(f"{problem}. Choose another with --host or --port.") from None


async def serve_http(
    pool: AsyncSandboxPool, settings: HttpSettings, listening: socket.socket
) -> None:
    """Serve clients until a signal ends the process."""
    app = HttpServer(pool, settings)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    try:
        await uvicorn.Server(config).serve(sockets=[listening])
    finally:
        await app.close()
