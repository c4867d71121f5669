"""Plain text for terminals: visible characters, display width, wrapping.

Widths follow UAX #11 (wide and fullwidth take two columns) and count combining marks as none.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


COLUMNS = 80
#: Begins each line of the host's questions; no question of a cell has it.
HOSTS_MARK = "┃"
#: Letters and symbols that draw nothing: the Hangul fillers, Braille's blank.
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
#: Bidirectional classes (UAX #9) that reorder their neighbours, and categories of marks, which are
#: drawn over their neighbours or not at all.
_REORDERING = frozenset({"R", "AL", "AN"})
_MARKS = frozenset({"Mn", "Me"})
_CONTROL_PICTURES = 0x2400
ELLIPSIS = "…"


def _is_visible(char: str) -> bool:
    return char.isprintable() and char not in _BLANK_LETTERS


def visible(text: str) -> str:
    """Return ``text`` with every control, format and blank character spelled out.

    C0 controls become control pictures, all else ``⟨U+202E⟩``. What is left can neither move a
    terminal's cursor, nor reorder a line, nor hide in it.
    """
    if text.isprintable() and _BLANK_LETTERS.isdisjoint(text):
        return text
    return "".join(char if _is_visible(char) else _picture(char) for char in text)


def _picture(char: str) -> str:
    return chr(_CONTROL_PICTURES + ord(char)) if char < " " else f"⟨U+{ord(char):04X}⟩"


def visible_lines(text: str) -> str:
    """Return ``text`` as ``visible`` does, with its line breaks kept."""
    return "\n".join(map(visible, text.splitlines()))


def exact(text: str) -> str:
    """Return ``text`` as one line that can be read in only one way, for a person who decides by it.

    What ``visible`` spells out is a Python escape here, and so are right-to-left letters and
    marks: what is left stands in the order of the text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_exact(char) else _python_escape(char) for char in text)


def _is_exact(char: str) -> bool:
    reorders = unicodedata.bidirectional(char) in _REORDERING
    return _is_visible(char) and not reorders and unicodedata.category(char) not in _MARKS


def _python_escape(char: str) -> str:
    number = ord(char)
    if number < 1 << 8:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def encodable(text: str) -> str:
    """Return ``text`` with lone surrogates replaced: they can't be sent as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def width(text: str) -> int:
    """Return how many terminal columns ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, columns: int) -> str:
    """Return ``text`` cut to ``columns`` with an ellipsis where it was cut."""
    if width(text) <= columns:
        return text
    head = next(pieces(text, columns - 1))
    return head + ELLIPSIS if width(head) < columns else ELLIPSIS


def pieces(word: str, columns: int) -> Iterator[str]:
    """Yield ``word`` in pieces that fit, at least one character each; one walk, however long."""
    start = used = 0
    for index, char in enumerate(word):
        wide = _char_width(char)
        if used + wide > columns and index > start:
            yield word[start:index]
            start, used = index, 0
        used += wide
    yield word[start:]


def wrap(
    text: str, *, indent: str = "", hanging: str | None = None, columns: int = COLUMNS
) -> list[str]:
    """Break ``text`` at spaces; words longer than a line are broken where the line ends.

    The first line starts with ``indent``, the others with ``hanging``. Line breaks in ``text``
    start a new paragraph.
    """
    hanging = indent if hanging is None else hanging
    longest = max(8, columns - width(hanging))
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line, empty = hanging if lines else indent, True
        for word in visible(paragraph).split():
            for piece in pieces(word, longest) if width(word) > longest else (word,):
                if not empty and width(line) + 1 + width(piece) > columns:
                    lines.append(line)
                    line, empty = hanging, True
                line += piece if empty else f" {piece}"
                empty = False
        lines.append(line.rstrip())
    return lines
