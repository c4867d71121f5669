"""Outputs in notebooks that nbconvert exports: nothing of them is a program to what reads the export.

What the gateway lets pass is put into a notebook without a kernel. Each is exported as it came,
too: then it acts.
"""

import re
import shutil
from functools import lru_cache

import nbconvert
import nbformat
import pytest

from cellblock.host.output import gateway

needs_pandoc = pytest.mark.skipif(shutil.which("pandoc") is None, reason="pandoc is not installed")
#: What a TeX engine reads, writes or defines by.
TEX = re.compile(
    r"\\(?:@*input|file_input:n|openin|write|newcommand|catcode|makeatletter|ExplSyntaxOn)(?![A-Za-z])"
    r"|\\begin\s*\{(?:filecontents\*?|input)\}|\^\^5c"
)
#: A directive of reStructuredText or markup of a page, at the left edge of what is a line to some.
DIRECTIVE = re.compile(r"\.\. (?:include|raw)::|<script|\\input")
LATEX = [
    r"\makeatletter\@@input /etc/passwd \makeatother",
    r"\ExplSyntaxOn\file_input:n{/etc/passwd}\ExplSyntaxOff",
    "\\begin{filecontents*}[overwrite]{latexmkrc}\nsystem('id');\n\\end{filecontents*}",
    r"\begin{input}/etc/passwd\end{input}",
    r"\newcommand{\x}{\input}\x{/etc/passwd}",
    r"\input{/etc/passwd} \openin5=x \catcode`\%=12",
]
MARKDOWN = [
    "text \\input{/etc/passwd} more",
    "a\n\n\\begin{filecontents*}[overwrite]{latexmkrc}\nsystem('id');\n\\end{filecontents*}\n",
    "$\\input{/etc/passwd}$ and \\\\(\\input{x}\\\\)",
    "`\\input{/etc/passwd}`{=latex}",
    "``` { =latex}\n\\input{/etc/passwd}\n```",
    "$x^^5cinput{/etc/passwd}$ and \\textbf{^^5cinput{/etc/passwd}}",
    # what looks like code, and is none to pandoc
    '[a](u "`x") \\input{/etc/passwd} `',
    "+---+---+\n| a | b |\n+===+===+\n| `x| \\input{/etc/passwd}` |\n+---+---+\n",
    "~~~\n\n```\n\n~~~\n\n\\input{/etc/passwd}\n\n```\n",
    "    `x\n\n\\input{/etc/passwd} `\n",
    "  ```\n\n```\n\\input{/etc/passwd}\n```\n",
    "```\n\\input{/etc/passwd}\n```{=latex}",
]
RAW = ["``` {=rst}\n.. include:: /etc/passwd\n```", "a\n\n`.. include:: /etc/passwd`{=rst}"]
LINES = [
    "42\r\r<script>alert(1)</script>\r\r",
    "42\u2028\u2028.. include:: /etc/passwd\u2029",
    "42\x85.. raw:: html\x0b\x0c<script>",
]


@lru_cache
def exporter_of(form):
    exporter = nbconvert.get_exporter(form)()
    exporter.exclude_input = True
    return exporter


def exported(data, form):
    """Return what an exporter makes of one display, without what its template puts before it."""
    output = nbformat.v4.new_output("display_data", data=data)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])
    body = exporter_of(form).from_notebook_node(notebook)[0]
    return body.partition("\\maketitle")[2] or body


def both(mime, text, form):
    """Return the export of a text as the gateway lets it pass, and as it came."""
    return (
        exported(gateway.sanitized({mime: text}), form),
        exported({mime: text}, form),
    )


@pytest.mark.parametrize("text", LATEX)
def test_a_formula_is_no_program_to_tex(text):
    cleaned, raw = both("text/latex", text, "latex")
    assert TEX.findall(raw) != []
    assert TEX.findall(cleaned) == []


@needs_pandoc
@pytest.mark.parametrize("text", MARKDOWN)
def test_markdown_is_no_program_to_tex(text):
    cleaned, raw = both("text/markdown", text, "latex")
    assert TEX.findall(raw) != []
    assert TEX.findall(cleaned) == []


def outside_of_code(body):
    return re.sub(r"\\begin\{verbatim\}.*?\\end\{verbatim\}", "", body, flags=re.DOTALL)


@needs_pandoc
def test_code_in_markdown_does_not_end_the_environment_that_it_is_put_into():
    code = "```\n\\end{verbatim}\\input{/etc/passwd}\n```\n"
    cleaned, raw = both("text/markdown", code, "latex")
    assert cleaned == raw  # pandoc itself sees to it
    assert TEX.findall(outside_of_code(cleaned)) == []
    assert "/etc/passwd" in cleaned


def at_the_edge(body):
    """Return the directives at the left edge, by the widest notion of a line that there is."""
    return list(filter(DIRECTIVE.match, body.splitlines()))


@needs_pandoc
@pytest.mark.parametrize("text", RAW)
def test_code_in_markdown_is_no_part_of_a_restructured_text(text):
    cleaned, raw = both("text/markdown", text, "rst")
    assert at_the_edge(raw) != []
    assert at_the_edge(cleaned) == []


@pytest.mark.parametrize("form", ["rst", "markdown"])
@pytest.mark.parametrize("text", LINES)
def test_a_text_stays_in_its_block_of_code(text, form):
    cleaned, raw = both("text/plain", text, form)
    assert at_the_edge(raw) != []
    assert at_the_edge(cleaned) == []
    assert "42" in cleaned


def test_a_formula_stays_in_its_block():
    cleaned, raw = both("text/latex", "$x$\r.. include:: /etc/passwd\u2028.. raw:: html", "rst")
    assert len(at_the_edge(raw)) == 2
    assert at_the_edge(cleaned) == []
