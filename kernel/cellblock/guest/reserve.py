"""Memory set aside in a guest with a limit, for a cell that makes room when memory is full."""

from __future__ import annotations

import mmap
from typing import Final

from cellblock.guest.violations import run_exempt

#: A cell can put something else in its place.
_mmap: Final = mmap.mmap


class Reserve:
    """Memory of a guest limited to ``limit`` bytes, so that a cell can make room when it is full.

    RLIMIT_DATA counts private writable mappings, touched or not. A few that nobody touches stand
    for memory that cells can't have until a cell has left nothing: one is given back then, for the
    next. Without a limit there are none.
    """

    _PIECES: Final = 4
    #: Bytes of each piece at most, and which part of the limit all of them are at most.
    _LARGEST: Final = 8 << 20
    _PART: Final = 16
    _FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

    def __init__(self, limit: int | None) -> None:
        self._size = min(self._LARGEST, (limit or 0) // self._PART // self._PIECES)
        self._pieces: list[mmap.mmap] = []
        self.refill()

    def refill(self) -> None:
        """Set aside what there is room for beside one piece, or else one piece less than before.

        It is given back first, so that there is memory for whatever follows.
        """
        self.give_back()
        try:
            while self._size and len(self._pieces) < self._PIECES:
                self._set_aside(2 * self._size).close()
                self._pieces.append(self._set_aside(self._size))
        except (OSError, MemoryError):
            return

    def _set_aside(self, size: int) -> mmap.mmap:
        made: mmap.mmap = run_exempt(_mmap, -1, size, flags=self._FLAGS)
        return made

    def give_back(self) -> bool:
        """Give a piece back; return whether there was one."""
        if not self._pieces:
            return False
        self._pieces.pop().close()
        return True
