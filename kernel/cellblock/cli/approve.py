"""``cellblock approve``: which cells may run where the policy takes approval; and ``templates``.

Whoever approves has to see what runs: sources are printed whole, and nothing in them moves the
cursor, reorders a line or hides.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cellblock.errors import AdmissionError, CellblockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.admission.approve import New, Review
    from cellblock.host.consent.admission.manifest import Place
    from cellblock.host.consent.approvals.store import Grant, Store
    from cellblock.host.services.operations.packages import PackageStore
    from cellblock.policy.model import Policy


Notebooks = Annotated[list[Path] | None, typer.Argument(metavar="NOTEBOOK...")]
SpecOption = Annotated[
    str, typer.Option("--policy", metavar="NAME|FILE", help="What the kernel runs under.")
]


def approve(
    notebooks: Notebooks = None,
    *,
    policy: SpecOption = "safe",
    listing: Annotated[
        bool, typer.Option("--list", help="Say what is approved; of NOTEBOOK, cell by cell.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take back what was approved of NOTEBOOK.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Show, and do not ask.")] = False,
) -> None:
    """Approve the code cells of notebooks as they are now, for kernels under a policy.

    What was approved of a notebook before and is not in it any more is taken back. Exit status 1
    when that was declined, or with --list when a cell is not approved.
    """
    if listing and revoke:
        raise typer.BadParameter("Choose one of --list and --revoke.")
    if not notebooks and not listing:
        raise typer.BadParameter("Name a notebook.", param_hint="NOTEBOOK")
    if listing and not notebooks:
        _list_all(_policy(policy, Path.cwd()))
        return
    each = {True: _list_one, False: _approve_one}[listing] if not revoke else _revoke_one
    refused = False
    for notebook in notebooks or ():
        asked = _policy(policy, notebook.resolve().parent)
        if each is _approve_one:
            _check_counts(asked, policy)
        refused |= not each(notebook, asked, asked=yes)
    raise typer.Exit(code=int(refused))


def templates(*, policy: SpecOption = "safe") -> None:
    """List the templates of a policy, checked as cells are. Exit status 1 when one is refused."""
    from cellblock.analysis import analyse  # noqa: PLC0415
    from cellblock.host.consent.admission.admission import load  # noqa: PLC0415
    from cellblock.render.denial import summary  # noqa: PLC0415

    asked, refused = _policy(policy, Path.cwd()), False
    for name, template in sorted(load(asked.templates.folders).items()):
        findings = analyse(template.source, asked.rules())
        refused = refused or bool(findings)
        said = f"refused, {summary(findings)}" if findings else template.doc
        _say(f"{name}: {said}")
    raise typer.Exit(code=int(refused))


def _policy(spec: str, project: Path) -> Policy:
    from cellblock.policy.load import load  # noqa: PLC0415

    return load(spec, project=project, allow_unsafe=True)


def _place(policy: Policy, notebook: Path) -> Place:
    from cellblock.host.consent.admission.manifest import Place  # noqa: PLC0415

    return Place(policy, notebook.resolve().parent)


def _check_counts(policy: Policy, spec: str) -> None:
    """Raise AdmissionError where what is approved under a policy counts for nothing."""
    if policy.admission != "approved":
        message = f"it has admission {policy.admission}, so approvals do not count"
        remedy = 'Set admission = "approved" there, or name the policy that kernels run under.'
        raise AdmissionError(message, file=spec, key="admission", remedy=remedy)


# --- approving --------------------------------------------------------------------------------


def _approve_one(notebook: Path, policy: Policy, *, asked: bool) -> bool:
    from cellblock.host.consent.admission import approve  # noqa: PLC0415

    place = _place(policy, notebook)
    with place.held(_waiting):
        manifest, why = approve.known(place)
        reviewed = approve.review(notebook, policy, manifest)
        _show(reviewed, policy, place, why)
        if not (reviewed.changes or why):
            return True
        if not (asked or _confirmed(notebook)):
            return False
        if approve.approve(place, policy, reviewed, manifest):
            _note(f"made the key {place.key}: whoever can read it can approve")
    _say(f"Approved {notebook}")
    return True


def _waiting() -> None:
    _note("another cellblock approve, which may be asking somebody, is to end first")


def _confirmed(notebook: Path) -> bool:
    if not sys.stdin.isatty():
        remedy = "Run it in a terminal, or read what it shows and give --yes."
        raise AdmissionError("nobody is there to be asked", file=str(notebook), remedy=remedy)
    return typer.confirm("Approve this?")


def _show(reviewed: Review, policy: Policy, place: Place, why: str) -> None:
    """Print what would change."""
    counts = f"{len(reviewed.new)} new, {reviewed.kept} approved already, {reviewed.gone} gone"
    head = f"{reviewed.notebook}, for policy {policy.name} in {place.scope}: {counts}"
    _say(head)
    if why:
        _note(f"what was approved before can't be used, and is lost: {why}")
    for cell in reviewed.new:
        _show_cell(cell, policy)


def _show_cell(cell: New, policy: Policy) -> None:
    from cellblock.render.denial import summary  # noqa: PLC0415

    typer.echo(f"\ncell {cell.number}")
    for line in (cell.change or cell.source).split("\n"):
        typer.echo(f"  {'' if cell.change else '│ '}{_clean(line)}".rstrip())
    for name in cell.letters:
        _say(f"  ! a name that is not ASCII: {name}")
    if cell.findings:
        said = summary(cell.findings)
        _say(f"  ! policy {policy.name} refuses it even if approved: {said}")


# --- taking back, listing ---------------------------------------------------------------------


def _revoke_one(notebook: Path, policy: Policy, *, asked: bool) -> bool:
    del asked  # less may run: nobody has to be asked
    from cellblock.host.consent.admission import approve  # noqa: PLC0415

    place = _place(policy, notebook)
    with place.held(_waiting):
        cells = approve.revoke(place, notebook)
    _say(f"Took back {cells} cells of {notebook}")
    return True


def _list_one(notebook: Path, policy: Policy, *, asked: bool) -> bool:
    del asked
    from cellblock.analysis.admission import runs_nothing, sha256  # noqa: PLC0415
    from cellblock.host.consent.admission.approve import read_notebook  # noqa: PLC0415
    from cellblock.host.consent.admission.manifest import approved  # noqa: PLC0415

    known = approved(_place(policy, notebook).read()[0], notebook.resolve().name)
    every = True
    for number, source in read_notebook(notebook).items():
        fine = runs_nothing(source) or sha256(source) in known
        every = every and fine
        said = "approved" if fine else "not approved"
        _say(f"{notebook}: cell {number}: {said}")
    return every


def _list_all(policy: Policy) -> None:
    from cellblock.host.consent.admission.approve import manifests  # noqa: PLC0415

    for file, manifest in manifests(policy):
        if isinstance(manifest, AdmissionError):
            _say(f"{file.name}: {manifest}")
            continue
        _say(f"{manifest.scope}, policy {manifest.policy}, {file.name}")
        for name, each in manifest.notebooks.items():
            _say(f"  {name}: {len(each.cells)} cells, {each.at}, by {each.by}")


def _note(text: str) -> None:
    typer.echo(f"cellblock: {_clean(text)}", err=True)


def _say(text: str) -> None:
    """Print a line that may begin with a file's name: no command to a CI runner either."""
    from cellblock.batch.report_formats import inert  # noqa: PLC0415

    typer.echo(inert(_clean(text)))


def _clean(text: str) -> str:
    from cellblock.render.text import encodable, visible  # noqa: PLC0415

    return visible(encodable(text))


# ``cellblock approvals``: what users allowed for always, and taking that back.

approvals_app: Final = typer.Typer(
    help="Show and take back what was allowed for always, at a kernel's question.",
    no_args_is_help=True,
)

UnderOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help="Only what counts here under it, or once it is narrowed.",
    ),
]
_DIGEST: Final = 12


@approvals_app.command("list")
def list_(
    *,
    policy: UnderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what was allowed for always: what, where, and under which policy as it was then.

    A notebook's metadata and %policy make a policy narrower. What was allowed then counts where it
    is exactly that narrow.
    """
    store = _store()
    under = None if policy is None else _loaded_policy(policy)
    grants = [one for one in store.grants() if under is None or stands(one, under)]
    if as_json:
        _print_json(grants)
        return
    if store.is_damaged:
        typer.echo(f"cellblock: nothing in {_path()} counts: {_DAMAGE}", err=True)
    for one in grants:
        typer.echo(_clean(f"{one.id}  {_WHAT[one.of]} {one.subject}"))
        written = (one.base or one.digest)[:_DIGEST]
        typer.echo(_clean(f"          policy {one.policy} ({written}) in {one.scope}, {one.at}"))
        if one.base:
            typer.echo(_clean(f"          where that is narrowed to {_narrowed(one)}"))
    if not grants:
        typer.echo("nothing was allowed for always")


@approvals_app.command()
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
        gone = _store().revoke(wanted)
    except OSError as exc:
        raise CellblockError(f"{_path()}: can't be written: {exc.strerror or exc}") from None
    for one in gone:
        typer.echo(_clean(f"Took back {one.id}: {_WHAT[one.of]} {one.subject}"))
    missing = (wanted or frozenset()) - {one.id for one in gone}
    for number in sorted(missing):
        typer.echo(_clean(f"cellblock: nothing was allowed by the id {number}"), err=True)
    raise typer.Exit(code=int(bool(missing)))


_WHAT: Final = {"call": "calls of", "import": "import of", "start": "start in"}
_DAMAGE: Final = "it is damaged, a link, or not yours alone. Look at it, and remove it."


def summary(policy: Policy) -> str:
    """Return a line on approvals under a policy in this folder; nothing where nobody is asked."""
    if policy.approvals != "prompt":
        return ""
    standing = sum(counts(one, policy) for one in _store().grants())
    what = "imports, and calls of tools, operations and language models"
    return f"Users are asked about {what}; {standing} allowed for always: cellblock approvals list."


def counts(grant: Grant, policy: Policy) -> bool:
    """Say whether a grant is in force under a policy, as it is now, in this folder."""
    return grant.digest == policy.digest() and _is_of(grant, policy)


def stands(grant: Grant, policy: Policy) -> bool:
    """Say whether a grant is in force in this folder under a policy, or once that is narrowed."""
    return (grant.base or grant.digest) == policy.digest() and _is_of(grant, policy)


def _is_of(grant: Grant, policy: Policy) -> bool:
    scope = policy.approval.scope.replace("{project}", os.path.realpath(Path.cwd()))
    return (grant.scope, grant.policy) == (scope, policy.name)


def _narrowed(one: Grant) -> str:
    fields = ", ".join(f"{name} = {value}" for name, value in sorted(one.narrowed.items()))
    return f"{fields} ({one.digest[:_DIGEST]})"


def _loaded_policy(spec: str) -> Policy:
    from cellblock.policy.load import load  # noqa: PLC0415 - as in cli

    return load(spec, project=Path.cwd(), allow_unsafe=True)


def _store() -> Store:
    from cellblock.host.consent.approvals.store import Store  # noqa: PLC0415 - as above

    return Store(_path())


def _path() -> Path:
    from cellblock.host.consent.approvals.store import default_path  # noqa: PLC0415 - as above

    return default_path()


def _print_json(grants: list[Grant]) -> None:
    import json  # noqa: PLC0415 - as above

    from msgspec.structs import asdict  # noqa: PLC0415 - as above

    typer.echo(json.dumps([asdict(one) for one in grants], indent=2))


# ``cellblock packages``: what policies had installed, what could not be had, and out with it.

packages_app: Final = typer.Typer(
    help="Show and clear packages that ops.install got.", no_args_is_help=True
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packages; without any, all.")
]


@packages_app.command()
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


@packages_app.command()
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
    from cellblock.policy.operations import canonical, parse  # noqa: PLC0415

    wanted = {canonical(name) for name in names}
    return lambda requirement: not wanted or parse(requirement).name in wanted


def _shelves() -> list[PackageStore]:
    from cellblock.host.services.operations.packages import PackageStore  # noqa: PLC0415
    from cellblock.policy import paths  # noqa: PLC0415

    base = Path(paths.base())
    return [PackageStore(folder) for folder in sorted(base.iterdir())] if base.is_dir() else []
