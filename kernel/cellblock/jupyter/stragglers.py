"""Cells that were sent before a failure was seen, and arrive after it.

A notebook that runs all its cells sends them one by one, and ``stop_on_error`` is to abort those
behind one that fails ("Messaging in Jupyter", execute_request). A denial is answered within a
millisecond, when the next cell may still be on its way through the server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.jupyter.messages import Message

#: Seconds in which nobody reads an error and runs another cell for it.
BLINK = 0.1


class Stragglers:
    """Tells the cells to abort from those that somebody runs knowing of the failure.

    Front ends that people look at name the cell in a request's metadata (``cellId``). Programs
    don't; they wait for each reply, and have their next request heard at once.
    """

    def __init__(self) -> None:
        self._failed: object = None
        self._until = 0.0

    def begin(self, failed: Message) -> None:
        """Take what comes within a blink of now for sent before ``failed`` was answered."""
        self._failed = failed.metadata.get("cellId")
        self._until = time.monotonic() + BLINK

    def among(self, message: Message) -> bool:
        """Say whether ``message`` is one of them; if so, the next has as long again."""
        if self._failed is None or time.monotonic() >= self._until:
            return False
        cell = message.metadata.get("cellId")
        if cell is None or cell == self._failed or not message.content.get("stop_on_error", True):
            return False
        self._until = time.monotonic() + BLINK
        return True
