"""Whoever runs tools: the operator's worker, and whatever the host offers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from cellblock.wire.messages import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.errors import PolicyError
    from cellblock.wire.messages import Tool


class Answer(msgspec.Struct, frozen=True):
    """What came of a call: a value, encoded, or where ``kind`` is not empty, an error."""

    value: bytes = NOTHING
    kind: str = ""
    message: str = ""
    #: Of a language model, what it cost.
    tokens: int = 0


def _unheard(_text: str) -> None: ...


class Call(msgspec.Struct, frozen=True):
    """One call that was admitted. ``answer`` is to be called once, and is told nothing later.

    Before that, ``piece`` may be called with more of a text that the answer will have all of, and
    ``tell`` with a line, for whoever waits, of how it is getting on.
    """

    number: int
    tool: Tool
    arguments: msgspec.Raw
    answer: Callable[[Answer], None]
    piece: Callable[[str], None] = _unheard
    tell: Callable[[str], None] = _unheard


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


class Source(Provider, Protocol):
    """A provider that says what there is, later: exactly one of the two is called."""

    def hold_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Have calls take no longer than so many seconds; some, by name, than these."""

    def open(
        self,
        on_tools: Callable[[tuple[Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are."""
