"""Saved sessions: the files that ``AsyncSandbox.save`` writes and ``load`` reads.

A file is a zip. ``session.json`` (``SavedSession``) lists the variables and cells. ``values/N`` has
the value of variable N as it is sent between host and guest (``wire.arrays``): msgpack of a
``messages.Value``. A guest encoded it, and a guest decodes it, under its locks. The host never
makes a Python value of it. That is why a file from anybody can be loaded; the host bounds what it
reads itself. Nothing in the zip is compressed, so that reading it takes no more memory than the
file has bytes (ADR 0035).
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

#: Bytes of all values together.
MOST_VALUES: Final = 1 << 30
#: Bytes of a file. It is below 4 GiB, so that offsets have 32 bits and there is no zip64 directory.
_MOST_BYTES: Final = MOST_VALUES + (1 << 26)
#: Bytes of one value: it must fit into a frame, together with its name.
MOST_VALUE: Final = frames.MAX_FRAME - (1 << 13)
MOST_VARIABLES: Final = 1_000
#: The cells that are saved, the last of a session, and the characters of all their sources.
MOST_CELLS: Final = 1_000
MOST_CHARACTERS: Final = 1 << 20
#: Bytes of ``session.json``. JSON takes at most six bytes for a character.
_MOST_JSON: Final = 16 << 20
#: Bytes of the zip's directory.
_MOST_DIRECTORY: Final = 1 << 18
_SESSION: Final = "session.json"
#: The end of a zip, and before it the locator that a zip64 has (APPNOTE.TXT 6.3.10, 4.3.15 f.).
_END: Final = struct.Struct("<4s16x4s4H2LH")


class SavedVariable(msgspec.Struct, frozen=True):
    """A variable of a saved session.

    ``why`` says why its value was not saved, or could not be set; it is empty if it was. ``cells``
    are the numbers of the cells whose source binds the name.
    """

    name: messages.Name
    type: messages.Name
    why: messages.Name = ""
    cells: Annotated[tuple[messages.Count, ...], msgspec.Meta(max_length=MOST_CELLS)] = ()


class SavedCell(msgspec.Struct, frozen=True):
    """A cell that ran: its execution count and its source."""

    count: messages.Count
    source: str


class SavedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``session.json``: the variables and cells of a session."""

    format: Literal[1] = 1
    #: The version of cellblock, and the name and digest of the policy, that it was saved with.
    cellblock: messages.Name
    policy: messages.Name
    policy_sha256: messages.Name
    variables: Annotated[tuple[SavedVariable, ...], msgspec.Meta(max_length=MOST_VARIABLES)]
    #: The number of variables beyond ``MOST_VARIABLES``, which are not listed.
    unlisted: messages.Count = 0
    cells: Annotated[tuple[SavedCell, ...], msgspec.Meta(max_length=MOST_CELLS)] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the variables that have their values."""
        return tuple(variable.name for variable in self.variables if not variable.why)

    @property
    def missing(self) -> tuple[SavedVariable, ...]:
        """The variables without their values, each with the reason and the cells that bind it."""
        return tuple(variable for variable in self.variables if variable.why)

    @property
    def to_run(self) -> Mapping[int, str]:
        """The sources of the cells that bind a missing name, in order, by the cells' numbers."""
        numbers = {count for variable in self.missing for count in variable.cells}
        return {cell.count: cell.source for cell in self.cells if cell.count in numbers}


class LoadedSession(SavedSession, frozen=True, kw_only=True):
    """A saved session after loading it, with the results of the cells that were run again.

    ``why`` of a variable says why it could not be set.
    """

    results: tuple[Result, ...] = ()


def value_name(number: int) -> str:
    """Return the name of the zip's member with the value of a variable."""
    return f"values/{number}"


class SessionWriter:
    """A writer of a saved session.

    It writes a hidden file beside ``path``, which only the user can read; ``finish`` renames it to
    ``path``, replacing a file or link there. ``written`` are the folders that cells can write: no
    link in them is followed on the way to ``path``. Raises OSError if the file can't be written.
    """

    def __init__(self, path: Path, written: Sequence[str] = ()) -> None:
        self._name = path.name
        self._unfinished = f".{secrets.token_hex(16)}"
        self._folder = open_named(path.parent, written, FOLDER)
        try:
            file_fd = os.open(self._unfinished, NEW, 0o600, dir_fd=self._folder)
        except OSError:
            os.close(self._folder)
            raise
        self._file = os.fdopen(file_fd, "wb")
        self._archive = ZipFile(self._file, "w", ZIP_STORED)
        self._left = MOST_VALUES

    def add(self, number: int, value: messages.Value) -> str:
        """Write the value of a variable. Return "", or the reason if the value is too large."""
        content = msgspec.msgpack.encode(value)
        if len(content) > min(MOST_VALUE, self._left):
            return f"too large: a value may have {MOST_VALUE:,} bytes, all together {MOST_VALUES:,}"
        self._left -= len(content)
        self._archive.writestr(value_name(number), content)
        return ""

    def finish(self, session: SavedSession) -> None:
        """Write ``session.json``, and move the file to its path once it is on disk."""
        self._archive.writestr(_SESSION, msgspec.json.encode(session))
        self._archive.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        folder = self._folder
        os.rename(self._unfinished, self._name, src_dir_fd=folder, dst_dir_fd=folder)

    def close(self) -> None:
        """Close the file, and remove it if it is not finished."""
        with suppress(OSError):
            self._archive.close()
        with suppress(OSError):
            self._file.close()
        with closing(self._folder), suppress(FileNotFoundError):
            os.unlink(self._unfinished, dir_fd=self._folder)


class SessionFile:
    """A reader of a saved session that anybody may have written.

    Everything is bounded and checked before it is read. Raises ExchangeError if the file is not a
    saved session, and OSError if it can't be opened. ``written`` is that of ``SessionWriter``.
    """

    def __init__(self, path: Path, written: Sequence[str] = ()) -> None:
        folder = open_named(path.parent, written, FOLDER)
        try:
            with closing(folder):
                file_fd = os.open(path.name, FILE, dir_fd=folder)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise ExchangeError(f"{path} is a link: name the file itself") from None
            raise
        status = os.fstat(file_fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            os.close(file_fd)
            problem = f"is not a regular file, or has more than {_MOST_BYTES:,} bytes"
            raise ExchangeError(f"{path} {problem}")
        self._path = path
        self._size = status.st_size
        self._file = os.fdopen(file_fd, "rb")

    def read(self) -> SavedSession:
        """Return the content of ``session.json``. Call it before ``value`` and ``size``.

        Raises ExchangeError unless the file has the structure that ``save`` writes.
        """
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
        """Return the encoded value of a variable that was saved. Raises ExchangeError."""
        kind: Any = messages.Value
        with _refusing(value_name(number)):
            content = self._read(value_name(number), MOST_VALUE)
            frames.check(content)
            value: messages.Value = msgspec.msgpack.decode(content, type=kind)
            return value

    def size(self, number: int) -> int:
        """Return the number of bytes that a variable's value has in the file."""
        return self._archive.getinfo(value_name(number)).file_size

    def _opened(self) -> ZipFile:
        """Return the zip, after checking the length of its directory.

        ``zipfile`` reads the whole directory at once, so a hostile one must be refused before.
        """
        end = os.pread(self._file.fileno(), _END.size, max(0, self._size - _END.size))
        zip64, signature, *_, directory, _, comment = _END.unpack(end)
        is_zip64 = zip64 == b"PK\6\7"
        is_end = signature == b"PK\5\6"
        if is_zip64 or not is_end or directory > _MOST_DIRECTORY or comment:
            raise ValueError("no zip as save writes it")
        return ZipFile(self._file)

    def _check_members(self, session: SavedSession) -> None:
        """Raise ValueError unless the zip has exactly the members that ``session`` lists.

        Raise it too if they have more bytes than the file: members that overlap, or compressed
        members, would take more memory to read than the file has bytes.
        """
        variables = enumerate(session.variables)
        names = [
            _SESSION,
            *(value_name(number) for number, entry in variables if not entry.why),
        ]
        members = self._archive.infolist()
        if sorted(entry.filename for entry in members) != sorted(names):
            raise ValueError("other members than its variables")
        if sum(entry.file_size for entry in members) > self._size:
            raise ValueError("members that share their bytes, or are compressed")

    def _read(self, name: str, most: int) -> bytes:
        """Return the bytes of a member, at most ``most``."""
        member = self._archive.getinfo(name)
        if member.compress_type != ZIP_STORED or member.file_size > most:
            raise ValueError(f"{name} is compressed, or has more than {most:,} bytes")
        with self._archive.open(member) as content:
            return content.read(most)


@contextmanager
def _refusing(name: str | Path) -> Iterator[None]:
    """Raise ExchangeError in place of any exception that reading a hostile file raises.

    ``zipfile`` and ``msgspec`` raise exceptions of many types.
    """
    try:
        yield
    except Exception as exc:
        why = clean_line(str(exc), frames.LONGEST_WHY)
        raise ExchangeError(f"{name} is not a saved session, or a part is missing: {why}") from exc
