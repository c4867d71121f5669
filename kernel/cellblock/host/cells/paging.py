"""``%output``: what it asks for, and the card that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.host.output.terminal import clean_text, without_styles
from cellblock.render.kept import Row, kept_list, kept_note, kept_page

if TYPE_CHECKING:
    from cellblock.host.kept import Kept, Text
    from cellblock.render.bundle import Bundle

_KINDS: Final = ("stdout", "stderr", "display")
_USAGE: Final = (
    "%output lists what is kept; %output 7 shows cell 7's first page, %output 7 2 and "
    "%output 7 last others, %output 7 stderr another stream."
)
_MOST_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Asked:
    """A cell's number, which of its texts, and the page: 0 is the last."""

    cell: int
    kind: str | None = None
    page: int = 1


def answer(kept: Kept, argument: str) -> Bundle:
    """Return the card for ``%output argument``."""
    if not argument.strip():
        return kept_list([_row(text) for text in kept.texts()])
    asked = parse(argument)
    return kept_note(_USAGE) if asked is None else _page(kept, asked)


def parse(argument: str) -> Asked | None:
    """Read an argument: a number, then a stream and a page, each once; None if it is none."""
    words = argument.split()
    cell = _number(words[0]) if words else None
    if cell is None:
        return None
    found: dict[str, str | int] = {}
    for word in words[1:]:
        key, value = ("kind", word) if word in _KINDS else ("page", _page_number(word))
        if value is None or key in found:
            return None
        found[key] = value
    kind, page = found.get("kind"), found.get("page", 1)
    return Asked(cell, None if kind is None else str(kind), int(page))


def _page_number(word: str) -> int | None:
    return 0 if word == "last" else _number(word) or None


def _number(word: str) -> int | None:
    known = word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS
    return int(word) if known else None


def command(cell: int, kind: str) -> str:
    """Return what shows a text's first page."""
    return f"%output {cell}" if kind == "stdout" else f"%output {cell} {kind}"


def remedy(text: Text | None) -> str:
    """Return where to read what was left out, for the line that says how much that was."""
    if text is None:
        return ""
    if not text.size:
        return f". Not kept: {text.failure}" if text.failure else ""
    said = f"Its first {text.size:,} bytes" if text.cut else "All of it"
    why = f" ({text.failure})" if text.failure else ""
    return f". {said}{why}: {command(text.cell, text.kind)}"


def _row(text: Text) -> Row:
    missing = ""
    if text.cut:
        missing = f"its beginning: {text.failure}" if text.failure else "its beginning"
    return Row(text.cell, text.kind, text.size, command(text.cell, text.kind), missing)


def _page(kept: Kept, asked: Asked) -> Bundle:
    texts = [t for t in kept.texts() if t.cell == asked.cell and asked.kind in (None, t.kind)]
    if not texts:
        return kept_note(_nothing(kept, asked))
    text = min(texts, key=lambda t: _KINDS.index(t.kind))
    row = _row(text)
    try:
        page = kept.page(text, asked.page)
    except IndexError as exc:
        return kept_note(f"There are {exc.args[0]:,} pages: {row.command} last")
    except OSError as exc:
        return kept_note(f"What was kept can't be read: {exc.strerror or exc}.")
    content = without_styles(clean_text(page.content))
    return kept_page(row, page.number, page.count, content)


def _nothing(kept: Kept, asked: Asked) -> str:
    what = f"{asked.kind} of cell {asked.cell}" if asked.kind else f"cell {asked.cell}"
    cells = sorted({text.cell for text in kept.texts()})
    those = "cell" if len(cells) == 1 else "cells"
    there = f"; there is output of {those} {_joined(cells)}" if cells else ""
    return f"Nothing is kept of {what}{there}."


def _joined(cells: list[int]) -> str:
    first = ", ".join(map(str, cells[-10:]))
    return f"…, {first}" if len(cells) > 10 else first  # noqa: PLR2004
