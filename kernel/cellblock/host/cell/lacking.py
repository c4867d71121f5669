"""``lacking``: says what a session lacks after a copy of its guest has taken over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cellblock.host.session.types import Restored


#: A thread's name that a card repeats: as Python makes it, ``Thread-1 (work)``, or one word. Cells
#: choose the names, and a longer one could pass as a sentence of the card's.
_THREAD: Final = re.compile(r"[\w.-]{1,40}(?: \([\w.<>-]{1,40}\))?")


def lacking(restored: Restored) -> tuple[str, ...]:
    """Return a phrase for each thing that a copy which took over does not have."""
    phrases = []
    if restored.threads:
        names = ", ".join(name for name in restored.threads if _THREAD.fullmatch(name))
        listed = f" ({names})" if names else ""
        phrases.append(f"{_count(len(restored.threads), 'running thread')}{listed}")
    if restored.tasks:
        phrases.append(_count(restored.tasks, "running task"))
    if restored.files:
        phrases.append(f"the contents of {_count(restored.files, 'open file')}")
    if restored.connections:
        phrases.append(_count(restored.connections, "network connection"))
    if restored.emptied:
        phrases.append("the files in /dev/shm")
    if restored.missed:
        phrases.append(f"what {_cells(restored.missed)} did: run them again")
    if restored.again:
        phrases.append(f"{_cells(restored.again)}, which had just ended and was run again")
    return tuple(phrases)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _cells(counts: tuple[int, ...]) -> str:
    return ", ".join(f"[{count}]" for count in counts)
