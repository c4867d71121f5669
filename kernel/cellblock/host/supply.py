"""Where a keeper's next guest comes from: the zygote, what that was told, how often none came."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.host import ends
from cellblock.host.guest_process import Guest
from cellblock.host.zygotes import Own
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor
    from cellblock.host.snapshots import Snapshots
    from cellblock.host.terms import Terms
    from cellblock.host.zygotes import Forker, Zygotes

#: Guests in a row that may fail to start before the keeper gives up.
MAX_FAILED_STARTS: Final = 3
#: Characters kept of what a guest writes before it is ready, and told of why none can be had.
LAST_WORDS: Final = 2_000


class Supply:
    """``heard`` gets what the zygote says besides, ``lost`` is called when it is gone.

    ``way`` returns the descriptor at which a guest asks for connections, if any. Raises OSError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it takes, and whom it tells
        self,
        reactor: Reactor,
        prepare: messages.Prepare,
        zygotes: Zygotes,
        heard: Callable[[messages.FromZygote], None],
        lost: Callable[[], None],
        way: Callable[[], list[int]],
    ) -> None:
        self._reactor, self._prepare, self._zygotes = reactor, prepare, zygotes
        self._heard, self._lost, self.way = heard, lost, way
        #: The zygote behind the guests, and what that was told.
        self.zygote: Forker | None = None
        self._told = prepare
        #: The guest that was asked for last, until it is no more; the session of the last one.
        self._due: Guest | None = None
        self._session = -1
        #: Guests in a row that did not come to serve, and what they wrote.
        self.failed = 0
        self._last_words = ""

    # --- the zygote ---------------------------------------------------------------------------

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Have guests know these tools and folders of packages; before the first is started."""
        self._prepare = msgspec.structs.replace(self._prepare, tools=tools, paths=paths)

    def hold_to(self, terms: Terms) -> None:
        """Have guests under these terms from now on."""
        own = self._prepare
        tools = tuple(tool for tool in own.tools if tool.name not in terms.tools_gone)
        self._prepare = msgspec.structs.replace(terms.prepare, tools=tools, paths=own.paths)
        if self._prepare != own:
            self._zygotes = Own(self._reactor, terms.zygote)

    @property
    def outdated(self) -> bool:
        """Whether guests of the zygote that there is would have more than they may."""
        return self.zygote is not None and self._told != self._prepare

    def leave(self, snapshots: Snapshots) -> None:
        """Have the zygote go, with all it started."""
        zygote = self.part()
        snapshots.end()
        if zygote is not None and not zygote.quit():
            ends.empty(self._session)

    def part(self) -> Forker | None:
        """Give the zygote away: the next guest comes from another."""
        zygote, self.zygote = self.zygote, None
        return zygote

    def serves(self, guest: Guest | None) -> None:
        """Take note that a snapshot is to serve, whose end is to be told."""
        if guest is not None and self.zygote is not None:
            self.zygote.serves(guest)

    # --- guests -------------------------------------------------------------------------------

    def guest(
        self,
        on_message: Callable[[messages.FromGuest], None],
        on_text: Callable[[messages.StreamName, str], None],
        on_lost: Callable[[str], None],
    ) -> Guest:
        """Return the host's end of a guest to come. Raises OSError."""
        if self.zygote is None:
            self._told = self._prepare
            self.zygote = self._zygotes.one(self._prepare, self._hear, self._lost)
        way = self.way()
        try:
            guest = Guest(self._reactor, on_message, on_text, on_lost)
        except OSError:
            for fd in way:
                os.close(fd)
            raise
        guest.theirs += way
        return guest

    def fork(self, guest: Guest) -> None:
        """Have a guest forked."""
        self._due = guest
        if self.zygote is not None:
            self.zygote.fork(guest)

    def _hear(self, message: messages.FromZygote, pidfd: int | None) -> None:
        """Learn which process a guest is; pass on whatever else the zygote says."""
        guest = self._due
        if not isinstance(message, messages.Forked):
            self._heard(message)
        elif guest is not None and guest.number == message.id:
            guest.pid, guest.pidfd, guest.lineage.session = message.pid, pidfd, message.pid
            self._session = message.pid
        else:
            ends.kill(message.pid, pidfd)  # it was replaced before its pid was known

    def missing(self, report: messages.LockReport) -> str:
        """Return which locks a guest lacks that it has to have, or nothing."""
        missing = [lock for lock in self._prepare.plan.required if lock not in report.achieved]
        return f"these locks were not applied: {', '.join(missing)}" if missing else ""

    # --- none ---------------------------------------------------------------------------------

    def overheard(self, text: str) -> None:
        """Take what a guest writes before it is ready: its last words, it may be."""
        self._last_words = (self._last_words + text)[-LAST_WORDS:]

    def came(self, *, well: bool) -> None:
        """Take note of a guest that is no more, or could not be started; ``well`` if it served."""
        self._due = None
        self.failed = 0 if well else self.failed + 1

    @property
    def dry(self) -> bool:
        """Whether so many failed that no more are started."""
        return self.failed >= MAX_FAILED_STARTS

    def said(self, detail: str) -> str:
        """Return why no guest is to be had: ``detail``, or what the last ones wrote."""
        said = self._last_words.strip() or detail
        return f"the guest ended {MAX_FAILED_STARTS} times while starting: {said}"
