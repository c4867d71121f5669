"""What a result is made of beside its outputs, as far as a receipt vouches for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.services.changes import Staged
    from cellblock.policy.model import Enforcement, Gap, Policy


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
