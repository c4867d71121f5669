import inspect
import re

import pytest

from cellblock.host.output import tex
from cellblock.host.output.markup import JOINER


@pytest.mark.parametrize(
    "text",
    [
        r"$\displaystyle \frac{x^{2}}{\sqrt{y_1}} \leq \infty$",
        r"$\begin{matrix}1 & 2\\3 & 4\end{matrix}$",
        r"$a < b < 3$",
        r"$\begin{matrix}a\\b\\x\end{matrix}$",
        r"$\mathrm{url} \left\{\begin{array}{l}x\end {array}\right.$",
        r"\begin{tabular}{lr}\toprule a & b \\\midrule \multicolumn{2}{c}{\textbf{c}} \\\bottomrule\end{tabular}",
        "an \\'e and 5\\% of C:\\x",
    ],
)
def test_formulas_stay_as_they_are(text):
    assert tex.clean(text) == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (r"$\href{javascript:alert(1)}{x}$", r"$\text{href}{javascript:alert(1)}{x}$"),
        (r"\url {https://e.invalid}", r"\text{url} {https://e.invalid}"),
        (
            r"\cssId{main}{x}\class{jp-Dialog}{y}",
            r"\text{cssId}{main}{x}\text{class}{jp-Dialog}{y}",
        ),
        (r"\style{background:url(//e)}{x}", r"\text{style}{background:url(//e)}{x}"),
        (r"\mmlToken{mi}[href='javascript:1']{x}", r"\text{mmlToken}{mi}[href='javascript:1']{x}"),
        (
            r"\require{html}\includegraphics{//e}",
            r"\text{require}{html}\text{includegraphics}{//e}",
        ),
        (r"\let\x\href \x{javascript:1}{y}", r"\text{let}\x\text{href} \x{javascript:1}{y}"),
        (r"\\href{x}{y}", r"\\ href{x}{y}"),
        (r"\\\href{x}{y}", r"\\\text{href}{x}{y}"),
        (r"1\\xy", r"1\\ xy"),
        (
            r"\input{/etc/passwd}\immediate\write18{id}",
            r"\text{input}{/etc/passwd}\text{immediate}\text{write}18{id}",
        ),
        (r"\csname href\endcsname", r"\text{csname} href\text{endcsname}"),
        (
            r"\makeatletter\@@input /etc/passwd",
            r"\text{makeatletter}\text{@@input} /etc/passwd",
        ),
        (
            r"\ExplSyntaxOn\file_input:n{/etc/passwd}",
            r"\text{ExplSyntaxOn}\text{file}_input:n{/etc/passwd}",
        ),
        (
            r"\begin{filecontents*}[overwrite]{latexmkrc}",
            r"\text{begin}{filecontents*}[overwrite]{latexmkrc}",
        ),
        (r"\begin {input}/etc/passwd", r"\text{begin} {input}/etc/passwd"),
        ("\\begin%\n{input}", "\\text{begin}%\n{input}"),
        (r"\begin\end{verbatim}", r"\text{begin}\text{end}{verbatim}"),
        (r"\verb\x\\input{x}", r"\text{verb}\x\\ input{x}"),
        (r"\def\x{}\newcommand{\y}{}", r"\text{def}\x{}\text{newcommand}{\y}{}"),
        (r"\a{input}", r"\text{a}{input}"),
        ("^^5cinput{x}", "^ ^5cinput{x}"),
        ("&#92;input{x}", "& #92;input{x}"),
        ("&bsol;input{x}", "& bsol;input{x}"),
        ("^^^^5c", "^ ^ ^ ^5c"),
        ("$a<b$ <script>", "$a< b$ < script>"),
    ],
)
def test_what_reaches_out_of_a_formula_is_spelled_out(text, result):
    assert tex.clean(text) == result


def test_text_without_formulas_keeps_its_backslashes():
    assert tex.clean_formulas(r"C:\data\style") == r"C:\data\style"


def test_tables_are_sorted_and_have_each_entry_once():
    source = inspect.getsource(tex)
    for block in re.findall(r"= words\(\n(.*?)\n\)", source, re.DOTALL):
        families = re.split(r"    # .*", block)[1:]
        entries = [re.findall(r"[A-Za-z]+\*?", family) for family in families]
        assert all(family == sorted(family) for family in entries)
        flat = [entry for family in entries for entry in family]
        assert len(flat) == len(set(flat)) > 70


@pytest.mark.parametrize(
    "name",
    ["bbox", "cssId", "data", "def", "href", "let", "newcommand", "require", "unicode", "verb"],
)
def test_what_mathjax_knows_and_what_reaches_further_is_not_in_the_table(name):
    assert name not in tex.COMMANDS
    assert "frac" in tex.COMMANDS


CODE = r"""Open `C:\Users\me`, then:

```python
re.match(r"\begin\d+", "a\nb")
   ^^^^^
```

- a step
"""


def test_code_in_markdown_keeps_its_backslashes_for_whoever_copies_it():
    assert tex.clean_markdown(CODE) == CODE


@pytest.mark.parametrize(
    "around",
    [
        "a $b$", "a \\b", "<i>", "[a](b)", "[a][b]", "[a]: b", "[^a]", "[@a]", "^[a]", "# a {b}",
        "::: a", "~~~", "  ```", "--- ---", "-----", "``a``", "`", "`a|b`",
    ],
)  # fmt: skip
def test_code_is_not_trusted_to_be_code_beside_what_readers_divide_in_other_ways(around):
    for text in (f"{around}\n\n{CODE}", f"{CODE}\n{around}\n"):
        cleaned = tex.clean_markdown(text)
        assert cleaned.replace(JOINER, "") == text
        assert not re.search(r"\\(?:begin|Users|me)", cleaned)
