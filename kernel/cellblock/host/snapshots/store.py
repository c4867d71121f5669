"""The snapshots of one session: copies of the guest that wait, the newest last.

Each stands for the state before what ran after it. The newest covers the cell that runs; the
others are what ``%undo`` steps back to. A copy is a process that shares its memory with the guest
until one of them writes; what it costs is bounded by the policy.

The newest has a twin, which it has forked by itself: when it takes over, its state would exist in
it alone, and end with it.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from cellblock.host.snapshots import memory
from cellblock.host.snapshots.copies import Ring
from cellblock.host.snapshots.forking import Forks, Keeping, Twins
from cellblock.host.snapshots.memory import Budget
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.zygotes import Forker
    from cellblock.host.session.types import Reactor
    from cellblock.host.snapshots.copies import Copy, Ran, Step
    from cellblock.host.snapshots.forking import Settings


#: Copies that are asked for and do not stand yet, at most.
_MOST_UNDER_WAY = 3


class Snapshots:
    """Takes copies of a guest, keeps a few, and gives up those that cost too much."""

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        clock: Callable[[], float],
        told: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self._settings, self._clock, self._lost = settings, clock, lost
        self.ring = Ring()
        self._budget = Budget(settings.mode, clock, told)
        self._keeping = Keeping(
            reactor, settings, self.ring, lambda: (self._guest, self._forks.zygote)
        )
        self._forks = Forks(
            reactor, clock, self._budget, self._on_message, self._on_lost, self._keeping.drop
        )
        self._twins = Twins(reactor, self.ring, self._forks, self._keeping.decided)
        #: Pages that those were given whose state the guest has from them.
        self._given = 0
        #: The guest that serves, or is about to, once it has made a copy.
        self._guest: Guest | None = None

    def hold_to(self, settings: Settings) -> None:
        """Keep what these say, of the copies that there are, too, when the next one stands."""
        self._settings = settings
        self._keeping.hold_to(settings)

    def ran_again(self, ran: Ran) -> None:
        """Take note that a request ran to its end once more: only now, that is."""
        self.ring.ran(replace(ran, ended=self._clock()))

    # --- taking over --------------------------------------------------------------------------

    def pop(self) -> Copy | None:
        """Give the newest copy away: it is to serve. Its twin is the newest now.

        One that has none forks it before it does anything else.
        """
        if not self.ring:
            return None
        copy = self.ring[-1]
        if copy.twin is None:
            self._twins.make(copy)
        self.ring.pop()
        self._serve(copy)
        for other in self.ring:
            # One that stands only now would be what takes over next, without what waits for it.
            other.still, other.next = False, None
        if copy.twin is not None:
            self.ring.append(copy.twin)
            if not self._settings.processes:
                self._twins.make_for_newest()
        return copy

    def give_alone(self, copy: Copy) -> None:
        """Give a copy away that is to serve, and let go of all others, its twin as well."""
        for other in tuple(self.ring):
            if other is not copy:
                self._keeping.drop(other)
        copy.part_with_twin()
        self.ring.clear()
        self._serve(copy)

    def _serve(self, copy: Copy) -> None:
        copy.guest.signal(signal.SIGCONT)
        self._guest, self._given = copy.guest, copy.had.faults
        self._keeping.look_soon()  # the end of the guest before sets all going

    def take_of_restored(self, copy: Copy, zygote: Forker) -> None:
        """Have a copy that has taken over make one of itself, before anything runs in it."""
        known = len(self.ring)
        self.take(copy.guest, zygote)
        for made in self.ring[known:]:
            made.waiting = copy.waiting

    def parted(self, copy: Copy, message: messages.FromGuest) -> bool:
        """Hear a copy that takes over of the twin it had to make first; say whether that was it."""
        match message:
            case messages.Standing(id=number) if number in copy.busy:
                copy.busy.discard(number)
            case messages.NotStanding(id=number) if number in copy.busy:
                copy.busy.discard(number)
                if copy.twin is not None and copy.twin.number == number:
                    self.give_up(copy)
                self._say_failed(message)
            case _:
                return False
        return True

    def give_up(self, copy: Copy) -> None:
        """Let go of the twin of a copy that could not take over: it could not either."""
        if copy.twin is not None:
            self._keeping.drop(copy.twin)

    def clear_up(self) -> None:
        """Have what the guest before had started ended: it would count as this one's."""
        if self._settings.processes:
            self._keeping.strays.end()
            self._twins.make_for_newest()  # not before: it would have been taken for a stray

    def drop_after(self, kept: Copy) -> None:
        """Let go of all that are newer than ``kept``."""
        while self.ring and self.ring[-1] is not kept:
            self._keeping.drop(self.ring[-1])

    def look(self) -> dict[int, int]:
        """See that all are still and hold no more than they may; return them, as ``Ring.sizes``."""
        self._keeping.look()
        return self.ring.sizes()

    def steps(self) -> list[Step]:
        """Return what ``%undo`` can go back to, the nearest first."""
        return self.ring.steps(self._settings.depth)

    def clear(self) -> None:
        """Let go of all of them."""
        for copy in tuple(self.ring):
            self._keeping.drop(copy)

    def begin(self, guest: Guest, zygote: Forker) -> None:
        """Take note of the guest that serves, and its zygote: no copy of one before it is kept."""
        self._guest, self._forks.zygote, self._given = guest, zygote, 0

    def end(self) -> None:
        """Let go of all, and of whatever else was forked: nothing of their guest is to go on."""
        guest, zygote = self._guest, self._forks.zygote
        self._guest = self._forks.zygote = None
        self.clear()
        if guest is not None and zygote is not None:
            zygote.members(guest.lineage.number, guest.lineage.session, ())

    # --- taking one ---------------------------------------------------------------------------

    def take(
        self,
        guest: Guest,
        zygote: Forker,
        then: Callable[[], None] | None = None,
        *,
        twice: bool = False,
    ) -> None:
        """Have ``guest`` make a copy of itself; ``then`` is called once that is decided.

        ``twice`` has it wait for the twin, too: what ran can't be run again on an older copy.
        """
        under_way = sum(not copy.standing for copy in self.ring)
        copy = None
        may = under_way < _MOST_UNDER_WAY and self._keeping.strays.few()
        if self._settings.mode != "off" and may:
            resident = memory.resident(guest.pid)
            if self._budget.allows(resident, self._keeping.drop_oldest):
                copy = self._awaited(guest, resident)
        if copy is None:
            if then is not None:
                then()
            return
        self._guest, self._forks.zygote = guest, zygote
        copy.then, copy.waiting, copy.twice = then, then, twice
        self.ring.append(copy)
        self._forks.ask(guest, copy)

    def _awaited(self, guest: Guest, resident: int) -> Copy | None:
        """Return the host's end of a copy to come; None where it has no descriptors for one."""
        if (made := self._forks.host_end(guest)) is None:
            return None
        return self._forks.copy(made, memory.read(guest.pid, resident, self._given))

    def not_standing(self, message: messages.NotStanding) -> None:
        """Take note that the guest could not make a copy."""
        for copy in self.ring:
            if copy.number == message.id and not copy.standing:
                self._keeping.drop(copy)
                self._say_failed(message)
                return

    def _say_failed(self, message: messages.NotStanding) -> None:
        self._budget.say("failed", f"one could not be made ({os.strerror(message.errno)})")

    def _on_message(self, copy: Copy, message: messages.FromGuest) -> None:
        """Hear a copy: once that it stands, and what becomes of each twin that it is to make."""
        if copy.standing and self.parted(copy, message):
            if copy.twin is None and isinstance(message, messages.Standing):
                self._twins.make(copy)  # its twin was gone before
            self._keeping.decided(copy)
        elif copy.standing or not self._stands(copy, message):
            self._keeping.drop(copy)
        elif (maker := self.ring.maker(copy)) is not None:
            self._keeping.decided(maker)
        else:
            self._stood(copy)

    def _stands(self, copy: Copy, message: messages.FromGuest) -> bool:
        """Say whether a copy's first message is what it has to be, and its process the guest's."""
        said = isinstance(message, messages.Standing) and message.id == copy.number
        known = {one.guest.pid for one in self.ring.all() if one is not copy}
        if self._guest is not None:
            known.add(self._guest.pid)
        copy.standing = said and copy.guest.pid not in known and copy.guest.vouch()
        if isinstance(message, messages.Standing):
            copy.connections = message.connections
        return copy.standing

    def _stood(self, copy: Copy) -> None:
        """Go on now that a copy stands; its twin is made at once if that is waited for."""
        if not copy.twins:
            # A task of the guest's may have gone on, and taken memory, before it forked.
            now = memory.resident(self._guest.pid) if self._guest is not None else 0
            copy.had = replace(copy.had, size=max(copy.had.size, now))
            self._budget.took(self._clock() - copy.asked_at, copy.had.size)
        if copy.twice or copy.twins:
            self._twins.make_for_newest()
        else:
            self._twins.make_soon(copy)
        self._keeping.decided(copy)
        following, copy.next = copy.next, None
        if following is not None:
            following()

    def _on_lost(self, copy: Copy) -> None:
        if (maker := self.ring.maker(copy)) is not None:
            self._twins.lost(maker, copy)
        elif copy in self.ring and copy.twin is not None:
            self._twins.succeed(copy, copy.twin)
        elif copy in self.ring:
            self._keeping.drop(copy)
            if copy.standing or copy.twins:
                self._lost()
