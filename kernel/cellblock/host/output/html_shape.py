"""Gives HTML a regular shape before a tree is built of it, in time linear in its length.

HTML tree builders take quadratic time and worse over deep nesting, unclosed formatting elements
and tags with thousands of attributes: 200 kB took nh3 5 s. Here tags are paired, nesting is
bounded and comments, declarations and elements whose content is no markup are taken out. This
bounds time only; what may be shown is decided on the tree (``html``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


_DEPTH: Final = 128
_FORMATTING_DEPTH: Final = 8
_ATTRIBUTE_CHARS: Final = 4_096

_QUOTED: Final = r"\"[^\"]*+\"|'[^']*+'"
#: Only tags that every tokenizer ends at the same place.
_NAME: Final = r"[A-Za-z][A-Za-z0-9:_-]*+"
_ATTRIBUTES: Final = (
    r"(?:[\s/]++[^\s\"'<>/=]++"
    rf"(?:\s*+=\s*+(?:{_QUOTED}|[^\s\"'<>=`][^\s\"'<>`]*+))?+)*+"
)
_TAG: Final = re.compile(rf"<(/?)({_NAME})({_ATTRIBUTES})[\s/]*+>")
_UNNAMED: Final = rf"</?{_NAME}{_ATTRIBUTES}[\s/]*+>"
_VALUES: Final = re.compile(_QUOTED)
#: A run of text and elements that hold text only, such as the cells of a table's row.
_LEAVES: Final = re.compile(
    r"(?:[^<]*+<(a|b|code|i|li|p|span|t[dh])"
    r"(?:\s(?:[^<>\"']|\"[^\"<>&\xa0]*+\"){0,400}+)?>[^<]*+</\1\s*+>)++"
)
_OPAQUE: Final = re.compile(
    r"<(?:!--|(?=[imnpstx])(iframe|math|no(?:embed|frames|script)|plaintext|"
    r"s(?:cript|tyle|vg)|t(?:emplate|itle)|xmp)(?=[\s/>]))",
    re.IGNORECASE,
)
#: Only these can close themselves in their first tag, of which this is the rest.
_FOREIGN: Final = ("math", "svg")
_EMPTY: Final = re.compile(r"[^<>]*+(?<=/)>")
_VOID: Final = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_FORMATTING: Final = frozenset(
    [
        "a",
        "b",
        "big",
        "code",
        "em",
        "font",
        "i",
        "nobr",
        "s",
        "small",
        "strike",
        "strong",
        "tt",
        "u",
    ]
)
#: What an element of this name ends when it stands open just before.
_CLOSES: Final = {
    "dd": ("dd", "dt"),
    "dt": ("dd", "dt"),
    "li": ("li",),
    "p": ("p",),
    "tbody": ("td", "th", "tr", "tbody", "thead"),
    "td": ("td", "th"),
    "tfoot": ("td", "th", "tr", "tbody", "thead"),
    "th": ("td", "th"),
    "tr": ("td", "th", "tr"),
}
_TABLE: Final = frozenset(["table", "tbody", "td", "tfoot", "th", "thead", "tr"])
#: What nh3 escapes, in a time that grows with the text or value that it stands in: so each has this
#: many at most. Texts are parted by comments, which nh3 takes out again.
_MOST_ESCAPED: Final = 500
_BETWEEN: Final = rf"(?:{_UNNAMED}|[^<&\xa0]++)*+"
_PIECE: Final = re.compile(rf"{_BETWEEN}(?:[&\xa0]{_BETWEEN}){{0,{_MOST_ESCAPED}}}+")


class Opaque(NamedTuple):
    """An element whose content is no HTML: its lower-case name and its source, tags included."""

    name: str
    source: str


def cut_opaque(text: str, replace: Callable[[Opaque], str]) -> str:
    """Return ``text`` without comments, each opaque element replaced by what ``replace`` says.

    One that is not closed takes all that follows, as in a browser.
    """
    parts, at = [], 0
    while found := _OPAQUE.search(text, at):
        parts.append(text[at : found.start()])
        name = (found[1] or "").lower()
        at = _end_of(name, text, found)
        if name:
            parts.append(replace(Opaque(name, text[found.start() : at])))
    parts.append(text[at:])
    return "".join(parts)


def _end_of(name: str, text: str, start: re.Match[str]) -> int:
    if not name:
        end = text.find("-->", start.start() + 2)
        return len(text) if end < 0 else end + 3
    nests, depth = name in _FOREIGN, 1
    if nests and (empty := _EMPTY.match(text, start.end())):
        return empty.end()
    for tag in re.compile(rf"<(/?){name}(?=[\s/>])", re.IGNORECASE).finditer(text, start.end()):
        depth += -1 if tag[1] else nests and not _EMPTY.match(text, tag.end())
        if depth == 0:
            end = text.find(">", tag.end())
            return len(text) if end < 0 else end + 1
    return len(text)


def regular(text: str) -> tuple[str, frozenset[str]]:
    """Return HTML whose tags are paired and nested at most 128 deep, and all elements' names.

    It shows as ``text`` does. A ``<`` that opens no tag becomes ``&lt;``; a tag beyond the bounds
    goes. The names leave out some that hold text only.
    """
    tags = _Tags()
    parts, at = [], 0
    while at < len(text):
        if leaves := _LEAVES.match(text, at):
            parts.append(leaves[0])
            at = leaves.end()
        start = text.find("<", at)
        if start < 0:
            break
        parts.append(text[at:start])
        tag = _TAG.match(text, start)
        parts.append(tags.take(tag) if tag else "&lt;")
        at = tag.end() if tag else start + 1
    parts.append(text[at:])
    return "".join(parts), frozenset(tags.names)


def parted(text: str) -> str:
    """Return regular HTML in texts that nh3 is not long over; it takes the comments out again."""
    # Each match begins where the last ended, so that no part is read twice.
    return _PIECE.sub(r"\g<0><!---->", text) if _escaped(text) > _MOST_ESCAPED else text


def _escaped(text: str) -> int:
    return text.count("&") + text.count("\xa0")


class _Tags:
    """Pairs tags; single use."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._open: list[str] = []
        self._formatting = 0

    def take(self, tag: re.Match[str]) -> str:
        """Return what stands for a tag, after what ends before it."""
        name = tag[2].lower()
        if tag[1]:
            return "" if name in _VOID else self._close(name)
        self.names.add(name)
        if len(tag[3]) > _ATTRIBUTE_CHARS and _is_overlong(tag[3]):
            return ""
        if name in _VOID:
            return tag[0]
        ended = "".join(self._implied(name))
        return ended + (tag[0] if self._push(name) else "")

    def _implied(self, name: str) -> list[str]:
        ended, closes = [], _CLOSES.get(name, ())
        while self._open and self._open[-1] in closes:
            ended.append(self._pop())
        return ended

    def _push(self, name: str) -> bool:
        formatting = name in _FORMATTING
        if len(self._open) >= _DEPTH or (formatting and self._formatting >= _FORMATTING_DEPTH):
            return False
        self._open.append(name)
        self._formatting += formatting
        return True

    def _close(self, name: str) -> str:
        """Return the end tags that close the innermost element of that name, if it is open.

        A table's cell can only be closed by its table.
        """
        for depth, opened in enumerate(reversed(self._open), 1):
            if opened == name:
                return "".join([self._pop() for _ in range(depth)])
            if opened in _TABLE and name not in _TABLE:
                break
        return ""

    def _pop(self) -> str:
        name = self._open.pop()
        self._formatting -= name in _FORMATTING
        return f"</{name}>"


def _is_overlong(attributes: str) -> bool:
    if _escaped(attributes) > _MOST_ESCAPED:
        return True
    return len(_VALUES.sub("", attributes)) > _ATTRIBUTE_CHARS
