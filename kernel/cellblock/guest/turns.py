"""Turns at something that threads and forked processes share: a byte in a pipe.

Whoever has read it has the turn, and writes it back. A lock of Python's does not reach processes,
and files can't be locked here. One that was killed while it had its turn is not waited for.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

#: Milliseconds after which whoever has the turn is taken to be gone.
_PATIENCE: Final = 5_000


class Turns:
    """One turn at a time, as a context. Raises OSError where it can't be made."""

    def __init__(self) -> None:
        self._taken, self._given = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._give()

    def close(self) -> None:
        """Let go of it; whoever else shares it has turns still."""
        for fd in (self._taken, self._given):
            with contextlib.suppress(OSError):
                os.close(fd)

    def __enter__(self) -> Self:
        poll = select.poll()
        poll.register(self._taken, select.POLLIN)
        while poll.poll(_PATIENCE):
            with contextlib.suppress(BlockingIOError):  # another was quicker
                os.read(self._taken, 1)
                break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give()

    def _give(self) -> None:
        """Put the byte back, but no second one: who was taken to be gone may come back."""
        poll = select.poll()
        poll.register(self._taken, select.POLLIN)
        if not poll.poll(0):
            os.write(self._given, b".")
