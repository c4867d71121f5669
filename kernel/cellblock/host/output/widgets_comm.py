"""A comm, a message on it that may pass, and the refusal of one: values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cellblock.host.output.widgets_state import Memory

if TYPE_CHECKING:
    from cellblock.host.output.widgets_models import Model


@dataclass(frozen=True, slots=True)
class Refused:
    """A comm that was not opened: its target and, of a widget, its module and model."""

    target: str
    module: str = ""
    model: str = ""


@dataclass(slots=True)
class Comm:
    """One comm that the front end knows of."""

    id: str
    target: str
    model: Model | None = None
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Passed:
    """A message that may go to the front end; ``Comms.commit`` once it does."""

    kind: str
    comm: Comm
    data: dict[str, Any]
    buffers: list[bytes] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    memories: list[tuple[Comm, Memory]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the message's content."""
        content = {"comm_id": self.comm.id, "data": self.data}
        return content | {"target_name": self.comm.target} if self.kind == "comm_open" else content
