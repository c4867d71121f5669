"""What a workshop is told: which tools its worker is to have, and how long calls may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.ops import settings as operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The policy's part: what to import, seconds of a call, by name and for all others.

    With ``operations`` nothing is imported: those are what is offered.
    """

    entries: tuple[str, ...] = ()
    operations: operations.Settings | None = None
    timeout: float | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    max_bytes: int = 2**20
    #: The field that says how long a call may take.
    limit: str = "tool_timeout"
    #: The file that says so, for errors.
    policy: str = ""
