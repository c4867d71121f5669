"""What the value of a widget's key may be: one function a kind, a value in, what may pass out.

Types are held to the letter. A view that stumbles shows its error, and the front end's box for
errors makes HTML of what the error quotes: a number format, an icon's name, a tag.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import latex, names, widgets_css
from cellblock.host.output.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.output.widgets_scope import Scope

_MOST: Final = 100_000
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{0,40}")
#: d3-format's own grammar, with a fill that is no markup and room for no more than a line.
_NUMBER_FORMAT: Final = re.compile(
    r"(?:[\w .*-]?[<>=^])?[+( -]?[$#]?0?\d{0,2},?(?:\.\d{1,2})?~?[A-Za-z%]?", re.ASCII
)
_MOMENT: Final = re.compile(r"[\d:.+TZ-]{0,40}", re.ASCII)
_PIXELS: Final = re.compile(r"(?:\d{1,5}(?:\.\d{1,3})?(?:px|%|em|rem|vw|vh)?)?", re.ASCII)
_COLOR: Final = re.compile(r"#?[\w(),.%/ -]{0,100}", re.ASCII)
_CLASS: Final = re.compile(r"[A-Za-z_][\w-]{0,99}", re.ASCII)
#: What ``interact`` marks its box with; it has a margin and no more.
_OWN_CLASSES: Final = frozenset(("widget-interact",))
#: Not those that are drawn beside or upon their place.
_GLYPH: Final = r"(?!(?:fa-)?(?:li|stack)\b)[a-z0-9]+(?:-[a-z0-9]+)*"
#: A button's view puts ``fa-`` before each word, that of several buttons before the first alone.
_ICON: Final = re.compile(rf"(?:{_GLYPH}(?: {_GLYPH}){{0,3}})?", re.ASCII)
_CLASS_ICON: Final = re.compile(rf"(?:{_GLYPH}(?: (?=fa-){_GLYPH}){{0,3}})?", re.ASCII)
_FILE: Final = ("name", "type", "size", "last_modified", "content")


# --- plain ------------------------------------------------------------------------------------


def flag(value: Any, _: Scope) -> bool | None:
    """Return true, false or null."""
    if value is None or type(value) is bool:
        return value
    raise RefusedError("not true or false")


def markup(value: Any, scope: Scope) -> bool | None:
    """Return whether a description is HTML: no flag like others, for what it changes."""
    return flag(value, scope)


def number(value: Any, _: Scope) -> float | None:
    """Return a finite number or null."""
    if value is None or type(value) is int or type(value) is bool:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    raise RefusedError("not a number")


def numbers(value: Any, scope: Scope) -> Any:
    """Return a number, or a list of them."""
    if type(value) is list:
        return [number(item, scope) for item in items(value)]
    return number(value, scope)


def text(value: Any, _: Scope) -> str | None:
    """Return text that is only ever shown as text."""
    if value is None or type(value) is str:
        return value
    raise RefusedError("not text")


def texts(value: Any, scope: Scope) -> list[str]:
    """Return a list of texts."""
    return [text(item, scope) or "" for item in items(value)]


def items(value: Any) -> Any:
    """Return a list that is not too long. Raises ``RefusedError``."""
    if type(value) is not list or len(value) > _MOST:
        raise RefusedError("not a list")
    return value


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[Any, Scope], str | None]:
    def kind(value: Any, _: Scope) -> str | None:
        if value is None or (type(value) is str and pattern.fullmatch(value)):
            return value
        raise RefusedError(f"not {what}")

    return kind


word = _matching(_WORD, "a known word")
number_format = _matching(_NUMBER_FORMAT, "a number format")
pixels = _matching(_PIXELS, "a length")
icon = _matching(_ICON, "an icon's name")
_class_icon = _matching(_CLASS_ICON, "an icon's name")
#: What a widget calls its bytes; ``widgets_state`` sees both.
media_format = _matching(re.compile(r"[a-z0-9+.-]{0,40}", re.ASCII), "a format")


def icons(value: Any, scope: Scope) -> list[str]:
    """Return names of icons for several buttons."""
    return [_class_icon(item, scope) or "" for item in items(value)]


def color(value: Any, _: Scope) -> str | None:
    """Return a colour."""
    said = widgets_css.value(value)
    if said is not None and not _COLOR.fullmatch(said):
        raise RefusedError("not a colour")
    return said


def colors(value: Any, scope: Scope) -> list[str]:
    """Return a list of colours."""
    return [color(item, scope) or "" for item in items(value)]


def moment(value: Any, scope: Scope) -> Any:
    """Return a date, a time or both, as the front end's pickers write them."""
    if type(value) is dict:
        parts = [key for key in value if type(key) is str and _WORD.fullmatch(key)]
        return {key: number(value[key], scope) for key in parts[:10]}
    if type(value) is str and (_MOMENT.fullmatch(value) or value == "any"):
        return value
    return number(value, scope)


def files(value: Any, _: Scope) -> list[dict[str, Any]]:
    """Return what a user uploaded and the cell still has; a front end counts it."""
    rows = [row for row in items(value) if type(row) is dict]
    return [{key: _field(row.get(key)) for key in _FILE if key in row} for row in rows]


def _field(value: Any) -> Any:
    if isinstance(value, bytes | str | int | float | None):
        return value
    raise RefusedError("not a file")


# --- looks ------------------------------------------------------------------------------------


def css(value: Any, _: Scope) -> str | None:
    """Return a CSS value."""
    return widgets_css.value(value)


def size(value: Any, _: Scope) -> str | None:
    """Return a CSS value that is not negative."""
    return widgets_css.size(value)


def margin(value: Any, _: Scope) -> str | None:
    """Return a margin."""
    return widgets_css.margin(value)


def offset(value: Any, _: Scope) -> str | None:
    """Return an offset that moves nothing."""
    return widgets_css.offset(value)


def classes(value: Any, _: Scope) -> list[str]:
    """Return the class names that mean nothing to the page."""
    kept = [name for name in items(value) if type(name) is str and _CLASS.fullmatch(name)]
    return [name for name in kept if name in _OWN_CLASSES or names.is_own_class(name)]


# --- markup -----------------------------------------------------------------------------------


def html(value: Any, scope: Scope) -> str | None:
    """Return sanitised HTML; of what is all refused, a word in its place."""
    said = text(value, scope)
    if not said:
        return said
    from cellblock.host.output import html as cleaner  # noqa: PLC0415 - as in the gateway

    try:
        return cleaner.clean(said)
    except RefusedError as refused:
        return f"<small>[cellblock left out {refused}]</small>"


def formula(value: Any, scope: Scope) -> str | None:
    """Return text in which formulas are set."""
    said = text(value, scope)
    return latex.clean_formulas(said) if said else said


def label(value: Any, scope: Scope) -> str | None:
    """Return a description; whether it is HTML is for ``widgets_state`` to know."""
    return text(value, scope)


def media(value: Any, _: Scope) -> bytes:
    """Return the bytes of an image, a sound or a film; checked in ``widgets_state``."""
    if isinstance(value, bytes):
        return value
    raise RefusedError("not bytes")
