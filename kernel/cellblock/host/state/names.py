"""Names of states: checkpoints, and branches, which a session goes on from by turns.

A session is on one branch, ``main`` at first. The state that it leaves is kept under the branch's
name, as a checkpoint that is marked; who comes back has it restored. Each function here says why
something can't be done under a name, or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cellblock.host.state.chain import Snapshot

FIRST: Final = "main"


class BranchListing(NamedTuple):
    """Which branch a session is on, and what there is to go to and to go on from.

    ``begins`` says that the branch was begun just now: nothing was kept under its name, or not any
    more.
    """

    current: str
    branches: tuple[str, ...]
    checkpoints: tuple[str, ...]
    begins: bool


def listing(current: str, named: Mapping[str, Snapshot], *, begins: bool) -> BranchListing:
    """Return what there is to go to."""
    kept = [name for name, one in named.items() if one.is_branch and name != current]
    checkpoints = tuple(name for name, one in named.items() if not one.is_branch)
    return BranchListing(current, (current, *kept), checkpoints, begins)


def no_branch(current: str, name: str, start: str, named: Mapping[str, Snapshot]) -> str:
    """Return why a session can't leave its branch for ``name``, which may begin at ``start``."""
    if name == current:
        return "the notebook is on this branch already"
    if start and start not in named:
        return not_kept(start, named)
    if start and name in named:
        return "there is a checkpoint or branch of this name already"
    if name in named and not named[name].is_branch:
        return f"this is a checkpoint; %branch NEW {name} goes on from it as branch NEW"
    if current in named and not named[current].is_branch:
        return (
            f"this branch would be kept as {current}, and a checkpoint has that name; "
            f"%branch -d {current} drops it"
        )
    return ""


def not_dropped(current: str, name: str, named: Mapping[str, Snapshot]) -> str:
    """Return why a name can't be dropped."""
    if name == current and (name not in named or named[name].is_branch):
        return "the notebook is on this branch; go to another first"
    if name not in named:
        return not_kept(name, named)
    return ""


def not_kept(name: str, named: Mapping[str, Snapshot]) -> str:
    """Return that nothing is kept under a name, and what is, the checkpoints first."""
    checkpoints = sorted(each for each, one in named.items() if not one.is_branch)
    branches = sorted(each for each, one in named.items() if one.is_branch)
    kinds = {"checkpoints": checkpoints, "branches": branches}
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return f"there is no checkpoint or branch {name}; there are {known or 'none yet'}"


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence."""
    return ", ".join(sorted(names)) or "none"
