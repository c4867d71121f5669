"""What a guest's message may carry on to the front end; pure functions, values in and out.

``ALLOWED`` has the mime types, ``for_display`` what the policy's ``display`` makes of a bundle of
them; the other functions clean one part of a message each.
"""

from __future__ import annotations

import binascii
import re
import string
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output.readable import TYPES, is_name, readable
from cellblock.host.output.text import (
    Cleaner,
    RefusedError,
    TooLargeError,
    clean_and_cut,
    clean_line,
    clean_stream_text,
    clean_text,
    cut,
    is_plain,
)
from cellblock.render.headings import OwnLines, own_lines
from cellblock.render.text import HOSTS_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from cellblock.host.output.frames import SharedLibraries

    Show = Callable[[Any], dict[str, Any]]


# --- mime types -------------------------------------------------------------------------------


class Form(StrEnum):
    """How a type's value travels; ``markup`` is text that has a sanitiser."""

    base64 = "base64"
    json = "json"
    markup = "markup"
    text = "text"


#: The mime types that a guest may show. A type that is not here is dropped.
#:
#: Markup can carry scripts and remote references, and is sanitised; the others are drawn and
#: nothing else. Not here, because their renderers run code or fetch data for them: scripts; Vega,
#: Plotly and Bokeh (expressions, data addresses, links); GeoJSON (popups take property texts as
#: HTML, map tiles come from the network); PDF (a viewer's business). Nor widgets, whose state and
#: views pass by way of ``widgets``. Front ends match types by exact spelling, so no parameters
#: and no capitals are known.
ALLOWED: Final[dict[str, Form]] = {
    "application/json": Form.json,
    "application/vnd.dataresource+json": Form.json,
    "application/vnd.fasta.fasta": Form.markup,  # sequences for a viewer, without a tag
    "image/bmp": Form.base64,
    "image/gif": Form.base64,
    "image/jpeg": Form.base64,
    "image/png": Form.base64,
    "image/svg+xml": Form.markup,
    "image/webp": Form.base64,
    "text/html": Form.markup,
    "text/latex": Form.markup,  # TeX engines read and write files, MathJax links
    "text/markdown": Form.markup,
    "text/plain": Form.text,
}


@cache
def _sanitisers() -> Mapping[str, Callable[[str], str]]:
    """Return the sanitiser of each type that is markup.

    Each returns text from which nothing runs or loads, and raises ``RefusedError`` where none of
    it should be shown.
    """
    # nh3, expat and tables of patterns: 9 ms, and a kernel's start shows no markup.
    from cellblock.host.output import html, tex  # noqa: PLC0415 - 9 ms

    return {
        "application/vnd.fasta.fasta": _without_tags,
        "image/svg+xml": html.clean_svg,
        "text/html": html.clean,
        "text/latex": tex.clean,
        "text/markdown": html.clean_markdown,
    }


def _without_tags(text: str) -> str:
    """Return text that a viewer might write into its page. Raises ``RefusedError`` for a tag."""
    if "<" in text:
        raise RefusedError("has a tag")
    return text


def sanitise(mime: str, text: str) -> str:
    """Return what may be shown of markup. Raises ``RefusedError``."""
    _check_marks(marks(text), MAX_MARKS)
    return _sanitisers()[mime](text)


def marks(text: str) -> int:
    """Return how many characters are neither letters, digits nor blanks.

    A sanitiser's cost is in these, whatever the markup: each tag, attribute, class, style rule,
    entity and TeX command begins or ends with one.
    """
    return len(text.encode("utf-8", "replace").translate(None, _WORDS))


def _check_marks(number: int, most: int) -> None:
    if number > most:
        raise RefusedError("too much markup")


def markup_size(data: Mapping[str, Any]) -> int:
    """Return the characters of what a bundle has for sanitisers, whatever these leave of it."""
    sent = (value for mime, value in data.items() if ALLOWED.get(mime) is Form.markup)
    return sum(len(value) for value in sent if isinstance(value, str))


_WORDS: Final = bytes(
    {*b"\t\n\r ", *range(0x80, 0x100), *(string.ascii_letters + string.digits).encode()}
)
#: The view of a widget, which a bundle may have beside the allowed types, and a widget's target.
VIEW: Final = "application/vnd.jupyter.widget-view+json"
WIDGET: Final = "jupyter.widget"
_BASE64: Final = (string.ascii_letters + string.digits + "+/").encode("ascii")
_HTML: Final = "text/html"
_PLAIN: Final = "text/plain"
_SCRIPT: Final = "application/javascript"
#: Bundles of one short plain text need no copy; this is what most cells show.
_SHORT: Final = 64 << 10
_NOTE_BYTES: Final = 100
#: Types that a page would run: another ``display`` may show what these would have.
_PROGRAMS: Final = (
    _SCRIPT,
    "application/vnd.bokehjs",
    "application/vnd.plotly",
    "application/vnd.vega",
    _HTML,
)


# --- bounds: characters, unless a name says otherwise -------------------------------------------

#: Bytes of a bundle, and its types.
MAX_DISPLAY: Final = 16 << 20
MAX_TYPES: Final = 32
#: What is sanitised of one bundle, by its ``marks``: each takes 1.3 µs at most, in which nothing
#: else is done, and a third of that in tables and drawings. A scatter plot has 25 for a point.
MAX_MARKS: Final = 1_000_000
MAX_STREAM: Final = 4 << 20
#: Of a plain text that has colours or other controls.
MAX_STYLED: Final = 1 << 20
MAX_METADATA: Final = 64 << 10
MAX_COMM: Final = 4 << 20
#: Values in JSON, and how deep they are nested.
MAX_NODES: Final = 1_000_000
MAX_DEPTH: Final = 60
#: A display id, a comm id, a target's name.
MAX_NAME: Final = 1_000
MAX_ENAME: Final = 200
MAX_EVALUE: Final = 20_000
MAX_TRACEBACK: Final = 400_000
MAX_TRACEBACK_LINES: Final = 2_000
MAX_PROMPT: Final = 500
#: Completions, and the characters of one.
MAX_MATCHES: Final = 10_000
MAX_MATCH: Final = 10_000
#: Expressions and pages of one reply.
MAX_EXPRESSIONS: Final = 100
MAX_PAGES: Final = 16


# --- a mime bundle ----------------------------------------------------------------------------


def clean_bundle(data: Any, hint: str = "", used: int = 0) -> dict[str, Any]:
    """Return a mime bundle with what the front end may have of ``data``, sanitised.

    A bundle that loses its rich part says so in its plain text; with ``hint``, where that part
    is a program. ``used`` bytes of what may be shown are taken already.
    """
    if type(data) is not dict:
        return {}
    if len(data) == 1:
        plain = data.get(_PLAIN)
        if type(plain) is str and len(plain) <= _SHORT and "\r" not in plain and is_plain(plain):
            return data
    left = MAX_DISPLAY - used
    clean = dict[str, Any]()
    left_marks = MAX_MARKS
    dropped = refused_types(data)
    for mime in [mime for mime in ALLOWED if mime in data][:MAX_TYPES]:
        try:
            if ALLOWED[mime] is Form.markup and isinstance(data[mime], str):
                _check_marks(found := marks(data[mime]), left_marks)
                left_marks -= found
            clean[mime], size = _clean_value(mime, data[mime], left)
        except TooLargeError:
            dropped.append(f"{mime} (too large)")
        except RefusedError as refused:
            dropped.append(f"{mime} ({refused})")
        else:
            left -= size
    programs = any(name.startswith(_PROGRAMS) for name in dropped)
    return _with_note(clean, dropped, hint if programs else "")


def _with_note(clean: dict[str, Any], dropped: list[str], hint: str = "") -> dict[str, Any]:
    """Return a bundle that says what was left out, if nothing but text is left to see."""
    if dropped and clean.keys() <= {_PLAIN}:
        note = "; ".join(filter(None, [f"cellblock left out {', '.join(dropped)}", hint]))
        said = "\n".join(filter(None, [clean.get(_PLAIN), f"[{note}]"]))
        clean[_PLAIN] = OwnLines(said, own_lines(clean) | _own(f"[{note}]", dropped))
    return clean


#: What is left out, as it is called; and why, in the host's words.
_LEFT_OUT: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?: \(.*\))?", re.ASCII)


def _own(note: str, names: Iterable[str]) -> frozenset[str]:
    """Return a note as a line of the host's, unless what it names is something to be read."""
    return frozenset({note} if all(map(_LEFT_OUT.fullmatch, names)) else ())


def refused_types(data: Any) -> list[str]:
    """Return the types in a bundle that are not allowed, fit to be shown, at most 8."""
    if type(data) is not dict:
        return []
    refused = [key for key in list(data)[:1_000] if key not in ALLOWED]
    return [clean_line(key, 100) or type(key).__name__ for key in refused[:8]]


def _clean_value(mime: str, value: Any, left: int) -> tuple[Any, int]:
    """Return an allowed type's value and its size in bytes.

    Raises ``TooLargeError``, ``RefusedError``.
    """
    form = ALLOWED[mime]
    if form is Form.json:
        cleaner = Cleaner(nodes=MAX_NODES, chars=left, depth=MAX_DEPTH)
        return cleaner.clean(value), left - cleaner.chars
    if form is Form.base64:
        return _clean_base64(value, left)
    if form is Form.text:
        text = _clean_plain(value, max(0, left - _NOTE_BYTES))
    else:
        text = clean_text(value)
        if text:
            _size(text, left)
            text = sanitise(mime, text)
    return text, _size(text, left)


def _clean_plain(value: Any, room: int) -> str:
    """Return a plain text; the line that says that it is cut is the host's."""
    styled = isinstance(value, str) and not is_plain(value)
    taken = cut(value, MAX_STYLED) if styled else value
    text = clean_text(taken)
    shown = cut(text, room if text.isascii() else room // 4)
    if taken is value and shown is text:
        return text
    return OwnLines(shown, {shown.rstrip("\n").rpartition("\n")[2]})


def _clean_base64(value: Any, left: int) -> tuple[str, int]:
    """Return ``value`` as canonical base64: nbconvert writes it into an attribute as it is."""
    if isinstance(value, str) and value.isascii() and len(value) % 4 == 0:
        # As libraries encode: one look instead of decoding and encoding again.
        others = value.encode("ascii").translate(None, _BASE64).decode("ascii")
        if others in ("", "=", "==") and value.endswith(others):
            _size(value, left)
            return value, len(value)
    if isinstance(value, str):
        if len(value) > left + left // 32 + 64:  # some encoders break lines
            raise TooLargeError
        try:
            value = binascii.a2b_base64(value)
        except ValueError:
            value = b""
    if not isinstance(value, bytes | bytearray):
        return "", 0
    if len(value) > left // 4 * 3:
        raise TooLargeError
    text = binascii.b2a_base64(value, newline=False).decode("ascii")
    return text, len(text)


def _size(text: str, left: int) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    if size > left:
        raise TooLargeError
    return size


# --- a bundle, by the policy's ``display`` ------------------------------------------------------
#
# Each function takes whatever a guest sent and returns a bundle within the bounds.

_HINT: Final = 'display = "isolated" in the policy would show it'


def text(data: Any) -> dict[str, Any]:
    """Return the plain text of a bundle; a note where there is none, or only an object's name.

    In place of a name comes the text of another type, if there is one.
    """
    if type(data) is not dict or not data:
        return {}
    clean = clean_bundle({_PLAIN: data[_PLAIN]}) if data.get(_PLAIN) is not None else {}
    others = [key for key in data if key != _PLAIN]
    if clean and not (others and is_name(clean[_PLAIN])):
        return clean
    rich = clean_bundle({key: data[key] for key in TYPES if key in data}) if clean else {}
    rich.pop(_PLAIN, None)  # a note on what was left out
    if found := readable(rich):
        read = clean_bundle({_PLAIN: found})[_PLAIN]
        return {_PLAIN: OwnLines(read, own_lines({**rich, _PLAIN: read}))}
    names = [clean_line(str(key)[:100], 100) for key in others[:8]]
    note = f"[cellblock shows text only, and left out {', '.join(names)}]"
    said = " ".join(filter(None, [clean.get(_PLAIN), note]))
    return {_PLAIN: OwnLines(said, _own(note, names))}


def sanitized(data: Any) -> dict[str, Any]:
    """Return what the sanitisers leave of a bundle."""
    return clean_bundle(data, _HINT)


def _frames() -> ModuleType:
    """Return what makes frames, imported late: most kernels show no page that needs one."""
    from cellblock.host.output import frames  # noqa: PLC0415 - as said

    return frames


def shared_libraries() -> SharedLibraries:
    """Return a memory of the libraries that frames of one notebook share."""
    made: SharedLibraries = _frames().SharedLibraries()
    return made


def isolated(data: Any) -> dict[str, Any]:
    """Return the bundle sanitised, but for a part that needs scripts: that goes into frames."""
    if type(data) is not dict or (_HTML not in data and _SCRIPT not in data):
        return clean_bundle(data)
    hosts = frozenset[str]()
    named = data
    if isinstance(html_text := data.get(_HTML), str) and len(html_text) <= MAX_DISPLAY:
        from cellblock.host.output import html  # noqa: PLC0415 - see ``_sanitisers``

        with_lines = html.name_embedded(html_text)
        hosts = with_lines.hosts
        named = {**data, _HTML: str(with_lines)}
    frames = _frames()
    page = frames.page_of(named)
    if page is None:
        return clean_bundle(data)
    framed = frames.framed(page, hosts)
    if len(framed) > MAX_DISPLAY:
        return _with_note({}, [f"{_HTML} (too large)"])
    rest = {key: data[key] for key in ALLOWED if key in data and key != _HTML}
    return clean_bundle(rest, used=len(framed)) | {_HTML: framed}


_BY_DISPLAY: Final[dict[str, Show]] = {
    "text": text,
    "sanitized": sanitized,
    "isolated": isolated,
}


def for_display(display: str) -> Show:
    """Return what makes a bundle fit to be shown in a cell's output under this policy."""
    return _BY_DISPLAY[display]


def for_page(display: str) -> Show:
    """Return the same for places that show a value in passing: pagers, tooltips, expressions.

    Frames have no room there.
    """
    return _BY_DISPLAY["sanitized" if display == "isolated" else display]


# --- metadata and names -----------------------------------------------------------------------

_SIZE: Final = re.compile(r"\d{1,5}(?:\.\d{1,3})?(?:px|em|%)?", re.ASCII)


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) or (type(value) is str and bool(_SIZE.fullmatch(value)))


#: Names of metadata, by what they say. Any other goes: an exporter may act on it, as nbconvert does
#: on ``filename`` and ``filenames``, under which it writes files and finds images.
_METADATA: Final[dict[str, Callable[[Any], bool]]] = {
    "alt": lambda value: type(value) is str,  # an image's, and pages escape it
    "expanded": lambda value: type(value) is bool,  # of a tree of JSON
    "height": _is_size,  # exporters write it into attributes
    "isolated": lambda value: type(value) is bool,  # HTML in a frame of the front end's
    "needs_background": lambda value: value in ("dark", "light"),
    "unconfined": lambda value: type(value) is bool,  # an image may be wider than its column
    "width": _is_size,
}


def clean_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata with what front ends show by it, of the bundle and of each type.

    What is over its bounds is dropped whole.
    """
    if not metadata:
        return {}
    given = _object(metadata, MAX_METADATA)
    of_types = {mime: _known(given[mime]) for mime in ALLOWED if type(given.get(mime)) is dict}
    return _known(given) | of_types


def _known(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in metadata.items()
        if (holds := _METADATA.get(name)) is not None and holds(value)
    }


def clean_name(name: Any) -> str | None:
    """Return a display id, comm id or target name as one bounded line, None if it is none."""
    return clean_line(name, MAX_NAME) or None


def _object(value: Any, chars: int) -> dict[str, Any]:
    if type(value) is not dict:
        return {}
    try:
        cleaned = Cleaner(nodes=MAX_NODES, chars=chars, depth=MAX_DEPTH).clean(value)
    except TooLargeError:
        return {}
    return dict(cleaned)


# --- text -------------------------------------------------------------------------------------


def clean_stream(text: Any) -> str:
    """Return text for stdout or stderr: colours and line redraws stay, other sequences go."""
    if type(text) is str and len(text) <= MAX_STREAM and is_plain(text):
        return text
    return clean_stream_text(cut(text, MAX_STREAM) if type(text) is str else text)


def clean_error(ename: Any, evalue: Any, traceback: Any) -> dict[str, Any]:
    """Return the content of an ``error`` message."""
    lines = traceback if isinstance(traceback, list | tuple) else []
    half = MAX_TRACEBACK_LINES // 2
    if len(lines) > 2 * half:  # its end names the error, so the middle goes
        note = f"[cellblock: {len(lines) - 2 * half:,} more lines left out]"
        lines = [*lines[:half], note, *lines[-half:]]
    each = max(200, MAX_TRACEBACK // max(1, len(lines)))
    return {
        "ename": clean_line(ename, MAX_ENAME) or "Error",
        "evalue": clean_and_cut(evalue, MAX_EVALUE),
        "traceback": [clean_and_cut(line, each) for line in lines],
    }


def clean_prompt(prompt: Any) -> str:
    """Return an input prompt as one line without controls: it must not imitate the host's.

    Those have several lines, and a mark that is taken out here.
    """
    return clean_line(prompt, MAX_PROMPT).replace(HOSTS_MARK, " ")


# --- replies ----------------------------------------------------------------------------------


def clean_payload(payload: Any, show: Show = clean_bundle) -> list[dict[str, Any]]:
    """Return the payloads that only show something: ``page``. The others act on the front end.

    ``show`` cleans what a page shows.
    """
    if not isinstance(payload, list | tuple):
        return []
    pages = [p for p in payload if type(p) is dict and p.get("source") == "page"]
    return [_page(page, show) for page in pages[:MAX_PAGES]]


def _page(page: dict[Any, Any], show: Show) -> dict[str, Any]:
    data = page.get("data")
    if not isinstance(data, dict):
        data = {_PLAIN: page.get("text", "")}
    # jupyter console reads text/plain without looking.
    bundle = {_PLAIN: "", **show(data)}
    return {"source": "page", "data": bundle, "start": _number(page.get("start"))}


def clean_expressions(expressions: Any, show: Show = clean_bundle) -> dict[str, Any]:
    """Return the values of user_expressions, each a bundle that ``show`` cleans, or an error."""
    if type(expressions) is not dict:
        return {}
    items = list(expressions.items())[:MAX_EXPRESSIONS]
    return {clean_line(key, MAX_NAME): _expression(value, show) for key, value in items}


def _expression(value: Any, show: Show) -> dict[str, Any]:
    value = value if isinstance(value, dict) else {}
    if value.get("status") == "ok":
        data = show(value.get("data"))
        metadata = clean_metadata(value.get("metadata"))
        return {"status": "ok", "data": data, "metadata": metadata}
    parts = (value.get("ename"), value.get("evalue"), value.get("traceback"))
    return {"status": "error", **clean_error(*parts)}


def clean_matches(matches: Any) -> list[str]:
    """Return completions: bounded one-liners, in their order."""
    if not isinstance(matches, list | tuple):
        return []
    return [clean_line(match, MAX_MATCH) for match in matches[:MAX_MATCHES]]


_MATCH_TEXTS: Final = ("text", "type", "signature")


def clean_match_types(types: Any) -> list[dict[str, Any]]:
    """Return ``_jupyter_types_experimental``: start, end, text, type and signature."""
    if not isinstance(types, list | tuple):
        return []
    return [
        {key: _number(row.get(key)) for key in ("start", "end")}
        | {key: clean_line(row.get(key), MAX_MATCH) for key in _MATCH_TEXTS}
        for row in types[:MAX_MATCHES]
        if type(row) is dict
    ]


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def clean_comm(data: Any) -> dict[str, Any]:
    """Return a comm message's ``data``; one that is over its bounds is dropped whole."""
    return _object(data, MAX_COMM)
