import pytest

from cellblock.host.output import html


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a<b>c</b>d", "a<b>c</b>d"),
        ("<b><i>x</b></i>", "<b><i>x</i></b>"),
        ("<li>a<li>b", "<li>a</li><li>b"),
        ("<tr><td>a<td>b<tr><td>c", "<tr><td>a</td><td>b</td></tr><tr><td>c"),
        ("<div><table><td></div>x</td></table>", "<div><table><td>x</td></table>"),
        ("</b>x</p>", "x"),
        ("<br></br><img>", "<br><img>"),
        ("<a x=1 y='<b>' z>t</a>", "<a x=1 y='<b>' z>t</a>"),
        ('<a x"y>z">', '&lt;a x"y>z">'),
        ("1<2 <3 <", "1&lt;2 &lt;3 &lt;"),
    ],
)
def test_tags_are_paired_as_a_browser_would(text, result):
    assert html.regular(text)[0] == result


def test_nesting_is_bounded_whatever_hides_the_end_tags():
    for piece in ("<div>", "<div x='</div>'>", "<div><b></div>", "<p><table><td></p>"):
        depth = deepest = 0
        for tag in html._TAG.finditer(html.regular(piece * 5_000)[0]):
            depth += -1 if tag[1] else 1
            deepest = max(deepest, depth)
        assert deepest <= 128


@pytest.mark.parametrize(
    ("text", "rest", "cut"),
    [
        ("a<!-- <script> -->b", "ab", []),
        ("a<!-->b<!-- c", "ab", []),
        ("a<script>x<b></script >c", "ac", ["script"]),
        ("a<STYLE>x</style>c<style>d", "ac", ["style", "style"]),
        ("<svg><svg/><svg></svg></svg>x<svg a/>y", "xy", ["svg", "svg"]),
        ("<scripted>x", "<scripted>x", []),
        ("<title>a</title", "", ["title"]),
    ],
)
def test_what_is_no_markup_is_cut_out(text, rest, cut):
    names = []

    def taken(name, _source):
        names.append(name)
        return ""

    assert html.cut_opaque(text, taken) == rest
    assert names == cut
