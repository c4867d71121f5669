"""One question at a time: put to the user, answered, taken back, and the next one put."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.approvals.answers import Answer
    from cellblock.host.approvals.wishes import Scope, Wish

    #: Puts a wish, with a note, and returns what takes the question back; None where nobody can be
    #: asked. What it is given last is called with the answer, unless it was taken back.
    Put = Callable[[Wish, str, Callable[[Answer], None]], Callable[[], None] | None]

_FORGOTTEN = "That was not taken: it takes the code, which is another one now, and one of these."


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a wish: a ``scope`` if it is allowed, and otherwise why not.

    ``asked``: the user was, and said so.
    """

    scope: Scope | None = None
    why: str = ""
    asked: bool = False


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    number: int
    wish: Wish
    decided: Callable[[Decision], None]


class Asking:
    """The queue of what is to be asked.

    ``settled`` decides about a wish without asking, where that can be, each time before it is put;
    ``no`` is why not, where the answer was that. ``waiting`` is told when a question stands, and
    when none does any more.
    """

    def __init__(self, put: Put, settled: Callable[[Wish], Decision | None], no: str) -> None:
        self._put, self._settled, self._no = put, settled, no
        self.waiting: Callable[[bool], None] = lambda _asked: None
        self._numbers = itertools.count(1)
        self._queue: dict[int, _Waiting] = {}
        #: What is asked about now, and what takes the question back.
        self._open: _Waiting | None = None
        self._withdraw: Callable[[], None] | None = None
        self._going = False

    @property
    def asks(self) -> bool:
        """Whether a question stands."""
        return self._open is not None

    def put(self, wish: Wish, decided: Callable[[Decision], None]) -> int:
        """Ask when it is this one's turn; return a number to ``drop`` it by.

        ``decided`` is called once, maybe before this returns.
        """
        waiting = _Waiting(next(self._numbers), wish, decided)
        self._queue[waiting.number] = waiting
        self._go_on()
        return waiting.number

    def drop(self, number: int) -> None:
        """Ask no more about something: nobody waits for it. It is not decided."""
        self._queue.pop(number, None)
        if self._open is not None and self._open.number == number:
            self._close()
            self._go_on()

    def refuse_all(self, why: str) -> None:
        """Decide everything that waits, with no."""
        waiting = [*([self._open] if self._open else []), *self._queue.values()]
        self._queue.clear()
        self._close()
        for one in waiting:
            one.decided(Decision(why=why))

    def _close(self) -> None:
        """Have no question stand."""
        if self._open is None:
            return
        withdraw, self._open, self._withdraw = self._withdraw, None, None
        if withdraw is not None:
            withdraw()
        self.waiting(False)

    def _go_on(self) -> None:
        """Put the next question; what needs none is decided on the way.

        Whoever is told of a decision may put another wish, which finds its place in the queue.
        """
        if self._going:
            return
        self._going = True
        try:
            while self._open is None and self._queue:
                one = self._queue.pop(next(iter(self._queue)))
                decision = self._settled(one.wish)
                if decision is None and not self._ask(one, ""):
                    decision = Decision(why="nobody can be asked: this front end takes no input")
                if decision is not None:
                    one.decided(decision)
        finally:
            self._going = False

    def _ask(self, one: _Waiting, note: str) -> bool:
        def answered(answer: Answer) -> None:
            if self._open is one:
                self._answered(one, answer, again=not note)

        withdraw = self._put(one.wish, note, answered)
        if withdraw is None:
            return False
        self._open, self._withdraw = one, withdraw
        self.waiting(True)
        return True

    def _answered(self, one: _Waiting, answer: Answer, *, again: bool) -> None:
        self._withdraw = None  # it is answered
        if answer == "again" and again and self._ask(one, _FORGOTTEN):
            return
        self._close()
        match answer:
            case "again" | "no":
                one.decided(Decision(why=self._no, asked=True))
            case scope:
                one.decided(Decision(scope=scope, asked=True))
        self._go_on()
