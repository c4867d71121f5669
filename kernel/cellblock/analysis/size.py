"""How much source is looked at: what is costs the host at most some 3 s and 0.8 GB.

CPython's parser takes up to 2 kB and 5 us a word, but for two shapes, which cost it the square of
their length. Those are looked for before it parses.
"""

from __future__ import annotations

import re
from typing import Final

#: Characters of a cell, or of one expression.
CHARACTERS: Final = 4 << 20
#: Words and signs, those in text and comments too.
WORDS: Final = 400_000
_WORD: Final = re.compile(r"\w+|[^\w\s]")

#: Source that is too short for any shape to matter.
_SHORT: Final = 4096
#: ``import a.b.c`` joins the name anew at each dot and keeps what it joined: characters in all.
DOTTED_CHARACTERS: Final = 50_000_000
_DOTS: Final = 64
_NAME: Final = r"[\w\x80-\U0010ffff]"
_DOTTED: Final = re.compile(rf"(?<!{_NAME}){_NAME}++(?:[\s\\]*+\.[\s\\]*+{_NAME}++)++")
#: Python 3.11 looks for each field of an f-string from its start: characters looked at in all.
FORMATTED_CHARACTERS: Final = 2_000_000_000
_FORMATTED: Final = re.compile(r"(?<!\w)(?:[ft]r?|r[ft])(\"\"\"|'''|\"|')", re.IGNORECASE)
_ENDS: Final = {quote: re.compile(rf"(?<!\\){quote}") for quote in ('"""', "'''")} | {
    quote: re.compile(rf"(?<!\\)[{quote}\n]") for quote in ('"', "'")
}


def excess(source: str) -> tuple[int, int, str] | None:
    """Return what there is too much of, how much is looked at, and of what; None if it fits."""
    if len(source) > CHARACTERS:
        return len(source), CHARACTERS, "characters"
    if len(source) > WORDS and (words := sum(1 for _ in _WORD.finditer(source))) > WORDS:
        return words, WORDS, "words and signs"
    return None


def check_shape(source: str) -> None:
    """Raise ValueError for source that would cost Python's parser the square of its length."""
    if len(source) <= _SHORT:
        return
    if source.count(".") > _DOTS and _joined(source) > DOTTED_CHARACTERS:
        raise ValueError("a name of too many parts")
    if source.count("{") > _DOTS and _searched(source) > FORMATTED_CHARACTERS:
        raise ValueError("an f-string of too many fields")


def _joined(source: str) -> int:
    """Return how many characters the parser joins for dotted names, if all of them were imports."""
    names = (found[0] for found in _DOTTED.finditer(source))
    return sum(name.count(".") * len(name) // 2 for name in names if name.count(".") > _DOTS)


def _searched(source: str) -> int:
    """Return how many characters Python 3.11 looks at for the fields of all f-strings, at most.

    What looks like the beginning of one counts, in text and comments too: no text can hide one.
    """
    total = 0
    for start in _FORMATTED.finditer(source):
        end = _ENDS[start[1]].search(source, start.end())
        length = (end.start() if end else len(source)) - start.end()
        total += length * source.count("{", start.end(), start.end() + length)
    return total
