"""Having a snapshot take over from a guest that was lost, or the one before it if that fails."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

from cellblock.errors import CellblockError
from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.host.copies import Copy
    from cellblock.host.guest_process import Guest
    from cellblock.host.outcome import Stopped
    from cellblock.host.reactor import Reactor
    from cellblock.host.restoring import Restoring
    from cellblock.host.snapshots import Snapshots
    from cellblock.host.supply import Supply


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
            self._supply.zygote.hear_out()  # it says so before the copy can
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
