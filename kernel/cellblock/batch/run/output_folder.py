"""The folder that a run writes to, and what is in it of each notebook.

No name leads out of the folder, and no reader sees half a file. It may be part of a checkout, so
links in it are not followed. Beside the notebooks' files the run has files of its own there:

- A *journal* for each notebook under way: a line for its beginning, its cells as they were, each
  cell as it ended or was updated, and the end. A run that is killed loses no finished cell: the
  next run in the folder makes the notebook's file of the journal (`recover`). The notebook's file
  follows the journal within a second, or later where the file is large (`FileSaver`).
- The *run log*, ``run.jsonl``: a line for each notebook that ended, by which ``--resume`` knows it
  (`RunLog`).

A line that was cut off is ignored, as is whatever else is in the place of these files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.document import Document, raw
from cellblock.batch.run.execution import NotebookResult, NotebookStatus, UnwritableError
from cellblock.errors import CellblockError
from cellblock.guest import remove_tree

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The subfolder of DIR with the run's own files: journals, the run log, files not complete yet.
OWN: Final = ".cellblock"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = _CREATE | os.O_EXCL
#: Does not block on a named pipe.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: How names of files end that are not complete yet.
_PARTIAL: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The folder can't be written to, or not by this run."""


class OutputFolder:
    """DIR. It is made if it is not there, and locked for this run until it is closed."""

    def __init__(self, path: Path) -> None:
        """Raise OutputFolderError where it can't be used."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            self._own = _make_folder(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        try:
            self._lock = self.append_to("lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another run writes there. Wait for it, or name another folder"
            raise OutputFolderError(f"{path}: {what}.") from None
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be locked: {exc.strerror}") from None
        for name in self.names(_PARTIAL):
            self.remove(name)

    def close(self) -> None:
        """Unlock the folder."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- the user's files -----------------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file whole or not at all; make the folders on the way. Raise OSError."""
        part = f"{os.urandom(8).hex()}{_PARTIAL}"
        with os.fdopen(os.open(part, _NEW, 0o666, dir_fd=self._own), "wb", _BUFFER) as file:
            file.writelines(content)
        try:
            with self._parent_of(name) as (folder, last):
                os.replace(part, last, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def remove_folder(self, name: str) -> str:
        """Remove a folder if it is there, and return its path. Raise OSError."""
        with self._parent_of(name) as (folder, last):
            remove_tree.remove(f"/proc/self/fd/{folder}/{last}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _parent_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder that a file is to be in, and its name there. Raise OSError."""
        *folders, last = name.split("/")
        invalid = "\0" in name or any(part in {"", ".", ".."} for part in (*folders, last))
        if invalid or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "no name for a file in there")
        at = os.dup(self._root)
        try:
            for each in folders:
                at, above = _make_folder(each, at), at
                os.close(above)
            yield at, last
        finally:
            os.close(at)

    # --- the run's own files --------------------------------------------------------------------

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a new file into a folder of the run's own. Raise OSError."""
        at = _make_folder(folder, self._own)
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=at)
        finally:
            os.close(at)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)

    def append_to(self, name: str) -> int:
        """Return a descriptor for appending to a file of the run's own. Raise OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raise OSError."""
        with os.fdopen(os.open(name, _READ, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the run's own files whose names end so."""
        with os.scandir(self._own) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(ending))

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _make_folder(name: str, folder: int) -> int:
    """Return a descriptor of a folder in a folder, made if it is not there. Raise OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


# --- a notebook under way: its journal and its file -----------------------------------------------

_JOURNAL_SUFFIX: Final = ".cells"
#: Seconds that the file may be behind the journal, and how many times longer than writing it takes:
#: so writing takes a tenth of the time at most.
MAX_DELAY: Final = 1.0
_DELAY_FACTOR: Final = 10
_encode: Final = msgspec.json.Encoder().encode


class StartLine(msgspec.Struct, frozen=True, tag="begun"):
    """A notebook before its first cell. ``output`` is its file's name, as bytes in hex."""

    output: str
    key: str
    metadata: dict[str, msgspec.Raw]
    minor: int
    #: How many cells there are. The lines that follow have them.
    cells: int


class CellLine(msgspec.Struct, frozen=True, tag="cell"):
    """A cell as it is written, and the widgets that changed with it."""

    index: int
    cell: msgspec.Raw
    widgets: dict[str, msgspec.Raw] = {}


class EndLine(msgspec.Struct, frozen=True, tag="ended"):
    """The result of the notebook."""

    record: NotebookResult


_Line = StartLine | CellLine | EndLine
_decode_line: Final = msgspec.json.Decoder(_Line).decode


class FileSaver:
    """Writes a notebook's journal, and its file ``output`` in the folder.

    ``key`` is what a resumed run knows the notebook by. Its methods raise UnwritableError.
    """

    def __init__(
        self, folder: OutputFolder, output: str, key: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._folder, self._output, self._key, self._loop = folder, output, key, loop
        self._journal = hashlib.sha256(os.fsencode(output)).hexdigest()[:32] + _JOURNAL_SUFFIX
        self._descriptor: int | None = None
        self._document: Document | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seconds_to_write = 0.0

    def begin(self, document: Document) -> None:
        """Begin the journal with the notebook before its first cell."""
        self._document = document
        with _writing():
            self._folder.remove(self._journal)
            self._descriptor = self._folder.append_to(self._journal)
            metadata, count = raw(document.metadata), len(document.cells)
            output = os.fsencode(self._output).hex()
            self._append(StartLine(output, self._key, metadata, document.minor, count))
            for index, cell in enumerate(document.cells):
                self._append(CellLine(index, msgspec.Raw(cell)))

    def save_cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Write a cell that ended or was updated to the journal, and soon to the file."""
        with _writing():
            self._append(CellLine(index, msgspec.Raw(cell), raw(widgets)))
        if self._timer is None:
            delay = max(MAX_DELAY, self._seconds_to_write * _DELAY_FACTOR)
            self._timer = self._loop.call_later(delay, self._write_on_timer)

    def finish(self, result: NotebookResult) -> None:
        """Write the end to the journal, then the whole file."""
        with _writing():
            self._append(EndLine(result))
            self._write()

    def close(self, *, done: bool) -> None:
        """Close the journal. Remove it if the notebook is ``done`` and in the run log."""
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor is not None:
            os.close(self._descriptor)
            if done:
                self._folder.remove(self._journal)

    def _append(self, line: _Line) -> None:
        if self._descriptor is not None:
            with open(self._descriptor, "wb", _BUFFER, closefd=False) as file:
                file.writelines((_encode(line), b"\n"))

    def _write_on_timer(self) -> None:
        self._timer = None
        with contextlib.suppress(OSError):  # `finish` raises, if the file can't be written then
            self._write()

    def _write(self) -> None:
        if self._descriptor is not None and self._document is not None:
            began = time.monotonic()
            self._folder.write(self._output, self._document.file_content())
            self._seconds_to_write = time.monotonic() - began


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Raise UnwritableError for an OSError."""
    try:
        yield
    except OSError as exc:
        raise UnwritableError(f"its output can't be written: {exc.strerror}") from None


# --- the run log ----------------------------------------------------------------------------------

_RUN_LOG: Final = "run.jsonl"
#: Statuses that the same notebook need not get again with the same options.
_TRIED_AGAIN: Final = {
    NotebookStatus.interrupted,
    NotebookStatus.skipped,
    NotebookStatus.unreadable,
}


class _LogEntry(msgspec.Struct, frozen=True):
    """A notebook's file, as its name's bytes in hex, the key it was run by, and its result."""

    output: str
    key: str
    record: NotebookResult


_decode_entry: Final = msgspec.json.Decoder(_LogEntry).decode


class RunLog:
    """The results of notebooks that ended in a folder, in this run and in earlier ones.

    Those of earlier runs are kept only where this run is ``resumed``.
    """

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Raise OSError where it can't be written."""
        self._folder = folder
        self._known: dict[str, _LogEntry] = {}
        if not resumed:
            folder.remove(_RUN_LOG)
        self._descriptor = folder.append_to(_RUN_LOG)
        os.write(self._descriptor, b"\n")  # ends a line that was cut off

    def load(self) -> None:
        """Read what was appended until now. Raise OSError."""
        for line in self._folder.lines(_RUN_LOG):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # it is not ours
                entry = _decode_entry(line)
                self._known[entry.output] = entry

    def append(self, output: str, key: str, result: NotebookResult) -> None:
        """Append the result of a notebook. Raise OSError."""
        entry = _LogEntry(os.fsencode(output).hex(), key, result)
        os.write(self._descriptor, _encode(entry) + b"\n")

    def find(self, output: str, key: str, *, passed: bool) -> NotebookResult | None:
        """Return the earlier result of the same notebook, if it need not run again.

        With ``passed``, only if it passed.
        """
        entry = self._known.get(os.fsencode(output).hex())
        if entry is None or entry.key != key or entry.record.status in _TRIED_AGAIN:
            return None
        if passed and entry.record.status is not NotebookStatus.passed:
            return None
        return msgspec.structs.replace(entry.record, kept=True)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


# --- journals that a killed run has left ----------------------------------------------------------


def recover(folder: OutputFolder, log: RunLog) -> int:
    """Write the files and log entries of notebooks whose journals are left, and remove those.

    Return how many files were written.
    """
    written = 0
    for name in folder.names(_JOURNAL_SUFFIX):
        try:
            left = _read_journal(line for line in folder.lines(name) if line.endswith(b"\n"))
        except (OSError, ValueError, IndexError, msgspec.MsgspecError, RecursionError):
            left = None  # a folder, a link, not ours, too large
        with contextlib.suppress(OSError):  # the journal stays, for the next run
            if left is not None:
                output, key, document, result = left
                with contextlib.suppress(RecursionError):  # Python 3.14 reads what it can't write
                    folder.write(output, document.file_content())
                    written += 1
                    if result is not None:
                        log.append(output, key, result)
            folder.remove(name)
    return written


def _read_journal(
    lines: Iterator[bytes],
) -> tuple[str, str, Document, NotebookResult | None] | None:
    """Return a notebook's file, its key, the notebook, and its result if it had ended.

    None if nothing was run. No more than one line is in memory besides the notebook.
    """
    start, result = _decode_line(next(lines, b"")), None
    if not isinstance(start, StartLine):
        return None
    document = Document((), start.metadata, start.minor)
    for line in lines:
        match _decode_line(line):
            case CellLine(index=index, cell=cell) if index == len(document.cells) < start.cells:
                document.add(bytes(cell))
            case CellLine(index=index, cell=cell, widgets=widgets):
                document.put_bytes(index, bytes(cell))
                document.take_widgets({name: row.copy() for name, row in widgets.items()})
            case EndLine(record=record):
                result = record
    if len(document.cells) < start.cells:
        return None
    return os.fsdecode(bytes.fromhex(start.output)), start.key, document, result
