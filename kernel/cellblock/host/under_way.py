"""The one request under way: sent to the guest that there is, watched, and ended."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from cellblock.errors import CellblockError, FrameTooLargeError
from cellblock.host.deadlines import Deadlines
from cellblock.host.monitor import Monitor
from cellblock.host.outcome import Refused, Stopped
from cellblock.host.request import Request
from cellblock.host.terms import Claim
from cellblock.host.tools.record import Made
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guest_process import Guest
    from cellblock.host.keeper import Keeper
    from cellblock.host.monitor import Bounds, Excess
    from cellblock.host.outcome import Front
    from cellblock.host.reactor import Reactor
    from cellblock.host.relay.link import Link
    from cellblock.host.terms import Terms
    from cellblock.host.tools.desk import Desk
    from cellblock.host.usage import Usage


class UnderWay:
    """At most one ``request``; ``violation`` ends a guest that can't be spoken to."""

    def __init__(  # noqa: PLR0913, PLR0917 - whom a request concerns
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        keeper: Keeper,
        front: Front,
        desk: Desk,
        link: Link,
        violation: Callable[[str], None],
        *,
        timeout: float | None,
        bounds: Bounds,
    ) -> None:
        self._clock, self._keeper, self._desk, self._link = clock, keeper, desk, link
        self._violation = violation
        self.request: Request | None = None
        self.deadlines = Deadlines(reactor, clock, keeper, front, timeout, self._abandon)
        self.monitor = Monitor(reactor, bounds, clock, self.on_excess, copies=keeper.snapshots.look)
        #: What the last one took, and calls of tools that it made.
        self.usage: Usage | None = None
        self.made = Made()
        self._last_id = 0
        #: Queries that were answered with nothing, whose answers are yet to come.
        self._abandoned: set[int] = set()
        #: Why no guest is to be had any more.
        self._failure: str | None = None

    def next_id(self) -> int:
        """Return a number for a request."""
        self._last_id += 1
        return self._last_id

    def ready(self) -> None:
        """Have a guest ready, once it can be told which tools there are."""
        if not self._desk.awaited:
            self._keeper.ensure()

    def submit(
        self, message: Any, done: Callable[[Any], None], seconds: float | None = None
    ) -> None:
        """Have a guest take a message up; ``done`` gets its reply, or what it came to instead."""
        if self.request is not None:
            raise RuntimeError("one request at a time")
        self.ready()
        self.request = request = Request(message, done, seconds)
        if self._failure is not None:
            self.finish(request, self._failure)
        else:
            self._send(request)

    def take_up(self, request: Request, guest: Guest) -> None:
        """Have a request be under way that a guest is not told of."""
        self.request = request
        request.began, request.began_at = True, self._clock()
        self.monitor.begin(guest.pid)

    def send_what_waits(self) -> None:
        """Send the request to a guest that has come to serve."""
        if self.request is not None:
            self._send(self.request)

    def _send(self, request: Request) -> None:
        guest = self._keeper.guest
        self._desk.catch_up()
        if guest is None or guest.closed:
            return  # whoever comes next gets it
        guest.attend(asked=True)
        if isinstance(request.message, Claim):
            request.message.serve(request, guest)
            return
        self.deadlines.sent(request)
        request.taken = request.heard = False
        self._desk.begin()
        self.monitor.begin(guest.pid)
        try:
            guest.send(request.message)
        except FrameTooLargeError as exc:
            self.finish(request, f"it is too large to be sent: {exc}")
        except CellblockError as exc:
            self._violation(str(exc))
        except Exception as exc:  # noqa: BLE001 - too deep a comm message, say
            self.finish(request, f"it can't be sent: {type(exc).__name__}")

    # --- while it is --------------------------------------------------------------------------

    def hold_to(self, terms: Terms) -> None:
        """Hold requests to these limits, from the next one on."""
        self.deadlines.hold_to(terms.timeout)
        self.monitor.hold_to(terms.bounds)

    def on_excess(self, why: Excess, urgent: bool) -> None:
        """Act on what the monitor found; queries have a time of their own."""
        request = self.request
        if urgent:
            self._keeper.replace(Stopped(why))
        elif request is None or request.ended:
            return  # what is waited for is a snapshot
        elif isinstance(request.message, messages.Execute | messages.CommIn):
            self.deadlines.over(request, why)

    def _abandon(self, request: Request) -> None:
        """Answer a query with nothing. The guest keeps its state; its answer will be late."""
        self._keeper.interrupt()
        self._abandoned.add(request.message.id)
        self.finish(request, None)

    def is_late(self, number: int) -> bool:
        """Say whether a reply is to a query that nobody waits for any more; it comes once."""
        late = number in self._abandoned
        self._abandoned.discard(number)
        return late

    # --- its end ------------------------------------------------------------------------------

    def finish(self, request: Request, reply: Any) -> None:
        """End a request with a reply."""
        self.deadlines.stop()
        self.request = None
        ran = isinstance(reply, messages.Done | Refused)
        self.usage = self.monitor.end(reply.read_bytes if ran else 0)
        self.made = self._desk.end()
        if self._keeper.guest is not None:
            self._keeper.guest.attend(asked=False)
        request.done(reply)
        self._link.account()

    def answer(self, request: Request, reply: Any) -> None:
        """End a request with what its guest says, who is to answer for it."""
        try:
            self.finish(request, reply)
        except Exception as exc:  # noqa: BLE001 - a reply that can't be shown ends its guest
            traceback.print_exc()
            self.request, request.began = request, True
            self._violation(f"{type(exc).__name__} over a reply")

    def stop(self) -> Any:
        """Stop watching: the guest is no more. Return the message that it had taken up, or None."""
        self._abandoned.clear()
        self.monitor.lost()
        self._desk.drop()
        if self.request is None:
            return None
        self.deadlines.stop()
        return self.request.message if self.request.began else None

    def fail(self, detail: str) -> None:
        """End the request, and all that come, with the reason why no guest runs."""
        self._failure = detail
        if self.request is not None:
            self.finish(self.request, detail)
