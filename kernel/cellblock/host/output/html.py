"""Sanitisers of HTML (``clean``), SVG (``clean_svg``) and Markdown (``clean_markdown``).

The tables in this module are the allowlists of elements and attributes.

HTML takes these steps: cut out what is not HTML (``cut_opaque``); give it a regular shape, which
bounds the time that a tree takes (``regular``); filter the tree by the tables (nh3); put back style
sheets and drawings, which were cleaned apart. Invariant: of the guest's text, only elements and
attributes in the tables come out. None of them runs code, loads or submits anything, or makes an
HTML parser read on in another language. So no second parser (a browser, a saved notebook,
nbconvert) finds anything else in the result. Style sheets and drawings do make it read on in
another language: ``markup.sheet`` and ``clean_svg`` write these anew.

SVG is parsed as XML and written anew. Invariant: the result is well-formed XML without declaration,
DTD, entity, comment, CDATA, processing instruction or prefix other than ``xlink``. It has no
script, handler, animation or HTML, and refers to nothing outside itself, except that links lead
away. Its ids are made by ``markup.safe_id``. Inside HTML it means the same: no element in it ends
the drawing for an HTML parser, and the two whose content such a parser takes for HTML (title,
desc) have text only.

Markdown is not parsed: see the last part of this module.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_left
from html import escape, unescape
from typing import TYPE_CHECKING, Final
from xml.parsers import expat

import nh3

from cellblock.host.output import markup, tex
from cellblock.host.output.markup import DRAWING, JOINER, LETTERS, words
from cellblock.host.output.text import RefusedError
from cellblock.render.headings import OwnLines

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
#: Attributes of drawings whose value is geometry, a keyword or words. None names a resource.
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
#: The attributes with a namespace that may stay, and how they are written.
_PREFIXED: Final = {_XLINK_HREF: "xlink:href", _SPACE: "xml:space"}
_MAX_DEPTH: Final = 100

#: Elements that may not have others inside.
_TEXT_ONLY: Final = frozenset(("desc", "style", "title"))
#: Elements whose text is written.
_TEXT: Final = frozenset(("a", "desc", "text", "textPath", "title", "tspan"))
#: A character that begins a function's arguments, an escape, or what follows a scheme.
_SUSPECT: Final = re.compile(r"[(\\:]")
_SIZES: Final = frozenset(("height", "width"))
_TRANSFORMS: Final = frozenset(("gradientTransform", "patternTransform"))
_ESCAPED: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;"}


def clean_svg(text: str) -> str:
    """Return a drawing with only the elements and attributes in the tables.

    Raises ``RefusedError`` if it is not well-formed, declares entities, or is nested too deep.
    """
    writer = _Writer(scope=markup.scope(text))
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
    """Writes one drawing anew, from the elements and texts that the parser reports."""

    def __init__(self, scope: str) -> None:
        #: The id of the drawing's root, to which its style sheets are confined.
        self._scope = scope
        self._parts = list[str]()
        #: The namespace of the root; None before the root.
        self._space: str | None = None
        #: The open elements, outermost first, and their ids.
        self._stack: list[str] = []
        self._ids: list[str | None] = []
        #: How many open elements are skipped: an unknown one and those within it.
        self._skipped = 0
        #: Whether the last start tag still lacks its ">", because its element may be empty.
        self._unclosed = False
        #: The text of the open style element.
        self._sheet: list[str] = []
        #: Ids of elements that hold a ``use``.
        self._with_use: set[str] = set()
        #: Ids that a ``use`` refers to.
        self._used: set[str] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Write an element's start tag, or skip the element and everything in it."""
        space, _, local = name.rpartition(" ")
        if self._space is None:
            if local != "svg" or space not in ("", _SVG):
                raise RefusedError("its root is not svg")
            self._space = space
        inside = self._stack[-1] if self._stack else ""
        is_allowed = local in ELEMENTS and space == self._space and inside not in _TEXT_ONLY
        if self._skipped or not is_allowed:
            self._skipped += 1
            return
        if len(self._stack) >= _MAX_DEPTH:
            raise RefusedError("nested too deep")
        self._stack.append(local)
        if local != "style":
            self._open(local, attributes)

    def _open(self, local: str, attributes: dict[str, str]) -> None:
        """Write a start tag with the attributes that may stay."""
        pairs = _drawing_attributes(local, attributes)
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
        """Write an element's end tag, or a style element, which is complete now."""
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
        rules = markup.sheet("".join(self._sheet), self._scope, DRAWING)
        self._sheet.clear()
        if rules:
            self._write(f"<style>{rules.translate(_ESCAPED)}</style>")

    def text(self, text: str) -> None:
        """Write text within elements that show text; elsewhere only blanks."""
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
        """Return the drawing. Raises ``RefusedError`` for a ``use`` of what holds a ``use``.

        A few of these can draw millions of copies.
        """
        if self._used & self._with_use:
            raise RefusedError("uses what uses")
        return "".join(self._parts)


def _drawing_attributes(element: str, attributes: dict[str, str]) -> dict[str, str]:
    """Return the attributes of a drawing's element that may stay, by the names to write."""
    kept_attributes = dict[str, str]()
    for name, value in attributes.items():
        cleaned = _attribute(element, name, value)
        if cleaned is not None:
            kept_attributes[_PREFIXED.get(name, name)] = cleaned
    if element == "a":
        kept_attributes |= {"target": "_blank", "rel": "noopener noreferrer"}
    return kept_attributes


def _attribute(element: str, name: str, value: str) -> str | None:
    """Return the cleaned value of a drawing's attribute, or None to drop the attribute."""
    if name in {"href", _XLINK_HREF}:
        return _LINKS.get(element, _local)(value)
    if name in DRAWING or name in _TRANSFORMS:
        return markup.clean_value(value, drawing=True)
    if name in _CHECKS:
        return _CHECKS[name](value)
    if element == "svg" and name in _SIZES and markup.is_huge(value):
        return None
    return value if name in PLAIN and not _SUSPECT.search(value) else None


def _local(value: str) -> str | None:
    return markup.local_reference(value.strip())


_LINKS: Final = {"a": markup.link, "image": markup.raster}
_CHECKS: Final[dict[str, Callable[[str], str | None]]] = {
    _SPACE: lambda value: value if value in ("default", "preserve") else None,
    "class": markup.safe_classes,
    "id": markup.safe_id,
    "style": lambda value: markup.declarations(value, DRAWING) or None,
}


# --- HTML: the allowlists of elements and attributes, a family a line ---------------------------

#: Elements of HTML. None runs code, loads or submits anything, or makes an HTML parser read on in
#: another language.
TAGS: Final = words(
    "a",  # leads away on a click
    "abbr b bdi bdo big cite code del dfn em font i ins kbd mark q s samp small span strike strong",
    "address article aside blockquote br center div footer header hgroup hr main p pre section",
    "caption col colgroup table tbody td tfoot th thead tr",
    "dd details dl dt li ol summary ul",
    "figcaption figure",
    "h1 h2 h3 h4 h5 h6",
    "img",  # carried in place
    "input label meter progress",  # an input is a checkbox that tells nobody
    "rp rt ruby sub sup time tt u var",
)
_CELL: Final = words(
    "abbr headers scope",
    "align bgcolor height nowrap valign width",
    "colspan rowspan",
)
#: The attributes of each element; ``*`` stands for all elements. ``_VALUES`` checks some values.
ATTRIBUTES: Final[dict[str, frozenset[str]]] = {
    "*": words("align aria-hidden aria-label class dir hidden id lang role style title"),
    "a": words("href target"),
    "col": words("span width"),
    "colgroup": words("span width"),
    "details": words("open"),
    "font": words("color face size"),
    "img": words("alt height src width"),
    "input": words("checked disabled"),
    "label": words("for"),
    "li": words("value"),
    "meter": words("high low max min optimum value"),
    "ol": words("reversed start type"),
    "progress": words("max value"),
    "table": words("bgcolor border cellpadding cellspacing rules summary width"),
    "td": _CELL,
    "th": _CELL,
    "time": words("datetime"),
    "tr": words("bgcolor valign"),
}
#: The other elements that HTML has or had, and those that begin SVG and MathML. In Markdown these
#: must not be mistaken for a generic type such as ``list<int>``.
OTHER_ELEMENTS: Final = words(
    "acronym basefont blink dir marquee nobr rb rbc rtc spacer wbr",  # looks
    "animate animatecolor animatemotion animatetransform discard mpath set view",  # of SVG
    "annotation maction malignmark math mfrac mglyph mi mn mo mrow ms mspace mstyle msub msup",
    "mtable mtd mtext mtr semantics",  # of MathML
    "applet embed fencedframe frame frameset iframe noframes object param portal webview",
    "area audio bgsound canvas feimage image map picture source track video",  # loaded
    "base body head html link meta nextid title",  # of the whole document
    "button command data datalist dialog fieldset form input isindex keygen legend menu menuitem",
    "optgroup option output permission search select selectedcontent selectlist textarea",
    "content element foreignobject shadow slot svg template",  # hold other trees
    "listing multicol nav noembed noscript plaintext script style xml xmp",
)


def attribute(name: str, value: str) -> str | None:
    """Return the cleaned value of an attribute in ``ATTRIBUTES``, or None to drop it."""
    check = _VALUES.get(name)
    return check(value) if check else value


def _length(value: str) -> str | None:
    return None if markup.is_huge(value) else value


#: The checks of values, by attribute.
_VALUES: Final[dict[str, Callable[[str], str | None]]] = {
    "border": _length,
    "cellpadding": _length,
    "cellspacing": _length,
    "class": markup.safe_classes,
    "for": markup.safe_id,
    "headers": lambda value: " ".join(filter(None, map(markup.safe_id, value.split()))) or None,
    "height": _length,
    "href": markup.link,
    "id": markup.safe_id,
    "src": markup.raster,
    "style": lambda value: markup.declarations(value) or None,
    "target": lambda value: value if value == "_blank" else None,
    "width": _length,
}


# --- HTML: one whole output -------------------------------------------------------------------

#: The element that stands for a drawing while nh3 filters the rest.
_HOLE: Final = "cellblock-svg"
#: Elements whose absence a user notices: a note names them. Others are dropped without a note.
_MISSED: Final = words("applet audio button canvas embed form frame link object video")
#: Opaque elements that are dropped without a note.
_QUIET: Final = words("noscript style title")
#: Drawings in one output. Even a small one takes 20 µs.
_MAX_DRAWINGS: Final = 1_000
#: The style of a box around outputs with styles. Whatever is drawn beyond the box, such as a child
#: that is higher than its parent, is cut off or must be scrolled to. Front ends put a box of their
#: own around outputs, but pages made with nbconvert's template ``basic`` have none.
_CLIPPING_STYLE: Final = 'style="overflow: auto"'
#: An element that can be seen, or text.
_SHOWN: Final = re.compile(r"<(?:hr|img|input|meter|progress|svg)\b|(?:^|>)\s*+[^<\s]")


def clean(text: str) -> OwnLines:
    """Return HTML, sanitised, with a note of what was left out.

    Raises ``RefusedError`` if something was left out and nothing is left to see.
    """
    return _Cleaner().clean(text)


def text_of_page(page: str) -> str:
    """Return HTML of regular shape with the text of a page, for ``readable`` to extract the text.

    It is not sanitised, and must not be shown.
    """
    return split_texts(regular(cut_opaque(page, lambda *_: ""))[0])


class _Cleaner:
    """Sanitises one HTML text. For a single use."""

    def __init__(self) -> None:
        #: Marks the places of drawings; the guest can't guess it.
        self._nonce = secrets.token_hex(8)
        #: The texts of style elements.
        self._rules: list[str] = []
        #: The cleaned drawings, by the number in their place.
        self._drawings: list[str] = []
        #: Names of what was left out and is missed.
        self._missed: set[str] = set()
        #: Whether a style does more than set how letters look, so that the output needs a box.
        self._moves = False

    def clean(self, text: str) -> OwnLines:
        """Return the HTML, sanitised; see the function ``clean``."""
        with_lines = name_embedded(text)
        body, elements = regular(cut_opaque(with_lines, self._replace))
        self._missed |= elements & _MISSED
        body = tex.clean_formulas(self._filled(self._filtered(split_texts(body))))
        missed = ", ".join(sorted(self._missed))
        if missed and not _SHOWN.search(body):
            raise RefusedError(missed)
        scope = markup.scope(text) if self._rules else ""
        if rules := markup.sheet("\n".join(self._rules), scope):
            # The rules match only within this element.
            body = (
                f'<div id="{scope}" {_CLIPPING_STYLE}>\n<style>\n{rules}\n</style>\n{body}\n</div>'
            )
        elif self._moves:
            body = f"<div {_CLIPPING_STYLE}>{body}</div>"
        hosts = set(with_lines.hosts)
        if missed:
            note = f"[cellblock left out {missed}]"
            body += f"\n<p><small>{note}</small></p>"
            hosts.add(note)
        return OwnLines(body, hosts)

    def _replace(self, name: str, source: str) -> str:
        """Take an opaque element out: keep a style sheet or drawing, and note other elements.

        Return the text to put in its place: for a drawing the place that ``_filled`` fills.
        """
        if name == "style":
            start = source.find(">")
            end = source.rfind("</")
            self._rules.append(source[start + 1 : end if end > start else len(source)])
        elif name == "svg" and len(self._drawings) < _MAX_DRAWINGS:
            try:
                self._drawings.append(clean_svg(source))
            except RefusedError:
                self._missed.add("svg")
                return ""
            # ``_attribute`` drops the class of any other such element, so a guest can't make one.
            return f'<{_HOLE} class="{self._nonce}-{len(self._drawings) - 1}"></{_HOLE}>'
        if name not in _QUIET:
            self._missed.add(name)
        return ""

    def _filtered(self, text: str) -> str:
        """Return the HTML with only the elements and attributes in the tables."""
        return nh3.clean(
            text,
            tags={*TAGS, _HOLE},
            clean_content_tags=set(),
            attributes={tag: set(allowed_names) for tag, allowed_names in ATTRIBUTES.items()},
            attribute_filter=self._attribute,
            set_tag_attribute_values={"input": {"type": "checkbox"}},
            url_schemes={"data", "http", "https", "mailto"},
        )

    def _attribute(self, tag: str, name: str, value: str) -> str | None:
        """Return the cleaned value of an attribute, or None to drop it. Called by nh3."""
        if tag == _HOLE:
            return value if value.startswith(self._nonce) else None
        cleaned = attribute(name, value)
        if name == "style" and cleaned is not None:
            self._moves = self._moves or cleaned != markup.declarations(value, LETTERS)
        if cleaned is None and (tag, name) == ("img", "src"):
            self._missed.add("remote image")
        return cleaned

    def _filled(self, body: str) -> str:
        """Put the drawings back where ``_HOLE`` elements stand in the filtered HTML."""
        # nh3 writes quotes in attributes and brackets in text as entities, so the pattern only
        # matches elements.
        hole = re.compile(rf'<{_HOLE} class="{self._nonce}-(\d+)"></{_HOLE}>')
        return hole.sub(lambda match: self._drawings[int(match[1])], body)


# --- HTML: pages and media that are embedded by their address -------------------------------------

_EMBEDDED: Final = re.compile(
    r"<(audio|embed|iframe|object|video)(?=[\s/>])"
    r"((?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+'){0,4000}+)>",
    re.IGNORECASE,
)
#: Closing tags. Searched for in the text itself: in lower case it may have another length.
_CLOSING: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("audio", "iframe", "object", "video")
}
_SOURCE: Final = re.compile(
    r"(?<![\w-])(?:src|data)\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'>]++))", re.IGNORECASE
)
_SOURCE_DOC: Final = re.compile(r"(?<![\w-])srcdoc\s*+=", re.IGNORECASE)
_INSIDE: Final = re.compile(r"<source(?=[\s/])[^<>]{0,4000}>", re.IGNORECASE)
_LOADS: Final = re.compile(r"(?!data:|blob:|about:|javascript:|#)\S", re.IGNORECASE)
#: HTML with more such elements is left as it is, which bounds the time.
_MOST_EMBEDDED: Final = 200
#: Characters of an address that are shown.
_LONGEST_ADDRESS: Final = 500
#: An address without blanks, so that it can't be a sentence in the host's line.
_ONE_WORD: Final = re.compile(r"[!-Z^-~]+")


def name_embedded(text: str) -> OwnLines:
    """Return HTML with a line in place of each page, sound or film embedded by its address.

    Outputs load nothing, so these would be empty frames. The line has the address as a link. HTML
    with a script stays as it is, since a match in it may be a part of the program. So does HTML
    with more than ``_MOST_EMBEDDED`` such elements.
    """
    lowered = text.lower()
    number = sum(map(lowered.count, ("<audio", "<embed", "<iframe", "<object", "<video")))
    if not 0 < number <= _MOST_EMBEDDED or "<script" in lowered:
        return OwnLines(text)
    pieces = []
    hosts = set[str]()
    position = 0
    while element := _EMBEDDED.search(text, position):
        name = element[1].lower()
        attributes = element[2]
        end = element.end()
        if name != "embed" and (close := _CLOSING[name].search(text, end)):
            end = text.find(">", close.end()) + 1 or len(text)
        source = _SOURCE.search(attributes) if not _SOURCE_DOC.search(attributes) else None
        if source is None and name in ("audio", "video"):
            child = _INSIDE.search(text, element.end(), end)
            source = child and _SOURCE.search(child[0])
        address = unescape(next(filter(None, source.groups()), "")) if source else ""
        if not _LOADS.match(address.strip()):
            pieces.append(text[position : element.end()])
            position = element.end()
            continue
        address = address.strip()[:_LONGEST_ADDRESS]
        escaped_address = escape(address)
        link = f'<a href="{escaped_address}" target="_blank">{escaped_address}</a>'
        pieces += [
            text[position : element.start()],
            f"<p><small>{_not_embedded(name, link)}</small></p>",
        ]
        if _ONE_WORD.fullmatch(address):
            hosts.add(_not_embedded(name, address))
        position = end
    pieces.append(text[position:])
    return OwnLines("".join(pieces), hosts)


def _not_embedded(name: str, address: str) -> str:
    """Return the line in place of an embedded element."""
    kind = {"audio": "sounds", "video": "films"}.get(name, "pages")
    return f"[cellblock loads no {kind} into outputs: open {address} yourself]"


# --- HTML: a regular shape, before a tree is built ----------------------------------------------
#
# HTML tree builders need quadratic time, or worse, for deep nesting, unclosed formatting elements
# and tags with thousands of attributes: nh3 took 5 s for 200 kB. So first, in time linear in the
# text's length, tags are paired, nesting is bounded, and comments, declarations and elements whose
# content is not markup are cut out. This only bounds the time. What may be shown is decided on the
# tree.

#: Elements that may be open at once.
_MOST_NESTED: Final = 128
#: Formatting elements that may be open at once.
_FORMATTING_DEPTH: Final = 8
#: Characters of a tag's attributes, without quoted values.
_ATTRIBUTE_CHARS: Final = 4_096

_QUOTED: Final = r"\"[^\"]*+\"|'[^']*+'"
#: Tags that every HTML tokenizer ends at the same place. Others become text.
_NAME: Final = r"[A-Za-z][A-Za-z0-9:_-]*+"
_ATTRIBUTES: Final = (
    r"(?:[\s/]++[^\s\"'<>/=]++"
    rf"(?:\s*+=\s*+(?:{_QUOTED}|[^\s\"'<>=`][^\s\"'<>`]*+))?+)*+"
)
_TAG: Final = re.compile(rf"<(/?)({_NAME})({_ATTRIBUTES})[\s/]*+>")
#: The beginning of a "bogus comment" (WHATWG), which an HTML parser ends at the next ``>``.
_IGNORED: Final = re.compile(r"<(?:[!?]|/[^A-Za-z])")
_UNNAMED: Final = rf"</?{_NAME}{_ATTRIBUTES}[\s/]*+>"
_QUOTED_VALUES: Final = re.compile(_QUOTED)
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
#: The opaque elements that nest, and that can close themselves in their start tag.
_FOREIGN: Final = ("math", "svg")
#: The rest of a start tag that closes itself.
_EMPTY: Final = re.compile(r"[^<>]*+(?<=/)>")
_VOID: Final = words("area base br col embed hr img input link meta param source track wbr")
_FORMATTING: Final = words("a b big code em font i nobr s small strike strong tt u")
#: The open elements that a new element ends, by its name.
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
_TABLE: Final = words("table tbody td tfoot th thead tr")
#: Characters that nh3 escapes, in one text or value. The time for each grows with the length of the
#: text, so texts with more are split by comments, which nh3 takes out again.
_MOST_ESCAPED: Final = 500
_BETWEEN: Final = rf"(?:{_UNNAMED}|[^<&\xa0]++)*+"
_PIECE: Final = re.compile(rf"{_BETWEEN}(?:[&\xa0]{_BETWEEN}){{0,{_MOST_ESCAPED}}}+")


def cut_opaque(text: str, replace: Callable[[str, str], str]) -> str:
    """Return ``text`` without comments, and with ``replace(name, source)`` for opaque elements.

    An element is opaque if its content is not HTML. ``source`` includes the tags. An element that
    is not closed extends to the end of the text, as in a browser.
    """
    pieces = []
    position = 0
    while opening := _OPAQUE.search(text, position):
        pieces.append(text[position : opening.start()])
        name = (opening[1] or "").lower()
        position = _end_of(name, text, opening)
        if name:
            pieces.append(replace(name, text[opening.start() : position]))
    pieces.append(text[position:])
    return "".join(pieces)


def _end_of(name: str, text: str, start: re.Match[str]) -> int:
    """Return where an opaque element ends, or a comment if ``name`` is empty."""
    if not name:
        end = text.find("-->", start.start() + 2)
        return len(text) if end < 0 else end + 3
    nests = name in _FOREIGN
    depth = 1
    if nests and (empty := _EMPTY.match(text, start.end())):
        return empty.end()
    for tag in re.compile(rf"<(/?){name}(?=[\s/>])", re.IGNORECASE).finditer(text, start.end()):
        depth += -1 if tag[1] else nests and not _EMPTY.match(text, tag.end())
        if depth == 0:
            end = text.find(">", tag.end())
            return len(text) if end < 0 else end + 1
    return len(text)


def regular(text: str) -> tuple[str, frozenset[str]]:
    """Return HTML with paired tags that are nested at most 128 deep, and the elements' names.

    A browser shows it like ``text``. Declarations, processing instructions and CDATA sections are
    dropped up to the first ``>``, since they are comments in HTML. A ``<`` that begins no tag
    becomes ``&lt;``. A tag beyond the bounds is dropped. The returned names may lack some of those
    elements that contain only text (``_LEAVES``).
    """
    tags = _Tags()
    pieces = []
    position = 0
    while position < len(text):
        if leaves := _LEAVES.match(text, position):
            pieces.append(leaves[0])
            position = leaves.end()
        start = text.find("<", position)
        if start < 0:
            break
        pieces.append(text[position:start])
        if _IGNORED.match(text, start):
            end = text.find(">", start)
            position = len(text) if end < 0 else end + 1
            continue
        tag = _TAG.match(text, start)
        pieces.append(tags.take(tag) if tag else "&lt;")
        position = tag.end() if tag else start + 1
    pieces.append(text[position:])
    return "".join(pieces), frozenset(tags.names)


def split_texts(text: str) -> str:
    """Return regular HTML with its texts split by comments, if nh3 would be slow without these."""
    # Each match begins where the last ended, so no part is read twice.
    return _PIECE.sub(r"\g<0><!---->", text) if _escaped(text) > _MOST_ESCAPED else text


def _escaped(text: str) -> int:
    """Return how many characters of a text nh3 escapes, of those that it is slow about."""
    return text.count("&") + text.count("\xa0")


class _Tags:
    """Pairs the tags of one text."""

    def __init__(self) -> None:
        #: The names of all elements so far.
        self.names: set[str] = set()
        #: The open elements, outermost first.
        self._open: list[str] = []
        #: How many of these are formatting elements.
        self._formatting = 0

    def take(self, tag: re.Match[str]) -> str:
        """Return the text to write for a tag: end tags that it implies, then the tag, or nothing.

        A tag beyond a bound is dropped.
        """
        name = tag[2].lower()
        attributes = tag[3]
        if tag[1]:
            return "" if name in _VOID else self._close(name)
        self.names.add(name)
        if len(attributes) > _ATTRIBUTE_CHARS and (
            _escaped(attributes) > _MOST_ESCAPED
            or len(_QUOTED_VALUES.sub("", attributes)) > _ATTRIBUTE_CHARS
        ):
            return ""
        if name in _VOID:
            return tag[0]
        end_tags = []
        closes = _CLOSES.get(name, ())
        while self._open and self._open[-1] in closes:
            end_tags.append(self._pop())
        return "".join([*end_tags, tag[0] if self._push(name) else ""])

    def _push(self, name: str) -> bool:
        """Open an element; return False if it would be nested too deep."""
        formatting = name in _FORMATTING
        if len(self._open) >= _MOST_NESTED or (
            formatting and self._formatting >= _FORMATTING_DEPTH
        ):
            return False
        self._open.append(name)
        self._formatting += formatting
        return True

    def _close(self, name: str) -> str:
        """Return the end tags up to the innermost open element of this name; empty if none is.

        An end tag within a table's cell closes nothing outside of the table.
        """
        for depth, opened in enumerate(reversed(self._open), 1):
            if opened == name:
                return "".join([self._pop() for _ in range(depth)])
            if opened in _TABLE and name not in _TABLE:
                break
        return ""

    def _pop(self) -> str:
        """Close the innermost element; return its end tag."""
        name = self._open.pop()
        self._formatting -= name in _FORMATTING
        return f"</{name}>"


# --- Markdown, made harmless without being parsed -----------------------------------------------
#
# Front ends read Markdown with different parsers (marked, mistune, markdown-it, pandoc), and what
# is code to one is HTML to another. So nothing here depends on where code, links or formulas begin.
# Each place where *some* parser could see a tag, an image, an active link or a TeX command with
# effects is broken by a word joiner (U+2060, invisible), in code too. A few tags, and images
# carried in place, pass in one canonical spelling.
#
# The price: in code, a tag or ``a<b`` has a joiner, which is copied with it.
#
# Formulas need care, since a front end could make attributes or commands of them. JupyterLab takes
# formulas out of the text, leaves ``@@0@@`` in their places, parses the rest, and puts the formulas
# back with only ``&``, ``<`` and ``>`` escaped. If a place has become part of an attribute (a
# link's address or title, the language of a code block), the formula's quotes end the attribute,
# and it can go on with an event handler. Also, a parser resolves entities and escapes, so a formula
# can turn into another one afterwards.

#: The beginning of a formula, or of an escape that could spell a formula's place.
_MARK: Final = re.compile(r"[$\\]")
_BLANK_LINE: Final = re.compile(r"\n\s*\n")
_PLACE: Final = re.compile(r"@(?=@\d)")
_ADDRESS: Final = re.compile(r"(?:(?:https?|ftp)://|www\.)[^\s<]*+", re.IGNORECASE)
_LINKED: Final = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_ENTITY: Final = re.compile(r"&(?=(#\d{1,8}|#[xX][0-9A-Fa-f]{1,7}|[A-Za-z][A-Za-z0-9]{1,31}))")
_COMMAND: Final = re.compile(r"[A-Za-z\\]")
_UNSETTLED: Final = re.compile(r"[$\\@&<]")


def settle(text: str) -> str:
    """Return Markdown with three things broken that only work after a parser's first pass.

    These are the places of formulas (``@@0@@``), bare addresses with a formula within, and commands
    spelled with entities.
    """
    if "@@" in text:
        text = _PLACE.sub("@" + JOINER, text)
    if "&" in text:
        text = _ENTITY.sub(_entity, text)
    return _ADDRESS.sub(_address, text) if _MARK.search(text) else text


def _entity(match: re.Match[str]) -> str:
    """Return an entity's ``&``, broken if the entity stands for a letter or a backslash."""
    name = f"&{match[1]};"
    character = unescape(name)
    return "&" + JOINER if character != name and _COMMAND.search(character) else "&"


def _address(match: re.Match[str]) -> str:
    """Return a bare address, broken if a formula begins within: it must not become a link."""
    return _LINKED.sub(JOINER, match[0]) if _MARK.search(match[0]) else match[0]


#: Markdown without any of these is harmless.
_INTERESTING: Final = re.compile(r"<[A-Za-z/!?]|!\[|\][(:]|```|~~~|:::|[\\$]|&[#A-Za-z]|@@|`\{")
#: A code fence and the name of its language. A front end writes the name into an attribute, and
#: draws the content of some languages with a library that loads images.
_FENCE: Final = re.compile(
    r"(?<![`~:])(?:((?:`{3,}+|:{3,}+)[ \t]*+)([^\n`]++)(`?)|(~{3,}+[ \t]*+)([^\n]++))"
)

#: Code that pandoc copies into the result unchanged, because it is in the result's own format, such
#: as LaTeX: ``{=latex}``.
_RAW: Final = re.compile(r"[`~][ \t]*+\{(?=\s*+=)")

#: The tags that may pass. A checkbox may not, since its type would have to be set, which only
#: ``clean`` does.
_MARKUP: Final = TAGS - {"input"}
#: One of: a tag that all parsers read alike, an autolink, a generic type, or any other opening.
_OPENING: Final = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9]*+)(?P<attributes>"
    r"(?:[ \t]++[A-Za-z]++(?:=(?:\"[^\"<>\n]*+\"|'[^'<>\n]*+'))?+)*+)[ \t]*+/?>"
    r"|<(?:https?://|mailto:)[\w./?#%&+~:@,;!-]*+>"
    r"|<(?P<generic>[A-Za-z][\w.]*+)(?:[, ]++[A-Za-z][\w.]*+)*+>"
    r"|<(?=[A-Za-z/!?])",
    re.ASCII,
)
_PAIR: Final = re.compile(r"([A-Za-z]+)(?:=(?:\"([^\"]*+)\"|'([^']*+)'))?+")
#: Values of attributes that have no meaning in Markdown, for a parser that does not see the tag.
_INERT: Final = re.compile(r"[\w #%.,:;/()+?=&@~!-]*+", re.ASCII)

_BRACKET: Final = re.compile(
    r"!\[[^\[\]\\`\n$<&!@]*+\]\(data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]++\)"
    r"|!(?=\[)|\](?=[(:])"
)
#: What may follow the bracket of a link or definition: an address that ``markup.link`` keeps, or a
#: plain name. A path or a query would lead to the front end's own server (``/logout``, ``?reset``).
#: So may a name, but in code that is an argument (``f[0](x)``) or follows a colon.
_HARMLESS: Final = re.compile(
    r"[(:][\s>]{0,99}+(?![\s>])(?:https?://|mailto:|[^\s:&\\<)/?#]{0,199}+(?=[\s)#]|\Z))",
    re.IGNORECASE,
)
#: A whole link, address and title, within which no formula can begin for any parser.
_LINK: Final = re.compile(
    r"\([ \t]*+(?:[^\s()$\\<>\"`]|\([^\s()$\\<>\"`]*+\))++"
    r"(?:[ \t]++(?:\"[^\"$\\@\n]*+\"|'[^'\"$\\@\n]*+'))?+[ \t]*+\)"
)
#: Attributes without a value that take the keyboard or the page's top layer.
_TAKING: Final = frozenset(("autofocus", "contenteditable", "inert", "popover"))
_WORD: Final = re.compile(r"\w+", re.ASCII)
#: A script's address in an attribute. The tag around it is broken already; this is a second guard.
_SCRIPT: Final = re.compile(r"=\s*+[\"']?\s*+(?:java|vb)script(?=:)", re.IGNORECASE)


#: Characters that open and close something in Markdown.
_MARKS: Final = "*_~`[]"
#: How many characters of ``_MARKS`` one text may have. The time that a front end's parser takes
#: grows with the square of their number, and is about a second for this many.
_MOST_MARKS: Final = 50_000


def clean_markdown(text: str) -> str:
    """Return Markdown with everything active broken, and otherwise unchanged.

    Raises ``RefusedError`` if a front end would need seconds to parse it.
    """
    if len(text) > _MOST_MARKS and sum(map(text.count, _MARKS)) > _MOST_MARKS:
        raise RefusedError("too much markup")
    if not _INTERESTING.search(text):
        return text
    text = _RAW.sub(rf"\g<0>{JOINER}", _FENCE.sub(_fence, settle(text)))
    text = _OPENING.sub(_opening, text)
    text = _BRACKET.sub(_Brackets(text).settle, text)
    text = _SCRIPT.sub(rf"\g<0>{JOINER}", text)
    return tex.clean_markdown(text)


def _fence(match: re.Match[str]) -> str:
    """Return a code fence, with the language ``text`` if the one named could have effects."""
    fence = match[1] or match[4]
    info = match[2] or match[5]
    plain = match[3] or not _UNSETTLED.search(info)
    drawn = "mermaid" in unescape(info).lower()
    return match[0] if plain and not drawn else f"{fence}text{match[3] or ''}"


def _opening(match: re.Match[str]) -> str:
    """Return an opening: a known tag rewritten, an inert one unchanged, any other broken."""
    name = (match["name"] or "").lower()
    if name in _MARKUP:
        return f"<{match['end']}{name}{_attributes(name, match['attributes'])}>"
    if name in OTHER_ELEMENTS or match["end"] or match["attributes"]:
        return f"<{JOINER}{match[0][1:]}"
    generic = (match["generic"] or name).lower()
    words = {word.lower() for word in _WORD.findall(match[0])}
    inert = len(match[0]) > 1 and generic not in OTHER_ELEMENTS and not words & _TAKING
    return match[0] if inert else f"<{JOINER}{match[0][1:]}"


def _attributes(tag: str, source: str) -> str:
    """Return the attributes of a tag in Markdown that may stay, in one spelling."""
    kept_attributes = []
    allowed = ATTRIBUTES["*"] | ATTRIBUTES.get(tag, frozenset())
    for pair in _PAIR.finditer(source):
        name = pair[1].lower()
        value = None
        if name in allowed:
            value = _markdown_attribute(name, unescape(pair[2] or pair[3] or ""))
        if value is not None and _INERT.fullmatch(value):
            kept_attributes.append(f' {name}="{escape(value)}"')
    return "".join(kept_attributes)


def _markdown_attribute(name: str, value: str) -> str | None:
    """Return the cleaned value of an attribute in Markdown, or None to drop it.

    Styles may only set how letters look. HTML with other styles is put into a box that clips it,
    which does not work for Markdown: an end tag in it could close the box.
    """
    if name == "style":
        return markup.declarations(value, LETTERS) or None
    return attribute(name, value)


class _Brackets:
    """Decides about the brackets of one text, by where formulas could begin in it."""

    def __init__(self, text: str) -> None:
        self._marks = [mark.start() for mark in _MARK.finditer(text)]
        blanks = _BLANK_LINE.finditer(text) if self._marks else ()
        self._ends = [blank.start() for blank in blanks]

    def settle(self, match: re.Match[str]) -> str:
        """Return a bracket, broken unless it begins a harmless link for every parser."""
        bracket = match[0]
        text = match.string
        position = match.end()
        if len(bracket) > 1:
            return bracket
        leads_away = bracket == "]" and _HARMLESS.match(text, position)
        settled = leads_away and (
            not self._formula_follows(position) or _LINK.match(text, position)
        )
        return bracket if settled else bracket + JOINER

    def _formula_follows(self, position: int) -> bool:
        """Return whether a formula could begin from ``position`` on, in its paragraph."""
        mark = bisect_left(self._marks, position)
        if mark == len(self._marks):
            return False
        end = bisect_left(self._ends, position)
        return end == len(self._ends) or self._marks[mark] < self._ends[end]
