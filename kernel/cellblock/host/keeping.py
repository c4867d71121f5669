"""How many of the copies that stand are kept, and that they do nothing meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.host.strays import Strays

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.budget import Mode
    from cellblock.host.copies import Copy
    from cellblock.host.guest_process import Guest
    from cellblock.host.reactor import Reactor
    from cellblock.host.ring import Ring
    from cellblock.host.zygotes import Forker

#: Seconds that a guest which was killed may take to be gone.
_RESTLESS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the policy says of snapshots."""

    mode: Mode = "auto"
    depth: int = 0
    most_bytes: int | None = None
    #: Cells may start processes: those are not to be taken for strays.
    processes: bool = False


class Keeping:
    """``serving`` returns the guest that serves, or is about to, and its zygote."""

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        clock: Callable[[], float],
        ring: Ring,
        serving: Callable[[], tuple[Guest | None, Forker | None]],
    ) -> None:
        self._settings, self._clock, self._ring = settings, clock, ring
        self._strays = Strays(reactor, ring, serving, processes=settings.processes)
        #: Until when copies may be set going.
        self._restless_until = 0.0

    def hold_to(self, settings: Settings) -> None:
        """Keep what these say, of the copies that there are, too, when the next one stands."""
        self._settings = settings
        self._strays.hold_to(processes=settings.processes)

    def lost(self) -> None:
        """Take note that the guest has ended which the copies were made by."""
        self._restless_until = self._clock() + _RESTLESS

    def decided(self, copy: Copy) -> None:
        """Go on with a copy that stands, and has its twin where that is waited for."""
        if copy in self._ring and copy.standing and (copy.settled or not copy.twice):
            self._stop()
            self._keep_few(copy)
            self._strays.end_soon()
            copy.settle()

    def _stop(self) -> None:
        """Stop all that stand: waiting needs no processor, and whatever else one does, it may not.

        The end of the guest that they were made by sets them going, and may take a while: until
        it is past, all are told again.
        """
        again = self._clock() < self._restless_until
        for copy in self._ring.all():
            copy.stop(again=again)

    def _keep_few(self, newest: Copy) -> None:
        """Keep one that stands, and as many to step back to as the policy has room for.

        While it has no twin, the one before it is kept for what it holds; what is newer than it
        may yet fail.
        """
        ring = self._ring
        if newest not in ring:
            return
        spare = 0 if newest.settled and newest.twin is not None else 1
        for copy in ring[: max(0, ring.index(newest) - spare)]:
            copy.part_with_twin()
            if copy.standing and not copy.visible:
                self.drop(copy)
        while ring.index(newest) > max(spare, self._settings.depth):
            self.drop(ring[0])
        most = self._settings.most_bytes
        while most is not None and ring.index(newest) > spare and ring.cost() > most:
            self.drop(ring[0])

    def drop(self, copy: Copy) -> None:
        """End a copy. What ran after it ran after the one before it, too."""
        maker = self._ring.maker(copy)
        if maker is not None:
            maker.twin = None
        elif copy in self._ring:
            self._ring.forget(copy)
            copy.part_with_twin()
        else:
            return
        copy.guest.close()
        if not copy.standing:
            # Its pid is not known, and its fork may have been taken by something else. Others that
            # are under way have theirs due still, or have forked and not said so.
            self._stop()
            self._strays.end_twice()
        copy.settle()
        if maker is not None:
            self.decided(maker)

    def drop_oldest(self) -> bool:
        """End the oldest copy; say whether there was one."""
        if self._ring:
            self.drop(self._ring[0])
            return True
        return False

    def end_strays(self) -> None:
        """Have whatever is neither the guest nor a copy of it ended."""
        self._strays.end()
