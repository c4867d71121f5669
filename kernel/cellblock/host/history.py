"""Input history, across sessions, in the user's cache folder.

The cells of a session are kept in memory and written in idle time; earlier sessions are read when
asked for. A database that can't be trusted, opened or written costs the earlier history, nothing
else: a file that others can write, or a link that leads somewhere else, is left as it is.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.policy.home import cache_folder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

Entry = tuple[int, int, str]
_SCHEMA = """
create table if not exists sessions (id integer primary key autoincrement, started text);
create table if not exists history (
    session integer, line integer, raw text, source text, primary key (session, line));
"""
_MOST = 10_000
#: Characters of one earlier cell, and of all that are returned at once.
_LONGEST = 1 << 20
_MOST_TEXT = 8 << 20
#: Seconds that the loop may stand still for a database that is locked, or made to be slow.
_PATIENCE = 0.25
_SLICE = 10_000
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedError(OSError):
    """The history's place is not this user's alone. Its text says what to do."""


def default_path() -> Path:
    """Return where history is kept: ``$XDG_CACHE_HOME/cellblock/history.sqlite``."""
    return Path(cache_folder(), "history.sqlite")


class History:
    """What was run, newest last. Entries are ``(session, line, source)``; this session is 0."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._here: list[tuple[int, str, str]] = []
        self._unsaved: list[tuple[int, str, str]] = []
        self._db: sqlite3.Connection | None = None
        self._session: int | None = None
        self._broken = False
        self._until = 0.0

    def store(self, line: int, raw: str, source: str) -> None:
        """Remember one cell; ``flush`` writes it."""
        self._here.append((line, raw, source))
        self._unsaved.append((line, raw, source))

    def annotate(self, line: int, comment: str) -> None:
        """Put a comment behind a cell of this session, in what is remembered of it."""
        for place, (number, raw, source) in enumerate(self._here):
            if number == line:
                noted = number, f"{raw.rstrip()}  {comment}", f"{source.rstrip()}  {comment}"
                self._here[place] = noted
                self._unsaved = [row for row in self._unsaved if row[0] != line] + [noted]

    def flush(self) -> None:
        """Write what is not written yet."""
        if not self._unsaved or self._broken:
            return
        rows, self._unsaved = self._unsaved, []
        with self._tolerant():
            db = self._open()
            if self._session is None:
                cursor = db.execute("insert into sessions (started) values (datetime())")
                self._session = cursor.lastrowid
            db.executemany(
                "insert or replace into history values (?, ?, ?, ?)",
                [(self._session, *row) for row in rows],
            )
            db.commit()

    def tail(self, count: int, *, raw: bool) -> list[Entry]:
        """Return the last ``count`` cells, this session's after earlier ones'."""
        here = self._ours(raw=raw)[-count:] if count else []
        missing = min(count, _MOST) - len(here)
        return [*self._earlier(missing, raw=raw), *here]

    def range(self, session: int, start: int, stop: int | None, *, raw: bool) -> list[Entry]:
        """Return lines ``start`` to ``stop`` (exclusive) of this session (0); no other's."""
        if session:
            return []
        return [e for e in self._ours(raw=raw) if e[1] >= start and (stop is None or e[1] < stop)]

    def search(self, pattern: str, count: int | None, *, raw: bool, unique: bool) -> list[Entry]:
        """Return this session's cells matching a glob, the last ``count`` of them."""
        found = [e for e in self._ours(raw=raw) if fnmatch.fnmatchcase(e[2], pattern)]
        if unique:
            found = list({e[2]: e for e in found}.values())
        return found[-count:] if count else found

    def _ours(self, *, raw: bool) -> list[Entry]:
        return [(0, line, text if raw else source) for line, text, source in self._here]

    def _earlier(self, count: int, *, raw: bool) -> list[Entry]:
        if count <= 0 or self._broken:
            return []
        column = "raw" if raw else "source"
        with self._tolerant():
            if not self._path.exists():
                return []
            rows = self._open().execute(
                f"select session, line, {column} from history where session is not ? "  # noqa: S608 - one of two words
                f"and typeof({column}) = 'text' and length({column}) < {_LONGEST} "
                "and typeof(session) = 'integer' and typeof(line) = 'integer' "
                "order by session desc, line desc limit ?",
                (self._session, count),
            )
            return list(_bounded(rows))[::-1]
        return []

    # --- the file -----------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        import sqlite3  # noqa: PLC0415 - not on the way to the first reply

        if self._db is None:
            _claim(self._path)
            self._db = db = sqlite3.connect(self._path, timeout=_PATIENCE)
            # Who wrote the file may have put views and triggers there instead of tables.
            db.execute("pragma trusted_schema = off")
            db.set_progress_handler(lambda: time.monotonic() > self._until, _SLICE)
            db.executescript(_SCHEMA)
            _refuse_schema(db)
        return self._db

    @contextlib.contextmanager
    def _tolerant(self) -> Any:
        import sqlite3  # noqa: PLC0415

        self._until = time.monotonic() + _PATIENCE
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            self._broken = True
            print(f"cellblock: history is off: {self._path}: {exc}", file=sys.stderr)  # noqa: T201

    def close(self) -> None:
        """Write and close."""
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None


def _bounded(rows: Any) -> Iterator[Entry]:
    left = _MOST_TEXT
    for session, line, text in rows:
        left -= len(text)
        if left < 0:
            return
        yield session, line, text


def _claim(path: Path) -> None:
    """See to it that the file is there, is a file, and belongs to this user alone.

    Raises OSError for anything else; nothing is changed then.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, FOLDER)
    try:
        check_own(os.fstat(folder), path.parent)
        file = os.open(path.name, _FILE, 0o600, dir_fd=folder)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise UntrustedError("not a regular file. Remove it.")
            check_own(status, path)
            os.fchmod(file, 0o600)
        finally:
            os.close(file)
    finally:
        os.close(folder)


def check_own(status: os.stat_result, path: Path | str) -> None:
    """Raise UntrustedError for what another user owns, or may write."""
    if status.st_uid != os.geteuid():
        raise UntrustedError(f"{path} belongs to uid {status.st_uid}. Remove it.")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"others can write {path}. chmod go-w it, or remove it.")


def _refuse_schema(db: sqlite3.Connection) -> None:
    """Raise UntrustedError for a database that holds more than the two tables."""
    kinds = {(kind, name) for kind, name in db.execute("select type, name from sqlite_master")}
    ours = {("table", "sessions"), ("table", "history"), ("table", "sqlite_sequence")}
    ours.add(("index", "sqlite_autoindex_history_1"))
    if not kinds <= ours:
        raise UntrustedError("it holds more than history. Remove it.")
