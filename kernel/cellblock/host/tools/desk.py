"""A session's tools: known before its first guest, called by its guests, ended with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError
from cellblock.host.tools.crew import Crew
from cellblock.host.tools.record import Made
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.errors import PolicyError
    from cellblock.host.guests.supervisor import Keeper
    from cellblock.host.session.requests import Request
    from cellblock.host.session.types import Reactor
    from cellblock.host.tools import Tooling
    from cellblock.host.tools.broker import Broker

#: Seconds between looks at whether a guest has read a request.
LOOK: Final = 0.002
#: Lines kept of how it gets on while nobody waits.
MOST_LINES: Final = 20


class Desk:
    """What of tools concerns a session; a call of what it has never heard of is a breach.

    ``show`` gets lines of how a call is getting on, for whoever waits.
    """

    def __init__(
        self,
        reactor: Reactor,
        keeper: Keeper,
        request: Callable[[], Request | None],
        violation: Callable[[str], None],
        show: Callable[[messages.Stream], None],
    ) -> None:
        self._reactor, self._keeper = reactor, keeper
        self._request, self._violation, self._show = request, violation, show
        #: Answers behind a request that the guest has not read yet.
        self._later: list[messages.ToolResult | messages.ToolPiece] = []
        #: Lines that nobody was there to be shown.
        self._lines: list[str] = []
        self._tooling: Tooling | None = None
        self._clock: Callable[[], float] | None = None
        self._broker: Broker | None = None
        #: Whoever runs tools.
        self._crew: Crew | None = None

    @property
    def awaited(self) -> bool:
        """Whether no guest is started yet: which tools there are is not known, say."""
        return self._crew is not None and self._crew.awaited

    @property
    def folders(self) -> tuple[str, ...]:
        """Where packages are imported from besides the interpreter's own."""
        return () if self._crew is None else self._crew.paths

    def set_up(self, tooling: Tooling, clock: Callable[[], float]) -> None:
        """Have tools; where there are none, what knows why is made for the first call."""
        self._tooling, self._clock = tooling, clock
        self._crew = Crew(self._reactor, tooling)

    def _made(self) -> Broker | None:
        """Return the broker, made now if it must be; None where a session was not set up."""
        tooling, clock, crew = self._tooling, self._clock, self._crew
        if self._broker is None and tooling and clock and crew:
            from cellblock.host.tools.broker import Broker  # noqa: PLC0415 - few sessions call

            self._broker = Broker(
                self._reactor,
                crew.provider(),
                tooling.limits,
                clock=clock,
                send=self._send,
                waiting=self._waiting,
                observe=tooling.observe,
                unlisted=tooling.unlisted,
                barred=tooling.barred,
                tell=self._tell,
                approval=tooling.approval,
                beyond=None if tooling.approval is None else crew.beyond,
            )
            self._broker.offer(crew.tools, crew.withheld())
        return self._broker

    def hold_to(self, tooling: Tooling | None, gone: Collection[str]) -> None:
        """Have these limits, and no more the tools that are ``gone``, by their names."""
        if tooling is None or self._crew is None:
            return
        self._tooling = tooling
        self._crew.hold_to(tooling, gone)
        if self._broker is not None:
            self._broker.drop_tools(gone)
            self._broker.hold_to(tooling.limits)

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are, install what is to be there, and tell one of the two."""
        crew = self._crew
        if crew is None:
            return

        def ready() -> None:
            if crew.tools:
                self._made()
            if crew.tools or crew.paths:
                self._keeper.supply.equip(crew.tools, crew.paths)
            on_tools(crew.tools)

        crew.open(ready, on_failed, self._tell)

    def _tell(self, text: str) -> None:
        """Show a line to whoever waits; to the next one, where nobody does."""
        self._lines = [*self._lines[1 - MOST_LINES :], text]
        self.catch_up()

    def catch_up(self) -> None:
        """Show what nobody was there to be shown, where a cell is by now."""
        request = self._request()
        if self._lines and request is not None and isinstance(request.message, messages.Execute):
            lines, self._lines = self._lines, []
            text = "".join(f"{line}\n" for line in lines)
            self._show(messages.Stream(name="stderr", text=text))

    def _send(self, message: messages.ToolResult | messages.ToolPiece) -> None:
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
        called = isinstance(message, messages.ToolCall)
        broker = self._broker or (self._made() if called else None)
        if broker is None:
            self._violation("a call of what is no tool")
        elif isinstance(message, messages.ToolWithdrawn):
            broker.withdraw(message)
        else:
            if request is not None:
                request.called = True
            querying = request is not None and isinstance(request.message, query)
            if breach := broker.call(message, querying=querying):
                self._violation(breach)

    def drop(self) -> None:
        """Stop what a guest had called that is no more."""
        self._later.clear()
        if self._broker is not None:
            self._broker.drop()

    def close(self) -> None:
        """End whoever runs tools."""
        if self._broker is not None:
            self._broker.close()
        if self._crew is not None:
            self._crew.close()
