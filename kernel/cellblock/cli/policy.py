"""``cellblock policy``: show and check policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cellblock.cli.common import AsJson, complain, load_policy, print_json
from cellblock.cli.main import group
from cellblock.errors import CellblockError
from cellblock.policy.model import flat_fields
from cellblock.policy.schema import json_schema

if TYPE_CHECKING:
    from cellblock.policy.model import Policy

app: Final = group("policy")
Spec = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A preset or a TOML file.")]


@app.command()
def show(spec: Spec = "safe", *, as_json: AsJson = False) -> None:
    """Show what a policy says. {project} is the current folder."""
    policy = load_policy(spec)
    if as_json:
        print_json(policy.as_dict() | {"digest": policy.digest()})
        return
    console = Console(highlight=False)
    console.print(_policy_table(policy))
    console.print(f"digest  {policy.digest()}", style="dim")


@app.command()
def schema() -> None:
    """Print the JSON schema of a policy."""
    print_json(json_schema())


@app.command()
def validate(files: Annotated[list[str], typer.Argument(metavar="FILE...")]) -> None:
    """Check policy files: one line each, exit status 1 when any is wrong."""
    wrong = 0
    for file in files:
        try:
            policy = load_policy(file)
        except CellblockError as failure:
            complain(str(failure))
            wrong += 1
        else:
            typer.echo(f"{file}: ok{_condition(policy)}")
    raise typer.Exit(code=bool(wrong))


def _condition(policy: Policy) -> str:
    asks = ", or when its user allows it" if policy.approvals == "prompt" else ""
    unsafe = f" (mode unsafe: starts only with --allow-unsafe{asks})"
    return unsafe if policy.mode == "unsafe" else ""


def _policy_table(policy: Policy) -> Table:
    table = Table("field", "value", title=f"policy {policy.name}", title_justify="left")
    for field, value in flat_fields(policy.as_dict()).items():
        table.add_row(field, _shown(value))
    return table


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return escape(", ".join(value)) or "[dim]nothing[/]"
    words = {None: "no limit", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return words[value]
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
