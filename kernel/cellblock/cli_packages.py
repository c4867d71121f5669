"""``cellblock packages``: what policies had installed, what could not be had, and out with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.services.operations.package_store import Shelf

app: Final = typer.Typer(help="Show and clear packages that ops.install got.", no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packages; without any, all.")
]


@app.command()
def show() -> None:
    """List packages by index and list: what is there, and what is not tried again."""
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(highlight=False)
    for shelf in _shelves():
        about = shelf.about()
        table = Table("asked for", "", "", title_justify="left")
        table.title = escape(f"{about.get('index', '?')}  {', '.join(about.get('allow', ()))}")
        for one in shelf.packages():
            table.add_row(escape(one["requirement"]), escape(f"{one['name']} {one['version']}"), "")
        for one in shelf.failures():
            when = datetime.fromtimestamp(one["time"], UTC).isoformat(" ", "minutes")
            table.add_row(
                escape(one["requirement"]), f"[red]failed[/] {when}", escape(one["message"])
            )
        console.print(table)
    if not _shelves():
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
    matches = _matching(names or [])
    gone = sum(shelf.clear(matches, installed=installed) for shelf in _shelves())
    typer.echo(f"cleared {gone}")


def _matching(names: list[str]) -> Callable[[str], bool]:
    from cellblock.policy.requirements import canonical, parse  # noqa: PLC0415

    wanted = {canonical(name) for name in names}
    return lambda requirement: not wanted or parse(requirement).name in wanted


def _shelves() -> list[Shelf]:
    from cellblock.host.services.operations.package_store import Shelf  # noqa: PLC0415
    from cellblock.policy import store  # noqa: PLC0415

    base = Path(store.base())
    return [Shelf(folder) for folder in sorted(base.iterdir())] if base.is_dir() else []
