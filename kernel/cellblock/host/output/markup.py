"""Cleans the values within markup: ids, classes, references, links, images, styles.

Used by ``html`` and by the kinds of ``widget_models``. Pure functions.

Style sheets and style attributes are read by a grammar that is far smaller than CSS. The result is
written anew from pieces that matched it whole: without escapes, ``url()``, at-rules or unknown
functions, and with every quote and bracket closed. So all CSS parsers read the result alike, it
names no resource, and it can't end the element around it. A piece that does not match is dropped,
however a parser would have read it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


def words(*families: str) -> frozenset[str]:
    """Return the words of a table as a set. Each line has the words of one family."""
    return frozenset(" ".join(families).split())


_ID: Final = re.compile(r"[A-Za-z_][\w:.-]{0,199}", re.ASCII)
#: The beginning of ids that pandas' Styler gives its tables. They stay as they are, since users'
#: code looks for them and no front end uses such an id.
_STYLER: Final = "T_"
_PREFIX: Final = "cb-"

#: First parts of class names that a front end's own style sheets know, some of which draw over the
#: page. From the sheets of JupyterLab 4.6, Notebook 7 and nbconvert 7.
_FOREIGN: Final = words(
    "CodeMirror cm monaco xterm",  # editors, terminals
    "MathJax mathjax mermaid mjx vega",  # libraries that draw
    "Toastify affix fade fixed modal overlay popover sticky toast tooltip",  # on top of the page
    "actionbar btn carousel dropdown fileinput media navbar pagination",  # Bootstrap's parts
    "bp3 bp4 bp5 lm p react ui",  # toolkits: Blueprint, Lumino, React, jQuery UI
    "completions debug edit embed filter positioning select",  # parts of JupyterLab
    "fa glyphicon icon",  # fonts of icons
    "ipython jp jupyter jupyterlab vscode widget",  # the front ends themselves
    "cb",  # cellblock's extension of JupyterLab
)
_FIRST: Final = re.compile(r"[A-Za-z0-9]+")

#: An address that a link may have. These schemes are safe: nothing is loaded until the user clicks,
#: and a click only opens the address.
_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\x00-\x20<>\"'`\\\x7f-\x9f]*+", re.IGNORECASE)
_RASTER: Final = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=\s]*+")


def scope(text: str) -> str:
    """Return an id for the element around one output, unlike any that ``safe_id`` returns."""
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"cellblock-{digest}"


def safe_id(value: str) -> str | None:
    """Return the id to write for the guest's id ``value``; None if it is not a plain id.

    Definitions and references get the same id. It differs from all ids of the page, which the
    page's scripts look up by name (CVE-2024-43805).
    """
    if not _ID.fullmatch(value):
        return None
    return value if value.startswith(_STYLER) else _PREFIX + value


@lru_cache(maxsize=512)
def safe_classes(value: str) -> str | None:
    """Return the class names of ``value`` for which the page has no styles; None if none is."""
    return " ".join(name for name in value.split() if is_own_class(name)) or None


def is_own_class(name: str) -> bool:
    """Return whether a class name is not one of the front end's."""
    first = _FIRST.match(name)
    return first is None or first[0] not in _FOREIGN


def local_reference(value: str) -> str | None:
    """Return a reference (``#id``) within the output, with the id that ``safe_id`` returns."""
    target = safe_id(value[1:]) if value.startswith("#") else None
    return f"#{target}" if target else None


def link(value: str) -> str | None:
    """Return a link's target if it is http, https, mailto or within the output; None if not."""
    value = value.strip()
    if value == "#":
        return value
    return value if _LINK.fullmatch(value) else local_reference(value)


def raster(value: str) -> str | None:
    """Return an image's source if it is a PNG, JPEG, GIF or WebP carried in place; None if not."""
    return value if _RASTER.fullmatch(value.strip()) else None


#: The word joiner: invisible, and not part of a word, a tag's name or a command's name.
JOINER: Final = "\u2060"

#: Properties that HTML may set, a family a line. They change how a box looks, or is laid out in its
#: place. None moves a box out of its place (position, transform, z-index), covers others, or makes
#: text (content).
PROPERTIES: Final = words(
    "align-content align-items align-self",  # within the output's own rows
    "background background-color",  # a colour or gradient: no value names an image
    "border border-collapse border-color border-radius border-spacing border-style border-width",
    "border-bottom border-bottom-color border-bottom-style border-bottom-width",
    "border-bottom-left-radius border-bottom-right-radius",
    "border-left border-left-color border-left-style border-left-width",
    "border-right border-right-color border-right-style border-right-width",
    "border-top border-top-color border-top-style border-top-width",
    "border-top-left-radius border-top-right-radius",
    "box-shadow box-sizing",  # a shadow's lengths are bounded and not negative, as all are
    "caption-side empty-cells table-layout",
    "clear float",  # ends with the block that holds it
    "color opacity visibility",
    "column-gap gap row-gap",
    "direction unicode-bidi writing-mode",
    "display",
    "flex flex-basis flex-direction flex-flow flex-grow flex-shrink flex-wrap order",
    "font font-family font-size font-size-adjust font-stretch font-style font-variant",
    "font-variant-numeric font-weight",  # a family is a name: no font is loaded
    "grid-area grid-auto-columns grid-auto-flow grid-auto-rows grid-column grid-column-end",
    "grid-column-start grid-row grid-row-end grid-row-start grid-template-columns",
    "grid-template-rows",
    "height max-height max-width min-height min-width width",
    "hyphens overflow-wrap white-space word-break word-spacing word-wrap",
    "justify-content justify-items justify-self",
    "letter-spacing line-height tab-size",
    "list-style-position list-style-type",  # not list-style: it takes an image
    "margin margin-bottom margin-left margin-right margin-top",  # none is negative
    "overflow overflow-x overflow-y",
    "padding padding-bottom padding-left padding-right padding-top",
    "text-align text-indent text-overflow text-shadow text-transform vertical-align",
    "text-decoration text-decoration-color text-decoration-line text-decoration-style",
)
#: The properties above that draw nothing outside the line in which the letters are. Heights of
#: lines are missing, and so is ``font``, which sets them. Shadows, borders and paddings are missing
#: because they reach over the neighbouring lines.
LETTERS: Final = words(
    "background-color color opacity visibility",
    "direction unicode-bidi",
    "font-family font-size font-size-adjust font-stretch font-style font-variant",
    "font-variant-numeric font-weight",
    "hyphens overflow-wrap white-space word-break word-wrap",
    "text-align text-decoration-color text-decoration-line text-decoration-style text-transform",
)
#: Properties that SVG may set. Its viewport clips all that is drawn.
DRAWING: Final = words(
    "alignment-baseline baseline-shift dominant-baseline text-anchor",
    "clip-path filter mask",  # may refer to the drawing's own parts, by ``url(#id)``
    "clip-rule fill-rule",
    "color color-interpolation color-interpolation-filters color-rendering",
    "display opacity visibility",
    "fill fill-opacity",
    "flood-color flood-opacity lighting-color stop-color stop-opacity",
    "font font-family font-size font-stretch font-style font-variant font-weight",
    "image-rendering shape-rendering text-rendering",
    "isolation mask-type mix-blend-mode paint-order",
    "letter-spacing text-decoration white-space word-spacing writing-mode",
    "marker marker-end marker-mid marker-start",
    "stroke stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin",
    "stroke-miterlimit stroke-opacity stroke-width",
    "transform transform-origin vector-effect",
)

_PLAIN: Final = r"[\w#%.+,/\s-]|'[\w ,.+-]*+'|\"[\w ,.+-]*+\"|!important"
_FUNCTIONS: Final = (
    "rgba?|hsla?|hwb|lab|lch|oklab|oklch|color-mix|linear-gradient|radial-gradient|var|minmax|"
    "repeat|fit-content|translate[XY]?|scale[XY]?|rotate|skew[XY]|matrix"
)
_CALL: Final = rf"(?:{_FUNCTIONS})\((?:{_PLAIN})*+\)"
_VALUE: Final = re.compile(
    rf"(?:(?:{_FUNCTIONS})\((?:{_CALL}|{_PLAIN})*+\)|{_PLAIN})++", re.ASCII | re.IGNORECASE
)
_LOCAL: Final = re.compile(r"url\(\s*+(['\"]?)(#[\w.:-]++)\1\s*+\)(?:\s++none)?", re.ASCII)
_CUSTOM: Final = re.compile(r"--[A-Za-z][\w-]{0,99}", re.ASCII)
#: A negative length, which can pull a box over its neighbours. It may follow another without a
#: blank: ``0-9px`` is two lengths. A hyphen within a name is not a sign.
_NEGATIVE: Final = re.compile(r"(?<![\w.-])(?:[\d.]++(?:[eE]\d++)?+)?+-[\d.]", re.ASCII)
#: A length so large that nobody can scroll past it: five digits before the point, or an exponent.
_HUGE: Final = re.compile(r"(?<![\w#.])\d{5}|(?:(?<![\w#])|(?<=\.))\d++[eE][+-]?\d", re.ASCII)
_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)

_NAME: Final = r"[A-Za-z_][\w-]*+"
_PSEUDO: Final = (
    ":(?:hover|focus|active|checked|disabled|empty|first-child|last-child|only-child|"
    "first-of-type|last-of-type|only-of-type|nth(?:-last)?-(?:child|of-type)\\([\\dn +]*+\\)|"
    "nth(?:-last)?-(?:child|of-type)\\((?:odd|even)\\))"
)
_SIMPLE: Final = rf"[.#]{_NAME}|{_PSEUDO}|\[open\]"
_COMPOUND: Final = rf"(?:(?:\*|{_NAME})(?:{_SIMPLE})*+|(?:{_SIMPLE})++)"
_SELECTOR: Final = re.compile(
    rf"{_COMPOUND}(?:(?:\s*+[>+~]\s*+|\s++){_COMPOUND})*+", re.ASCII | re.IGNORECASE
)
_NAMED: Final = re.compile(r"([.#])([A-Za-z_][\w-]*+)", re.ASCII)
_MARK: Final = re.compile(r"[{};]")
_BRACE: Final = re.compile(r"[{}]")
_SELECTOR_CHARS: Final = 300
_CACHED_CHARS: Final = 200


def declarations(text: str, properties: frozenset[str] = PROPERTIES) -> str:
    """Return the declarations of ``text`` that set one of ``properties`` in the grammar."""
    clean = _declarations if len(text) > _CACHED_CHARS else _cached
    return clean(text, properties)


def _declarations(text: str, properties: frozenset[str]) -> str:
    kept_declarations = []
    for declaration in text.split(";"):
        name, _, value = declaration.partition(":")
        name = name.strip().lower()
        cleaned = None
        if name in properties or _CUSTOM.fullmatch(name):
            cleaned = clean_value(value, drawing=properties is DRAWING)
        if cleaned:
            kept_declarations.append(f"{name}: {cleaned}")
    return "; ".join(kept_declarations)


_cached = lru_cache(maxsize=256)(_declarations)


def clean_value(value: str, *, drawing: bool = False) -> str | None:
    """Return the value of one property if it is in the grammar; None if not.

    In a drawing it may also be negative, or refer to a part of the drawing by ``url(#id)``.
    """
    value = value.strip()
    if drawing and (local := _LOCAL.fullmatch(value)):
        target = local_reference(local[2])
        return f"url({target})" if target else None
    if not _VALUE.fullmatch(value):
        return None
    if not drawing and (is_negative(value) or is_huge(value)):
        return None
    return value


def is_negative(value: str) -> bool:
    """Return whether ``value`` has a number below zero."""
    return _NEGATIVE.search(value) is not None


def is_huge(value: str) -> bool:
    """Return whether ``value`` has a length that nobody can scroll past."""
    return _HUGE.search(value) is not None


def sheet(text: str, scope: str, properties: frozenset[str] = PROPERTIES) -> str:
    """Return the rules of a style sheet, each confined to elements within ``#scope``.

    At-rules are dropped with their blocks.
    """
    rules = []
    for prelude, block in _rules(_COMMENT.sub(" ", text)):
        selectors = ", ".join(_selectors(prelude, scope))
        body = declarations(block, properties) if selectors else ""
        if body:
            rules.append(f"{selectors} {{{body}}}")
    return "\n".join(rules)


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield the selectors and the declarations of each rule at the top level, without at-rules."""
    position = 0
    while mark := _MARK.search(text, position):
        prelude = text[position : mark.start()]
        position = mark.end()
        if mark[0] == "{":
            start = position
            depth = 1
            while depth and (brace := _BRACE.search(text, position)):
                position = brace.end()
                depth += 1 if brace[0] == "{" else -1
            if depth:
                position = len(text) + 1  # the block is not closed, so it has all that follows
            if not prelude.lstrip().startswith("@"):
                yield prelude, text[start : position - 1]


def _selectors(prelude: str, scope: str) -> Iterator[str]:
    """Yield the selectors of a rule that are in the grammar, confined to ``#scope``."""
    for selector_text in prelude.split(","):
        selector = selector_text.strip()
        if len(selector) <= _SELECTOR_CHARS and _SELECTOR.fullmatch(selector):
            renamed = _NAMED.sub(_renamed, selector)
            if "\\" not in renamed:
                yield f"#{scope} {renamed}"


def _renamed(match: re.Match[str]) -> str:
    """Return a class or an id as an output may name it; with a backslash if it may not."""
    if match[1] == "#":
        return "#" + (safe_id(match[2]) or "\\")
    return match[0] if is_own_class(match[2]) else "\\"
