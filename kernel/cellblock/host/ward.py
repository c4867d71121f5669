"""What a keeper tells, and whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cellblock.host.outcome import Stopped
    from cellblock.wire import messages


class Ward(Protocol):
    """Whom a keeper keeps a guest for."""

    def on_ready(self, report: messages.LockReport) -> str:
        """Take a confined guest's report; return why nothing may run in it, or nothing."""

    def on_served(self) -> None:
        """Begin: a guest is ready."""

    def on_message(self, message: messages.FromGuest) -> None:
        """Take any message but those about the guest's start."""

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Take text that was written below Python."""

    def idle(self) -> bool:
        """Say whether no request is under way."""

    def on_stopping(self) -> Any:
        """Stop watching what runs, for its guest is no more; return its message, or None."""

    def on_loss(self, stopped: Stopped) -> None:
        """Take note that a guest that served was lost, and what became of its state."""

    def on_notice(self, text: str) -> None:
        """Take note of something that the user is to know."""

    def on_failure(self, detail: str) -> None:
        """Take note that no guest can be had any more."""
