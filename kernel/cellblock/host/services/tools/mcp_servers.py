"""Tools of the operator's MCP servers, as functions that cells call.

A worker of their own imports this module and calls ``connect``. The operator chooses the servers,
but their texts are not trusted. The name of a tool becomes an identifier that begins with the
server's name, so that it can't take the place of another function. Descriptions are cleaned and
bounded. A schema that can't be checked in bounded time is refused. Tools and schemas are those of
the start: a server can't replace them later.

Arguments are checked against the tool's schema here, before the server gets them. Budgets, time
limits, approvals and the audit log are the same as for all tools.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from cellblock.errors import AdmissionError
from cellblock.host.consent.template_schema import checker
from cellblock.host.output.text import clean_line, clean_text
from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.secret_values import NoSecretError, read_secret
from cellblock.host.services.tools.path_free import without_paths
from cellblock.host.services.tools.registry import InvalidToolError, RegisteredTool
from cellblock.host.services.tools.worker import CHANGED
from cellblock.render.text import visible_lines
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.admission import Problem
    from cellblock.policy.mcp_servers import McpServer

#: Seconds for a server to start and list its tools: less than the host waits for a worker.
STARTING: Final = 40.0
#: The most tools of one server and pages of their list, parameters of a tool, and characters of its
#: description.
MAX_TOOLS: Final = 200
_MAX_PAGES: Final = 20
_MAX_PARAMETERS: Final = 60
_MAX_DOC: Final = 4_000
_MAX_LINE: Final = 200
#: Levels of a type hint that is made from a schema, and types in a union.
_MAX_DEPTH: Final = 3
_MAX_PARTS: Final = 5
_ALL_TOOLS: Final = "*"
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
#: Code that starts a server's program so that the OS kernel ends it with this worker.
_ENDS_WITH_US: Final = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


class McpError(Exception):
    """An error that a server reports, with the server's text."""


def connect(servers: Mapping[str, McpServer]) -> dict[str, RegisteredTool]:
    """Connect to all servers, and return their tools by the names that cells call.

    Raises InvalidToolError for the first server or tool that can't be used.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="mcp").start()
    registered: dict[str, RegisteredTool] = {}
    for name, settings in servers.items():
        server = _Server(name, settings)
        tools = asyncio.run_coroutine_threadsafe(server.opened(), loop).result().tools
        listed = [
            tool for tool in tools if _ALL_TOOLS in settings.tools or tool.name in settings.tools
        ]
        missing = set(settings.tools) - {_ALL_TOOLS} - {tool.name for tool in tools}
        if missing:
            tool_names = ", ".join(clean_line(tool.name, 60) for tool in tools[:20])
            remedy = f"It has: {tool_names or 'none'}."
            raise InvalidToolError(name, f"it has no tool {min(missing)}", remedy)
        for tool in listed:
            registered_tool = _registered(server, tool, loop)
            if registered_tool.tool.name in registered:
                message = f"two of its tools are {registered_tool.tool.name} in cells"
                raise InvalidToolError(name, message, "Name one of them in its tools.")
            registered[registered_tool.tool.name] = registered_tool
    return registered


class _Connection(NamedTuple):
    """A connection to a server, and the tools that the server has there. ``task`` keeps it open."""

    client: Client
    tools: list[types.Tool]
    task: asyncio.Task[None]


class _Server:
    """A server, which is connected to when it is needed, and again after a connection was lost.

    All methods are called on one loop.
    """

    def __init__(self, name: str, settings: McpServer) -> None:
        self.name = name
        self._settings = settings
        #: Opens the connection, and has it as its result; None without a connection.
        self._opening: asyncio.Task[_Connection] | None = None

    async def opened(self) -> _Connection:
        """Return the connection, opened if there is none. Raises InvalidToolError.

        If this call is cancelled, the connection still opens for other calls that wait for it.
        """
        return await asyncio.shield(self._open_once())

    def _open_once(self) -> asyncio.Task[_Connection]:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return self._opening

    async def _open(self) -> _Connection:
        """Open a connection. Raises InvalidToolError."""
        ready = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_serve(self._settings, ready), name=self.name)
        remedy = f"Try it by itself: {self._settings.url or ' '.join(self._settings.command)}"
        try:
            client, tools = await asyncio.wait_for(ready, STARTING)
            return _Connection(client, tools, task)
        except TimeoutError:
            message = f"it did not start within {STARTING:g} s"
        except NoSecretError as exc:
            message = exc.message
            remedy = exc.remedy
        except Exception as exc:  # a program or a network may raise anything
            message = f"it can't be had: {_cause(exc)}"
        self._opening = None
        task.cancel()
        raise InvalidToolError(self.name, message, remedy)

    async def call(self, tool: types.Tool, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool that the server had at the start.

        Raises OperationError if the server is lost, or the tool has another schema by now, and the
        exceptions of the SDK.
        """
        opening = self._open_once()
        try:
            connection = await asyncio.shield(opening)
        except InvalidToolError as exc:
            message = without_paths(f"the MCP server {self.name}: {exc.message}")
            raise OperationError("WorkerLost", message) from None
        same_name = (each for each in connection.tools if each.name == tool.name)
        if not any(_schemas(each) == _schemas(tool) for each in same_name):
            raise OperationError("WorkerLost", CHANGED)
        try:
            return await connection.client.call_tool(tool.name, arguments)
        except MCPError as exc:
            if exc.code != types.CONNECTION_CLOSED and str(exc) != "Session terminated":
                raise
        connection.task.cancel()
        if self._opening is opening:  # otherwise another call has opened one since
            self._opening = None
        how_ended = "closed the connection" if self._settings.url else "ended"
        again = "makes another" if self._settings.url else "starts it again"
        message = f"the MCP server {self.name} has {how_ended}: the next call {again}"
        raise OperationError("WorkerLost", message)


def _schemas(tool: types.Tool) -> tuple[Any, Any]:
    return tool.input_schema, tool.output_schema


async def _serve(server: McpServer, ready: asyncio.Future[tuple[Client, list[types.Tool]]]) -> None:
    """Open a connection, set ``ready`` to it and its tools, and keep it open until cancelled.

    One task does it all, since the SDK's connection must be closed by the task that opened it.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(_client(server, stack))
            tools = list[types.Tool]()
            cursor = None
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                if (cursor := page.next_cursor) is None or len(tools) > MAX_TOOLS:
                    break
            ready.set_result((client, tools[:MAX_TOOLS]))
            await asyncio.Event().wait()
    except BaseException as exc:
        if not ready.done():
            ready.set_exception(exc if isinstance(exc, Exception) else McpError("it was ended"))
        elif not isinstance(exc, Exception):  # after an Exception, calls find the connection closed
            raise


def _client(server: McpServer, stack: contextlib.AsyncExitStack) -> Client:
    """Return a client for a server's URL, or for its program. Raises NoSecretError."""
    if server.url:
        token_env = server.token_env
        headers = (
            {"Authorization": f"Bearer {read_secret(f'env:{token_env}')}"} if token_env else {}
        )
        web = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=None))
        stack.push_async_callback(web.aclose)
        return Client(streamable_http_client(server.url, http_client=web), cache=None)
    options = ["-I", "-S", "-c", _ENDS_WITH_US, str(os.getpid()), *server.command]
    env = {name: os.environ[name] for name in server.env if name in os.environ}
    return Client(StdioServerParameters(command=sys.executable, args=options, env=env), cache=None)


def _cause(error: BaseException) -> str:
    """Return the first error within groups of errors, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return clean_line(f"{type(error).__name__}: {error}", _MAX_LINE)


# --- a server's tool as a function ------------------------------------------------------------


def _registered(
    server: _Server, tool: types.Tool, loop: asyncio.AbstractEventLoop
) -> RegisteredTool:
    """Return a server's tool as one that cells call. Raises InvalidToolError."""
    server_name = server.name
    name = f"{server_name}_{re.sub(r'[^0-9A-Za-z_]', '_', tool.name)}"[:_MAX_LINE]
    schema = tool.input_schema
    try:
        check = checker(schema, f"tools.mcp.{server_name}")
    except (AdmissionError, RecursionError) as exc:
        message = f"the schema of {clean_line(tool.name, 60)} can't be used: {exc}"
        raise InvalidToolError(server_name, message[:1_000], "Leave it out of its tools.") from None
    parameters = _parameters(schema)
    required = [each.name for each in parameters if each.kind == _REQUIRED]
    returned = tool.output_schema or {}
    wrapped = _wrapped(returned)

    def check_given(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return _arguments(name, required, args, kwargs, check)

    async def call(*args: Any, **kwargs: Any) -> Any:
        arguments = check_given(*args, **kwargs)
        answer = asyncio.run_coroutine_threadsafe(server.call(tool, arguments), loop)
        try:
            return _value(await asyncio.wrap_future(answer), is_wrapped=wrapped is not None)
        except (asyncio.CancelledError, McpError, OperationError):
            raise
        except Exception as exc:
            raise McpError(_cause(exc)) from None

    local_tool = Tool(
        name=name,
        parameters=parameters,
        returns=_hint(returned if wrapped is None else wrapped),
        doc=_doc(server_name, tool, parameters),
        is_async=True,
    )
    return RegisteredTool(local_tool, call, check_given)


def _wrapped(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of the value in an object whose only field is ``result``; otherwise None.

    Structured content must be an object, so the SDKs wrap any other result in such an object.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or list(properties) != ["result"]:
        return None
    value = properties["result"]
    only = schema.get("required") == ["result"] and not schema.get("additionalProperties")
    return value if only and isinstance(value, dict) else None


def _hint(schema: Any, depth: int = 0) -> str:
    """Return a type hint for a schema, or "" if there is no short one."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return ""
    if isinstance(alternatives := schema.get("anyOf"), list):
        hints = (
            [_hint(alternative, depth + 1) for alternative in alternatives]
            if len(alternatives) <= _MAX_PARTS
            else [""]
        )
        return " | ".join(dict.fromkeys(hints)) if all(hints) else ""
    kind = schema.get("type")
    names = kind if isinstance(kind, list) else [kind]
    hints = [_TYPES[name] for name in names if isinstance(name, str) and name in _TYPES]
    items = _hint(schema.get("items"), depth + 1)
    return " | ".join(f"list[{items}]" if hint == "list" and items else hint for hint in hints)


def _arguments(
    name: str,
    required: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    check: Callable[[Any], tuple[Problem, ...]],
) -> dict[str, Any]:
    """Return a call's arguments by name. Raises OperationError if they do not fit."""
    if len(args) > len(required):
        message = f"{name} takes {len(required)} arguments without a name"
        raise OperationError("ValidationError", message)
    positional = dict(zip(required, args, strict=False))
    if twice := positional.keys() & kwargs.keys():
        raise OperationError("ValidationError", f"{min(twice)} is given twice")
    arguments = positional | kwargs
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise OperationError("ValidationError", f"it is no JSON data: {exc}"[:500]) from None
    if problems := check(arguments):
        message = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:5])
        raise OperationError("ValidationError", message)
    return arguments


def _parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters for a schema: required ones first, optional ones by name only.

    Properties that can't be names in Python, or are too many, go into ``**arguments``.
    """
    properties = schema.get("properties")
    properties_by_name: dict[str, Any] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set[Any]()
    fits = {
        key: inner
        for key, inner in list(properties_by_name.items())[:_MAX_PARAMETERS]
        if key.isidentifier() and not keyword.iskeyword(key) and len(key) <= _MAX_LINE
    }
    parameters = [_parameter(key, inner, _REQUIRED) for key, inner in fits.items() if key in needed]
    parameters += [
        _parameter(key, inner, _OPTIONAL) for key, inner in fits.items() if key not in needed
    ]
    if len(fits) < len(properties_by_name) or not properties_by_name:
        rest = "arguments"
        while rest in fits:
            rest += "_"
        parameters.append(Parameter(name=rest, kind=_ANY))
    return tuple(parameters)


def _parameter(name: str, schema: Any, kind: int) -> Parameter:
    schema_dict: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    default = None if kind == _REQUIRED else repr(schema_dict.get("default"))
    if default is not None and len(default) > _MAX_LINE:
        default = "..."
    return Parameter(name=name, kind=kind, annotation=_hint(schema_dict), default=default)


def _doc(server: str, tool: types.Tool, parameters: tuple[Parameter, ...]) -> str:
    """Return the text that ``NAME_TOOL?`` shows: the server's, cleaned, and attributed to it."""
    first, _, rest = (tool.description or "").strip().partition("\n")
    # The attribution shares a line with the text, since lists of tools show the first line only.
    lines = [f"The MCP server {server} says of it: {first or 'nothing'}", *([rest] * bool(rest))]
    properties = tool.input_schema.get("properties")
    for parameter in parameters:
        schema = properties.get(parameter.name) if isinstance(properties, dict) else None
        description = schema.get("description") if isinstance(schema, dict) else None
        if isinstance(description, str):
            lines.append(f"{parameter.name}: {clean_line(description, _MAX_LINE)}")
    return visible_lines(clean_text("\n".join(lines))[:_MAX_DOC])


def _value(result: types.CallToolResult, *, is_wrapped: bool) -> Any:
    """Return a result for the cell: structured data, a text, or a list of blocks.

    ``is_wrapped``: the data is in an object, beneath ``result``. Raises McpError if the result is
    an error.
    """
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if result.is_error:
        raise McpError("\n".join(texts)[:2_000])
    if (data := result.structured_content) is not None:
        return data["result"] if is_wrapped and list(data) == ["result"] else data
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [block.model_dump(mode="json", exclude_none=True) for block in result.content]
