"""What ``%policy`` shows: every field, what is asked, and how far it is enforced."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cellblock.policy.sections import rows as rows_of
from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, POLICY_JSON, Bundle, count
from cellblock.render.gaps import audit_only, gap_json
from cellblock.render.status import badge, capability_words, look
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap
from cellblock.render.values import asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.policy.enforcement import Enforcement, Gap

#: Fields that say which policy this is; they head the table.
_HEAD = ("name", "mode", "backend")
_NAME_COLUMNS = 24
#: A field, its value, and that in words.
Row = tuple[str, object, str]


def policy_table(
    policy_view: Mapping[str, object],
    enforcement: Sequence[Enforcement],
    gaps: Sequence[Gap],
    before: Mapping[str, object] = MappingProxyType({}),
) -> Bundle:
    """Return the table of a policy.

    ``policy_view`` maps policy fields to values; ``name``, ``mode`` and ``backend`` head the
    table, every other field is a row. Fields with no enforcement of their own show none.
    ``before`` has what the kernel was started with in fields that are narrower now.
    """
    title = _title(policy_view, gaps, narrowed=bool(before))
    by_name = {e.capability: e for e in enforcement}
    flat = rows_of(policy_view)
    rows = [
        (field, value, _value(field, value, before))
        for field, value in flat.items()
        if field not in _HEAD
    ]
    return {
        "text/plain": _plain(title, policy_view, rows, by_name, gaps),
        "text/html": _html(title, policy_view, rows, by_name, gaps),
        POLICY_JSON: _json(policy_view, enforcement, gaps) | _json_before(before),
    }


def _title(view: Mapping[str, object], gaps: Sequence[Gap], *, narrowed: bool) -> str:
    name = f"{view.get('name', '')}{', narrowed' if narrowed else ''}"
    if audit_only(view.get("backend")):
        return f"Policy {name}: audit only, nothing here is enforced by the OS"
    state = f"{count(len(gaps), 'gap')} on this machine" if gaps else "enforced on this machine"
    return f"Policy {name}: {state}"


def _value(field: str, value: object, before: Mapping[str, object]) -> str:
    """Return a field's value in words, with what it was where it is narrower now."""
    words = asked(field, value)
    return f"{words} (narrowed from {asked(field, before[field])})" if field in before else words


def _status(field: str, value: object, by_name: Mapping[str, Enforcement]) -> Enforcement | None:
    """Return how a field is enforced; where no limit is asked, there is nothing to enforce."""
    return None if value is None else by_name.get(field)


def _mechanism(enforcement: Enforcement) -> str:
    if not enforcement.holes:
        return enforcement.mechanism
    return f"{enforcement.mechanism}; not covered: {', '.join(enforcement.holes)}"


# --- plain text -------------------------------------------------------------------------------


def _plain(
    title: str,
    view: Mapping[str, object],
    rows: Sequence[Row],
    by_name: Mapping[str, Enforcement],
    gaps: Sequence[Gap],
) -> str:
    head = ", ".join(f"{key}: {view[key]}" for key in _HEAD[1:] if key in view)
    lines = wrap(title, columns=COLUMNS) + wrap(head, columns=COLUMNS)
    for field, value, words in rows:
        lines += _plain_row(field, words, _status(field, value, by_name))
    for gap in gaps:
        text = f"{capability_words(gap.capability)}: {gap.consequence} → {gap.remedy}"
        lines += wrap(text, indent="! ", hanging="  ", columns=COLUMNS)
    return "\n".join(lines)


def _plain_row(field: str, value: str, enforcement: Enforcement | None) -> list[str]:
    name = clip(visible(capability_words(field)), _NAME_COLUMNS)
    indent = f"  {name}{' ' * (_NAME_COLUMNS - width(name))} "
    hanging = " " * width(indent)
    lines = wrap(value, indent=indent, hanging=hanging, columns=COLUMNS)
    if enforcement is None:
        return lines
    status = f"{look(enforcement.status).symbol} {enforcement.status}: {_mechanism(enforcement)}"
    return lines + wrap(status, indent=hanging, hanging=hanging + "  ", columns=COLUMNS)


# --- HTML -------------------------------------------------------------------------------------


def _html(
    title: str,
    view: Mapping[str, object],
    rows: Sequence[Row],
    by_name: Mapping[str, Enforcement],
    gaps: Sequence[Gap],
) -> m.Html:
    body = [
        _html_row(
            field,
            words,
            _status(field, value, by_name),
            [gap for gap in gaps if gap.capability == field],
        )
        for field, value, words in rows
    ]
    head = m.element("tr", *(_cell("th", name) for name in ("Field", "Asked", "Enforced")))
    table = m.element(
        "table",
        m.element("thead", head),
        m.element("tbody", *body),
        style="border-collapse:collapse;margin:0;font-size:12px;color:inherit;width:100%",
    )
    scroll = m.element("div", table, style="overflow-x:auto;margin-top:10px")
    symbol, color = ("◐", m.AMBER) if gaps else ("✓", m.GREEN)
    if audit_only(view.get("backend")):
        symbol, color = "✗", m.RED
    side = m.chips(*((key, str(view[key])) for key in _HEAD[1:] if key in view))
    return m.card(title, scroll, symbol=symbol, color=color, label=title, side=side)


def _cell(tag: str, *children: str) -> m.Html:
    style = (
        "text-align:left;vertical-align:top;padding:4px 8px;border:0;"
        f"border-bottom:1px solid {m.LINE}"
    )
    scope = {"scope": "col"} if tag == "th" else {}
    return m.element(tag, *children, style=style, **scope)


def _html_row(
    field: str, value: str, enforcement: Enforcement | None, gaps: Sequence[Gap]
) -> m.Html:
    cells = [_cell("td", m.element("b", capability_words(field))), _cell("td", value)]
    if enforcement is None:
        cells.append(_cell("td", ""))
    else:
        how = m.element("div", _mechanism(enforcement), style=f"color:{m.MUTED}")
        what = [m.paragraph(f"{gap.consequence} → {gap.remedy}", tight=True) for gap in gaps]
        cells.append(_cell("td", badge(enforcement.status), how, *what))
    return m.element("tr", *cells)


# --- JSON -------------------------------------------------------------------------------------


def _json(
    view: Mapping[str, object], enforcement: Sequence[Enforcement], gaps: Sequence[Gap]
) -> dict[str, Any]:
    return {
        "version": JSON_VERSION,
        "policy": _jsonable(dict(view)),
        "enforcement": [_enforcement_json(e) for e in enforcement],
        "gaps": [gap_json(gap) for gap in gaps],
    }


def _json_before(before: Mapping[str, object]) -> dict[str, Any]:
    """Return what the kernel was started with, where that is not in force any more."""
    return {"narrowed_from": _jsonable(dict(before))} if before else {}


def _enforcement_json(enforcement: Enforcement) -> dict[str, Any]:
    return {
        "capability": encodable(enforcement.capability),
        "status": str(enforcement.status),
        "mechanism": encodable(enforcement.mechanism),
        "holes": [encodable(hole) for hole in enforcement.holes],
        "evidence": encodable(enforcement.evidence),
    }


def _jsonable(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(encodable(str(item)) for item in value)
    if isinstance(value, dict):
        return {encodable(str(key)): _jsonable(item) for key, item in value.items()}
    return encodable(str(value))
