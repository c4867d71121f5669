"""A question of the host to its user: plain text, for an input prompt.

It contains everything that is decided, since a cell may have written all else on the page. Each
line begins with a mark that a cell's own prompts can't have, as they can't have a second line.
The code is new each time, so an answer to an earlier question answers nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.render.text import COLUMNS, HOSTS_MARK, clip, exact, pieces, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping


_COLUMNS: Final = COLUMNS - 2
#: Characters of a line of the cell's, of a scope, and of a policy's name.
_LINE: Final = 56
_MEANING: Final = 9
_GOES_ON: Final = "¬"
#: Characters that are named which are not ASCII.
_MOST_LETTERS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question. ``shown`` are lines that have passed ``exact``, broken to fit.

    ``offers`` maps each answer that allows it to its meaning, the narrowest first. ``note`` says
    why it is asked again.
    """

    asks: str
    shown: tuple[str, ...]
    offers: Mapping[str, str]
    code: str
    source: str = ""
    note: str = ""

    @property
    def begins(self) -> tuple[str, ...]:
        """A line that says how the cell begins, or none."""
        first = next((line for line in self.source.splitlines() if line.strip()), "")
        return (f"The cell begins: {clip(exact(first.strip()), _LINE)}",) if first else ()

    def __str__(self) -> str:
        return prompt(self)


def prompt(asked: Question) -> str:
    """Return the prompt; the user types the answer behind it."""
    lines = wrap(f"cellblock asks: {asked.asks}", columns=_COLUMNS)
    lines += [*asked.shown, *asked.begins]
    for answer, meaning in asked.offers.items():
        indent = f"{answer:<{_MEANING}}"
        lines += wrap(meaning, indent=indent, hanging=" " * _MEANING, columns=_COLUMNS)
    *others, last = (
        f"{asked.code} (once)" if answer == "once" else f"{asked.code} {answer}"
        for answer in asked.offers
    )
    last = last if others else asked.code
    ways = f"{', '.join(others)} or {last}" if others else last
    lines += wrap(f"To allow it, type {ways}. Anything else is no.", columns=_COLUMNS)
    lines += wrap(asked.note, columns=_COLUMNS) if asked.note else []
    return "".join(f"{HOSTS_MARK} {line}\n" for line in lines) + f"{HOSTS_MARK} Answer: "


def laid_out(name: str, literal: str) -> list[str]:
    """Return lines for ``name = literal``: nothing is left out, no blank is added or lost.

    A line that continues in the next ends with a mark, so that its last blank is seen.
    """
    first, *rest = pieces(f"{name} = {literal}", _COLUMNS - 7)
    lines = [f"  {first}", *(f"      {piece}" for piece in rest)]
    return [*(f"{line}{_GOES_ON}" for line in lines[:-1]), lines[-1]]


def letters(text: str) -> list[str]:
    """Return lines that name the visible characters of a text that are not ASCII.

    Some look like ASCII; those that do most come first, since not all may be named.
    """
    shown = (char for char in text if not char.isascii() and exact(char) == char)
    found = sorted(dict.fromkeys(shown), key=_unlike_ascii)
    if not found:
        return []
    more = f" and {len(found) - _MOST_LETTERS} more" if len(found) > _MOST_LETTERS else ""
    named = ", ".join(f"{char} (U+{ord(char):04X})" for char in found[:_MOST_LETTERS])
    return wrap(f"not ASCII: {named}{more}", indent="  ", hanging=" " * 13, columns=_COLUMNS)


def _unlike_ascii(char: str) -> int:
    """Return how unlike ASCII a character looks, roughly.

    Digits come first (Bengali's four is drawn as an 8), then signs (a slash that parts no folders)
    and letters, then Latin letters with an accent, then what is two columns wide (UAX #11).
    """
    if unicodedata.east_asian_width(char) == "W":
        return 3
    if char.isalpha():
        return 2 if unicodedata.decomposition(char).startswith("00") else 1
    return 0 if char.isnumeric() else 1
