"""A notebook's file while it runs: journalled cell by cell, written whole now and then.

The journal has a cell as soon as it ends; the file follows within a second, or later where it is
large: writing it takes a tenth of the time at most. A short notebook's is written once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from cellblock.batch.run.document import Document, TooMuchError, raw
from cellblock.batch.run.execution import UnwritableError
from cellblock.batch.run.result import (
    FINAL,
    Fate,
    Record,
)
from cellblock.errors import CellblockError
from cellblock.guest import remove_tree

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cellblock.batch.run.result import Record


# Which notebooks have come to their end, in this run and those before it: a line for each.

_NAME: Final = "run.jsonl"


class Entry(msgspec.Struct, frozen=True):
    """A notebook's file, by its name's bytes in hex, the key that it was run by, its record."""

    output: str
    key: str
    record: Record


_ledger_encode: Final = msgspec.json.Encoder().encode
_ledger_decode: Final = msgspec.json.Decoder(Entry).decode


class Ledger:
    """The records of a folder; those of earlier runs go on where this one is ``resumed``."""

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Raise OSError where it can't be written."""
        self._folder = folder
        self._known: dict[str, tuple[str, Record]] = {}
        if not resumed:
            folder.remove(_NAME)
        self._descriptor = folder.append_to(_NAME)
        os.write(self._descriptor, b"\n")  # a line that was cut off ends here

    def recall(self) -> None:
        """Know what was entered until now. Raises OSError."""
        for line in self._folder.lines(_NAME):
            try:
                entry = _ledger_decode(line)
            except (msgspec.MsgspecError, RecursionError):
                continue  # not of ours
            self._known[entry.output] = entry.key, entry.record

    def enter(self, output: str, key: str, record: Record) -> None:
        """Write down what became of a notebook. Raises OSError."""
        os.write(self._descriptor, _ledger_encode(Entry(_hex(output), key, record)) + b"\n")

    def find(self, output: str, key: str, *, passed: bool) -> Record | None:
        """Return what became of the same notebook before, if that need not be tried again.

        With ``passed``, only if it did.
        """
        known, record = self._known.get(_hex(output), ("", None))
        if record is None or known != key or record.fate not in FINAL:
            return None
        if passed and record.fate is not Fate.passed:
            return None
        return msgspec.structs.replace(record, kept=True)

    def close(self) -> None:
        """Close its file."""
        os.close(self._descriptor)


def _hex(output: str) -> str:
    return os.fsencode(output).hex()


# The folder that a run writes to: no name leads out of it, and no reader sees half a file.
#
# A folder may come with what is checked out into it: links beneath it are not followed.

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = _CREATE | os.O_EXCL
#: Waits for no reader of a pipe.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: The run's own: journals, the ledger, files that are not whole yet.
OWN: Final = ".cellblock"
_LOCK: Final = "lock"
_UNFINISHED: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The folder can't be written to, or not by this run."""


class OutputFolder:
    """DIR, made if it is not there, and this run's alone until it is closed."""

    def __init__(self, path: Path) -> None:
        """Raise OutputFolderError where it can't be had."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            self._own = _made(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        self._lock = self._locked()
        for name in self.names(_UNFINISHED):
            self.remove(name)

    def _locked(self) -> int:
        try:
            lock = os.open(_LOCK, _APPEND, 0o600, dir_fd=self._own)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another run writes there. Wait for it, or name another folder"
            raise OutputFolderError(f"{self.path}: {what}.") from None
        except OSError as exc:
            raise OutputFolderError(f"{self.path}: can't be locked: {exc.strerror}") from None
        return lock

    def close(self) -> None:
        """Let others write there."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- what is for the user -----------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file whole or not at all; folders on the way are made. Raises OSError."""
        part = f"{os.urandom(8).hex()}{_UNFINISHED}"
        with self.open_new(part, 0o666) as descriptor:
            put(descriptor, content)
        try:
            with self._folder_of(name) as (folder, last):
                os.replace(part, last, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def cleared(self, name: str) -> str:
        """Return the path of a folder that is not there, or not any more. Raises OSError."""
        with self._folder_of(name) as (folder, last):
            remove_tree.remove(f"/proc/self/fd/{folder}/{last}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder that a file is to be in, and its name there. Raises OSError."""
        *folders, last = name.split("/")
        odd = "\0" in name or any(part in {"", ".", ".."} for part in (*folders, last))
        if odd or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "no name for a file in there")
        at = os.dup(self._root)
        try:
            for each in folders:
                at, above = _made(each, at), at
                os.close(above)
            yield at, last
        finally:
            os.close(at)

    # --- what is the run's own ----------------------------------------------------------------

    @contextlib.contextmanager
    def open_new(self, name: str, mode: int = 0o600) -> Iterator[int]:
        """Yield a descriptor of a new file of the run's own. Raises OSError."""
        descriptor = os.open(name, _NEW, mode, dir_fd=self._own)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a file of the run's own into a folder of such files. Raises OSError."""
        at = _made(folder, self._own)
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            put(descriptor, (content,))
        finally:
            os.close(descriptor)

    def append_to(self, name: str) -> int:
        """Return a descriptor for writing at the end of a file of the run's own. Raises OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raises OSError."""
        with os.fdopen(os.open(name, _READ, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the run's own files whose names end so."""
        return sorted(name for name in os.listdir(self._own) if name.endswith(ending))  # noqa: PTH208

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _made(name: str, folder: int) -> int:
    """Return a descriptor of a folder in a folder, made if it is not there. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def put(descriptor: int, content: Iterable[bytes]) -> None:
    """Write all of it. Raises OSError."""
    with open(descriptor, "wb", _BUFFER, closefd=False) as file:
        file.writelines(content)


# What is on disk of a notebook while it runs: a line for its beginning, each cell, and its end.
#
# Its cells follow the beginning as they were, then each as it ended, so that a run that is
# killed loses no finished cell: the next run in the same folder makes the notebook's file of it
# (``fold``). A line that was cut off is none. No more than a line is held besides the notebook.

ENDING: Final = ".cells"


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A notebook before its first cell. ``output`` is its file's name, as bytes in hex."""

    output: str
    key: str
    metadata: dict[str, msgspec.Raw]
    minor: int
    #: How many there are; the lines that follow have them.
    cells: int


class CellEnded(msgspec.Struct, frozen=True, tag="cell"):
    """A cell as it is written, and the widgets that changed with it."""

    index: int
    cell: msgspec.Raw
    widgets: dict[str, msgspec.Raw] = {}


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """What became of the notebook."""

    record: Record


_Line = Begun | CellEnded | Ended
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode


class Journal:
    """One notebook's, from its beginning on. Its methods raise OSError."""

    def __init__(self, folder: OutputFolder, output: str, key: str, document: Document) -> None:
        self._folder, self.name = folder, _name(output)
        folder.remove(self.name)
        self._descriptor = folder.append_to(self.name)
        name, cells = os.fsencode(output).hex(), document.cells
        self._put(Begun(name, key, raw(document.told), document.minor, len(cells)))
        for index, cell in enumerate(cells):
            self.cell(index, cell, {})

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Append a cell."""
        self._put(CellEnded(index, msgspec.Raw(cell), raw(widgets)))

    def ended(self, record: Record) -> None:
        """Append the end."""
        self._put(Ended(record))

    def close(self) -> None:
        """Close it; it stays."""
        os.close(self._descriptor)

    def _put(self, line: _Line) -> None:
        put(self._descriptor, (_encode(line), b"\n"))


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left of a notebook: how far it got, and its record if it ended."""

    output: str
    key: str
    document: Document
    record: Record | None


def left_in(folder: OutputFolder) -> Iterator[tuple[str, Left | None]]:
    """Yield the journals that are there by name; None for one in which nothing is to be found."""
    for name in folder.names(ENDING):
        try:
            left = _left(line for line in folder.lines(name) if line.endswith(b"\n"))
        except (
            OSError,
            ValueError,
            IndexError,
            msgspec.MsgspecError,
            RecursionError,
            TooMuchError,
        ):
            left = None  # a folder, a link, not of ours
        yield name, left


def _left(lines: Iterator[bytes]) -> Left | None:
    begun, record = _decode(next(lines, b"")), None
    if not isinstance(begun, Begun):
        return None
    document = Document((), begun.metadata, begun.minor)
    for line in lines:
        match _decode(line):
            case CellEnded(index=index, cell=cell) if index == len(document.cells) < begun.cells:
                document.add(bytes(cell))
            case CellEnded(index=index, cell=cell, widgets=widgets):
                document.put_bytes(index, bytes(cell))
                document.take_widgets({name: row.copy() for name, row in widgets.items()})
            case Ended(record=ended):
                record = ended
    if len(document.cells) < begun.cells:
        return None  # nothing was run
    return Left(os.fsdecode(bytes.fromhex(begun.output)), begun.key, document, record)


def _name(output: str) -> str:
    return hashlib.sha256(os.fsencode(output)).hexdigest()[:32] + ENDING


T = TypeVar("T")
#: Seconds that the file may be behind, and how many times longer than writing it takes.
BEHIND: Final = 1.0
_SHARE: Final = 10


class Checkpoint:
    """``execution.Saver`` for a file in a folder. ``key`` is what the notebook is resumed by."""

    def __init__(
        self, folder: OutputFolder, output: str, key: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._folder, self._output, self._key, self._loop = folder, output, key, loop
        self._document: Document | None = None
        self._journal: Journal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cost = 0.0

    def begun(self, written: Document) -> None:
        """Begin the journal. Raises UnwritableError, as all here."""
        self._document = written
        self._journal = self._attempt(
            lambda: Journal(self._folder, self._output, self._key, written)
        )

    def cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Have a cell in the journal, and soon in the file."""
        if (journal := self._journal) is not None:
            self._attempt(lambda: journal.cell(index, cell, widgets))
            if self._timer is None:
                delay = max(BEHIND, self._cost * _SHARE)
                self._timer = self._loop.call_later(delay, self._catch_up)

    def ended(self, record: Record) -> None:
        """Have the end in the journal, then all of it in the file."""
        if (journal := self._journal) is not None:
            self._attempt(lambda: journal.ended(record))
            self._attempt(self._write)

    def close(self, *, done: bool) -> None:
        """End; a notebook that is ``done``, and on record elsewhere, needs its journal no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._journal is not None:
            self._journal.close()
            if done:
                self._folder.remove(self._journal.name)

    def _catch_up(self) -> None:
        self._timer = None
        try:
            self._attempt(self._write)
        except UnwritableError:
            return  # it is told at the end, if it is so then

    def _write(self) -> None:
        if self._document is not None:
            began = time.monotonic()
            self._folder.write(self._output, self._document.written())
            self._cost = time.monotonic() - began

    def _attempt(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as exc:
            what = f"its output can't be written: {exc.strerror}"
            raise UnwritableError(what) from None


# What a run left that was killed becomes files and records, before anything else is written.


def fold(folder: OutputFolder, ledger: Ledger) -> int:
    """Return how many notebooks' files were made of journals; none of those is left."""
    made = 0
    for name, left in left_in(folder):
        with contextlib.suppress(OSError):  # the journal stays, for the next run
            if left is not None:
                folder.write(left.output, left.document.written())
                made += 1
                if left.record is not None:
                    ledger.enter(left.output, left.key, left.record)
            folder.remove(name)
    return made
