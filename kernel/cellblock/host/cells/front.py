"""What the way of a cell needs of whoever wants it run, and what is handed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.host.outcome import Cell


class Parent(Protocol):
    """What outputs belong to: a request."""

    @property
    def header(self) -> Mapping[str, Any]:
        """Its header; ``msg_id`` tells it from all others."""


class Publisher(Protocol):
    """Takes what is shown: a type of Jupyter's and the content that goes with it."""

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


class Brake(Protocol):
    """Holds a guest up whose output nobody takes."""

    def admits(self) -> bool:
        """Say whether output may still be published."""

    def check(self) -> None:
        """Look whether too much waits; called after every message of the guest's."""


class Starting(Protocol):
    """What the first cell has to wait for, where a session takes the user's consent."""

    def ask(self, cell: Cell, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell, which goes on once that is decided."""

    def interrupt(self) -> None:
        """Take the question back: there is no session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A cell as it is handed in.

    ``store`` gives it a number of its own. ``timeout`` are seconds that it may run, where the
    policy does not allow fewer.
    """

    code: str
    silent: bool = False
    store: bool = True
    allow_stdin: bool = False
    stop_on_error: bool = True
    expressions: dict[str, str] = field(default_factory=dict)
    timeout: float | None = None
