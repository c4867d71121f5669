"""What a result is made of, as far as a receipt vouches for it: outputs, calls, conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cellblock.render.cards import (
    ARTIFACTS_JSON,
    DENIAL_JSON,
    ENFORCEMENT_JSON,
    OUTCOME_JSON,
    PROBLEM_JSON,
    REFUSAL_JSON,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.services.changes import Staged
    from cellblock.policy.model import Enforcement, Gap, Policy

Kind = Literal[
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
    "comm_open",
    "comm_msg",
    "comm_close",
]
#: Types of cellblock's own cards; no cell can send them. Tables that a cell asks for, such as
#: ``%usage``, are the cell's.
_OURS: Final = frozenset(
    {ARTIFACTS_JSON, DENIAL_JSON, ENFORCEMENT_JSON, OUTCOME_JSON, PROBLEM_JSON, REFUSAL_JSON}
)


@dataclass(frozen=True, slots=True)
class Output:
    """One output as a front end gets it: the type and content of Jupyter's message.

    In their order these are all that a notebook's outputs are made of: ``clear_output`` and
    ``update_display_data`` are still to be acted on.
    """

    kind: Kind
    content: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether it is a card of cellblock's, and not the cell's."""
        return not _OURS.isdisjoint(self.content.get("data", ()))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; secret values are masked, and of what is large only the size is told."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    status: Literal["ok", "error", "withdrawn", "refused", "unfinished"]
    seconds: float
    result: Any = None
    #: The exception's type and message.
    error: tuple[str, str] | None = None
    #: Of a language model, prompt and completion together.
    tokens: int = 0


class Origin(NamedTuple):
    """A session, by its name in the audit log, as it was after a cell of that number."""

    session: str
    execution_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What was in force when a cell ended, at ``ended`` (seconds since 1970): for its receipt.

    ``variables_from`` is the session that this one's variables came from by a fork, if they did.
    """

    policy: Policy
    scratch: str
    backend: str
    enforcement: Mapping[str, Enforcement]
    gaps: tuple[Gap, ...]
    proved: str
    session: str
    staged: Staged | None
    ended: float
    variables_from: Origin | None = None
