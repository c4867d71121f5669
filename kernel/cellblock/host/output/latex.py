r"""TeX for MathJax and for PDF export: commands that link, load, style the page or write files.

TeX can be told nothing by allowlist (its commands are without number), so those that reach out
of a formula are spelled out where they stand instead: ``\href{…}`` is shown as text.
"""

from __future__ import annotations

import re
from typing import Final

#: MathJax: links, the page's ids, classes, styles and attributes, code to load.
_PAGE: Final = "href|url|cssId|class|style|data|require|includegraphics|mmlToken|bbox"
#: TeX engines: files, processes, and whatever could spell a command's name another way.
_ENGINE: Final = (
    "input|include|includeonly|InputIfFileExists|openin|openout|read|readline|write|immediate|"
    "special|catcode|csname|directlua|luaexec|latelua|ShellEscape|lstinputlisting|"
    "verbatiminput|VerbatimInput|inputminted|pdffiledump|pdfobj|pdfximage|XeTeXpicfile|"
    "XeTeXpdffile|pdfliteral|hyperref|hyperlink|path|nolinkurl|hyperimage|graphicspath|"
    "usepackage|RequirePackage|documentclass|scantokens|everyeof|pgfimage|movie|media"
)
_COMMAND: Final = re.compile(rf"\\({_PAGE}|{_ENGINE})(?![A-Za-z])")
_PAGE_COMMAND: Final = re.compile(rf"\\(?=(?:{_PAGE})(?![A-Za-z]))")
#: ``^^5c`` is a backslash to TeX; ``<b`` would open a tag where TeX is put into a page.
_CARETS: Final = re.compile(r"\^(?=\^)")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
#: A backslash or a letter to a page that takes TeX for its own text.
_SPELLED: Final = re.compile(r"&(?=#|bsol|Backslash)")
#: Where MathJax looks for formulas in other text; an entity is a dollar sign by then.
_FORMULA: Final = re.compile(r"\$|\\[(\[]|\\begin|&(?:#0*36|#[xX]0*24|dollar)(?!\w)")
#: Invisible, and no part of a word, a tag's name or a command's.
JOINER: Final = "\u2060"


def clean(text: str) -> str:
    """Return TeX in which no command reaches out of what it sets."""
    text = _COMMAND.sub(r"\\text{\1}", _SPELLED.sub("& ", text) if "&" in text else text)
    return _TAG.sub("< ", _CARETS.sub("^ ", text))


def clean_formulas(text: str) -> str:
    """Return a page's text in which MathJax finds no command that reaches out of a formula."""
    if "\\" not in text or not _FORMULA.search(text):
        return text
    return _PAGE_COMMAND.sub("\\\\" + JOINER, text)
