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
from bisect import bisect_left
from html import escape, unescape
from typing import Final

from cellblock.host.output import names
from cellblock.host.output.html import ATTRIBUTES, OTHER_ELEMENTS, TAGS, attribute
from cellblock.host.output.names import JOINER
from cellblock.host.output.text import RefusedError

# Formulas in Markdown, where a front end could make attributes or commands of them.
#
# JupyterLab takes formulas out of the text, leaves ``@@0@@`` in their places, parses what is
# left and puts them back with only ``&``, ``<`` and ``>`` escaped. One whose place went into an
# attribute (a link's address or title, the language of a code block) ends it with its quotes and
# starts a handler. And what a formula says is settled only when Markdown's entities and escapes
# are gone.

#: What starts a formula, or an escape that could spell a formula's place.
_MARK: Final = re.compile(r"[$\\]")
_BLANK_LINE: Final = re.compile(r"\n\s*\n")
_PLACE: Final = re.compile(r"@(?=@\d)")
_ADDRESS: Final = re.compile(r"(?:(?:https?|ftp)://|www\.)[^\s<]*+", re.IGNORECASE)
_LINKED: Final = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_ENTITY: Final = re.compile(r"&(?=(#\d{1,8}|#[xX][0-9A-Fa-f]{1,7}|[A-Za-z][A-Za-z0-9]{1,31}))")
_COMMAND: Final = re.compile(r"[A-Za-z\\]")
_UNSETTLED: Final = re.compile(r"[$\\@&<]")


def settle(text: str) -> str:
    """Return Markdown without places of formulas, addresses that hold one, or spelled commands."""
    if "@@" in text:
        text = _PLACE.sub("@" + JOINER, text)
    if "&" in text:
        text = _ENTITY.sub(_entity, text)
    return _ADDRESS.sub(_address, text) if _MARK.search(text) else text


def _entity(found: re.Match[str]) -> str:
    """Break an entity that stands for a part of a command's name."""
    name = f"&{found[1]};"
    character = unescape(name)
    return "&" + JOINER if character != name and _COMMAND.search(character) else "&"


def _address(found: re.Match[str]) -> str:
    """Break an address that would be a link by itself, if a formula starts within."""
    return _LINKED.sub(JOINER, found[0]) if _MARK.search(found[0]) else found[0]


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
    text = settle(_LINE_END.sub("\n", text))
    text = _OPENING.sub(_opening, _FENCE.sub(_fence, text))
    text = _BRACKET.sub(_Brackets(text).settle, text)
    text = _SCRIPT.sub(rf"\g<0>{JOINER}", text)
    return names.clean_formulas(text)


def _fence(found: re.Match[str]) -> str:
    fence, info = found[1] or found[4], found[2] or found[5]
    plain = found[3] or not _UNSETTLED.search(info)  # it names a language, and does nothing else
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
    """Settles the brackets of one text, by where formulas could start in it."""

    def __init__(self, text: str) -> None:
        self._marks = [mark.start() for mark in _MARK.finditer(text)]
        blanks = _BLANK_LINE.finditer(text) if self._marks else ()
        self._ends = [blank.start() for blank in blanks]

    def settle(self, found: re.Match[str]) -> str:
        """Return a bracket, broken unless what follows can only lead away."""
        bracket, text, at = found[0], found.string, found.end()
        if len(bracket) > 1:
            return bracket
        leads_away = bracket == "]" and _HARMLESS.match(text, at)
        settled = leads_away and (not self._formula_follows(at) or _LINK.match(text, at))
        return bracket if settled else bracket + JOINER

    def _formula_follows(self, at: int) -> bool:
        """Return whether one could start between ``at`` and its paragraph's end."""
        mark = bisect_left(self._marks, at)
        if mark == len(self._marks):
            return False
        end = bisect_left(self._ends, at)
        return end == len(self._ends) or self._marks[mark] < self._ends[end]
