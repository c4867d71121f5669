"""HTML, Markdown and SVG that a notebook may show: what is let through stands in the tables here.

HTML: nh3 decides on the tree. Invariant: of what the guest wrote, only elements and attributes of
the tables here come out. None of them runs code, loads anything, submits anything, or switches an
HTML parser to another language, so parsing the result again (a browser, a saved notebook,
nbconvert) can't yield what was not let through. The two things that do switch, style sheets and
drawings, are cut out before and written anew, by ``markup.sheet`` and ``clean_svg``.

SVG is parsed as XML and written anew from an allowlist of elements and attributes. Invariant: the
text that comes out is well-formed XML with no declaration, DTD, entity, comment, CDATA, processing
instruction or prefix but ``xlink``. It holds no script, no handler, no animation, no HTML, and
refers to nothing outside itself but where a link leads. Its ids are ``markup.safe_id``'s. It reads
the same inside HTML: no element in it ends foreign content, and the two whose content an HTML
parser takes for HTML (title, desc) hold text only.
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

_TEXT_ONLY: Final = frozenset(("desc", "style", "title"))
_TEXT: Final = frozenset(("a", "desc", "text", "textPath", "title", "tspan"))
#: What starts a function, an escape or a scheme.
_SUSPECT: Final = re.compile(r"[(\\:]")
_SIZES: Final = frozenset(("height", "width"))
_TRANSFORMS: Final = frozenset(("gradientTransform", "patternTransform"))
_ESCAPED: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;"}


def clean_svg(text: str) -> str:
    """Return the drawing with what the allowlist knows. Raises ``RefusedError``."""
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
        rules = markup.sheet("".join(self._sheet), self._scope, DRAWING)
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


def _drawing_attributes(element: str, attributes: dict[str, str]) -> dict[str, str]:
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


# --- what may be shown: elements and attributes, a family a line --------------------------------

#: None runs, loads or submits, or makes an HTML parser read on in another language.
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
#: Attributes by element; ``*`` stands for every one. ``_VALUES`` looks at what some say.
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
#: The other names that HTML knows or knew, and the doors to SVG and MathML: Markdown must not
#: take them for a generic type such as ``list<int>``.
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
    """Return the value of an attribute that ``ATTRIBUTES`` has, None to drop it."""
    check = _VALUES.get(name)
    return check(value) if check else value


def _length(value: str) -> str | None:
    return None if markup.is_huge(value) else value


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


# --- the whole of an output -------------------------------------------------------------------

_HOLE: Final = "cellblock-svg"
#: Elements of a kind that someone misses when it goes; others go without a word.
_MISSED: Final = words("applet audio button canvas embed form frame link object video")
_QUIET: Final = words("noscript style title")
#: Each costs some 20 µs at least, however small.
_MAX_DRAWINGS: Final = 1_000
#: What is drawn beyond the box of an output, as by a child that is higher than its parent, is cut
#: off there, or scrolled to. Front ends have such a box of their own; pages of nbconvert's template
#: ``basic`` have none.
_CLIPS: Final = 'style="overflow: auto"'
_SHOWN: Final = re.compile(r"<(?:hr|img|input|meter|progress|svg)\b|(?:^|>)\s*+[^<\s]")


def clean(text: str) -> OwnLines:
    """Return what may be shown of ``text``, with a note when something was left out.

    Raises ``RefusedError`` when nothing would be seen.
    """
    return _Cleaner().clean(text)


def text_of_page(page: str) -> str:
    """Return HTML that has the text of a page, for ``readable``: to be shown to nobody."""
    return split_texts(regular(cut_opaque(page, lambda *_: ""))[0])


class _Cleaner:
    """Cleans one HTML text; single use."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._rules: list[str] = []
        self._drawings: list[str] = []
        self._missed: set[str] = set()
        #: Whether a style says more than how letters look.
        self._moves = False

    def clean(self, text: str) -> OwnLines:
        named = name_embedded(text)
        body, elements = regular(cut_opaque(named, self._replace))
        self._missed |= elements & _MISSED
        body = tex.clean_formulas(self._filled(self._filtered(split_texts(body))))
        missed = ", ".join(sorted(self._missed))
        if missed and not _SHOWN.search(body):
            raise RefusedError(missed)
        scope = markup.scope(text) if self._rules else ""
        if rules := markup.sheet("\n".join(self._rules), scope):
            # The style sheet matches nothing outside of this element.
            body = f'<div id="{scope}" {_CLIPS}>\n<style>\n{rules}\n</style>\n{body}\n</div>'
        elif self._moves:
            body = f"<div {_CLIPS}>{body}</div>"
        hosts = set(named.hosts)
        if missed:
            said = f"[cellblock left out {missed}]"
            body += f"\n<p><small>{said}</small></p>"
            hosts.add(said)
        return OwnLines(body, hosts)

    def _replace(self, name: str, source: str) -> str:
        """Return what stands for an element whose content is no HTML, while nh3 decides."""
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
            # nh3 keeps a drawing's place only with this nonce.
            return f'<{_HOLE} class="{self._nonce}-{len(self._drawings) - 1}"></{_HOLE}>'
        if name not in _QUIET:
            self._missed.add(name)
        return ""

    def _filtered(self, text: str) -> str:
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
        if name == "style" and kept is not None:
            self._moves = self._moves or kept != markup.declarations(value, LETTERS)
        if kept is None and (tag, name) == ("img", "src"):
            self._missed.add("remote image")
        return kept

    def _filled(self, body: str) -> str:
        """Return ``body`` with its drawings.

        In attributes and text nh3 writes quotes or brackets as entities, so only elements match.
        """
        hole = re.compile(rf'<{_HOLE} class="{self._nonce}-(\d+)"></{_HOLE}>')
        return hole.sub(lambda found: self._drawings[int(found[1])], body)


# --- pages and media of other addresses -----------------------------------------------------------

_EMBEDDED: Final = re.compile(
    r"<(audio|embed|iframe|object|video)(?=[\s/>])"
    r"((?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+'){0,4000}+)>",
    re.IGNORECASE,
)
#: In the text itself: in lower case a text may have another length.
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
#: Elements that may be looked at, so that looking is quick.
_MOST_EMBEDDED: Final = 200
_LONGEST_ADDRESS: Final = 500
#: An address that makes no sentence of the line that it stands in.
_ONE_WORD: Final = re.compile(r"[!-Z^-~]+")


def name_embedded(text: str) -> OwnLines:
    """Return HTML with a line for each page, sound or film that is embedded by its address.

    Nothing is loaded into outputs, so all that was seen of it was an empty frame. HTML with a
    script stays as it is: the text may be a part of a program.
    """
    lowered = text.lower()
    found = sum(map(lowered.count, ("<audio", "<embed", "<iframe", "<object", "<video")))
    if not 0 < found <= _MOST_EMBEDDED or "<script" in lowered:
        return OwnLines(text)
    parts = []
    hosts = set[str]()
    at = 0
    while element := _EMBEDDED.search(text, at):
        name = element[1].lower()
        attributes = element[2]
        end = element.end()
        if name != "embed" and (close := _CLOSING[name].search(text, end)):
            end = text.find(">", close.end()) + 1 or len(text)
        source = _SOURCE.search(attributes) if not _SOURCE_DOC.search(attributes) else None
        if source is None and name in ("audio", "video"):
            inside = _INSIDE.search(text, element.end(), end)
            source = inside and _SOURCE.search(inside[0])
        address = unescape(next(filter(None, source.groups()), "")) if source else ""
        if not _LOADS.match(address.strip()):
            parts.append(text[at : element.end()])
            at = element.end()
            continue
        address = address.strip()[:_LONGEST_ADDRESS]
        shown = escape(address)
        link = f'<a href="{shown}" target="_blank">{shown}</a>'
        parts += [
            text[at : element.start()],
            f"<p><small>{_not_embedded(name, link)}</small></p>",
        ]
        if _ONE_WORD.fullmatch(address):
            hosts.add(_not_embedded(name, address))
        at = end
    parts.append(text[at:])
    return OwnLines("".join(parts), hosts)


def _not_embedded(name: str, address: str) -> str:
    what = {"audio": "sounds", "video": "films"}.get(name, "pages")
    return f"[cellblock loads no {what} into outputs: open {address} yourself]"


# --- a regular shape, before a tree is built ----------------------------------------------------
#
# HTML tree builders take quadratic time and worse over deep nesting, unclosed formatting elements
# and tags with thousands of attributes: 200 kB took nh3 5 s. Here tags are paired, nesting is
# bounded and comments, declarations and elements whose content is no markup are taken out, in time
# linear in the text's length. This bounds time only; what may be shown is decided on the tree.

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
#: What an HTML parser takes for a comment that ends at the next ``>`` (WHATWG, "bogus comment").
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
#: Only these can close themselves in their first tag, of which this is the rest.
_FOREIGN: Final = ("math", "svg")
_EMPTY: Final = re.compile(r"[^<>]*+(?<=/)>")
_VOID: Final = words("area base br col embed hr img input link meta param source track wbr")
_FORMATTING: Final = words("a b big code em font i nobr s small strike strong tt u")
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
_TABLE: Final = words("table tbody td tfoot th thead tr")
#: What nh3 escapes, in a time that grows with the text or value that it stands in: so each has this
#: many at most. Texts are split by comments, which nh3 takes out again.
_MOST_ESCAPED: Final = 500
_BETWEEN: Final = rf"(?:{_UNNAMED}|[^<&\xa0]++)*+"
_PIECE: Final = re.compile(rf"{_BETWEEN}(?:[&\xa0]{_BETWEEN}){{0,{_MOST_ESCAPED}}}+")


def cut_opaque(text: str, replace: Callable[[str, str], str]) -> str:
    """Return ``text`` without comments, and with ``replace(name, source)`` for opaque elements.

    Opaque is an element whose content is no HTML; its source has its tags. One that is not closed
    takes all that follows, as in a browser.
    """
    parts = []
    at = 0
    while found := _OPAQUE.search(text, at):
        parts.append(text[at : found.start()])
        name = (found[1] or "").lower()
        at = _end_of(name, text, found)
        if name:
            parts.append(replace(name, text[found.start() : at]))
    parts.append(text[at:])
    return "".join(parts)


def _end_of(name: str, text: str, start: re.Match[str]) -> int:
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
    """Return HTML whose tags are paired and nested at most 128 deep, and all elements' names.

    It shows as ``text`` does. Declarations, processing instructions and CDATA sections go, up to
    the first ``>``: HTML has them as comments. A ``<`` that opens nothing becomes ``&lt;``; a tag
    beyond the bounds goes. The names leave out some that hold text only.
    """
    tags = _Tags()
    parts = []
    at = 0
    while at < len(text):
        if leaves := _LEAVES.match(text, at):
            parts.append(leaves[0])
            at = leaves.end()
        start = text.find("<", at)
        if start < 0:
            break
        parts.append(text[at:start])
        if _IGNORED.match(text, start):
            end = text.find(">", start)
            at = len(text) if end < 0 else end + 1
            continue
        tag = _TAG.match(text, start)
        parts.append(tags.take(tag) if tag else "&lt;")
        at = tag.end() if tag else start + 1
    parts.append(text[at:])
    return "".join(parts), frozenset(tags.names)


def split_texts(text: str) -> str:
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
        ended = []
        closes = _CLOSES.get(name, ())
        while self._open and self._open[-1] in closes:
            ended.append(self._pop())
        return "".join([*ended, tag[0] if self._push(name) else ""])

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


# --- Markdown, made harmless without being parsed -----------------------------------------------
#
# Front ends read Markdown with different parsers (marked, mistune, markdown-it, pandoc), and what
# is code to one is HTML to the next. So nothing here depends on where code, links or formulas
# begin: each place where *some* parser could see a tag, an image, an active link or a reaching
# TeX command is broken by a word joiner (U+2060, invisible), code or not. A few tags and carried
# images come through in one canonical spelling.
#
# Price: in code, a tag or ``a<b`` holds a joiner, which is copied with it.
#
# A front end could make attributes or commands of formulas. JupyterLab takes them out of the text,
# leaves ``@@0@@`` in their places, parses what is left and puts them back with only ``&``, ``<``
# and ``>`` escaped. One whose place went into an attribute (a link's address or title, the language
# of a code block) ends it with its quotes and starts a handler. And what a formula says is settled
# only when Markdown's entities and escapes are gone.

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


_INTERESTING: Final = re.compile(r"<[A-Za-z/!?]|!\[|\][(:]|```|~~~|:::|[\\$]|&[#A-Za-z]|@@|`\{")
#: A fence and what names its language: a front end may draw its content with a library that
#: loads images, and writes the name into an attribute.
_FENCE: Final = re.compile(
    r"(?<![`~:])(?:((?:`{3,}+|:{3,}+)[ \t]*+)([^\n`]++)(`?)|(~{3,}+[ \t]*+)([^\n]++))"
)

#: How pandoc is told that code is LaTeX, reStructuredText or another format's own, and goes into
#: that as it is: ``{=latex}``.
_RAW: Final = re.compile(r"[`~][ \t]*+\{(?=\s*+=)")

#: Tags that only mark up; a checkbox is one with its type only, which ``html`` sees to.
_MARKUP: Final = TAGS - {"input"}
#: A tag that looks the same to every parser, an autolink, a generic type, or any other opening.
_OPENING: Final = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9]*+)(?P<attributes>"
    r"(?:[ \t]++[A-Za-z]++(?:=(?:\"[^\"<>\n]*+\"|'[^'<>\n]*+'))?+)*+)[ \t]*+/?>"
    r"|<(?:https?://|mailto:)[\w./?#%&+~:@,;!-]*+>"
    r"|<(?P<generic>[A-Za-z][\w.]*+)(?:[, ]++[A-Za-z][\w.]*+)*+>"
    r"|<(?=[A-Za-z/!?])",
    re.ASCII,
)
_PAIR: Final = re.compile(r"([A-Za-z]+)(?:=(?:\"([^\"]*+)\"|'([^']*+)'))?+")
#: Values that mean nothing to a Markdown parser that does not see the tag around them.
_INERT: Final = re.compile(r"[\w #%.,:;/()+?=&@~!-]*+", re.ASCII)

_BRACKET: Final = re.compile(
    r"!\[[^\[\]\\`\n$<&!@]*+\]\(data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]++\)"
    r"|!(?=\[)|\](?=[(:])"
)
#: What follows the bracket of a link or definition: what ``markup.link`` keeps, or a name alone.
#: A path or a query would lead to the front end's own server (``/logout``, ``?reset``). A name may,
#: too, but in code it is what is called (``f[0](x)``) or stands behind a colon.
_HARMLESS: Final = re.compile(
    r"[(:][\s>]{0,99}+(?![\s>])(?:https?://|mailto:|[^\s:&\\<)/?#]{0,199}+(?=[\s)#]|\Z))",
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


def clean_markdown(text: str) -> str:
    """Return ``text`` with everything active broken, and otherwise as it is.

    Raises RefusedError where it would take the reader's page seconds.
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


def _fence(found: re.Match[str]) -> str:
    fence = found[1] or found[4]
    info = found[2] or found[5]
    plain = found[3] or not _UNSETTLED.search(info)  # it names a language, and does nothing else
    drawn = "mermaid" in unescape(info).lower()
    return found[0] if plain and not drawn else f"{fence}text{found[3] or ''}"


def _opening(found: re.Match[str]) -> str:
    name = (found["name"] or "").lower()
    if name in _MARKUP:
        return f"<{found['end']}{name}{_attributes(name, found['attributes'])}>"
    if name in OTHER_ELEMENTS or found["end"] or found["attributes"]:
        return f"<{JOINER}{found[0][1:]}"
    generic = (found["generic"] or name).lower()
    words = {word.lower() for word in _WORD.findall(found[0])}
    inert = len(found[0]) > 1 and generic not in OTHER_ELEMENTS and not words & _TAKING
    return found[0] if inert else f"<{JOINER}{found[0][1:]}"


def _attributes(tag: str, source: str) -> str:
    kept = []
    known = ATTRIBUTES["*"] | ATTRIBUTES.get(tag, frozenset())
    for found in _PAIR.finditer(source):
        name = found[1].lower()
        value = None
        if name in known:
            value = _markdown_attribute(name, unescape(found[2] or found[3] or ""))
        if value is not None and _INERT.fullmatch(value):
            kept.append(f' {name}="{escape(value)}"')
    return "".join(kept)


def _markdown_attribute(name: str, value: str) -> str | None:
    """Return an attribute's value, None to drop it.

    Markdown can't be put into a box that clips it: an end tag in it may close that. So its styles
    say how letters look, and move nothing.
    """
    if name == "style":
        return markup.declarations(value, LETTERS) or None
    return attribute(name, value)


class _Brackets:
    """Settles the brackets of one text, by where formulas could start in it."""

    def __init__(self, text: str) -> None:
        self._marks = [mark.start() for mark in _MARK.finditer(text)]
        blanks = _BLANK_LINE.finditer(text) if self._marks else ()
        self._ends = [blank.start() for blank in blanks]

    def settle(self, found: re.Match[str]) -> str:
        """Return a bracket, broken unless what follows can only lead away."""
        bracket = found[0]
        text = found.string
        at = found.end()
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
