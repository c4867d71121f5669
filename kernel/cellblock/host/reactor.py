"""The loop that a session lives in, as the host's parts use it; each front has one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Prevent the call; harmless when it has happened."""


class Reactor(Protocol):
    """Readiness of descriptors, and time. Single-threaded; callbacks run one after another."""

    def watch(
        self, fd: int, on_ready: Callable[[], None], *, read: bool = True, write: bool = False
    ) -> None:
        """Call ``on_ready`` whenever ``fd`` is readable, with ``write`` also when writable."""

    def unwatch(self, fd: int) -> None:
        """Stop watching ``fd``; harmless when it is not watched."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Call ``action`` once, no earlier than ``seconds`` from now."""

    def expect(self) -> None:
        """Poll briefly before sleeping: an answer is likely to come at once."""
