"""What cells have had the host write in a session, and what is left of what they may.

Kept in the host, where a worker that ends takes nothing along.
"""

from __future__ import annotations

from typing import Final

from cellblock.render.budgets import Written

#: What a file counts as at least, as it takes of a disk.
_LEAST_FILE: Final = 4_096


class Ledger:
    """One session's account."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0

    def spent(self) -> Written:
        """Return how the account stands."""
        return Written(self._bytes, self._max_bytes)

    def reserve(self, size: int) -> str:
        """Enter a file of so many bytes; return why it may not be written, or nothing."""
        taken = max(size, _LEAST_FILE)
        if self._bytes + taken > self._max_bytes:
            said = f"it counts as {taken:,} bytes, too many (max_total_bytes)"
            return f"{said}: {self.spent()} for this session"
        self._bytes += taken
        return ""

    def give_back(self, size: int) -> None:
        """Take out a file that was entered and not written."""
        self._bytes -= max(size, _LEAST_FILE)
