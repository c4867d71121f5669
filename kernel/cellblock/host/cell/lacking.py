"""In words: what a session lacks after a copy of its guest has taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.host.output.gateway import clean_name

if TYPE_CHECKING:
    from cellblock.host.session.types import Restored


def lacking(restored: Restored) -> tuple[str, ...]:
    """Name what a snapshot that took over does not have."""
    said = []
    if restored.threads:
        names = ", ".join(filter(None, map(clean_name, restored.threads)))
        said.append(f"{_count(len(restored.threads), 'running thread')} ({names})")
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
