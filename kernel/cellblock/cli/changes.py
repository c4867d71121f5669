"""``cellblock changes``: what sessions wrote to projects, and keeping it."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from cellblock.cli.common import say
from cellblock.cli.main import group
from cellblock.errors import ChangesError
from cellblock.host.services import changes, keeping

app: Final = group("changes")

Session = Annotated[str, typer.Argument(metavar="SESSION", help="As `list` and %changes name it.")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files or folders; without any, all."),
]


@app.command("list")
def list_() -> None:
    """List sessions whose changes can still be kept, the newest first."""
    listed = False
    for one in _sessions():
        when = datetime.fromtimestamp(one.began, UTC).astimezone().isoformat(" ", "minutes")
        found, why = list[changes.Change](), ""
        try:
            found = one.changes()
        except (ChangesError, OSError) as error:
            why = f"  it can't be listed: {error!s}"
        runs = one.runs()
        if not (found or why or runs):
            continue  # all of it was kept, or is the same again
        listed = True
        state = ", still running" if runs else ""
        say(f"{one.id}  {when}  policy {one.policy}{state}")
        if why:
            say(why)
        for change in found:
            note = f"  (not kept: {change.why_not})" if change.why_not else ""
            note = note or "  (yours was changed meanwhile)" * (change.yours_since is not None)
            say(f"  {change.kind:8} {one.label(change)}{note}")
    if not listed:
        say("nothing is staged")


@app.command()
def diff(session: Session, paths: Paths = None) -> None:
    """Show what was changed, as a unified diff."""
    staged = _session(session)
    chosen = staged.chosen(paths or (), overwrite=True)
    digests = changes.finish(keeping.digests(staged, chosen))
    for change in chosen:
        diff = staged.diff(change, digests.get(change.name, ""), most=None)
        say(*diff.text.split("\n"))
    if chosen and staged.runs():
        exactly = ["--as", keeping.token(chosen, digests)]
        command = shlex.join(["cellblock", "changes", "keep", session, *(paths or ()), *exactly])
        say(f"Its cells may go on. To keep exactly this: {command}")


@app.command()
def keep(
    session: Session,
    paths: Paths = None,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also over files that you changed meanwhile.")
    ] = False,
    exactly: Annotated[
        str, typer.Option("--as", metavar="TOKEN", help="Only as `diff` has shown it.")
    ] = "",
) -> None:
    """Make changes in the project: all of these, or none."""
    staged = _session(session)
    kept = keeping.keep(staged, paths or (), by="a terminal", overwrite=overwrite, exactly=exactly)
    for one in kept:
        say(f"{one.change.kind:8} {staged.label(one.change)}")
    say(f"kept {len(kept)}")


@app.command()
def drop(session: Session) -> None:
    """Throw away what a session wrote; while it runs, its cells still see it."""
    _session(session).drop()


def _sessions() -> list[changes.Staged]:
    """Return them all; paths are taken and shown as of the folder that one is in."""
    return [dataclasses.replace(one, base=str(Path.cwd())) for one in changes.sessions()]


def _session(number: str) -> changes.Staged:
    found = next((one for one in _sessions() if one.id == number), None)
    if found is None:
        raise ChangesError(f"no session {number}: see `cellblock changes list`")
    return found
