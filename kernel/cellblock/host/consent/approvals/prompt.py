"""One question at a time: put to the user, answered, taken back, and the next one put."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cellblock.render import question as asked
from cellblock.render.text import clip, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.consent.approvals.approver import Grants, Under
    from cellblock.host.consent.approvals.request import Of, Scope, Wish
    from cellblock.host.session.types import ExecuteRequest

    Consult = Callable[[str, Callable[[str], None]], Callable[[], None] | None]


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


# What counts as an answer: the code that stands in the question, and a word.
#
# A line that was typed before the question was there, or for a question of the cell's, does not
# have the code. So nothing is allowed by it; who forgot the code is asked once more.

Answer = Literal["once", "session", "always", "no", "again"]
#: Characters of an answer that are looked at, and digits of a code.
_LONGEST: Final = 100
_DIGITS: Final = 3
_SCOPES: Final[dict[str, Scope]] = {
    "a": "always",
    "always": "always",
    "o": "once",
    "once": "once",
    "s": "session",
    "session": "session",
}
_FILLING: Final = frozenset({"allow", "this", "y", "yes"})


def new_code() -> str:
    """Return a code for one question: three digits, the first of them no zero."""
    return str(secrets.randbelow(900) + 100)


def read(text: str, asked: str, offered: tuple[Scope, ...]) -> Answer:
    """Return what ``text`` says where ``asked`` is the code; the code by itself is for once.

    ``again`` is a wish to allow that does not hold: without the code, or by a word that is not
    ``offered``.
    """
    words = text[: _LONGEST + 1].lower().replace(",", " ").split()
    known = all(word in _SCOPES or word in _FILLING or _is_code(word) for word in words)
    meant = {_SCOPES[word] for word in words if word in _SCOPES} or {"once"}
    if not words or not known or len(meant) > 1 or len(text) > _LONGEST:
        return "no"
    codes = [word for word in words if _is_code(word)]
    scope = meant.pop()
    return scope if codes == [asked] and scope in offered else "again"


def offered(*, whole: bool, start: bool) -> tuple[Scope, ...]:
    """Return by which words something can be allowed, the narrowest first."""
    scopes: Iterable[Scope] = ("once", "session", "always")
    return tuple(scope for scope in scopes if scope != "once" or (whole and not start))


def _is_code(word: str) -> bool:
    return len(word) == _DIGITS and word.isascii() and word.isdigit()


# A wish as a question: who asks, for what, and what each answer means.

#: Characters of a policy's name, and of a scope.
_NAME: Final = 64
_SCOPE: Final = 200
_ONCE: Final[dict[Of, str]] = {
    "call": "this one call, with exactly these arguments",
    "import": "in this cell; what it binds stays bound",
    "start": "",
}


def question(wish: Wish, under: Under, code: str, note: str, cell: ExecuteRequest | None) -> str:
    """Return the prompt for a wish of this cell."""
    start, source = wish.of == "start", "" if cell is None else cell.code
    count = 0 if cell is None else cell.execution_count
    return asked.question(
        asked.Question(
            asks=f"may {'this kernel' if start else f'cell [{count}]'} {wish.asks}",
            shown=wish.shown,
            offers={scope: _means(scope, wish, under) for scope in scopes_of(wish)},
            code=code,
            source="" if start else source,
            note=note,
        )
    )


def scopes_of(wish: Wish) -> tuple[Scope, ...]:
    """Return by which words a wish can be allowed, the narrowest first."""
    return offered(whole=wish.whole, start=wish.of == "start")


def _means(scope: Scope, wish: Wish, under: Under) -> str:
    if scope == "once":
        return _ONCE[wish.of]
    if scope == "session":
        return f"{wish.all_of}, until this kernel ends"
    policy, place = exact(clip(under.policy, _NAME)), exact(clip(under.scope, _SCOPE))
    return f"that, and in later kernels too: policy {policy} as it is now, {place}"


# Asking at the front end's input prompt, where the answer takes the code that stands in it.

if TYPE_CHECKING:
    Put = Callable[[Wish, str, Callable[[Answer], None]], Callable[[], None] | None]


class Prompt:
    """Puts wishes as prompts (``clerk.Ask``); ``grants`` know under what is asked."""

    def __init__(self, consult: Consult, grants: Grants) -> None:
        self._consult, self._grants = consult, grants

    def __call__(
        self, wish: Wish, cell: ExecuteRequest | None, note: str, answered: Callable[[Answer], None]
    ) -> Callable[[], None] | None:
        """Ask; return what takes that back, or None."""
        code, offered = new_code(), scopes_of(wish)
        text = question(wish, self._grants.under, code, note, cell)
        return self._consult(text, lambda said: answered(read(said, code, offered)))
