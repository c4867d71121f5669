"""Memory set aside, so that a cell can make room in a guest that is full.

RLIMIT_DATA counts private writable mappings, touched or not. A few that nobody touches stand for
memory that cells can't have until a cell has left nothing: one is given back then, for the next.
"""

from __future__ import annotations

import mmap
from typing import Final

#: Pieces, bytes of each at most, and which part of the limit all of them are at most.
_PIECES: Final = 4
_LARGEST: Final = 8 << 20
_PART: Final = 16
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Reserve:
    """What is set aside of ``limit`` bytes; nothing where there is no limit."""

    def __init__(self, limit: int | None) -> None:
        self._size = min(_LARGEST, (limit or 0) // _PART // _PIECES)
        self._most = _PIECES if self._size else 0
        self._pieces: list[mmap.mmap] = []
        self.settle()

    def settle(self) -> None:
        """Have as many pieces as there is room for besides one; at least one less if there is none.

        It is given back first, so that there is memory for whatever follows.
        """
        self.give()
        try:
            while len(self._pieces) < self._most:
                mmap.mmap(-1, 2 * self._size, flags=_FLAGS).close()
                self._pieces.append(mmap.mmap(-1, self._size, flags=_FLAGS))
        except (OSError, MemoryError):
            return

    def give(self) -> bool:
        """Give a piece back; return whether there was one."""
        if not self._pieces:
            return False
        self._pieces.pop().close()
        return True
