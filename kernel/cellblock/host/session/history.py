"""The history of cells across sessions, and the data that cells find in ``inputs``.

``History`` keeps a session's cells in memory and writes them to a database in the user's cache
folder in idle time. Earlier sessions are read when a front end asks for them. If the database can't
be trusted, opened or written, the earlier history is not available and nothing else fails: a file
that others can write, or a link that leads elsewhere, is left as it is.

``encode_inputs`` and ``inputs_from_file`` check and bound the data that whoever runs cells gives
them as ``inputs``.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from cellblock.descriptors import FILE, FOLDER, closing, read_regular
from cellblock.errors import InputError
from cellblock.policy.folders import cache_folder
from cellblock.policy.paths import open_named

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence


T = TypeVar("T")
#: The session, the line (the cell's number) and the source of a cell.
Entry = tuple[int, int, str]
_SCHEMA: Final = """
create table if not exists sessions (id integer primary key autoincrement, started text);
create table if not exists history (
    session integer, line integer, raw text, source text, primary key (session, line));
"""
#: What a database with this schema holds, as ``sqlite_master`` lists it.
_OWN_OBJECTS: Final = {
    ("table", "sessions"),
    ("table", "history"),
    ("table", "sqlite_sequence"),
    ("index", "sqlite_autoindex_history_1"),
}
#: Reads earlier cells. It checks types, because whoever wrote the file may have put values of any
#: type into any column.
_SELECT_EARLIER: Final = """
select session, line, text from (
    select session, line, case ? when 1 then raw else source end as text
    from history where session is not ?)
where typeof(text) = 'text' and length(text) < ?
    and typeof(session) = 'integer' and typeof(line) = 'integer'
order by session desc, line desc limit ?
"""
#: Cells that are returned at once.
_MAX_ENTRIES: Final = 10_000
#: Characters of one earlier cell, and of all earlier cells that are returned at once.
_MAX_CELL: Final = 1 << 20
_MAX_TEXT: Final = 8 << 20
#: Seconds that the event loop may wait for a database that is locked, or made to be slow, and the
#: number of SQLite's instructions between looks at the clock.
_PATIENCE: Final = 0.25
_STEPS_PER_CHECK: Final = 10_000
_FILE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedError(OSError):
    """The file or folder of the history does not belong to this user alone.

    The error's text says what to do.
    """


def default_path() -> Path:
    """Return where history is kept: ``$XDG_CACHE_HOME/cellblock/history.sqlite``."""
    return Path(cache_folder(), "history.sqlite")


class History:
    """The cells that were run, newest last. Entries call this session 0.

    Without a ``path`` nothing is written, and earlier sessions are not read.
    """

    def __init__(self, path: Path | None) -> None:
        #: None from the first failure on.
        self._path = path
        self._here: list[tuple[int, str, str]] = []
        self._unsaved: list[tuple[int, str, str]] = []
        self._db: sqlite3.Connection | None = None
        #: This session's number in the database.
        self._session: int | None = None
        self._deadline = 0.0

    def store(self, line: int, raw: str, source: str) -> None:
        """Add one cell of this session; ``flush`` writes it."""
        self._here.append((line, raw, source))
        self._unsaved.append((line, raw, source))

    def annotate(self, line: int, comment: str) -> None:
        """Append a comment to a cell of this session."""
        for index, (number, raw, source) in enumerate(self._here):
            if number == line:
                annotated = number, f"{raw.rstrip()}  {comment}", f"{source.rstrip()}  {comment}"
                self._here[index] = annotated
                self._unsaved = [row for row in self._unsaved if row[0] != line] + [annotated]

    def flush(self) -> None:
        """Write the cells that are not in the database yet."""
        if not self._unsaved or self._path is None:
            return
        rows = self._unsaved
        self._unsaved = []

        def write(db: sqlite3.Connection) -> None:
            if self._session is None:
                cursor = db.execute("insert into sessions (started) values (datetime())")
                self._session = cursor.lastrowid
            db.executemany(
                "insert or replace into history values (?, ?, ?, ?)",
                [(self._session, *row) for row in rows],
            )
            db.commit()

        self._with_database(write)

    def tail(self, count: int, *, raw: bool) -> list[Entry]:
        """Return the last ``count`` cells: those of earlier sessions, then this session's."""
        newest = self._entries(raw=raw)[-count:] if count else []
        missing = min(count, _MAX_ENTRIES) - len(newest)
        return [*self._earlier(missing, raw=raw), *newest]

    def range(self, session: int, start: int, stop: int | None, *, raw: bool) -> list[Entry]:
        """Return lines ``start`` to ``stop`` (exclusive) of this session (0).

        For any other session this returns nothing.
        """
        entries = [] if session else self._entries(raw=raw)
        return [
            entry for entry in entries if entry[1] >= start and (stop is None or entry[1] < stop)
        ]

    def search(self, pattern: str, count: int | None, *, raw: bool, unique: bool) -> list[Entry]:
        """Return the last ``count`` cells of this session that match a glob pattern."""
        matches = [
            entry for entry in self._entries(raw=raw) if fnmatch.fnmatchcase(entry[2], pattern)
        ]
        if unique:
            matches = list({entry[2]: entry for entry in matches}.values())
        return matches[-count:] if count else matches

    def close(self) -> None:
        """Write what is not written yet, and close the database."""
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _entries(self, *, raw: bool) -> list[Entry]:
        return [(0, line, text if raw else source) for line, text, source in self._here]

    def _earlier(self, count: int, *, raw: bool) -> list[Entry]:
        if count <= 0 or self._path is None or not os.path.exists(self._path):
            return []

        def read_entries(db: sqlite3.Connection) -> list[Entry]:
            entries = list[Entry]()
            size = 0
            for session, line, text in db.execute(
                _SELECT_EARLIER, (raw, self._session, _MAX_CELL, count)
            ):
                size += len(text)
                if size > _MAX_TEXT:
                    break
                entries.append((session, line, text))
            return entries[::-1]

        return self._with_database(read_entries) or []

    def _with_database(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Call ``action`` with the open database; a failure turns history off for good."""
        import sqlite3  # noqa: PLC0415 - not on the way to the first reply

        self._deadline = time.monotonic() + _PATIENCE
        path = self._path
        try:
            if self._db is None and path is not None:
                _claim(path)
                self._db = sqlite3.connect(path, timeout=_PATIENCE)
                self._set_up(self._db)
            return None if self._db is None else action(self._db)
        except (OSError, sqlite3.Error) as exc:
            self._path = None
            sys.stderr.write(f"cellblock: history is off: {path}: {exc}\n")
            return None

    def _set_up(self, db: sqlite3.Connection) -> None:
        """Make the tables. Raises UntrustedError for a database that holds anything else."""
        # Whoever wrote the file may have put views and triggers there instead of tables.
        db.execute("pragma trusted_schema = off")
        db.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS_PER_CHECK)
        db.executescript(_SCHEMA)
        objects = set(db.execute("select type, name from sqlite_master"))
        if not objects <= _OWN_OBJECTS:
            raise UntrustedError("it holds more than history. Remove it.")


def _claim(path: Path) -> None:
    """Make the database's file if it is missing, and make sure that it is this user's alone.

    Raises OSError if it is not a regular file, or not this user's; then nothing is changed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(os.open(path.parent, FOLDER)) as folder:
        check_own(os.fstat(folder), path.parent)
        with closing(os.open(path.name, _FILE_FLAGS, 0o600, dir_fd=folder)) as file:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise UntrustedError("not a regular file. Remove it.")
            check_own(status, path)
            os.fchmod(file, 0o600)


def check_own(status: os.stat_result, path: Path | str) -> None:
    """Raise UntrustedError for a file or folder that another user owns or may write to."""
    if status.st_uid != os.geteuid():
        raise UntrustedError(f"{path} belongs to uid {status.st_uid}. Remove it.")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"others can write {path}. chmod go-w it, or remove it.")


# --- inputs: JSON data that whoever runs cells gives them ---------------------------------------

#: Bytes of all values as JSON, characters of a name, and levels of nesting, at most.
MOST_BYTES: Final = 4 << 20
LONGEST_NAME: Final = 200
DEEPEST: Final = 64
#: Characters of a value that an error shows.
_MOST_SHOWN: Final = 60
_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_TOO_LARGE_REMEDY: Final = "Put large data in a file beneath a read root, and read it in a cell."


def encode_inputs(values: Mapping[str, Any], *, source: str = "inputs") -> dict[str, str]:
    """Return each value as JSON text, by name.

    ``source`` says in errors where the values are from. Raises InputError for values that JSON does
    not have, and for too many bytes.
    """
    encoded = dict[str, str]()
    size = 0
    for name, value in values.items():
        if type(name) is not str or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            remedy = f"Give a text of 1 to {LONGEST_NAME} printable characters."
            raise InputError("not a name", file=source, value=_shortened(name), remedy=remedy)
        try:
            _check_json(value)
            encoded[name] = json.dumps(value, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as exc:
            remedy = "Give JSON data: None, bool, int, float, str, list, dict with text keys."
            raise InputError(
                f"no JSON data: {exc}",
                file=source,
                key=name,
                value=_shortened(value),
                remedy=remedy,
            ) from None
        size += len(encoded[name])
        if size > MOST_BYTES:
            problem = f"they take more than {MOST_BYTES:,} bytes"
            raise InputError(problem, file=source, key=name, remedy=_TOO_LARGE_REMEDY)
    return encoded


def inputs_from_file(path: str, written: Sequence[str] = ()) -> dict[str, str]:
    """Return the inputs in a file, which holds one JSON object. Raises InputError.

    In the folders in ``written`` no link is followed: cells write there, and could have replaced
    the file by a link to one that they can't read themselves.
    """
    try:
        values = json.loads(_read(path, written), parse_constant=_refuse_constant)
    except OSError as exc:
        problem = f"can't be read: {exc.strerror}"
        raise InputError(problem, file=path, remedy="Check the path.") from None
    except (ValueError, RecursionError) as exc:
        raise InputError(f"not JSON: {exc}", file=path, remedy="Mend it there.") from None
    if type(values) is not dict:
        raise InputError("not an object", file=path, remedy='Write one: {"name": value}.')
    return encode_inputs(values, source=path)


def _read(path: str, written: Sequence[str]) -> bytes:
    with closing(open_named(os.path.expanduser(path), written, FILE)) as fd:
        content = read_regular(fd, MOST_BYTES + 1)
    if content is None:
        raise InputError("not a regular file", file=path, remedy="Give a file.")
    if len(content) > MOST_BYTES:
        problem = f"larger than {MOST_BYTES:,} bytes"
        raise InputError(problem, file=path, remedy=_TOO_LARGE_REMEDY)
    return content


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _check_json(value: Any, depth: int = 0) -> None:
    """Raise TypeError for a value that would not come back from JSON as it was.

    Raises ValueError for one that is nested too deeply.
    """
    kind = type(value)
    if kind in _SCALARS:
        return
    if depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels deep")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a key of type {type(key).__name__}")
            _check_json(item, depth + 1)
    elif kind in {list, tuple}:
        for item in value:
            _check_json(item, depth + 1)
    else:
        raise TypeError(f"it is of type {kind.__name__}")


def _shortened(value: object) -> str:
    """Return a value as an error shows it: ASCII, and not too long."""
    text = ascii(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
