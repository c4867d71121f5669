"""Asking at the front end's input prompt, where the answer takes the code that stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.host.approvals import answers, wording

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.approvals.answers import Answer
    from cellblock.host.approvals.grants import Grants
    from cellblock.host.approvals.wishes import Wish
    from cellblock.host.session.types import Cell

    #: Puts a text to whoever runs the cell, and returns what takes it back; None where nobody can
    #: be asked. What it is given last is called with what was typed, unless it was taken back.
    Consult = Callable[[str, Callable[[str], None]], Callable[[], None] | None]


class Prompt:
    """Puts wishes as prompts (``clerk.Ask``); ``grants`` know under what is asked."""

    def __init__(self, consult: Consult, grants: Grants) -> None:
        self._consult, self._grants = consult, grants

    def __call__(
        self, wish: Wish, cell: Cell | None, note: str, answered: Callable[[Answer], None]
    ) -> Callable[[], None] | None:
        """Ask; return what takes that back, or None."""
        code, offered = answers.code(), wording.offered(wish)
        text = wording.question(wish, self._grants.under, code, note, cell)
        return self._consult(text, lambda said: answered(answers.read(said, code, offered)))
