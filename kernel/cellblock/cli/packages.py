"""``cellblock packages``: what policies had installed, what could not be had, and out with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cellblock.cli.main import group
from cellblock.host.services.operations.packages import PackageStore
from cellblock.policy.folders import package_folder
from cellblock.policy.operations import canonical_package, parse_requirement

app: Final = group("packages")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packages; without any, all.")
]


@app.command()
def show() -> None:
    """List packages by index and list: what is there, and what is not tried again."""
    console = Console(highlight=False)
    for store in _stores():
        about = store.about()
        table = Table("asked for", "", "", title_justify="left")
        table.title = escape(f"{about.get('index', '?')}  {', '.join(about.get('allow', ()))}")
        for one in store.packages():
            table.add_row(escape(one["requirement"]), escape(f"{one['name']} {one['version']}"), "")
        for one in store.failures():
            when = datetime.fromtimestamp(one["time"], UTC).isoformat(" ", "minutes")
            table.add_row(
                escape(one["requirement"]), f"[red]failed[/] {when}", escape(one["message"])
            )
        console.print(table)
    if not _stores():
        typer.echo("no policy had packages installed yet")


@app.command()
def clear(
    names: Names = None,
    *,
    installed: Annotated[
        bool, typer.Option("--installed", help="Remove what is installed, too.")
    ] = False,
) -> None:
    """Have what could not be installed tried again.

    With --installed packages are removed as well, from under kernels that use them.
    """
    wanted = set(map(canonical_package, names or ()))

    def matches(requirement: str) -> bool:
        return not wanted or parse_requirement(requirement).name in wanted

    gone = sum(store.clear(matches, installed=installed) for store in _stores())
    typer.echo(f"cleared {gone}")


def _stores() -> list[PackageStore]:
    base = Path(package_folder())
    return [PackageStore(folder) for folder in sorted(base.iterdir())] if base.is_dir() else []
