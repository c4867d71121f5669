"""What a session needs of the loop it lives in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Make the call not happen; harmless when it already has."""


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
        """Take note that an answer may come at once; a loop may look out for it, briefly."""
