import time

import pytest

from cellblock.host.output import html
from cellblock.host.output.text import RefusedError

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def shown(text):
    """Return sanitised Markdown with its word joiners made visible."""
    return html.clean_markdown(text).replace("\u2060", "·")


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n*a* **b** `c`\n\n1. x\n2. y\n",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "[docs](https://example.org/a_(b)?c=d#e) <https://example.org/x> <mailto:a@b.org>",
        "[here](#part) [ref]\n\n[ref]: https://example.org 'title'",
        "a < b, a<=b and 1<2",
        "$\\frac{a}{b}$ and $$\\int_0^1 x\\,dx$$",
        f"![plot]({PIXEL})",
        "<b>x</b><br>\n<details><summary>s</summary>\n\ntext</details>",
        "```cpp\n#include <vector>\nstd::map<String, Any> m;\n```",
        "costs $5 or $6, see [prices](https://e.org/a?b=1&c=2)",
        "$a$ [x](https://e.org/a_(b) 'a title') and [y](data.csv) $b$",
        "a `$x` [x](https://e.org) \n\n$\\alpha$",
        '[1]: https://e.org "title"\n\n$a$',
        '```python title="a"\nx\n```\n$a$',
        "```{r, echo=FALSE}\nx\n```",
        "``` `$a` ```",
        "caf&eacute; &lt;b&gt; &amp; &#8364; &nbsp; Q&A a&b=1",
        "mail@e.org @@ @a",
        "```python\nif x[i]:\n    return handlers[0](data)\nz: dict[str, int] = {}\n```",
    ],
)
def test_ordinary_markdown_is_left_alone(text):
    assert html.clean_markdown(text) == text


def test_what_would_hold_up_the_page_is_refused():
    with pytest.raises(RefusedError, match="too much markup"):
        html.clean_markdown("*a _b " * 200_000)
    assert html.clean_markdown("plain words, " * 200_000)


BROKEN = [
    ("<img src=x onerror=alert(1)>", "<·img src=x onerror=alert(1)>"),
    ("`<script>`", "`<·script>`"),
    ("```\n<script>\n```", "```\n<·script>\n```"),
    ("$x\n```\n$<img onerror=x>", "$x\n```\n$<·img onerror=x>"),
    ("<b onclick='x' style='color: red'>y</b>", '<b style="color: red">y</b>'),
    ("<b\nonclick=x>y", "<·b\nonclick=x>y"),
    ("<a href='javascript&colon;alert(1)'>x</a>", "<a>x</a>"),
    ("<a href=javascript:alert(1)>x</a>", "<·a href=javascript·:alert(1)>x</a>"),
    ("<div class='jp-Dialog x'>", '<div class="x">'),
    ("<p id='jupyter-config-data'>", '<p id="cb-jupyter-config-data">'),
    ("<x onmouseover=alert(1)>", "<·x onmouseover=alert(1)>"),
    ("<Vector onmouseover=alert(1)>", "<·Vector onmouseover=alert(1)>"),
    (
        "<!-- x --> <?x?> <![CDATA[x]]> </script>",
        "<·!-- x --> <·?x?> <·!·[CDATA[x]]> <·/script>",
    ),
    ("<foreignObject> <SVG> <style>", "<·foreignObject> <·SVG> <·style>"),
    ("<javascript:alert(1)> <javascript:1>", "<·javascript:alert(1)> <·javascript:1>"),
    ("<http://x/onmouseover=alert(1)//>", "<·http://x/onmouseover=alert(1)//>"),
    ("[x](javascript:alert(1))", "[x]·(javascript:alert(1))"),
    ("[x]( \n <JAVASCRIPT:alert(1)>)", "[x]·( \n <·JAVASCRIPT:alert(1)>)"),
    ("[x](&#106;avascript:alert(1))", "[x]·(&·#106;avascript:alert(1))"),
    ("[x](javascript\\:alert(1))", "[x]·(javascript\\:alert(1))"),
    ("[x](\x01javascript:alert(1))", "[x]·(\x01javascript:alert(1))"),
    ("[x](data:text/html,x)", "[x]·(data:text/html,x)"),
    ("[x](vbscript:x)", "[x]·(vbscript:x)"),
    ("[x](/hub/logout)", "[x]·(/hub/logout)"),
    ("[x](../hub/logout)", "[x]·(../hub/logout)"),
    ("[x](lab?reset)", "[x]·(lab?reset)"),
    ("[x]( ?reset)", "[x]·( ?reset)"),
    ("[x](//e.org/x)", "[x]·(//e.org/x)"),
    ("[x][r]\n\n[r]: /hub/logout", "[x][r]\n\n[r]·: /hub/logout"),
    ("[x]: javascript:alert(1)", "[x]·: javascript:alert(1)"),
    ("> [x]:\n> javascript:alert(1)", "> [x]·:\n> javascript:alert(1)"),
    ("[x](https&colon;//e)", "[x]·(https&colon;//e)"),
    ("![p](https://e.invalid/p.png)", "!·[p](https://e.invalid/p.png)"),
    ("![p][r]\n\n[r]: https://e.invalid/p", "!·[p][r]\n\n[r]: https://e.invalid/p"),
    ("![p](data:image/svg+xml;base64,AA)", "!·[p]·(data:image/svg+xml;base64,AA)"),
    ("[![a](//e/p.png)](https://e)", "[!·[a]·(//e/p.png)](https://e)"),
    ("$\\href{javascript:alert(1)}{x}$", "$\\·href{javascript:alert(1)}{x}$"),
    ("$$\\class{jp-Dialog}{x}$$", "$$\\·class{jp-Dialog}{x}$$"),
    ("&#36;\\href{x}{y}&#36;", "&#36;\\·href{x}{y}&#36;"),
    ("&dollar;&bsol;href{x}{y}&dollar;", "&dollar;&·bsol;href{x}{y}&dollar;"),
    ("&#x24;\\hr&#x65;f{x}{y}&#x24;", "&#x24;\\·hr&·#x65;f{x}{y}&#x24;"),
    ("```mermaid\nA@{ img: 'https://e' }\n```", "```text\nA@{ img: 'https://e' }\n```"),
    ("~~~ &#109;ermaid\nx\n~~~", "~~~ text\nx\n~~~"),
    ("a \\input{/etc/passwd} b", "a \\·input{/etc/passwd} b"),
    (
        "\\begin{filecontents*}{x}\ny\n\\end{filecontents*}",
        "\\·begin{filecontents*}{x}\ny\n\\·end{filecontents*}",
    ),
    ("`.. include:: x`{=rst}", "`.. include:: x`{·=rst}"),
    ("``` { =latex}\nx\n```", "``` {· =latex}\nx\n```"),
    ("~~~{=asciidoc}\nx\n~~~", "~~~{·=asciidoc}\nx\n~~~"),
    (
        '<b style="color: red; padding: 9em; font: 90px/0 serif">x</b>',
        '<b style="color: red">x</b>',
    ),
    ('<div style="height: 0; overflow: visible">x</div>', "<div>x</div>"),
]


def test_what_some_parser_could_make_act_is_broken():
    for text, result in BROKEN:
        assert shown(text) == result, (text, result)


LONG = [
    *("<", "<a ", "<a b='", "[x](", "![", "![a](data:image/png;base64,", "](", "]:", "`", "~~~"),
    *("\\", "<a.b, ", "<https://", "```x", ":::", "] \n>"),
]


def test_no_markdown_takes_more_than_linear_time():
    for piece in LONG:
        marks = sum(map(piece.count, "*_~`[]"))
        text = piece * (25_000 // marks if marks else 200_000 // len(piece))
        start = time.process_time()
        html.clean_markdown(text)
        assert time.process_time() - start < 1.5, piece
    text = "](https://" * 50_000 + "$" + "&#36;" * 50_000 + "www." * 100_000
    start = time.process_time()
    html.clean_markdown(text)
    assert time.process_time() - start < 2


# --- formulas: taken out before parsing, put back after it with their quotes ------------------

HANDLER = '$" onmouseover="alert(1)" x="$'


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (f"[x](https://e.org '{HANDLER}')", f"[x]·(https://e.org '{HANDLER}')"),
        (f"[x](https://e.org/{HANDLER})", f"[x]·(https:·//e.org/{HANDLER})"),
        (f"[x](y/{HANDLER})", f"[x]·(y/{HANDLER})"),
        (f"[x]: https://e.org\n '{HANDLER}'", f"[x]·: https://e.org\n '{HANDLER}'"),
        ("[x](https://e.org '\\\\(\"\\\\)')", "[x]·(https://e.org '\\\\(\"\\\\)')"),
        ("[x](https://e.org '\\@\\@0\\@\\@')", "[x]·(https://e.org '\\@\\@0\\@\\@')"),
        ("[x](https://e.org '@@0@@')", "[x](https://e.org '@·@0@@')"),
        ('https://e.org/$"a"$', 'https:·//e.org/$"a"$'),
        ('www.e.org/$"a"$', 'www·.e.org/$"a"$'),
        ('```$"a"$\nx\n```', "```text\nx\n```"),
        ('~~~ `$"a"$\nx\n~~~', "~~~ text\nx\n~~~"),
        ('<b title="@@0@@">x</b>', "<b>x</b>"),
        ("![@**@**0@@](data:image/png;base64,AAAA)", "!·[@**@**0@@]·(data:image/png;base64,AAAA)"),
    ],
)
def test_no_formula_gets_into_an_attribute(text, result):
    assert shown(text) == result
