"""The twin of the newest copy, which that has forked by itself.

When it takes over, its state would exist in it alone, and end with it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from cellblock.host.forks import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.copies import Copy
    from cellblock.host.forks import Forks
    from cellblock.host.reactor import Reactor
    from cellblock.host.ring import Ring

#: Seconds until the newest makes a twin of itself: with none coming after it at once.
TWIN_AFTER: Final = 0.02
#: Twins that are made of one state, each when the one before is gone: it may be what ends them.
MOST_TWINS: Final = 8


class Twins:
    """``decided`` gets a copy of which no twin is waited for any more."""

    def __init__(
        self, reactor: Reactor, ring: Ring, forks: Forks, decided: Callable[[Copy], None]
    ) -> None:
        self._reactor, self._ring, self._forks, self._decided = reactor, ring, forks, decided

    def make(self, copy: Copy) -> None:
        """Have a copy make a twin of itself, or go on without."""
        made = self._forks.host_end(copy.guest) if copy.twins < MOST_TWINS else None
        if made is None:
            return
        copy.twins += 1
        twin = self._forks.copy(made, copy.had, copy.twins)
        twin.waiting = copy.waiting
        copy.twin, copy.still = twin, False
        copy.busy.add(twin.number)
        copy.guest.signal(signal.SIGCONT)
        self._forks.ask(copy.guest, twin)
        # One that does not part with it goes on without being waited for, and is stopped.
        self._reactor.call_later(PATIENCE, lambda: self._part(copy, twin))

    def _part(self, copy: Copy, twin: Copy) -> None:
        if twin.number in copy.busy:
            copy.busy.discard(twin.number)
            self._decided(copy)

    def make_for_newest(self) -> None:
        """Have the newest copy make one, if it stands and has none."""
        if self._ring:
            self._make_if_newest(self._ring[-1])

    def make_soon(self, copy: Copy) -> None:
        """Have a copy make one unless another comes after it at once.

        Until then what ran is run again on the copy before it, should both be lost.
        """
        self._reactor.call_later(TWIN_AFTER, lambda: self._make_if_newest(copy))

    def _make_if_newest(self, copy: Copy) -> None:
        if self._ring[-1:] == [copy] and copy.standing and copy.twin is None:
            self.make(copy)

    def lost(self, maker: Copy, twin: Copy) -> None:
        """Make another in the place of one that ended."""
        maker.twin = None
        twin.guest.close()
        if not maker.busy:
            self.make(maker)
        self._decided(maker)

    def succeed(self, copy: Copy, twin: Copy) -> None:
        """Have a twin stand in the place of a copy that ended."""
        self._ring[self._ring.index(copy)] = twin
        twin.after, twin.unseen = copy.after, copy.unseen
        twin.then, twin.next = copy.then, copy.next
        copy.then = copy.twin = None
        copy.guest.close()
        twin.still = False  # its end has set it going
        self.make_for_newest()
        self._decided(twin)
