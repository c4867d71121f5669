"""So many calls a second, over all cells and what runs between them."""

from __future__ import annotations


class Rate:
    """A bucket that holds a second's worth. It is full at first, and ``now`` is in seconds."""

    __slots__ = ("_at", "_room")

    def __init__(self) -> None:
        self._room, self._at = float("inf"), 0.0

    def take(self, most: float | None, now: float) -> float:
        """Take a place, where ``most`` come up each second; return how long there is none yet.

        0 means that it was taken.
        """
        if most is None:
            return 0.0
        room = min(most, self._room + (now - self._at) * most)
        self._at, self._room = now, room
        if room < 1:
            return (1 - room) / most
        self._room = room - 1
        return 0.0
