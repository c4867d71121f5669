"""Asking a guest, or a copy of it, to fork: the host's end of what is to stand then."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import CellblockError
from cellblock.host.guests.process import Guest
from cellblock.host.snapshots.copies import Copy
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.zygotes import Forker
    from cellblock.host.session.types import Reactor
    from cellblock.host.snapshots.copies import Ring
    from cellblock.host.snapshots.memory import Budget, Mode, Reading
    from cellblock.host.snapshots.store import Snapshots


#: Seconds that a copy may take to stand before the guest's next cell goes on without it.
PATIENCE: Final = 5.0


class Forks:
    """Copies to come, by number.

    ``heard`` gets each with what it says, ``lost`` one that ended, ``late`` one that does not stand
    in time, or could not be asked for.
    """

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        budget: Budget,
        heard: Callable[[Copy, messages.FromGuest], None],
        lost: Callable[[Copy], None],
        late: Callable[[Copy], None],
    ) -> None:
        self._reactor, self._clock, self._budget = reactor, clock, budget
        self._heard, self._lost, self._late = heard, lost, late
        self._numbers = 0
        #: Who lets forks through.
        self.zygote: Forker | None = None

    def host_end(self, maker: Guest) -> Guest | None:
        """Return the host's end of a copy; None where it has no descriptors for one."""
        try:
            made = Guest(self._reactor, _ignore, _ignore_text, _ignore, vouched=True)
        except OSError as exc:
            self._budget.say("files", f"the kernel can't open what one takes ({exc.strerror})")
            return None
        made.lineage, made.copied = maker.lineage, True
        return made

    def copy(self, made: Guest, had: Reading, twins: int = 0) -> Copy:
        """Return a copy to come, which is asked for now."""
        self._numbers += 1
        return Copy(made, self._numbers, self._clock(), had, twins=twins)

    def ask(self, maker: Guest, copy: Copy) -> None:
        """Have ``maker``, a guest or a copy, fork."""
        guest = copy.guest
        guest.on_message = lambda message: self._heard(copy, message)
        guest.on_lost = lambda _: self._lost(copy)
        if self.zygote is not None:
            # Nobody else, for a cell may be running meanwhile: it could take the twin's fork. Only
            # a copy that has not told who it is takes over from a guest that is gone.
            self.zygote.allow(maker.lineage.number, maker.pid)
        try:
            sent = maker.send_with(messages.Snapshot(id=copy.number), guest.theirs)
        except CellblockError:
            sent = False
        guest.release_theirs()
        if sent:
            self._reactor.call_later(PATIENCE, lambda: None if copy.standing else self._late(copy))
        else:
            self._late(copy)


def _ignore(_: Any) -> None: ...


def _ignore_text(_kind: messages.StreamName, _text: str) -> None: ...


# The twin of the newest copy, which that has forked by itself.
#
# When it takes over, its state would exist in it alone, and end with it.

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


# Ends what was forked besides a session's guest and its copies.

#: Seconds after which strays are looked for again: one may have been in the middle of its fork.
_AFTERWARDS: Final = 1.0
#: As many as there may be until nothing is forked for a moment.
_MOST: Final = 3


class Strays:
    """``serving`` returns the guest that serves, or is about to, and its zygote.

    Where cells may start ``processes``, those are not to be taken for strays.
    """

    def __init__(
        self,
        reactor: Reactor,
        copies: Ring,
        serving: Callable[[], tuple[Guest | None, Forker | None]],
        *,
        processes: bool,
    ) -> None:
        self._reactor, self._copies, self._serving = reactor, copies, serving
        self._processes = processes
        #: They are about to be looked for.
        self._due = False
        #: Copies that did not stand, whose forks may have been taken by something that lives.
        self._owed = 0

    def hold_to(self, *, processes: bool) -> None:
        """Take what cells start for strays from now on, or leave it alone."""
        self._processes = processes

    def end_soon(self) -> None:
        """Have them ended before long: the fork that was due made the copy that stands."""
        if not self._due:
            self._due = True
            self._reactor.call_later(_AFTERWARDS, self._end_now)

    def _end_now(self) -> None:
        self._due = False
        self._end_when_still()

    def end_twice(self) -> None:
        """Have them ended now and before long: a fork was due that may yet be taken."""
        self._owed += 1
        self._end_when_still()
        self._reactor.call_later(_AFTERWARDS, self._end_when_still)

    def few(self) -> bool:
        """Say whether another fork may be due: not before what took those before it is ended.

        While something always is being forked it can't be: there would be more and more of it.
        """
        if self._owed >= _MOST and not self._processes:
            self._end_when_still()
        return self._owed < _MOST or self._processes

    def _end_when_still(self) -> None:
        """Have them ended when nothing is being forked."""
        if not self._processes and all(copy.settled for copy in self._copies):
            self.end()

    def end(self) -> None:
        """Have the zygote end whatever is neither the guest nor a copy that stands.

        A guest that is about to serve and has not told its pid yet is claimed for when it does.
        """
        guest, zygote = self._serving()
        if guest is None or zygote is None or guest.pid is None:
            return
        pids = [guest.pid, *(one.guest.pid for one in self._copies.all())]
        known = tuple(pid for pid in pids if pid is not None)
        zygote.members(guest.lineage.number, guest.lineage.session, known)
        self._owed = 0


# How many of the copies that stand are kept, and that they do nothing meanwhile.

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


# When a snapshot is taken: at once, or in idle time if that loses nothing.

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
