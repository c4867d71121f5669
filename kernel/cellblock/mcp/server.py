"""A session as an MCP server, built with the official SDK, and that server over stdin and stdout.

This module only translates: ``mcp.session`` decides and does everything.

A question to a person is sent as an elicitation, while the tool's call waits for the answer. In
protocol 2026-07-28 a server can't send requests: there the call is answered ``input_required``, and
goes on when the client calls again with the answer. Either way the cell is paused meanwhile, and
not run again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import os
from typing import TYPE_CHECKING, Any, Final, Self

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from cellblock import __version__
from cellblock.errors import CellblockError
from cellblock.mcp.session import FILES, TOOLS, Question, Reply, Session
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import ServerRequestContext

    from cellblock.mcp.session import Link, ToolCall

    Context = ServerRequestContext[Any, Any]

_INSTRUCTIONS: Final = (
    "Python cells in a sandbox whose policy an operator chose. Variables live from call to call; a "
    "cell that is refused or stopped costs none. A refusal says what to write instead; explain "
    "says what is allowed and which tools cells can call. Files that cells write are resources, "
    "cellblock://files/NAME; in a project they are staged until a person keeps them."
)
_FILES: Final = "A file by the name that cells open it by, of 4 MiB at most."
#: Bytes of a request over stdin.
MAX_LINE: Final = 10 << 20
_LABELS: Final = {"no": "No", "once": "Yes, once", "session": "Yes, for this session"}


def make_server(session: Session) -> Server[Any]:
    """Return the server of one client's session."""

    async def list_tools(_: Context, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def call_tool(
        ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await _call(session, ctx, params)

    async def list_resources(_: Context, _params: object) -> types.ListResourcesResult:
        resources = await session.resources()
        return types.ListResourcesResult(resources=[_resource(*entry) for entry in resources])

    async def list_templates(_: Context, _params: object) -> types.ListResourceTemplatesResult:
        files = types.ResourceTemplate(uri_template=FILES, name="file", description=_FILES)
        return types.ListResourceTemplatesResult(resource_templates=[files])

    async def read_resource(
        _: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await _read(session, params.uri)

    return Server(
        "cellblock",
        version=__version__,
        title="cellblock",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def serve_stdio(session: Session) -> None:
    """Serve one client over stdin and stdout, until the client hangs up.

    Both are read and written on the loop. The SDK would use threads, which take a millisecond for
    each message, and a thread that waits for a line can't be cancelled. From now on file
    descriptor 1 is stderr, so that nothing that is printed here gets between the messages.
    """
    server = make_server(session)
    loop = asyncio.get_running_loop()
    wires = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(wires[0]))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(wires[1], "w")
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    lines: Any = _Lines(reader)
    out: Any = _Out(writer)
    async with stdio_server(lines, out) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Lines:
    """The lines of stdin, in the form that the SDK reads; a line that is too long is the end."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except ValueError:
            line = b""
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


class _Out:
    """Stdout, in the form that the SDK writes to. If the client is gone, it writes nothing."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()


# --- tools ----------------------------------------------------------------------------------------


def _tools() -> list[types.Tool]:
    """Return the tools for a client. The docstring of a tool's struct is its description."""
    return [
        types.Tool(
            name=name,
            description=" ".join(inspect.cleandoc(kind.__doc__ or "").split()),
            input_schema=_schema(kind),
            annotations=_hints(name, reads=reads),
        )
        for name, (kind, reads) in TOOLS.items()
    ]


def _hints(name: str, *, reads: bool) -> types.ToolAnnotations:
    """Return the hints on a tool that differ from the protocol's defaults."""
    if reads:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    destroys = name in ("reset", "undo")
    return types.ToolAnnotations(destructive_hint=destroys, open_world_hint=False)


#: Bounds that are left out of the schema: no model comes near them. A call that exceeds one is
#: refused, and the message says what the bound is.
_OWN_BOUNDS: Final = frozenset({"exclusiveMinimum", "maxItems", "maxLength", "maximum", "minItems"})


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    (schema,), _ = msgspec.json.schema_components([kind], ref_template="{name}")
    own = msgspec.json.schema(kind)["$defs"][schema["$ref"]]
    fields = {name: _field_schema(field) for name, field in own["properties"].items()}
    arguments_schema = {"type": "object", "properties": fields, "required": own["required"]}
    return {key: value for key, value in arguments_schema.items() if value or key == "properties"}


def _field_schema(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one argument, without parts that tell a model nothing.

    It is short because clients send the list of tools with each request to their model. The type
    null is left out: a model omits the argument instead.
    """
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    own_schema = kinds[0] if len(kinds) == 1 else field
    return {
        key: value
        for key, value in own_schema.items()
        if key not in _OWN_BOUNDS and (key != "default" or value)
    }


async def _call(
    session: Session, ctx: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Begin a tool's call, or go on with one, until it has a reply or a question.

    Where the server can send requests, it puts the questions itself and returns the reply.
    """
    if params.request_state is not None:
        call = session.resume(params.request_state)
        if call is None:
            return _result(Reply("Nothing waits for this answer any more.", failed=True))
        if (question := call.question) is not None:
            response = (params.input_responses or {}).get(question.token)
            if response is not None:  # else the client answers a question that was closed before
                question.answer(_answer(response))
    else:
        try:
            call = session.begin(
                params.name, params.arguments or {}, can_ask=_can_ask(ctx), report=_reporter(ctx)
            )
        except KeyError:
            message = f"Unknown tool: {encodable(params.name[:100])}"
            raise MCPError(types.INVALID_PARAMS, message) from None
        except (msgspec.ValidationError, CellblockError) as error:
            return _result(Reply(encodable(f"{params.name}: {error}"[:1_000]), failed=True))
    try:
        step = await call.next()
        while isinstance(step, Question):
            if not ctx.session.can_send_request:
                return _input_required(call, step)
            await _put(ctx, step)
            step = await call.next()
    except BaseException:
        session.end(call)  # cancelled, or the client is gone: nobody waits for the reply
        raise
    session.end(call)
    return _result(step)


def _reporter(ctx: Context) -> Callable[[str], Awaitable[None]] | None:
    """Return a function that reports progress, or None if the client did not ask for progress."""
    if "progress_token" not in (ctx.meta or {}):
        return None
    number = 0

    async def report(text: str) -> None:
        nonlocal number
        number += 1
        await ctx.session.report_progress(number, message=text)

    return report


def _result(reply: Reply) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=reply.text)]
    content += [
        types.ImageContent(data=image.data, mime_type=image.mime_type) for image in reply.images
    ]
    content += [
        types.ResourceLink(uri=link.uri, name=link.name, mime_type=link.mime_type, size=link.size)
        for link in reply.links
    ]
    # The text is in the structured content too: some clients give their model nothing else.
    data = {**reply.data, "text": reply.text} if reply.data else None
    return types.CallToolResult(content=content, structured_content=data, is_error=reply.failed)


# --- questions to a person ------------------------------------------------------------------------


def _can_ask(ctx: Context) -> bool:
    """Return whether the client can show forms to a person."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # A client that names neither form nor url supports forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _form(question: Question) -> types.ElicitRequestFormParams:
    """Return the form of a question: its text, and its answers to choose from."""
    offers = list(question.offers)
    answer = {
        "type": "string",
        "title": "May it?",
        "enum": offers,
        "enumNames": [_LABELS[offer] for offer in offers],
    }
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return types.ElicitRequestFormParams(message=encodable(question.text), requested_schema=schema)


def _input_required(call: ToolCall, question: Question) -> types.InputRequiredResult:
    """Return the result that hands a question to the client, which calls again with the answer."""
    call.is_handed_out = True
    request = types.ElicitRequest(params=_form(question))
    return types.InputRequiredResult(
        input_requests={question.token: request}, request_state=call.token
    )


async def _put(ctx: Context, question: Question) -> None:
    """Put a question to the person, until it is answered or closed."""
    elicitation = asyncio.ensure_future(_elicit(ctx, question))
    either: set[asyncio.Future[Any]] = {elicitation, question.closed}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if elicitation.done():
            question.answer(elicitation.result())
    finally:
        elicitation.cancel()


async def _elicit(ctx: Context, question: Question) -> object:
    """Return the person's answer; "no" if the client turns out to be unable to ask."""
    form = _form(question)
    try:
        result = await ctx.session.elicit_form(
            form.message, form.requested_schema, related_request_id=ctx.request_id
        )
    except MCPError:
        return "no"
    return _answer(result)


def _answer(result: object) -> object:
    if not isinstance(result, types.ElicitResult) or result.action != "accept":
        return "no"
    return (result.content or {}).get("answer")


# --- resources ------------------------------------------------------------------------------------


def _resource(link: Link, description: str) -> types.Resource:
    return types.Resource(
        uri=link.uri,
        name=link.name,
        description=description,
        mime_type=link.mime_type,
        size=link.size or None,
    )


async def _read(session: Session, uri: str) -> types.ReadResourceResult:
    """Return a resource's contents. Raises MCPError."""
    try:
        contents = await session.read(uri)
    except KeyError:
        message = f"No such resource: {encodable(uri[:200])}"
        raise MCPError(types.INVALID_PARAMS, message) from None
    except CellblockError as error:
        raise MCPError(types.INTERNAL_ERROR, encodable(str(error))) from None
    if contents.blob is None:
        text = types.TextResourceContents(uri=uri, mime_type=contents.mime_type, text=contents.text)
        return types.ReadResourceResult(contents=[text])
    data = base64.b64encode(contents.blob).decode()
    blob = types.BlobResourceContents(uri=uri, mime_type=contents.mime_type, blob=data)
    return types.ReadResourceResult(contents=[blob])
