"""Sessions over streamable HTTP: each has a sandbox, all are forks of one zygote.

Every request needs the bearer token. A session ends when its client says so, or has asked nothing
for a while: a stream that it holds open to be told of things is no question. Protocol 2026-07-28
has no sessions over HTTP, so a client that comes with it is told which versions there are, and
falls back (ADR 0152).
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
#: Names are looked at before a request gets to the SDK, which compares the beginnings of them.
_CHECKED: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)
#: Seconds that a new session waits for one that has ended to let go of its sandbox.
_ENDING: Final = 5.0


class _Client:
    """A session's transport, and when it ends for want of questions."""

    def __init__(self, number: str, idle: float) -> None:
        # Not the SDK's own deadline: it has none while a client holds a stream open (GET), as
        # most do from the beginning to the end.
        self.transport = StreamableHTTPServerTransport(number, security_settings=_CHECKED)
        #: Cancelled at its deadline.
        self.scope = anyio.CancelScope()
        self._idle, self._under_way = idle, 0

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. There is no deadline while a question is under way."""
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
        """End the session soon if its client does not come back: the first request was no good."""
        if not self._under_way:
            self.scope.deadline = min(self.scope.deadline, anyio.current_time() + seconds)


class HttpServer:
    """An ASGI application that opens a session for each client."""

    def __init__(self, pool: AsyncSandboxPool, settings: HttpSettings) -> None:
        self._pool, self._settings = pool, settings
        self._access = settings.access()
        self._app = RequestBodyLimitMiddleware(self._route, MAX_BODY)
        self._sessions: dict[str, _Client] = {}
        #: What serves each, until its sandbox has ended as well.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        given = request.headers
        refused = self._access.refusal(
            given.getlist("authorization"), given.getlist("host"), given.getlist("origin")
        )
        if refused is not None:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == _NO_TOKEN else None
            response: Response = PlainTextResponse(refused.text, refused.status, headers)
            await response(scope, receive, send)
        elif scope["path"].rstrip("/") != PATH:
            await PlainTextResponse(f"There is {PATH} only.", 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        for task in (tasks := tuple(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        """Open a session with its first request; one that fails leaves none."""
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
        """Whether one more may be opened: those that their clients have ended are waited for."""
        until = asyncio.get_running_loop().time() + _ENDING
        while len(self._sessions) >= self._settings.max_sessions:
            ended = (
                number for number, one in self._sessions.items() if one.transport.is_terminated
            )
            tasks = [self._tasks[number] for number in ended]
            left = until - asyncio.get_running_loop().time()
            if not tasks or left <= 0:
                return False
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def _serve(self, number: str, client: _Client, ready: asyncio.Future[None]) -> None:
        """Serve one session until its client ends it, or asks nothing for too long."""
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
    """Return a socket that clients can connect to from now on. Raises CellblockError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        where = f"{settings.host}, port {settings.port}"
        what = f"nothing can listen at {where}: {os.strerror(error.errno or 0)}"
        raise CellblockError(f"{what}. Choose another with --host or --port.") from None


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
