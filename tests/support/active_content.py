"""Finds active content in outputs: anything that would act in a front end.

Used on messages that a front end would be sent, and on pages that it has rendered. The HTML readers
share nothing with the sanitisers: the standard library's tokenizer, and the tree that html5lib
builds by the HTML standard. Each ``in_…`` function returns a list of what it found; empty is good.
"""

import re
from html import unescape
from html.parser import HTMLParser

from cellblock.host.output import frames

ACTING = {
    *("animate", "applet", "audio", "base", "embed", "foreignobject", "form", "frame"),
    *("frameset", "iframe", "link", "math", "meta", "noembed", "noframes", "noscript", "object"),
    *("plaintext", "script", "select", "set", "template", "textarea", "video", "xmp"),
}
LOADING = {"action", "background", "data", "formaction", "poster", "src", "srcset"}
RASTER = re.compile(r"data:image/(png|gif|jpe?g|webp);base64,")
AWAY = re.compile(r"(https?://|mailto:|#)", re.IGNORECASE)
SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
REMOTE_CSS = re.compile(r"url\s*\((?!\s*['\"]?#)|@import|expression\s*\(", re.IGNORECASE)


def element(name, attributes, *, relative=False):
    """Return the active parts of one element; ``relative`` allows links without a scheme."""
    found = [f"<{name}>"] if name.lower() in ACTING else []
    for key, value in attributes:
        if acts(name, key.rpartition(":")[2].lower(), value or "", relative=relative):
            found.append(f"<{name} {key}={value}>"[:60])
    return found


def acts(name, key, value, *, relative):
    """Return whether an attribute runs, loads or submits something, or leads to a bad address."""
    carried = name in ("image", "img") and RASTER.match(value)
    if key.startswith("on"):
        return True
    if key in LOADING:
        return not carried
    if key == "href":
        squashed = re.sub(r"[\x00-\x20]", "", value)
        away = AWAY.match(value) if name == "a" else value.startswith("#")
        return not (away or carried or (relative and not SCHEME.match(squashed)))
    return key not in ("alt", "class", "id", "title", "aria-label") and REMOTE_CSS.search(value)


class Tokens(HTMLParser):
    def __init__(self, *, relative):
        super().__init__(convert_charrefs=True)
        self.found, self.relative, self.style = [], relative, False

    def handle_starttag(self, tag, attributes):
        self.style = tag == "style"
        self.found += element(tag, attributes, relative=self.relative)

    handle_startendtag = handle_starttag

    def handle_endtag(self, _):
        self.style = False

    def handle_data(self, data):
        if self.style and REMOTE_CSS.search(data):
            self.found.append("<style> loads")


def in_tokens(text, *, relative=False):
    tokens = Tokens(relative=relative)
    tokens.feed(text)
    tokens.close()
    return tokens.found


def in_tree(text, html5lib, *, relative=False):
    found = []
    for node in html5lib.parseFragment(text, treebuilder="etree").iter():
        if not isinstance(node.tag, str):
            found.append("a comment")
            continue
        pairs = [(key.rpartition("}")[2], value) for key, value in node.attrib.items()]
        found += element(node.tag.rpartition("}")[2], pairs, relative=relative)
    return found


#: Pieces of markup that parsers disagree about. Tests try any concatenation.
PIECES = [
    "<script>",
    "</script>",
    "<script/src=//x>",
    "<img/src=x/onerror=alert(1)>",
    "<img/src=http://e/x.png>",
    "<svg>",
    "</svg>",
    "<svg/onload=alert(1)>",
    '<svg/xmlns="http://www.w3.org/2000/svg">',
    "<math>",
    "</math>",
    "<mtext>",
    "<mglyph>",
    '<annotation-xml/encoding="text/html">',
    "<style>",
    "</style>",
    "<style><img/src=x/onerror=1></style>",
    "<noscript>",
    "</noscript>",
    "<template>",
    "</template>",
    "<title>",
    "</title>",
    "<textarea>",
    "</textarea>",
    "<xmp>",
    "</xmp>",
    "<!--",
    "-->",
    "--!>",
    "<!-->",
    "<![CDATA[",
    "]]>",
    "<?xml/?>",
    "<?",
    "?>",
    '<!DOCTYPE/svg/[<!ENTITY/a/"x">]>',
    "&a;",
    '<a/href="javascript:alert(1)">',
    "<a/href=java&#9;script:alert(1)>",
    "<a/href=&#106;avascript:1>",
    "</a>",
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    "<table>",
    "</table>",
    "<tr>",
    "<td>",
    "</td>",
    "<select>",
    "</select>",
    "<option>",
    "<form/action=x>",
    "<input/onfocus=x>",
    '<iframe/srcdoc="<script>">',
    "<iframe>",
    "</iframe>",
    "<object/data=x>",
    "<embed/src=x>",
    "<base/href=//x>",
    "<meta/http-equiv=refresh>",
    "<link/rel=stylesheet/href=//x>",
    "<foreignObject>",
    "</foreignObject>",
    "<desc>",
    "</desc>",
    '<use/href="data:x"/>',
    '<use/xlink:href="#a"/>',
    '<g/id="a">',
    "</g>",
    "<animate/attributeName=href/values=javascript:1",
    "/>",
    "<set/attributeName=onload/to=x",
    "/>",
    '<image/href="http://x"/>',
    "<text>",
    "</text>",
    '<div/title="',
    "<div/title='",
    "'>",
    '"',
    "'",
    "`",
    "=",
    "/",
    ">",
    "<",
    "</",
    "<a",
    "<A",
    "text",
    '<p/style="background:url(//x)">',
    "<style>#a{background:url(http://x)}</style>",
    "<style>@import'//x';</style>",
    "<style>.a{color:red}</style>",
    "</style",
    "<br>",
    "<details/open/ontoggle=x>",
    "<wbr>",
    "\\href{javascript:1}{x}",
    "$",
    "onload=alert(1)",
    "&lt;script&gt;",
    "<sVg/oNload=1>",
    "<plaintext>",
    "<frameset>",
    "<body/onload=x>",
    "<html>",
    "<head>",
    '<cellblock-svg/class="x">',
    "[x](",
    ")",
    "]",
    "[",
    "![",
    "](javascript:1)",
    "](data:text/html,x)",
    "[x]:javascript:1",
    "[x][x]",
    "```",
    "~~~",
    "<javascript:alert(1)>",
    "<javascript:1>",
    "\\",
    "*",
    "_",
    "<http://x/onclick=1//>",
    "![x](http://e/p.png)",
    "![][r]",
    "[r]:http://e/p",
    "`<b>`",
    "{",
    "}",
    ":",
    "#",
    "](<javascript:1>)",
    "](&#106;avascript:1)",
    "](java\\script:1)",
]
BLANKS = [
    "\n",
    "\n\n",
    " ",
    "\t",
    "    ",
    "\n> ",
    "\n- ",
    "\n1. ",
    "\x0c",
    "\r",
    "\u2028",
    "\ufeff",
]


# --- messages ---------------------------------------------------------------------------------

TEXTS = {
    "application/vnd.fasta.fasta",
    "image/svg+xml",
    "text/html",
    "text/latex",
    "text/markdown",
    "text/plain",
}
RASTERS = {"image/bmp", "image/gif", "image/jpeg", "image/png", "image/webp"}
DATA = {"application/json", "application/vnd.dataresource+json"}
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
#: Controls, also 8-bit ones, and all escape sequences except colours and erasing in line.
SEQUENCE = re.compile(
    r"\x1b(?!\[[0-9;:]*m|\[[0-2]?K)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029]"
)
#: The same and a carriage return, for text in which no line is redrawn.
WHOLE = re.compile(rf"{SEQUENCE.pattern}|\r")
COMMAND = re.compile(
    r"\\(?:href|url|cssId|class|style|data|require|includegraphics|bbox|csname|input|include"
    r"|write|openin|openout|immediate|catcode|directlua|unicode\[|def|let|newcommand|verb"
    r"|makeatletter|ExplSyntaxOn)(?![A-Za-z])|\^\^|\\@@?[a-z]+|\\[a-z]+_[a-z_]+:[A-Za-z]+"
    r"|\\(?:begin|end)\s*\{(?:filecontents|input|verbatim)"
)
#: Code that pandoc copies into another format unchanged.
RAW = re.compile(r"[`~]\s*\{\s*=\w+")
#: Declarations that move a box out of its place, or draw outside of it.
MOVES = re.compile(
    r"(?:^|[;{\s\"])(?:position|inset|transform|translate|scale|zoom|offset-path|animation|outline"
    r"|filter|content|z-index)\s*:|:\s*[^;]*(?:(?<![a-zA-Z_-])-\.?\d|calc\()|\d{5}px",
)
TAKING = ("autofocus", "contenteditable", "popover", "data-", "accesskey", "tabindex", "inert")
#: Declarations by which a box can draw beyond itself.
OVERFLOWS = re.compile(r"(?:^|[;{\s\"])(?:max-)?(?:height|line-height|padding|font)\s*:")
#: The box around an output that clips those.
CLIPS = re.compile(r'<div (?:id="[\w-]+" )?style="overflow: auto">')
FOREIGN = re.compile(r"(?:^|\s)(?:jp|lm|cm|p|mermaid|MathJax|bp3)-")


SELECTORS = re.compile(r"([^{}]+)\{")
#: Tags and declarations that the tokenizer ignores: not closed, or of XML.
ROUGH = re.compile(
    r"<[a-zA-Z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*[\s/\"'`]on[a-z]+\s*=|<!(?:DOCTYPE|ENTITY)|<\?xml-",
    re.IGNORECASE,
)


def is_scoped(selectors):
    return all(part.strip().startswith("#cellblock-") for part in selectors.split(","))


class Page(HTMLParser):
    """Finds elements of an output that would affect the page around it."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.style, self.text, self.overflows = [], False, [], []

    def handle_starttag(self, tag, attributes):
        self.style = tag == "style"
        self.text.append("" if tag == "wbr" else "\n")
        for key, value in attributes:
            moved = key == "style" and MOVES.search(value or "")
            named = key == "class" and FOREIGN.search(value or "")
            if key == "style" and tag != "svg" and OVERFLOWS.search(value or ""):
                self.overflows.append(f"<{tag} {key}={value}>"[:60])
            if moved or named or key.startswith(TAKING):
                self.found.append(f"<{tag} {key}={value}>"[:60])

    handle_startendtag = handle_starttag

    def handle_endtag(self, _):
        self.style = False

    def handle_data(self, data):
        if self.style and (MOVES.search(data) or not all(map(is_scoped, SELECTORS.findall(data)))):
            self.found.append("<style> reaches out of its output")
        if not self.style:
            self.text.append(data)


def in_html(text, *, relative=False):
    """Return the active content in HTML: elements, styles, the page's own names, formulas."""
    page = Page()
    page.feed(text)
    page.close()
    formulas = COMMAND.findall("".join(page.text))
    drawn = [] if CLIPS.match(text) else page.overflows
    return in_tokens(text, relative=relative) + page.found + drawn + formulas + ROUGH.findall(text)


FORMULA = re.compile(
    r"\$\$?[^$]+\$\$?|\\\\[(\[].+?\\\\[)\]]|\\begin\{(\w+)\}.+?\\end\{\1\}", re.DOTALL
)


def as_in_jupyterlab(text, render):
    """Return Markdown as HTML, with formulas taken out before and put back after rendering.

    JupyterLab does the same.
    """
    kept = []

    def out(found):
        kept.append(re.sub("[&<>]", lambda c: f"&#{ord(c[0])};", found[0]))
        return f"@@{len(kept) - 1}@@"

    rendered = render(FORMULA.sub(out, text))
    return re.sub(
        r"@@(\d+)@@", lambda n: kept[int(n[1])] if int(n[1]) < len(kept) else n[0], rendered
    )


def in_markdown(text):
    """Return the active content in Markdown, rendered as exporters do it and as JupyterLab does."""
    import mistune  # noqa: PLC0415 - comes with nbconvert, which is not installed everywhere

    renderer = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    render = mistune.create_markdown(renderer=renderer, plugins=["table", "url", "footnotes"])
    found = in_html(render(text), relative=True)
    found += in_html(as_in_jupyterlab(text, render), relative=True)
    drawn = re.findall(r"^\W*(?:```|~~~)\W*mermaid", text, re.IGNORECASE | re.MULTILINE)
    return found + drawn + RAW.findall(text) + COMMAND.findall(text)


def in_latex(text):
    """Return the commands and tags in TeX that act outside of a formula."""
    return (
        COMMAND.findall(text) + COMMAND.findall(unescape(text)) + re.findall(r"<[a-zA-Z/!]", text)
    )


#: A script that hands a library of the host's to frames: a name and base64.
SHARED = r'<script>window\[Symbol\.for\("cellblock\.frames\.2"\)\]\("[\w-]+","[\w+/=]+"\)</script>'
#: An output in frames: a sandboxed outer frame, and the notes beside it.
FRAME = re.compile(
    r'<iframe class="cellblock-frame"(?: data-cellblock-library="[\w-]+")? sandbox="allow-scripts"'
    r'(?: [a-z]+="[^"<>]*")*'
    r' srcdoc="([^"<>]*)">([^<>]*)</iframe>'
    rf"<script>{re.escape(frames.page_script())}</script>(?:{SHARED})?(.*)",
    re.DOTALL,
)
OUTER = re.compile(
    r'<!doctype html><meta http-equiv="Content-Security-Policy" content="([^"<>]*)"><style>[^<>]*'
    r'</style><iframe sandbox="allow-scripts" title="[^"<>]*" srcdoc="[^"<>]*"></iframe>'
)
HELD = ("default-src 'none'", "connect-src 'none'", "frame-src 'none'", "form-action 'none'")


def is_held(frame):
    """Return whether a frame's page is one more frame, under a policy that lets nothing out."""
    outer = OUTER.fullmatch(unescape(frame))
    return outer is not None and set(HELD) <= set(unescape(outer[1]).split("; "))


READERS = {
    "application/vnd.fasta.fasta": re.compile("<").findall,
    "image/svg+xml": in_html,
    "text/html": in_html,
    "text/latex": in_latex,
    "text/markdown": in_markdown,
    "text/plain": SEQUENCE.findall,
}


def in_bundle(data, metadata):
    """Return the active content in a mime bundle and its metadata."""
    found = []
    for mime, value in data.items():
        if mime in RASTERS and not (isinstance(value, str) and BASE64.fullmatch(value)):
            found.append(f"{mime} is no base64")
        elif mime in TEXTS:
            found += WHOLE.findall(value) if isinstance(value, str) else []
            found += in_text(mime, value) if isinstance(value, str) else [f"{mime} is no text"]
        elif mime not in DATA | RASTERS:
            found.append(f"type {mime}")
    return found + in_metadata(metadata)


def in_text(mime, value):
    """Return the active content in a text. Tests of frames look into pages in frames."""
    if mime == "text/html" and (frame := FRAME.fullmatch(value)):
        outside = in_html(frame[2] + frame[3]) + SEQUENCE.findall(value)
        return outside if is_held(frame[1]) else [*outside, "a frame that holds nothing"]
    return READERS[mime](value) + SEQUENCE.findall(value)


SIZE = re.compile(r"\d{1,5}(?:\.\d+)?(?:px|em|%)?")


def in_metadata(value):
    """Return metadata that exporters or front ends would act on: addresses, sizes, prototypes."""
    if not isinstance(value, dict):
        return []
    found = []
    for key, item in value.items():
        if key in ("__proto__", "constructor", "prototype", "filename", "filenames"):
            found.append(f"metadata {key}")
        if key in ("width", "height") and not SIZE.fullmatch(str(item)):
            found.append(f"metadata {key}={item}")
        found += in_metadata(item)
    return found


def in_message(msg):
    """Return the active content in one message to a front end."""
    kind, content = msg["msg_type"], msg["content"]
    if kind in ("display_data", "execute_result", "update_display_data"):
        extra = content.get("transient", {}).keys() - {"display_id"} or content.keys() - FIELDS
        name = content.get("transient", {}).get("display_id") or ""
        found = in_bundle(content["data"], content["metadata"]) + SEQUENCE.findall(name)
        return found + [f"field {key}" for key in extra]
    if kind == "stream":
        named = [] if content["name"] in ("stdout", "stderr") else [f"stream {content['name']}"]
        return named + SEQUENCE.findall(content["text"])
    if kind in ("error", "execute_reply", "inspect_reply", "complete_reply"):
        return in_reply(content)
    return []


FIELDS = {"data", "metadata", "transient", "execution_count"}


def in_reply(content):
    """Return the active content in an error or a reply: texts and payloads."""
    texts = [content.get("ename", ""), content.get("evalue", ""), *content.get("traceback", [])]
    texts += content.get("matches", [])
    found = [hit for text in texts for hit in WHOLE.findall(text)]
    if "\n" in texts[0] or len(texts[0]) > 200:
        found.append("a name of many lines")
    for payload in content.get("payload", []):
        page = payload.get("source") == "page"
        found += [] if page else [f"payload {payload.get('source')}"]
        found += in_bundle(payload.get("data", {}), {}) if page else []
        found += [f"payload {key}" for key in payload.keys() - {"source", "data", "start"} if page]
    for value in content.get("user_expressions", {}).values():
        found += in_bundle(value.get("data", {}), value.get("metadata", {}))
    return found + in_bundle(content.get("data", {}), content.get("metadata", {}))
