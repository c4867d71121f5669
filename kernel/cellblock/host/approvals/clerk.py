"""Who is asked, about what, and how often: a session's approvals.

Calls of one cell wait in line; a cell's imports are asked about before it is sent. An answer is
for what was asked and nothing else. A cell that goes on asking is told no by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.analysis.admission import sha256
from cellblock.analysis.approvable import approvable, wanted
from cellblock.host.approvals import wishes
from cellblock.host.approvals.asking import Asking, Decision
from cellblock.host.approvals.imports import is_installed
from cellblock.wire.messages import Granted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.approvable import Import
    from cellblock.host.approvals.answers import Answer
    from cellblock.host.approvals.grants import Grants
    from cellblock.host.approvals.wishes import Wish
    from cellblock.host.session.types import Cell
    from cellblock.host.tools.provider import Call

    #: Returns why what was allowed may not be done after all, if so.
    Observe = Callable[[Wish, Decision], str]
    #: As ``asking.Put``, for the cell under way.
    Ask = Callable[[Wish, Cell | None, str, Callable[[Answer], None]], Callable[[], None] | None]

#: Questions for one cell, and answers of no, from which on the rest is refused unasked.
MOST_ASKED: Final = 20
MOST_REFUSED: Final = 3


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How it is told that the answer was no, and whether who answers is spared many questions."""

    no: str = "you said no"
    remedy: str = "You said no. Run the cell again to be asked again."
    spared: bool = True


USER: Final = Manner()
PROGRAM: Final = Manner(no="the program said no", remedy="The program said no.", spared=False)


class Clerk:
    """Decides about calls (``host.tools.approval.Approval``), imports, and a kernel's start.

    ``observe`` hears of each decision of the user's, and of others once a cell for each subject;
    ``tell`` gets a line for the user, who may be a program, by the ``manner``.
    """

    def __init__(
        self,
        ask: Ask,
        grants: Grants,
        *,
        observe: Observe,
        tell: Callable[[str], None],
        manner: Manner = USER,
    ) -> None:
        self._ask, self._grants, self._observe, self._tell = ask, grants, observe, tell
        self.manner = manner
        self._asking = Asking(self._question, self._settled, manner.no)
        self._cell: Cell | None = None
        #: Why nothing is asked any more in this cell.
        self._stopped = ""
        self._asked = 0
        #: What was refused in this cell, by hash; and what was entered of it unasked.
        self._refused: set[str] = set()
        self._noted: set[tuple[str, ...]] = set()
        #: Where calls stand in line, by their numbers.
        self._calls: dict[int, int] = {}
        #: What may be imported, and for which names and rules that was found.
        self._granted: Granted | None = None
        self._found: tuple[frozenset[str], Rules | None] = (frozenset(), None)
        #: Where packages are besides those of the interpreter.
        self.folders: tuple[str, ...] = ()

    # --- a cell -------------------------------------------------------------------------------

    def begin(self, cell: Cell) -> None:
        """Begin a cell: what its calls and imports ask for is asked for it."""
        self._asking.refuse_all("another cell has begun")
        self._cell, self._stopped, self._asked = cell, "", 0
        self._refused.clear()
        self._noted.clear()
        self._grants.begin()

    def end(self) -> None:
        """Take note that the cell has ended: nobody is asked for it any more."""
        self._cell = None
        self._grants.begin()  # handlers of widgets are none of the cell
        self._asking.refuse_all("the cell has ended")

    def interrupt(self) -> None:
        """Refuse what waits, and what this cell asks for from now on."""
        self._stopped = "it was interrupted"
        self._asking.refuse_all(self._stopped)

    @property
    def asks(self) -> bool:
        """Whether a question stands."""
        return self._asking.asks

    def hold_to(self, digest: str, changed: Mapping[str, str]) -> None:
        """Take note of a narrower policy: what was allowed for always was so under another.

        ``changed`` are fields and their values, as TOML has them.
        """
        self._grants.hold_to(digest, changed)

    def on_waiting(self, waiting: Callable[[bool], None]) -> None:
        """Have ``waiting`` be told when the user is asked, and when that is over."""
        self._asking.waiting = waiting

    # --- calls --------------------------------------------------------------------------------

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Decide about a call; that very call is run, or refused."""
        wish, open_ = wishes.of_call(call), True
        if wish is None:
            refuse("its arguments are no data that can be shown")
            return

        def decided(decision: Decision) -> None:
            nonlocal open_
            open_ = False
            self._calls.pop(call.number, None)
            if decision.scope is not None:
                proceed()
            else:
                refuse(decision.why)

        number = self._put(wish, decided)
        if open_:
            self._calls[call.number] = number

    def dropped(self, number: int) -> None:
        """Ask no more about a call that nobody waits for."""
        if (place := self._calls.pop(number, None)) is not None:
            self._asking.drop(place)

    # --- imports ------------------------------------------------------------------------------

    def granted(self, rules: Rules) -> Granted | None:
        """Return what may be imported now besides what a policy's ``rules`` allow."""
        names, (known, under) = self._grants.imports(), self._found
        if names != known or (names and rules is not under):
            found = (one for name in names for one in approvable(name, rules))
            self._found, self._granted = (names, rules), _granted(filter(self._is_there, found))
        return self._granted

    def wanted(self, findings: Iterable[Finding], rules: Rules) -> tuple[Import, ...]:
        """Return what the user could approve of for a cell with these findings to run."""
        found = wanted(findings, rules)
        return found if all(map(self._is_there, found)) else ()

    def ask_imports(self, imports: Iterable[Import], decided: Callable[[Decision], None]) -> None:
        """Ask whether the cell may import these."""
        source = self._cell.raw if self._cell is not None else ""
        self._put(wishes.of_imports(imports, sha256(source)), decided)

    # --- a kernel's start ---------------------------------------------------------------------

    def may_start(self, field: str, value: str) -> bool:
        """Say whether a kernel of such a policy may always start."""
        return self._grants.covers(wishes.of_start(field, value)) is not None

    def ask_start(self, field: str, value: str, decided: Callable[[Decision], None]) -> None:
        """Ask whether it may."""
        self._put(wishes.of_start(field, value), decided)

    # --- all of them --------------------------------------------------------------------------

    def _put(self, wish: Wish, decided: Callable[[Decision], None]) -> int:
        def settle(decision: Decision) -> None:
            why = self._enter(wish, decision)
            decided(Decision(why=why) if why else decision)

        return self._asking.put(wish, settle)

    def _enter(self, wish: Wish, decision: Decision) -> str:
        """Have observed what was decided, and remember what the user said.

        Returned is why it may not be done after all; then nothing is remembered.
        """
        unasked = (wish.of, *wish.subjects, decision.scope or decision.why)
        if decision.asked or unasked not in self._noted:
            if why := self._observe(wish, decision):
                return why
            if not decision.asked:
                self._noted.add(unasked)
        if decision.asked and decision.scope is not None:
            if problem := self._grants.add(wish, decision.scope):
                self._tell(f"could not keep that for always: {problem}. It holds for this session")
        elif decision.asked:
            self._refused.add(wish.sha256)
        return ""

    def _settled(self, wish: Wish) -> Decision | None:
        """Decide without asking, where that can be; else count a question."""
        if (scope := self._grants.covers(wish)) is not None:
            return Decision(scope=scope)
        if why := self._why_not(wish):
            return Decision(why=why)
        self._asked += 1
        return None

    def _why_not(self, wish: Wish) -> str:
        if self._cell is None:
            return "nobody can be asked while no cell runs"
        return self._stopped or (self._enough(wish) if self.manner.spared else "")

    def _enough(self, wish: Wish) -> str:
        """Return why a user is not asked again, who was asked before."""
        if wish.sha256 in self._refused:
            return f"{self.manner.no} to this in this cell"
        if len(self._refused) >= MOST_REFUSED:
            return f"{self.manner.no} {MOST_REFUSED} times in this cell"
        if self._asked >= MOST_ASKED:
            return f"one cell may ask {MOST_ASKED} times"
        return ""

    def _question(
        self, wish: Wish, note: str, answered: Callable[[Answer], None]
    ) -> Callable[[], None] | None:
        return self._ask(wishes.with_lines(wish), self._cell, note, answered)

    def _is_there(self, one: Import) -> bool:
        return one.kind == "module" or is_installed(one.name, self.folders)


def _granted(imports: Iterable[Import]) -> Granted | None:
    named: dict[str, set[str]] = {"module": set(), "package": set()}
    for one in imports:
        named[one.kind].add(one.name)
    if not any(named.values()):
        return None
    modules, packages = (tuple(sorted(named[kind])) for kind in ("module", "package"))
    return Granted(modules=modules, packages=packages)
