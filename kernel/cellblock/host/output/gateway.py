"""What of a guest's message may reach a front end. Pure functions: a value in, a clean value out.

``ALLOWED`` is the table of mime types. ``for_display`` returns the function that cleans mime
bundles under a policy's ``display``:

- ``text``: plain text only (``text``)
- ``sanitized``: allowed types, with markup sanitised (``sanitized``)
- ``isolated``: the same, but HTML that needs scripts goes into a frame (``isolated``)

The other functions clean one other part of a message each: metadata, streams, errors, prompts,
replies, comm data. Each takes any value, since a guest sends what it likes, and does not raise.
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
    """The form of a mime type's value. ``markup`` is text that passes a sanitiser."""

    base64 = "base64"
    json = "json"
    markup = "markup"
    text = "text"


#: The mime types that a guest may show. A type that is not here is dropped.
#:
#: Markup can carry scripts and remote references, so it is sanitised. Front ends only draw the
#: others. Missing, because their renderers run code or fetch data: scripts; Vega, Plotly and Bokeh
#: (expressions, data addresses, links); GeoJSON (popups show property texts as HTML, map tiles come
#: from the network); PDF (which a viewer opens). Widgets are missing because their state and views
#: pass through ``widgets``. Front ends compare types letter by letter, so a type with parameters or
#: capitals is unknown.
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
    """Return the sanitiser of each mime type that is markup.

    A sanitiser returns text from which nothing runs or is loaded. It raises ``RefusedError`` if
    nothing of the text may be shown.
    """
    # Importing nh3, expat and tables of patterns takes 9 ms, which a kernel's start need not wait
    # for, since it shows no markup.
    from cellblock.host.output import html, tex  # noqa: PLC0415 - 9 ms

    return {
        "application/vnd.fasta.fasta": _without_tags,
        "image/svg+xml": html.clean_svg,
        "text/html": html.clean,
        "text/latex": tex.clean,
        "text/markdown": html.clean_markdown,
    }


def _without_tags(text: str) -> str:
    """Return ``text`` unchanged. Raises ``RefusedError`` if it contains ``<``, as a tag does.

    A viewer may write the text into its page as it is.
    """
    if "<" in text:
        raise RefusedError("has a tag")
    return text


def sanitise(mime: str, text: str) -> str:
    """Return markup of an allowed type, sanitised. Raises ``RefusedError`` if none may be shown."""
    _check_marks(marks(text), MAX_MARKS)
    return _sanitisers()[mime](text)


def marks(text: str) -> int:
    """Return how many characters are neither letters, digits nor blanks.

    The time that a sanitiser takes depends on these: each tag, attribute, class, style rule, entity
    and TeX command begins or ends with one.
    """
    return len(text.encode("utf-8", "replace").translate(None, _WORDS))


def _check_marks(number: int, most: int) -> None:
    if number > most:
        raise RefusedError("too much markup")


def markup_size(data: Mapping[str, Any]) -> int:
    """Return how many characters of markup a guest's bundle has, before sanitising."""
    markup_values = (value for mime, value in data.items() if ALLOWED.get(mime) is Form.markup)
    return sum(len(value) for value in markup_values if isinstance(value, str))


#: The bytes that ``marks`` does not count: letters, digits, blanks, and all beyond ASCII.
_WORDS: Final = bytes(
    {*b"\t\n\r ", *range(0x80, 0x100), *(string.ascii_letters + string.digits).encode()}
)
#: The type of a widget's view, which ``widgets`` may add to a bundle.
VIEW: Final = "application/vnd.jupyter.widget-view+json"
#: The comm target of widgets.
WIDGET: Final = "jupyter.widget"
_BASE64: Final = (string.ascii_letters + string.digits + "+/").encode("ascii")
_HTML: Final = "text/html"
_PLAIN: Final = "text/plain"
_SCRIPT: Final = "application/javascript"
#: Characters of a plain text that is passed on without a copy, if it is all that a bundle has. Most
#: cells show such bundles.
_SHORT: Final = 64 << 10
#: Bytes that are left free for the note about what was cut.
_NOTE_BYTES: Final = 100
#: Types that a page runs. If one is dropped, the note names the ``display`` that would show it.
_PROGRAMS: Final = (
    _SCRIPT,
    "application/vnd.bokehjs",
    "application/vnd.plotly",
    "application/vnd.vega",
    _HTML,
)


# --- bounds: characters, unless a name says otherwise -------------------------------------------

#: Bytes of a bundle.
MAX_DISPLAY: Final = 16 << 20
#: Types in a bundle.
MAX_TYPES: Final = 32
#: Markup of one bundle, counted by ``marks``. A mark takes at most 1.3 µs to sanitise, and a third
#: of that in tables and drawings; the host does nothing else meanwhile. A scatter plot has 25 marks
#: for a point.
MAX_MARKS: Final = 1_000_000
MAX_STREAM: Final = 4 << 20
#: Characters of a plain text that has colours or other controls.
MAX_STYLED: Final = 1 << 20
MAX_METADATA: Final = 64 << 10
MAX_COMM: Final = 4 << 20
#: Values in one piece of JSON.
MAX_NODES: Final = 1_000_000
#: How deep they may be nested.
MAX_DEPTH: Final = 60
#: A display id, a comm id, or a target's name.
MAX_NAME: Final = 1_000
MAX_ENAME: Final = 200
MAX_EVALUE: Final = 20_000
MAX_TRACEBACK: Final = 400_000
MAX_TRACEBACK_LINES: Final = 2_000
MAX_PROMPT: Final = 500
#: Completions of one reply.
MAX_MATCHES: Final = 10_000
#: Characters of one completion.
MAX_MATCH: Final = 10_000
#: Expressions in one reply.
MAX_EXPRESSIONS: Final = 100
#: Pager pages in one reply.
MAX_PAGES: Final = 16


# --- a mime bundle ----------------------------------------------------------------------------


def clean_bundle(data: Any, hint: str = "", used: int = 0) -> dict[str, Any]:
    """Return a mime bundle with the allowed types of ``data``, sanitised and within the bounds.

    If all rich types are lost, a note in the plain text says so. If one of them was a program,
    ``hint`` is part of the note. ``used`` bytes of the bound are taken already.
    """
    if type(data) is not dict:
        return {}
    if len(data) == 1:
        plain = data.get(_PLAIN)
        if type(plain) is str and len(plain) <= _SHORT and "\r" not in plain and is_plain(plain):
            return data
    bytes_left = MAX_DISPLAY - used
    clean = dict[str, Any]()
    left_marks = MAX_MARKS
    dropped = refused_types(data)
    for mime in [mime for mime in ALLOWED if mime in data][:MAX_TYPES]:
        try:
            if ALLOWED[mime] is Form.markup and isinstance(data[mime], str):
                _check_marks(number := marks(data[mime]), left_marks)
                left_marks -= number
            clean[mime], size = _clean_value(mime, data[mime], bytes_left)
        except TooLargeError:
            dropped.append(f"{mime} (too large)")
        except RefusedError as refused:
            dropped.append(f"{mime} ({refused})")
        else:
            bytes_left -= size
    programs = any(name.startswith(_PROGRAMS) for name in dropped)
    return _with_note(clean, dropped, hint if programs else "")


def _with_note(clean: dict[str, Any], dropped: list[str], hint: str = "") -> dict[str, Any]:
    """Add a note with the dropped types to the plain text, if that is all that is left to show."""
    if dropped and clean.keys() <= {_PLAIN}:
        note = "; ".join(filter(None, [f"cellblock left out {', '.join(dropped)}", hint]))
        text = "\n".join(filter(None, [clean.get(_PLAIN), f"[{note}]"]))
        clean[_PLAIN] = OwnLines(text, own_lines(clean) | _own_line(f"[{note}]", dropped))
    return clean


#: A dropped type, perhaps with the host's reason behind it.
_LEFT_OUT: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?: \(.*\))?", re.ASCII)


def _own_line(note: str, names: Iterable[str]) -> frozenset[str]:
    """Return the note as a line of the host's own, or nothing if a name does not look like a type.

    The guest chooses the names, and one could be a sentence.
    """
    return frozenset({note} if all(map(_LEFT_OUT.fullmatch, names)) else ())


def refused_types(data: Any) -> list[str]:
    """Return the names of types in a bundle that are not allowed: at most 8, cleaned for a note."""
    if type(data) is not dict:
        return []
    refused = [key for key in list(data)[:1_000] if key not in ALLOWED]
    return [clean_line(key, 100) or type(key).__name__ for key in refused[:8]]


def _clean_value(mime: str, value: Any, bytes_left: int) -> tuple[Any, int]:
    """Return the cleaned value of an allowed type, and its size in bytes.

    Raises ``TooLargeError`` if it has more than ``bytes_left`` bytes, ``RefusedError`` if the
    sanitiser leaves nothing.
    """
    form = ALLOWED[mime]
    if form is Form.json:
        cleaner = Cleaner(nodes=MAX_NODES, chars=bytes_left, depth=MAX_DEPTH)
        return cleaner.clean(value), bytes_left - cleaner.chars
    if form is Form.base64:
        return _clean_base64(value, bytes_left)
    if form is Form.text:
        text = _clean_plain(value, max(0, bytes_left - _NOTE_BYTES))
    else:
        text = clean_text(value)
        if text:
            _size(text, bytes_left)
            text = sanitise(mime, text)
    return text, _size(text, bytes_left)


def _clean_plain(value: Any, room: int) -> str:
    """Return a plain text, cut to ``room``; the line that says so counts as the host's own."""
    styled = isinstance(value, str) and not is_plain(value)
    cut_value = cut(value, MAX_STYLED) if styled else value
    text = clean_text(cut_value)
    text_shown = cut(text, room if text.isascii() else room // 4)
    if cut_value is value and text_shown is text:
        return text
    return OwnLines(text_shown, {text_shown.rstrip("\n").rpartition("\n")[2]})


def _clean_base64(value: Any, bytes_left: int) -> tuple[str, int]:
    """Return ``value``, base64 text or bytes, as canonical base64, and its size.

    nbconvert writes the text into an attribute unescaped, so it may have no other characters.
    Raises ``TooLargeError``.
    """
    if isinstance(value, str) and value.isascii() and len(value) % 4 == 0:
        # Libraries encode like this. Checking is faster than decoding and encoding again.
        other_characters = value.encode("ascii").translate(None, _BASE64).decode("ascii")
        if other_characters in ("", "=", "==") and value.endswith(other_characters):
            _size(value, bytes_left)
            return value, len(value)
    if isinstance(value, str):
        if len(value) > bytes_left + bytes_left // 32 + 64:  # some encoders break lines
            raise TooLargeError
        try:
            value = binascii.a2b_base64(value)
        except ValueError:
            value = b""
    if not isinstance(value, bytes | bytearray):
        return "", 0
    if len(value) > bytes_left // 4 * 3:
        raise TooLargeError
    text = binascii.b2a_base64(value, newline=False).decode("ascii")
    return text, len(text)


def _size(text: str, bytes_left: int) -> int:
    """Return the bytes of a text. Raises ``TooLargeError`` beyond ``bytes_left``."""
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    if size > bytes_left:
        raise TooLargeError
    return size


# --- a bundle, under the policy's ``display`` ---------------------------------------------------
#
# Each function takes any value from a guest and returns a bundle within the bounds.

_HINT: Final = 'display = "isolated" in the policy would show it'


def text(data: Any) -> dict[str, Any]:
    """Return a bundle with plain text only.

    If the plain text is missing or only names an object (``<Figure ...>``), the text of another
    type takes its place. If there is none, a note names the types that were left out.
    """
    if type(data) is not dict or not data:
        return {}
    clean = clean_bundle({_PLAIN: data[_PLAIN]}) if data.get(_PLAIN) is not None else {}
    other_types = [key for key in data if key != _PLAIN]
    if clean and not (other_types and is_name(clean[_PLAIN])):
        return clean
    rich = clean_bundle({key: data[key] for key in TYPES if key in data}) if clean else {}
    rich.pop(_PLAIN, None)  # a note on what was left out
    if replacement := readable(rich):
        cleaned = clean_bundle({_PLAIN: replacement})[_PLAIN]
        return {_PLAIN: OwnLines(cleaned, own_lines({**rich, _PLAIN: cleaned}))}
    names = [clean_line(str(key)[:100], 100) for key in other_types[:8]]
    note = f"[cellblock shows text only, and left out {', '.join(names)}]"
    text_shown = " ".join(filter(None, [clean.get(_PLAIN), note]))
    return {_PLAIN: OwnLines(text_shown, _own_line(note, names))}


def sanitized(data: Any) -> dict[str, Any]:
    """Return a bundle's allowed types, with markup sanitised."""
    return clean_bundle(data, _HINT)


def _frames() -> ModuleType:
    """Return the module ``frames``, imported late: most kernels show no page that needs one."""
    from cellblock.host.output import frames  # noqa: PLC0415 - see the docstring

    return frames


def shared_libraries() -> SharedLibraries:
    """Return a new record of the libraries that the frames of one notebook share."""
    libraries: SharedLibraries = _frames().SharedLibraries()
    return libraries


def isolated(data: Any) -> dict[str, Any]:
    """Return the bundle sanitised, except that HTML which needs scripts is put into a frame."""
    if type(data) is not dict or (_HTML not in data and _SCRIPT not in data):
        return clean_bundle(data)
    own = frozenset[str]()
    marked = data
    if isinstance(html_text := data.get(_HTML), str) and len(html_text) <= MAX_DISPLAY:
        from cellblock.host.output import html  # noqa: PLC0415 - see ``_sanitisers``

        with_lines = html.name_embedded(html_text)
        own = with_lines.hosts
        marked = {**data, _HTML: str(with_lines)}
    frames = _frames()
    page = frames.page_of(marked)
    if page is None:
        return clean_bundle(data)
    framed = frames.framed(page, own)
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
    """Return the function that cleans bundles of a cell's output, by the policy's ``display``."""
    return _BY_DISPLAY[display]


def for_page(display: str) -> Show:
    """Return the function that cleans bundles for pagers, tooltips and expressions.

    These have no room for frames, so ``isolated`` is ``sanitized`` there.
    """
    return _BY_DISPLAY["sanitized" if display == "isolated" else display]


# --- metadata and names -----------------------------------------------------------------------

_SIZE: Final = re.compile(r"\d{1,5}(?:\.\d{1,3})?(?:px|em|%)?", re.ASCII)


def _is_size(value: Any) -> bool:
    return type(value) in (int, float) or (type(value) is str and bool(_SIZE.fullmatch(value)))


#: The metadata that may pass, each with a check of its value. All other metadata is dropped, since
#: exporters act on it: nbconvert writes files under ``filename``, and finds images by
#: ``filenames``.
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
    """Return the allowed metadata of a bundle, and of each mime type in it.

    Metadata beyond its bound is dropped as a whole.
    """
    if not metadata:
        return {}
    cleaned = _object(metadata, MAX_METADATA)
    of_types = {
        mime: _allowed_metadata(cleaned[mime])
        for mime in ALLOWED
        if type(cleaned.get(mime)) is dict
    }
    return _allowed_metadata(cleaned) | of_types


def _allowed_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the allowed entries of metadata (``_METADATA``)."""
    return {
        name: value
        for name, value in metadata.items()
        if (is_valid := _METADATA.get(name)) is not None and is_valid(value)
    }


def clean_name(name: Any) -> str | None:
    """Return a display id, comm id or target name as one bounded line; None if nothing is left."""
    return clean_line(name, MAX_NAME) or None


def _object(value: Any, chars: int) -> dict[str, Any]:
    """Return a dict as clean JSON; empty if it is none, or has more than ``chars`` characters."""
    if type(value) is not dict:
        return {}
    try:
        cleaned = Cleaner(nodes=MAX_NODES, chars=chars, depth=MAX_DEPTH).clean(value)
    except TooLargeError:
        return {}
    return dict(cleaned)


# --- text -------------------------------------------------------------------------------------


def clean_stream(text: Any) -> str:
    """Return text for stdout or stderr: colours and redraws of the line stay, the rest goes."""
    if type(text) is str and len(text) <= MAX_STREAM and is_plain(text):
        return text
    return clean_stream_text(cut(text, MAX_STREAM) if type(text) is str else text)


def clean_error(ename: Any, evalue: Any, traceback: Any) -> dict[str, Any]:
    """Return the content of an ``error`` message."""
    lines = traceback if isinstance(traceback, list | tuple) else []
    half = MAX_TRACEBACK_LINES // 2
    if len(lines) > 2 * half:
        # The middle is left out, since the last lines name the error.
        note = f"[cellblock: {len(lines) - 2 * half:,} more lines left out]"
        lines = [*lines[:half], note, *lines[-half:]]
    line_chars = max(200, MAX_TRACEBACK // max(1, len(lines)))
    return {
        "ename": clean_line(ename, MAX_ENAME) or "Error",
        "evalue": clean_and_cut(evalue, MAX_EVALUE),
        "traceback": [clean_and_cut(line, line_chars) for line in lines],
    }


def clean_prompt(prompt: Any) -> str:
    """Return an input prompt as one line without controls.

    It must not pass for a question of the host's. Those have several lines, and a mark that is
    removed here.
    """
    return clean_line(prompt, MAX_PROMPT).replace(HOSTS_MARK, " ")


# --- replies ----------------------------------------------------------------------------------


def clean_payload(payload: Any, show: Show = clean_bundle) -> list[dict[str, Any]]:
    """Return the payloads of source ``page``, which show text in a pager; ``show`` cleans that.

    All others are dropped, since they make the front end do something, such as edit a file.
    """
    if not isinstance(payload, list | tuple):
        return []
    pages = [item for item in payload if type(item) is dict and item.get("source") == "page"]
    return [_page(page, show) for page in pages[:MAX_PAGES]]


def _page(page: dict[Any, Any], show: Show) -> dict[str, Any]:
    data = page.get("data")
    if not isinstance(data, dict):
        data = {_PLAIN: page.get("text", "")}
    # jupyter console reads text/plain without checking that it is there.
    bundle = {_PLAIN: "", **show(data)}
    return {"source": "page", "data": bundle, "start": _number(page.get("start"))}


def clean_expressions(expressions: Any, show: Show = clean_bundle) -> dict[str, Any]:
    """Return the reply's ``user_expressions``: each an error, or a bundle that ``show`` cleans."""
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
    error_fields = (value.get("ename"), value.get("evalue"), value.get("traceback"))
    return {"status": "error", **clean_error(*error_fields)}


def clean_matches(matches: Any) -> list[str]:
    """Return completions, each as one bounded line, in their order."""
    if not isinstance(matches, list | tuple):
        return []
    return [clean_line(match, MAX_MATCH) for match in matches[:MAX_MATCHES]]


_MATCH_TEXTS: Final = ("text", "type", "signature")


def clean_match_types(types: Any) -> list[dict[str, Any]]:
    """Return ``_jupyter_types_experimental``, with start, end, text, type and signature of each."""
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
    """Return a comm message's ``data`` as clean JSON; empty if it is beyond its bounds."""
    return _object(data, MAX_COMM)
