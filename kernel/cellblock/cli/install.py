"""``cellblock install`` and ``uninstall``: kernelspecs for policies; and ``cellblock image``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from cellblock.backends import container_engine
from cellblock.backends.report import doctor_report
from cellblock.cli.common import PolicyOption, load_policy
from cellblock.cli.doctor import run_probes, verdict
from cellblock.cli.main import group
from cellblock.errors import BackendError
from cellblock.host.session.config import SessionConfig, SessionOptions, resolve
from cellblock.jupyter import install as specs

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

app: Final = typer.Typer(add_completion=False)
image_app: Final = group("image")
app.add_typer(image_app, name="image")


@app.command()
def install(
    *,
    policy: PolicyOption = "safe",
    name: Annotated[str | None, typer.Option(help="Kernel name; default cellblock-POLICY.")] = None,
    in_place_of: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Take another kernel's name, such as python3."),
    ] = None,
    display_name: Annotated[str | None, typer.Option(help="What the launcher shows.")] = None,
    user: Annotated[bool, typer.Option("--user", help="For this user (default).")] = False,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Into this Python environment.")
    ] = False,
    prefix: Annotated[Path | None, typer.Option(help="Below this folder.")] = None,
    given: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="JSON that its cells find in `inputs`."),
    ] = None,
    allow_unsafe: Annotated[bool, typer.Option("--allow-unsafe")] = False,
    warm: Annotated[
        bool | None,
        typer.Option(
            help="Have one wait in each server; default with --sys-prefix. Servers need cellblock."
        ),
    ] = None,
) -> None:
    """Install a kernel for a policy of your own, so that Jupyter offers it.

    With `--as python3` it is what notebooks for Python start; `cellblock uninstall python3` puts
    back what was there.
    """
    if (user, sys_prefix, prefix is not None).count(True) > 1:
        raise typer.BadParameter("Choose one of --user, --sys-prefix and --prefix.")
    if name is not None and in_place_of is not None:
        raise typer.BadParameter("Choose one of --name and --as.")
    below = Path(sys.prefix) if sys_prefix else prefix
    if in_place_of is not None and below is None and not user:
        below = specs.default_prefix()
    rest: Any = {"prefix": below, "allow_unsafe": allow_unsafe, "inputs": given}
    rest |= {"name": in_place_of or name, "displace": in_place_of is not None, "warm": warm}
    installed, folder = specs.install(policy, display_name=display_name, **rest)
    typer.echo(f"Installed kernel {installed} in {folder}")
    found = specs.find(installed)
    if found is not None and Path(found.resource_dir) != folder:
        typer.echo(f"Jupyter finds another {installed} first: {_named(found)}")
    loaded, console = load_policy(policy), Console(highlight=False, soft_wrap=True)
    try:
        for line in verdict(doctor_report(loaded, run_probes), loaded.name):
            console.print(line)
    except BackendError as failure:
        typer.echo(f"It runs nothing here: {failure}")
    if said := _obstacle(policy):
        typer.echo(f"In a kernel that starts in this folder no cell would run: {said}")


@app.command()
def uninstall(name: str) -> None:
    """Remove a kernel that `cellblock install` installed."""
    typer.echo(f"Removed {specs.uninstall(name)}")
    if (found := specs.find(name)) is not None:
        typer.echo(f"{name} is {_named(found)} again")


def _named(spec: KernelSpec) -> str:
    return f"{spec.display_name} in {spec.resource_dir}"


def _obstacle(spec: str) -> str:
    """Return what keeps a policy that can be read from holding in this folder, if anything does."""
    with tempfile.TemporaryDirectory() as scratch:
        options = SessionOptions(spec, Path.cwd(), Path(scratch).resolve(), allow_unsafe=True)
        config = resolve(options)
    return "" if isinstance(config, SessionConfig | BackendError) else str(config)


@image_app.command()
def build(
    *,
    tag: Annotated[
        str, typer.Option("--tag", metavar="NAME:TAG", help="For container_image in a policy.")
    ] = "",
    engine: Annotated[str, typer.Option(help="docker, podman or nerdctl.")] = "auto",
    again: Annotated[bool, typer.Option("--again", help="Even if it is there.")] = False,
) -> None:
    """Make the image that backend docker starts: an empty one, since the rest is mounted."""
    try:
        found = container_engine.find_engine(engine, os.environ)
    except container_engine.EngineError as error:
        raise BackendError(str(error)) from None
    name = tag or container_engine.EMPTY_IMAGE
    if not again and container_engine.has_image(found, name):
        typer.echo(f"{name} is there already")
        return
    typer.echo(f"Made {container_engine.build_image(found, name)}")
