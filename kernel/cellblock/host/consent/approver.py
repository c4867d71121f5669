"""Who is asked, about what, and how often: a session's approvals.

Calls of one cell wait in line; a cell's imports are asked about before it is sent. One question at
a time is put, answered, or withdrawn. An answer is for what was asked and nothing else. A cell that
goes on asking is refused without a question.

A question is put at the front end's input prompt. An answer is the code that stands in it, and a
word. A line that was typed before the question was there, or for a question of the cell's, does not
have the code. So nothing is allowed by it; who forgot the code is asked once more.
"""

from __future__ import annotations

import os
import secrets
import sysconfig
from collections import deque
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cellblock.analysis.admission import sha256
from cellblock.analysis.imports import approvable, wanted
from cellblock.host.consent import request
from cellblock.host.guests.spawn import import_path
from cellblock.render.text import Question, clip, exact
from cellblock.wire.messages import Granted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.imports import Import
    from cellblock.host.consent.grants import GrantContext, Grants, Scope
    from cellblock.host.consent.request import ApprovalRequest, Of
    from cellblock.host.services.tools.calls import Call
    from cellblock.host.session.types import ExecuteRequest

    Observe = Callable[[ApprovalRequest, "Decision"], str]
    #: Puts a question; returns what withdraws it, or None where nobody can be asked.
    Ask = Callable[
        [ApprovalRequest, ExecuteRequest | None, str, Callable[["Answer"], None]],
        Callable[[], None] | None,
    ]
    Consult = Callable[[Question, Callable[[str], None]], Callable[[], None] | None]


# --- where packages are that may be approved: installed for the interpreter, by nobody's cell -----

#: Folders of these names hold nothing else.
_INSTALLED: Final = ("dist-packages", "site-packages")


def is_installed(package: str, more: tuple[str, ...] = ()) -> bool:
    """Whether guests find ``package`` among what is installed, or in one of ``more`` folders.

    Not in a notebook's folder, nor by a link that leads elsewhere; nothing of it is imported. One
    without a file of its own is none: whoever adds a folder adds to it.
    """
    try:
        spec = PathFinder.find_spec(package, [*import_path(), *more])
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.origin or not PurePath(spec.origin).is_absolute():
        return False
    real = PurePath(os.path.realpath(spec.origin))
    return any(real.is_relative_to(os.path.realpath(one)) for one in {*_folders(), *more})


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    named = [path for path in import_path() if PurePath(path).name in _INSTALLED]
    paths = sysconfig.get_paths()
    return (*named, paths["purelib"], paths["platlib"])


# --- a question, and what counts as an answer -----------------------------------------------------


class No(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of no: who said so, or why nobody did, and what the cell is to do instead.

    ``asked``: somebody was asked, and said so.
    """

    why: str
    remedy: str
    asked: bool = True


#: ``again`` is a request to allow that does not hold; ``no`` has the words of the ``Wording``.
Answer = Literal["once", "session", "always", "no", "again"] | No
#: Characters of an answer that are looked at, and digits of a code.
_MAX_ANSWER: Final = 100
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
#: Characters of a policy's name, and of a scope.
_NAME: Final = 64
_SCOPE: Final = 200
_ONCE: Final[dict[Of, str]] = {
    "call": "this one call, with exactly these arguments",
    "import": "in this cell; what it binds stays bound",
    "keep": "these files, as they are now",
    "start": "",
}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a request: a ``scope`` if it is allowed, and otherwise why not.

    ``asked``: the user was, and said so. ``remedy`` is what to do instead, where the rule that a
    cell broke has no better one.
    """

    scope: Scope | None = None
    why: str = ""
    remedy: str = ""
    asked: bool = False


class Prompt:
    """Puts requests as prompts (``Ask``); ``grants`` know for what scope and policy."""

    def __init__(self, consult: Consult, grants: Grants) -> None:
        self._consult, self._grants = consult, grants

    def __call__(
        self,
        wanted: ApprovalRequest,
        cell: ExecuteRequest | None,
        note: str,
        answered: Callable[[Answer], None],
    ) -> Callable[[], None] | None:
        """Ask; return what withdraws that, or None."""
        code, scopes = new_code(), offered(wanted)
        asked = question(wanted, self._grants.under, code, note, cell)
        return self._consult(asked, lambda typed: answered(read_answer(typed, code, scopes)))


def new_code() -> str:
    """Return a code for one question: three digits, the first of them no zero."""
    return str(secrets.randbelow(900) + 100)


def read_answer(text: str, code: str, scopes: tuple[Scope, ...]) -> Answer:
    """Return what ``text`` says to a question with this code; the code by itself is for once.

    ``again`` is returned without the code, or for a word that is not among ``scopes``.
    """
    words = text[: _MAX_ANSWER + 1].lower().replace(",", " ").split()
    codes = [w for w in words if len(w) == _DIGITS and w.isascii() and w.isdigit()]
    known = all(word in _SCOPES or word in _FILLING or word in codes for word in words)
    meant = {_SCOPES[word] for word in words if word in _SCOPES} or {"once"}
    if not words or not known or len(meant) > 1 or len(text) > _MAX_ANSWER:
        return "no"
    scope = meant.pop()
    return scope if codes == [code] and scope in scopes else "again"


def offered(wanted: ApprovalRequest) -> tuple[Scope, ...]:
    """Return for how long a request can be allowed, the shortest first."""
    if wanted.of == "keep":
        return ("once",)
    lasting: tuple[Scope, ...] = ("session", "always")
    return ("once", *lasting) if wanted.whole and wanted.of != "start" else lasting


def question(
    wanted: ApprovalRequest, under: GrantContext, code: str, note: str, cell: ExecuteRequest | None
) -> Question:
    """Return the question for a request of this cell, and what each answer to it means."""
    start, source = wanted.of == "start", "" if cell is None else cell.code
    count = 0 if cell is None else cell.execution_count
    policy, place = exact(clip(under.policy, _NAME)), exact(clip(under.scope, _SCOPE))
    meanings: dict[Scope, str] = {
        "once": _ONCE[wanted.of],
        "session": f"{wanted.all_of}, until this kernel ends",
        "always": f"that, and in later kernels too: policy {policy} as it is now, {place}",
    }
    return Question(
        asks=f"may {'this kernel' if start else f'cell [{count}]'} {wanted.asks}",
        shown=wanted.shown,
        offers={scope: meanings[scope] for scope in offered(wanted)},
        code=code,
        source="" if start else source,
        note=note,
    )


# --- deciding, and asking -------------------------------------------------------------------------

#: Questions for one cell, and answers of no, from which on the rest is refused unasked.
MOST_ASKED: Final = 20
MOST_REFUSED: Final = 3
#: To a yes for this one call, which counts where the question has all of it: other answers are
#: always offered.
_NOT_OFFERED: Final = (
    "its arguments are too long to be shown whole, so a yes to this one call does not count. Give "
    'it less at once; the program can answer "session" instead'
)
_NOT_TAKEN: Final = (
    "That was not taken: it takes the code, which is another one now, and one of these."
)


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """The words for an answer of no, and for what is then refused in the same cell unasked.

    A program has no words for that, as it is asked each time; a person is spared many questions.
    """

    no: No
    #: To the same request, and to others; ``{}`` is how many answers of no there were.
    again: str = ""
    others: str = ""

    @property
    def spared(self) -> bool:
        """Whether who answers is spared many questions."""
        return bool(self.again)


USER: Final = Wording(
    no=No(why="you said no", remedy="You said no. Run the cell again to be asked again."),
    again="you said no to this in this cell",
    others="you said no {} times in this cell",
)
PROGRAM: Final = Wording(no=No(why="the program said no", remedy="The program said no."))
#: A person whom a program asks. It gives the answer of no in its own words.
PERSON: Final = Wording(
    no=No(why="the person asked said no", remedy="The person asked said no."),
    again="the person asked did not allow this in this cell, and is not asked again",
    others="the person asked did not allow {} requests of this cell, and is asked nothing more",
)


def _refused(no: No) -> Decision:
    return Decision(why=no.why, remedy=no.remedy, asked=no.asked)


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request to be decided, what gets the decision, and the number of the call that it is of."""

    wanted: ApprovalRequest
    decided: Callable[[Decision], None]
    call: int | None


class Approver:
    """Decides about calls (``services.tools.calls.Approval``), imports, and a kernel's start.

    ``ask`` puts a question. ``observe`` is called with each decision of the user's, and with others
    once a cell for each subject; it returns why something may not be done after all. ``tell`` gets
    a line for the user, who may be a program, by the ``wording``.
    """

    def __init__(
        self,
        ask: Ask,
        grants: Grants,
        *,
        observe: Observe,
        tell: Callable[[str], None],
        wording: Wording = USER,
    ) -> None:
        self._ask, self._grants, self._observe, self._tell = ask, grants, observe, tell
        self._wording = wording
        self._on_waiting: Callable[[bool], None] = lambda _asked: None
        self._queue = deque[_Waiting]()
        #: What is asked about now, and what withdraws the question.
        self._open: _Waiting | None = None
        self._withdraw: Callable[[], None] | None = None
        self._goes_on = False
        self._cell: ExecuteRequest | None = None
        #: Why nothing is asked any more in this cell.
        self._stopped = ""
        self._asked = 0
        #: What was refused in this cell, by hash; and what was observed of it unasked.
        self._refused: set[str] = set()
        self._noted: set[tuple[str, ...]] = set()
        #: What may be imported, and for which names and rules that was found.
        self._granted: Granted | None = None
        self._found: tuple[frozenset[str], Rules | None] = (frozenset(), None)
        #: Where packages are besides those of the interpreter.
        self.folders: tuple[str, ...] = ()

    # --- a cell -------------------------------------------------------------------------------

    def begin(self, cell: ExecuteRequest) -> None:
        """Begin a cell: what its calls and imports ask for is asked for it."""
        self._refuse_all("another cell has begun")
        self._cell, self._stopped, self._asked = cell, "", 0
        self._refused.clear()
        self._noted.clear()
        self._grants.begin()

    def end(self) -> None:
        """End the cell: nobody is asked for it any more."""
        self._cell = None
        self._grants.begin()  # handlers of widgets are none of the cell
        self._refuse_all("the cell has ended")

    def interrupt(self) -> None:
        """Refuse what waits, and what this cell asks for from now on."""
        self._stopped = "it was interrupted"
        self._refuse_all(self._stopped)

    @property
    def asks(self) -> bool:
        """Whether a question stands."""
        return self._open is not None

    def narrow_to(self, digest: str) -> None:
        """Hold to a narrower policy: what was allowed for always was so under another."""
        self._grants.narrow_to(digest)

    def on_waiting(self, waiting: Callable[[bool], None]) -> None:
        """Call ``waiting`` when the user is asked, and when that is over."""
        self._on_waiting = waiting

    # --- calls --------------------------------------------------------------------------------

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Decide about a call; that very call is run, or refused."""
        wanted = request.of_call(call)
        if wanted is None:
            refuse("its arguments are no data that can be shown")
            return

        def decided(decision: Decision) -> None:
            if decision.scope is not None:
                proceed()
            else:
                refuse(decision.why)

        self._put(wanted, decided, call.number)

    def dropped(self, number: int) -> None:
        """Ask no more about a call that nobody waits for. It is not decided."""
        self._queue = deque(one for one in self._queue if one.call != number)
        if self._open is not None and self._open.call == number:
            self._close()
            self._go_on()

    # --- imports ------------------------------------------------------------------------------

    def granted(self, rules: Rules) -> Granted | None:
        """Return what may be imported now besides what a policy's ``rules`` allow."""
        names, (known, under) = self._grants.imports(), self._found
        if names != known or (names and rules is not under):
            found = [one for name in names for one in approvable(name, rules)]
            there = [one for one in found if self._is_there(one)]
            modules, packages = (
                tuple(sorted({one.name for one in there if one.kind == kind}))
                for kind in ("module", "package")
            )
            self._found = names, rules
            self._granted = Granted(modules=modules, packages=packages) if there else None
        return self._granted

    def wanted(self, findings: Iterable[Finding], rules: Rules) -> tuple[Import, ...]:
        """Return what the user could approve of for a cell with these findings to run."""
        found = wanted(findings, rules)
        return found if all(map(self._is_there, found)) else ()

    def _is_there(self, one: Import) -> bool:
        return one.kind == "module" or is_installed(one.name, self.folders)

    def ask_imports(self, imports: Iterable[Import], decided: Callable[[Decision], None]) -> None:
        """Ask whether the cell may import these."""
        source = self._cell.code if self._cell is not None else ""
        self._put(request.of_imports(imports, sha256(source)), decided)

    # --- keeping what was staged ------------------------------------------------------------------

    def ask_keeping(self, wanted: ApprovalRequest, decided: Callable[[Decision], None]) -> None:
        """Ask whether the cell may keep files."""
        self._put(wanted, decided)

    # --- a kernel's start ---------------------------------------------------------------------

    def may_start(self) -> bool:
        """Whether a kernel of mode unsafe may always start."""
        return self._grants.covers(request.of_start()) is not None

    def ask_start(self, decided: Callable[[Decision], None]) -> None:
        """Ask whether it may."""
        self._put(request.of_start(), decided)

    # --- the queue ----------------------------------------------------------------------------

    def _put(
        self, wanted: ApprovalRequest, decided: Callable[[Decision], None], call: int | None = None
    ) -> None:
        """Decide when it is this one's turn; ``decided`` may be called before this returns."""
        self._queue.append(_Waiting(wanted, decided, call))
        self._go_on()

    def _go_on(self) -> None:
        """Put the next question; what needs none is decided on the way.

        What gets a decision may put another request, which finds its place in the queue.
        """
        if self._goes_on:
            return
        self._goes_on = True
        try:
            while self._open is None and self._queue:
                one = self._queue.popleft()
                decision = self._unasked(one.wanted)
                if decision is None and not self._question(one, ""):
                    decision = Decision(why="nobody can be asked: this front end takes no input")
                if decision is not None:
                    self._settle(one, decision)
        finally:
            self._goes_on = False

    def _unasked(self, wanted: ApprovalRequest) -> Decision | None:
        """Decide without asking, where that can be; else count a question."""
        if (scope := self._grants.covers(wanted)) is not None:
            return Decision(scope=scope)
        why = self._stopped
        if self._cell is None:
            why = "nobody can be asked while no cell runs"
        elif not why and self._wording.spared:
            if wanted.sha256 in self._refused:
                why = self._wording.again
            elif len(self._refused) >= MOST_REFUSED:
                why = self._wording.others.format(MOST_REFUSED)
            elif self._asked >= MOST_ASKED:
                why = f"one cell may ask {MOST_ASKED} times"
        if why:
            return Decision(why=why)
        self._asked += 1
        return None

    def _question(self, one: _Waiting, note: str) -> bool:
        """Put a question. Return whether anybody can be asked."""
        shown = request.with_lines(one.wanted)
        offers = offered(shown)

        def answered(answer: Answer) -> None:
            if self._open is one:
                self._answered(one, answer, offers, again=not note)

        withdraw = self._ask(shown, self._cell, note, answered)
        if withdraw is None:
            return False
        self._open, self._withdraw = one, withdraw
        self._on_waiting(True)
        return True

    def _answered(
        self, one: _Waiting, answer: Answer, offers: tuple[Scope, ...], *, again: bool
    ) -> None:
        """Decide by an answer; whoever asked, only what was offered allows anything."""
        self._withdraw = None  # it is answered
        if answer == "again" and again and self._question(one, _NOT_TAKEN):
            return
        self._close()
        match answer:
            case "again" | "no":
                self._settle(one, _refused(self._wording.no))
            case No():
                self._settle(one, _refused(answer))
            case scope if scope in offers:
                self._settle(one, Decision(scope=scope, asked=True))
            case _:
                self._settle(one, Decision(why=_NOT_OFFERED, asked=True))
        self._go_on()

    def _close(self) -> None:
        """Have no question stand."""
        if self._open is None:
            return
        withdraw, self._open, self._withdraw = self._withdraw, None, None
        if withdraw is not None:
            withdraw()
        self._on_waiting(False)

    def _refuse_all(self, why: str) -> None:
        """Refuse everything that waits."""
        waiting = [*([self._open] if self._open else []), *self._queue]
        self._queue.clear()
        self._close()
        for one in waiting:
            self._settle(one, Decision(why=why))

    def _settle(self, one: _Waiting, decision: Decision) -> None:
        """Have a decision observed, remember what the user said, and hand it on.

        Where it may not be done after all, nothing is remembered, and the decision is no.
        """
        wanted, why = one.wanted, ""
        unasked = (wanted.of, *wanted.subjects, decision.scope or decision.why)
        if decision.asked or unasked not in self._noted:
            why = self._observe(wanted, decision)
            if not (why or decision.asked):
                self._noted.add(unasked)
        if decision.asked and not why:
            if decision.scope is None:
                self._refused.add(wanted.sha256)
            elif problem := self._grants.add(wanted, decision.scope):
                self._tell(f"that holds for this session, and can't be kept for always: {problem}")
        one.decided(Decision(why=why) if why else decision)
