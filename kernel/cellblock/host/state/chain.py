"""The states that a session can go back to, and what follows from their order.

A snapshot is the state of the guest at one moment. A copy holds it, a process that waits. Each
snapshot has the requests that ran from then until the next snapshot was asked for (``after``). The
chain has the snapshots in the order in which they were taken; checkpoints stand apart from it::

    oldest ── after: 1, 2 ──▶ snapshot ── after: 3 ──▶ newest ── after: 4 ──▶ (the guest)

``Core`` changes the chain. Nothing here has an effect outside of it.
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


#: Seconds up to which a request counts as short: nobody notices when it is run again.
SHORT: Final = 0.1
#: Seconds since a request ended within which it may be run again though it may come out otherwise.
#: By then its snapshot stands, or something keeps the snapshot from standing.
LATELY: Final = 1.0
#: How many requests, and how many seconds of their work, are run again instead of being kept in a
#: snapshot.
_MOST_AGAIN: Final = 100
_LONGEST_AGAIN: Final = 1.0


class PastRequest(Struct, frozen=True):
    """A request that ran to its end, and whether it may run again."""

    message: Any
    seconds: float
    #: Whether the request comes out the same a second time (ADR 0027), and so does what came after.
    repeatable: bool = False
    #: Whether the request itself comes out the same, but not what came after it: when the request
    #: was run again, the guest got new random numbers.
    last_repeatable: bool = False
    #: When the request ended.
    ended: float = 0.0
    #: Whether it did something outside of the guest that must not be done twice.
    side_effects: bool = False
    #: Whether nothing of it ran, because its source is not Python.
    is_unparsed: bool = False

    @property
    def comes_out_the_same(self) -> bool:
        """Whether the request itself comes out the same a second time."""
        return self.repeatable or self.last_repeatable

    @property
    def short(self) -> bool:
        """Whether nobody notices when the request is run again."""
        return self.seconds <= SHORT and not self.side_effects

    @property
    def visible(self) -> bool:
        """Whether the request is a cell with a number of its own."""
        return is_visible(self.message)

    @property
    def is_step(self) -> bool:
        """Whether ``%undo`` counts the request: a visible cell that ran something."""
        return self.visible and not (self.is_unparsed or runs_nothing(self.message.raw))


def is_visible(message: Any) -> bool:
    """Return whether a request is a cell with a number of its own."""
    return isinstance(message, messages.Execute) and message.store_history and not message.silent


class Copy(Struct, eq=False):
    """A process that waits and holds a state, or is being forked to do so."""

    number: int
    #: The number of the process that was asked to fork the copy, and when it was asked.
    maker: int
    asked_at: float
    #: Whether the copy has forked, and waits.
    stands: bool = False
    #: Whether the copy was sent SIGSTOP and nothing is known to have continued it since.
    stopped: bool = False
    #: The numbers of the forks that the copy was asked for and has not reported on yet.
    forks: set[int] = field(default_factory=set)
    #: Bytes that the copy has come to hold since it was forked, bytes of those it had that it has
    #: written to, and seconds of processor time that it had used when these were read.
    grew: int = 0
    rewrote: int = 0
    used: float = 0.0


class Snapshot(Struct, eq=False):
    """A state of the guest, and the copy that holds it.

    The copy may be exchanged: a copy that takes over leaves a twin in its place (``Core._try``).
    """

    copy: Copy
    #: The memory that the guest had, and that the copy has from it.
    had: memory.Reading
    #: Requests that ran after this snapshot was asked for, and before the next one was.
    after: list[PastRequest] = field(default_factory=list)
    #: How many connections the guest had when the copy was forked, as the copy reports.
    connections: int = 0
    #: How many copies of this state were tried since one last served.
    served: int = 0
    #: Whether the snapshot was dropped, or its copy ended.
    lost: bool = False
    #: The name of a checkpoint or branch, or empty. A named snapshot is kept apart from the chain
    #: until another has the name.
    name: str = ""
    #: The number of the cell that gave the state its name, or of the last cell before.
    cell: int = 0
    #: Whether the name is a branch's, which goes on from this state.
    is_branch: bool = False
    #: Sources for ``In``, by number, of cells that this state has not seen.
    unseen: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether the copy stands, so that it can take over."""
        return self.copy.stands and not self.lost

    @property
    def settled(self) -> bool:
        """Whether the snapshot is kept, and nothing is being forked from its copy."""
        return self.kept and not self.copy.forks

    @property
    def visible(self) -> bool:
        """Whether a cell with a number of its own ran after this snapshot."""
        return any(request.visible for request in self.after)

    @property
    def repeatable(self) -> bool:
        """Whether all that ran after this snapshot can be run again instead of being kept."""
        seconds = sum(request.seconds for request in self.after)
        few = len(self.after) <= _MOST_AGAIN and seconds <= _LONGEST_AGAIN
        return few and all(request.repeatable for request in self.after)


class UndoStep(Struct, frozen=True):
    """A state that ``%undo`` can go back to.

    It is reached by a snapshot whose copy runs the requests in ``again``. The cells in ``undone``
    are stepped over.
    """

    snapshot: Snapshot
    again: tuple[PastRequest, ...]
    undone: tuple[PastRequest, ...]


class Chain(UserList[Snapshot]):
    """The snapshots of a session that are being forked or are kept, the oldest first.

    ``apart`` has the checkpoints, branches and copies for other sessions. After a kill, and for
    ``%undo``, these are never used.
    """

    def __init__(self, initlist: Iterable[Snapshot] | None = None) -> None:
        super().__init__(initlist)
        self.apart: list[Snapshot] = []

    def all(self) -> list[Snapshot]:
        """Return all snapshots: those of the chain, then those apart."""
        return [*self, *self.apart]

    def named(self) -> dict[str, Snapshot]:
        """Return the checkpoints and branches that are kept, by name, the oldest first."""
        return {
            snapshot.name: snapshot for snapshot in self.apart if snapshot.name and snapshot.kept
        }

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot, or None."""
        return self[-1] if self else None

    def complete(self) -> Snapshot | None:
        """Return the newest snapshot if it is kept and nothing ran after it, or None."""
        newest = self.newest()
        return newest if newest is not None and newest.kept and not newest.after else None

    def covers_all(self) -> bool:
        """Return whether the state of the guest is safe.

        It is if a snapshot is kept and all that ran after it is repeatable. An empty chain counts
        as safe, too.
        """
        for snapshot in reversed(self):
            if not all(request.repeatable for request in snapshot.after):
                return False
            if snapshot.kept:
                return True
        return not self

    def had_connections(self) -> bool:
        """Return whether the guest may have had connections when its last request began."""
        for snapshot in reversed(self):
            if any(request.side_effects for request in snapshot.after):
                return True
            if snapshot.kept:
                return snapshot.connections > 0
        return False

    def steps(self, most: int) -> list[UndoStep]:
        """Return the states that ``%undo`` can go back to, the nearest first, ``most`` at most.

        The state before a cell can be had from the snapshot before the cell, by running again
        the requests between the two. So it can be had only if all those are repeatable.
        """
        steps = list[UndoStep]()
        newer = list[PastRequest]()
        for snapshot in reversed(self):
            for index in range(len(snapshot.after) - 1, -1, -1):
                newer.insert(0, snapshot.after[index])
                before = tuple(snapshot.after[:index])
                if newer[0].is_step and all(request.repeatable for request in before):
                    cells = tuple(request for request in newer if request.visible)
                    steps.append(UndoStep(snapshot, before, cells))
        return steps[:most]

    def is_spare(self, newest: Snapshot, most: int) -> bool:
        """Return whether ``%undo`` can go back ``most`` steps without the oldest snapshot.

        The steps that count are those of the snapshots after the oldest, up to ``newest``. Steps
        between two snapshots are reached by running cells again (``steps``).
        """
        newest_index = self.index(newest)
        if newest_index == 0:
            return False
        steps = 0
        for snapshot in self[1 : newest_index + 1]:
            for request in snapshot.after:
                steps += request.is_step
                if steps >= most or not request.repeatable:
                    break
        return steps >= most

    def cost(self) -> int:
        """Return how many bytes all snapshots but the newest hold for themselves, at most."""
        return sum(
            min(older.had.size, memory.left_behind(older.had, newer.had) + older.copy.rewrote)
            for older, newer in pairwise(self)
        )

    def forget(self, snapshot: Snapshot) -> None:
        """Remove a snapshot. Requests that ran after it count as run after the one before it."""
        index = self.index(snapshot)
        self.remove(snapshot)
        if index:
            self[index - 1].after += snapshot.after
