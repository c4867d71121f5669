"""What a guest's message may carry on to the front end; pure functions, values in and out.

``refused_types`` tells what ``clean_bundle`` drops, for the audit log.
"""

from __future__ import annotations

import binascii
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.host.output.text import (
    DEFAULT,
    Bounds,
    Cleaner,
    RefusedError,
    TooLargeError,
    clean_line,
    clean_text,
    cut,
    is_plain,
)
from cellblock.render.text import HOSTS_MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    Show = Callable[[Any], dict[str, Any]]


# The mime types that a guest may show. A type that is not here is dropped.
#
# ``passive`` types are drawn and nothing else; ``markup`` can carry scripts and remote
# references and is sanitised; ``active`` ones make the page run code that the kernel's other
# rules hold. Not here, because their renderers run code or fetch data for them: scripts; Vega,
# Plotly and Bokeh (expressions, data addresses, links); GeoJSON (popups take property texts as
# HTML, map tiles come from the network); PDF (a viewer's business). Nor widgets, whose state and
# views pass by way of ``widgets``. Front ends match types by exact spelling, so no parameters
# and no capitals are known.


class Form(StrEnum):
    """How a type's value travels."""

    base64 = "base64"
    json = "json"
    text = "text"


class Trust(StrEnum):
    """What showing a type can do."""

    active = "active"
    markup = "markup"
    passive = "passive"


class Mime(NamedTuple):
    """One row of the table."""

    form: Form
    trust: Trust


ALLOWED: Final[dict[str, Mime]] = {
    "application/json": Mime(Form.json, Trust.passive),
    "application/vnd.dataresource+json": Mime(Form.json, Trust.passive),
    "image/bmp": Mime(Form.base64, Trust.passive),
    "image/gif": Mime(Form.base64, Trust.passive),
    "image/jpeg": Mime(Form.base64, Trust.passive),
    "image/png": Mime(Form.base64, Trust.passive),
    "image/svg+xml": Mime(Form.text, Trust.markup),
    "image/webp": Mime(Form.base64, Trust.passive),
    "text/html": Mime(Form.text, Trust.markup),
    "text/latex": Mime(Form.text, Trust.markup),  # MathJax knows \href
    "text/markdown": Mime(Form.text, Trust.markup),
    "text/plain": Mime(Form.text, Trust.passive),
}


# A bundle's metadata: what exporters write into attributes, and keys that are prototypes.

#: nbconvert takes ``filenames`` for the addresses of a bundle's images; the others are what every
#: object of a front end has, and copying them changes its copy's kind.
_DROPPED: Final = frozenset(("__proto__", "constructor", "filenames", "prototype"))
_SIZES: Final = frozenset(("height", "width"))
_SIZE: Final = re.compile(r"\d{1,5}(?:\.\d{1,3})?(?:px|em|%)?", re.ASCII)


def settle(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without those keys, at any depth, and with sizes that are sizes."""
    return {
        key: _settled(value)
        for key, value in metadata.items()
        if key not in _DROPPED and (key not in _SIZES or _is_size(value))
    }


def _settled(value: Any) -> Any:
    if type(value) is dict:
        return settle(value)
    return [_settled(item) for item in value] if type(value) is list else value


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) or (type(value) is str and bool(_SIZE.fullmatch(value)))


_PLAIN = "text/plain"
#: Bundles of one short plain text need no copy; this is what most cells show.
_SHORT = 64 << 10
_NOTE_BYTES = 100
#: Types that a page would run: another ``display`` may show what these would have.
_PROGRAMS: Final = (
    "application/javascript",
    "application/vnd.bokehjs",
    "application/vnd.plotly",
    "application/vnd.vega",
    "text/html",
)


# --- display ----------------------------------------------------------------------------------


def clean_bundle(data: Any, bounds: Bounds = DEFAULT, hint: str = "") -> dict[str, Any]:
    """Return a mime bundle with what the front end may have of ``data``, sanitised.

    A bundle that loses its rich part says so in its plain text; with ``hint``, where that part
    is a program.
    """
    if type(data) is not dict:
        return {}
    if len(data) == 1:
        text = data.get(_PLAIN)
        if type(text) is str and len(text) <= _SHORT and is_plain(text):
            return data
    return _clean_types(data, bounds, hint)


def _clean_types(data: dict[Any, Any], bounds: Bounds, hint: str) -> dict[str, Any]:
    left, clean = bounds.display_bytes, dict[str, Any]()
    dropped = refused_types(data)
    for mime in [mime for mime in ALLOWED if mime in data][: bounds.mime_types]:
        try:
            clean[mime], size = clean_value(mime, data[mime], left, bounds)
        except TooLargeError:
            dropped.append(f"{mime} (too large)")
        except RefusedError as refused:
            dropped.append(f"{mime} ({refused})")
        else:
            left -= size
    programs = any(name.startswith(_PROGRAMS) for name in dropped)
    return noted(clean, dropped, hint if programs else "")


def noted(clean: dict[str, Any], dropped: list[str], hint: str = "") -> dict[str, Any]:
    """Return a bundle that says what was left out, if nothing but text is left to see."""
    if dropped and clean.keys() <= {_PLAIN}:
        note = "; ".join(filter(None, [f"cellblock left out {', '.join(dropped)}", hint]))
        clean[_PLAIN] = "\n".join(filter(None, [clean.get(_PLAIN), f"[{note}]"]))
    return clean


def refused_types(data: Any) -> list[str]:
    """Return the types in a bundle that are not allowed, fit to be shown, at most 8."""
    if type(data) is not dict:
        return []
    refused = [key for key in list(data)[:1_000] if key not in ALLOWED]
    return [clean_line(key, 100) or type(key).__name__ for key in refused[:8]]


def clean_value(
    mime: str, value: Any, left: int, bounds: Bounds, *, sanitise: bool = True
) -> tuple[Any, int]:
    """Return an allowed type's value and its size in bytes.

    Raises ``TooLargeError``, ``RefusedError``.
    """
    form, trust = ALLOWED[mime]
    if form is Form.json:
        cleaner = Cleaner(nodes=bounds.nodes, chars=left, depth=bounds.depth)
        return cleaner.clean(value), left - cleaner.chars
    if form is Form.base64:
        return _base64(value, left)
    text = clean_text(value)
    if mime == _PLAIN:
        room = max(0, left - _NOTE_BYTES)
        text = cut(text, room if text.isascii() else room // 4)
    if sanitise and trust is Trust.markup and text:
        _size(text, left)
        text = _sanitised(mime, text)
    return text, _size(text, left)


def _sanitised(mime: str, text: str) -> str:
    from cellblock.host.output import html  # noqa: PLC0415 - a kernel's start does without

    return html.sanitise(mime, text)


def _base64(value: Any, left: int) -> tuple[str, int]:
    """Return ``value`` as canonical base64: nbconvert writes it into an attribute as it is."""
    if isinstance(value, str):
        value = _decoded(value, left)
    if not isinstance(value, bytes | bytearray):
        return "", 0
    if len(value) > left // 4 * 3:
        raise TooLargeError
    text = binascii.b2a_base64(value, newline=False).decode("ascii")
    return text, len(text)


def _decoded(text: str, left: int) -> bytes:
    if len(text) > left + left // 32 + 64:  # some encoders break lines
        raise TooLargeError
    try:
        return binascii.a2b_base64(text)
    except ValueError:
        return b""


def _size(text: str, left: int) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    if size > left:
        raise TooLargeError
    return size


def clean_metadata(metadata: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return metadata as a JSON object; one that is over its bounds is dropped whole."""
    return settle(_object(metadata, bounds.metadata, bounds)) if metadata else {}


def clean_name(name: Any, bounds: Bounds = DEFAULT) -> str | None:
    """Return a display id, comm id or target name as one bounded line, None if it is none."""
    return clean_line(name, bounds.name) or None


def _object(value: Any, chars: int, bounds: Bounds) -> dict[str, Any]:
    if type(value) is not dict:
        return {}
    try:
        cleaned = Cleaner(nodes=bounds.nodes, chars=chars, depth=bounds.depth).clean(value)
    except TooLargeError:
        return {}
    return dict(cleaned)


# --- text -------------------------------------------------------------------------------------


def clean_stream(text: Any, bounds: Bounds = DEFAULT) -> str:
    """Return text for stdout or stderr: colours and line redraws stay, other sequences go."""
    if type(text) is str and len(text) <= bounds.stream_text and is_plain(text):
        return text
    return cut(clean_text(text), bounds.stream_text)


def clean_error(
    ename: Any, evalue: Any, traceback: Any, bounds: Bounds = DEFAULT
) -> dict[str, Any]:
    """Return the content of an ``error`` message."""
    lines = traceback if isinstance(traceback, list | tuple) else []
    return {
        "ename": clean_line(ename, bounds.ename) or "Error",
        "evalue": cut(clean_text(evalue), bounds.evalue),
        "traceback": _lines(lines, bounds),
    }


def _lines(lines: Any, bounds: Bounds) -> list[str]:
    """Return a traceback within its bounds; its end names the error, so the middle goes."""
    half = bounds.traceback_lines // 2
    if len(lines) > 2 * half:
        note = f"[cellblock: {len(lines) - 2 * half:,} more lines left out]"
        lines = [*lines[:half], note, *lines[-half:]]
    each = max(200, bounds.traceback // max(1, len(lines)))
    return [cut(clean_text(line), each) for line in lines]


def clean_prompt(prompt: Any, bounds: Bounds = DEFAULT) -> str:
    """Return an input prompt as one line without controls: it must not imitate the host's.

    Those have several lines, and a mark that is taken out here.
    """
    return clean_line(prompt, bounds.prompt).replace(HOSTS_MARK, " ")


# --- replies ----------------------------------------------------------------------------------


def clean_payload(
    payload: Any, bounds: Bounds = DEFAULT, show: Callable[[Any], dict[str, Any]] = clean_bundle
) -> list[dict[str, Any]]:
    """Return the payloads that only show something: ``page``. The others act on the front end.

    ``show`` cleans what a page shows.
    """
    if not isinstance(payload, list | tuple):
        return []
    pages = [p for p in payload if type(p) is dict and p.get("source") == "page"]
    return [_page(page, show) for page in pages[: bounds.payloads]]


def _page(page: dict[Any, Any], show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    data, start = page.get("data"), page.get("start")
    if not isinstance(data, dict):
        data = {_PLAIN: page.get("text", "")}
    # jupyter console reads text/plain without looking.
    bundle = {_PLAIN: "", **show(data)}
    line = start if type(start) is int and 0 <= start < 1 << 31 else 0
    return {"source": "page", "data": bundle, "start": line}


def clean_expressions(
    expressions: Any, bounds: Bounds = DEFAULT, show: Callable[[Any], dict[str, Any]] = clean_bundle
) -> dict[str, Any]:
    """Return the values of user_expressions, each a bundle that ``show`` cleans, or an error."""
    if type(expressions) is not dict:
        return {}
    items = list(expressions.items())[: bounds.expressions]
    return {clean_line(key, bounds.name): _expression(value, bounds, show) for key, value in items}


def _expression(
    value: Any, bounds: Bounds, show: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    value = value if isinstance(value, dict) else {}
    if value.get("status") == "ok":
        data = show(value.get("data"))
        metadata = clean_metadata(value.get("metadata"), bounds)
        return {"status": "ok", "data": data, "metadata": metadata}
    parts = (value.get("ename"), value.get("evalue"), value.get("traceback"))
    return {"status": "error", **clean_error(*parts, bounds)}


def clean_matches(matches: Any, bounds: Bounds = DEFAULT) -> list[str]:
    """Return completions: bounded one-liners, in their order."""
    if not isinstance(matches, list | tuple):
        return []
    return [clean_line(match, bounds.match_text) for match in matches[: bounds.matches]]


def clean_match_types(types: Any, bounds: Bounds = DEFAULT) -> list[dict[str, Any]]:
    """Return ``_jupyter_types_experimental``: start, end, text, type and signature."""
    if not isinstance(types, list | tuple):
        return []
    rows = [row for row in types[: bounds.matches] if type(row) is dict]
    return [{key: _match_field(row.get(key), key, bounds) for key in _MATCH} for row in rows]


_MATCH = ("start", "end", "text", "type", "signature")


def _match_field(value: Any, key: str, bounds: Bounds) -> Any:
    if key in ("start", "end"):
        return value if type(value) is int and 0 <= value < 1 << 31 else 0
    return clean_line(value, bounds.match_text)


def clean_comm(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return a comm message's ``data``; one that is over its bounds is dropped whole."""
    return _object(data, bounds.comm, bounds)


# What of a mime bundle reaches the front end: one function for each value of ``display``.
#
# Each takes whatever a guest sent and returns a bundle within the bounds. None lets through a
# type that is ours to say (``application/vnd.cellblock.*``).

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
        return clean_bundle({_PLAIN: plain}, bounds)
    names = ", ".join(clean_line(str(key)[:100], 100) for key in list(data)[:8])
    return {_PLAIN: f"[cellblock shows text only, and left out {names}]"}


def sanitized(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return what the gateway's sanitisers leave of a bundle."""
    return clean_bundle(data, bounds, _HINT)


def isolated(data: Any, bounds: Bounds = DEFAULT) -> dict[str, Any]:
    """Return the bundle sanitised, but for a part that needs scripts: that goes into frames."""
    page = _shown_page(data)
    if page is None:
        return clean_bundle(data, bounds)
    from cellblock.host.output import frames  # noqa: PLC0415 - most kernels show no such page

    html = frames.framed(page)
    left = bounds.display_bytes - len(html)
    if left < 0:
        return noted({}, [f"{_HTML} (too large)"])
    rest = {key: data[key] for key in ALLOWED if key in data and key != _HTML}
    return clean_bundle(rest, bounds.within(left)) | {_HTML: html}


def _shown_page(data: Any) -> str | None:
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
    return noted(shown, dropped)


def _as_it_is(mime: str, value: Any, left: int, bounds: Bounds) -> tuple[Any, int]:
    """Return one type's value and its size in bytes. Raises ``TooLargeError``."""
    if mime in ALLOWED:
        return clean_value(mime, value, left, bounds, sanitise=False)
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
