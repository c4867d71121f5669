"""The copies of a guest, the oldest first: what ran after each, and what that says of its state."""

from __future__ import annotations

from collections import UserList
from itertools import pairwise
from typing import TYPE_CHECKING

from cellblock.host import room
from cellblock.host.copies import Copy, Ran, Step

if TYPE_CHECKING:
    from collections.abc import Callable


class Ring(UserList[Copy]):
    """Each stands for the state before what ran after it, which ran before the next was made."""

    def all(self) -> list[Copy]:
        """Return the copies, and their twins."""
        return [one for copy in self for one in (copy, copy.twin) if one is not None]

    def maker(self, twin: Copy) -> Copy | None:
        """Return the copy that a twin stands beside; None for what is no twin (any more)."""
        return next((copy for copy in self if copy.twin is twin), None)

    def whole(self) -> Copy | None:
        """Return the newest copy if it stands and has all that ran, or None."""
        newest = self[-1] if self else None
        return newest if newest is not None and newest.standing and not newest.after else None

    def ran(self, ran: Ran) -> None:
        """Take note that a request ran to its end, on top of the newest copy."""
        if self:
            self[-1].after.append(ran)

    def can_wait(self) -> bool:
        """Say whether what ran since the newest copy can be run again as well as be kept."""
        return bool(self) and self[-1].exact

    def connected(self) -> bool:
        """Say whether the guest may have had connections when what ran last began."""
        for copy in reversed(self):
            if any(ran.once for ran in copy.after):
                return True
            if copy.standing:
                return copy.connections > 0
        return False

    def when_kept(self, then: Callable[[], None]) -> None:
        """Have ``then`` called when all that ran until now is kept, if a copy under way does that.

        Not if that copy takes over: it has not what ran since.
        """
        newest = self[-1] if self else None
        if newest is not None and not newest.standing and newest.exact:
            newest.next = then

    def covers(self) -> bool:
        """Say whether all that ran is kept, or can be run again and comes out the same.

        Then one more may be answered before it is kept: it is the only one to be run again.
        """
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
        return sum(
            min(older.had.size, room.left_behind(older.had, newer.had) + older.rewrote)
            for older, newer in pairwise(self)
        )

    def forget(self, copy: Copy) -> None:
        """Leave one out: what ran after it ran after the one before it, too."""
        place = self.index(copy)
        self.remove(copy)
        if place:
            self[place - 1].after += copy.after
