"""Tools of the operator's MCP servers, as functions: imported in a worker of their own.

A server is the operator's choice, and what it says is untrusted text: names become identifiers
with the server's name before them, so that none takes the place of another function; descriptions
are cleaned and bounded; a schema that can't be checked in bounded time is refused. Which tools
there are, and what they take, is as at the start: a server can't put others in their place later.

Arguments are checked against the tool's schema here, before the server gets them. Budgets, time
limits, approvals and the audit log are those of all tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import keyword
import os
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from cellblock.errors import AdmissionError
from cellblock.host.consent.template_schema import checker
from cellblock.host.output.text import clean_line, clean_text
from cellblock.host.services.operations.catalog import OperationError
from cellblock.host.services.tools.registry import InvalidToolError, RegisteredTool
from cellblock.render.text import visible_lines
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.admission import Problem
    from cellblock.policy.model import McpServer

#: Seconds that a server has to start and name its tools: less than the host waits for all.
STARTING: Final = 40.0
#: Tools of one server, pages of their list, parameters of one, and characters of its description.
MAX_TOOLS: Final = 200
_MAX_PAGES: Final = 20
_MAX_PARAMETERS: Final = 60
_MAX_DOC: Final = 4_000
_MAX_LINE: Final = 200
_ALL: Final = "*"
_REQUIRED, _OPTIONAL, _ANY = 1, 3, 4
_TYPES: Final = {
    "array": "list",
    "boolean": "bool",
    "integer": "int",
    "null": "None",
    "number": "float",
    "object": "dict",
    "string": "str",
}
#: Starts a program that the OS kernel ends with this worker.
_ENDS_WITH_US: Final = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


class McpError(Exception):
    """A server's own error; its text is the server's."""


def connect(servers: Mapping[str, McpServer]) -> dict[str, RegisteredTool]:
    """Connect to all servers; return their tools by the names that cells have for them.

    Raises InvalidToolError for the first server or tool that can't be had.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="mcp").start()
    found: dict[str, RegisteredTool] = {}
    for name, server in servers.items():
        client, tools = asyncio.run_coroutine_threadsafe(_opened(name, server), loop).result()
        wanted = [tool for tool in tools if _ALL in server.tools or tool.name in server.tools]
        missing = set(server.tools) - {_ALL} - {tool.name for tool in tools}
        if missing:
            shown = ", ".join(clean_line(tool.name, 60) for tool in tools[:20])
            remedy = f"It has: {shown or 'none'}."
            raise InvalidToolError(name, f"it has no tool {min(missing)}", remedy)
        for tool in wanted:
            made = _registered(name, tool, client, loop)
            if made.tool.name in found:
                message = f"two of its tools are {made.tool.name} in cells"
                raise InvalidToolError(name, message, "Name one of them in its tools.")
            found[made.tool.name] = made
    return found


async def _opened(name: str, server: McpServer) -> tuple[Client, list[types.Tool]]:
    """Start a server's task; return its client and what it offers. Raises InvalidToolError."""
    ready = asyncio.get_running_loop().create_future()
    _TASKS.add(asyncio.create_task(_serve(server, ready), name=name))
    try:
        return await asyncio.wait_for(ready, STARTING)
    except TimeoutError:
        message = f"it did not start within {STARTING:g} s"
    except Exception as exc:  # whatever a program or a network does
        message = f"it can't be had: {_cause(exc)}"
    what = server.url or " ".join(server.command)
    raise InvalidToolError(name, message, f"Try it by itself: {what}")


#: They would be collected otherwise.
_TASKS: Final = set[asyncio.Task[None]]()


async def _serve(server: McpServer, ready: asyncio.Future[tuple[Client, list[types.Tool]]]) -> None:
    """Keep a connection: what opens one has to close it, so it is one task."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(_client(server, stack))
            tools, cursor = list[types.Tool](), None
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                if (cursor := page.next_cursor) is None or len(tools) > MAX_TOOLS:
                    break
            ready.set_result((client, tools[:MAX_TOOLS]))
            await asyncio.Event().wait()
    except BaseException as exc:
        if ready.done():
            raise
        ready.set_exception(exc if isinstance(exc, Exception) else McpError("it was ended"))


def _client(server: McpServer, stack: contextlib.AsyncExitStack) -> Client:
    if server.url:
        token = os.environ.get(server.token_env, "") if server.token_env else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        web = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=None))
        stack.push_async_callback(web.aclose)
        return Client(streamable_http_client(server.url, http_client=web), cache=None)
    options = ["-I", "-S", "-c", _ENDS_WITH_US, str(os.getpid()), *server.command]
    env = {name: os.environ[name] for name in server.env if name in os.environ}
    return Client(StdioServerParameters(command=sys.executable, args=options, env=env), cache=None)


def _cause(error: BaseException) -> str:
    """Return the error within groups of errors, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return clean_line(f"{type(error).__name__}: {error}", _MAX_LINE)


# --- a server's tool as a function ------------------------------------------------------------


def _registered(
    server: str, tool: types.Tool, client: Client, loop: asyncio.AbstractEventLoop
) -> RegisteredTool:
    """Return a tool as cells have it. Raises InvalidToolError."""
    name = f"{server}_{re.sub(r'[^0-9A-Za-z_]', '_', tool.name)}"[:_MAX_LINE]
    schema = tool.input_schema
    try:
        check = checker(schema, f"tools.mcp.{server}")
    except (AdmissionError, RecursionError) as exc:
        message = f"the schema of {clean_line(tool.name, 60)} can't be used: {exc}"
        raise InvalidToolError(server, message[:1_000], "Leave it out of its tools.") from None
    parameters = _parameters(schema)
    required = [one.name for one in parameters if one.kind == _REQUIRED]

    async def call(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(name, required, args, kwargs, check)
        answer = asyncio.run_coroutine_threadsafe(client.call_tool(tool.name, given), loop)
        try:
            return _value(await asyncio.wrap_future(answer))
        except (asyncio.CancelledError, McpError):
            raise
        except Exception as exc:
            forgot = str(exc) == "Session terminated"
            if isinstance(exc, MCPError) and (forgot or exc.code == types.CONNECTION_CLOSED):
                os._exit(1)  # the next call starts a worker, and that the server
            raise McpError(_cause(exc)) from None

    made = Tool(name=name, parameters=parameters, doc=_doc(server, tool, parameters), is_async=True)
    return RegisteredTool(made, call)


def _arguments(
    name: str,
    required: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    check: Callable[[Any], tuple[Problem, ...]],
) -> dict[str, Any]:
    """Return a call's arguments by name. Raises OperationError for what does not fit."""
    if len(args) > len(required):
        message = f"{name} takes {len(required)} arguments without a name"
        raise OperationError("ValidationError", message)
    positional = dict(zip(required, args, strict=False))
    if twice := positional.keys() & kwargs.keys():
        raise OperationError("ValidationError", f"{min(twice)} is given twice")
    given = positional | kwargs
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise OperationError("ValidationError", f"it is no JSON data: {exc}"[:500]) from None
    if problems := check(given):
        said = "; ".join(f"{one.path}: {one.message}" for one in problems[:5])
        raise OperationError("ValidationError", said)
    return given


def _parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return a signature for a schema: what is required by place or name, the rest by name."""
    properties = schema.get("properties")
    named: dict[str, Any] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set[Any]()
    fits = {
        key: own
        for key, own in list(named.items())[:_MAX_PARAMETERS]
        if key.isidentifier() and not keyword.iskeyword(key) and len(key) <= _MAX_LINE
    }
    found = [_parameter(key, own, _REQUIRED) for key, own in fits.items() if key in needed]
    found += [_parameter(key, own, _OPTIONAL) for key, own in fits.items() if key not in needed]
    if len(fits) < len(named) or not named:
        rest = "arguments"
        while rest in fits:
            rest += "_"
        found.append(Parameter(name=rest, kind=_ANY))
    return tuple(found)


def _parameter(name: str, own: Any, kind: int) -> Parameter:
    known: Mapping[str, Any] = own if isinstance(own, dict) else {}
    said = known.get("type")
    names = said if isinstance(said, list) else [said]
    annotation = " | ".join(_TYPES[one] for one in names if isinstance(one, str) and one in _TYPES)
    default = None if kind == _REQUIRED else repr(known.get("default"))
    if default is not None and len(default) > _MAX_LINE:
        default = "..."
    return Parameter(name=name, kind=kind, annotation=annotation, default=default)


def _doc(server: str, tool: types.Tool, parameters: tuple[Parameter, ...]) -> str:
    """Return what ``NAME_TOOL?`` shows: the server's words, cleaned, and whose they are."""
    lines = [f"A tool of the MCP server {server}, which says of it:", "", tool.description or ""]
    properties = tool.input_schema.get("properties")
    for one in parameters:
        own = properties.get(one.name) if isinstance(properties, dict) else None
        said = own.get("description") if isinstance(own, dict) else None
        if isinstance(said, str):
            lines.append(f"{one.name}: {clean_line(said, _MAX_LINE)}")
    return visible_lines(clean_text("\n".join(lines))[:_MAX_DOC])


def _value(result: types.CallToolResult) -> Any:
    """Return what a cell gets: structured data, or text, or blocks. Raises McpError."""
    texts = [one.text for one in result.content if isinstance(one, types.TextContent)]
    if result.is_error:
        raise McpError("\n".join(texts)[:2_000])
    if result.structured_content is not None:
        return result.structured_content
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [one.model_dump(mode="json", exclude_none=True) for one in result.content]
