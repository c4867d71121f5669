"""HTML that a notebook may show: nh3 decides on the tree, this module says what it lets through.

Invariant: of what the guest wrote, only elements and attributes of the tables here come out.
None of them runs code, loads anything, submits anything, or switches an HTML parser to another
language, so parsing the result again (a browser, a saved notebook, nbconvert) can't yield what
was not let through. The two things that do switch, style sheets and drawings, are cut out before
and written anew by ``css`` and ``svg``.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from cellblock.host.output import css, html_shape, markdown, names, svg
from cellblock.host.output.css import attribute
from cellblock.host.output.html_allowlist import ATTRIBUTES, TAGS
from cellblock.host.output.text import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


_HOLE: Final = "cellblock-svg"
#: Elements of a kind that someone misses when it goes; others go without a word.
_MISSED: Final = frozenset(
    ("applet", "audio", "button", "canvas", "embed", "form", "frame", "link", "object", "video")
)
#: A parser's cost is in these: some 1 and 3 µs each.
_MAX_TAGS: Final = 1_500_000
_MAX_ENTITIES: Final = 400_000
#: Each costs some 20 µs at least, however small.
_MAX_DRAWINGS: Final = 1_000
_QUIET: Final = frozenset(("noscript", "style", "svg", "title"))
_SHOWN: Final = re.compile(r"<(?:hr|img|input|meter|progress|svg)\b|(?:^|>)\s*+[^<\s]")


def clean(text: str) -> str:
    """Return what may be shown of ``text``, with a note when something was left out.

    Raises ``RefusedError`` when nothing would be seen, or when it would take seconds.
    """
    if text.count("<") > _MAX_TAGS or text.count("&") > _MAX_ENTITIES:
        raise RefusedError("too much markup")
    return _Cleaner(names.scope(text)).clean(text)


class _Cleaner:
    """Cleans one HTML text; single use."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._nonce = secrets.token_hex(8)
        self._rules: list[str] = []
        self._drawings: list[str] = []
        self._missed: set[str] = set()

    def clean(self, text: str) -> str:
        body, elements = html_shape.regular(html_shape.cut_opaque(text, self._opaque))
        self._missed |= elements & _MISSED
        body = names.clean_formulas(self._filled(self._filtered(html_shape.parted(body))))
        if not self._missed:
            return self._scoped(body)
        missed = ", ".join(sorted(self._missed))
        if not _SHOWN.search(body):
            raise RefusedError(missed)
        return f"{self._scoped(body)}\n<p><small>[cellblock left out {missed}]</small></p>"

    def _filtered(self, text: str) -> str:
        import nh3  # noqa: PLC0415 - 3 ms at start, and most kernels show no HTML at first

        return nh3.clean(
            text,
            tags={*TAGS, _HOLE},
            clean_content_tags=set(),
            attributes={tag: set(kept) for tag, kept in ATTRIBUTES.items()},
            attribute_filter=self._attribute,
            set_tag_attribute_values={"input": {"type": "checkbox"}},
            url_schemes={"data", "http", "https", "mailto"},
        )

    def _attribute(self, tag: str, name: str, value: str) -> str | None:
        """Return an attribute's value, None to drop it."""
        if tag == _HOLE:
            return value if value.startswith(self._nonce) else None
        kept = attribute(name, value)
        if kept is None and (tag, name) == ("img", "src"):
            self._missed.add("remote image")
        return kept

    def _opaque(self, element: html_shape.Opaque) -> str:
        if element.name == "style":
            self._rules.append(_content(element.source))
        elif element.name == "svg":
            return self._drawing(element.source)
        if element.name not in _QUIET:
            self._missed.add(element.name)
        return ""

    def _drawing(self, source: str) -> str:
        """Return an element that holds a drawing's place: nh3 keeps it only with its nonce."""
        drawing = _drawn(source) if len(self._drawings) < _MAX_DRAWINGS else None
        if drawing is None:
            self._missed.add("svg")
            return ""
        self._drawings.append(drawing)
        return self._hole(len(self._drawings) - 1)

    def _hole(self, index: int) -> str:
        return f'<{_HOLE} class="{self._nonce}-{index}"></{_HOLE}>'

    def _filled(self, body: str) -> str:
        """Return ``body`` with its drawings.

        In attributes and text nh3 writes quotes or brackets as entities, so only elements match.
        """
        hole = re.compile(rf'<{_HOLE} class="{self._nonce}-(\d+)"></{_HOLE}>')
        return hole.sub(lambda found: self._drawings[int(found[1])], body)

    def _scoped(self, body: str) -> str:
        """Return ``body`` with its style sheet, which matches nothing outside of it."""
        rules = css.sheet("\n".join(self._rules), self._scope)
        if not rules:
            return body
        return f'<div id="{self._scope}">\n<style>\n{rules}\n</style>\n{body}\n</div>'


def _content(source: str) -> str:
    start, end = source.find(">"), source.rfind("</")
    return source[start + 1 : end if end > start else len(source)]


def _drawn(source: str) -> str | None:
    try:
        return svg.clean(source)
    except RefusedError:
        return None


# One sanitiser for each type that can carry scripts and remote references (requirement 6.1).
#
# Each returns text from which nothing runs or loads. What none of it should be shown of, it
# refuses.

_SANITISERS: Final[dict[str, Callable[[str], str]]] = {
    "image/svg+xml": svg.clean,
    "text/html": clean,
    "text/latex": names.clean,
    "text/markdown": markdown.clean,
}


def sanitise(mime: str, text: str) -> str:
    """Return what may be shown of ``text``. Raises ``RefusedError``."""
    return _SANITISERS[mime](text)
