"""Puts HTML that needs scripts into two nested frames: scripts run there, and reach nothing.

    notebook ─▶ outer frame: a content-security policy, no script ─▶ inner frame: the guest's page

Both frames are sandboxed with ``allow-scripts`` alone. So each has an origin of its own, which
shares nothing with any other, and opens no popups, forms, dialogs or downloads, nor can it navigate
the notebook. The policy lets nothing be loaded. The inner frame inherits it, and can't go to
another address because of the outer frame's ``frame-src``. Two things are covered by no policy of
today's browsers: connections ahead of need, and WebRTC. ``frames.js`` removes these before it
writes the guest's page, and says why that holds.

One script of cellblock's own, ``notebook_page.js``, runs in the notebook beside the frames. The
frame tells it the height of its content, it tells the frame the notebook's colours, and nothing
else passes.

The guest's page is sent compressed and base64-encoded. So no part of it is read as markup outside
of the inner frame, and a chart's library takes a third of its size.

A page may name a library of ``_FILES``, or Vega, instead of carrying it. The host takes the library
from the packages of its own interpreter, never from a guest, and puts it into one output of the
notebook (``SharedLibraries``). The script in the notebook hands it to all frames that ask.
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

#: The directives of the content-security policy, each with its reason.
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
#: Elements that make HTML a control, which needs a frame.
_CONTROLS: Final = "audio|button|canvas|dialog|form|iframe|select|textarea|video"
_SCRIPTS: Final = re.compile(r"<(?:script|iframe)")
#: A control, or a script that is a program. A script may also be data, such as Jupyter's own for
#: widgets.
_ELEMENT: Final = re.compile(
    rf"<(?:{_CONTROLS})(?=[\s/>])"
    r"|<script(?=[\s/>])(?![^>]{0,300}\btype\s*=\s*[\"']?(?:application|text)/(?!\w*(?:java|ecma)script))"
)
#: HTML with more scripts and frames than this is not searched further: that would take seconds.
_MOST_SCRIPTS: Final = 2_000
#: An element with an event handler.
_HANDLED: Final = re.compile(r"<[a-z][^<>]{0,4000}?\son[a-z]{3,30}\s*+=")
#: A page within a frame of the guest's, as folium and others send it.
_FRAMED: Final = re.compile(
    r"<iframe\s[^>]{0,1000}?\bsrcdoc=(?:\"([^\"]*+)\"|'([^']*+)')", re.IGNORECASE
)

#: A height that a page's style, attribute or script gives.
_HEIGHT: Final = re.compile(
    r"\bheight\s*+[:=]\s*+[\"']?\s*+(\d{2,4})(?:\.\d+)?(?:px|[\"';\s])|[\"']height[\"']\s*+:\s*+(\d{2,4})\b"
)
#: The height of a figure, which ``guest.library_patches`` writes at the page's beginning.
_FIGURE_HEIGHT: Final = re.compile(r"<!-- height: (\d{1,5})px -->")
_DEFAULT_HEIGHT: Final = 450
#: The libraries that are a file of an installed package: its path below a folder of ``sys.path``.
_FILES: Final = {
    "bokeh": "bokeh/server/static/js/bokeh.min.js",
    "plotly": "plotly/package_data/plotly.min.js",
}
#: The name of the library that a page needs, which ``guest.library_patches`` writes first.
_LIBRARY_NAME: Final = re.compile(r"<!-- library: (\w{1,20}) -->")
_LEAST_HEIGHT: Final = 80
_MOST_HEIGHT: Final = 1_600
_MARGIN: Final = 16
#: A script of at least this many characters is a library. Heights in it are not the figure's.
_LIBRARY_CHARS: Final = 60_000
_SCRIPT: Final = re.compile(r"<script\b[^>]{0,1000}>")
#: Characters of a page's beginning that are kept for readers of text. A cell may show thousands of
#: pages, which are read together.
_MOST_READ: Final = 20_000
#: The beginning of a page with at most 1,000 tags and entities.
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
#: The fallback inside is shown where front ends take frames out of untrusted notebooks.
_FRAME: Final = (
    '<iframe class="cellblock-frame"{library} sandbox="allow-scripts" title="Interactive output"'
    ' loading="lazy" referrerpolicy="no-referrer" style="display:block;box-sizing:border-box;'
    "width:100%;height:{height}px;min-height:20px;resize:vertical;border:0;border-radius:3px;"
    'color-scheme:light" srcdoc="{outer}">{fallback}</iframe><script>{page}</script>'
)
_FALLBACK: Final = (
    "Interactive output of cellblock: run the cell, or trust this notebook, to see it."
)


#: HTML with more characters than this is not looked at as settings.
_MOST_SETTINGS: Final = 20_000
#: Elements that show nothing themselves: styles, links, metadata, comments, and the configuration
#: of the notebook's MathJax, which a cell has no business to change.
_SETTINGS: Final = re.compile(
    r"<style\b[^>]*+>.*?</style\s*>|<(?:link|meta)\b[^>]*+>|<!--.*?-->"
    r"|<script\b[^>]*+>\s*+MathJax\.Hub\.Config\(.*?</script\s*>",
    re.DOTALL | re.IGNORECASE,
)

#: If a bundle has one of these types, its JavaScript is another form of the same output, which can
#: be left out.
_WITHOUT_SCRIPTS: Final = ("text/html", "image/png", "image/svg+xml", "text/markdown")


def page_of(data: dict[Any, Any]) -> str | None:
    """Return the page that a bundle needs a frame for; None if it needs none."""
    html = data.get("text/html")
    script = data.get("application/javascript")
    if isinstance(html, str) and "<" in html and is_active(html) and not _only_sets(html):
        return clean_controls(html)
    if not isinstance(script, str) or any(mime in data for mime in _WITHOUT_SCRIPTS):
        return None
    # Cleaned first, since a control character within a closing tag could hide it from the pattern.
    closed = re.sub(r"</(?=script)", r"<\\/", clean_controls(script), flags=re.IGNORECASE)
    # As in classic notebooks, the program draws into ``element``.
    start = "const element=document.getElementById('element')"
    return f'<div id="element"></div><script>{start};</script><script>{closed}</script>'


def is_active(text: str) -> bool:
    """Return whether HTML needs scripts, frames or controls to show what it should.

    A wrong answer does no harm: HTML that is not put into a frame is sanitised.
    """
    lowered = text.lower()
    if sum(1 for _ in islice(_SCRIPTS.finditer(lowered), _MOST_SCRIPTS + 1)) > _MOST_SCRIPTS:
        return False
    return bool(_ELEMENT.search(lowered) or _HANDLED.search(lowered))


def _only_sets(html: str) -> bool:
    """Return whether HTML shows nothing itself, and only sets how text and formulas look."""
    return len(html) <= _MOST_SETTINGS and not _SETTINGS.sub("", html).strip()


def framed(text: str, hosts: Collection[str] = ()) -> Frame:
    """Return the page ``text`` in frames; ``hosts`` are lines in it that are the host's own."""
    name_match = _LIBRARY_NAME.match(text)
    library = shared_library(name_match[1]) if name_match else None
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
    """Return the beginning of a page, without libraries, for readers of text."""
    match = _BEGINNING.match(_without_libraries(page)[:_MOST_READ])
    return match[0] if match else ""


def declared_height(text: str) -> int:
    """Return how many pixels high a page is by its own words: the largest height that it names.

    The frame has this height until its content can be measured. A default if it names none.
    """
    if figure := _FIGURE_HEIGHT.match(_LIBRARY_NAME.sub("", text, count=1).lstrip()):
        return min(max(int(figure[1]), _LEAST_HEIGHT), _MOST_HEIGHT) + _MARGIN
    own = _without_libraries(text)
    heights = [int(match[1] or match[2]) for match in _HEIGHT.finditer(own)]
    fit = [height for height in heights if _LEAST_HEIGHT <= height <= _MOST_HEIGHT]
    return max(fit) + _MARGIN if fit else _DEFAULT_HEIGHT


def _unwrapped(text: str) -> str:
    """Return the page within the guest's own frame, if ``text`` has nothing else that is active."""
    frame = _FRAMED.search(text)
    if frame is None or is_active(text[: frame.start()] + text[frame.end() :]):
        return text
    return unescape(frame[1] or frame[2] or "")


def _libraries(page: str) -> list[slice]:
    """Return where a page has large scripts. If one is overlooked, that only costs time."""
    libraries = list[slice]()
    position = 0
    while start := _SCRIPT.search(page, position):
        position = page.find("</script", start.end())
        if position < 0:
            break
        if position - start.end() >= _LIBRARY_CHARS:
            libraries.append(slice(start.end(), position))
    return libraries


def _without_libraries(page: str) -> str:
    """Return a page without its large scripts."""
    own = list[str]()
    position = 0
    for library in _libraries(page):
        own.append(page[position : library.start])
        position = library.stop
    own.append(page[position:])
    return "".join(own)


def _packed(page: str) -> str:
    """Return a page as base64 of one deflate stream."""
    chunks = list[bytes]()
    position = 0
    for library in _libraries(page):
        chunks += [
            _deflated(page[position : library.start]),
            _library(page[library.start : library.stop]),
        ]
        position = library.stop
    chunks += [_deflated(page[position:]), zlib.compress(b"", wbits=-15)]
    return b64encode(b"".join(chunks)).decode("ascii")


@lru_cache(maxsize=4)
def _library(script: str) -> bytes:
    """Return ``_deflated(script)``, cached: it takes 0.2 s, and each figure has the same script."""
    return _deflated(script)


def _deflated(text: str) -> bytes:
    """Return ``text`` as a piece of a deflate stream, after which another piece can follow."""
    packer = zlib.compressobj(6, wbits=-15)
    return packer.compress(text.encode("utf-8", "replace")) + packer.flush(zlib.Z_FULL_FLUSH)


@lru_cache(maxsize=2)
def _code(name: str) -> str:
    """Return a script beside this module without its comments, since each output carries it."""
    source = Path(__file__).with_name(name).read_text("utf-8")
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def page_script() -> str:
    """Return the script that runs in the notebook beside a frame, the same for each output."""
    return _code("notebook_page.js").replace("MOST_HEIGHT", str(_MOST_HEIGHT + _MARGIN))


# --- libraries that the outputs of a notebook share -----------------------------------------------

#: Hands a library to the script of the notebook.
_KEPT: Final = '<script>window[Symbol.for("cellblock.frames.2")]("{name}","{packed}")</script>'


class Library(NamedTuple):
    """A chart library: its name with a hash of its version, and its script, packed."""

    name: str
    packed: str


def shared_library(name: str) -> Library | None:
    """Return the host's library of this name; None if the host does not have it."""
    with contextlib.suppress(LookupError):
        return _library_of_hosts(name)
    return None


@lru_cache(maxsize=len(_FILES) + 2)
def _library_of_hosts(name: str) -> Library:
    """Read and pack a library. Raises LookupError, which is not cached, if it is not there."""
    script = background.read_vega() if name == "vega" else _file(name)
    if not script:
        raise LookupError(name)  # Vega may be made later
    version = hashlib.sha256(script).hexdigest()[:16]
    packer = zlib.compressobj(6, wbits=-15)
    packed = packer.compress(script) + packer.flush()
    return Library(f"{name}-{version}", b64encode(packed).decode("ascii"))


def _file(name: str) -> bytes:
    """Return a library's file from the host's own packages; empty if it is not there.

    Those are in the folders of ``sys.path`` below ``sys.prefix``.
    """
    own = [folder for folder in sys.path if folder.startswith(f"{sys.prefix}/")]
    for folder in own if name in _FILES else ():
        with contextlib.suppress(OSError):
            return Path(folder, _FILES[name]).read_bytes()
    return b""


class SharedLibraries:
    """The record of which cell's output has which library. Each library is in one output.

    When that cell runs again, is deleted or clears its output, the next figure has the library
    again. The host is not told when the user clears an output. Frames then say what to do.
    """

    def __init__(self) -> None:
        #: The front end's id of the running cell; empty if its outputs do not share libraries.
        self._cell = ""
        #: The cell whose output has a library, by the library's name.
        self._holders = dict[str, str]()

    def begin(self, cell: str, deleted: Collection[str] = ()) -> None:
        """Begin a cell, and forget which libraries its old output and ``deleted`` cells have.

        ``cell`` is the front end's id for the cell, or empty if its outputs must not rely on
        another output.
        """
        self._cell = cell
        self.forget(cell, *deleted)

    def forget(self, *cells: str) -> None:
        """Note that the outputs of these cells are gone; without arguments, the running cell's."""
        cleared_cells = cells or (self._cell,)
        self._holders = {
            name: cell for name, cell in self._holders.items() if cell not in cleared_cells
        }

    def complete(self, frame: Frame, *, here: bool = True) -> Frame:
        """Return the frame with the library that it needs, unless another output has that.

        ``here``: the frame is shown in the running cell, not under an earlier cell or in a widget,
        so that later frames may rely on its library.
        """
        name = frame.library
        library = shared_library(name.partition("-")[0]) if name else None
        if library is None or library.name != name or name in self._holders:
            return frame
        if here and self._cell:
            self._holders[name] = self._cell
        html = frame + _KEPT.format(name=name, packed=library.packed)
        return Frame(html, frame.hosts, library=name, page=frame.page)
