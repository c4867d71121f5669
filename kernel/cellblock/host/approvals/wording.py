"""A wish as a question: who asks, for what, and what each answer means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.host.approvals import answers
from cellblock.render import question as asked
from cellblock.render.text import clip, exact

if TYPE_CHECKING:
    from cellblock.host.approvals.grants import Under
    from cellblock.host.approvals.wishes import Of, Scope, Wish
    from cellblock.host.session.types import Cell

#: Characters of a policy's name, and of a scope.
_NAME: Final = 64
_SCOPE: Final = 200
_ONCE: Final[dict[Of, str]] = {
    "call": "this one call, with exactly these arguments",
    "import": "in this cell; what it binds stays bound",
    "start": "",
}


def question(wish: Wish, under: Under, code: str, note: str, cell: Cell | None) -> str:
    """Return the prompt for a wish of this cell."""
    start, source = wish.of == "start", "" if cell is None else cell.raw
    count = 0 if cell is None else cell.execution_count
    return asked.question(
        asked.Question(
            asks=f"may {'this kernel' if start else f'cell [{count}]'} {wish.asks}",
            shown=wish.shown,
            offers={scope: _means(scope, wish, under) for scope in offered(wish)},
            code=code,
            source="" if start else source,
            note=note,
        )
    )


def offered(wish: Wish) -> tuple[Scope, ...]:
    """Return by which words a wish can be allowed, the narrowest first."""
    return answers.offered(whole=wish.whole, start=wish.of == "start")


def _means(scope: Scope, wish: Wish, under: Under) -> str:
    if scope == "once":
        return _ONCE[wish.of]
    if scope == "session":
        return f"{wish.all_of}, until this kernel ends"
    policy, place = exact(clip(under.policy, _NAME)), exact(clip(under.scope, _SCOPE))
    return f"that, and in later kernels too: policy {policy} as it is now, {place}"
