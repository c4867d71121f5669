"""Names and addresses in markup: ids, classes, references, link targets. Pure functions."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final


def words(*families: str) -> frozenset[str]:
    """Return an allowlist that is written as a table: each line names a family, blanks between."""
    return frozenset(" ".join(families).split())


_ID: Final = re.compile(r"[A-Za-z_][\w:.-]{0,199}", re.ASCII)
#: pandas' Styler names its tables so, and people's scripts look for it; no page uses it.
_STYLER: Final = "T_"
_PREFIX: Final = "cb-"

#: First parts of class names with which a front end's own style sheets draw over the page. From
#: JupyterLab 4.6, Notebook 7 and nbconvert 7 sheets.
_FOREIGN: Final = words(
    "CodeMirror cm monaco xterm",  # editors, terminals
    "MathJax mathjax mermaid mjx vega",  # libraries that draw
    "Toastify affix fade fixed modal overlay popover sticky toast tooltip",  # on top of the page
    "actionbar btn carousel dropdown fileinput media navbar pagination",  # Bootstrap's parts
    "bp3 bp4 bp5 lm p react ui",  # toolkits: Blueprint, Lumino, React, jQuery UI
    "completions debug edit embed filter positioning select",  # parts of JupyterLab
    "fa glyphicon icon",  # fonts of icons
    "ipython jp jupyter jupyterlab vscode widget",  # the front ends themselves
    "cb",  # our extension of JupyterLab
)
_FIRST: Final = re.compile(r"[A-Za-z0-9]+")

#: Leading away needs a click, and these schemes only lead away.
_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\x00-\x20<>\"'`\\\x7f-\x9f]*+", re.IGNORECASE)
_RASTER: Final = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=\s]*+")


def scope(text: str) -> str:
    """Return an id for the whole of one output, unlike any that ``safe_id`` gives."""
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"cellblock-{digest}"


def safe_id(value: str) -> str | None:
    """Return the id that stands for ``value``, the same for a definition and its references.

    Ids are made unlike any of the page's own, which scripts look up by name (CVE-2024-43805).
    """
    if not _ID.fullmatch(value):
        return None
    return value if value.startswith(_STYLER) else _PREFIX + value


@lru_cache(maxsize=512)
def safe_classes(value: str) -> str | None:
    """Return the class names of ``value`` that mean nothing to the page's own style sheets."""
    return " ".join(name for name in value.split() if is_own_class(name)) or None


def is_own_class(name: str) -> bool:
    """Return whether a class name is none of the front end's."""
    first = _FIRST.match(name)
    return first is None or first[0] not in _FOREIGN


def local_reference(value: str) -> str | None:
    """Return ``#id`` within this same output, with the id that ``safe_id`` gives it."""
    target = safe_id(value[1:]) if value.startswith("#") else None
    return f"#{target}" if target else None


def link(value: str) -> str | None:
    """Return a link's target if it is http, https, mailto or within the output."""
    value = value.strip()
    if value == "#":
        return value
    return value if _LINK.fullmatch(value) else local_reference(value)


def raster(value: str) -> str | None:
    """Return an image's source if it is a PNG, JPEG, GIF or WebP carried in place."""
    return value if _RASTER.fullmatch(value.strip()) else None


# TeX for MathJax and for PDF export: commands that link, load, style the page or write files.
#
# TeX can be told nothing by allowlist (its commands are without number), so those that reach out
# of a formula are spelled out where they stand instead: ``\href{…}`` is shown as text.

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
