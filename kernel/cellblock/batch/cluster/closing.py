"""A worker that closes comes to its end, also where a signal comes meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from distributed import Status
from distributed.node import ServerNode

if TYPE_CHECKING:
    from distributed import Worker

#: Seconds that a worker has for its end, once its loop ends.
_PATIENCE: Final = 5.0


class Closing:
    """Sees to a worker's end, until it is let go of.

    A signal while it closes, as just after its scheduler has gone, cancels what it does, and it
    would wait for its own end for ever (``Worker.handle_scheduler``, distributed 2026.8.0). The
    longer a plugin takes to end, the more likely.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker, self._let_go = worker, False
        self._seeing = asyncio.get_running_loop().create_task(self._see())

    def let_go(self) -> None:
        """Leave a worker that goes on to itself."""
        if self._worker.status is not Status.closing:
            self._let_go = True
            self._seeing.cancel()

    async def _see(self) -> None:
        try:
            await self._worker.finished()
        except asyncio.CancelledError:
            if not self._let_go:
                await self._end()
            raise

    async def _end(self) -> None:
        """Have it at its end: it may come to that in the midst of this loop's, by itself."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._worker.finished()
        except TimeoutError:
            await ServerNode.close(self._worker)
