"""What counts as an answer: the code that stands in the question, and a word.

A line that was typed before the question was there, or for a question of the cell's, does not
have the code. So nothing is allowed by it; who forgot the code is asked once more.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.host.approvals.wishes import Scope

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


def code() -> str:
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
