"""Names and addresses in markup: ids, classes, references, link targets. Pure functions."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

_ID: Final = re.compile(r"[A-Za-z_][\w:.-]{0,199}", re.ASCII)
#: pandas' Styler names its tables so, and people's scripts look for it; no page uses it.
_STYLER: Final = "T_"
_PREFIX: Final = "cb-"

#: First parts of class names with which a front end's own style sheets draw over the page
#: (dialogs, menus, toasts, editors). From JupyterLab 4.6, Notebook 7 and nbconvert 7 sheets.
_FOREIGN: Final = frozenset(
    [
        "CodeMirror",
        "MathJax",
        "Toastify",
        "actionbar",
        "affix",
        "bp3",
        "bp4",
        "bp5",
        "btn",
        "carousel",
        "cm",
        "completions",
        "debug",
        "dropdown",
        "edit",
        "embed",
        "fa",
        "fade",
        "fileinput",
        "filter",
        "fixed",
        "glyphicon",
        "icon",
        "ipython",
        "jp",
        "jupyter",
        "jupyterlab",
        "lm",
        "mathjax",
        "media",
        "mermaid",
        "mjx",
        "modal",
        "monaco",
        "navbar",
        "overlay",
        "p",
        "pagination",
        "popover",
        "positioning",
        "react",
        "select",
        "sticky",
        "tooltip",
        "toast",
        "ui",
        "vega",
        "vscode",
        "widget",
        "xterm",
    ]
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
    """Tell whether a class name is none of the front end's."""
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
