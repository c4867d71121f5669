"""What becomes of a request that ran to its end: answered once it is kept, or stepped back over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.analysis.again import can_run_again
from cellblock.host import undo
from cellblock.host.copies import SHORT, Ran
from cellblock.host.outcome import Refused
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.keeper import Keeper
    from cellblock.host.request import Request
    from cellblock.host.under_way import UnderWay


class Settling:
    """Answers a request with a reply, if it still is the one ``under_way``."""

    def __init__(self, keeper: Keeper, clock: Callable[[], float], under_way: UnderWay) -> None:
        self._keeper, self._clock, self._under_way = keeper, clock, under_way

    def keep(self, request: Request, reply: Any) -> None:
        """Answer what may have changed the state, and have a snapshot taken of that.

        A short cell is answered as soon as the one before is kept: in the millisecond until its
        own snapshot stands it can be run again. A long one can't, so it is answered when what it
        did is safe, whichever one process is killed next; so is one that called a tool, or that may
        have said something over a connection.
        """
        now = self._clock()
        seconds = now - request.began_at
        short = seconds <= SHORT and not request.called
        exact = short and _comes_out_the_same(request)
        ran = Ran(request.message, seconds, exact, ended=now, once=request.called)
        if short and self._keeper.snapshots.ring.covers():
            self._under_way.answer(request, reply)
            self._keeper.ran(ran)
            return
        request.ended = True

        def safe() -> None:
            if self._under_way.request is request:
                self._under_way.answer(request, reply)

        if short:
            self._keeper.snapshots.ring.when_kept(safe)
        self._keeper.ran(ran, safe)

    def undo(self, request: Request, reply: messages.Done) -> None:
        """Step back, now that the cell which asked for it has ended."""
        request.ended, steps = True, request.undo
        request.reply = reply
        known = self._keeper.undo(steps)
        if known < steps:
            detail = f"{known} can be" if known else "there is nothing to undo"
            said = Refused(f"%undo {steps}: {detail}", reply.read_bytes)
            # By itself it changed nothing that would have to be undone, or kept.
            alone = undo.asked_for(request.message.raw)
            (self._under_way.answer if alone else self.keep)(request, said)


def _comes_out_the_same(request: Request) -> bool:
    message = request.message
    if not isinstance(message, messages.Execute) or message.user_expressions or message.template:
        return False
    return can_run_again(message.source)
