"""Markdown, made harmless without being parsed.

Front ends read Markdown with different parsers (marked, mistune, markdown-it, pandoc), and what
is code to one is HTML to the next. So nothing here depends on where code, links or formulas
begin: each place where *some* parser could see a tag, an image, an active link or a reaching
TeX command is broken by a word joiner (U+2060, invisible), code or not. A few tags and carried
images come through in one canonical spelling.

Price: in code, a tag or ``a<b`` holds a joiner, which is copied with it.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Final

from cellblock.host.output import formulas, latex
from cellblock.host.output.allow_html import ATTRIBUTES, OTHER_ELEMENTS, TAGS
from cellblock.host.output.attributes import attribute
from cellblock.host.output.formulas import Formulas
from cellblock.host.output.latex import JOINER
from cellblock.host.output.refusal import RefusedError

_INTERESTING: Final = re.compile(r"<[A-Za-z/!?]|!\[|\][(:]|```|~~~|:::|[\\$]|&[#A-Za-z]|@@")
_LINE_END: Final = re.compile("\r\n?|[\x85\u2028\u2029]")
#: A fence and what names its language: a front end may draw its content with a library that
#: loads images, and writes the name into an attribute.
_FENCE: Final = re.compile(
    r"(?<![`~:])(?:((?:`{3,}+|:{3,}+)[ \t]*+)([^\n`]++)(`?)|(~{3,}+[ \t]*+)([^\n]++))"
)

#: Tags that only mark up; a checkbox is one with its type only, which ``html`` sees to.
_TAGS: Final = TAGS - {"input"}
#: A tag that looks the same to every parser, an autolink, a generic type, or any other opening.
_OPENING: Final = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9]*+)(?P<attributes>"
    r"(?:[ \t]++[A-Za-z]++(?:=(?:\"[^\"<>\n]*+\"|'[^'<>\n]*+'))?+)*+)[ \t]*+/?>"
    r"|<(?:https?://|mailto:)[\w./?#%&+~:@,;!-]*+>"
    r"|<(?P<generic>[A-Za-z][\w.]*+)(?:[, ]++[A-Za-z][\w.]*+)*+>"
    r"|<(?=[A-Za-z/!?])",
    re.ASCII,
)
_ATTRIBUTE: Final = re.compile(r"([A-Za-z]+)(?:=(?:\"([^\"]*+)\"|'([^']*+)'))?+")
#: Values that mean nothing to a Markdown parser that does not see the tag around them.
_INERT: Final = re.compile(r"[\w #%.,:;/()+?=&@~!-]*+", re.ASCII)

_BRACKET: Final = re.compile(
    r"!\[[^\[\]\\`\n$<&!@]*+\]\(data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]++\)"
    r"|!(?=\[)|\](?=[(:])"
)
#: What follows the bracket of a link or definition: a scheme that only leads away, or no scheme.
_HARMLESS: Final = re.compile(
    r"[(:][\s>]{0,99}+(?![\s>])(?:https?://|mailto:|[^\s:&\\<)/?#]{0,199}+(?=[\s)/?#]|\Z))",
    re.IGNORECASE,
)
#: A link that ends before any formula could start: address and title, as all parsers read them.
_LINK: Final = re.compile(
    r"\([ \t]*+(?:[^\s()$\\<>\"`]|\([^\s()$\\<>\"`]*+\))++"
    r"(?:[ \t]++(?:\"[^\"$\\@\n]*+\"|'[^'\"$\\@\n]*+'))?+[ \t]*+\)"
)
#: Attributes without a value that take the keyboard or the page's top layer.
_TAKING: Final = frozenset(("autofocus", "contenteditable", "inert", "popover"))
_WORD: Final = re.compile(r"\w+", re.ASCII)
#: In a tag that is broken already; it costs nothing to hold twice.
_SCRIPT: Final = re.compile(r"=\s*+[\"']?\s*+(?:java|vb)script(?=:)", re.IGNORECASE)


#: Characters that open and close something, and how many a front end pairs in a second or so:
#: its parsers take a time that grows with their square.
_MARKS: Final = "*_~`[]"
_MOST_MARKS: Final = 50_000


def clean(text: str) -> str:
    """Return ``text`` with everything active broken, and otherwise as it is.

    Raises RefusedError where it would take the reader's page seconds.
    """
    if len(text) > _MOST_MARKS and sum(map(text.count, _MARKS)) > _MOST_MARKS:
        raise RefusedError("too much markup")
    if not _INTERESTING.search(text):
        return text
    text = formulas.settle(_LINE_END.sub("\n", text))
    text = _OPENING.sub(_opening, _FENCE.sub(_fence, text))
    text = _BRACKET.sub(_Brackets(text).settle, text)
    text = _SCRIPT.sub(rf"\g<0>{JOINER}", text)
    return latex.clean_formulas(text)


def _fence(found: re.Match[str]) -> str:
    fence, info = found[1] or found[4], found[2] or found[5]
    plain = found[3] or formulas.is_language(info)
    drawn = "mermaid" in unescape(info).lower()
    return found[0] if plain and not drawn else f"{fence}text{found[3] or ''}"


def _opening(found: re.Match[str]) -> str:
    name = (found["name"] or "").lower()
    if name in _TAGS:
        return f"<{found['end']}{name}{_attributes(name, found['attributes'])}>"
    if name in OTHER_ELEMENTS or found["end"] or found["attributes"]:
        return f"<{JOINER}{found[0][1:]}"
    generic = (found["generic"] or name).lower()
    words = {word.lower() for word in _WORD.findall(found[0])}
    inert = len(found[0]) > 1 and generic not in OTHER_ELEMENTS and not words & _TAKING
    return found[0] if inert else f"<{JOINER}{found[0][1:]}"


def _attributes(tag: str, source: str) -> str:
    kept, known = [], ATTRIBUTES["*"] | ATTRIBUTES.get(tag, frozenset())
    for found in _ATTRIBUTE.finditer(source):
        name = found[1].lower()
        value = attribute(name, unescape(found[2] or found[3] or "")) if name in known else None
        if value is not None and _INERT.fullmatch(value):
            kept.append(f' {name}="{escape(value)}"')
    return "".join(kept)


class _Brackets:
    """Settles the brackets of one text."""

    def __init__(self, text: str) -> None:
        self._formulas = Formulas(text)

    def settle(self, found: re.Match[str]) -> str:
        """Return a bracket, broken unless what follows can only lead away."""
        bracket, text, at = found[0], found.string, found.end()
        if len(bracket) > 1:
            return bracket
        leads_away = bracket == "]" and _HARMLESS.match(text, at)
        settled = leads_away and (not self._formulas.follow(at) or _LINK.match(text, at))
        return bracket if settled else bracket + JOINER
