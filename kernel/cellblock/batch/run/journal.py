"""What is on disk of a notebook while it runs, and what a later run in the same folder reads.

- A *journal* for each notebook under way: a line for its beginning, its cells as they were, each
  cell as it ended or was updated, and the end. A run that is killed loses no finished cell: the
  next run in the folder makes the notebook's file of the journal (`recover`).
- The notebook's file, which follows the journal within a second, or later where the file is large:
  writing it takes a tenth of the time at most (`FileSaver`). A short notebook's is written once.
- The *run log*, ``run.jsonl``: a line for each notebook that ended, by which ``--resume`` knows it
  (`RunLog`).

A line that was cut off is ignored, as is whatever else is in the place of these files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from cellblock.batch.run.document import Document, TooMuchOutputError, raw
from cellblock.batch.run.execution import UnwritableError
from cellblock.batch.run.output_folder import write_all
from cellblock.batch.run.result import REPEATABLE, NotebookResult, NotebookStatus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from cellblock.batch.run.output_folder import OutputFolder

T = TypeVar("T")
_JOURNAL_SUFFIX: Final = ".cells"
_RUN_LOG: Final = "run.jsonl"
#: Seconds that the file may be behind the journal, and how many times longer than writing it takes.
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


class Journal:
    """The journal of one notebook, from its beginning on. Its methods raise OSError."""

    def __init__(self, folder: OutputFolder, output: str, key: str, document: Document) -> None:
        name = hashlib.sha256(os.fsencode(output)).hexdigest()[:32] + _JOURNAL_SUFFIX
        self._folder, self.name = folder, name
        folder.remove(self.name)
        self._descriptor = folder.append_to(self.name)
        metadata, count = raw(document.metadata), len(document.cells)
        self._append(StartLine(_hex(output), key, metadata, document.minor, count))
        for index, cell in enumerate(document.cells):
            self.append_cell(index, cell, {})

    def append_cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Append a cell."""
        self._append(CellLine(index, msgspec.Raw(cell), raw(widgets)))

    def append_end(self, result: NotebookResult) -> None:
        """Append the end."""
        self._append(EndLine(result))

    def close(self) -> None:
        """Close the journal; its file stays."""
        os.close(self._descriptor)

    def _append(self, line: _Line) -> None:
        write_all(self._descriptor, (_encode(line), b"\n"))


class FileSaver:
    """`execution.Saver` that writes a journal, and a file in a folder.

    ``key`` is what a resumed run knows the notebook by.
    """

    def __init__(
        self, folder: OutputFolder, output: str, key: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._folder, self._output, self._key, self._loop = folder, output, key, loop
        self._document: Document | None = None
        self._journal: Journal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seconds_to_write = 0.0

    def begin(self, document: Document) -> None:
        """Begin the journal. Raise UnwritableError, as all methods do."""
        self._document = document
        self._journal = self._attempt(
            lambda: Journal(self._folder, self._output, self._key, document)
        )

    def save_cell(self, index: int, cell: bytes, widgets: dict[str, Any]) -> None:
        """Write a cell to the journal, and soon to the file."""
        if (journal := self._journal) is not None:
            self._attempt(lambda: journal.append_cell(index, cell, widgets))
            if self._timer is None:
                delay = max(MAX_DELAY, self._seconds_to_write * _DELAY_FACTOR)
                self._timer = self._loop.call_later(delay, self._write_on_timer)

    def finish(self, result: NotebookResult) -> None:
        """Write the end to the journal, then the whole file."""
        if (journal := self._journal) is not None:
            self._attempt(lambda: journal.append_end(result))
            self._attempt(self._write)

    def close(self, *, done: bool) -> None:
        """Close the journal. Remove it if the notebook is ``done`` and in the run log."""
        if self._timer is not None:
            self._timer.cancel()
        if self._journal is not None:
            self._journal.close()
            if done:
                self._folder.remove(self._journal.name)

    def _write_on_timer(self) -> None:
        self._timer = None
        with contextlib.suppress(OSError):  # `finish` raises, if the file can't be written then
            self._write()

    def _write(self) -> None:
        if self._document is not None:
            began = time.monotonic()
            self._folder.write(self._output, self._document.file_content())
            self._seconds_to_write = time.monotonic() - began

    def _attempt(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as exc:
            what = f"its output can't be written: {exc.strerror}"
            raise UnwritableError(what) from None


class RunLog:
    """The results of notebooks that ended in a folder, in this run and in earlier ones.

    Those of earlier runs are kept only where this run is ``resumed``.
    """

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Raise OSError where it can't be written."""
        self._folder = folder
        self._known: dict[str, tuple[str, NotebookResult]] = {}
        if not resumed:
            folder.remove(_RUN_LOG)
        self._descriptor = folder.append_to(_RUN_LOG)
        os.write(self._descriptor, b"\n")  # ends a line that was cut off

    def load(self) -> None:
        """Read what was appended until now. Raise OSError."""
        for line in self._folder.lines(_RUN_LOG):
            try:
                entry = _decode_entry(line)
            except (msgspec.MsgspecError, RecursionError):
                continue  # not ours
            self._known[entry.output] = entry.key, entry.record

    def append(self, output: str, key: str, result: NotebookResult) -> None:
        """Append the result of a notebook. Raise OSError."""
        os.write(self._descriptor, _encode(_LogEntry(_hex(output), key, result)) + b"\n")

    def find(self, output: str, key: str, *, passed: bool) -> NotebookResult | None:
        """Return the earlier result of the same notebook, if it need not run again.

        With ``passed``, only if it passed.
        """
        known, result = self._known.get(_hex(output), ("", None))
        if result is None or known != key or result.status not in REPEATABLE:
            return None
        if passed and result.status is not NotebookStatus.passed:
            return None
        return msgspec.structs.replace(result, kept=True)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class _LogEntry(msgspec.Struct, frozen=True):
    """A notebook's file, as its name's bytes in hex, the key it was run by, and its result."""

    output: str
    key: str
    record: NotebookResult


_decode_entry: Final = msgspec.json.Decoder(_LogEntry).decode


def _hex(output: str) -> str:
    return os.fsencode(output).hex()


# --- journals that a killed run has left ----------------------------------------------------------


def recover(folder: OutputFolder, log: RunLog) -> int:
    """Write the files and log entries of notebooks whose journals are left, and remove those.

    Return how many files were written.
    """
    written = 0
    for name, left in _read_journals(folder):
        with contextlib.suppress(OSError):  # the journal stays, for the next run
            if left is not None:
                folder.write(left.output, left.document.file_content())
                written += 1
                if left.result is not None:
                    log.append(left.output, left.key, left.result)
            folder.remove(name)
    return written


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """What a run left of a notebook; ``result`` is None if it had not ended."""

    output: str
    key: str
    document: Document
    result: NotebookResult | None


def _read_journals(folder: OutputFolder) -> Iterator[tuple[str, _Unfinished | None]]:
    """Yield the journals in a folder by name; None for one that has nothing to recover.

    No more than one line of it is in memory besides the notebook.
    """
    for name in folder.names(_JOURNAL_SUFFIX):
        try:
            left = _read_journal(line for line in folder.lines(name) if line.endswith(b"\n"))
        except (
            OSError,
            ValueError,
            IndexError,
            msgspec.MsgspecError,
            RecursionError,
            TooMuchOutputError,
        ):
            left = None  # a folder, a link, not ours
        yield name, left


def _read_journal(lines: Iterator[bytes]) -> _Unfinished | None:
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
        return None  # nothing was run
    return _Unfinished(os.fsdecode(bytes.fromhex(start.output)), start.key, document, result)
