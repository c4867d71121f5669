"""A notebook's file while it runs: journalled cell by cell, written whole now and then.

The journal has a cell as soon as it ends; the file follows within a second, or later where it is
large: writing it takes a tenth of the time at most. A short notebook's is written once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cellblock.batch.run.execution import UnwritableError
from cellblock.batch.run.journal import Journal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from cellblock.batch.run.document import Document
    from cellblock.batch.run.fate import Record
    from cellblock.batch.run.folder import OutputFolder

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
