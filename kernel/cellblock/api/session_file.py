"""Sessions in files: what ``save`` keeps of a sandbox, and ``load`` gives to another.

A file is a zip: ``session.json`` says which variables and cells there are, and ``values/N`` has the
value of variable N as it crosses (``wire.arrays``), msgpack of a ``messages.Value``. The host
neither makes a value of it, nor writes what it knows of one: a guest encoded it and a guest decodes
it, under its locks. Whose file it is does not matter then; what the host reads is bounded first.
Nothing in it is compressed, so that it takes no more to read than it is large (ADR 0160).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from zipfile import ZIP_STORED, ZipFile

import msgspec

from cellblock.descriptors import FILE, FOLDER, NEW, closing
from cellblock.errors import ExchangeError
from cellblock.host.output.text import clean_line
from cellblock.policy.paths import open_named
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cellblock.api.results import Result

#: Bytes of all values, and of a file: with 32-bit offsets, zip has no second directory.
MOST_VALUES: Final = 1 << 30
_MOST_BYTES: Final = MOST_VALUES + (1 << 26)
#: Bytes of one value: it has to fit in a frame, with a name.
MOST_VALUE: Final = frames.MAX_FRAME - (1 << 13)
MOST_VARIABLES: Final = 1_000
#: Cells, and characters of all: the last of a session.
MOST_CELLS: Final = 1_000
MOST_CHARACTERS: Final = 1 << 20
#: Bytes of ``session.json``: JSON takes six for a character at most. And of the zip's directory.
_MOST_JSON: Final = 16 << 20
_MOST_DIRECTORY: Final = 1 << 18
_SESSION: Final = "session.json"
#: The locator of a zip64, if there is one, and the end of a zip (APPNOTE.TXT 6.3.10, 4.3.15 f.).
_END: Final = struct.Struct("<4s16x4s4H2LH")


class SavedVariable(msgspec.Struct, frozen=True):
    """A variable of a session's. ``why`` it was not kept is empty for one that was.

    ``cells`` are the numbers of those that bind its name, as far as their source says.
    """

    name: messages.Name
    type: messages.Name
    why: messages.Name = ""
    cells: Annotated[tuple[messages.Count, ...], msgspec.Meta(max_length=MOST_CELLS)] = ()


class SavedCell(msgspec.Struct, frozen=True):
    """A cell that ran, by its number."""

    count: messages.Count
    source: str


class SavedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a session, or what became of that where it was loaded."""

    format: Literal[1] = 1
    #: The versions and policy that it was saved with, and that one's digest.
    cellblock: messages.Name
    policy: messages.Name
    policy_sha256: messages.Name
    variables: Annotated[tuple[SavedVariable, ...], msgspec.Meta(max_length=MOST_VARIABLES)]
    #: How many variables there are beyond those.
    unlisted: messages.Count = 0
    cells: Annotated[tuple[SavedCell, ...], msgspec.Meta(max_length=MOST_CELLS)] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """The names that have their values."""
        return tuple(one.name for one in self.variables if not one.why)

    @property
    def missing(self) -> tuple[SavedVariable, ...]:
        """The variables that have none, each with the reason, and the cells that bind it."""
        return tuple(one for one in self.variables if one.why)

    @property
    def to_run(self) -> Mapping[int, str]:
        """The cells that bind a missing name, in order: their numbers and sources."""
        numbers = {count for one in self.missing for count in one.cells}
        return {cell.count: cell.source for cell in self.cells if cell.count in numbers}


class LoadedSession(SavedSession, frozen=True, kw_only=True):
    """What became of a saved session, with the results of the cells that were run again for it."""

    results: tuple[Result, ...] = ()


def value_name(number: int) -> str:
    """Return what the member with the value of a variable is called."""
    return f"values/{number}"


class SessionWriter:
    """Writes a saved session, the user's alone, which is at ``path`` once it is whole.

    A link of that name is replaced; none in folders that are ``written`` to leads there. Raises
    OSError for what can't be written.
    """

    def __init__(self, path: Path, written: Sequence[str] = ()) -> None:
        self._name, self._unfinished = path.name, f".{secrets.token_hex(16)}"
        self._folder = open_named(path.parent, written, FOLDER)
        try:
            opened = os.open(self._unfinished, NEW, 0o600, dir_fd=self._folder)
        except OSError:
            os.close(self._folder)
            raise
        self._file = os.fdopen(opened, "wb")
        self._archive, self._left = ZipFile(self._file, "w", ZIP_STORED), MOST_VALUES

    def add(self, number: int, value: messages.Value) -> str:
        """Write the value of a variable; return why that can't be, or nothing."""
        content = msgspec.msgpack.encode(value)
        if len(content) > min(MOST_VALUE, self._left):
            return f"larger: a value has {MOST_VALUE:,} bytes at most, all {MOST_VALUES:,}"
        self._left -= len(content)
        self._archive.writestr(value_name(number), content)
        return ""

    def finish(self, session: SavedSession) -> None:
        """Write the session, and put the file in its place."""
        self._archive.writestr(_SESSION, msgspec.json.encode(session))
        self._archive.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        folder = self._folder
        os.rename(self._unfinished, self._name, src_dir_fd=folder, dst_dir_fd=folder)

    def close(self) -> None:
        """Remove what is not finished."""
        with suppress(OSError):
            self._archive.close()
        with suppress(OSError):
            self._file.close()
        with closing(self._folder), suppress(FileNotFoundError):
            os.unlink(self._unfinished, dir_fd=self._folder)


class SessionFile:
    """A saved session, anybody's: what is read of it is bounded, and checked, first.

    Raises ExchangeError for what is none, OSError for what can't be opened. ``written`` is as for
    ``SessionWriter``.
    """

    def __init__(self, path: Path, written: Sequence[str] = ()) -> None:
        folder = open_named(path.parent, written, FOLDER)
        try:
            with closing(folder):
                opened = os.open(path.name, FILE, dir_fd=folder)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise ExchangeError(f"{path} is a link: name the file itself") from None
            raise
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            os.close(opened)
            raise ExchangeError(f"{path} is no regular file of up to {_MOST_BYTES:,} bytes")
        self._path, self._size = path, status.st_size
        self._file = os.fdopen(opened, "rb")

    def read(self) -> SavedSession:
        """Return all but the values, once that is known to be what ``save`` writes."""
        with _refusing(self._path):
            self._archive = self._opened()
            content = self._read(_SESSION, _MOST_JSON)
            session = msgspec.json.decode(content, type=SavedSession)
            self._check_members(session)
        return session

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def value(self, number: int) -> messages.Value:
        """Return the value of a variable that was kept. Raises ExchangeError."""
        kind: Any = messages.Value
        with _refusing(value_name(number)):
            content = self._read(value_name(number), MOST_VALUE)
            frames.check(content)
            value: messages.Value = msgspec.msgpack.decode(content, type=kind)
            return value

    def size(self, number: int) -> int:
        """Return how many bytes the value of a variable that was kept has in the file."""
        return self._archive.getinfo(value_name(number)).file_size

    def _opened(self) -> ZipFile:
        """Return the zip, once its directory is known to be short: zipfile reads it as a whole."""
        end = os.pread(self._file.fileno(), _END.size, max(0, self._size - _END.size))
        zip64, signature, *_, directory, _, comment = _END.unpack(end)
        is_zip64, is_end = zip64 == b"PK\6\7", signature == b"PK\5\6"
        if is_zip64 or not is_end or directory > _MOST_DIRECTORY or comment:
            raise ValueError("no zip as save writes it")
        return ZipFile(self._file)

    def _check_members(self, session: SavedSession) -> None:
        """Raise ValueError for any other member, and for more bytes than there are."""
        variables = enumerate(session.variables)
        names = [_SESSION, *(value_name(number) for number, one in variables if not one.why)]
        members = self._archive.infolist()
        if sorted(one.filename for one in members) != sorted(names):
            raise ValueError("other members than its variables")
        if sum(one.file_size for one in members) > self._size:
            raise ValueError("members that share their bytes, or are compressed")

    def _read(self, name: str, most: int) -> bytes:
        member = self._archive.getinfo(name)
        if member.compress_type != ZIP_STORED or member.file_size > most:
            raise ValueError(f"{name} is compressed, or has more than {most:,} bytes")
        with self._archive.open(member) as content:
            return content.read(most)


@contextmanager
def _refusing(name: str | Path) -> Iterator[None]:
    """Raise what a hostile file has zipfile and msgspec raise, which is many things, as one."""
    try:
        yield
    except Exception as exc:
        why = clean_line(str(exc), frames.LONGEST_WHY)
        raise ExchangeError(f"{name} is no saved session, or not whole: {why}") from exc
