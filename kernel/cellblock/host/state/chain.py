"""The states that a session can go back to, and what follows from their order: no effects here.

A snapshot is the state of the guest at one moment, held by a copy: a process that waits. ``after``
has the requests that ran from then until the next snapshot. The newest comes last. Checkpoints are
beside that chain.
"""

from __future__ import annotations

from collections import UserList
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from cellblock.analysis.admission import runs_nothing
from cellblock.host.snapshots import memory
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Seconds up to which a request counts as short: run again, nobody notices.
SHORT: Final = 0.1
#: Seconds after which a snapshot of what ended stands, or something keeps it from standing: what
#: does not come out the same is not run again then.
LATELY: Final = 1.0
#: Requests, and seconds that they took together, that are run again instead of being kept.
_MOST_AGAIN: Final = 100
_LONGEST_AGAIN: Final = 1.0


class PastRequest(Struct, frozen=True):
    """A request that ran to its end, and whether it may run again."""

    message: Any
    seconds: float
    #: It comes out the same a second time (ADR 0148), and so does what came after it.
    repeatable: bool = False
    #: It comes out the same, but not what came after it, for which random numbers were new.
    last_repeatable: bool = False
    #: When it ended.
    ended: float = 0.0
    #: It did something outside of the guest that must not be done twice.
    side_effects: bool = False
    #: Nothing of it ran, as its source is not Python.
    is_unparsed: bool = False

    @property
    def comes_out_the_same(self) -> bool:
        """Whether it does so a second time, whatever came after it."""
        return self.repeatable or self.last_repeatable

    @property
    def short(self) -> bool:
        """Whether nobody notices when it is run again."""
        return self.seconds <= SHORT and not self.side_effects

    @property
    def visible(self) -> bool:
        """Whether it is a cell with a number of its own."""
        return is_visible(self.message)

    @property
    def is_step(self) -> bool:
        """Whether it is such a cell, and does more than to show what the host has."""
        return self.visible and not (self.is_unparsed or runs_nothing(self.message.raw))


def is_visible(message: Any) -> bool:
    """Return whether a request is a cell with a number of its own."""
    return isinstance(message, messages.Execute) and message.store_history and not message.silent


class Copy(Struct, eq=False):
    """A process that waits and holds a state, or is being forked to do so."""

    number: int
    #: The process that was asked to fork it, and when.
    maker: int
    asked_at: float
    #: It has forked, and waits.
    stands: bool = False
    #: It was sent SIGSTOP, and nothing is known to have set it going since.
    stopped: bool = False
    #: The numbers of forks that it was asked for and has said nothing of yet.
    forks: set[int] = field(default_factory=set)
    #: Bytes that it has come to hold since it was made, and that it wrote to of those it had;
    #: seconds of the processor that it had used when that was read.
    grew: int = 0
    rewrote: int = 0
    used: float = 0.0


class Snapshot(Struct, eq=False):
    """A state of the guest.

    Its copy may be exchanged: one that is to serve leaves a twin in its place (``Core._try``).
    """

    copy: Copy
    #: What the guest had, and the copy has from it.
    had: memory.Reading
    #: Requests that ran after it was asked for, and before the next one was.
    after: list[PastRequest] = field(default_factory=list)
    #: How many connections its guest had when it was made, as the copy says itself.
    connections: int = 0
    #: How many copies of this state were to serve since one last did.
    served: int = 0
    #: It was dropped, or its copy ended.
    lost: bool = False
    #: What the user called this state: it is kept beside the others, until another has the name.
    name: str = ""
    #: The number of the cell that gave it that name, or the last one before.
    cell: int = 0
    #: The name is a branch's, which goes on from here.
    is_branch: bool = False
    #: Cells that were ended while this state served, for ``In``.
    unseen: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether its copy stands, and can take over."""
        return self.copy.stands and not self.lost

    @property
    def settled(self) -> bool:
        """Whether it stands, and nothing is being forked from it."""
        return self.kept and not self.copy.forks

    @property
    def visible(self) -> bool:
        """Whether a cell ran after it that a user would call one."""
        return any(request.visible for request in self.after)

    @property
    def repeatable(self) -> bool:
        """Whether all that ran after it can be run again instead of being kept."""
        seconds = sum(request.seconds for request in self.after)
        few = len(self.after) <= _MOST_AGAIN and seconds <= _LONGEST_AGAIN
        return few and all(request.repeatable for request in self.after)


class UndoStep(Struct, frozen=True):
    """A state that ``%undo`` can go back to: a snapshot, what runs again there, what it undoes."""

    snapshot: Snapshot
    again: tuple[PastRequest, ...]
    undone: tuple[PastRequest, ...]


class Chain(UserList[Snapshot]):
    """The snapshots of a guest that are being made or kept, the oldest first.

    ``apart`` has checkpoints, and forks for other sessions: no kill and no ``%undo`` goes back to
    one.
    """

    def __init__(self, initlist: Iterable[Snapshot] | None = None) -> None:
        super().__init__(initlist)
        self.apart: list[Snapshot] = []

    def all(self) -> list[Snapshot]:
        """Return the snapshots, and what is apart."""
        return [*self, *self.apart]

    def named(self) -> dict[str, Snapshot]:
        """Return the checkpoints by name, the oldest first."""
        return {one.name: one for one in self.apart if one.name and one.kept}

    def newest(self) -> Snapshot | None:
        """Return the newest, if there is one."""
        return self[-1] if self else None

    def complete(self) -> Snapshot | None:
        """Return the newest if it stands and has all that ran, or None."""
        newest = self.newest()
        return newest if newest is not None and newest.kept and not newest.after else None

    def covers_all(self) -> bool:
        """Return whether all that ran is kept, or can be run again and comes out the same."""
        for snapshot in reversed(self):
            if not all(request.repeatable for request in snapshot.after):
                return False
            if snapshot.kept:
                return True
        return not self

    def had_connections(self) -> bool:
        """Return whether the guest may have had connections when what ran last began."""
        for snapshot in reversed(self):
            if any(request.side_effects for request in snapshot.after):
                return True
            if snapshot.kept:
                return snapshot.connections > 0
        return False

    def steps(self, most: int) -> list[UndoStep]:
        """Return what ``%undo`` can go back to, the nearest first, ``most`` at most.

        Before each cell that is a step there is a state: that of the snapshot that the cell ran
        after, and of the cells between the two, if those come out the same.
        """
        found, newer = list[UndoStep](), list[PastRequest]()
        for snapshot in reversed(self):
            for place in range(len(snapshot.after) - 1, -1, -1):
                newer.insert(0, snapshot.after[place])
                before = tuple(snapshot.after[:place])
                if newer[0].is_step and all(request.repeatable for request in before):
                    cells = tuple(request for request in newer if request.visible)
                    found.append(UndoStep(snapshot, before, cells))
        return found[:most]

    def is_spare(self, newest: Snapshot, most: int) -> bool:
        """Return whether ``%undo`` needs the oldest no more, where it goes back ``most`` steps.

        What is kept after it, up to ``newest``, has as many: cells are run again there.
        """
        last = self.index(newest)
        if last == 0:
            return False
        found = 0
        for snapshot in self[1 : last + 1]:
            for request in snapshot.after:
                found += request.is_step
                if found >= most or not request.repeatable:
                    break
        return found >= most

    def cost(self) -> int:
        """Return at most how many bytes all but the newest hold for themselves."""
        return sum(
            min(older.had.size, memory.left_behind(older.had, newer.had) + older.copy.rewrote)
            for older, newer in pairwise(self)
        )

    def forget(self, snapshot: Snapshot) -> None:
        """Leave one out: what ran after it ran after the one before it, too."""
        place = self.index(snapshot)
        self.remove(snapshot)
        if place:
            self[place - 1].after += snapshot.after
