"""The clock's limits on a request: silence, timeout, how long an interrupt may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from cellblock.host.session.types import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.session.types import Why


#: Seconds that an interrupted cell has to end before it is killed for the limit it is over.
GRACE: float = 2.0
#: Seconds without a sign of life after which a request that was read counts as stolen.
SILENCE: Final = 4.0
#: Seconds that an idle guest takes to take a request up.
TAKE_UP: Final = 0.05
#: Seconds that an interrupted request has that was never taken up, or can't be interrupted.
DEAF_GRACE: Final = 3.0
#: Seconds that completion and inspection may take.
QUERY_TIMEOUT: Final = 10.0


class TimedRequest(Protocol):
    """A request with deadlines."""

    #: The subshell that it is for; 0 is the main shell.
    subshell: int
    #: Its own timeout, where it has one.
    seconds: float | None
    #: The guest says that it has read it and is busy with something else.
    acknowledged: bool
    #: It was interrupted before it began, and the guest was interrupted to make way for it.
    made_way: bool
    #: The limit that it was interrupted for.
    over: Why | None

    @property
    def began(self) -> bool:
        """Whether the guest has taken it up."""

    @property
    def runs_code(self) -> bool:
        """Whether it runs a cell's code: a query does not."""

    def stopped(self, why: Why) -> Stopped:
        """Return how it ended that is over a limit."""


class TimedGuests(Protocol):
    """Has the guest that is interrupted, and replaces it."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""

    def interrupt(self) -> None:
        """Interrupt the guest."""

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; another takes over."""


R = TypeVar("R", bound=TimedRequest)


class Deadlines(Generic[R]):
    """Interrupts and kills by the clock: silence, the timeout, how long an interrupt may take.

    A cell's timeout is one deadline, which stands still while the user is asked. ``stop_holding``
    has the guest heard though front ends are behind; ``abandon`` gets a query that takes too long.
    What runs in a subshell can't be interrupted: without ``interrupts`` it is killed at once.
    """

    def __init__(
        self,
        reactor: Reactor,
        clock: Callable[[], float],
        supervisor: TimedGuests,
        stop_holding: Callable[[], None],
        abandon: Callable[[R], None],
        *,
        interrupts: bool = True,
    ) -> None:
        self._reactor, self._clock, self._supervisor = reactor, clock, supervisor
        self._stop_holding, self._abandon = stop_holding, abandon
        self._interrupts = interrupts
        #: Seconds that a cell may run; None is no limit.
        self.timeout: float | None = None
        self._timers: list[Timer] = []
        #: Seconds left of the timeout, when they were last counted, and the timer while they run.
        self._left, self._counted = 0.0, 0.0
        self._limit: Timer | None = None

    def sent(self, request: R) -> None:
        """Begin: a request goes to a guest, which may be its second."""
        self.stop()
        request.made_way = False  # an interrupt before this was not for the guest that gets it
        if request.runs_code:
            self._later(SILENCE, lambda: self._check_silence(request))
            self._left = self._seconds(request) or 0.0
            self.resume(request)
        else:
            seconds = QUERY_TIMEOUT if request.seconds is None else request.seconds
            self._later(seconds, lambda: self._abandon(request))

    def pause(self) -> None:
        """Stop counting: a user was asked, whose time is not the cell's."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            self._left = max(0.0, self._left - (self._clock() - self._counted))

    def resume(self, request: R) -> None:
        """Go on counting: there is an answer, or none is waited for any more."""
        if self._seconds(request) is not None and self._limit is None:
            self._counted = self._clock()
            due = self._reactor.call_later(self._left, lambda: self.over(request, "timeout"))
            self._limit = due

    def interrupted(self, request: R) -> None:
        """Interrupt for the user, and give the request some time; a question of its is withdrawn.

        One that has not begun is interrupted when it does. Before that, only a task that keeps the
        guest from it is; should that come so late that it hits the cell, the guest says so.
        """
        self._later(DEAF_GRACE, lambda: self._give_up_deaf(request))
        if request.runs_code:
            self.resume(request)
        if request.began:
            self._supervisor.interrupt()
        else:
            self._later(TAKE_UP, lambda: self._make_way(request))

    def _make_way(self, request: R) -> None:
        if not request.began:
            request.made_way = True
            self._supervisor.interrupt()

    def over(self, request: R, why: Why) -> None:
        """Interrupt what is over a limit; kill it if it does not give way."""
        if not self._interrupts:
            self._supervisor.replace(replace(request.stopped(why), of=request.subshell))
        elif request.over is None:
            request.over = why
            self._stop_holding()
            self._supervisor.interrupt()
            self._later(GRACE, lambda: self._supervisor.replace(request.stopped(why)))

    def stop(self) -> None:
        """Watch nothing: the request has ended, or its guest has."""
        for timer in (*self._timers, *filter(None, [self._limit])):
            timer.cancel()
        self._timers.clear()
        self._limit = None

    def _seconds(self, request: R) -> float | None:
        return self.timeout if request.seconds is None else request.seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._reactor.call_later(seconds, action))

    def _check_silence(self, request: R) -> None:
        """Tell a guest that never got its request from one that is merely slow to take it up."""
        guest = self._supervisor.guest
        if request.began or guest is None:
            return
        if guest.held or guest.unread() or request.acknowledged:
            # Nobody listens to it, or a task or a thread keeps its main thread. The user can
            # interrupt.
            self._later(SILENCE, lambda: self._check_silence(request))
        else:
            self._supervisor.replace(Stopped("silent", "a request vanished on its way"))

    def _give_up_deaf(self, request: R) -> None:
        guest = self._supervisor.guest
        if not request.began or (guest is not None and guest.ignores_interrupts()):
            self._supervisor.replace(Stopped("silent", "it did not react to an interrupt"))
