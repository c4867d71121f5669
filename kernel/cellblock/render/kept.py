"""What ``%output`` shows: a list of what is kept, a page of it, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.render import markup as m
from cellblock.render.bundle import Bundle, count
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

_TITLE: Final = "Output kept on disk"
_SYMBOL: Final = "≡"


@dataclass(frozen=True, slots=True)
class KeptRow:
    """One text that is kept: bytes, what shows it, and what is missing at its end."""

    cell: int
    kind: str
    size: int
    command: str
    missing: str


def kept_list(rows: Sequence[KeptRow]) -> Bundle:
    """Return the card that lists what is kept."""
    if not rows:
        return kept_note("Nothing is kept: no cell has said more than was shown.")
    lines = [f"  {_row(row)}" for row in rows]
    items = (m.paragraph(_row(row), tight=True) for row in rows)
    return {
        "text/plain": "\n".join([_TITLE, *lines]),
        "text/html": m.card(_TITLE, *items, symbol=_SYMBOL, color=m.GREY, label=_TITLE),
    }


def _row(row: KeptRow) -> str:
    missing = f" ({row.missing})" if row.missing else ""
    return f"cell {row.cell}, {row.kind}, {count(row.size, 'byte')}{missing}: {row.command}"


def kept_page(row: KeptRow, number: int, pages: int, content: str) -> Bundle:
    """Return the card for one page; ``content`` has no terminal sequences any more."""
    title = f"Output of cell {row.cell}, {row.kind}"
    where = f"page {number:,} of {pages:,}"
    if number < pages:
        where += f": {row.command} {number + 1}"
    elif row.missing:
        where += f" ({row.missing})"
    text = "\n".join(map(visible, content.expandtabs().split("\n")))
    style = (
        f"font-family:{m.MONO};font-size:{m.MONO_SIZE};white-space:pre-wrap;"
        "overflow:auto;max-height:32em;margin:8px 0 0"
    )
    body = (m.paragraph(where, tight=True), m.element("pre", text, style=style))
    return {
        "text/plain": f"{title}\n{where}\n{text}",
        "text/html": m.card(title, *body, symbol=_SYMBOL, color=m.GREY, label=title),
    }


def kept_note(line: str) -> Bundle:
    """Return the card for one line."""
    shown = visible(line)
    return {
        "text/plain": shown,
        "text/html": m.card(shown, symbol=_SYMBOL, color=m.GREY, label=shown),
    }
