"""Whoever runs tools: the operator's worker, and whatever the host offers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from cellblock.wire.messages import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.wire.messages import Tool


class Answer(msgspec.Struct, frozen=True):
    """What came of a call: a value, encoded, or where ``kind`` is not empty, an error."""

    value: bytes = NOTHING
    kind: str = ""
    message: str = ""


class Call(msgspec.Struct, frozen=True):
    """One call that was admitted. ``answer`` is to be called once, and is told nothing later."""

    number: int
    tool: Tool
    arguments: msgspec.Raw
    answer: Callable[[Answer], None]


class Provider(Protocol):
    """Runs calls without ever holding up the host's loop."""

    def begin(self, call: Call) -> None:
        """Run ``call``, now or when there is room."""

    def cancel(self, number: int) -> None:
        """Stop a call whose answer nobody waits for; harmless when it has been answered."""

    def hold(self, *, held: bool) -> None:
        """Keep answers back while the guest does not take them, or give them again."""

    def close(self) -> None:
        """End, with all that runs."""
