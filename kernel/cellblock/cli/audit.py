"""``cellblock audit``: shows what sessions did, verifies that logs are whole, and exports them.

A log has text of cells: it is printed without control characters.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cellblock.cli.common import complain, say, say_rich
from cellblock.cli.main import group
from cellblock.errors import AuditError
from cellblock.host.audit import log
from cellblock.host.audit.log import printable as _clean
from cellblock.host.audit.log import read, words
from cellblock.host.audit.log import verify as look
from cellblock.policy.folders import cache_folder
from cellblock.render.cards import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.audit.log import Entry, Session, Verdict


app: Final = group("audit")

_SESSION_HELP: Final = "A session's id, or how it begins; `last`; or a log's file."
Folder = Annotated[
    Path | None, typer.Option("--folder", help="The folder of the logs. Default: the cache folder.")
]
One = Annotated[str, typer.Argument(metavar="SESSION", help=_SESSION_HELP)]
Some = Annotated[list[str] | None, typer.Argument(metavar="SESSION...", help=_SESSION_HELP)]

#: Characters of a time up to its minutes.
_MINUTES: Final = 16
#: Kinds of records that are shown in red.
_LOUD_KINDS: Final = frozenset({"crash", "failure", "gap", "kill", "lost"})


@app.command()
def show(
    session: Annotated[str, typer.Argument(metavar="SESSION", help=_SESSION_HELP)] = "",
    *,
    folder: Folder = None,
) -> None:
    """List sessions, or show the records of one. Doesn't check whether a log is whole.

    Exit status 1 when a log can't be read.
    """
    failed: list[AuditError] = []
    if session:
        table = _records(_session_named(folder, session), failed)
    else:
        table = _sessions(_folder(folder), failed)
    say_rich(table)
    for problem in failed:
        complain(str(problem))
    raise typer.Exit(code=bool(failed))


@app.command()
def verify(
    sessions: Some = None,
    *,
    folder: Folder = None,
    head: Annotated[str, typer.Option(help="A hash that `export --head` gave earlier.")] = "",
    ended: Annotated[
        bool, typer.Option("--ended", help="Exit status 1 also if the end is open.")
    ] = False,
) -> None:
    """Say for each session whether its log is whole. Exit status 1 when one is not.

    Without SESSION, all logs in the folder are verified. A log without a closing record has an open
    end: its host was killed, or the log was cut there, which only a --head kept earlier shows.
    """
    session_logs = [_session_named(folder, session) for session in sessions or ()] or log.sessions(
        _folder(folder)
    )
    if head and len(session_logs) != 1:
        raise typer.BadParameter("Name the session that the hash is of.", param_hint="--head")
    states = Counter[str]()
    for session_log in session_logs:
        verdict = look(session_log, head=head)
        states[verdict.state if verdict.sound else "wrong"] += 1
        _print_verdict(verdict)
    if not session_logs:
        say(f"no session in {_folder(folder)}")
    elif len(session_logs) > 1:
        state_words = {"wrong": "not whole", "open": "with an open end", "running": "being written"}
        parts = [
            f"{states[state]} {state_text}"
            for state, state_text in state_words.items()
            if states[state]
        ]
        say(f"{count(len(session_logs), 'log')}: {', '.join(parts) or 'all whole'}")
    raise typer.Exit(code=bool(states["wrong"] or (ended and states["open"])))


@app.command()
def export(
    session: One,
    *,
    folder: Folder = None,
    head: Annotated[
        bool, typer.Option("--head", help="Print id, number and hash of the last record only.")
    ] = False,
) -> None:
    """Print a session's records as JSON Lines, or its head to be kept elsewhere.

    The log is verified first. If it is not whole, stderr says so, and the exit status is 1.
    """
    session_log = _session_named(folder, session)
    verdict = look(session_log)
    if head:
        say(f"{verdict.session} {verdict.seq} {verdict.head}")
    else:
        for raw in _lines(session_log, []):
            sys.stdout.buffer.write(raw)
    for problem in _problems(verdict):
        complain(problem)
    raise typer.Exit(code=not verdict.sound)


def _folder(named_folder: Path | None) -> Path:
    return named_folder or Path(cache_folder(), "audit")


def _session_named(folder: Path | None, name: str) -> Session:
    """Return the session that a user names by its id, by the beginning of that, or by a file."""
    if "/" in name or name.endswith(".jsonl"):
        return log.of_file(Path(name))
    return log.find(_folder(folder), name)


def _lines(session: Session, failed: list[AuditError]) -> Iterator[bytes]:
    """Yield the lines of a session's log that can be read.

    If the rest can't, add the error to ``failed``. Raises AuditError for a file that is no
    session's log.
    """
    try:
        yield from log.lines(session.file)
    except AuditError as exc:
        if not session.id:
            raise
        failed.append(exc)


def _entries(session: Session, failed: list[AuditError]) -> Iterator[Entry]:
    """Yield the records of a session that can be read; see ``_lines``."""
    return (entry for raw in _lines(session, failed) if (entry := read(raw)) is not None)


# --- printed lines and tables -----------------------------------------------------------------


def _print_verdict(verdict: Verdict) -> None:
    ends = {
        "ended": "whole",
        "running": "whole so far, and being written",
        "open": "whole, but its end is open: the host was killed, or records are cut off",
    }
    state = ends[verdict.state] if verdict.sound else "not whole"
    say(f"{verdict.session}: {verdict.records} records, {state}")
    if verdict.sound:
        say(f"  head {verdict.seq} {verdict.head}")
    for problem in _problems(verdict):
        say(f"  {problem}")


def _problems(verdict: Verdict) -> Iterator[str]:
    yield from map(str, verdict.problems)
    if verdict.more:
        yield f"and {count(verdict.more, 'more problem')}"


def _sessions(folder: Path, failed: list[AuditError]) -> Table:
    """Return the table of sessions. On 80 columns it shows ids and times whole."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title_justify="left")
    table.title = escape(f"audit logs in {_clean(folder)}")
    for name in ("session", "started"):
        table.add_column(name, no_wrap=True)
    table.add_column("policy", overflow="fold")
    for name in ("cells", "denied", "stopped"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("end", no_wrap=True)
    for session in log.sessions(folder):
        table.add_row(*_summary(session, failed))
    return table


def _summary(session: Session, failed: list[AuditError]) -> tuple[str, ...]:
    """Return the row of a session in the table."""
    first_record: dict[str, Any] = {}
    cells = denied = stopped = 0
    kind = ""
    errors_before = len(failed)
    for entry in _entries(session, failed):
        kind = entry.kind
        record = entry.record
        first_record = first_record or record
        cells += kind == "cell"
        denied += kind == "cell" and record.get("decision") != "allowed"
        stopped += kind == "outcome" and record.get("status") == "stopped"
    end = "running" if session.running() else "ended" if kind == "session-end" else "open"
    end = "unreadable" if len(failed) > errors_before else end
    start_time, policy = (escape(_clean(first_record.get(key, ""))) for key in ("time", "policy"))
    start_time = start_time[:_MINUTES].replace("T", " ")
    return session.id, start_time, policy, str(cells), str(denied), str(stopped), end


def _records(session: Session, failed: list[AuditError]) -> Table:
    title = escape(f"session {_clean(session.id)}")
    table = Table("", "time", "record", "what", title=title, title_justify="left")
    for entry in _entries(session, failed):
        time = _clean(entry.record.get("time", ""))[11:23]
        cells = (str(entry.seq), time, _clean(entry.kind), words(entry))
        table.add_row(*map(escape, cells), style=_style(entry))
    return table


def _style(entry: Entry) -> str:
    if entry.kind in _LOUD_KINDS or entry.record.get("status") == "stopped":
        return "red"
    decision = entry.record.get("decision", "allowed")
    return "yellow" if decision != "allowed" or entry.kind == "withheld" else ""
