"""The table ``[tools.mcp.NAME]`` of a policy, apart from ``model`` because workers import it."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.policy.vocabulary import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer(Table):
    """An MCP server of the operator's whose tools are functions in cells."""

    command: tuple[str, ...] = ()
    """The program and its arguments: it is started, and spoken to over stdin and stdout. It runs as
    the user of the host, unconfined."""

    url: str = ""
    """The address of a server that runs already, over streamable HTTP:
    ``https://mcp.example.org/mcp``."""

    env: tuple[str, ...] = ()
    """The host's environment variables that the program gets, besides HOME, LOGNAME, PATH, SHELL,
    TERM and USER."""

    token_env: str = ""
    """The host's environment variable that holds the bearer token for ``url``."""

    tools: tuple[str, ...] = ()
    """The tools that cells may call, by the server's names for them. ``["*"]`` is all that it has
    when the kernel starts."""
