"""Asking at the front end's input prompt: a request as a question, and what counts as an answer.

An answer is the code that stands in the question, and a word. A line that was typed before the
question was there, or for a question of the cell's, does not have the code. So nothing is allowed
by it; who forgot the code is asked once more.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cellblock.render import question as render
from cellblock.render.text import clip, exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.grants import GrantContext, Grants, Of, Scope
    from cellblock.host.consent.request import ApprovalRequest
    from cellblock.host.session.types import ExecuteRequest

    Consult = Callable[[str, Callable[[str], None]], Callable[[], None] | None]

#: ``again`` is a request to allow that does not hold.
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

    ``asked``: the user was, and said so.
    """

    scope: Scope | None = None
    why: str = ""
    asked: bool = False


class Prompt:
    """Puts requests as prompts (``approver.Ask``); ``grants`` know for what scope and policy."""

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
        text = question(wanted, self._grants.under, code, note, cell)
        return self._consult(text, lambda typed: answered(read(typed, code, scopes)))


def new_code() -> str:
    """Return a code for one question: three digits, the first of them no zero."""
    return str(secrets.randbelow(900) + 100)


def read(text: str, code: str, scopes: tuple[Scope, ...]) -> Answer:
    """Return what ``text`` says to a question with this code; the code by itself is for once.

    ``again`` is returned without the code, or for a word that is not among ``scopes``.
    """
    words = text[: _LONGEST + 1].lower().replace(",", " ").split()
    codes = [w for w in words if len(w) == _DIGITS and w.isascii() and w.isdigit()]
    known = all(word in _SCOPES or word in _FILLING or word in codes for word in words)
    meant = {_SCOPES[word] for word in words if word in _SCOPES} or {"once"}
    if not words or not known or len(meant) > 1 or len(text) > _LONGEST:
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
) -> str:
    """Return the prompt for a request of this cell: who asks, for what, what each answer means."""
    start, source = wanted.of == "start", "" if cell is None else cell.code
    count = 0 if cell is None else cell.execution_count
    policy, place = exact(clip(under.policy, _NAME)), exact(clip(under.scope, _SCOPE))
    meanings: dict[Scope, str] = {
        "once": _ONCE[wanted.of],
        "session": f"{wanted.all_of}, until this kernel ends",
        "always": f"that, and in later kernels too: policy {policy} as it is now, {place}",
    }
    return render.question(
        render.Question(
            asks=f"may {'this kernel' if start else f'cell [{count}]'} {wanted.asks}",
            shown=wanted.shown,
            offers={scope: meanings[scope] for scope in offered(wanted)},
            code=code,
            source="" if start else source,
            note=note,
        )
    )
