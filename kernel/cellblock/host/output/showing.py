"""What of a mime bundle reaches the front end: one function for each value of ``display``.

Each takes whatever a guest sent and returns a bundle within the bounds. None lets through a type
that is ours to say (``application/vnd.cellblock.*``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway
from cellblock.host.output.bounds import DEFAULT, Bounds
from cellblock.host.output.jsonable import Cleaner, TooLargeError
from cellblock.host.output.mimes import ALLOWED
from cellblock.host.output.terminal import clean_line, clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Show = Callable[[Any], dict[str, Any]]

_PLAIN: Final = "text/plain"
_HTML: Final = "text/html"
_SCRIPT: Final = "application/javascript"
_OURS: Final = "application/vnd.cellblock."
_HINT: Final = 'display = "isolated" in the policy would show it'


def text(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return the plain text of a bundle; a note where there is none."""
    if type(data) is not dict or not data:
        return {}
    plain = data.get(_PLAIN)
    if plain is not None:
        return gateway.clean_bundle({_PLAIN: plain}, bounds)
    names = ", ".join(clean_line(str(key)[:100], 100) for key in list(data)[:8])
    return {_PLAIN: f"[cellblock shows text only, and left out {names}]"}


def sanitized(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return what the gateway's sanitisers leave of a bundle."""
    return gateway.clean_bundle(data, bounds, _HINT)


def isolated(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return the bundle sanitised, but for a part that needs scripts: that goes into frames."""
    page = _page(data)
    if page is None:
        return gateway.clean_bundle(data, bounds)
    from cellblock.host.output import frames  # noqa: PLC0415 - most kernels show no such page

    html = frames.framed(page)
    left = bounds.display_bytes - len(html)
    if left < 0:
        return gateway.noted({}, [f"{_HTML} (too large)"])
    rest = {key: data[key] for key in ALLOWED if key in data and key != _HTML}
    return gateway.clean_bundle(rest, bounds.within(left)) | {_HTML: html}


def _page(data: Any) -> str | None:
    """Return the HTML of a bundle that is more than text, None if there is none."""
    if type(data) is not dict or (_HTML not in data and _SCRIPT not in data):
        return None
    html = data.get(_HTML)
    if isinstance(html, str) and "<" in html and _needs_scripts(html):
        return clean_text(html)
    script = data.get(_SCRIPT)
    if not isinstance(script, str) or any(key in data for key in _STILL):
        return None
    from cellblock.host.output import frames  # noqa: PLC0415 - as above

    return frames.script_page(clean_text(script))


#: A program beside one of these is another form of it.
_STILL: Final = (_HTML, "image/png", "image/svg+xml", "text/markdown")


def _needs_scripts(html: str) -> bool:
    from cellblock.host.output import frames  # noqa: PLC0415 - as above

    return frames.is_active(html)


def trusted(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return the bundle as it is, within the bounds."""
    if type(data) is not dict:
        return {}
    left, shown, dropped = bounds.display_bytes, dict[str, Any](), list[str]()
    for key in list(data)[: bounds.mime_types]:
        mime = clean_line(key, 200)
        if not mime or mime.lower().startswith(_OURS):
            dropped.append(mime or type(key).__name__)
            continue
        try:
            shown[mime], size = _as_it_is(mime, data[key], left, bounds)
        except TooLargeError:
            dropped.append(f"{mime} (too large)")
        else:
            left -= size
    return gateway.noted(shown, dropped)


def _as_it_is(mime: str, value: Any, left: int, bounds: Bounds) -> tuple[Any, int]:
    """Return one type's value and its size in bytes. Raises ``TooLargeError``."""
    if mime in ALLOWED:
        return gateway.clean_value(mime, value, left, bounds, sanitise=False)
    cleaner = Cleaner(nodes=bounds.nodes, chars=left, depth=bounds.depth)
    return cleaner.clean(value), left - cleaner.chars


_BY_DISPLAY: Final[dict[str, Show]] = {
    "text": text,
    "sanitized": sanitized,
    "isolated": isolated,
    "trusted": trusted,
}


def for_display(display: str) -> Show:
    """Return what makes a bundle fit to be shown in a cell's output under this policy."""
    return _BY_DISPLAY[display]


def for_page(display: str) -> Show:
    """Return the same for places that show a value in passing: pagers, tooltips, expressions.

    Frames have no room there.
    """
    return _BY_DISPLAY["sanitized" if display == "isolated" else display]
