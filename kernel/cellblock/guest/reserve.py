"""Memory that is set aside in a guest with a memory limit, so that a full guest still answers.

When a cell has taken all memory, one piece is given back. The next cell can then delete something.
"""

from __future__ import annotations

import mmap
from typing import Final

from cellblock.guest.violations import run_exempt

# Taken before cells can replace it.
_mmap: Final = mmap.mmap


class Reserve:
    """Memory set aside in a guest that is limited to ``limit`` bytes. None sets nothing aside.

    RLIMIT_DATA counts private writable mappings even if nothing is written to them. So the reserve
    is some mappings that are never written to, and that cost no memory. Cells can't use this part
    of the limit. When a cell has used up the rest, a piece is given back, so that the next can run.
    """

    _PIECES: Final = 4
    #: Most bytes of a piece, and the fraction (1/16) of the limit that all pieces may take.
    _LARGEST: Final = 8 << 20
    _PART: Final = 16
    _FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

    def __init__(self, limit: int | None) -> None:
        self._size = min(self._LARGEST, (limit or 0) // self._PART // self._PIECES)
        self._pieces: list[mmap.mmap] = []
        self.refill()

    def refill(self) -> None:
        """Set aside up to four pieces, as long as there is room for two more.

        One piece is given back first. If there is no room, the reserve is therefore one piece less
        than before, and what follows has that piece's memory.
        """
        self.give_back()
        try:
            while self._size and len(self._pieces) < self._PIECES:
                self._set_aside(2 * self._size).close()
                self._pieces.append(self._set_aside(self._size))
        except (OSError, MemoryError):
            return

    def _set_aside(self, size: int) -> mmap.mmap:
        mapping: mmap.mmap = run_exempt(_mmap, -1, size, flags=self._FLAGS)
        return mapping

    def give_back(self) -> bool:
        """Give one piece back; return False if there was none."""
        if not self._pieces:
            return False
        self._pieces.pop().close()
        return True
