"""``cellblock changes``: lists, shows, keeps and drops the files that sessions staged."""

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

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Its name in `list` and %changes.")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files or folders; without any, all."),
]


@app.command("list")
def list_() -> None:
    """List sessions whose changes can still be kept, the newest first."""
    any_listed = False
    for session in _sessions():
        start_time = (
            datetime.fromtimestamp(session.began, UTC).astimezone().isoformat(" ", "minutes")
        )
        staged, why = list[changes.Change](), ""
        try:
            staged = session.changes()
        except (ChangesError, OSError) as error:
            why = f"  it can't be listed: {error!s}"
        runs = session.runs()
        if not (staged or why or runs):
            continue  # everything was kept, or is again as in the project
        any_listed = True
        state = ", still running" if runs else ""
        say(f"{session.id}  {start_time}  policy {session.policy}{state}")
        if why:
            say(why)
        for change in staged:
            note = f"  (not kept: {change.why_not})" if change.why_not else ""
            note = note or "  (yours was changed meanwhile)" * (change.yours_since is not None)
            say(f"  {change.kind:8} {session.label(change)}{note}")
    if not any_listed:
        say("nothing is staged")


@app.command()
def diff(session: Session, paths: Paths = None) -> None:
    """Show the changes of a session as a unified diff."""
    staged = _session(session)
    chosen_changes = staged.chosen(paths or (), overwrite=True)
    digests = changes.finish(keeping.digests(staged, chosen_changes))
    for change in chosen_changes:
        diff = staged.diff(change, digests.get(change.name, ""), most=None)
        say(*diff.text.split("\n"))
    if chosen_changes and staged.runs():
        exactly = ["--as", keeping.token(chosen_changes, digests)]
        command = shlex.join(["cellblock", "changes", "keep", session, *(paths or ()), *exactly])
        say(f"Its cells may go on. To keep exactly this: {command}")


@app.command()
def keep(
    session: Session,
    paths: Paths = None,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that you changed meanwhile, too.")
    ] = False,
    exactly: Annotated[
        str, typer.Option("--as", metavar="TOKEN", help="Only if it is still as `diff` showed it.")
    ] = "",
) -> None:
    """Apply changes of a session to the project: all of these, or none."""
    staged = _session(session)
    entries = keeping.keep(
        staged, paths or (), by="a terminal", overwrite=overwrite, exactly=exactly
    )
    for entry in entries:
        say(f"{entry.change.kind:8} {staged.label(entry.change)}")
    say(f"kept {len(entries)}")


@app.command()
def drop(session: Session) -> None:
    """Discard the changes of a session. While it runs, its cells still see them."""
    _session(session).drop()


def _sessions() -> list[changes.Staged]:
    """Return all sessions with staged files; their paths are relative to the current folder."""
    return [dataclasses.replace(staged, base=str(Path.cwd())) for staged in changes.sessions()]


def _session(number: str) -> changes.Staged:
    staged = next((session for session in _sessions() if session.id == number), None)
    if staged is None:
        raise ChangesError(f"no session {number}: see `cellblock changes list`")
    return staged
