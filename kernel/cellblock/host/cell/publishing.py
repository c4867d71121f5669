"""What cells' output is shown by: Protocols that fronts implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Parent(Protocol):
    """What outputs belong to: a request."""

    @property
    def header(self) -> Mapping[str, Any]:
        """Its header; ``msg_id`` tells it from all others."""


class Publisher(Protocol):
    """Takes what is shown: a message type of Jupyter's and its content."""

    def publish(
        self,
        kind: str,
        content: Any,
        parent: Any,
        *,
        buffers: Sequence[bytes] = (),
        metadata: Any = None,
    ) -> None:
        """Show it to whoever looks."""


class FlowControl(Protocol):
    """Holds up a guest whose output nobody takes."""

    def admits(self) -> bool:
        """Return whether output may still be published."""

    def check(self) -> None:
        """Check whether too much waits; called after every message of the guest's."""
