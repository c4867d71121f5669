"""In words: what a session lacks after a copy of its guest has taken over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cellblock.host.session.types import Restored


#: A thread's name as Python makes it, ``Thread-1 (work)``, or a word. A cell chooses it, so what
#: could be read as a sentence of the card's is not repeated.
_THREAD: Final = re.compile(r"[\w.-]{1,40}(?: \([\w.<>-]{1,40}\))?")


def lacking(restored: Restored) -> tuple[str, ...]:
    """Name what a snapshot that took over does not have."""
    said = []
    if restored.threads:
        names = ", ".join(name for name in restored.threads if _THREAD.fullmatch(name))
        named = f" ({names})" if names else ""
        said.append(f"{_count(len(restored.threads), 'running thread')}{named}")
    if restored.tasks:
        said.append(_count(restored.tasks, "running task"))
    if restored.files:
        said.append(f"the contents of {_count(restored.files, 'open file')}")
    if restored.connections:
        said.append(_count(restored.connections, "network connection"))
    if restored.emptied:
        said.append("the files in /dev/shm")
    if restored.missed:
        said.append(f"what {_cells(restored.missed)} did: run them again")
    if restored.again:
        said.append(f"{_cells(restored.again)}, which had just ended and was run again")
    return tuple(said)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cells(counts: tuple[int, ...]) -> str:
    return ", ".join(f"[{count}]" for count in counts)
