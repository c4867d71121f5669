"""How a worker tells a run that goes on from one that was killed, and could not say so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: How often a run is heard of in the time after which nothing means that it is gone.
BEATS: Final = 4


class Pulse:
    """Calls ``silent`` on its loop, again and again, when nothing was heard for so many seconds.

    Waits are counted, not time: a worker that was itself held up for as long hears the run first.
    """

    def __init__(self, seconds: float, silent: Callable[[], None]) -> None:
        self._every, self._silent = seconds / BEATS, silent
        self._missed = 0
        self._counting = asyncio.get_running_loop().create_task(self._count())

    def hear(self) -> None:
        """Take note that the run goes on."""
        self._missed = 0

    def end(self) -> None:
        """Listen no more."""
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._missed += 1
            if self._missed > BEATS:
                self._silent()
