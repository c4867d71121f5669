"""How a status looks: a symbol and a colour, always beside the word itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cellblock.render import markup as m


@dataclass(frozen=True, slots=True)
class Look:
    """A status's symbol and its colour in HTML."""

    symbol: str
    color: str


LOOKS: Final = {
    "asserted": Look("●", m.GREEN),
    "partial": Look("◐", m.AMBER),
    "unavailable": Look("○", m.GREY),
    "unenforced": Look("✗", m.RED),
    "verified": Look("✓", m.GREEN),
}
_UNKNOWN: Final = Look("?", m.RED)


def look(status: str) -> Look:
    """Return how ``status`` is shown; an unknown one is shown as bad."""
    return LOOKS.get(status, _UNKNOWN)


def badge(status: str) -> m.Html:
    """Return symbol and word in the status's colour."""
    shown = look(status)
    symbol = m.element("span", shown.symbol, aria_hidden="true", style=f"color:{shown.color}")
    return m.element("span", symbol, f" {status}", style="white-space:nowrap;font-weight:600")


def capability_words(capability: str) -> str:
    """Return a policy field's name as words: ``network access``."""
    return capability.replace("_", " ").replace(".", " ")
