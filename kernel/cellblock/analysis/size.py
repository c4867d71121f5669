"""How much source the host looks at: a tree takes it a kilobyte a word, and holds it up."""

from __future__ import annotations

import re
from typing import Final

#: Characters of a cell, or of one expression.
CHARACTERS: Final = 4 << 20
#: Words and signs, those in text and comments too: a third of a gigabyte and a second.
WORDS: Final = 400_000
_WORD: Final = re.compile(r"\w+|[^\w\s]")


def excess(source: str) -> tuple[int, int, str] | None:
    """Return what there is too much of, how much is looked at, and of what; None if it fits."""
    if len(source) > CHARACTERS:
        return len(source), CHARACTERS, "characters"
    if len(source) > WORDS and (words := sum(1 for _ in _WORD.finditer(source))) > WORDS:
        return words, WORDS, "words and signs"
    return None
