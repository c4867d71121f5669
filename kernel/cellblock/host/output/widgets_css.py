"""One CSS value of a widget's layout or style: what the browser sets by name, so no more than one.

Invariant: what passes names no resource (no ``url()``, no function that is not listed, no escape)
and takes no box out of its place: no negative length, no offset.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cellblock.host.output.refusal import RefusedError

_LONGEST: Final = 500
_FUNCTIONS: Final = frozenset(
    (
        *("calc", "clamp", "color-mix", "fit-content", "hsl", "hsla", "hwb", "lab", "lch"),
        *("linear-gradient", "max", "min", "minmax", "oklab", "oklch", "radial-gradient"),
        *("repeat", "rgb", "rgba", "var"),
    )
)
_CHARACTERS: Final = re.compile(
    r"""(?:[\w#%.+*/,()\s-]|'[\w ,.+-]*+'|"[\w ,.+\s-]*+")*+""", re.ASCII
)
_CALL: Final = re.compile(r"([\w-]*+)\(", re.ASCII)
_NEGATIVE: Final = re.compile(r"(?<![\w-])-\s*+[\d.(]", re.ASCII)
_STILL: Final = re.compile(r"(?:0(?:px|%|em)?|auto|inherit|initial|unset|revert)?")


def value(text: Any) -> str | None:
    """Return a property's value, None for none. Raises ``RefusedError``."""
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _LONGEST or not _CHARACTERS.fullmatch(text):
        raise RefusedError("not a plain CSS value")
    for call in _CALL.finditer(text):
        if call[1] and call[1].lower() not in _FUNCTIONS:
            raise RefusedError(f"{call[1][:40]}() is not allowed")
    return str(text)


def size(text: Any) -> str | None:
    """Return a length, border, track list or colour: anything that is not negative."""
    said = value(text)
    if said is not None and _NEGATIVE.search(said) and "(" not in said:
        raise RefusedError("negative")
    return said


def margin(text: Any) -> str | None:
    """Return a margin that pulls nothing over its neighbours, whatever is computed."""
    said = size(text)
    if said is not None and "(" in said:
        raise RefusedError("computed margins are not allowed")
    return said


def offset(text: Any) -> str | None:
    """Return an offset (top, left) that moves nothing."""
    said = value(text)
    if said is not None and not _STILL.fullmatch(said.strip().lower()):
        raise RefusedError("moves the widget over its neighbours")
    return said
