"""``%branch``: checkpoints that a session goes on from by turns.

A session is on one branch, ``main`` at first. Whoever leaves one has its state kept under its
name, as a checkpoint that is marked as a branch's; whoever comes back has that state restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.snapshots.chain import Chain, Snapshot

FIRST: Final = "main"


class BranchListing(NamedTuple):
    """Which branch a session is on, and what there is to go to and to go on from.

    One that ``begins`` was begun just now: nothing was kept under its name, or not any more.
    """

    current: str
    branches: tuple[str, ...]
    checkpoints: tuple[str, ...]
    begins: bool


class Checkpoints(Protocol):
    """What branches need of the snapshots."""

    chain: Chain

    def checkpoint(self, name: str, then: Callable[[str], None], *, is_branch: bool) -> None:
        """Keep the guest's state under a name; ``then`` gets why it is not kept, or nothing."""

    def let_go(self, *copies: Snapshot) -> None:
        """Drop copies."""


class Restoring(Protocol):
    """What branches need of the supervisor."""

    def restore(self, name: str, refused: Callable[[str], None], *, branch: str) -> None:
        """Go back to a checkpoint; ``refused`` gets why that can't be done."""


class Branches:
    """The branches of a session, whose copies ``snapshots`` has."""

    def __init__(self, supervisor: Restoring, snapshots: Checkpoints) -> None:
        self._supervisor, self._snapshots = supervisor, snapshots
        self.current = FIRST

    def listing(self, *, begins: bool = False) -> BranchListing:
        """Return what there is; copies that ended are not."""
        named = self._snapshots.chain.named()
        kept = [name for name, one in named.items() if one.is_branch and name != self.current]
        checkpoints = tuple(name for name, one in named.items() if not one.is_branch)
        return BranchListing(self.current, (self.current, *kept), checkpoints, begins)

    def begin_anew(self) -> None:
        """Be on the first branch: what led to any other has ended."""
        self.current = FIRST

    def go(self, name: str, start: str, then: Callable[[str], None]) -> None:
        """Keep the state under the branch that is left, and go to another, or begin it.

        It begins at the checkpoint or branch ``start``, or here. ``then`` gets why not, or nothing
        where it began here; a state that is restored is told of as by ``%restore``.
        """
        named, left = self._snapshots.chain.named(), self.current
        if why := self._why_not(name, start):
            then(why)
            return
        source = start or (name if name in named else "")

        def refused(why: str) -> None:
            self.current = left
            then(why)

        def kept(why: str) -> None:
            if why:
                then(why)
                return
            self.current = name
            if source:
                self._supervisor.restore(source, refused, branch=name)
            else:
                then("")

        self._snapshots.checkpoint(left, kept, is_branch=True)

    def _why_not(self, name: str, start: str) -> str:
        named, left = self._snapshots.chain.named(), self.current
        if name == left:
            return "the notebook is on this branch already"
        if start and start not in named:
            return why_not_named(named, start)
        if start and name in named:
            return "there is a checkpoint or branch of this name already"
        if name in named and not named[name].is_branch:
            return f"this is a checkpoint; %branch NEW {name} goes on from it as branch NEW"
        if left in named and not named[left].is_branch:
            return (
                f"this branch would be kept as {left}, and a checkpoint has that name; "
                f"%branch -d {left} drops it"
            )
        return ""

    def drop(self, name: str) -> str:
        """Drop a branch that the session is not on, or a checkpoint; return why not, or nothing."""
        named = self._snapshots.chain.named()
        if name == self.current and (name not in named or named[name].is_branch):
            return "the notebook is on this branch; go to another first"
        if name not in named:
            return why_not_named(named, name)
        self._snapshots.let_go(named[name])
        return ""


def why_not_named(named: Mapping[str, Snapshot], name: str) -> str:
    """Return that nothing is kept under a name, and what is, the checkpoints first."""
    checkpoints = sorted(each for each, one in named.items() if not one.is_branch)
    branches = sorted(each for each, one in named.items() if one.is_branch)
    kinds = {"checkpoints": checkpoints, "branches": branches}
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return f"there is no checkpoint or branch {name}; there are {known or 'none yet'}"
