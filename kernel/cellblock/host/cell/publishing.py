"""Protocols that fronts implement, by which ``Outputs`` shows what cells output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Parent(Protocol):
    """The request that outputs belong to."""

    @property
    def header(self) -> Mapping[str, Any]:
        """The request's header; its ``msg_id`` is unique."""


class Publisher(Protocol):
    """Takes each output as the type and content of a Jupyter message."""

    def publish(
        self,
        kind: str,
        content: Any,
        parent: Any,
        *,
        buffers: Sequence[bytes] = (),
        metadata: Any = None,
    ) -> None:
        """Show a message of type ``kind`` under the request ``parent``.

        The content is clean and within the quota.
        """


class FlowControl(Protocol):
    """Makes the guest wait when front ends do not read its outputs (ADR 0040)."""

    def admits(self) -> bool:
        """Return whether outputs may still be published."""

    def check(self) -> None:
        """Stop reading from the guest if too much waits. Called after each of its messages."""
