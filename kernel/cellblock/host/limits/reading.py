"""Readings of what a guest can keep locked: in a thread, so that they hold up nobody."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")
#: Seconds between a reading and the next, at least; and how many times as long as the first took.
PAUSE: Final = 1.0
PAUSE_PART: Final = 10


class Reading(Generic[Answer]):
    """Reads in a thread, one reading at a time.

    A process can keep its memory and its folders locked, and whoever reads of them waits for that,
    however long: such a thread can't be ended either.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._answers: list[Answer] = []

    @property
    def is_under_way(self) -> bool:
        """Whether the last reading has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, read: Callable[[], Answer], wait: float = 0.0) -> None:
        """Have ``read`` called, and wait up to ``wait`` seconds for its end.

        Call it while none is under way: an answer that nobody took is forgotten.
        """
        answers = self._answers = list[Answer]()
        self._thread = threading.Thread(target=lambda: answers.append(read()), daemon=True)
        with contextlib.suppress(RuntimeError):  # there are too many threads: no answer comes
            self._thread.start()
            if wait:
                self._thread.join(wait)

    def take(self) -> Answer | None:
        """Return the answer, once; None while there is none."""
        return self._answers.pop() if self._answers else None


class SpacedReading(Reading[Answer]):
    """Reads so with pauses: a reading that takes long takes a tenth of the time."""

    def __init__(self) -> None:
        super().__init__()
        #: When the next may begin (``time.monotonic``).
        self._due = 0.0

    def begin_if_due(self, read: Callable[[], Answer]) -> None:
        """Have ``read`` called, if no reading is under way and the pause is over."""
        if self.is_under_way or time.monotonic() < self._due:
            return

        def timed() -> Answer:
            began = time.monotonic()
            try:
                return read()
            finally:
                ended = time.monotonic()
                self._due = ended + max(PAUSE, PAUSE_PART * (ended - began))

        self.begin(timed)
