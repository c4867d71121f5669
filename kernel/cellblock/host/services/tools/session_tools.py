"""A session's end of tools: known before its first guest starts, called by its guests.

Passes the guest's calls to the ``Broker``, and answers to the guest. The broker and all that it
imports are loaded when a session has tools, or a guest calls one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError, PolicyError
from cellblock.host.services.tools.calls import CellCalls
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.host.guests.supervisor import Supervisor
    from cellblock.host.services.tools.broker import Broker
    from cellblock.host.services.tools.calls import Tooling
    from cellblock.host.session.requests import InFlight
    from cellblock.host.session.types import Reactor

#: Seconds between looks at whether a guest has read a request.
POLL_SECONDS: Final = 0.002
#: Progress lines that are kept while no cell runs to show them.
MAX_LINES: Final = 20


class SessionTools:
    """A session's tools, as the session sees them.

    ``violation`` gets what no honest guest does, such as a call of an unknown tool. ``show`` gets
    lines about the progress of calls, for the cell that waits; ``is_read`` returns whether the
    guest has read the requests that it was sent.
    """

    def __init__(
        self,
        reactor: Reactor,
        supervisor: Supervisor,
        request: Callable[[], InFlight | None],
        violation: Callable[[str], None],
        show: Callable[[messages.Stream], None],
        *,
        is_read: Callable[[], bool],
    ) -> None:
        self._reactor, self._supervisor = reactor, supervisor
        self._request, self._violation, self._show = request, violation, show
        self._is_read = is_read
        #: Answers that wait until the guest has read the request before them.
        self._unsent: list[messages.ToolResult | messages.ToolPiece] = []
        #: Progress lines that no cell was there to show.
        self._lines: list[str] = []
        self._tooling: Tooling | None = None
        self._clock: Callable[[], float] | None = None
        self._broker: Broker | None = None

    # --- set-up -------------------------------------------------------------------------------

    def set_up(self, tooling: Tooling, clock: Callable[[], float]) -> None:
        """Have these tools."""
        self._tooling, self._clock = tooling, clock
        policy = tooling.policy
        if policy.tools or tooling.functions or tooling.operations or policy.llm.granted:
            self._started()

    def _started(self) -> Broker | None:
        """Return the broker, made at its first use; None if the session was not set up."""
        if self._broker is None and self._tooling is not None and self._clock is not None:
            from cellblock.host.services.tools import broker  # noqa: PLC0415 - most sessions call nothing

            self._broker = broker.Broker(
                self._reactor,
                broker.Providers(self._reactor, self._tooling),
                self._tooling,
                clock=self._clock,
                send=self._send,
                backlog=self._backlog,
                tell=self._tell,
            )
        return self._broker

    @property
    def awaited(self) -> bool:
        """Whether no guest may start yet, because it is not known which tools there are."""
        return self._broker is not None and self._broker.providers.awaited

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that installed packages are imported from."""
        return () if self._broker is None else self._broker.providers.paths

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are, install packages, and call one of the two."""
        if self._tooling is None:
            return
        if self._broker is None:
            on_tools(())
            return
        providers = self._broker.providers

        def ready() -> None:
            if providers.tools or providers.paths:
                self._supervisor.equip(providers.tools, providers.paths)
            on_tools(providers.tools)

        providers.open(ready, on_failed, self._tell)

    def narrow_to(self, tooling: Tooling | None, gone: Collection[str]) -> None:
        """Apply a narrower policy; ``gone`` are the tools that it takes away."""
        if tooling is None or self._tooling is None:
            return
        self._tooling = tooling
        if self._broker is not None:
            self._broker.narrow_to(tooling, gone)

    # --- while cells run ----------------------------------------------------------------------

    def begin(self, subshell: int, number: int) -> None:
        """Begin a request of a shell, by its number in the audit log: its calls count from here."""
        if self._broker is not None:
            self._broker.begin(subshell, number)

    def end(self, subshell: int) -> CellCalls:
        """Return the calls that the request made."""
        return CellCalls() if self._broker is None else self._broker.end(subshell)

    def call(self, message: messages.ToolCall, request: InFlight | None) -> None:
        """Handle a call that a guest makes, while ``request`` is under way."""
        broker = self._broker or self._started()
        if broker is None:
            self._violation("a call of what is no tool")
            return
        querying, subshell = False, 0
        if request is not None:
            request.called, subshell = True, request.subshell
            querying = isinstance(request.message, messages.Complete | messages.Inspect)
        if breach := broker.call(message, subshell, querying=querying):
            self._violation(breach)

    def withdraw(self, message: messages.ToolWithdrawn) -> None:
        """Stop a call that a guest gave up."""
        if self._broker is None:
            self._violation("a call of what is no tool")
        else:
            self._broker.withdraw(message)

    def drop(self) -> None:
        """Stop all calls of a guest that has ended."""
        self._unsent.clear()
        if self._broker is not None:
            self._broker.drop()

    def close(self) -> None:
        """End all that runs calls."""
        if self._broker is not None:
            self._broker.close()
            self._broker.providers.close()

    # --- progress lines -----------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        """Show a line in the cell that runs; keep it for the next one if none does."""
        self._lines = [*self._lines[1 - MAX_LINES :], text]
        self.catch_up()

    def catch_up(self) -> None:
        """Show the lines that were kept, if a cell runs now."""
        request = self._request()
        if self._lines and request is not None and isinstance(request.message, messages.Execute):
            lines, self._lines = self._lines, []
            text = "".join(f"{line}\n" for line in lines)
            self._show(messages.Stream(name="stderr", text=text))

    # --- answers to the guest -----------------------------------------------------------------

    def _send(self, message: messages.ToolResult | messages.ToolPiece) -> None:
        """Send an answer once the request before it is read."""
        if self._unsent or not self._is_read():
            if not self._unsent:
                self._reactor.call_later(POLL_SECONDS, self._send_unsent)
            self._unsent.append(message)
            return
        guest = self._supervisor.guest
        if guest is not None and not guest.closed:
            try:
                guest.send(message)
            except CellblockError as exc:
                self._violation(str(exc))

    def _send_unsent(self) -> None:
        if self._unsent and not self._is_read():
            self._reactor.call_later(POLL_SECONDS, self._send_unsent)
            return
        due, self._unsent = self._unsent, []
        for message in due:
            self._send(message)

    def _backlog(self) -> int:
        guest = self._supervisor.guest
        return 0 if guest is None else guest.backlog
