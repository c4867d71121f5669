"""Asking a guest, or a copy of it, to fork: the host's end of what is to stand then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import CellblockError
from cellblock.host.copies import Copy
from cellblock.host.guest_process import Guest
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.budget import Budget
    from cellblock.host.reactor import Reactor
    from cellblock.host.room import Reading
    from cellblock.host.zygotes import Forker

#: Seconds that a copy may take to stand before the guest's next cell goes on without it.
PATIENCE: Final = 5.0


class Forks:
    """Copies to come, by number.

    ``heard`` gets each with what it says, ``lost`` one that ended, ``late`` one that does not stand
    in time, or could not be asked for.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - whom it tells of copies
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
