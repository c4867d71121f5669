"""More locks for a guest that runs: a copy of it takes over with them, and nothing else is left.

The zygote makes them ready, and says when they are on the copy (``guest.confine.again``); a copy
that goes on without is ended like any other that lies. Until they are ready nothing has changed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from cellblock.host.restoring import Restoring

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.copies import Copy
    from cellblock.host.outcome import Stopped
    from cellblock.host.pace import Pace
    from cellblock.host.restorer import Restorer
    from cellblock.host.snapshots import Snapshots
    from cellblock.host.supply import Supply
    from cellblock.wire.messages import Confined, Plan

#: No two wishes have the same, whoever shares a zygote: all hear of each.
_TICKETS: Final = itertools.count(1)


class Relocking:
    """``supply`` has the zygote behind the guests, which lays them."""

    def __init__(
        self,
        snapshots: Snapshots,
        restorer: Restorer,
        pace: Pace,
        supply: Supply,
    ) -> None:
        self._snapshots, self._restorer, self._pace = snapshots, restorer, pace
        self._supply = supply
        self._ready: Callable[[str], None] | None = None
        self._ticket = 0

    def copy(self, then: Callable[[Copy | None], None]) -> None:
        """Have a copy made of the guest as it is; ``then`` gets it, or None."""
        self._pace.take(lambda: then(self._snapshots.ring.whole()), twice=True)

    def make(self, copy: Copy, plan: Plan, then: Callable[[str], None]) -> None:
        """Have locks made ready for a copy; ``then`` gets why there can be none, or nothing.

        From then on it is to take over: until another copy is asked for, nothing more can start.
        """
        self._ready = then
        self._ticket = next(_TICKETS)
        if (zygote := self._supply.zygote) is not None:
            zygote.confine(copy.guest, plan, self._ticket)

    def heard(self, message: Confined) -> None:
        """Hear that locks are ready, can't be had, or are on the copy that takes over."""
        if message.ticket != self._ticket:
            return  # of a copy that is no more
        if not (message.ready or message.failure):
            self._restorer.confined()
            return
        then, self._ready = self._ready, None
        if then is not None:
            then(message.failure)

    def promote(self, copy: Copy, stopped: Stopped, plan: Plan, now: float) -> None:
        """Have a copy take over with the locks that are ready for it; nothing else is kept."""
        self._snapshots.give_alone(copy)
        self._restorer.promote(copy, Restoring(stopped, None, now=now, plan=plan))
