"""Input history, across sessions, in the user's cache folder.

The cells of a session are kept in memory and written in idle time; earlier sessions are read when
asked for. A database that can't be trusted, opened or written costs the earlier history, nothing
else: a file that others can write, or a link that leads somewhere else, is left as it is.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.errors import InputError
from cellblock.policy.folders import cache_folder
from cellblock.policy.paths import follow, open_unlinked, within

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence


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


# What cells find in ``inputs``: JSON data of whoever runs them, checked and bounded.

#: Bytes of all values as JSON, characters of a name, and levels within each other.
MOST_BYTES: Final = 4 << 20
LONGEST_NAME: Final = 200
DEEPEST: Final = 64
_SHOWN: Final = 60
_SCALARS: Final = frozenset({type(None), bool, int, float, str})


def encoded(values: Mapping[str, Any], *, source: str = "inputs") -> dict[str, str]:
    """Return each value as JSON. ``source`` is what messages call where they are from.

    Raises InputError for what is not JSON's, and for too much.
    """
    found, size = dict[str, str](), 0
    for name, value in values.items():
        if type(name) is not str or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            remedy = f"Give a text of 1 to {LONGEST_NAME} printable characters."
            raise InputError("not a name", file=source, key="", value=_shown(name), remedy=remedy)
        found[name] = _json(name, value, source)
        size += len(found[name])
        if size > MOST_BYTES:
            what = f"they take more than {MOST_BYTES:,} bytes"
            remedy = "Have cells read large data from a file beneath a read root."
            raise InputError(what, file=source, key=name, value="", remedy=remedy)
    return found


def from_file(path: str, written: Sequence[str] = ()) -> dict[str, str]:
    """Return the inputs in a file: one JSON object. Raises InputError.

    In folders that are ``written`` to, cells could have put a link in its place: to what they can't
    read themselves.
    """
    try:
        values = json.loads(_read(path, written), parse_constant=_no_constant)
    except OSError as exc:
        raise _unreadable(path, f"can't be read: {exc.strerror}", "Check the path.") from None
    except (ValueError, RecursionError) as exc:
        raise _unreadable(path, f"not JSON: {exc}", "Mend it there.") from None
    if type(values) is not dict:
        raise _unreadable(path, "not an object", 'Write one: {"name": value}.')
    return encoded(values, source=path)


def _read(path: str, written: Sequence[str]) -> bytes:
    end, links = follow(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111
    if link := next((at for at in links for root in written if within(at, root)), None):
        raise _unreadable(
            path, f"a link leads there that cells could change: {link}", "Name a file."
        )
    fd = open_unlinked(end, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unreadable(path, "not a regular file", "Give a file.")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        remedy = "Have cells read large data from a file beneath a read root."
        raise _unreadable(path, f"larger than {MOST_BYTES:,} bytes", remedy)
    return content


def _unreadable(path: str, message: str, remedy: str) -> InputError:
    return InputError(message, file=path, key="", value="", remedy=remedy)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON's")


def _json(name: str, value: Any, source: str) -> str:
    try:
        _check(value)
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as exc:
        remedy = "Give JSON data: None, bool, int, float, str, list, dict with text keys."
        raise InputError(
            f"no JSON data: {exc}", file=source, key=name, value=_shown(value), remedy=remedy
        ) from None


def _check(value: Any, depth: int = 0) -> None:
    """Raise TypeError for anything that JSON would make something else of, or nothing."""
    kind = type(value)
    if kind in _SCALARS:
        return
    if depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels deep")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a key of type {type(key).__name__}")
            _check(item, depth + 1)
    elif kind in {list, tuple}:
        for item in value:
            _check(item, depth + 1)
    else:
        raise TypeError(f"it is of type {kind.__name__}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
