"""Which files are meant: globs, matched name by name on the way down.

Grammar of a pattern::

    pattern = part *( "/" part )
    part    = "**" | glob         ; any number of folders, or one name as fnmatch has it

Names that begin with a dot are meant only where the part does.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Any number of folders.
_ANY: Final = "**"
_WILD: Final = frozenset("*?[")
#: Which patterns are matched up to which of their parts.
States = frozenset[tuple[int, int]]


def rooted(pattern: str, folder: str) -> str:
    """Return a pattern as an absolute one; any other is relative to ``folder``, canonical."""
    return pattern if pattern.startswith("/") else f"{folder}/{pattern}"


def begins_in(pattern: str) -> str:
    """Return the folder that an absolute pattern names before its first wildcard, or its file."""
    parts = pattern.split("/")[:-1]
    wild = (at for at, part in enumerate(parts) if _WILD.intersection(part))
    return "/".join(parts[: next(wild, len(parts))]) or "/"


class Patterns:
    """Absolute globs. A walk begins with ``at`` a folder and goes ``down`` by names."""

    def __init__(self, globs: Iterable[str]) -> None:
        self._parts = [tuple(filter(None, one.split("/"))) for one in globs]

    def at(self, folder: str) -> States:
        """Return the states in an absolute folder; none where nothing beneath it is meant."""
        states = self._settled({(index, 0) for index in range(len(self._parts))})
        for name in filter(None, folder.split("/")):
            states = self.down(states, name)
        return states

    def down(self, states: States, name: str) -> States:
        """Return the states of an entry of that name."""
        found = set()
        for index, place in states:
            parts = self._parts[index]
            if place < len(parts) and _matches(parts[place], name):
                found.add((index, place if parts[place] == _ANY else place + 1))
        return self._settled(found)

    def meant(self, states: States) -> bool:
        """Say whether a file with these states is meant."""
        return any(place == len(self._parts[index]) for index, place in states)

    def leads_on(self, states: States) -> bool:
        """Say whether something in a folder with these states may be meant."""
        return any(place < len(self._parts[index]) for index, place in states)

    def _settled(self, states: set[tuple[int, int]]) -> States:
        """Return the states with those that ``**`` has for no folder at all."""
        waiting = list(states)
        while waiting:
            index, place = waiting.pop()
            parts, further = self._parts[index], (index, place + 1)
            if place < len(parts) and parts[place] == _ANY and further not in states:
                states.add(further)
                waiting.append(further)
        return frozenset(states)


def _matches(part: str, name: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return part == _ANY or _compiled(part).match(name) is not None


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))
