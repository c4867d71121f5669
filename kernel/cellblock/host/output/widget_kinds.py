"""What the value of a widget's key may be: one function a kind, a value in, what may pass out.

Types are held to the letter. A view that stumbles shows its error, and the front end's box for
errors makes HTML of what the error quotes: a number format, an icon's name, a tag.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway, names
from cellblock.host.output.text import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


# One CSS value of a widget's layout or style: what the browser sets by name, so no more than
# one.
#
# Invariant: what passes names no resource (no ``url()``, no function that is not listed, no
# escape) and takes no box out of its place: no negative length, no offset.

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


def css_value(text: Any) -> str | None:
    """Return a property's value, None for none. Raises ``RefusedError``."""
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _LONGEST or not _CHARACTERS.fullmatch(text):
        raise RefusedError("not a plain CSS value")
    for call in _CALL.finditer(text):
        if call[1] and call[1].lower() not in _FUNCTIONS:
            raise RefusedError(f"{call[1][:40]}() is not allowed")
    return str(text)


def css_size(text: Any) -> str | None:
    """Return a length, border, track list or colour: anything that is not negative."""
    said = css_value(text)
    if said is not None and _NEGATIVE.search(said) and "(" not in said:
        raise RefusedError("negative")
    return said


def css_margin(text: Any) -> str | None:
    """Return a margin that pulls nothing over its neighbours, whatever is computed."""
    said = css_size(text)
    if said is not None and "(" in said:
        raise RefusedError("computed margins are not allowed")
    return said


def css_offset(text: Any) -> str | None:
    """Return an offset (top, left) that moves nothing."""
    said = css_value(text)
    if said is not None and not _STILL.fullmatch(said.strip().lower()):
        raise RefusedError("moves the widget over its neighbours")
    return said


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
    said = css_value(value)
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
    return css_value(value)


def size(value: Any, _: Scope) -> str | None:
    """Return a CSS value that is not negative."""
    return css_size(value)


def margin(value: Any, _: Scope) -> str | None:
    """Return a margin."""
    return css_margin(value)


def offset(value: Any, _: Scope) -> str | None:
    """Return an offset that moves nothing."""
    return css_offset(value)


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
    return names.clean_formulas(said) if said else said


def label(value: Any, scope: Scope) -> str | None:
    """Return a description; whether it is HTML is for ``widgets_state`` to know."""
    return text(value, scope)


def media(value: Any, _: Scope) -> bytes:
    """Return the bytes of an image, a sound or a film; checked in ``widgets_state``."""
    if isinstance(value, bytes):
        return value
    raise RefusedError("not bytes")


# What some kinds of keys have to know beside their value: the other widgets, the request.


@dataclass(frozen=True, slots=True)
class Scope:
    """What some kinds have to know."""

    #: Model name of an admitted widget, ``""`` for one of an operator's module, else None.
    model_of: Callable[[str], str | None]
    #: Cleans a mime bundle as it would be for an output.
    show: Callable[[Any], dict[str, Any]]
    #: Id of the request whose output is shown now.
    parent: str


# Kinds of keys that hold something else: outputs, a capture of them, other widgets.

REFERENCE: Final = "IPY_MODEL_"
_MOST_OUTPUTS: Final = 1_000


def outputs(value: Any, scope: Scope) -> list[dict[str, Any]]:
    """Return what an Output widget shows, each as the gateway passes it on."""
    if type(value) is not list:
        raise RefusedError("not a list")
    shown = (_output(item, scope) for item in value[-_MOST_OUTPUTS:] if type(item) is dict)
    return [item for item in shown if item]


def _output(item: dict[Any, Any], scope: Scope) -> dict[str, Any]:
    kind = item.get("output_type")
    if kind == "stream":
        name = "stderr" if item.get("name") == "stderr" else "stdout"
        return {"output_type": kind, "name": name, "text": gateway.clean_stream(_joined(item))}
    if kind == "error":
        parts = (item.get("ename"), item.get("evalue"), item.get("traceback"))
        return {"output_type": kind, **gateway.clean_error(*parts)}
    if kind not in {"display_data", "execute_result"}:
        return {}
    bundle: dict[str, Any] = {
        "output_type": kind,
        "data": scope.show(item.get("data")),
        "metadata": gateway.clean_metadata(item.get("metadata")),
    }
    if kind == "execute_result":
        count = item.get("execution_count")
        bundle["execution_count"] = count if type(count) is int else None
    return bundle


def _joined(item: dict[Any, Any]) -> Any:
    """Return a stream's text: nbformat allows a list of lines."""
    text_ = item.get("text")
    return "".join(line for line in text_ if type(line) is str) if type(text_) is list else text_


# --- other widgets ----------------------------------------------------------------------------


def capture(value: Any, scope: Scope) -> str:
    """Return the request whose output is captured: the one that runs, whatever was named."""
    return scope.parent if value else ""


def target(value: Any) -> str | None:
    """Return the id that a reference names."""
    if type(value) is str and value.startswith(REFERENCE):
        return value.removeprefix(REFERENCE)
    return None


def _reference(suffix: str) -> Callable[[Any, Scope], str | None]:
    def kind(value: Any, scope: Scope) -> str | None:
        if value is None:
            return None
        found = target(value)
        name = scope.model_of(found) if found is not None else None
        if name is None or not name.endswith(suffix):
            raise RefusedError("refers to no such widget")
        return str(value)

    return kind


layout = _reference("LayoutModel")
style = _reference("StyleModel")


def _references(value: Any, scope: Scope, suffix: str = "") -> list[str]:
    known = ((item, scope.model_of(target(item) or "")) for item in items(value))
    return [item for item, name in known if name is not None and name.endswith(suffix)]


def children(value: Any, scope: Scope) -> list[str]:
    """Return those of a box's children that are there; the others have been refused already."""
    return _references(value, scope)


def buttons(value: Any, scope: Scope) -> list[str]:
    """Return a game controller's buttons: it writes to them by itself."""
    return _references(value, scope, "ControllerButtonModel")


def axes(value: Any, scope: Scope) -> list[str]:
    """Return a game controller's axes."""
    return _references(value, scope, "ControllerAxisModel")


def end(value: Any, scope: Scope) -> tuple[str, str]:
    """Return one end of a link, widget and key; ``widgets_state`` sees both ends."""
    if type(value) is not list or len(value) != 2:  # noqa: PLR2004 - widget, key
        raise RefusedError("not a widget and a key")
    found, key = target(value[0]), value[1]
    if found is None or scope.model_of(found) is None or type(key) is not str:
        raise RefusedError("refers to no such widget")
    return found, key
