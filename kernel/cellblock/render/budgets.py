"""What cells took of a session's budgets, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Asked(NamedTuple):
    """Calls of language models and their tokens, and how many there may be.

    Tokens are those that were told, and the most that calls under way may take.
    """

    calls: int
    max_calls: int
    tokens: int
    max_tokens: int

    def __str__(self) -> str:
        calls = _left(self.calls, self.max_calls, "calls")
        return f"{calls} and {_left(self.tokens, self.max_tokens, 'tokens')} are left"


class Written(NamedTuple):
    """Bytes that the host has written for cells, and how many it may."""

    bytes: int
    max_bytes: int

    def __str__(self) -> str:
        return f"{_left(self.bytes, self.max_bytes, 'bytes')} are left"


Spent = Asked | Written


def _left(taken: int, most: int, unit: str) -> str:
    return f"{max(most - taken, 0):,} of {most:,} {unit}"


def budget_lines(spent: Mapping[str, Spent]) -> list[str]:
    """Return what a card says of budgets, by the name of what takes of each."""
    return [f"{name}: {one} for this session." for name, one in spent.items()]


def as_json(spent: Mapping[str, Spent]) -> dict[str, dict[str, dict[str, int]]]:
    """Return what a card's JSON has of them; nothing where there is none."""
    return {"budgets": {name: one._asdict() for name, one in spent.items()}} if spent else {}
