"""What a snapshot is to the host: a copy of the guest, what ran since, a state to go back to."""

from __future__ import annotations

import signal
from collections import UserList
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.session.limits import Gauge
from cellblock.host.snapshots import memory
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest


#: Seconds up to which a request counts as short: run again, nobody notices.
SHORT: Final = 0.1
#: Requests, and seconds that they took together, that are run again instead of being kept.
_MOST_AGAIN: Final = 20
_LONGEST_AGAIN: Final = 0.05


@dataclass(slots=True)
class Lineage:
    """The fork that a guest and its copies descend from, and the session (setsid(2)) it began."""

    number: int = 0
    session: int = -1


@dataclass(frozen=True, slots=True)
class Ran:
    """A request that ran to its end, and whether that comes out the same a second time."""

    message: Any
    seconds: float
    exact: bool = False
    #: When it did.
    ended: float = 0.0
    #: It did what must not be done twice.
    once: bool = False

    @property
    def short(self) -> bool:
        """Say whether nobody notices when it is run again."""
        return self.seconds <= SHORT and not self.once

    @property
    def visible(self) -> bool:
        """Say whether it is a cell with a number of its own."""
        return is_visible(self.message)


def is_visible(message: Any) -> bool:
    """Say whether a request is a cell with a number of its own."""
    return isinstance(message, messages.Execute) and message.store_history and not message.silent


@dataclass(eq=False, slots=True)
class Copy:
    """One copy, and what ran to its end since it was made."""

    guest: Guest
    number: int
    asked_at: float
    #: What the guest had, and the copy has from it.
    had: memory.Reading
    standing: bool = False
    #: How many connections its guest had when it was made, as it says itself.
    connections: int = 0
    #: It was told to stop, and nothing is known to have set it going since.
    still: bool = False
    #: Bytes that it has come to hold since it was made, and that it wrote to of those it had.
    grew: int = 0
    rewrote: int = 0
    #: Seconds of the processor that it had used when that was read.
    used: float = 0.0
    #: Made by it, to stand in its place; how many there were of this state; the numbers of those
    #: that it has not parted with yet.
    twin: Copy | None = None
    twins: int = 0
    busy: set[int] = field(default_factory=set)
    after: list[Ran] = field(default_factory=list)
    #: Cells that were ended while its twin's state served, for ``In``.
    unseen: dict[int, str] = field(default_factory=dict)
    #: Called once it stands, and its twin if that is waited for, or never will.
    then: Callable[[], None] | None = None
    twice: bool = False
    #: Called when it serves, for what its state has and was to be answered when that was kept.
    waiting: Callable[[], None] | None = None
    #: Called once it stands beside its guest, for what ran next.
    next: Callable[[], None] | None = None

    def settle(self) -> None:
        """Tell whoever waits for it."""
        then, self.then = self.then, None
        if then is not None:
            then()

    def stop(self, *, again: bool) -> None:
        """Stop it, if it stands and has nothing to do; ``again`` if it was told that before."""
        if self.standing and not self.busy and (again or not self.still):
            self.guest.signal(signal.SIGSTOP)
            self.still = True

    def measure(self) -> None:
        """Read what it has come to hold, and wrote to, if it did anything since that was read."""
        if not self.standing or self.guest.pid is None:
            return
        used = Gauge(self.guest.pid).cpu()
        if used is not None and used != self.used:
            self.used = used
            self.grew, self.rewrote = memory.taken(self.guest.pid, self.had)

    def part_with_twin(self) -> None:
        """Let go of its twin, if it has one."""
        twin, self.twin = self.twin, None
        if twin is not None:
            twin.guest.close()

    @property
    def settled(self) -> bool:
        """Say whether it stands, and nothing is being forked from it."""
        return self.standing and not self.busy and (self.twin is None or self.twin.standing)

    @property
    def visible(self) -> bool:
        """Say whether a cell ran after it that a user would call one."""
        return any(ran.visible for ran in self.after)

    @property
    def exact(self) -> bool:
        """Say whether all that ran after it can be run again instead of being kept."""
        seconds = sum(ran.seconds for ran in self.after)
        few = len(self.after) <= _MOST_AGAIN and seconds <= _LONGEST_AGAIN
        return few and all(ran.exact for ran in self.after)


@dataclass(frozen=True, slots=True)
class Step:
    """A state that can be gone back to: a copy, what to run again on it, what that undoes."""

    copy: Copy
    again: tuple[Ran, ...]
    undone: tuple[Ran, ...]


# The copies of a guest, the oldest first: what ran after each, and what that says of its state.


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
            min(older.had.size, memory.left_behind(older.had, newer.had) + older.rewrote)
            for older, newer in pairwise(self)
        )

    def forget(self, copy: Copy) -> None:
        """Leave one out: what ran after it ran after the one before it, too."""
        place = self.index(copy)
        self.remove(copy)
        if place:
            self[place - 1].after += copy.after
