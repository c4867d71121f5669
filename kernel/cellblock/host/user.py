"""The user's part in a request: he is asked, answers and interrupts, and takes his time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError
from cellblock.host import conduct
from cellblock.host.outcome import Stopped
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.approvals.clerk import Clerk
    from cellblock.host.keeper import Keeper
    from cellblock.host.outcome import Front
    from cellblock.host.under_way import UnderWay

#: A second interrupt this soon after the first is the same key press, repeated.
REPEAT: Final = 0.5


class User:
    """``violation`` ends a guest for how it asks."""

    def __init__(  # noqa: PLR0913, PLR0917 - whom what he does concerns
        self,
        keeper: Keeper,
        under_way: UnderWay,
        front: Front,
        clerk: Clerk | None,
        clock: Callable[[], float],
        violation: Callable[[str], None],
    ) -> None:
        self._keeper, self._under_way, self._front = keeper, under_way, front
        self._clerk, self._clock, self._violation = clerk, clock, violation
        if clerk is not None:
            clerk.on_waiting(self._on_waiting)

    def is_asked(self, message: messages.InputRequest) -> None:
        """Put a cell's question, whose time does not count until it is answered."""
        request = self._under_way.request
        breach = conduct.question(message, request)
        if breach or request is None:
            self._violation(breach)
        elif request.over is None:
            request.questions += 1
            if self._front.asked(message):
                self._under_way.deadlines.pause()

    def answers(self, value: str, *, eof: bool) -> None:
        """Give the running cell what he typed; ``eof`` where there is nobody to ask."""
        request, guest = self._under_way.request, self._keeper.guest
        if guest is not None and request is not None and not guest.closed:
            try:
                guest.send(messages.Input(id=request.message.id, value=value, eof=eof))
            except CellblockError as exc:
                self._violation(str(exc))
                return
            request.questions = 0
            if self._clerk is None or not self._clerk.asks:
                self._under_way.deadlines.resume(request)

    def _on_waiting(self, asked: bool) -> None:
        """Leave out of a cell's time what he takes over a question of the host's."""
        request = self._under_way.request
        if request is not None and asked:
            self._under_way.deadlines.pause()
        elif request is not None and not request.questions and not request.ended:
            self._under_way.deadlines.resume(request)

    def interrupts(self) -> None:
        """Interrupt what runs. A cell that was interrupted before and goes on is killed."""
        self._front.hurry()
        request = self._under_way.request
        if request is None:
            self._interrupts_nothing()
        elif request.interrupted_at is None:
            request.interrupted_at = self._clock()
            # Before its calls are refused: it would hear of that, go on, and be interrupted in
            # what it does about it.
            self._under_way.deadlines.interrupted(request)
            self._refuse()
        elif self._clock() - request.interrupted_at > REPEAT:
            self._refuse()
            self._keeper.replace(Stopped("interrupt"))

    def _interrupts_nothing(self) -> None:
        """Take back a question about a cell not sent yet, or interrupt a task between cells."""
        asked = self._clerk is not None and self._clerk.asks
        self._refuse()
        if not asked:
            self._keeper.interrupt()

    def _refuse(self) -> None:
        """Refuse what waits for the user's word, and what the cell asks for from now on."""
        if self._clerk is not None:
            self._clerk.interrupt()
