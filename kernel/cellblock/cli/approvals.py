"""``cellblock approvals``: what users allowed for always, and taking that back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import asdict

from cellblock.cli.common import AsJson, clean, complain, load_policy, print_json
from cellblock.errors import CellblockError
from cellblock.host.consent.grants import Store, default_path

if TYPE_CHECKING:
    from cellblock.host.consent.grants import Grant
    from cellblock.policy.model import Policy

app: Final = typer.Typer(
    help="Show and take back what was allowed for always, at a kernel's question.",
    no_args_is_help=True,
    add_completion=False,
)

UnderOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help="Only what counts here under it.",
    ),
]
_DIGEST: Final = 12


@app.command("list")
def list_(*, policy: UnderOption = None, as_json: AsJson = False) -> None:
    """List what was allowed for always: what, where, and under which policy as it was then.

    A notebook's metadata and %policy make a policy narrower, which is another one then.
    """
    store = Store(default_path())
    under = None if policy is None else load_policy(policy)
    grants = [one for one in store.grants() if under is None or _counts(one, under)]
    if as_json:
        print_json([asdict(one) for one in grants])
        return
    if store.is_damaged:
        complain(f"nothing in {default_path()} counts: {_DAMAGE}")
    for one in grants:
        typer.echo(clean(f"{one.id}  {_WHAT[one.of]} {one.subject}"))
        under_which = f"policy {one.policy} ({one.digest[:_DIGEST]}) in {one.scope}, {one.at}"
        typer.echo(clean(f"          {under_which}"))
    if not grants:
        typer.echo("nothing was allowed for always")


@app.command()
def revoke(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All that there is.")] = False,
) -> None:
    """Take back what was allowed; kernels that run ask again from their next look on.

    Exit status 1 when there is none by one of the ids.
    """
    if bool(ids) is every:
        raise typer.BadParameter("Give ids as `cellblock approvals list` has them, or --all.")
    wanted = None if every else frozenset(ids or ())
    try:
        gone = Store(default_path()).revoke(wanted)
    except OSError as exc:
        raise CellblockError(f"{default_path()}: can't be written: {exc.strerror or exc}") from None
    for one in gone:
        typer.echo(clean(f"Took back {one.id}: {_WHAT[one.of]} {one.subject}"))
    missing = (wanted or frozenset()) - {one.id for one in gone}
    for number in sorted(missing):
        complain(clean(f"nothing was allowed by the id {number}"))
    raise typer.Exit(code=int(bool(missing)))


_WHAT: Final = {"call": "calls of", "import": "import of", "start": "start in"}
_DAMAGE: Final = "it is damaged, a link, or not yours alone. Look at it, and remove it."


def summary(policy: Policy) -> str:
    """Return a line on approvals under a policy in this folder; nothing where nobody is asked."""
    if policy.approvals != "prompt":
        return ""
    standing = sum(_counts(one, policy) for one in Store(default_path()).grants())
    what = "imports, and calls of tools, operations and language models"
    return f"Users are asked about {what}; {standing} allowed for always: cellblock approvals list."


def _counts(grant: Grant, policy: Policy) -> bool:
    """Whether a grant is in force in this folder under a policy."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(Path.cwd()))
    return (grant.scope, grant.policy, grant.digest) == (scope, policy.name, policy.digest())
