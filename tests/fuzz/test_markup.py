"""Made-up markup, sanitised: nothing in it acts, as whoever shows it reads it.

FUZZ_SECONDS makes its six parts go on that long together, with other examples each time.
"""

import os
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cellblock.host.output import gateway
from cellblock.host.output.text import RefusedError
from support.active_content import BLANKS, PIECES, in_tokens, in_tree

pytestmark = pytest.mark.quick

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0")) / 6
SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'

html5lib = pytest.importorskip(
    "bleach._vendor.html5lib", reason="bleach, which carries html5lib, is not installed"
)

spaced = [re.sub(r"(?<=[a-z\"])/(?=[a-z])", " ", piece) for piece in PIECES]
hostile = st.lists(st.sampled_from([*PIECES, *spaced, *BLANKS]), max_size=16).map("".join)
texts = hostile | st.text(max_size=60)


def looked(test):
    """Have a test look once at the same examples, or anew until it has had its time."""
    if not SECONDS:
        return settings(max_examples=60)(test)
    test = settings(max_examples=500, derandomize=False)(test)

    def again():
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            test()

    return pytest.mark.timeout(SECONDS + 120)(again)


def sanitised(mime, text):
    try:
        return gateway.sanitise(mime, text)
    except RefusedError:
        return ""


def acting(text, *, relative=False):
    return in_tokens(text, relative=relative) + in_tree(text, html5lib, relative=relative)


@looked
@given(texts)
def test_nothing_acts_in_html_whatever_it_was(text):
    assert acting(sanitised("text/html", text)) == []


@looked
@given(texts)
def test_sanitised_html_stays_harmless_when_it_is_parsed_and_written_again(text):
    once = sanitised("text/html", text)
    tree = html5lib.parseFragment(once, treebuilder="etree")
    again = html5lib.serialize(tree, tree="etree", omit_optional_tags=False)
    assert acting(again) == []


@looked
@given(texts.map(SVG.format) | texts)
def test_nothing_acts_in_a_drawing_not_even_inside_html(text):
    assert acting(sanitised("image/svg+xml", text)) == []


@looked
@given(hostile)
@example('\n\n```[">](&#106;avascript:1)<style>')
@example("[x]: javascript:1<text><javascript:1>")
@example("<div>\n<http://x/onmouseover=alert(1)//>\n</div>")
def test_nothing_acts_in_markdown_as_nbconvert_renders_it(text):
    markdown2html = pytest.importorskip("nbconvert.filters.markdown_mistune").markdown2html_mistune
    assert acting(markdown2html(sanitised("text/markdown", text)), relative=True) == []


@looked
@given(hostile)
def test_nothing_acts_in_markdown_as_commonmark_renders_it(text):
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True})
    parser.validateLink = lambda _: True  # so that only the sanitiser stands between
    assert acting(parser.render(sanitised("text/markdown", text)), relative=True) == []


@looked
@given(hostile)
def test_markdown_read_as_html_holds_nothing_that_acts(text):
    assert in_tokens(sanitised("text/markdown", text), relative=True) == []
