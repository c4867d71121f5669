"""HTML for cards: escaped by construction, inline styles, the front end's own colours.

Style elements leak into the page and are dropped by sanitisers, so every style is inline.
Colours are JupyterLab's variables, then VS Code's, then a value that reads on light and dark.
Signal colours are mixed with the text's own: as they come, JupyterLab's red is too dark on a dark
page and its orange too light on a light one (WCAG 2.2 asks 4.5:1 for text, 3:1 for symbols).
Headings are ``role=heading``: real ones would fill the notebook's table of contents.
"""

from __future__ import annotations

from typing import Final

from cellblock.render.text import visible

_ROW: Final = (
    "display:flex;flex-wrap:wrap;justify-content:space-between;align-items:center;gap:4px 12px"
)


class Html(str):
    """Markup that is safe to show; only ``element`` and ``escape`` make it."""

    __slots__ = ()


_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;", "`": "&#x60;"}
)

TEXT: Final = "var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
MUTED: Final = "color-mix(in srgb,currentColor 78%,transparent)"
SURFACE: Final = "var(--jp-layout-color1,transparent)"
SHADE: Final = (
    "var(--jp-layout-color2,var(--vscode-textCodeBlock-background,rgba(127,127,127,.12)))"
)
LINE: Final = "var(--jp-border-color2,var(--vscode-panel-border,rgba(127,127,127,.4)))"
_ERROR: Final = "--jp-error-color1,var(--vscode-errorForeground,#d9403c)"
_WARNING: Final = "--jp-warn-color1,var(--vscode-editorWarning-foreground,#b57c00)"
_SUCCESS: Final = "--jp-success-color1,var(--vscode-testing-iconPassed,#2e8540)"
RED: Final = f"color-mix(in srgb,var({_ERROR}) 75%,currentColor)"
AMBER: Final = f"color-mix(in srgb,var({_WARNING}) 75%,currentColor)"
GREEN: Final = f"color-mix(in srgb,var({_SUCCESS}) 75%,currentColor)"
#: Red for text on a shade.
CARET: Final = f"color-mix(in srgb,var({_ERROR}) 50%,currentColor)"
GREY: Final = MUTED
_SANS: Final = "var(--jp-content-font-family,var(--vscode-font-family,system-ui,sans-serif))"
MONO: Final = "var(--jp-code-font-family,var(--vscode-editor-font-family,monospace))"
MONO_SIZE: Final = "var(--jp-code-font-size,13px)"


def escape(text: str) -> Html:
    """Return ``text`` with its markup escaped and its invisible characters spelled out."""
    if isinstance(text, Html):
        return text
    return Html("\n".join(map(visible, text.split("\n"))).translate(_ESCAPES))


def element(tag: str, *children: str, style: str = "", **attributes: str) -> Html:
    """Return one element. Children that are not ``Html`` are escaped, and so are attributes.

    An underscore in an attribute's name stands for a hyphen.
    """
    given = {"style": style, **attributes} if style else attributes
    pairs = "".join(f' {name.replace("_", "-")}="{escape(str(v))}"' for name, v in given.items())
    return Html(f"<{tag}{pairs}>{''.join(map(escape, children))}</{tag}>")


def join(*parts: str) -> Html:
    """Return the parts one after another, each escaped unless it is markup."""
    return Html("".join(map(escape, parts)))


def heading(*children: str, level: int, style: str = "") -> Html:
    """Return a heading for screen readers that the table of contents does not list."""
    return element("div", *children, role="heading", aria_level=str(level), style=style)


def paragraph(*children: str, color: str = TEXT, tight: bool = False) -> Html:
    """Return a paragraph in the card's measure."""
    return element("p", *children, style=f"margin:{0 if tight else 6}px 0 0;color:{color}")


def code(text: str) -> Html:
    """Return ``text`` as inline code."""
    style = (
        f"font-family:{MONO};font-size:{MONO_SIZE};background:{SHADE};color:{TEXT};"
        "padding:1px 4px;border-radius:3px"
    )
    return element("code", text, style=style)


def chip(label: str, value: str) -> Html:
    """Return a small label such as ``policy: safe``."""
    style = (
        f"font-size:12px;color:{MUTED};border:1px solid {LINE};border-radius:10px;"
        "padding:1px 8px;white-space:nowrap"
    )
    return element("span", f"{label}: ", element("b", value), style=style)


def chips(*pairs: tuple[str, str]) -> Html:
    """Return a row of chips."""
    row = [chip(label, value) for label, value in pairs]
    return element("span", *row, style="display:flex;flex-wrap:wrap;gap:4px 6px")


def icon(symbol: str, color: str) -> Html:
    """Return a decorative symbol; the words beside it say the same."""
    style = (
        f"color:{color};font-size:16px;line-height:1;font-weight:bold;"
        "font-family:system-ui,sans-serif;margin-right:8px"
    )
    return element("span", symbol, aria_hidden="true", style=style)


def card(title: str, *body: str, symbol: str, color: str, label: str, side: str = "") -> Html:
    """Return a whole card: a coloured edge, a title row, and the body below it."""
    head = heading(icon(symbol, color), title, level=3, style="font-weight:600;font-size:14px")
    row = element("div", head, side, style=_ROW)
    style = (
        f"border:1px solid {LINE};border-left:4px solid {color};border-radius:3px;"
        f"padding:10px 14px 12px;margin:4px 0;max-width:860px;box-sizing:border-box;"
        f"color:{TEXT};background:{SURFACE};font-family:{_SANS};font-size:13px;line-height:1.5;"
        "overflow-wrap:anywhere;text-align:left"
    )
    return element("div", row, *body, role="group", aria_label=label, style=style)
