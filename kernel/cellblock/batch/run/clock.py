"""A notebook's time: what it has taken, what is left of it, and what is not its own."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cellblock.batch.run.fate import Ending, Fate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.batch.run.terms import Terms

#: Seconds that a guest has to be ready: the first one waits for what its policy preloads.
OPENING: Final = 120.0
#: The least time that a cell is given.
_LEAST: Final = 0.01


class Clock:
    """Goes from when it is made, under the limits of a run's terms."""

    def __init__(self, terms: Terms) -> None:
        self._timeout, self._cell_timeout = terms.timeout, terms.cell_timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """What the notebook has taken."""
        return time.monotonic() - self._began

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have it stand still: what is waited for would be there for whoever comes first."""
        since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - since

    def over(self, cell: int) -> Ending | None:
        """Return what becomes of a notebook that has no time left, at this cell; None if it has."""
        if self._timeout is None or self.seconds < self._timeout:
            return None
        what = f"the notebook took longer than {self._timeout:g} s (--timeout)"
        return Ending(Fate.timed_out, what, cell)

    def for_opening(self) -> float:
        """Return the seconds that a guest of a warm zygote has to be ready."""
        return min([OPENING, *self._left()])

    def for_cell(self) -> float | None:
        """Return the seconds that the next cell may take, where that is for us to say."""
        own = [] if self._cell_timeout is None else [self._cell_timeout]
        return min([*own, *self._left()], default=None)

    def is_shorter(self, timeout: float | None) -> bool:
        """Say whether a cell has less than this by the run's own limit for cells."""
        own = self._cell_timeout
        return own is not None and (timeout is None or own < timeout)

    def _left(self) -> list[float]:
        return [] if self._timeout is None else [max(_LEAST, self._timeout - self.seconds)]
