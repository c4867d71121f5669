"""``readable``: the text of a bundle, for readers who have text alone, such as a language model.

That is the plain text. If this only names an object, as in ``<Figure size 640x480>``, it is the
Markdown, LaTeX, JSON or HTML that the bundle has instead. HTML is reduced to its text: a table's
row becomes a line with tabs between the cells. Of a page in frames it is the text of its HTML.
"""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output.text import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = "text/plain"
_HTML = "text/html"
_JSON = "application/json"
#: Types whose source is readable.
_TEXTS: Final = ("text/markdown", "text/latex")
#: All types that may be read in place of an object's name.
TYPES: Final = (*_TEXTS, _JSON, _HTML)
#: The plain text of an object without a representation of its own.
_NAME: Final = re.compile(r"<[^\n]*>")
#: Characters of HTML that are read at most, from the beginning.
_MOST: Final = 1 << 20
#: Elements that are cells of a table's row.
_CELLS: Final = frozenset({"td", "th"})
#: Elements that begin and end a line of text.
_LINES: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "caption", "dd", "details", "div", "dl",
        "dt", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr",
        "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot",
        "thead", "tr", "ul",
    }
)  # fmt: skip
#: Elements whose contents are not read.
_UNREAD: Final = frozenset(
    {
        "audio", "canvas", "noscript", "object", "script", "style", "svg", "template", "title",
        "video",
    }
)  # fmt: skip
_PRE: Final = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t\n\r\f]+")
_AROUND_CELL: Final = re.compile(r" ?</t[dh]> ?")
_LINE: Final = re.compile(rf"</?(?:{'|'.join(sorted(_LINES))})>")
_CELL: Final = re.compile(r"<t[dh]> ?")


def is_name(text: str) -> bool:
    """Return whether a plain text is only an object's name, such as ``<Figure size 640x480>``."""
    return _NAME.fullmatch(text.strip()) is not None


def readable(data: Mapping[str, Any]) -> str:
    """Return the text of a cleaned bundle; empty if it has none."""
    text = str(data.get(_PLAIN, ""))
    if text and not is_name(text):
        return text
    for kind in _TEXTS:
        if str(data.get(kind, "")).strip():
            return str(data[kind])
    if _JSON in data:
        return json.dumps(data[_JSON], ensure_ascii=False)
    return _text_of_html(data[_HTML]) or text if _HTML in data else text


def _text_of_html(value: Any) -> str:
    """Return the text of HTML, or that of the guest's page in a frame."""
    if not isinstance(value, Frame):
        return text_of(str(value))
    from cellblock.host.output import html  # noqa: PLC0415 - a sandbox's start shows no markup

    return text_of(html.text_of_page(value.page))


def text_of(html: str) -> str:
    """Return the text of HTML; empty if it has none."""
    import nh3  # noqa: PLC0415 - a sandbox's start shows no markup

    # nh3 keeps text and the tags that lines and cells are told by.

    cleaned = nh3.clean(
        html[:_MOST],
        tags={*_CELLS, *_LINES},
        clean_content_tags=set(_UNREAD),
        attributes={},
    )
    # The result is well formed, and has "<" only in those tags, so patterns can take it apart.
    lines = list[str]()
    for piece in _PRE.split(cleaned):
        if piece.startswith("<pre>"):
            lines += piece.removeprefix("<pre>").removesuffix("</pre>").split("\n")
            continue
        flat = _CELL.sub("", _AROUND_CELL.sub("\t", _BLANKS.sub(" ", piece)))
        texts = (line.strip(" ").removesuffix("\t") for line in _LINE.split(flat))
        lines += [line for line in texts if line.strip()]
    return unescape(_LINE.sub("", "\n".join(lines))).strip("\n")
