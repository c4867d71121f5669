import pytest

from cellblock.host.output import markup


@pytest.mark.parametrize(
    "text",
    [
        r"$\displaystyle \frac{x^{2}}{\sqrt{y_1}} \leq \infty$",
        r"$\begin{matrix}1 & 2\\3 & 4\end{matrix}$",
        r"$a < b < 3$",
        r"$\mathrm{url} \urldate \hrefs \stylesheet$",
    ],
)
def test_formulas_stay_as_they_are(text):
    assert markup.clean(text) == text


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
        (r"\let\x\href \x{javascript:1}{y}", r"\let\x\text{href} \x{javascript:1}{y}"),
        (r"\\href{x}{y}", r"\\text{href}{x}{y}"),
        (
            r"\input{/etc/passwd}\immediate\write18{id}",
            r"\text{input}{/etc/passwd}\text{immediate}\text{write}18{id}",
        ),
        (r"\csname href\endcsname", r"\text{csname} href\endcsname"),
        ("^^5cinput{x}", "^ ^5cinput{x}"),
        ("^^^^5c", "^ ^ ^ ^5c"),
        ("$a<b$ <script>", "$a< b$ < script>"),
    ],
)
def test_what_reaches_out_of_a_formula_is_spelled_out(text, result):
    assert markup.clean(text) == result


def test_text_without_formulas_keeps_its_backslashes():
    assert markup.clean_formulas(r"C:\data\style") == r"C:\data\style"
