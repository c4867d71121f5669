"""The parts of a result that its receipt vouches for, beside its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.services.changes import Staged
    from cellblock.policy.model import Enforcement, Gap, Policy


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. Secret values are masked, and large values are replaced by their sizes."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    status: Literal["ok", "error", "withdrawn", "refused", "unfinished"]
    seconds: float
    result: Any = None
    #: The exception's type and message.
    error: tuple[str, str] | None = None
    #: The tokens of prompt and completion together, if the tool is a language model.
    tokens: int = 0


class Origin(NamedTuple):
    """A session (its name in the audit log) as it was after the cell with ``execution_count``."""

    session: str
    execution_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The conditions in force when a cell ended, for its receipt.

    ``ended`` is the time in seconds since 1970. ``proved`` says what the guest's probes proved of
    its locks. ``variables_from`` is the session that the variables were copied from by a fork.
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
