"""What ``%template`` shows: the shipped templates, or one of them with the schema of its state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, TEMPLATES_JSON, Bundle, count
from cellblock.render.text import COLUMNS, clip, encodable, visible, visible_lines, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.analysis.admission import Template

_NONE: Final = "There are no templates: the policy's folders are empty."
_HOW: Final = "A cell runs one: %%template NAME, and below it the state as JSON."
_MORE: Final = "%template NAME shows the schema of its state."
#: Templates that are listed, and characters of a schema that are shown.
MOST: Final = 100
MOST_SCHEMA: Final = 20_000


def templates(known: Mapping[str, Template], name: str = "") -> Bundle:
    """Return the list of all templates; of one, where ``name`` is one's, its schema too."""
    if not known:
        return {"text/plain": _NONE}
    if name in known:
        return _one(known[name])
    shown = [known[each] for each in sorted(known)[:MOST]]
    title = f"{count(len(known), 'template')} shipped"
    if name:
        title = f"No template {clip(visible(name), 40)}: {title}"
    return {
        "text/plain": "\n".join([title, *_lines(shown), _HOW, _MORE]),
        "text/html": _html(title, shown),
        TEMPLATES_JSON: _json(shown),
    }


def _lines(shown: Sequence[Template]) -> list[str]:
    lines: list[str] = []
    for each in shown:
        text = f"{each.name}: {each.doc}" if each.doc else each.name
        lines += wrap(text, indent="  ", hanging=" " * 6, columns=COLUMNS)
    return lines


def _html(title: str, shown: Sequence[Template]) -> m.Html:
    rows = [
        m.element(
            "div",
            m.code(each.name),
            m.paragraph(each.doc, color=m.MUTED, tight=True),
            style="margin-top:8px",
        )
        for each in shown
    ]
    how = m.paragraph(f"{_HOW} {_MORE}", color=m.MUTED)
    return m.card(title, *rows, how, symbol="▤", color=m.GREY, label=title)


def _one(template: Template) -> Bundle:
    title = f"Template {template.name}"
    schema = json.dumps(template.schema, indent=2, ensure_ascii=False)[:MOST_SCHEMA]
    shown = visible_lines(schema)
    style = f"margin:8px 0 0;font-family:{m.MONO};font-size:{m.MONO_SIZE};white-space:pre-wrap"
    body = [m.paragraph(template.doc), m.element("pre", shown, style=style)]
    return {
        "text/plain": "\n".join([title, *wrap(template.doc, indent="  ", columns=COLUMNS), shown]),
        "text/html": m.card(title, *body, symbol="▤", color=m.GREY, label=title),
        TEMPLATES_JSON: _json([template]) | {"schema": template.schema},
    }


def _json(shown: Sequence[Template]) -> dict[str, Any]:
    listed = [{"name": each.name, "doc": encodable(each.doc)} for each in shown]
    return {"version": JSON_VERSION, "templates": listed}
