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

#: Seconds until what has come to stand, or was set going, is looked at.
_LOOK: Final = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """What the policy says of snapshots."""

    mode: Mode = "auto"
    depth: int = 0
    most_bytes: int | None = None
    #: Cells may start processes: those are not to be taken for strays.
    processes: bool = False
    #: Bytes that all of them may come to hold while they wait.
    most_grown: int | None = None


class Keeping:
    """``serving`` returns the guest that serves, or is about to, and its zygote."""

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        ring: Ring,
        serving: Callable[[], tuple[Guest | None, Forker | None]],
    ) -> None:
        self._reactor, self._settings, self._ring = reactor, settings, ring
        self.strays = Strays(reactor, ring, serving, processes=settings.processes)
        #: They are about to be looked at.
        self._due = False

    def hold_to(self, settings: Settings) -> None:
        """Keep what these say, of the copies that there are, too, when the next one stands."""
        self._settings = settings
        self.strays.hold_to(processes=settings.processes)

    def decided(self, copy: Copy) -> None:
        """Go on with a copy that stands, and has its twin where that is waited for."""
        if copy in self._ring and copy.standing and (copy.settled or not copy.twice):
            self._stop()
            self._keep_few(copy)
            self.strays.end_soon()
            self.look_soon()
            copy.settle()

    def _stop(self, *, again: bool = False) -> None:
        """Stop all that stand: waiting needs no processor, and nothing else may be done."""
        for copy in self._ring.all():
            copy.stop(again=again)

    def look_soon(self) -> None:
        """Have all looked at before long."""
        if not self._due:
            self._due = True
            self._reactor.call_later(_LOOK, self._look_now)

    def _look_now(self) -> None:
        self._due = False
        self.look()

    def look(self) -> None:
        """See that copies are still, and hold no more than they may.

        What one does by itself it does before it is stopped, or when the end of a guest, or of one
        of its threads, has set it going (prctl(2), PR_SET_PDEATHSIG). It has pages of its own then:
        new ones, or for those that it shares with its guest. The latter are as many as if the
        guest had written to them, and are counted so; but a twin has no reason to write.
        """
        ring, most = self._ring, self._settings.most_grown
        self._stop(again=True)
        for copy in ring.all():
            copy.measure()
            if ring.maker(copy) is not None:
                copy.grew = max(copy.grew, copy.rewrote)
        while most is not None and sum(copy.grew for copy in ring.all()) > most:
            self.drop(max(ring.all(), key=lambda copy: copy.grew))
        if ring and ring[-1].settled:
            self._keep_few(ring[-1])

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
        if newest.settled and newest.twins:
            spare = 0  # its twin was given up: what the one before holds counts
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
            self.strays.end_twice()
        copy.settle()
        if maker is not None:
            self.decided(maker)

    def drop_oldest(self) -> bool:
        """End the oldest copy; say whether there was one."""
        if self._ring:
            self.drop(self._ring[0])
            return True
        return False
