import time

import pytest

from cellblock.host.output import markup
from cellblock.host.output.markup import DRAWING


@pytest.mark.parametrize(
    "text",
    [
        "color: red",
        "background: linear-gradient(90deg, transparent 50.0%, rgba(1,2,3,.5) 50.0%)",
        "font: 10px 'DejaVu Sans', sans-serif",
        "width: 10em; --own: var(--other, #fff); color: RED !important",
        "border: 9999px",
        "border: #123456",
        "border: #1e9abc",
        "border: 0.123456em",
    ],
)
def test_looks_stay(text):
    assert markup.declarations(text) == text


DROPPED = [
    "background: url(//e)",
    "background: URL('//e')",
    "background: u\\72l(//e)",
    "background: u/**/rl(//e)",
    "background: image-set('//e' 1x)",
    "background: image(//e)",
    "background: cross-fade(url(//e))",
    "background: src(//e)",
    "--x: url(//e)",
    "background-image: var(--x)",
    "color: attr(x)",
    "width: expression(alert(1))",
    "behavior: x",
    "-moz-binding: x",
    "position: fixed",
    "z-index: 9",
    "content: 'x'",
    "transform: scale(9)",
    "margin: -5px",
    "margin-top: -.99in",
    "margin: 0 0 -9e1px",
    "margin: 0-900px",  # two lengths, to a tokenizer
    "margin: .5-900px",
    "margin: 0-0-900px",
    "margin: 1e1-900px",
    "margin-top: /**/-9px",
    "margin-top: -\\39 9px",
    "--x: -9px",
    "margin-block-start: -9px",
    "margin-left: calc(0px - 900px)",
    "animation: x 1s",
    "cursor: x",
    "color: 'red",
    "color: rgb(1,2",
    "color: red}",
    "color: red</style>",
    "color: red<!--",
    "color: red@import",
    "height: 99999px",
    "height: 1e9px",
    "height: .1e9em",
    "height: 1.5E+8px",
    "height: 9 12345px",
    "color\\: red",
    "co\\lor: red",
    "",
]


def test_a_hyphen_within_a_name_is_no_sign():
    for text in ("color: var(--jp-blue-500)", "font-family: Noto-3, a1-9"):
        assert markup.declarations(text) == text


def test_what_loads_covers_or_hides_what_follows_is_dropped():
    for text in DROPPED:
        assert markup.declarations(text) == "", text


def test_a_drawing_refers_to_its_own_parts_only():
    assert markup.declarations("fill: url(#a); stroke: url('//e#a')", DRAWING) == "fill: url(#cb-a)"


SHEETS = [
    ("a, b > c { color: red }", "#s a, #s b > c {color: red}"),
    (".x:nth-child(2n + 1):hover {color:red}", "#s .x:nth-child(2n + 1):hover {color: red}"),
    ("details[open] > summary {color:red}", "#s details[open] > summary {color: red}"),
    ("#a {color:red} #T_b {color:red}", "#s #cb-a {color: red}\n#s #T_b {color: red}"),
    ("/* x */ a {color:red} /* b {color:red}", "#s a {color: red}"),
    ("@media print { a {color:red} } b {color:red}", "#s b {color: red}"),
    ("@import '//e'; a {color:red}", "#s a {color: red}"),
    ("@font-face {src: url(//e)} a {color:red}", "#s a {color: red}"),
    ("a {color:red; b {color: blue}} c {color:red}", "#s a {color: red}\n#s c {color: red}"),
    ("a[href^='x'] {color:red}", ""),
    ("a:has(b), a:is(b), a:not(b), :root:visited, a::before {color:red}", ""),
    (".jp-Dialog {color:red} td .lm-Menu {color:red}", ""),
    ("a\\62 {color:red}", ""),
    ("+ a {color:red} ~ a {color:red} > a {color:red}", ""),
    ("a {position:fixed}", ""),
    ("a {color:red", "#s a {color: red}"),
    ("a } b {color:red}", "#s b {color: red}"),
    ("<!-- a {color:red} -->", ""),
]


def test_a_sheet_is_rules_below_its_scope():
    for text, rules in SHEETS:
        assert markup.sheet(text, "s") == rules, (text, rules)


LONG = [
    "a",
    "{",
    "}",
    "a{",
    "a,",
    "/*",
    "a{b:",
    "a{color:rgb(",
    "var(",
    "a:hover ",
    "'",
    ";",
    "((",
    ".1",
]


def test_no_style_takes_more_than_linear_time():
    for piece in LONG:
        text = piece * (100_000 // len(piece))
        start = time.process_time()
        markup.sheet(text, "s")
        markup.declarations(f"color: {text}")
        markup.declarations(f"width: {text}")
        markup.sheet(f"a {{color: {text}}}", "s")
        assert time.process_time() - start < 1, piece
