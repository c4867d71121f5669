r"""Formulas in Markdown, where a front end could make attributes or commands of them.

JupyterLab takes formulas out of the text, leaves ``@@0@@`` in their places, parses what is left
and puts them back with only ``&``, ``<`` and ``>`` escaped. One whose place went into an attribute
(a link's address or title, the language of a code block) ends it with its quotes and starts a
handler. And what a formula says is settled only when Markdown's entities and escapes are gone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from html import unescape
from typing import Final

from cellblock.host.output.latex import JOINER

#: What starts a formula, or an escape that could spell a formula's place.
_MARK: Final = re.compile(r"[$\\]")
_BLANK_LINE: Final = re.compile(r"\n\s*\n")
_PLACE: Final = re.compile(r"@(?=@\d)")
_ADDRESS: Final = re.compile(r"(?:(?:https?|ftp)://|www\.)[^\s<]*+", re.IGNORECASE)
_LINKED: Final = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_ENTITY: Final = re.compile(r"&(?=(#\d{1,8}|#[xX][0-9A-Fa-f]{1,7}|[A-Za-z][A-Za-z0-9]{1,31}))")
_COMMAND: Final = re.compile(r"[A-Za-z\\]")
_UNSETTLED: Final = re.compile(r"[$\\@&<]")


def settle(text: str) -> str:
    """Return Markdown without places of formulas, addresses that hold one, or spelled commands."""
    if "@@" in text:
        text = _PLACE.sub("@" + JOINER, text)
    if "&" in text:
        text = _ENTITY.sub(_entity, text)
    return _ADDRESS.sub(_address, text) if _MARK.search(text) else text


def _entity(found: re.Match[str]) -> str:
    """Break an entity that stands for a part of a command's name."""
    name = f"&{found[1]};"
    character = unescape(name)
    return "&" + JOINER if character != name and _COMMAND.search(character) else "&"


def _address(found: re.Match[str]) -> str:
    """Break an address that would be a link by itself, if a formula starts within."""
    return _LINKED.sub(JOINER, found[0]) if _MARK.search(found[0]) else found[0]


def is_language(info: str) -> bool:
    """Tell whether what names a code block's language does nothing else."""
    return _UNSETTLED.search(info) is None


class Formulas:
    """Where formulas could start in one text."""

    def __init__(self, text: str) -> None:
        self._marks = [mark.start() for mark in _MARK.finditer(text)]
        blanks = _BLANK_LINE.finditer(text) if self._marks else ()
        self._ends = [blank.start() for blank in blanks]

    def follow(self, at: int) -> bool:
        """Tell whether one could start between ``at`` and its paragraph's end."""
        mark = bisect_left(self._marks, at)
        if mark == len(self._marks):
            return False
        end = bisect_left(self._ends, at)
        return end == len(self._ends) or self._marks[mark] < self._ends[end]
