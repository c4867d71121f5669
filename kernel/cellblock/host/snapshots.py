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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import CellblockError
from cellblock.host import room
from cellblock.host.budget import Budget
from cellblock.host.copies import Copy, Ran, Step
from cellblock.host.guest_process import Guest
from cellblock.host.ring import Ring
from cellblock.host.strays import Strays
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.budget import Mode
    from cellblock.host.reactor import Reactor
    from cellblock.host.zygote_process import Zygote

#: Seconds that a copy may take to stand before the guest's next cell goes on without it.
PATIENCE: Final = 5.0
#: Seconds that a guest which was killed may take to be gone.
_RESTLESS: Final = 30.0
#: Copies that are asked for and do not stand yet, at most.
_MOST_UNDER_WAY = 3
#: Seconds until the newest makes a twin of itself: with none coming after it at once.
TWIN_AFTER: Final = 0.02
#: Twins that are made of one state, each when the one before is gone: it may be what ends them.
MOST_TWINS: Final = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What the policy says of snapshots."""

    mode: Mode = "auto"
    depth: int = 0
    most_bytes: int | None = None
    #: Cells may start processes: those are not to be taken for strays.
    processes: bool = False


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
        self._reactor, self._settings, self._clock, self._lost = reactor, settings, clock, lost
        self._copies = Ring()
        self._budget = Budget(settings.mode, clock, told)
        self._strays = Strays(
            reactor,
            self._copies,
            lambda: (self._guest, self._zygote),
            processes=settings.processes,
        )
        #: Pages that those were given whose state the guest has from them.
        self._given = 0
        self._numbers = 0
        #: The guest that serves, or is about to, once it has made a copy; and its zygote.
        self._guest: Guest | None = None
        self._zygote: Zygote | None = None
        #: Until when copies may be set going.
        self._restless_until = 0.0

    def hold_to(self, settings: Settings) -> None:
        """Keep what these say, of the copies that there are, too, when the next one stands."""
        self._settings = settings
        self._strays.hold_to(processes=settings.processes)

    # --- what ran -----------------------------------------------------------------------------

    def ran(self, ran: Ran) -> None:
        """Take note that a request ran to its end, on top of the newest copy."""
        if self._copies:
            self._copies[-1].after.append(ran)

    def ran_again(self, ran: Ran) -> None:
        """Take note that a request ran to its end once more: only now, that is."""
        self.ran(replace(ran, ended=self._clock()))

    def can_wait(self) -> bool:
        """Say whether what ran since the newest copy can be run again as well as be kept."""
        return bool(self._copies) and self._copies[-1].exact

    def covers(self) -> bool:
        """Say whether all that ran is kept, or can be run again and comes out the same.

        Then one more may be answered before it is kept: it is the only one to be run again.
        """
        return self._copies.covers()

    def connected(self) -> bool:
        """Say whether the guest may have had connections when what ran last began."""
        for copy in reversed(self._copies):
            if any(ran.once for ran in copy.after):
                return True
            if copy.standing:
                return copy.connections > 0
        return False

    def when_kept(self, then: Callable[[], None]) -> None:
        """Have ``then`` called when all that ran until now is kept, if a copy under way does that.

        Not if that copy takes over: it has not what ran since.
        """
        newest = self._copies[-1] if self._copies else None
        if newest is not None and not newest.standing and newest.exact:
            newest.next = then

    @property
    def copies(self) -> tuple[Copy, ...]:
        """All copies, the oldest first."""
        return tuple(self._copies)

    def sizes(self) -> dict[int, int]:
        """Return the processes of the copies, and how many bytes each has from its guest."""
        return self._copies.sizes()

    def pop(self) -> Copy | None:
        """Give the newest copy away: it is to serve. Its twin is the newest now.

        One that has none forks it before it does anything else.
        """
        if not self._copies:
            return None
        copy = self._copies[-1]
        if copy.twin is None:
            self._double(copy)
        self._copies.pop()
        copy.guest.signal(signal.SIGCONT)
        self._guest, self._given = copy.guest, copy.had.faults
        self._restless_until = self._clock() + _RESTLESS
        for other in self._copies:
            # One that stands only now would be what takes over next, without what waits for it.
            other.still, other.next = False, None
        if copy.twin is not None:
            self._copies.append(copy.twin)
            if not self._settings.processes:
                self._double_newest()
        return copy

    def whole(self) -> Copy | None:
        """Return the newest copy if it stands and has all that ran, or None."""
        newest = self._copies[-1] if self._copies else None
        return newest if newest is not None and newest.standing and not newest.after else None

    def give_alone(self, copy: Copy) -> None:
        """Give a copy away that is to serve, and let go of all others, its twin as well."""
        for other in self.copies:
            if other is not copy:
                self._drop(other)
        self._part_with_twin(copy)
        self._copies.clear()
        copy.guest.signal(signal.SIGCONT)
        self._guest, self._given = copy.guest, copy.had.faults
        self._restless_until = self._clock() + _RESTLESS

    def take_of_restored(self, copy: Copy, zygote: Zygote) -> None:
        """Have a copy that has taken over make one of itself, before anything runs in it."""
        known = len(self._copies)
        self.take(copy.guest, zygote)
        for made in self._copies[known:]:
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
            self._drop(copy.twin)

    def drop_after(self, kept: Copy) -> None:
        """Let go of all that are newer than ``kept``."""
        while self._copies and self._copies[-1] is not kept:
            self._drop(self._copies[-1])

    def steps(self) -> list[Step]:
        """Return what ``%undo`` can go back to, the nearest first."""
        return self._copies.steps(self._settings.depth)

    def clear(self) -> None:
        """Let go of all of them."""
        for copy in tuple(self._copies):
            self._drop(copy)

    def begin(self, guest: Guest, zygote: Zygote) -> None:
        """Take note of the guest that serves, and its zygote: no copy of one before it is kept."""
        self._guest, self._zygote, self._given = guest, zygote, 0

    def end(self) -> None:
        """Let go of all, and of whatever else was forked: nothing of their guest is to go on."""
        guest, zygote = self._guest, self._zygote
        self._guest = self._zygote = None
        self.clear()
        if guest is not None and zygote is not None:
            zygote.members(guest.lineage.number, guest.lineage.session, ())

    # --- taking one ---------------------------------------------------------------------------

    def take(
        self,
        guest: Guest,
        zygote: Zygote,
        then: Callable[[], None] | None = None,
        *,
        twice: bool = False,
    ) -> None:
        """Have ``guest`` make a copy of itself; ``then`` is called once that is decided.

        ``twice`` has it wait for the twin, too: what ran can't be run again on an older copy.
        """
        under_way = sum(not copy.standing for copy in self._copies)
        copy = None
        if self._settings.mode != "off" and under_way < _MOST_UNDER_WAY:
            resident = room.resident(guest.pid)
            if self._budget.allows(resident, self._drop_oldest):
                copy = self._awaited(guest, resident)
        if copy is None:
            if then is not None:
                then()
            return
        self._guest, self._zygote = guest, zygote
        copy.then, copy.waiting, copy.twice = then, then, twice
        self._copies.append(copy)
        self._ask(guest, copy)

    def _ask(self, maker: Guest, copy: Copy) -> None:
        """Have ``maker``, a guest or a copy, fork."""
        guest = copy.guest
        guest.on_message = lambda message: self._on_message(copy, message)
        guest.on_lost = lambda _: self._on_lost(copy)
        if self._zygote is not None:
            # Nobody else, for a cell may be running meanwhile: it could take the twin's fork. Only
            # a copy that has not told who it is takes over from a guest that is gone.
            self._zygote.allow(maker.lineage.number, maker.pid)
        try:
            sent = maker.send_with(messages.Snapshot(id=copy.number), guest.theirs)
        except CellblockError:
            sent = False
        guest.release_theirs()
        if sent:
            self._reactor.call_later(PATIENCE, lambda: None if copy.standing else self._drop(copy))
        else:
            self._drop(copy)

    def _double(self, copy: Copy) -> None:
        """Have a copy make a twin of itself, or go on without."""
        made = self._host_end(copy.guest) if copy.twins < MOST_TWINS else None
        if made is None:
            return
        self._numbers += 1
        copy.twins += 1
        twin = Copy(made, self._numbers, self._clock(), copy.had, twins=copy.twins)
        twin.waiting = copy.waiting
        copy.twin, copy.still = twin, False
        copy.busy.add(twin.number)
        copy.guest.signal(signal.SIGCONT)
        self._ask(copy.guest, twin)
        # One that does not part with it goes on without being waited for, and is stopped.
        self._reactor.call_later(PATIENCE, lambda: self._part(copy, twin))

    def _part(self, copy: Copy, twin: Copy) -> None:
        if twin.number in copy.busy:
            copy.busy.discard(twin.number)
            self._decided(copy)

    def _double_newest(self) -> None:
        if self._copies:
            self._double_if_newest(self._copies[-1])

    def _double_if_newest(self, copy: Copy) -> None:
        if self._copies[-1:] == [copy] and copy.standing and copy.twin is None:
            self._double(copy)

    def _awaited(self, guest: Guest, resident: int) -> Copy | None:
        """Return the host's end of a copy to come; None where it has no descriptors for one."""
        if (made := self._host_end(guest)) is None:
            return None
        self._numbers += 1
        return Copy(made, self._numbers, self._clock(), room.read(guest.pid, resident, self._given))

    def _host_end(self, maker: Guest) -> Guest | None:
        try:
            made = Guest(self._reactor, _ignore, _ignore_text, _ignore, vouched=True)
        except OSError as exc:
            self._budget.say("files", f"the kernel can't open what one takes ({exc.strerror})")
            return None
        made.lineage, made.copied = maker.lineage, True
        return made

    def not_standing(self, message: messages.NotStanding) -> None:
        """Take note that the guest could not make a copy."""
        for copy in self._copies:
            if copy.number == message.id and not copy.standing:
                self._drop(copy)
                self._say_failed(message)
                return

    def _say_failed(self, message: messages.NotStanding) -> None:
        self._budget.say("failed", f"one could not be made ({os.strerror(message.errno)})")

    def _on_message(self, copy: Copy, message: messages.FromGuest) -> None:
        """Hear a copy: once that it stands, and what becomes of each twin that it is to make."""
        if copy.standing and self.parted(copy, message):
            if copy.twin is None and isinstance(message, messages.Standing):
                self._double(copy)  # its twin was gone before
            self._decided(copy)
        elif copy.standing or not self._stands(copy, message):
            self._drop(copy)
        elif (maker := self._copies.maker(copy)) is not None:
            self._decided(maker)
        else:
            self._stood(copy)

    def _stands(self, copy: Copy, message: messages.FromGuest) -> bool:
        """Say whether a copy's first message is what it has to be, and its process the guest's."""
        said = isinstance(message, messages.Standing) and message.id == copy.number
        known = {one.guest.pid for one in self._copies.all() if one is not copy}
        if self._guest is not None:
            known.add(self._guest.pid)
        copy.standing = said and copy.guest.pid not in known and copy.guest.vouch()
        if isinstance(message, messages.Standing):
            copy.connections = message.connections
        return copy.standing

    def _stood(self, copy: Copy) -> None:
        """Go on now that a copy stands; its twin is made at once if that is waited for."""
        if not copy.twins:
            self._budget.took(self._clock() - copy.asked_at, copy.had.size)
        if copy.twice or copy.twins:
            self._double_newest()
        else:
            # Until then what ran is run again on the copy before it, should both be lost.
            self._reactor.call_later(TWIN_AFTER, lambda: self._double_if_newest(copy))
        self._decided(copy)
        following, copy.next = copy.next, None
        if following is not None:
            following()

    def _decided(self, copy: Copy) -> None:
        """Go on with a copy that stands, and has its twin where that is waited for."""
        if copy in self._copies and copy.standing and (copy.settled or not copy.twice):
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
        for copy in self._copies.all():
            if copy.standing and not copy.busy and (again or not copy.still):
                copy.guest.signal(signal.SIGSTOP)
                copy.still = True

    def _on_lost(self, copy: Copy) -> None:
        if (maker := self._copies.maker(copy)) is not None:
            maker.twin = None
            copy.guest.close()
            if not maker.busy:
                self._double(maker)
            self._decided(maker)
        elif copy in self._copies and copy.twin is not None:
            self._succeed(copy, copy.twin)
        elif copy in self._copies:
            self._drop(copy)
            if copy.standing or copy.twins:
                self._lost()

    def _succeed(self, copy: Copy, twin: Copy) -> None:
        """Have a twin stand in the place of a copy that ended."""
        self._copies[self._copies.index(copy)] = twin
        twin.after, twin.unseen = copy.after, copy.unseen
        twin.then, twin.next = copy.then, copy.next
        copy.then = copy.twin = None
        copy.guest.close()
        twin.still = False  # its end has set it going
        self._double_newest()
        self._decided(twin)

    def _drop(self, copy: Copy) -> None:
        """End a copy. What ran after it ran after the one before it, too."""
        maker = self._copies.maker(copy)
        if maker is not None:
            maker.twin = None
        elif copy in self._copies:
            self._copies.forget(copy)
            self._part_with_twin(copy)
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
            self._decided(maker)

    def _part_with_twin(self, copy: Copy) -> None:
        twin, copy.twin = copy.twin, None
        if twin is not None:
            twin.guest.close()

    def _drop_oldest(self) -> bool:
        if self._copies:
            self._drop(self._copies[0])
            return True
        return False

    # --- what is kept -------------------------------------------------------------------------

    def clear_up(self) -> None:
        """Have what the guest before had started ended: it would count as this one's."""
        if self._settings.processes:
            self._strays.end()
            self._double_newest()  # not before: it would have been taken for a stray

    def _keep_few(self, newest: Copy) -> None:
        """Keep one that stands, and as many to step back to as the policy has room for.

        While it has no twin, the one before it is kept for what it holds; what is newer than it
        may yet fail.
        """
        if newest not in self._copies:
            return
        spare = 0 if newest.settled and newest.twin is not None else 1
        for copy in self._copies[: max(0, self._copies.index(newest) - spare)]:
            self._part_with_twin(copy)
            if copy.standing and not copy.visible:
                self._drop(copy)
        while self._copies.index(newest) > max(spare, self._settings.depth):
            self._drop(self._copies[0])
        most = self._settings.most_bytes
        while (
            most is not None and self._copies.index(newest) > spare and self._copies.cost() > most
        ):
            self._drop(self._copies[0])


def _ignore(_: Any) -> None: ...


def _ignore_text(_kind: messages.StreamName, _text: str) -> None: ...
