"""When a snapshot is taken: at once, or in idle time if that loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guest_process import Guest
    from cellblock.host.reactor import Reactor
    from cellblock.host.snapshots import Snapshots
    from cellblock.host.zygotes import Forker

#: Seconds without a request that count as idle time.
IDLE: Final = 0.02


class Pace:
    """``serving`` returns the guest that serves and its zygote; ``idle``, whether nothing runs."""

    def __init__(
        self,
        reactor: Reactor,
        snapshots: Snapshots,
        serving: Callable[[], tuple[Guest, Forker] | None],
        idle: Callable[[], bool],
    ) -> None:
        self._reactor, self._snapshots = reactor, snapshots
        self._serving, self._idle = serving, idle
        #: Counts requests and snapshots, so that a timer knows whether there was one meanwhile.
        self._moves = 0

    def moved(self) -> None:
        """Take note that a request came: this is no idle time."""
        self._moves += 1

    def take_in_time(self) -> None:
        """Take a snapshot: at once, or when nothing comes for a while if that loses nothing."""
        if self._snapshots.ring.can_wait():
            self.take_when_idle()
        else:
            self.take()

    def take_when_idle(self) -> None:
        """Take a snapshot when nothing comes for a while.

        Not while something runs: what is asked for then is made when it has ended, and would
        count as made before it.
        """
        self._moves += 1
        now = self._moves

        def due() -> None:
            if now == self._moves and self._idle():
                self.take()

        self._reactor.call_later(IDLE, due)

    def take(self, then: Callable[[], None] | None = None, *, twice: bool = False) -> None:
        """Take one now; ``then`` is called once it stands, or it is certain that it will not.

        ``twice`` has its twin waited for, too.
        """
        self._moves += 1
        if (serving := self._serving()) is not None:
            self._snapshots.take(*serving, then, twice=twice)
        elif then is not None:
            then()
