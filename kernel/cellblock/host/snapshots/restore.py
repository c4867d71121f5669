"""Having a snapshot take over from a guest that was lost, or the one before it if that fails."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.errors import CellblockError, GuestError
from cellblock.host.session.types import Restored, Stopped
from cellblock.host.snapshots.copies import is_visible
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.supervisor import Supply
    from cellblock.host.session.types import Reactor, Stopped, Timer
    from cellblock.host.snapshots.copies import Copy, Ran
    from cellblock.host.snapshots.forking import Pace
    from cellblock.host.snapshots.store import Snapshots
    from cellblock.wire.messages import Confined, Plan


class Owner(Protocol):
    """Whom a guest is restored for."""

    def on_trying(self, guest: Guest | None) -> None:
        """Take note which copy is to serve; None when that failed."""

    def on_restored(self, restoring: Restoring, guest: Guest) -> None:
        """Begin again: the guest has taken over, and caught up."""

    def on_gone(self, stopped: Stopped) -> None:
        """Take note that there was no copy that could take over."""

    def on_text(self, kind: messages.StreamName, text: str) -> None:
        """Take text that was written below Python."""


class Restorer:
    """One restoration at a time."""

    def __init__(
        self, reactor: Reactor, snapshots: Snapshots, supply: Supply, owner: Owner
    ) -> None:
        self._reactor, self._snapshots = reactor, snapshots
        self._supply, self._owner = supply, owner
        #: What is under way, and the copy that is tried.
        self._restoring: Restoring | None = None
        self._copy: Copy | None = None
        #: How processes ended since a copy was told to take over, by pid.
        self._ended: dict[int, int] = {}

    @property
    def busy(self) -> bool:
        """Whether a restoration is under way."""
        return self._restoring is not None

    def restore(self, restoring: Restoring) -> None:
        """Have the newest copy take over."""
        copy = self._snapshots.pop()
        if copy is None:
            self._owner.on_gone(restoring.stopped)
        else:
            restoring.since(copy)
            self.promote(copy, restoring)

    def promote(self, copy: Copy, restoring: Restoring) -> None:
        """Have a copy take over; until it says that it did, nothing is sent to it."""
        guest = copy.guest
        self._restoring, self._copy = restoring, copy
        restoring.began(self._reactor, lambda: self._failed(restoring, copy))
        guest.on_message = lambda message: self._on_message(copy, message)
        guest.on_text = self._owner.on_text
        guest.on_lost = lambda reason: self._failed(restoring, copy, killed=not reason)
        self._ended.clear()
        self._owner.on_trying(guest)
        inputs = copy.unseen | dict(restoring.inputs())
        if copy.twin is not None:
            copy.twin.unseen = inputs
        told = messages.Resume(
            seed=os.urandom(32), inputs=sorted(inputs.items()), plan=restoring.plan
        )
        try:
            self._tell(guest, told)
        except CellblockError:
            self._failed(restoring, copy, killed=guest.closed)

    def confined(self) -> None:
        """Take note that the copy that is tried has its locks."""
        if self._restoring is not None:
            self._restoring.confined = True

    def reaped(self, pid: int, status: int) -> None:
        """Take note of how a process ended while a copy is tried."""
        self._ended[pid] = status

    def ended(self, guest: Guest) -> int | None:
        """Return how a guest ended that was tried, if it did before it was heard."""
        ended, self._ended = self._ended, {}
        return None if guest.pid is None else ended.get(guest.pid)

    def _tell(self, guest: Guest, resume: messages.Resume) -> None:
        """Have a copy go on, with a way to the relay of its own. Raises GuestError."""
        way = list[int]()
        with contextlib.suppress(OSError):  # it is told that there is none when it asks
            way = self._supply.way()
        try:
            if not (way and guest.send_with(resume, way)):
                guest.send(resume)
        finally:
            for fd in way:
                os.close(fd)

    def fail(self) -> None:
        """Give up the copy that is tried."""
        if self._restoring is not None and self._copy is not None:
            self._failed(self._restoring, self._copy)

    def _failed(self, restoring: Restoring, copy: Copy, *, killed: bool = False) -> None:
        """Have another copy take over: its twin, where this one was ended, or the one before it."""
        if self._restoring is not restoring or self._copy is not copy:
            return
        self._restoring = self._copy = None
        self._ended.clear()
        self._owner.on_trying(None)
        restoring.unwatch()
        copy.guest.close()
        if not killed:
            self._snapshots.give_up(copy)
        self.restore(restoring)

    def _on_message(self, copy: Copy, message: messages.FromGuest) -> None:
        """Hear a guest that is restored: that it stands, that it took over, that it caught up."""
        restoring, guest = self._restoring, copy.guest
        if restoring is None or copy is not self._copy or self._snapshots.parted(copy, message):
            return
        if not restoring.confined and self._supply.zygote is not None:
            self._supply.zygote.read_rest()  # it says so before the copy can
        try:
            serves = restoring.heard(message, guest)
            if isinstance(message, messages.Resumed):
                self._snapshots.clear_up()
            if serves:
                self._restored(restoring, copy)
            else:
                self._catch_up(restoring, copy, message)
        except CellblockError:
            self._failed(restoring, copy)

    def _catch_up(self, restoring: Restoring, copy: Copy, message: messages.FromGuest) -> None:
        zygote = self._supply.zygote
        if isinstance(message, messages.Resumed) and zygote is not None:
            # Before the first of what is run again, or %undo could not go there.
            self._snapshots.take_of_restored(copy, zygote)
        if isinstance(message, messages.Resumed | messages.Done):
            restoring.go_on(copy.guest)

    def _restored(self, restoring: Restoring, copy: Copy) -> None:
        self._restoring = self._copy = None
        if copy.waiting is not None:
            copy.waiting()  # it has what waited to be safe; what comes next is not sent yet
        for ran in restoring.again:
            # An older copy lacks it, should this guest end at once.
            self._snapshots.ran_again(ran)
        restoring.unwatch()
        self._owner.on_restored(restoring, copy.guest)


# One restoration: from a guest's end until a snapshot of it serves in its place.

#: Seconds that the first copy has to take over, and to catch up; after each one that does not, the
#: next has half as many, since whoever waits has waited for those before.
PATIENCE: Final = 4.0
#: Copies that may end without that before it counts as the same: their state may be what ends them.
_MOST_KILLED: Final = 8
#: Ends that a cell brings about which pretends to have ended: it would do so again.
_ITS_OWN_DOING: Final = frozenset({"violation", "silent", "breach"})
#: Seconds after which a snapshot of what ended stands, or something keeps it from standing.
_LATELY: Final = 1.0
#: Ends that say the same of it when they come before the next request was taken up.
_NOT_TAKEN_UP: Final = frozenset({"timeout", "interrupt"})


class Restoring:
    """What was lost, what takes over, and what has to be done again.

    ``running`` is the request that was under way. A request that had ended so lately that no
    snapshot holds what it did is run once more by whoever takes over, unheard: that is for a
    guest that ends in the millisecond between, and it was short (longer ones are not answered
    before their snapshot stands). So are those before it that come out the same.
    """

    def __init__(
        self,
        stopped: Stopped,
        running: Any,
        missed: Sequence[Ran] = (),
        undone: Sequence[Ran] = (),
        *,
        now: float,
        plan: Plan | None = None,
    ) -> None:
        #: The outcome as it is when nothing can be restored.
        self.stopped = stopped
        self._running, self._undone = running, undone
        self._now = now
        #: Locks that a copy has to have before it serves, and whether the zygote says that it has.
        self.plan, self.confined = plan, plan is None
        #: What ran after the copy was made, and what of that is to be run again, and was.
        self._missed = list(missed)
        self._due: list[Ran] = []
        self._again: list[Ran] = []
        self._resumed: messages.Resumed | None = None
        self._timer: Timer | None = None
        self._patience, self._tries = PATIENCE, 0

    def since(self, copy: Copy) -> None:
        """Take note of the copy that is tried, and of what ran after it."""
        missed = [*copy.after, *self._again, *self._missed]
        # What runs may have ended, but was not answered: it ends as stopped.
        self._missed = [ran for ran in missed if ran.message is not self._running]
        self._again, self._resumed = [], None

    @property
    def again(self) -> tuple[Ran, ...]:
        """What was run again."""
        return tuple(self._again)

    def began(self, reactor: Reactor, failed: Callable[[], None]) -> None:
        """Watch the time of the copy that is tried."""
        self.unwatch()
        self._tries += 1
        if self._tries > _MOST_KILLED:
            self._patience /= 2

        def late() -> None:
            self._patience /= 2
            failed()

        self._timer = reactor.call_later(self._patience, late)

    def unwatch(self) -> None:
        """Stop watching its time: it has failed, or serves."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def inputs(self) -> list[tuple[int, str]]:
        """Return the cells that the copy has not seen, for ``In``: what was undone is marked."""
        self._due = list(self._missed) if self._can_catch_up() else []
        found = dict[int, str]()
        for ran in self._undone:
            found[ran.message.execution_count] = f"# undone\n{ran.message.raw}"
        for ran in self._missed:
            if ran.visible and ran not in self._due:
                found[ran.message.execution_count] = ran.message.raw
        if is_visible(self._running):
            found[self._running.execution_count] = self._running.raw
        return sorted(found.items())

    def _can_catch_up(self) -> bool:
        """Say whether what is missing may be run again: what comes out the same, or was short.

        What was short had just ended, or a snapshot that stands twice would hold it: the newest
        has ended with its guest where there is more than one. After an attack they are suspects.
        """
        suspect = _ITS_OWN_DOING if self._running is not None else _ITS_OWN_DOING | _NOT_TAKEN_UP
        trusted = self.stopped.why not in suspect
        kept = [ran for ran in self._missed if not ran.exact]
        lately = all(ran.short and self._now - ran.ended < _LATELY for ran in kept)
        return not kept or (trusted and lately)

    def heard(self, message: messages.FromGuest, guest: Guest) -> bool:
        """Act on what the copy says; say whether it serves now. Raises GuestError."""
        match message:
            case messages.Standing() if guest.vouch():
                return False
            case messages.Resumed() if not self.confined:
                raise GuestError("it goes on without its locks")
            case messages.Resumed() if self._resumed is None and guest.pidfd is not None:
                self._resumed = message
                return not self._due
            case messages.Done(id=number) if self._due and number == self._due[0].message.id:
                self._again.append(self._due.pop(0))
                self._missed.pop(0)
                return not self._due
            case (
                messages.Breach()
                | messages.InputRequest()
                | messages.Standing()
                | messages.ToolCall()
            ):
                raise GuestError("it does not catch up")
            case _ if not self._due:
                raise GuestError("it speaks out of turn")
        return False

    def go_on(self, guest: Guest) -> None:
        """Have the next request that is missing run again. Raises GuestError."""
        if self._resumed is not None and self._due:
            guest.send(self._due[0].message)

    def outcome(self) -> Stopped:
        """Return the outcome, with what became of the state."""
        resumed = self._resumed or messages.Resumed()
        return replace(
            self.stopped,
            restored=Restored(
                threads=tuple(resumed.threads),
                tasks=resumed.tasks,
                files=resumed.files,
                connections=resumed.connections,
                again=_counts([ran for ran in self._again if not ran.exact]),
                missed=_counts(self._missed),
            ),
        )


def _counts(those: Sequence[Ran]) -> tuple[int, ...]:
    return tuple(ran.message.execution_count for ran in those if ran.visible)


# More locks for a guest that runs: a copy of it takes over with them, and nothing else is left.
#
# The zygote makes them ready, and says when they are on the copy (``guest.confine.landlock``); a
# copy that goes on without is ended like any other that lies. Until they are ready nothing has
# changed.

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


# What a snapshot that took over lacks, in words.


def lacking(restored: Restored) -> tuple[str, ...]:
    """Name what a snapshot that took over does not have."""
    from cellblock.host.output.gateway import clean_name  # noqa: PLC0415

    said = []
    if restored.threads:
        names = ", ".join(filter(None, map(clean_name, restored.threads)))
        said.append(f"{_count(len(restored.threads), 'running thread')} ({names})")
    if restored.tasks:
        said.append(_count(restored.tasks, "running task"))
    if restored.files:
        said.append(f"the contents of {_count(restored.files, 'open file')}")
    if restored.connections:
        said.append(_count(restored.connections, "network connection"))
    if restored.missed:
        said.append(f"what {_cells(restored.missed)} did: run them again")
    if restored.again:
        said.append(f"{_cells(restored.again)}, which had just ended and was run again")
    return tuple(said)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cells(counts: tuple[int, ...]) -> str:
    return ", ".join(f"[{count}]" for count in counts)
