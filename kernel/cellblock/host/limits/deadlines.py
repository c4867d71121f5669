"""The limits on a request that the clock sets: silence, the timeout, and time for an interrupt.

``host.session.requests`` has one ``Deadlines`` for the main shell's requests, and one for each
request of a subshell::

    sent ──▶ SILENCE without a sign of the guest ──▶ guest is replaced ("silent")
     │
     ├──▶ the timeout, or another limit (over) ──▶ interrupt ──▶ GRACE ──▶ guest is replaced
     │
     └──▶ the user interrupts (interrupted) ──▶ DEAF_GRACE, if it never began ──▶ replaced
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from cellblock.host.session.types import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.session.types import Why


#: Seconds that a cell has to end after it was interrupted for a limit. Then it is killed.
GRACE: float = 2.0
#: Seconds without a sign of life after which a request that was read counts as stolen.
SILENCE: Final = 4.0
#: Seconds that an idle guest needs to take up a request, at most.
TAKE_UP: Final = 0.05
#: Seconds after a user's interrupt within which the request must begin and be interruptible.
DEAF_GRACE: Final = 3.0
#: Seconds that completion and inspection may take.
QUERY_TIMEOUT: Final = 10.0


class TimedRequest(Protocol):
    """A request with deadlines: ``InFlight`` of ``host.session.requests``."""

    #: The subshell that the request is for; 0 is the main shell.
    subshell: int
    #: The request's own timeout, or None.
    seconds: float | None
    #: Whether the guest reported that it read the request, but is busy with something else.
    acknowledged: bool
    #: The user interrupted the request while it still waited, so the guest was interrupted to end
    #: the task that was in its way.
    made_way: bool
    #: The limit that the request was interrupted for.
    over: Why | None

    @property
    def began(self) -> bool:
        """Whether the guest has taken the request up."""

    @property
    def runs_code(self) -> bool:
        """Whether the request runs a cell's code; a query does not."""

    def stopped(self, why: Why) -> Stopped:
        """Return the outcome of the request if it exceeded a limit."""


class TimedGuests(Protocol):
    """The supervisor: has the guest that is interrupted, and replaces it."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""

    def interrupt(self) -> None:
        """Interrupt the guest."""

    def replace(self, stopped: Stopped) -> None:
        """Kill the guest; a copy takes over, or a new guest."""


R = TypeVar("R", bound=TimedRequest)


class Deadlines(Generic[R]):
    """Interrupts and kills one request at a time by the clock.

    A cell's timeout stands still while the user is asked something. ``stop_holding`` makes the host
    read what the guest sends even if front ends are behind. ``abandon`` is called with a query that
    takes too long. Requests in subshells can't be interrupted: with ``interrupts=False`` they are
    killed at once.
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
        self._reactor = reactor
        self._clock = clock
        self._supervisor = supervisor
        self._stop_holding = stop_holding
        self._abandon = abandon
        self._interrupts = interrupts
        #: Seconds that a cell may run; None is no limit.
        self.timeout: float | None = None
        self._timers: list[Timer] = []
        #: Seconds left of the timeout, when they were counted last, and their timer; None while the
        #: timeout stands still.
        self._left = 0.0
        self._counted = 0.0
        self._limit: Timer | None = None

    def sent(self, request: R) -> None:
        """Begin to watch a request that is sent to a guest, perhaps not for the first time."""
        self.stop()
        request.made_way = False  # an earlier interrupt went to another guest
        if request.runs_code:
            self._later(SILENCE, lambda: self._check_silence(request))
            self._left = self._seconds(request) or 0.0
            self.resume(request)
        else:
            seconds = QUERY_TIMEOUT if request.seconds is None else request.seconds
            self._later(seconds, lambda: self._abandon(request))

    def pause(self) -> None:
        """Stop the timeout: the user is asked, and the user's time is not the cell's."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
            self._left = max(0.0, self._left - (self._clock() - self._counted))

    def resume(self, request: R) -> None:
        """Let the timeout go on: the user has answered, or no answer is awaited any more."""
        if self._seconds(request) is not None and self._limit is None:
            self._counted = self._clock()
            timer = self._reactor.call_later(self._left, lambda: self.over(request, "timeout"))
            self._limit = timer

    def interrupted(self, request: R) -> None:
        """Interrupt a request for the user, and give it some time; its question is withdrawn.

        A request that has not begun is interrupted when it begins. Before that, the guest is
        interrupted after ``TAKE_UP`` seconds, to end a task that keeps it from beginning. If that
        interrupt comes so late that it hits the cell instead, the guest reports so in ``Began``.
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
        """Interrupt a request that exceeded a limit; kill its guest if it does not end in time."""
        if not self._interrupts:
            self._supervisor.replace(replace(request.stopped(why), of=request.subshell))
        elif request.over is None:
            request.over = why
            self._stop_holding()
            self._supervisor.interrupt()
            self._later(GRACE, lambda: self._supervisor.replace(request.stopped(why)))

    def stop(self) -> None:
        """Stop watching: the request has ended, or its guest has."""
        for timer in (*self._timers, *filter(None, [self._limit])):
            timer.cancel()
        self._timers.clear()
        self._limit = None

    def _seconds(self, request: R) -> float | None:
        return self.timeout if request.seconds is None else request.seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append(self._reactor.call_later(seconds, action))

    def _check_silence(self, request: R) -> None:
        """Replace a guest that has read a request and shows no sign of it."""
        guest = self._supervisor.guest
        if request.began or guest is None:
            return
        if guest.held or guest.unread() or request.acknowledged:
            # The silence has a reason: the host does not listen to the guest, the guest has not
            # read the request, or a task or thread keeps the guest's main thread busy. That may go
            # on; the user can interrupt it.
            self._later(SILENCE, lambda: self._check_silence(request))
        else:
            self._supervisor.replace(Stopped("silent", "a request vanished on its way"))

    def _give_up_deaf(self, request: R) -> None:
        """Replace a guest that interrupts did not reach."""
        guest = self._supervisor.guest
        if not request.began or (guest is not None and guest.ignores_interrupts()):
            self._supervisor.replace(Stopped("silent", "it did not react to an interrupt"))
