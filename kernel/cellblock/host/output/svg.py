"""Drawings: SVG is parsed as XML and written anew from an allowlist of elements and attributes.

Invariant: the text that comes out is well-formed XML with no declaration, DTD, entity, comment,
CDATA, processing instruction or prefix but ``xlink``. It holds no script, no handler, no
animation, no HTML, and refers to nothing outside itself but where a link leads. Its ids are
``names.safe_id``'s. It reads the same inside HTML: no element in it ends foreign content, and
the two whose content an HTML parser takes for HTML (title, desc) hold text only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.parsers import expat

from cellblock.host.output import css, names
from cellblock.host.output.css import DRAWING
from cellblock.host.output.names import words
from cellblock.host.output.text import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


#: Elements that a drawing may have, a family a line. No script, foreignObject, animation (it can
#: set href) or feImage (it loads).
ELEMENTS: Final = words(
    "a",  # leads away on a click
    "circle ellipse line path polygon polyline rect",
    "clipPath filter linearGradient marker mask pattern radialGradient stop",
    "defs g svg switch symbol use",  # a use of what holds a use is refused
    "desc title",  # text only: an HTML parser takes their content for HTML
    "feBlend feColorMatrix feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting",
    "feDisplacementMap feDistantLight feDropShadow feFlood feFuncA feFuncB feFuncG feFuncR",
    "feGaussianBlur feMerge feMergeNode feMorphology feOffset fePointLight feSpecularLighting",
    "feSpotLight feTile feTurbulence",
    "image",  # carried in place
    "style",  # rewritten by css
    "text textPath tspan",
)
#: Attributes whose value is geometry, a keyword or words: none of them names a resource.
PLAIN: Final = words(
    "aria-describedby aria-hidden aria-label aria-labelledby class focusable role",
    "azimuth baseFrequency diffuseConstant divisor edgeMode elevation exponent",  # of filters
    "filterUnits in in2 intercept k1 k2 k3 k4 kernelMatrix limitingConeAngle mode numOctaves",
    "operator order preserveAlpha primitiveUnits radius result scale seed slope",
    "specularConstant specularExponent stdDeviation stitchTiles surfaceScale tableValues",
    "targetX targetY type values xChannelSelector yChannelSelector z",
    "clipPathUnits maskContentUnits maskUnits patternContentUnits patternUnits",
    "cx cy d dx dy fr fx fy height pathLength points r rotate rx ry width x x1 x2 y y1 y2",
    "gradientUnits offset spreadMethod",
    "lengthAdjust method spacing startOffset textLength",  # of text
    "markerHeight markerUnits markerWidth orient refX refY",
    "preserveAspectRatio version viewBox",
)

_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK_HREF: Final = "http://www.w3.org/1999/xlink href"
_SPACE: Final = "http://www.w3.org/XML/1998/namespace space"
#: How attributes with a namespace are written.
_PREFIXED: Final = {_XLINK_HREF: "xlink:href", _SPACE: "xml:space"}
_MAX_DEPTH: Final = 100
_MAX_TAGS: Final = 500_000

_TEXT_ONLY: Final = frozenset(("desc", "style", "title"))
_TEXT: Final = frozenset(("a", "desc", "text", "textPath", "title", "tspan"))
#: What starts a function, an escape or a scheme.
_SUSPECT: Final = re.compile(r"[(\\:]")
_SIZES: Final = frozenset(("height", "width"))
_TRANSFORMS: Final = frozenset(("gradientTransform", "patternTransform"))
_ESCAPED: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;"}


def clean(text: str) -> str:
    """Return the drawing with what the allowlist knows. Raises ``RefusedError``."""
    if text.count("<") > _MAX_TAGS:
        raise RefusedError("too much markup")
    writer = _Writer(scope=names.scope(text))
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = writer.start
    parser.EndElementHandler = writer.end
    parser.CharacterDataHandler = writer.text
    parser.EntityDeclHandler = _no_entities
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise RefusedError(f"not well-formed, line {error.lineno}") from None
    return writer.finish()


def _no_entities(*_: object) -> None:
    raise RefusedError("declares entities")


class _Writer:
    """Writes what the parser reports; single use."""

    def __init__(self, scope: str) -> None:
        self._scope, self._parts = scope, list[str]()
        self._space: str | None = None
        self._stack: list[str] = []
        self._ids: list[str | None] = []
        self._skipped = 0
        self._unclosed = False
        self._sheet: list[str] = []
        self._with_use: set[str] = set()
        self._used: set[str] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Write an element's start, or skip it with all that is in it."""
        space, _, local = name.rpartition(" ")
        if self._space is None:
            if local != "svg" or space not in ("", _SVG):
                raise RefusedError("its root is not svg")
            self._space = space
        inside = self._stack[-1] if self._stack else ""
        known = local in ELEMENTS and space == self._space and inside not in _TEXT_ONLY
        if self._skipped or not known:
            self._skipped += 1
            return
        if len(self._stack) >= _MAX_DEPTH:
            raise RefusedError("nested too deep")
        self._stack.append(local)
        if local != "style":
            self._open(local, attributes)

    def _open(self, local: str, attributes: dict[str, str]) -> None:
        pairs = _attributes(local, attributes)
        if len(self._stack) == 1:
            own = {"xmlns": _SVG, "xmlns:xlink": "http://www.w3.org/1999/xlink"}
            pairs = own | pairs | {"id": self._scope}
        self._ids.append(pairs.get("id"))
        if local == "use":
            self._with_use.update(filter(None, self._ids))
            self._used.update(pairs[key][1:] for key in ("href", "xlink:href") if key in pairs)
        text = "".join(f' {key}="{value.translate(_ESCAPED)}"' for key, value in pairs.items())
        self._write(f"<{local}{text}")
        self._unclosed = True

    def end(self, _: str) -> None:
        """Write an element's end."""
        if self._skipped:
            self._skipped -= 1
            return
        local = self._stack.pop()
        if local == "style":
            self._style()
            return
        self._ids.pop()
        if self._unclosed:
            self._parts.append("/>")
            self._unclosed = False
        else:
            self._parts.append(f"</{local}>")

    def _style(self) -> None:
        rules = css.sheet("".join(self._sheet), self._scope, DRAWING)
        self._sheet.clear()
        if rules:
            self._write(f"<style>{rules.translate(_ESCAPED)}</style>")

    def text(self, text: str) -> None:
        """Write text where text is drawn; between other elements only what is blank."""
        if self._skipped:
            return
        inside = self._stack[-1]
        if inside == "style":
            self._sheet.append(text)
        elif inside in _TEXT or text.isspace():
            self._write(text.translate(_ESCAPED))

    def _write(self, text: str) -> None:
        if self._unclosed:
            self._parts.append(">")
            self._unclosed = False
        self._parts.append(text)

    def finish(self) -> str:
        """Return the drawing. A ``use`` of what holds a ``use`` can grow without end."""
        if self._used & self._with_use:
            raise RefusedError("uses what uses")
        return "".join(self._parts)


def _attributes(element: str, attributes: dict[str, str]) -> dict[str, str]:
    kept = dict[str, str]()
    for name, value in attributes.items():
        cleaned = _attribute(element, name, value)
        if cleaned is not None:
            kept[_PREFIXED.get(name, name)] = cleaned
    if element == "a":
        kept |= {"target": "_blank", "rel": "noopener noreferrer"}
    return kept


def _attribute(element: str, name: str, value: str) -> str | None:
    """Return an attribute's value, None if it goes."""
    if name in {"href", _XLINK_HREF}:
        return _LINKS.get(element, _local)(value)
    if name in DRAWING or name in _TRANSFORMS:
        return css.clean_value(value, drawing=True)
    if name in _CHECKS:
        return _CHECKS[name](value)
    if element == "svg" and name in _SIZES and css.is_huge(value):
        return None
    return value if name in PLAIN and not _SUSPECT.search(value) else None


def _local(value: str) -> str | None:
    return names.local_reference(value.strip())


_LINKS: Final = {"a": names.link, "image": names.raster}
_CHECKS: Final[dict[str, Callable[[str], str | None]]] = {
    _SPACE: lambda value: value if value in ("default", "preserve") else None,
    "class": names.safe_classes,
    "id": names.safe_id,
    "style": lambda value: css.declarations(value, DRAWING) or None,
}
