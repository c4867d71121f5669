"""Ends what was forked besides a session's guest and its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guest_process import Guest
    from cellblock.host.reactor import Reactor
    from cellblock.host.ring import Ring
    from cellblock.host.zygotes import Forker

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
