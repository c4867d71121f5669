"""Host tools: the operator's functions, which cells call.

``broker`` judges calls and keeps account of them; whoever runs them is a ``provider``. The
operator's functions run in ``workshop``'s worker, a process of its own (``worker``, ``registry``,
``runs``), which may hang, crash and be killed without the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.tools.broker import Limits
    from cellblock.host.tools.record import Record
    from cellblock.host.tools.workshop import Settings


def _unobserved(_record: Record) -> None: ...


@dataclass(frozen=True, slots=True)
class Tooling:
    """What a session with tools is told: which, and within what limits."""

    settings: Settings
    limits: Limits
    #: Gets the record of every call that ended: for the audit log.
    observe: Callable[[Record], None] = _unobserved
