"""The copies of a guest, the oldest first, and what can be told from their order alone."""

from __future__ import annotations

from collections import UserList
from itertools import pairwise

from cellblock.host import room
from cellblock.host.copies import Copy, Ran, Step


class Ring(UserList[Copy]):
    """Each stands for the state before what ran after it, which ran before the next was made."""

    def all(self) -> list[Copy]:
        """Return the copies, and their twins."""
        return [one for copy in self for one in (copy, copy.twin) if one is not None]

    def maker(self, twin: Copy) -> Copy | None:
        """Return the copy that a twin stands beside; None for what is no twin (any more)."""
        return next((copy for copy in self if copy.twin is twin), None)

    def covers(self) -> bool:
        """Say whether all that ran is kept, or can be run again and comes out the same."""
        for copy in reversed(self):
            if not all(ran.exact for ran in copy.after):
                return False
            if copy.standing:
                return True
        return not self

    def steps(self, most: int) -> list[Step]:
        """Return what can be gone back to, the nearest first, ``most`` at most."""
        found, newer = list[Step](), list[Ran]()
        for copy in reversed(self):
            for place in range(len(copy.after) - 1, -1, -1):
                newer.insert(0, copy.after[place])
                before = tuple(copy.after[:place])
                if copy.after[place].visible and all(ran.exact for ran in before):
                    cells = tuple(ran for ran in newer if ran.visible)
                    found.append(Step(copy, before, cells))
        return found[:most]

    def sizes(self) -> dict[int, int]:
        """Return the processes of all, and how many bytes each has from its guest."""
        return {one.guest.pid: one.had.size for one in self.all() if one.guest.pid is not None}

    def cost(self) -> int:
        """Return at most how many bytes those to step back to hold for themselves."""
        return sum(room.left_behind(older.had, newer.had) for older, newer in pairwise(self))

    def forget(self, copy: Copy) -> None:
        """Leave one out: what ran after it ran after the one before it, too."""
        place = self.index(copy)
        self.remove(copy)
        if place:
            self[place - 1].after += copy.after
