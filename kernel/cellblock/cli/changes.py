"""``cellblock changes``: what sessions wrote to projects, and keeping it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from cellblock.host.services import changes
from cellblock.render.text import visible

app: Final = typer.Typer(
    help="Show, keep and drop what cells wrote to projects.",
    no_args_is_help=True,
    add_completion=False,
)

Session = Annotated[str, typer.Argument(metavar="SESSION", help="As `list` and %changes name it.")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files or folders; without any, all."),
]


@app.command("list")
def list_() -> None:
    """List sessions whose changes can still be kept, the newest first."""
    for one in changes.sessions():
        when = datetime.fromtimestamp(one.began, UTC).astimezone().isoformat(" ", "minutes")
        state = ", still running" if one.runs() else ""
        typer.echo(f"{one.id}  {when}  policy {visible(one.policy)}{state}")
        for change in one.changes():
            note = f"  (not kept: {change.why_not})" if change.why_not else ""
            typer.echo(f"  {change.kind:8} {visible(change.name)}{note}")


@app.command()
def diff(session: Session, paths: Paths = None) -> None:
    """Show what was changed, as a unified diff."""
    staged = _session(session)
    for change in staged.chosen(paths or ()):
        typer.echo("\n".join(map(visible, staged.diff(change).split("\n"))))


@app.command()
def keep(session: Session, paths: Paths = None) -> None:
    """Make changes in the project: all of these, or none."""
    staged = _session(session)
    chosen = staged.chosen(paths or ())
    staged.keep(chosen)
    for change in chosen:
        typer.echo(f"{change.kind:8} {visible(change.name)}")
    typer.echo(f"kept {len(chosen)}")


@app.command()
def drop(session: Session) -> None:
    """Throw away what a session wrote, once it has ended."""
    staged = _session(session)
    if staged.runs():
        raise changes.ChangesError(f"session {session} still runs: shut its kernel down first")
    staged.remove()


def _session(number: str) -> changes.Staged:
    found = next((one for one in changes.sessions() if one.id == number), None)
    if found is None:
        raise changes.ChangesError(f"no session {number}: see `cellblock changes list`")
    return found
