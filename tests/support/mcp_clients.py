"""The official SDK's client with `cellblock mcp` as its server, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support.ports import next_port

TOKEN = "a-token-for-tests-of-thirty-two-characters"
#: The two eras of the protocol: with input_required, and with elicitation requests of the server.
MODES = ["2026-07-28", "legacy"]


def argv(*options):
    """Return the command line of a server."""
    main = "from cellblock.cli.main import main; main()"
    return [sys.executable, "-P", "-c", main, "mcp", *map(str, options)]


def environment():
    return {**os.environ, "CELLBLOCK_MCP_TOKEN": TOKEN}


@contextlib.asynccontextmanager
async def stdio(*options, **keywords):
    """Yield a client with a server of its own."""
    command, *rest = argv(*options)
    server = StdioServerParameters(command=command, args=rest, env=environment())
    async with Client(server, **keywords) as client:
        yield client


@contextlib.contextmanager
def http_server(*options):
    """Yield a listening server's process and its address."""
    port = next_port()
    server = subprocess.Popen(
        argv("--http", "--port", port, *options),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = server.stderr.readline()
        assert "MCP at" in line, line + server.stderr.read()
        yield server, f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(20)
        server.stderr.close()


@contextlib.asynccontextmanager
async def over_http(address, token=TOKEN, **keywords):
    """Yield a client of the server at an address."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as web:
        transport = streamable_http_client(address, http_client=web)
        async with Client(transport, **keywords) as client:
            yield client


def text_of(result):
    """Return a reply's text."""
    return result.content[0].text


async def run(client, code, **keywords):
    """Run a cell; return the reply."""
    return await client.call_tool("run_cell", {"code": code}, **keywords)


def go(work):
    """Run a test's coroutine."""
    return asyncio.run(work)
