import time
from xml.etree import ElementTree as ET

import pytest

from cellblock.host.output import html, markup
from cellblock.host.output.gateway import clean_bundle
from cellblock.host.output.text import RefusedError

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def inner(body):
    """Return what is left of ``body`` inside a drawing."""
    text = f"{HEAD}{body}</svg>"
    cleaned = html.clean_svg(text)
    start = f'{HEAD[:-1]} id="{markup.scope(text)}"'
    assert cleaned.startswith(start)
    return cleaned[len(start) :].removeprefix("/").removeprefix(">").removesuffix("</svg>")


@pytest.mark.parametrize(
    "body",
    [
        '<circle cx="5" cy="5" r="4" fill="red"/>',
        '<g transform="translate(-4 112) rotate(0)"><title>G</title></g>',
        '<path d="M 1 2 L 3 -4 z" style="fill: none; stroke: #1f77b4; stroke-width: 1.5"/>',
        '<text x="1" text-anchor="middle" font-family="Times,serif">a-&gt;b &amp; c</text>',
        f'<image width="3" xlink:href="{PIXEL}"/>',
    ],
)
def test_drawing_stays_as_it_is(body):
    assert inner(body) == body


def test_references_follow_their_ids():
    assert inner(
        '<defs><path id="m1"/><clipPath id="p1"/></defs>'
        '<use xlink:href="#m1"/><g clip-path="url(#p1)" style="fill: url(#h)"/>'
    ) == (
        '<defs><path id="cb-m1"/><clipPath id="cb-p1"/></defs>'
        '<use xlink:href="#cb-m1"/><g clip-path="url(#cb-p1)" style="fill: url(#cb-h)"/>'
    )


def test_a_style_sheet_matches_only_its_own_drawing():
    text = f"{HEAD}<defs><style>*{{stroke-linecap: butt}}</style></defs></svg>"
    assert f"<style>#{markup.scope(text)} * {{stroke-linecap: butt}}</style>" in html.clean_svg(
        text
    )


def test_matplotlibs_doctype_and_declaration_are_no_obstacle():
    cleaned = html.clean_svg(
        '<?xml version="1.0" encoding="utf-16" standalone="no"?>\n<!DOCTYPE svg PUBLIC '
        '"-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n'
        f"{HEAD}<!-- c --><rect/></svg>"
    )
    assert cleaned.endswith("<rect/></svg>")
    assert "DOCTYPE" not in cleaned


ACTS = [
    ("<script>alert(1)</script><rect/>", "<rect/>"),
    ('<rect onload="x" ONLOAD="y"/>', "<rect/>"),
    ('<a href="javascript:alert(1)"/>', '<a target="_blank" rel="noopener noreferrer"/>'),
    (
        '<a><animate attributeName="href" values="javascript:1"/><set to="x"/></a>',
        '<a target="_blank" rel="noopener noreferrer"/>',
    ),
    ("<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'/></foreignObject><g/>", "<g/>"),
    ("<x:script xmlns:x='http://www.w3.org/2000/svg'>1</x:script><g/>", "<g/>"),
    ("<h:script xmlns:h='http://www.w3.org/1999/xhtml'>1</h:script><g/>", "<g/>"),
    ("<g xmlns='' /><rect/>", "<rect/>"),
    ('<use href="https://e.invalid/x.svg#a"/>', "<use/>"),
    ('<use href="data:image/svg+xml,x#a"/>', "<use/>"),
    ('<image href="//e.invalid/x.png"/>', "<image/>"),
    ('<image href="data:image/svg+xml;base64,AAAA"/>', "<image/>"),
    ('<feImage href="//e.invalid"/><filter id="f"/>', '<filter id="cb-f"/>'),
    ('<rect fill="url(//e.invalid#x)"/>', "<rect/>"),
    ('<rect style="fill: url(//e.invalid); stroke: red"/>', '<rect style="stroke: red"/>'),
    ("<style>@import '//e'; rect { fill: url(//e) }</style><g/>", "<g/>"),
    ("<style><![CDATA[</style><script>]]></style><g/>", "<g/>"),
    ("<title><a href='x'/><style>*{fill:red}</style>t</title>", "<title>t</title>"),
    ("<desc>&lt;img src=x onerror=1&gt;</desc>", "<desc>&lt;img src=x onerror=1&gt;</desc>"),
    ("<?xml-stylesheet href='//e'?><g/>", "<g/>"),
    ("text<g/>", "<g/>"),
    ('<g aria-label="&quot;&gt;&lt;script>"/>', '<g aria-label="&quot;&gt;&lt;script&gt;"/>'),
    ('<handler type="text/javascript">x</handler><g/>', "<g/>"),
]


def test_what_acts_is_taken_out():
    for body, left in ACTS:
        assert inner(body) == left, (body, left)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<svg onload=alert(1)>", "not well-formed, line 1"),
        ('<svg xmlns="http://www.w3.org/2000/svg" x="1" x="2"/>', "not well-formed, line 1"),
        (f"{HEAD}\x00</svg>", "not well-formed, line 1"),
        ("<html/>", "its root is not svg"),
        ("<h:svg xmlns:h='http://www.w3.org/1999/xhtml'/>", "its root is not svg"),
        (f'<!DOCTYPE svg [<!ENTITY a "x">]>{HEAD}&a;</svg>', "declares entities"),
        (
            f'<!DOCTYPE svg [<!ENTITY % p SYSTEM "file:///etc/passwd">%p;]>{HEAD}</svg>',
            "declares entities",
        ),
        (HEAD + "<g>" * 200 + "</g>" * 200 + "</svg>", "nested too deep"),
        (
            f'{HEAD}<g id="a"><use href="#b"/></g><g id="b"><use href="#c"/></g></svg>',
            "uses what uses",
        ),
    ],
)
def test_a_drawing_that_can_not_be_trusted_goes_whole(text, why):
    with pytest.raises(RefusedError) as refused:
        html.clean_svg(text)
    assert str(refused.value) == why


def test_a_refused_drawing_leaves_a_note():
    assert clean_bundle({"image/svg+xml": "<svg onload=alert(1)>", "text/plain": "<Plot>"}) == {
        "text/plain": "<Plot>\n[cellblock left out image/svg+xml (not well-formed, line 1)]"
    }


def test_what_comes_out_is_well_formed():
    text = f'{HEAD}<g id="a"><text>x &lt; y</text><style>.b{{fill:red}}</style></g></svg>'
    assert ET.fromstring(html.clean_svg(text)).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_megabyte_of_small_elements_takes_less_than_a_second():
    text = HEAD + '<use xlink:href="#m" x="1.5" y="2.5" style="fill: #1f77b4"/>' * 17_000 + "</svg>"
    start = time.process_time()
    html.clean_svg(text)
    assert time.process_time() - start < 1.5
