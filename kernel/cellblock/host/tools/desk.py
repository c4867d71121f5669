"""A session's tools: known before its first guest, called by its guests, ended with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError
from cellblock.host.tools.record import Made
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.errors import PolicyError
    from cellblock.host.keeper import Keeper
    from cellblock.host.reactor import Reactor
    from cellblock.host.request import Request
    from cellblock.host.tools import Tooling
    from cellblock.host.tools.broker import Broker
    from cellblock.host.tools.workshop import Workshop

#: Seconds between looks at whether a guest has read a request.
LOOK: Final = 0.002


class Desk:
    """What of tools concerns a session; where it has none, every call is a breach."""

    def __init__(
        self,
        reactor: Reactor,
        keeper: Keeper,
        request: Callable[[], Request | None],
        violation: Callable[[str], None],
    ) -> None:
        self._reactor, self._keeper = reactor, keeper
        self._request, self._violation = request, violation
        #: Answers behind a request that the guest has not read yet.
        self._later: list[messages.ToolResult] = []
        self._broker: Broker | None = None
        self._workshop: Workshop | None = None
        #: Which tools there are is not known yet: no guest is started before it is.
        self.awaited = False

    def set_up(self, tooling: Tooling, clock: Callable[[], float]) -> None:
        """Have tools."""
        from cellblock.host.tools.broker import Broker  # noqa: PLC0415 - most sessions have none
        from cellblock.host.tools.workshop import Workshop  # noqa: PLC0415 - as above

        self.awaited = True
        self._workshop = workshop = Workshop(self._reactor, tooling.settings)
        self._broker = Broker(
            self._reactor,
            workshop,
            tooling.limits,
            clock=clock,
            send=self._send,
            waiting=self._waiting,
            observe=tooling.observe,
        )

    def hold_to(self, tooling: Tooling | None, names: Collection[str]) -> None:
        """Have these limits, and of the tools that there are only those with these names."""
        if self._broker is None or self._workshop is None:
            return
        self._broker.keep(names)
        if tooling is not None:  # else there are none left
            self._workshop.hold_to(tooling.settings)
            self._broker.hold_to(tooling.limits)

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are, and tell one of the two, later."""

        def known(tools: tuple[messages.Tool, ...]) -> None:
            self.awaited = False
            if self._broker is not None:
                self._broker.offer(tools)
            self._keeper.equip(tools)
            on_tools(tools)

        if self._workshop is not None:
            self._workshop.open(known, on_failed)

    def _send(self, message: messages.ToolResult) -> None:
        """Answer, but nothing that would hide whether a request was read before it began."""
        if self._later or not self._read():
            if not self._later:
                self._reactor.call_later(LOOK, self._send_later)
            self._later.append(message)
            return
        guest = self._keeper.guest
        if guest is not None and not guest.closed:
            try:
                guest.send(message)
            except CellblockError as exc:
                self._violation(str(exc))

    def _read(self) -> bool:
        """Say whether the request under way, if there is one, has been read."""
        request, guest = self._request(), self._keeper.guest
        if request is None or request.began or request.taken or guest is None:
            return True
        request.taken = guest.unread() == 0
        return request.taken

    def _send_later(self) -> None:
        if self._later and not self._read():
            self._reactor.call_later(LOOK, self._send_later)
            return
        due, self._later = self._later, []
        for message in due:
            self._send(message)

    def _waiting(self) -> int:
        guest = self._keeper.guest
        return 0 if guest is None else guest.backlog

    def begin(self) -> None:
        """Begin the account of a request."""
        if self._broker is not None:
            self._broker.begin()

    def end(self) -> Made:
        """Return the account."""
        return Made() if self._broker is None else self._broker.end()

    def heard(
        self, message: messages.ToolCall | messages.ToolWithdrawn, request: Request | None
    ) -> None:
        """Act on what a guest says of a call, while ``request`` is under way."""
        query = messages.Complete | messages.Inspect
        if self._broker is None:
            self._violation("a call of what is no tool")
        elif isinstance(message, messages.ToolWithdrawn):
            self._broker.withdraw(message)
        else:
            if request is not None:
                request.called = True
            querying = request is not None and isinstance(request.message, query)
            if breach := self._broker.call(message, querying=querying):
                self._violation(breach)

    def drop(self) -> None:
        """Stop what a guest had called that is no more."""
        self._later.clear()
        if self._broker is not None:
            self._broker.drop()

    def close(self) -> None:
        """End the worker."""
        if self._workshop is not None:
            self._workshop.close()
