"""Readings in a thread, of things that a guest can keep locked, so that the host is not held up."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")
#: Seconds between a reading and the next, at least; and how many times as long as the first one
#: took.
PAUSE: Final = 1.0
PAUSE_PART: Final = 10


class Reading(Generic[Answer]):
    """Reads in a thread, one reading at a time.

    A process can keep its memory and its folders locked, and whoever reads about them must wait,
    however long that takes. Such a thread can't be ended, either.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._answers: list[Answer] = []

    @property
    def is_under_way(self) -> bool:
        """Whether the last reading has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, action: Callable[[], Answer], wait: float = 0.0) -> None:
        """Have ``action`` called in a thread, and wait up to ``wait`` seconds for its end.

        Call this only while no reading is under way. An earlier answer that nobody took is dropped.
        """
        answers = self._answers = list[Answer]()
        self._thread = threading.Thread(target=lambda: answers.append(action()), daemon=True)
        with contextlib.suppress(RuntimeError):  # too many threads: then no answer comes
            self._thread.start()
            if wait:
                self._thread.join(wait)

    def take(self) -> Answer | None:
        """Return the answer, once; None if there is none yet."""
        return self._answers.pop() if self._answers else None


class SpacedReading(Reading[Answer]):
    """Reads in a thread with pauses, so that long readings take a tenth of the time at most."""

    def __init__(self) -> None:
        super().__init__()
        #: When the next reading may begin (``time.monotonic``).
        self._due = 0.0

    def begin_if_due(self, action: Callable[[], Answer]) -> None:
        """Have ``action`` called, if no reading is under way and the pause is over."""
        if self.is_under_way or time.monotonic() < self._due:
            return

        def timed() -> Answer:
            began = time.monotonic()
            try:
                return action()
            finally:
                ended_at = time.monotonic()
                self._due = ended_at + max(PAUSE, PAUSE_PART * (ended_at - began))

        self.begin(timed)
