"""``cellblock mcp``: an MCP server, for clients whose models run cells.

Exit status 0 when the client has hung up; 2 if no cell could run.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import os
import secrets
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated, Any, Final

import typer

from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.cli.common import AllowUnsafe, PolicyOption, complain
from cellblock.errors import CellblockError
from cellblock.host.guests.spawn import protect_host
from cellblock.mcp.session import Session
from cellblock.mcp.settings import HttpSettings
from cellblock.policy.network import is_loopback

app: Final = typer.Typer(add_completion=False)
_VARIABLE: Final = "CELLBLOCK_MCP_TOKEN"
#: Characters that a bearer token has at least.
_MIN_TOKEN: Final = 16
#: The defaults of the options for HTTP. Its token is never used.
_DEFAULTS: Final = HttpSettings(token="")


@app.command()
def mcp(
    *,
    policy: PolicyOption = "safe",
    project: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="What {project} stands for; without, cells have a private folder."
        ),
    ] = None,
    allow_unsafe: AllowUnsafe = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP instead of stdin and stdout.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="The address of this machine to listen at.")
    ] = _DEFAULTS.host,
    port: Annotated[int, typer.Option(min=1, max=65_535)] = _DEFAULTS.port,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen beyond the loopback.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PORT", help="A name that clients use for it; repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Holds the bearer token; else ${_VARIABLE}."),
    ] = None,
    idle: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="End a session after so long idle.")
    ] = _DEFAULTS.idle,
    max_sessions: Annotated[
        int, typer.Option(min=1, help="Open at once.")
    ] = _DEFAULTS.max_sessions,
) -> None:
    """Serve sandboxes to an MCP client: one session is one sandbox under the policy."""
    if importlib.util.find_spec("mcp") is None:
        raise CellblockError("mcp is not installed. Install it: pip install 'cellblock[mcp]'.")
    protect_host()  # this process has the token
    pool = AsyncSandboxPool(policy, project=project, allow_unsafe=allow_unsafe)
    if not http:
        asyncio.run(_serve_stdio(pool))
        return
    if not (allow_remote or is_loopback(host)):
        raise CellblockError(
            f"{host} is reached from elsewhere: anybody there who has the token runs cells. "
            "Say --allow-remote if that is meant, and put TLS in front."
        )
    settings = HttpSettings(
        token=_token(token_file),
        host=host,
        port=port,
        names=tuple(allow_host or ()),
        idle=idle,
        max_sessions=max_sessions,
    )
    asyncio.run(_serve_http(pool, settings))


async def _serve_stdio(pool: AsyncSandboxPool) -> None:
    """Serve one client over stdin and stdout.

    The sandbox starts while the SDK is imported, which takes as long.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await pool.open()
        async with Session(pool) as session:
            server = await asyncio.to_thread(_import_server)
            await server.serve_stdio(session)
    except asyncio.CancelledError:
        return
    finally:
        await pool.close()


def _import_server() -> Any:
    """Import ``cellblock.mcp.server``, and the SDK with it, as fast as possible.

    The SDK makes some thousand classes, none of which is garbage, so the collector is off. Its
    models make their validators only when they are first used (pydantic's ``defer_build``), since a
    session uses few of them.
    """
    gc.disable()
    # The SDK's models inherit this configuration.
    config = importlib.import_module("pydantic").BaseModel.model_config
    config["defer_build"] = True
    try:
        for name in ("mcp", "mcp.server"):
            _defer_front(name)
        return importlib.import_module("cellblock.mcp.server")
    finally:
        del config["defer_build"]
        gc.freeze()
        gc.enable()


def _defer_front(name: str) -> None:
    """Defer running the ``__init__`` module of a package until one of its names is first used.

    ``mcp`` imports the client with its dependencies (OAuth, an HTTP client, cryptography), and
    ``mcp.server`` a second server that is not used here: that is a quarter of the SDK's import
    time. Submodules of the package can be imported as usual.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or name in sys.modules:
        return
    package: Any = importlib.util.module_from_spec(spec)
    run = spec.loader.exec_module

    def __getattr__(attribute: str) -> Any:  # noqa: N807 - as PEP 562 has it
        if "__getattr__" not in vars(package):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        del package.__getattr__
        run(package)
        return getattr(package, attribute)

    package.__getattr__ = __getattr__
    sys.modules[name] = package
    outer, _, inner = name.rpartition(".")
    if outer:
        setattr(sys.modules[outer], inner, package)


async def _serve_http(pool: AsyncSandboxPool, settings: HttpSettings) -> None:
    """Serve clients over HTTP until a signal ends the process."""
    await pool.open()
    try:
        http = await asyncio.to_thread(importlib.import_module, "cellblock.mcp.http")
        with http.listen(settings) as listening:
            complain(f"MCP at http://{settings.host}:{settings.port}{http.PATH}")
            await http.serve_http(pool, settings, listening)
    finally:
        await pool.close()


def _token(file: Path | None) -> str:
    """Return the bearer token of the file or the environment, or a new one, printed on stderr."""
    try:
        text = os.environ.get(_VARIABLE, "") if file is None else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CellblockError(f"{file}: the token can't be read: {error}") from None
    token = text.strip()
    if not token and file is None:
        token = secrets.token_urlsafe(32)
        complain(f"the bearer token of this run is {token}")
    if len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable():
        raise CellblockError(
            f"a bearer token has {_MIN_TOKEN} printable characters at least: "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"
        )
    return token
