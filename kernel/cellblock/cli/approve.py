"""``cellblock approve``, ``templates`` and ``approvals``: approves cells, and lists approvals.

Whoever approves a cell must see what would run. So sources are printed whole, and no character in
them moves the cursor or is invisible. Long lines are broken here, not by the terminal: a
continuation that the terminal makes would begin at its edge, like the host's own lines. A line that
a terminal may show in another order is printed again, with escapes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cellblock.analysis import analyse
from cellblock.analysis.admission import runs_nothing, sha256
from cellblock.batch.files import MAX_VALUES, UnreadableError, read_notebook
from cellblock.batch.verdict import MAX_FILE_BYTES
from cellblock.cli.common import AsJson, complain, load_policy, print_json, say
from cellblock.cli.main import group
from cellblock.errors import AdmissionError
from cellblock.host.consent import admission, review
from cellblock.host.consent.admission import approved
from cellblock.host.consent.store import Store, of_cells, of_user, read_file
from cellblock.host.files import upgraded
from cellblock.render.outcomes import summary
from cellblock.render.text import broken, exact, exactly, reorders, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.consent.review import NewCell, Review
    from cellblock.host.consent.store import ManifestFile, Record
    from cellblock.policy.model import Policy

app: Final = typer.Typer(add_completion=False)
approvals_app: Final = group("approvals")
app.add_typer(approvals_app, name="approvals")
Notebooks = Annotated[list[Path] | None, typer.Argument(metavar="NOTEBOOK...")]
KernelPolicyOption = Annotated[
    str, typer.Option("--policy", metavar="NAME|FILE", help="The policy of the kernel.")
]


@app.command()
def approve(
    notebooks: Notebooks = None,
    *,
    policy: KernelPolicyOption = "safe",
    listing: Annotated[
        bool, typer.Option("--list", help="List what is approved; with NOTEBOOK, cell by cell.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take back what was approved of NOTEBOOK.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Show the cells, and do not ask.")] = False,
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
        loaded_policy = load_policy(policy)
        _list_all(Store(Path(loaded_policy.approval.folder), Path(loaded_policy.approval.key)))
        return
    declined = False
    for notebook in notebooks or ():
        project = notebook.resolve().parent
        loaded_policy = load_policy(policy, project)
        manifest = of_cells(loaded_policy, project)
        if listing:
            declined |= not _list_one(notebook, manifest)
        elif revoke:
            cells = review.revoke(manifest, notebook)  # less may run then, so this asks nobody
            say(f"Took back {cells} cells of {notebook}")
        elif loaded_policy.admission != "approved":
            message = f"it has admission {loaded_policy.admission}, so approvals do not count"
            remedy = 'Set admission = "approved" there, or name the policy that kernels run under.'
            raise AdmissionError(message, file=policy, key="admission", remedy=remedy)
        else:
            declined |= not _approve_one(notebook, loaded_policy, manifest, yes=yes)
    raise typer.Exit(code=int(declined))


@app.command()
def templates(*, policy: KernelPolicyOption = "safe") -> None:
    """List the templates of a policy, checked as cells are. Exit status 1 when one is refused."""
    loaded_policy = load_policy(policy)
    any_refused = False
    for name, template in sorted(admission.load(loaded_policy.templates.folders).items()):
        findings = analyse(template.source, loaded_policy.rules())
        any_refused = any_refused or bool(findings)
        about = f"refused, {summary(findings)}" if findings else template.doc
        say(f"{name}: {about}")
    raise typer.Exit(code=int(any_refused))


# --- approving --------------------------------------------------------------------------------


def _approve_one(notebook: Path, policy: Policy, manifest: ManifestFile, *, yes: bool) -> bool:
    """Show what approving a notebook would change, ask, and approve. Return whether it was done."""
    reviewed = review.review(manifest, policy, notebook.resolve().name, _sources(notebook))
    _show(reviewed, policy, manifest)
    if not reviewed.changes:
        return True
    if not (yes or _confirmed(notebook)):
        return False
    if review.approve(manifest, policy, reviewed):
        complain(f"made the key {manifest.key}: whoever can read it can approve")
    say(f"Approved {notebook}")
    return True


def _confirmed(notebook: Path) -> bool:
    if not sys.stdin.isatty():
        remedy = "Run it in a terminal, or read what it shows and give --yes."
        raise AdmissionError("nobody is there to be asked", file=str(notebook), remedy=remedy)
    return typer.confirm("Approve this?")


def _show(reviewed: Review, policy: Policy, manifest: ManifestFile) -> None:
    """Print what approving a notebook would change: its new cells, whole."""
    counts = f"{len(reviewed.new)} new, {reviewed.kept} approved already, {reviewed.gone} gone"
    head = f"{reviewed.notebook}, for policy {policy.name} in {manifest.scope}: {counts}"
    say(*_whole_lines(head, ""))
    if reviewed.why_unusable:
        lost = f"what was approved before can't be used: {reviewed.why_unusable}"
        complain(lost)
    for cell in reviewed.new:
        _show_cell(cell, policy)


def _show_cell(cell: NewCell, policy: Policy) -> None:
    say("", f"cell {cell.number}", *_lines(cell, policy))


def _lines(cell: NewCell, policy: Policy) -> Iterator[str]:
    """Yield the lines of a cell, each with notes on what a reader could overlook in it."""
    for line in cell.source.split("\n"):
        yield from _whole_lines(line.rstrip(" "), "  │ ")
        for note in exactly(line):
            yield from _whole_lines(note, _NOTE)
    for word in cell.letters:
        yield from _whole_lines(f"not ASCII: {exact(word) if reorders(word) else word}", _NOTE)
    if cell.too_long:
        yield from _whole_lines(f"too long, no kernel runs it: {cell.too_long}", _NOTE)
    if cell.findings:
        refusal = f"policy {policy.name} refuses it even if approved: {summary(cell.findings)}"
        yield from _whole_lines(refusal, _NOTE)


_NOTE: Final = "  ! "
#: The beginning of a line that continues the line above. No line of a cell begins like this.
_GOING_ON: Final = "  ┆ "


def _whole_lines(text: str, start: str) -> list[str]:
    """Return a text in lines that the terminal need not break."""
    lines = broken(visible(text), start, _GOING_ON, columns=get_terminal_size().columns)
    return [line.rstrip(" ") for line in lines]


# --- listing ----------------------------------------------------------------------------------


def _list_one(notebook: Path, manifest: ManifestFile) -> bool:
    """Print for each cell of a notebook whether it is approved. Return whether all are."""
    approved_digests = approved(manifest.read(), notebook.resolve().name)
    every = True
    for number, source in _sources(notebook).items():
        is_approved = runs_nothing(source) or sha256(source) in approved_digests
        every = every and is_approved
        state = "approved" if is_approved else "not approved"
        say(f"{notebook}: cell {number}: {state}")
    return every


_WHAT: Final = {"call": "calls of", "import": "import of", "start": "start in"}
_DIGEST: Final = 12
_NOTHING: Final = "nothing was approved"


def _list_all(store: Store, *, as_json: bool = False) -> None:
    """Print every record of a store, and complain about each manifest that can't be used."""
    rows: list[dict[str, object]] = []
    for entry in store.manifests():
        if isinstance(entry, AdmissionError):
            complain(f"approvals that do not count: {entry}")
            continue
        manifest = entry[1]
        common = {"scope": manifest.scope, "policy": manifest.policy}
        for record in manifest.records:
            row = {name: getattr(record, name) for name in ("id", "kind", "subject", "digest")}
            rows.append(
                row
                | common
                | {"who": record.who, "when": record.when, "what": _record_text(record)}
            )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        say(f"{row['id']}  {row['what']}")
        policy_and_scope = (
            f"policy {row['policy']} ({str(row['digest'])[:_DIGEST]}) in {row['scope']}"
        )
        say(f"          {policy_and_scope}, {row['when']}, by {row['who']}")
    if not rows:
        say(_NOTHING)


def _record_text(record: Record) -> str:
    if record.kind == "notebook":
        return f"{len(record.cells)} cells of {record.subject}"
    return f"{_WHAT[record.kind]} {record.subject}"


def _sources(path: Path) -> dict[int, str]:
    """Return the sources of a notebook's code cells, by their number among all cells, from 1.

    Raises AdmissionError.
    """
    remedy = "Give a notebook: a file that ends in .ipynb."
    try:
        content, _ = read_file(path.resolve(), MAX_FILE_BYTES, what="it", remedy=remedy)
        sources = dict(read_notebook(content, upgraded, max_values=MAX_VALUES).code_cells)
        "".join(sources.values()).encode()  # raises for a lone surrogate
    except FileNotFoundError:
        raise AdmissionError("no such file", file=str(path), remedy=remedy) from None
    except UnreadableError as error:
        raise AdmissionError(f"it {error}", file=str(path), remedy=remedy) from None
    except UnicodeEncodeError:
        message = "a cell is not Unicode: half of a surrogate pair"
        raise AdmissionError(message, file=str(path), remedy="Mend that cell.") from None
    return sources


# --- single approvals, by their ids ---------------------------------------------------------------


@approvals_app.command("list")
def list_approvals(*, as_json: AsJson = False) -> None:
    """List approvals: what was approved, where, under which policy, when and by whom.

    An approval is for the policy as it was then. A policy that a notebook's metadata or %policy
    made narrower is another policy.
    """
    _list_all(of_user(), as_json=as_json)


@approvals_app.command("revoke")
def revoke_approvals(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All that there is.")] = False,
) -> None:
    """Take back approvals. Running kernels ask again, or refuse, from their next look on.

    Exit status 1 when an id has no approval, or when --all left a manifest that can't be used as it
    is.
    """
    if bool(ids) is every:
        raise typer.BadParameter("Give ids as `cellblock approvals list` has them, or --all.")
    chosen_ids = None if every else frozenset(ids or ())
    revoked, unusable = of_user().revoke(chosen_ids)
    for error in unusable:
        complain(f"approvals that do not count: {error}")
    for record in revoked:
        say(f"Took back {record.id}: {_record_text(record)}")
    missing_ids = (chosen_ids or frozenset()) - {record.id for record in revoked}
    for number in sorted(missing_ids):
        complain(f"no approval has the id {number}")
    raise typer.Exit(code=int(bool(missing_ids or (every and unusable))))
