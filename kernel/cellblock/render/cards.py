"""The parts that all cards share: mime types, HTML, the words for statuses and values.

A card is a mime bundle: plain text for terminals, HTML for notebooks, JSON for programs.
``make_card`` makes one. The words of a card are in the function that calls it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.render.headings import OwnLines
from cellblock.render.text import clip, encodable, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.render.allowing import Allowing

#: Text or JSON data by mime type, as in Jupyter's ``display_data``.
Bundle = dict[str, Any]

JSON_VERSION = 1
ARTIFACTS_JSON = "application/vnd.cellblock.artifacts+json"
CHANGES_JSON = "application/vnd.cellblock.changes+json"
DENIAL_JSON = "application/vnd.cellblock.denial+json"
ENFORCEMENT_JSON = "application/vnd.cellblock.enforcement+json"
NARROWING_JSON = "application/vnd.cellblock.narrowing+json"
OUTCOME_JSON = "application/vnd.cellblock.outcome+json"
POLICY_JSON = "application/vnd.cellblock.policy+json"
PORTS_JSON = "application/vnd.cellblock.ports+json"
PROBLEM_JSON = "application/vnd.cellblock.problem+json"
REFUSAL_JSON = "application/vnd.cellblock.refusal+json"
TEMPLATES_JSON = "application/vnd.cellblock.templates+json"
TOOLS_JSON = "application/vnd.cellblock.tools+json"
USAGE_JSON = "application/vnd.cellblock.usage+json"

#: Columns of a policy's name, or of a finding's subject.
NAME_COLUMNS: Final = 40
_RED = "\x1b[31m"
_PLAIN = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that goes with a card (ADR 0041).

    Front ends show a published error below the card, so its traceback is a single line, after the
    ``frames`` of the cell, if it was interrupted. Runners without a front end print the error of
    the reply, so its traceback is the whole ``report``, the card's plain text.
    """

    ename: str
    evalue: str
    report: str
    frames: tuple[str, ...] = ()

    def published(self) -> dict[str, Any]:
        """Return the content of the iopub message ``error``."""
        line = f"{_RED}{self.ename}{_PLAIN}: {self.evalue}"
        return {"ename": self.ename, "evalue": self.evalue, "traceback": [*self.frames, line]}

    def replied(self) -> dict[str, Any]:
        """Return the error fields of the ``execute_reply``, without ``status``."""
        head, _, rest = self.report.partition("\n")
        lines = [f"{_RED}{head}{_PLAIN}", *rest.split("\n")] if rest else [head]
        return {"ename": self.ename, "evalue": self.evalue, "traceback": lines}


def count(number: int, noun: str) -> str:
    """Return a number with its noun, as in ``1 finding`` and ``2 findings``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# --- HTML -------------------------------------------------------------------------------------
#
# ``element`` and ``escape`` escape all text, so no caller can forget to. Styles are inline, because
# style elements apply to the whole page, and sanitisers drop them. Colours are JupyterLab's
# variables, then VS Code's, then a value that is readable on light and dark pages. Signal colours
# are mixed with the text's colour: without that JupyterLab's red is too dark on a dark page, and
# its orange too light on a light one (WCAG 2.2 asks 4.5:1 for text, 3:1 for symbols). Headings are
# elements with ``role=heading``, since real ones would fill the notebook's table of contents.

_ROW_STYLE: Final = (
    "display:flex;flex-wrap:wrap;justify-content:space-between;align-items:center;gap:4px 12px"
)


class Html(str):
    """Markup that is safe to show. Only ``element`` and ``escape`` make it."""

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
#: Red for text on a shaded background.
CARET: Final = f"color-mix(in srgb,var({_ERROR}) 50%,currentColor)"
GREY: Final = MUTED
_SANS: Final = "var(--jp-content-font-family,var(--vscode-font-family,system-ui,sans-serif))"
MONO: Final = "var(--jp-code-font-family,var(--vscode-editor-font-family,monospace))"
MONO_SIZE: Final = "var(--jp-code-font-size,13px)"
#: A block of code.
PRE: Final = (
    f"margin:6px 0 0;padding:6px 8px;background:{SHADE};color:{TEXT};border:0;"
    f"border-radius:3px;font-family:{MONO};font-size:{MONO_SIZE};line-height:1.35;"
    "white-space:pre;overflow-x:auto"
)


def escape(text: str) -> Html:
    """Return ``text`` with its markup escaped and its invisible characters spelled out."""
    if isinstance(text, Html):
        return text
    return Html("\n".join(map(visible, text.split("\n"))).translate(_ESCAPES))


def element(tag: str, *children: str, style: str = "", **attributes: str) -> Html:
    """Return one element. Attributes are escaped, and so are children that are not ``Html``.

    An underscore in an attribute's name stands for a hyphen.
    """
    all_attributes = {"style": style, **attributes} if style else attributes
    pairs = "".join(
        f' {name.replace("_", "-")}="{escape(str(value))}"'
        for name, value in all_attributes.items()
    )
    return Html(f"<{tag}{pairs}>{join(*children)}</{tag}>")


def join(*parts: str) -> Html:
    """Return the parts joined, each escaped unless it is ``Html``."""
    return Html("".join(map(escape, parts)))


def heading(*children: str, level: int, style: str = "") -> Html:
    """Return a heading that screen readers announce, and the table of contents does not list."""
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


#: Code in backticks, as the host's own texts have it.
_MARKED: Final = re.compile(r"`([^`\n]+)`")


def prose(text: str) -> Html:
    """Return ``text`` as HTML, with the parts in backticks as code."""
    parts = _MARKED.split(text)
    return join(*(code(piece) if number % 2 else piece for number, piece in enumerate(parts)))


def plain(text: str) -> str:
    """Return ``text`` without the backticks around code."""
    return _MARKED.sub(r"\1", text)


def chip(label: str, value: str) -> Html:
    """Return a small label such as ``policy: safe``."""
    style = (
        f"font-size:12px;color:{MUTED};border:1px solid {LINE};border-radius:10px;"
        "padding:1px 8px;white-space:nowrap"
    )
    return element("span", f"{label}: ", element("b", value), style=style)


def policy_chip(policy_name: str) -> Html:
    """Return the chip with a policy's name."""
    return chip("policy", clip(visible(policy_name), NAME_COLUMNS))


def chips(*pairs: tuple[str, str]) -> Html:
    """Return a row of chips."""
    row = [chip(label, value) for label, value in pairs]
    return element("span", *row, style="display:flex;flex-wrap:wrap;gap:4px 6px")


def instead(remedy: str, label: str = "Instead: ") -> tuple[Html, list[str]]:
    """Return a remedy as a paragraph of HTML and as lines of text."""
    html = paragraph(element("strong", label), prose(remedy))
    return html, wrap(f"{label}{plain(remedy)}", indent="  ")


def block(lines: Sequence[str]) -> tuple[Html, list[str]]:
    """Return lines for a user to copy, as HTML and as indented text, neither of them wrapped."""
    return element("pre", "\n".join(lines), style=PRE), [f"    {line}" for line in lines]


def allowing(allows: Allowing) -> tuple[list[Html], list[str]]:
    """Return where to write a block of policy lines, and the block, as HTML and as text lines."""
    if not allows.block:
        return [], []
    block_html, lines = block(allows.block)
    return [paragraph(prose(allows.how)), block_html], [
        *wrap(plain(allows.how), indent="  "),
        *lines,
    ]


def make_card(
    title: str,
    *body: str,
    lines: Sequence[str],
    symbol: str,
    color: str,
    side: str = "",
    mime: str = "",
    data: Mapping[str, Any] | None = None,
    own: Sequence[str] = (),
) -> Bundle:
    """Return a card as a bundle of plain text, HTML and, with ``data``, JSON.

    ``lines`` are the plain text, title included. ``own`` are lines among these that are the host's
    even if they read like a heading. ``body`` is the HTML below the title, ``side`` the HTML beside
    it. ``data`` is the JSON of type ``mime``; version and title are added.
    """
    icon_style = (
        f"color:{color};font-size:16px;line-height:1;font-weight:bold;"
        "font-family:system-ui,sans-serif;margin-right:8px"
    )
    # Screen readers skip the symbol, since the words say the same.
    icon = element("span", symbol, aria_hidden="true", style=icon_style)
    head = heading(icon, title, level=3, style="font-weight:600;font-size:14px")
    style = (
        f"border:1px solid {LINE};border-left:4px solid {color};border-radius:3px;"
        f"padding:10px 14px 12px;margin:4px 0;max-width:860px;box-sizing:border-box;"
        f"color:{TEXT};background:{SURFACE};font-family:{_SANS};font-size:13px;line-height:1.5;"
        "overflow-wrap:anywhere;text-align:left"
    )
    row = element("div", head, side, style=_ROW_STYLE)
    html = element("div", row, *body, role="group", aria_label=title, style=style)
    text = OwnLines("\n".join(lines), own) if own else "\n".join(lines)
    bundle: Bundle = {"text/plain": text, "text/html": html}
    if not data:
        return bundle
    return bundle | {mime: as_json({"version": JSON_VERSION, "title": title, **data})}


def as_json(value: object) -> Any:
    """Return ``value`` as JSON data that can be sent; values of other types become their text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(encodable(str(item)) for item in value)
    if isinstance(value, dict):
        return {encodable(str(key)): as_json(item) for key, item in value.items()}
    return encodable(str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]) -> Html:
    """Return a table that scrolls sideways; ``styles`` has one for each column."""
    edge = f"border:0;border-bottom:1px solid {LINE}"

    def row(tag: str, cells: Sequence[str], **attributes: str) -> Html:
        pairs = zip(cells, styles, strict=True)
        elements = (
            element(tag, cell, style=f"{look};{edge}", **attributes) for cell, look in pairs
        )
        return element("tr", *elements)

    # Without this JupyterLab gives all columns the same width.
    style = "table-layout:auto;width:100%;border-collapse:collapse;margin:0;"
    style += "font-size:12px;color:inherit"
    body = element("tbody", *(row("td", cells) for cells in rows))
    whole = element("table", element("thead", row("th", head, scope="col")), body, style=style)
    # It can take the focus, so that it can be scrolled without a mouse.
    return element("div", whole, style="overflow-x:auto;margin-top:10px", tabindex="0")


def folded(title: str, *children: str) -> Html:
    """Return HTML that is folded away until its title is clicked."""
    style = f"cursor:pointer;margin:8px 0 0;color:{MUTED}"
    return element("details", element("summary", title, style=style), *children)


def preformatted(*children: str, style: str = "") -> Html:
    """Return text in the code font, its blanks and line breaks kept."""
    return element("pre", *children, style=f"font-family:{MONO};font-size:{MONO_SIZE};{style}")


# --- statuses: a symbol and a colour, always beside the word itself -----------------------------

_LOOKS: Final = {
    "asserted": ("●", GREY),
    "partial": ("◐", AMBER),
    "unavailable": ("○", GREY),
    "unenforced": ("✗", RED),
    "verified": ("✓", GREEN),
}


def look(status: str) -> tuple[str, str]:
    """Return a status's symbol and its colour in HTML; an unknown status is red."""
    return _LOOKS.get(status, ("?", RED))


def badge(status: str) -> Html:
    """Return symbol and word in the status's colour."""
    symbol, color = look(status)
    sign = element("span", symbol, aria_hidden="true", style=f"color:{color}")
    return element("span", sign, f" {status}", style="white-space:nowrap;font-weight:600")


# --- policy values in words -------------------------------------------------------------------

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SECONDS: Final = ("_seconds", "timeout")
_SIZES: Final = ("_bytes", "_size")
#: Entries of a list that are named, and digits of a number.
_MAX_NAMES: Final = 12
#: Columns of a value.
_MAX_VALUE: Final = 300
#: Seconds from which a time is in seconds, and from which it is in minutes.
_MILLISECONDS_UNTIL: Final = 0.9995
_SECONDS_UNTIL: Final = 100.0


def value_words(field: str, value: object) -> str:
    """Return a policy field's value in words: ``2 GiB``, ``60 s``, ``no limit``."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:_MAX_NAMES])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "no limit"
    if isinstance(value, int) and field.endswith(_SIZES):
        return size(value)
    if isinstance(value, int | float) and field.endswith(_SECONDS):
        return f"{value:g} s"
    return clip(_entries_text(value), _MAX_VALUE)


def size(value: int) -> str:
    """Return bytes as ``1.5 GiB``."""
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:,.1f}".removesuffix(".0") + f" {name}"
    return f"{value} byte{'s' * (value != 1)}"


def duration(seconds: float) -> str:
    """Return a time as ``1.5 ms``, ``12.3 s``, ``2 min 5 s``."""
    if seconds < _MILLISECONDS_UNTIL:
        return f"{seconds * 1000:.3g} ms"
    if seconds < _SECONDS_UNTIL:
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60):,} min {int(seconds % 60)} s"


def _entries_text(value: object) -> str:
    """Return the entries of a list, set or dict, of which the last may be counted only."""
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items()]
    elif isinstance(value, set | frozenset):
        value = sorted(map(str, value))
    if not isinstance(value, list | tuple):
        return str(value)
    more = [f"and {len(value) - _MAX_NAMES} more"] if len(value) > _MAX_NAMES else []
    return ", ".join([*map(str, value[:_MAX_NAMES]), *more]) or "none"


# --- the card for a configuration that can't be used: file, key, value, remedy ----------------

_PROBLEM_MAX_VALUE: Final = 200


def problem(  # the parts of a PolicyError, in the same order
    title: str,
    detail: str,
    file: str = "",
    key: str = "",
    value: str = "",
    remedy: str = "",
    *,
    also: Sequence[str] = (),
) -> Bundle:
    """Return the card for a configuration problem; empty parts are left out.

    ``also`` are further problems of the same file, in words.
    """
    lines = wrap(title)
    body = list[str]()
    if detail:
        lines += wrap(plain(detail), indent="  ")
        body.append(paragraph(prose(detail)))
    facts = {"File": file, "Key": key, "Value": clip(value, _PROBLEM_MAX_VALUE)}
    for label, text in facts.items():
        if text:
            lines += wrap(text, indent=f"  {label + ':':<7}", hanging=" " * 9)
            body.append(paragraph(element("strong", f"{label}: "), code(text)))
    if remedy:
        remedy_html, remedy_lines = instead(remedy)
        lines += remedy_lines
        body.append(remedy_html)
    if also:
        lines.append("  Also wrong:")
        body.append(paragraph(element("strong", "Also wrong:")))
        for text in also:
            lines += wrap(plain(text), indent="  - ", hanging="    ")
            body.append(paragraph(prose(text), tight=True))
    data: dict[str, Any] = {"file": file, "key": key, "value": value, "remedy": remedy}
    if also:
        data["also"] = list(also)
    return make_card(
        title,
        *body,
        lines=lines,
        symbol="!",
        color=RED,
        mime=PROBLEM_JSON,
        data={"detail": detail, **data},
    )


def problem_failure(card: Bundle, detail: str, ename: str = "PolicyProblem") -> Failure:
    """Return the error that goes with a card made by ``problem``, with the same ``detail``."""
    return Failure(ename, " ".join(wrap(detail, columns=10_000)), card["text/plain"])
