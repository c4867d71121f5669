"""Names of states: checkpoints and branches.

A session is on one branch, at first on ``main``. When it goes to another branch the state that it
leaves is kept under the former branch's name: as a checkpoint marked as a branch, which is restored
when the session comes back. The functions that return a text say why something can't be done under
a name, or "".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cellblock.host.state.chain import Snapshot

#: The branch that a session begins on.
FIRST: Final = "main"


class BranchListing(NamedTuple):
    """The branch that a session is on, and the branches and checkpoints that it can go to.

    ``begins`` says that the current branch was begun just now: no state was kept under its name.
    """

    current: str
    branches: tuple[str, ...]
    checkpoints: tuple[str, ...]
    begins: bool


def listing(current: str, states_by_name: Mapping[str, Snapshot], *, begins: bool) -> BranchListing:
    """Return the listing of these states for a session on branch ``current``."""
    other_branches = [
        name for name, snapshot in states_by_name.items() if snapshot.is_branch and name != current
    ]
    checkpoints = tuple(name for name, snapshot in states_by_name.items() if not snapshot.is_branch)
    return BranchListing(current, (current, *other_branches), checkpoints, begins)


def no_branch(current: str, name: str, start: str, states_by_name: Mapping[str, Snapshot]) -> str:
    """Return why a session can't go from branch ``current`` to ``name``, or "".

    A new branch begins at the state ``start``, or at the current state if that is empty.
    """
    if name == current:
        return "the notebook is on this branch already"
    if start and start not in states_by_name:
        return not_kept(start, states_by_name)
    if start and name in states_by_name:
        return "there is a checkpoint or branch of this name already"
    if name in states_by_name and not states_by_name[name].is_branch:
        return f"this is a checkpoint; %branch NEW {name} goes on from it as branch NEW"
    if current in states_by_name and not states_by_name[current].is_branch:
        return (
            f"this branch would be kept as {current}, and a checkpoint has that name; "
            f"%branch -d {current} drops it"
        )
    return ""


def not_dropped(current: str, name: str, states_by_name: Mapping[str, Snapshot]) -> str:
    """Return why a name can't be dropped, or ""."""
    if name == current and (name not in states_by_name or states_by_name[name].is_branch):
        return "the notebook is on this branch; go to another first"
    if name not in states_by_name:
        return not_kept(name, states_by_name)
    return ""


def not_kept(name: str, states_by_name: Mapping[str, Snapshot]) -> str:
    """Return a text that no state is kept under a name, and which names there are."""
    checkpoints = sorted(
        state_name for state_name, snapshot in states_by_name.items() if not snapshot.is_branch
    )
    branches = sorted(
        state_name for state_name, snapshot in states_by_name.items() if snapshot.is_branch
    )
    kinds = {"checkpoints": checkpoints, "branches": branches}
    listing = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return f"there is no checkpoint or branch {name}; there are {listing or 'none yet'}"


def listed(names: Iterable[str]) -> str:
    """Return names, sorted and joined by commas, for a sentence."""
    return ", ".join(sorted(names)) or "none"
