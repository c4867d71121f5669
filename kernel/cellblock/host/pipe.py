"""The host's end of a guest's raw output: what is written below Python."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING, Final

from cellblock.host.output.terminal import split_tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor

PIPE_READ: Final = 1 << 16


class Pipe:
    """One of a guest's raw output descriptors, for what is written below Python."""

    def __init__(self, fd: int, on_text: Callable[[str], None], reactor: Reactor) -> None:
        self._fd, self._on_text, self._reactor = fd, on_text, reactor
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._cut = ""
        os.set_blocking(fd, False)
        reactor.watch(fd, self.drain)

    def hold(self, *, held: bool) -> None:
        """Leave what is written where it is, or take it again."""
        if self._fd >= 0 and held:
            self._reactor.unwatch(self._fd)
        elif self._fd >= 0:
            self._reactor.watch(self._fd, self.drain)

    def drain(self) -> None:
        """Pass on what is there."""
        if self._fd < 0:
            return
        try:
            data = os.read(self._fd, PIPE_READ)
        except BlockingIOError:
            return
        if not data:
            self.close()
        else:
            # A read ends anywhere: half a sequence waits for the rest of it.
            text, self._cut = split_tail(self._cut + self._decode(data))
            if text:
                self._on_text(text)

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            self._reactor.unwatch(self._fd)
            os.close(self._fd)
            self._fd = -1
