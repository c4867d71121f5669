"""The approver: decides about requests for consent in a session, and asks the user if need be.

A cell's imports are asked about before the cell is sent, its calls while it runs. Requests wait in
a queue, and one question at a time is put, answered or withdrawn. An answer allows what was asked
and nothing else. After some refusals, and beyond a number of questions, the rest of a cell's
requests are refused without a question::

    request --> queue --> decided already? --> question --> answer --> settled
                            granted, or                       |  ^
                            refused unasked                   +--+ once, if its code is wrong

A question is put at the front end's input prompt. An answer is the code that the question shows,
and a word. A line that was typed before the question was there, or for a question of the cell's
own, does not have the code, so it allows nothing. A user who forgot the code is asked once more
(ADR 0043).
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
from cellblock.analysis.imports import approvable, imports_to_approve
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
    #: Puts a question. Returns a function that withdraws it, or None if nobody can be asked.
    Ask = Callable[
        [ApprovalRequest, ExecuteRequest | None, str, Callable[["Answer"], None]],
        Callable[[], None] | None,
    ]
    Consult = Callable[[Question, Callable[[str], None]], Callable[[], None] | None]


# --- packages that may be approved: installed for the interpreter, and not by a cell --------------

#: Names of folders that have only installed packages.
_PACKAGE_FOLDERS: Final = ("dist-packages", "site-packages")


def is_installed(package: str, more: tuple[str, ...] = ()) -> bool:
    """Return whether guests find ``package`` among installed ones, or in one of ``more`` folders.

    A package in a notebook's folder, or reached through a link that leads elsewhere, does not
    count. Neither does a namespace package, which has no file of its own: any folder on the path
    can add to it. Nothing is imported.
    """
    try:
        spec = PathFinder.find_spec(package, [*import_path(), *more])
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.origin or not PurePath(spec.origin).is_absolute():
        return False
    real = PurePath(os.path.realpath(spec.origin))
    return any(real.is_relative_to(os.path.realpath(path)) for path in {*_folders(), *more})


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    """Return the folders of packages that are installed for the guests' interpreter."""
    installed_folders = [path for path in import_path() if PurePath(path).name in _PACKAGE_FOLDERS]
    paths = sysconfig.get_paths()
    return (*installed_folders, paths["purelib"], paths["platlib"])


# --- a question, and what counts as an answer -----------------------------------------------------


class No(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal: ``why`` says who refused or why nobody could be asked, ``remedy`` what to do.

    ``asked``: somebody was asked, and refused.
    """

    why: str
    remedy: str
    asked: bool = True


#: ``again`` means that the answer would allow something but its code or scope is wrong. ``no`` is a
#: refusal that the host words (``Wording.no``), a ``No`` one that brings its own words.
Answer = Literal["once", "session", "always", "no", "again"] | No
#: Characters of the longest answer, and digits of a code.
_MAX_ANSWER: Final = 100
_CODE_DIGITS: Final = 3
_SCOPES: Final[dict[str, Scope]] = {
    "a": "always",
    "always": "always",
    "o": "once",
    "once": "once",
    "s": "session",
    "session": "session",
}
_FILLER_WORDS: Final = frozenset({"allow", "this", "y", "yes"})
#: Characters of a policy's name and of a scope that a question shows.
_LONGEST_POLICY_NAME: Final = 64
_LONGEST_SCOPE: Final = 200
_ONCE_MEANINGS: Final[dict[Of, str]] = {
    "call": "this one call, with exactly these arguments",
    "import": "in this cell; what it binds stays bound",
    "keep": "these files, as they are now",
    "start": "",
}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a request: a ``scope`` if it is allowed, otherwise ``why`` it is not.

    ``asked``: the user was asked just now, and decided so. ``remedy`` says what to do instead, and
    is used if the rule that the cell broke has no better one.
    """

    scope: Scope | None = None
    why: str = ""
    remedy: str = ""
    asked: bool = False


class Prompt:
    """An ``Ask`` that puts a request at the front end's input prompt.

    ``grants`` has the scope and policy that the question names.
    """

    def __init__(self, consult: Consult, grants: Grants) -> None:
        self._consult = consult
        self._grants = grants

    def __call__(
        self,
        approval_request: ApprovalRequest,
        cell: ExecuteRequest | None,
        note: str,
        answered: Callable[[Answer], None],
    ) -> Callable[[], None] | None:
        """Put a question. Return a function that withdraws it, or None if nobody can be asked."""
        code = new_code()
        scopes = offered(approval_request)
        prompt = question(approval_request, self._grants.under, code, note, cell)
        return self._consult(prompt, lambda typed: answered(read_answer(typed, code, scopes)))


def new_code() -> str:
    """Return a random code for one question: three digits that do not begin with 0."""
    return str(secrets.randbelow(900) + 100)


def read_answer(text: str, code: str, scopes: tuple[Scope, ...]) -> Answer:
    """Return the answer that ``text`` gives to a question with this code and these ``scopes``.

    The code alone allows once. An answer that would allow something is ``again`` if its code is
    wrong or missing, or if its scope is not offered. Any other text is ``no``.
    """
    words = text[: _MAX_ANSWER + 1].lower().replace(",", " ").split()
    codes = [
        candidate
        for candidate in words
        if len(candidate) == _CODE_DIGITS and candidate.isascii() and candidate.isdigit()
    ]
    all_known = all(word in _SCOPES or word in _FILLER_WORDS or word in codes for word in words)
    scopes_named = {_SCOPES[word] for word in words if word in _SCOPES} or {"once"}
    if not words or not all_known or len(scopes_named) > 1 or len(text) > _MAX_ANSWER:
        return "no"
    scope = scopes_named.pop()
    return scope if codes == [code] and scope in scopes else "again"


def offered(approval_request: ApprovalRequest) -> tuple[Scope, ...]:
    """Return the scopes in which a request can be allowed, the shortest first.

    Keeping is allowed once only. Once is not offered for a request that isn't shown whole, nor for
    a kernel's start.
    """
    if approval_request.of == "keep":
        return ("once",)
    lasting: tuple[Scope, ...] = ("session", "always")
    return (
        ("once", *lasting) if approval_request.whole and approval_request.of != "start" else lasting
    )


def question(
    approval_request: ApprovalRequest,
    under: GrantContext,
    code: str,
    note: str,
    cell: ExecuteRequest | None,
) -> Question:
    """Return the question about a request of this cell, with the meaning of each answer."""
    start = approval_request.of == "start"
    source = "" if cell is None else cell.code
    count = 0 if cell is None else cell.execution_count
    policy = exact(clip(under.policy, _LONGEST_POLICY_NAME))
    place = exact(clip(under.scope, _LONGEST_SCOPE))
    meanings: dict[Scope, str] = {
        "once": _ONCE_MEANINGS[approval_request.of],
        "session": f"{approval_request.all_of}, until this kernel ends",
        "always": f"that, and in later kernels too: policy {policy} as it is now, {place}",
    }
    return Question(
        asks=f"may {'this kernel' if start else f'cell [{count}]'} {approval_request.asks}",
        shown=approval_request.shown,
        offers={scope: meanings[scope] for scope in offered(approval_request)},
        code=code,
        source="" if start else source,
        note=note,
    )


# --- deciding, and asking -------------------------------------------------------------------------

#: Questions for one cell, and refusals, after which the rest of its requests are refused unasked.
MOST_ASKED: Final = 20
MOST_REFUSED: Final = 3
#: Why a yes for this one call does not count although it was given. Other answers always do.
_NOT_OFFERED: Final = (
    "its arguments are too long to be shown whole, so a yes to this one call does not count. Give "
    'it less at once; the program can answer "session" instead'
)
_NOT_TAKEN: Final = "That was not taken: type the code, which is a new one now, and one of these."


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """The words for a refusal, and for later requests of the same cell that are refused unasked.

    Without the latter nothing is refused unasked: a program is asked each time, while a person is
    spared many questions.
    """

    no: No
    #: For the same request, and for others; ``{}`` is the number of refusals.
    again: str = ""
    others: str = ""

    @property
    def spared(self) -> bool:
        """Whether the one who answers is spared many questions."""
        return bool(self.again)


USER: Final = Wording(
    no=No(why="you said no", remedy="You said no. Run the cell again to be asked again."),
    again="you said no to this in this cell",
    others="you said no {} times in this cell",
)
PROGRAM: Final = Wording(no=No(why="the program said no", remedy="The program said no."))
#: For a person whom a program asks. The program may give a refusal in its own words.
PERSON: Final = Wording(
    no=No(why="the person asked said no", remedy="The person asked said no."),
    again="the person asked did not allow this in this cell, and is not asked again",
    others="the person asked did not allow {} requests of this cell, and is asked nothing more",
)


def _refused(no: No) -> Decision:
    return Decision(why=no.why, remedy=no.remedy, asked=no.asked)


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request in the queue, the function that gets the decision, and the call's number if any."""

    request: ApprovalRequest
    decided: Callable[[Decision], None]
    call: int | None


class Approver:
    """A session's decisions about calls, imports, keeping, and a kernel's start.

    An ``Approval`` of ``services.tools.calls``. ``ask`` puts a question. ``observe`` is called with
    each decision that the user made just now, and with any other decision once a cell for each
    subject; it returns why a request may not be granted after all, or an empty string. ``tell``
    shows the user a line. ``wording`` says whether the user is a person or a program.
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
        self._ask = ask
        self._grants = grants
        self._observe = observe
        self._tell = tell
        self._wording = wording
        self._on_waiting: Callable[[bool], None] = lambda _asked: None
        self._queue = deque[_Waiting]()
        #: The request of the question that is put now, and the function that withdraws it.
        self._open: _Waiting | None = None
        self._withdraw: Callable[[], None] | None = None
        #: Whether _decide_queued is on the stack.
        self._goes_on = False
        self._cell: ExecuteRequest | None = None
        #: Why no more questions are put for this cell; empty if they are.
        self._stopped = ""
        #: The number of questions for this cell.
        self._asked = 0
        #: The hashes of requests that the user refused in this cell, and the decisions made without
        #: asking that were observed in it.
        self._refused: set[str] = set()
        self._noted: set[tuple[str, ...]] = set()
        #: The imports that are granted, and the names and rules for which that was found.
        self._granted: Granted | None = None
        self._granted_for: tuple[frozenset[str], Rules | None] = (frozenset(), None)
        #: Folders of packages besides those of the interpreter.
        self.folders: tuple[str, ...] = ()

    # --- a cell -------------------------------------------------------------------------------

    def begin(self, cell: ExecuteRequest) -> None:
        """Begin a cell: requests are asked for it from now on."""
        self._refuse_all("another cell has begun")
        self._cell = cell
        self._stopped = ""
        self._asked = 0
        self._refused.clear()
        self._noted.clear()
        self._grants.begin()

    def end(self) -> None:
        """End the cell: refuse the requests that wait, and ask nobody until another begins."""
        self._cell = None
        self._grants.begin()  # handlers of widgets run later, and have no grants of the cell
        self._refuse_all("the cell has ended")

    def interrupt(self) -> None:
        """Refuse the requests that wait, and all later ones of this cell."""
        self._stopped = "it was interrupted"
        self._refuse_all(self._stopped)

    @property
    def asks(self) -> bool:
        """Whether a question is put now."""
        return self._open is not None

    def narrow_to(self, digest: str) -> None:
        """Apply a narrower policy, by its digest: grants for always were for another one."""
        self._grants.narrow_to(digest)

    def on_waiting(self, waiting: Callable[[bool], None]) -> None:
        """Have ``waiting`` called with True when the user is asked, and with False after that."""
        self._on_waiting = waiting

    # --- calls --------------------------------------------------------------------------------

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Decide about a call, now or later; call one of the two."""
        approval_request = request.of_call(call)
        if approval_request is None:
            refuse("its arguments are no data that can be shown")
            return

        def on_decided(decision: Decision) -> None:
            if decision.scope is not None:
                proceed()
            else:
                refuse(decision.why)

        self._enqueue(approval_request, on_decided, call.number)

    def dropped(self, number: int) -> None:
        """Stop asking about a call that was withdrawn. It is not decided."""
        self._queue = deque(waiting for waiting in self._queue if waiting.call != number)
        if self._open is not None and self._open.call == number:
            self._close()
            self._decide_queued()

    # --- imports ------------------------------------------------------------------------------

    def granted(self, rules: Rules) -> Granted | None:
        """Return the imports that are granted besides those that a policy's ``rules`` allow.

        None if there are none. The result is found anew only if the grants or the rules change.
        """
        names, (known_names, known_rules) = self._grants.imports(), self._granted_for
        if names != known_names or (names and rules is not known_rules):
            imports = [each for name in names for each in approvable(name, rules)]
            installed = [each for each in imports if self._is_importable(each)]
            modules, packages = (
                tuple(sorted({each.name for each in installed if each.kind == kind}))
                for kind in ("module", "package")
            )
            self._granted_for = names, rules
            self._granted = Granted(modules=modules, packages=packages) if installed else None
        return self._granted

    def imports_to_ask_about(self, findings: Iterable[Finding], rules: Rules) -> tuple[Import, ...]:
        """Return the imports that the user could approve so that a cell with these findings runs.

        None of them if the cell could still not run.
        """
        imports = imports_to_approve(findings, rules)
        return imports if all(map(self._is_importable, imports)) else ()

    def _is_importable(self, needed: Import) -> bool:
        return needed.kind == "module" or is_installed(needed.name, self.folders)

    def ask_imports(self, imports: Iterable[Import], decided: Callable[[Decision], None]) -> None:
        """Ask whether the cell may make these imports."""
        source = self._cell.code if self._cell is not None else ""
        self._enqueue(request.of_imports(imports, sha256(source)), decided)

    # --- keeping staged changes -------------------------------------------------------------------

    def ask_keeping(
        self, approval_request: ApprovalRequest, decided: Callable[[Decision], None]
    ) -> None:
        """Ask whether the cell may keep files."""
        self._enqueue(approval_request, decided)

    # --- a kernel's start ---------------------------------------------------------------------

    def may_start(self) -> bool:
        """Return whether a kernel of mode unsafe may start without a question."""
        return self._grants.covers(request.of_start()) is not None

    def ask_start(self, decided: Callable[[Decision], None]) -> None:
        """Ask whether a kernel of mode unsafe may start."""
        self._enqueue(request.of_start(), decided)

    # --- the queue ----------------------------------------------------------------------------

    def _enqueue(
        self,
        approval_request: ApprovalRequest,
        decided: Callable[[Decision], None],
        call: int | None = None,
    ) -> None:
        """Queue a request. ``decided`` may be called before this returns."""
        self._queue.append(_Waiting(approval_request, decided, call))
        self._decide_queued()

    def _decide_queued(self) -> None:
        """Decide the requests in the queue up to the next one that needs a question, and put that.

        A function that gets a decision may queue another request. The loop then finds it, so the
        inner call returns at once.
        """
        if self._goes_on:
            return
        self._goes_on = True
        try:
            while self._open is None and self._queue:
                waiting = self._queue.popleft()
                decision = self._decide_unasked(waiting.request)
                if decision is None and not self._put_question(waiting, ""):
                    decision = Decision(why="nobody can be asked: this front end takes no input")
                if decision is not None:
                    self._settle(waiting, decision)
        finally:
            self._goes_on = False

    def _decide_unasked(self, approval_request: ApprovalRequest) -> Decision | None:
        """Return a decision that needs no question; otherwise count a question and return None."""
        if (scope := self._grants.covers(approval_request)) is not None:
            return Decision(scope=scope)
        why = self._stopped
        if self._cell is None:
            why = "nobody can be asked while no cell runs"
        elif not why and self._wording.spared:
            if approval_request.sha256 in self._refused:
                why = self._wording.again
            elif len(self._refused) >= MOST_REFUSED:
                why = self._wording.others.format(MOST_REFUSED)
            elif self._asked >= MOST_ASKED:
                why = f"one cell may ask {MOST_ASKED} times"
        if why:
            return Decision(why=why)
        self._asked += 1
        return None

    def _put_question(self, waiting: _Waiting, note: str) -> bool:
        """Put a question. Return False if nobody can be asked.

        ``note`` is empty the first time, and says why the user is asked a second time.
        """
        shown_request = request.with_lines(waiting.request)
        offers = offered(shown_request)

        def on_answer(answer: Answer) -> None:
            if self._open is waiting:
                self._answered(waiting, answer, offers, again=not note)

        withdraw = self._ask(shown_request, self._cell, note, on_answer)
        if withdraw is None:
            return False
        self._open, self._withdraw = waiting, withdraw
        self._on_waiting(True)
        return True

    def _answered(
        self, waiting: _Waiting, answer: Answer, offers: tuple[Scope, ...], *, again: bool
    ) -> None:
        """Decide by an answer. Only a scope in ``offers`` allows anything, whoever answers.

        ``again``: a wrong code is asked for once more.
        """
        self._withdraw = None  # the question was answered, so can't be withdrawn any more
        if answer == "again" and again and self._put_question(waiting, _NOT_TAKEN):
            return
        self._close()
        match answer:
            case "again" | "no":
                self._settle(waiting, _refused(self._wording.no))
            case No():
                self._settle(waiting, _refused(answer))
            case scope if scope in offers:
                self._settle(waiting, Decision(scope=scope, asked=True))
            case _:
                self._settle(waiting, Decision(why=_NOT_OFFERED, asked=True))
        self._decide_queued()

    def _close(self) -> None:
        """Withdraw the question that is put now, if there is one."""
        if self._open is None:
            return
        withdraw, self._open, self._withdraw = self._withdraw, None, None
        if withdraw is not None:
            withdraw()
        self._on_waiting(False)

    def _refuse_all(self, why: str) -> None:
        """Refuse the request that is asked about and those in the queue."""
        unsettled = [*([self._open] if self._open else []), *self._queue]
        self._queue.clear()
        self._close()
        for waiting in unsettled:
            self._settle(waiting, Decision(why=why))

    def _settle(self, waiting: _Waiting, decision: Decision) -> None:
        """Report a decision to the observer, remember the user's answer, and pass the decision on.

        If the observer objects, nothing is remembered, and the decision is no.
        """
        approval_request = waiting.request
        why = ""
        audit_entry = (
            approval_request.of,
            *approval_request.subjects,
            decision.scope or decision.why,
        )
        if decision.asked or audit_entry not in self._noted:
            why = self._observe(approval_request, decision)
            if not (why or decision.asked):
                self._noted.add(audit_entry)
        if decision.asked and not why:
            if decision.scope is None:
                self._refused.add(approval_request.sha256)
            elif problem := self._grants.add(approval_request, decision.scope):
                consequence = "your answer holds for this session, and can't be saved for always"
                self._tell(f"{consequence}: {problem}")
        waiting.decided(Decision(why=why) if why else decision)
