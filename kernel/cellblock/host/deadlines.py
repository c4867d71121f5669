"""The time of the request under way: silence, its limit, and how long it may take to give way.

A cell's limit is one deadline, which is put off by the time that a user takes over questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.outcome import Stopped
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.keeper import Keeper
    from cellblock.host.outcome import Front, Why
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.request import Request

#: Seconds that an interrupted cell has to end before it is killed for the limit it is over.
GRACE: float = 2.0
#: Seconds without a sign of life after which a request that was read is taken for stolen.
SILENCE: Final = 4.0
#: Seconds that an idle guest takes to take a request up.
TAKE_UP: Final = 0.05
#: Seconds that an interrupted request has that was never taken up, or can't be interrupted.
DEAF_GRACE: Final = 3.0
#: Seconds that completion and inspection may take.
QUERY_TIMEOUT: Final = 10.0


class Deadlines:
    """Interrupts and kills by the clock.

    ``timeout`` are seconds of a cell, or None; ``abandon`` is told of a query that takes too long.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - whom it acts on
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        keeper: Keeper,
        front: Front,
        timeout: float | None,
        abandon: Callable[[Request], None],
    ) -> None:
        self._reactor, self._clock, self._keeper, self._front = reactor, clock, keeper, front
        self._timeout, self._abandon = timeout, abandon
        self._timers: list[Timer] = []
        #: Seconds left of the limit, when they were last counted, and the timer while they run.
        self._left, self._counted = 0.0, 0.0
        self._limit: Timer | None = None

    def hold_to(self, timeout: float | None) -> None:
        """Have cells end after so many seconds, from the next one on."""
        self._timeout = timeout

    def sent(self, request: Request) -> None:
        """Begin: a request goes to the guest, which may be its second."""
        self.stop()
        request.nudged = False  # what was sent before this was not for whom gets it
        if isinstance(request.message, messages.Execute | messages.CommIn):
            self._later(SILENCE, lambda: self._check_silence(request))
            self._left = self._seconds(request) or 0.0
            self.resume(request)
        else:
            self._later(QUERY_TIMEOUT, lambda: self._abandon(request))

    def pause(self) -> None:
        """Stop counting: a user was asked, whose time is not the cell's."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            self._left = max(0.0, self._left - (self._clock() - self._counted))

    def resume(self, request: Request) -> None:
        """Go on counting: there is an answer, or none is waited for any more."""
        if self._seconds(request) is not None and self._limit is None:
            self._counted = self._clock()
            due = self._reactor.call_later(self._left, lambda: self.over(request, "timeout"))
            self._limit = due

    def interrupted(self, request: Request) -> None:
        """Interrupt for the user, and give the request some time; a question of its is withdrawn.

        One that is on its way is interrupted when it has begun. Before, only a task that keeps the
        guest from it is; should that come so late that it hits the cell, the guest says so.
        """
        self._later(DEAF_GRACE, lambda: self._give_up_deaf(request))
        if isinstance(request.message, messages.Execute | messages.CommIn):
            self.resume(request)
        if request.began:
            self._keeper.interrupt()
        else:
            self._later(TAKE_UP, lambda: None if request.began else self._nudge(request))

    def _nudge(self, request: Request) -> None:
        request.nudged = True
        self._keeper.interrupt()

    def over(self, request: Request, why: Why) -> None:
        """Interrupt what is over a limit; kill it if it does not give way."""
        if request.over is None:
            request.over = why
            self._front.hurry()
            self._keeper.interrupt()
            self._later(GRACE, lambda: self._keeper.replace(request.stopped(why)))

    def stop(self) -> None:
        """Watch nothing: the request has ended, or its guest has."""
        for timer in (*self._timers, *filter(None, [self._limit])):
            timer.cancel()
        self._timers.clear()
        self._limit = None

    def _seconds(self, request: Request) -> float | None:
        """Return the limit of a request: a policy's, or its own where that is less."""
        return self._timeout if request.seconds is None else request.seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._reactor.call_later(seconds, action))

    def _check_silence(self, request: Request) -> None:
        """Tell a guest that never got its request from one that is merely slow to take it up."""
        guest = self._keeper.guest
        if request.began or guest is None:
            return
        if guest.held or guest.unread() or request.heard:
            # Nobody listens to it, or its main thread is elsewhere: a task or a thread keeps it.
            # The user can interrupt.
            self._later(SILENCE, lambda: self._check_silence(request))
        else:
            self._keeper.replace(Stopped("silent", "a request vanished on its way"))

    def _give_up_deaf(self, request: Request) -> None:
        guest = self._keeper.guest
        if not request.began or (guest is not None and guest.deaf()):
            self._keeper.replace(Stopped("silent", "it did not react to an interrupt"))
