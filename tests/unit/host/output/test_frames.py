"""Pages in two nested frames: what is written, and what a figure's height is taken from."""

import html
import re
import time
import zlib
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.host.output import frames

ATTRIBUTE = re.compile(r'srcdoc="([^"]*)"')
LIBRARY = f"<script>{'x = 1;' * 20_000}</script>"


def taken_apart(text):
    """Return the outer page, the inner page and the guest's page of an isolated output."""
    (outer,) = map(html.unescape, ATTRIBUTE.findall(text))
    (inner,) = map(html.unescape, ATTRIBUTE.findall(outer))
    packed = re.search(r'\)\("([A-Za-z0-9+/=]*)",""\)</script>\Z', inner)
    return outer, inner, zlib.decompress(b64decode(packed[1]), wbits=-15).decode()


@given(st.text())
def test_nothing_of_a_page_stands_in_the_notebook_as_markup(page):
    shown = frames.framed(page)
    _, inner, own = taken_apart(shown)
    assert own == page.encode("utf-8", "replace").decode() or own == frames._unwrapped(page)
    assert inner.count("<script>") == inner.count("</script>") == 1
    around = shown.replace(f"<script>{frames.page_script()}</script>", "")
    assert around.count("<") == 2


def test_both_frames_are_sandboxed_and_the_outer_has_a_policy_and_no_script():
    shown = frames.framed("<script>1</script>")
    outer, inner, _ = taken_apart(shown)
    for markup in (shown, outer):
        assert re.findall(r' sandbox="([^"]*)"', markup) == ["allow-scripts"]
    assert "<script" not in outer
    assert outer.index("Content-Security-Policy") < outer.index("<iframe")
    policy = html.unescape(re.search(r'content="([^"]*)"', outer)[1])
    assert policy.startswith("default-src 'none'; ")
    for directive in ("frame-src", "connect-src", "form-action", "base-uri"):
        assert f"{directive} 'none'" in policy
    assert not re.search(r"https?:|\*|allow-", policy)
    assert "sandbox" not in inner


INSIDE = '<h1 title="x">map</h1><script>1</script>'
FRAME = f'<iframe srcdoc="{html.escape(INSIDE)}"></iframe>'


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (f"<div><span>Trust me</span>{FRAME}</div>", INSIDE),
        # A page that does more than frame another stays whole.
        (f"{FRAME}<script>outer()</script>", f"{FRAME}<script>outer()</script>"),
    ],
)
def test_a_page_in_a_frame_of_its_own_is_taken_out_of_it(text, inner):
    assert taken_apart(frames.framed(text))[2] == inner


def test_libraries_travel_in_the_same_stream():
    page = f"<p>a</p>{LIBRARY}<p>b</p>{LIBRARY}<script>draw()</script>"
    shown = frames.framed(page)
    assert taken_apart(shown)[2] == page
    assert len(shown) < 15_000


@pytest.mark.parametrize(
    ("text", "height"),
    [
        ("<!-- height: 300px --><div style='height: 900px'>", 316),
        ("<!-- height: 99999px -->", 1_616),
        ('<div style="height:525px; width:100%;">', 541),
        ('<canvas height="240" width="10">', 256),
        ('{"layout": {"height": 700}}', 716),
        (f"{LIBRARY.replace('x = 1', 'height: 1000px')}<p style='height: 200px'>", 216),
        ("<p>nothing said", 450),
        ("<p style='height: 5px; max-height: 9999px'>", 450),
    ],
)
def test_a_frame_is_as_high_as_its_page_says(text, height):
    assert frames.declared_height(text) == height
    assert f"height:{height}px" in frames.framed(text)


def test_a_program_is_given_its_element_and_can_not_end_its_script():
    page = frames.page_of({"application/javascript": "element.innerHTML = '</script><p>out'"})
    assert page.count("</script>") == 2
    hidden = frames.page_of({"application/javascript": "'<\x00/script><p>'"})
    assert hidden.count("</script>") == 2
    assert '<div id="element"></div>' in page


LONG = [
    "<script ",
    "<script>",
    "<iframe srcdoc=",
    "<a ",
    "height: ",
    "height:\t",
    " onclick",
    "<b on=",
]


def test_looking_takes_no_time_to_speak_of():
    for piece in LONG:
        text = piece * (1_000_000 // len(piece))
        spaced = piece + " " * 1_000_000
        start = time.process_time()
        for hostile in (text, spaced, f"<canvas>{text}", f"<canvas>{spaced}"):
            if frames.is_active(hostile):
                frames.framed(hostile)
        assert time.process_time() - start < 2, piece


STYLES = """
<link href='https://fonts.example/css' rel='stylesheet'>
<style>div.text_cell_render { font-family: Arvo; }</style>
<script>MathJax.Hub.Config({TeX: {extensions: ["AMSmath.js"]}});</script>
"""


@pytest.mark.parametrize(
    ("html", "is_shown"),
    [
        (STYLES, False),
        (f"{STYLES}<!-- letters -->", False),
        (f"{STYLES}text", True),
        (f"{STYLES}<div></div>", True),
        (STYLES.replace("MathJax.Hub", "document"), True),
        ("<style></style><script>1</script>", True),
    ],
)
def test_html_that_only_sets_how_letters_and_formulas_look_has_no_frame(html, is_shown):
    assert (frames.page_of({"text/html": html}) is not None) is is_shown
