"""A session's loop over asyncio's."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class AsyncioReactor:
    """``host.reactor.Reactor`` on a loop that somebody runs; to be used in its thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Whom to call, and which of reading and writing is watched, by descriptor.
        self._watched: dict[int, tuple[Callable[[], None], bool, bool]] = {}

    def watch(
        self, fd: int, on_ready: Callable[[], None], *, read: bool = True, write: bool = False
    ) -> None:
        """Call ``on_ready`` when a descriptor is ready."""
        _, reads, writes = self._watched.get(fd, (on_ready, False, False))
        self._watched[fd] = on_ready, read, write
        if read != reads:
            (self._loop.add_reader(fd, self._call, fd) if read else self._loop.remove_reader(fd))
        if write != writes:
            (self._loop.add_writer(fd, self._call, fd) if write else self._loop.remove_writer(fd))

    def unwatch(self, fd: int) -> None:
        """Stop watching."""
        _, reads, writes = self._watched.pop(fd, (None, False, False))
        if reads and not self._loop.is_closed():
            self._loop.remove_reader(fd)
        if writes and not self._loop.is_closed():
            self._loop.remove_writer(fd)

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Call ``action`` in ``seconds``."""
        return self._loop.call_later(seconds, _attempt, action)

    def expect(self) -> None:
        """Do nothing: how asyncio waits is its own business."""

    def _call(self, fd: int) -> None:
        if (watched := self._watched.get(fd)) is not None:
            _attempt(watched[0])


def _attempt(action: Callable[[], None]) -> None:
    """Call ``action``; a fault of ours is told on stderr and ends no session (promise P6)."""
    try:
        action()
    except Exception:  # noqa: BLE001 - the loop goes on
        traceback.print_exc()
