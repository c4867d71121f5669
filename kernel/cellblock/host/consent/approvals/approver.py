"""Who is asked, about what, and how often: a session's approvals.

Calls of one cell wait in line; a cell's imports are asked about before it is sent. An answer is
for what was asked and nothing else. A cell that goes on asking is told no by itself.
"""

from __future__ import annotations

import os
import sysconfig
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict, replace

from cellblock.analysis.admission import sha256
from cellblock.analysis.imports import approvable, wanted
from cellblock.host.consent.approvals import request, store
from cellblock.host.consent.approvals.prompt import Asking, Decision
from cellblock.host.guests.spawn import import_path
from cellblock.wire.messages import Granted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.imports import Import
    from cellblock.host.consent.approvals.prompt import Answer
    from cellblock.host.consent.approvals.request import Of, Scope, Wish
    from cellblock.host.consent.approvals.store import Grant, Store
    from cellblock.host.services.tools.calls import Call
    from cellblock.host.session.types import ExecuteRequest

    Observe = Callable[[Wish, Decision], str]
    Ask = Callable[
        [Wish, ExecuteRequest | None, str, Callable[[Answer], None]], Callable[[], None] | None
    ]


# What a session's user has allowed before: for this cell, for the session, or for always.


class Under(msgspec.Struct, frozen=True, kw_only=True):
    """What lasting grants are for: a scope, and a policy by its name and digest.

    ``base`` and ``narrowed`` are as in ``store.Grant``: they say how it came to be that policy.
    """

    scope: str
    policy: str
    digest: str
    base: str = ""
    narrowed: dict[str, str] = {}

    def narrower(self, digest: str, changed: Mapping[str, str]) -> Under:
        """Return the same for a policy with this digest, made of this one by what ``changed``."""
        base = self.base or self.digest
        return replace(self, digest=digest, base=base, narrowed={**self.narrowed, **changed})

    def covers(self, one: Grant) -> bool:
        """Say whether a grant counts under it."""
        return (one.scope, one.policy, one.digest) == (self.scope, self.policy, self.digest)

    def grant(self, of: Of, subject: str) -> Grant:
        """Return a grant under it, as of now."""
        return store.new(of, subject, **asdict(self))


class Grants:
    """Answers whether something is allowed already, and how. A look costs a stat(2).

    Without a store nothing is allowed for always, nor can it be.
    """

    def __init__(self, under: Under, kept: Store | None) -> None:
        self.under, self._store = under, kept
        self._session: set[tuple[Of, str]] = set()
        #: Imports that the cell under way was allowed.
        self._cell: set[str] = set()

    def hold_to(self, digest: str, changed: Mapping[str, str]) -> None:
        """Have what is for always be for a narrower policy, from now on."""
        self.under = self.under.narrower(digest, changed)

    def begin(self) -> None:
        """Begin a cell: what was allowed once was for another."""
        self._cell.clear()

    def covers(self, wish: Wish) -> Scope | None:
        """Return for how long something is allowed already, None where it has to be asked for."""
        wanted = {(wish.of, subject) for subject in wish.subjects}
        if wanted <= self._session:
            return "session"
        return "always" if wanted <= self._session | self._always() else None

    def add(self, wish: Wish, scope: Scope) -> str:
        """Remember what was allowed; return why it could not be for always, or nothing.

        What is for always stands in the store alone, so that it can be taken back there at once.
        """
        if scope == "once":
            # A call is let through by itself: nothing is remembered that another could use.
            self._cell.update(wish.subjects if wish.of == "import" else ())
            return ""
        problem = self._keep(wish) if scope == "always" else ""
        if scope == "session" or problem:
            self._session.update((wish.of, subject) for subject in wish.subjects)
        return problem

    def imports(self) -> frozenset[str]:
        """Return what may be imported now besides what the policy allows."""
        lasting = self._session | self._always()
        return frozenset(self._cell).union(name for of, name in lasting if of == "import")

    def _always(self) -> set[tuple[Of, str]]:
        known = () if self._store is None else self._store.grants()
        return {(one.of, one.subject) for one in known if self.under.covers(one)}

    def _keep(self, wish: Wish) -> str:
        if self._store is None:
            return "nothing is kept here"
        made = tuple(self.under.grant(wish.of, one) for one in wish.subjects)
        try:
            self._store.add(made)
        except OSError as exc:
            return exc.strerror or str(exc)
        return ""


# Where packages are that may be approved of: installed for the interpreter, by nobody's cell.

#: Folders of these names hold nothing else.
_INSTALLED: Final = ("dist-packages", "site-packages")


def is_installed(package: str, more: tuple[str, ...] = ()) -> bool:
    """Say whether guests find ``package`` among what is installed, or in one of ``more`` folders.

    Not in a notebook's folder, nor by a link that leads elsewhere; nothing of it is imported. One
    without a file of its own is none: whoever adds a folder adds to it.
    """
    path = [*import_path(), *more]
    try:
        spec = PathFinder.find_spec(package, path)
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.origin or not os.path.isabs(spec.origin):  # noqa: PTH117 - no object for it
        return False
    real = PurePath(os.path.realpath(spec.origin))
    return any(real.is_relative_to(folder) for folder in _real({*_folders(), *more}))


def _real(folders: Iterable[str]) -> list[str]:
    return [os.path.realpath(folder) for folder in folders]


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    named = [path for path in import_path() if PurePath(path).name in _INSTALLED]
    paths = sysconfig.get_paths()
    return (*named, paths["purelib"], paths["platlib"])


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
        self._cell: ExecuteRequest | None = None
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

    def begin(self, cell: ExecuteRequest) -> None:
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
        wish, open_ = request.of_call(call), True
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
        source = self._cell.code if self._cell is not None else ""
        self._put(request.of_imports(imports, sha256(source)), decided)

    # --- a kernel's start ---------------------------------------------------------------------

    def may_start(self, field: str, value: str) -> bool:
        """Say whether a kernel of such a policy may always start."""
        return self._grants.covers(request.of_start(field, value)) is not None

    def ask_start(self, field: str, value: str, decided: Callable[[Decision], None]) -> None:
        """Ask whether it may."""
        self._put(request.of_start(field, value), decided)

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
        return self._ask(request.with_lines(wish), self._cell, note, answered)

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
