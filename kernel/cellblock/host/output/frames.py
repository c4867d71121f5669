"""HTML that needs scripts, in two nested frames of its own: scripts run, nothing is reachable.

    the page ─▶ outer frame: no script, a content-security policy ─▶ inner frame: the guest's page

Both are sandboxed to ``allow-scripts``: an origin of their own that shares nothing with anybody,
no popups, forms, dialogs, downloads, nor a way to navigate the page. The policy lets nothing be
loaded, and the inner frame inherits it; because of the outer one's ``frame-src`` the inner can't
go elsewhere either. What no policy covers in today's browsers (connections ahead of need, WebRTC)
``frames.js`` takes away before the guest's page is written, and it says how that holds.

One script of ours, ``notebook_page.js``, runs in the page beside the frames. The content says how
high it is, the page says its colours, and nothing else passes.

The guest's page travels compressed and base64-encoded, so nothing of it is ever read as markup
outside of the inner frame, and a chart's library takes a third of its size.

A page may name a library of ``_FILES``, or Vega, instead of bringing it. The host has that from the
packages that this interpreter imports, never from a guest, and puts it into one output of a
notebook (``SharedLibraries``); the script in the page hands it to all frames that ask.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import zlib
from base64 import b64encode
from functools import lru_cache
from html import escape, unescape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.host.guests import background
from cellblock.host.output.text import Frame, clean_controls

if TYPE_CHECKING:
    from collections.abc import Collection

#: One line each: a directive and what it is for.
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'unsafe-inline' 'unsafe-eval' blob: data:",  # the guest's own, of any kind
    "worker-src blob:",  # maps decode in workers
    "style-src 'unsafe-inline' data:",
    "img-src data: blob:",
    "font-src data:",
    "media-src data: blob:",
    "connect-src 'none'",  # not even data: a request's answer would be parsed unseen
    "frame-src 'none'",
    "form-action 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",  # markup passes frames.js first
    "trusted-types default",
)
#: What makes HTML a program or a control, rather than a text. A script may be data, such as
#: Jupyter's own for widgets.
_CONTROLS: Final = "audio|button|canvas|dialog|form|iframe|select|textarea|video"
_SCRIPTS: Final = re.compile(r"<(?:script|iframe)")
_ELEMENT: Final = re.compile(
    rf"<(?:{_CONTROLS})(?=[\s/>])"
    r"|<script(?=[\s/>])(?![^>]{0,300}\btype\s*=\s*[\"']?(?:application|text)/(?!\w*(?:java|ecma)script))"
)
#: Beyond that, looking would take seconds.
_MOST_SCRIPTS: Final = 2_000
_HANDLED: Final = re.compile(r"<[a-z][^<>]{0,4000}?\son[a-z]{3,30}\s*+=")
#: folium and others send a page of theirs in a frame of its own.
_FRAMED: Final = re.compile(
    r"<iframe\s[^>]{0,1000}?\bsrcdoc=(?:\"([^\"]*+)\"|'([^']*+)')", re.IGNORECASE
)

_HEIGHT: Final = re.compile(
    r"\bheight\s*+[:=]\s*+[\"']?\s*+(\d{2,4})(?:\.\d+)?(?:px|[\"';\s])|[\"']height[\"']\s*+:\s*+(\d{2,4})\b"
)
#: What ``guest.library_patches`` writes first: a library knows its figure's height.
_SAID: Final = re.compile(r"<!-- height: (\d{1,5})px -->")
_DEFAULT_HEIGHT: Final = 450
#: Libraries that packages have as a file: where it is in a folder that Python imports from.
_FILES: Final = {
    "bokeh": "bokeh/server/static/js/bokeh.min.js",
    "plotly": "plotly/package_data/plotly.min.js",
}
#: What ``guest.library_patches`` writes first where its library is among those.
_NAMED: Final = re.compile(r"<!-- library: (\w{1,20}) -->")
_LEAST_HEIGHT: Final = 80
_MOST_HEIGHT: Final = 1_600
_MARGIN: Final = 16
#: A library's own numbers are not the figure's.
_LIBRARY_CHARS: Final = 60_000
_SCRIPT: Final = re.compile(r"<script\b[^>]{0,1000}>")
#: The beginning of a page, whose text can be read, and its characters: a cell may show thousands,
#: and all of them are read at once.
_MOST_READ: Final = 20_000
_BEGINNING: Final = re.compile(r"(?:[^<&]*+[<&]){0,1000}+[^<&]*+")

_OUTER: Final = (
    '<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}">'
    "<style>html,body,iframe{{margin:0;border:0;width:100%;height:100%;display:block;"
    "overflow:hidden}}</style>"
    '<iframe sandbox="allow-scripts" title="Interactive output" srcdoc="{inner}"></iframe>'
)
_INNER: Final = (
    '<!doctype html><meta charset="utf-8"><script>({program})("{page}","{library}")</script>'
)
#: The text inside is what is left where frames are taken out of untrusted notebooks.
_FRAME: Final = (
    '<iframe class="cellblock-frame"{library} sandbox="allow-scripts" title="Interactive output"'
    ' loading="lazy" referrerpolicy="no-referrer" style="display:block;box-sizing:border-box;'
    "width:100%;height:{height}px;min-height:20px;resize:vertical;border:0;border-radius:3px;"
    'color-scheme:light" srcdoc="{outer}">{fallback}</iframe><script>{page}</script>'
)
_FALLBACK: Final = (
    "Interactive output of cellblock: run the cell, or trust this notebook, to see it."
)


#: Characters of HTML that is looked at as settings.
_MOST_SETTINGS: Final = 20_000
#: What shows nothing by itself, and configures the page's MathJax, which is ours to leave alone.
_SETTINGS: Final = re.compile(
    r"<style\b[^>]*+>.*?</style\s*>|<(?:link|meta)\b[^>]*+>|<!--.*?-->"
    r"|<script\b[^>]*+>\s*+MathJax\.Hub\.Config\(.*?</script\s*>",
    re.DOTALL | re.IGNORECASE,
)

#: A program beside one of these is another form of it.
_WITHOUT_SCRIPTS: Final = ("text/html", "image/png", "image/svg+xml", "text/markdown")


def page_of(data: dict[Any, Any]) -> str | None:
    """Return the page that a bundle needs a frame for, None if it needs none."""
    html = data.get("text/html")
    script = data.get("application/javascript")
    if isinstance(html, str) and "<" in html and is_active(html) and not _only_sets(html):
        return clean_controls(html)
    if not isinstance(script, str) or any(mime in data for mime in _WITHOUT_SCRIPTS):
        return None
    # Cleaned first: a control within could hide a tag's end from what follows.
    closed = re.sub(r"</(?=script)", r"<\\/", clean_controls(script), flags=re.IGNORECASE)
    # Classic notebooks run a program so: it draws into ``element``.
    start = "const element=document.getElementById('element')"
    return f'<div id="element"></div><script>{start};</script><script>{closed}</script>'


def is_active(text: str) -> bool:
    """Return whether HTML needs scripts, frames or controls to be what it is.

    Errs on either side without harm: what is not framed is sanitised.
    """
    lowered = text.lower()
    if sum(1 for _ in islice(_SCRIPTS.finditer(lowered), _MOST_SCRIPTS + 1)) > _MOST_SCRIPTS:
        return False
    return bool(_ELEMENT.search(lowered) or _HANDLED.search(lowered))


def _only_sets(html: str) -> bool:
    """Return whether HTML shows nothing: it sets how a page's letters and formulas look."""
    return len(html) <= _MOST_SETTINGS and not _SETTINGS.sub("", html).strip()


def framed(text: str, hosts: Collection[str] = ()) -> Frame:
    """Return ``text`` as a page in frames; ``hosts`` are lines in it that are the host's."""
    named = _NAMED.match(text)
    library = shared_library(named[1]) if named else None
    page = _unwrapped(text)
    height = declared_height(text if page is text else f"{_FRAMED.sub('', text)}{page}")
    name = library.name if library is not None else ""
    inner = _INNER.format(program=_code("frames.js"), page=_packed(page), library=name)
    outer = _OUTER.format(policy=escape("; ".join(_POLICY)), inner=escape(inner))
    html = _FRAME.format(
        height=height,
        outer=escape(outer),
        fallback=_FALLBACK,
        page=page_script(),
        library=f' data-cellblock-library="{name}"' if name else "",
    )
    return Frame(html, hosts, library=name, page=_beginning(page))


def _beginning(page: str) -> str:
    found = _BEGINNING.match(_without_libraries(page)[:_MOST_READ])
    return found[0] if found else ""


def declared_height(text: str) -> int:
    """Return the pixels that a page says it is high, the most of what it says; or a default.

    So high is the frame until its content is there to be measured.
    """
    if said := _SAID.match(_NAMED.sub("", text, count=1).lstrip()):
        return min(max(int(said[1]), _LEAST_HEIGHT), _MOST_HEIGHT) + _MARGIN
    own = _without_libraries(text)
    found = [int(match[1] or match[2]) for match in _HEIGHT.finditer(own)]
    fit = [height for height in found if _LEAST_HEIGHT <= height <= _MOST_HEIGHT]
    return max(fit) + _MARGIN if fit else _DEFAULT_HEIGHT


def _unwrapped(text: str) -> str:
    """Return the page that is all there is in ``text``, if it is one in a frame."""
    found = _FRAMED.search(text)
    if found is None or is_active(text[: found.start()] + text[found.end() :]):
        return text
    return unescape(found[1] or found[2] or "")


def _libraries(page: str) -> list[slice]:
    """Return where the large scripts of a page are. One that is overlooked costs time only."""
    found = list[slice]()
    at = 0
    while start := _SCRIPT.search(page, at):
        at = page.find("</script", start.end())
        if at < 0:
            break
        if at - start.end() >= _LIBRARY_CHARS:
            found.append(slice(start.end(), at))
    return found


def _without_libraries(page: str) -> str:
    own = list[str]()
    at = 0
    for library in _libraries(page):
        own.append(page[at : library.start])
        at = library.stop
    own.append(page[at:])
    return "".join(own)


def _packed(page: str) -> str:
    """Return a page as base64 of one deflate stream."""
    parts = list[bytes]()
    at = 0
    for library in _libraries(page):
        parts += [_deflated(page[at : library.start]), _library(page[library.start : library.stop])]
        at = library.stop
    parts += [_deflated(page[at:]), zlib.compress(b"", wbits=-15)]
    return b64encode(b"".join(parts)).decode("ascii")


@lru_cache(maxsize=4)
def _library(script: str) -> bytes:
    """Return what ``_deflated`` does: every figure brings the same, and it takes 0.2 s."""
    return _deflated(script)


def _deflated(text: str) -> bytes:
    """Return ``text`` as a piece of a deflate stream, which another can follow."""
    packer = zlib.compressobj(6, wbits=-15)
    return packer.compress(text.encode("utf-8", "replace")) + packer.flush(zlib.Z_FULL_FLUSH)


@lru_cache(maxsize=2)
def _code(name: str) -> str:
    """Return a program beside this module without its comments: every output carries it."""
    source = Path(__file__).with_name(name).read_text("utf-8")
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def page_script() -> str:
    """Return what runs in the notebook's page beside a frame: it is the same for every output."""
    return _code("notebook_page.js").replace("MOST_HEIGHT", str(_MOST_HEIGHT + _MARGIN))


# --- libraries that the outputs of a notebook share -----------------------------------------------

_KEPT: Final = '<script>window[Symbol.for("cellblock.frames.2")]("{name}","{packed}")</script>'


class Library(NamedTuple):
    """A chart's library: its name, with which of its versions it is, and it itself, packed."""

    name: str
    packed: str


def shared_library(name: str) -> Library | None:
    """Return a library that the host has, None if it has none of that name."""
    with contextlib.suppress(LookupError):
        return _library_of_hosts(name)
    return None


@lru_cache(maxsize=len(_FILES) + 2)
def _library_of_hosts(name: str) -> Library:
    script = background.read_vega() if name == "vega" else _file(name)
    if not script:
        raise LookupError(name)  # not remembered: Vega may be there later
    version = hashlib.sha256(script).hexdigest()[:16]
    packer = zlib.compressobj(6, wbits=-15)
    packed = packer.compress(script) + packer.flush()
    return Library(f"{name}-{version}", b64encode(packed).decode("ascii"))


def _file(name: str) -> bytes:
    own = [folder for folder in sys.path if folder.startswith(f"{sys.prefix}/")]
    for folder in own if name in _FILES else ():
        with contextlib.suppress(OSError):
            return Path(folder, _FILES[name]).read_bytes()
    return b""


class SharedLibraries:
    """Puts each library into one output of a notebook.

    It is put there anew when that cell runs again, is deleted, or clears what it showed. That a
    user cleared an output nobody tells; then frames say what to do.
    """

    def __init__(self) -> None:
        self._cell = ""
        self._holders = dict[str, str]()

    def begin(self, cell: str, deleted: Collection[str] = ()) -> None:
        """Begin a cell by what the front end calls it; empty where its outputs stand alone."""
        self._cell = cell
        self.forget(cell, *deleted)

    def forget(self, *cells: str) -> None:
        """Note that these cells' outputs are gone; without any, those of the cell that runs."""
        gone = cells or (self._cell,)
        self._holders = {name: cell for name, cell in self._holders.items() if cell not in gone}

    def complete(self, frame: Frame, *, here: bool = True) -> Frame:
        """Return the HTML of a frame with the library that it needs, unless another output has it.

        ``here``: it is shown in the cell that runs, and not in one before or in a widget.
        """
        name = frame.library
        library = shared_library(name.partition("-")[0]) if name else None
        if library is None or library.name != name or name in self._holders:
            return frame
        if here and self._cell:
            self._holders[name] = self._cell
        html = frame + _KEPT.format(name=name, packed=library.packed)
        return Frame(html, frame.hosts, library=name, page=frame.page)
