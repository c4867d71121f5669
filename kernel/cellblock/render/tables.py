"""What ``%policy`` shows: every field, what is asked, and how far it is enforced."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from cellblock.policy.model import rows as rows_of
from cellblock.render import cards as m
from cellblock.render.cards import (
    JSON_VERSION,
    POLICY_JSON,
    TEMPLATES_JSON,
    TOOLS_JSON,
    USAGE_JSON,
    Bundle,
    asked,
    badge,
    capability_words,
    count,
    duration,
    look,
    size,
)
from cellblock.render.stopped import audit_only, gap_json
from cellblock.render.text import COLUMNS, clip, encodable, visible, visible_lines, width, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cellblock.analysis.admission import Template
    from cellblock.policy.enforcement import Enforcement, Gap

    class _Parameter(Protocol):
        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> int: ...
        @property
        def annotation(self) -> str: ...
        @property
        def default(self) -> str | None: ...

    class _Tool(Protocol):
        @property
        def name(self) -> str: ...
        @property
        def parameters(self) -> Sequence[_Parameter]: ...
        @property
        def returns(self) -> str: ...
        @property
        def doc(self) -> str: ...
        @property
        def is_async(self) -> bool: ...
        @property
        def of_host(self) -> bool: ...


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


# What ``%template`` shows: the shipped templates, or one of them with the schema of its state.

_TEMPLATES_NONE: Final = "There are no templates: the policy's folders are empty."
_TEMPLATES_HOW: Final = "A cell runs one: %%template NAME, and below it the state as JSON."
_MORE: Final = "%template NAME shows the schema of its state."
#: Templates that are listed, and characters of a schema that are shown.
MOST: Final = 100
MOST_SCHEMA: Final = 20_000


def templates(known: Mapping[str, Template], name: str = "") -> Bundle:
    """Return the list of all templates; of one, where ``name`` is one's, its schema too."""
    if not known:
        return {"text/plain": _TEMPLATES_NONE}
    if name in known:
        return _one(known[name])
    shown = [known[each] for each in sorted(known)[:MOST]]
    title = f"{count(len(known), 'template')} shipped"
    if name:
        title = f"No template {clip(visible(name), 40)}: {title}"
    return {
        "text/plain": "\n".join([title, *_lines(shown), _TEMPLATES_HOW, _MORE]),
        "text/html": _templates_html(title, shown),
        TEMPLATES_JSON: _templates_json(shown),
    }


def _lines(shown: Sequence[Template]) -> list[str]:
    lines: list[str] = []
    for each in shown:
        text = f"{each.name}: {each.doc}" if each.doc else each.name
        lines += wrap(text, indent="  ", hanging=" " * 6, columns=COLUMNS)
    return lines


def _templates_html(title: str, shown: Sequence[Template]) -> m.Html:
    rows = [
        m.element(
            "div",
            m.code(each.name),
            m.paragraph(each.doc, color=m.MUTED, tight=True),
            style="margin-top:8px",
        )
        for each in shown
    ]
    how = m.paragraph(f"{_TEMPLATES_HOW} {_MORE}", color=m.MUTED)
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
        TEMPLATES_JSON: _templates_json([template]) | {"schema": template.schema},
    }


def _templates_json(shown: Sequence[Template]) -> dict[str, Any]:
    listed = [{"name": each.name, "doc": encodable(each.doc)} for each in shown]
    return {"version": JSON_VERSION, "templates": listed}


# What cells took of a session's budgets, in words and as JSON.


class Asked(NamedTuple):
    """Calls of language models and their tokens, and how many there may be.

    Tokens are those that were told, and the most that calls under way may take.
    """

    calls: int
    max_calls: int
    tokens: int
    max_tokens: int

    def __str__(self) -> str:
        calls = _left(self.calls, self.max_calls, "calls")
        return f"{calls} and {_left(self.tokens, self.max_tokens, 'tokens')} are left"


class Written(NamedTuple):
    """Bytes that the host has written for cells, and how many it may."""

    bytes: int
    max_bytes: int

    def __str__(self) -> str:
        return f"{_left(self.bytes, self.max_bytes, 'bytes')} are left"


Spent = Asked | Written


def _left(taken: int, most: int, unit: str) -> str:
    return f"{max(most - taken, 0):,} of {most:,} {unit}"


def budget_lines(spent: Mapping[str, Spent]) -> list[str]:
    """Return what a card says of budgets, by the name of what takes of each."""
    return [f"{name}: {one} for this session." for name, one in spent.items()]


def as_json(spent: Mapping[str, Spent]) -> dict[str, dict[str, dict[str, int]]]:
    """Return what a card's JSON has of them; nothing where there is none."""
    return {"budgets": {name: one._asdict() for name, one in spent.items()}} if spent else {}


# What ``%tools`` shows: what cells may call on the host, its signatures and what it is for.

_POSITIONAL_ONLY, _REST, _NAMED, _NAMED_REST = 0, 2, 3, 4
_LONGEST: Final = 300
_NONE: Final = "There are no tools: the policy names none, and grants no operation."
_HOW: Final = "They run on the host. name? shows more; what fails raises ToolError."


def tools(known: Sequence[_Tool], spent: Mapping[str, Spent] | None = None) -> Bundle:
    """Return the list of all tools, and what is left of a session's budgets."""
    if not known:
        return {"text/plain": _NONE}
    title = _tools_title(known)
    notes = [*budget_lines(spent or {}), _HOW]
    lines = [line for tool in known for line in _tools_plain(tool)]
    return {
        "text/plain": "\n".join([title, *lines, *notes]),
        "text/html": _tools_html(title, known, notes),
        TOOLS_JSON: {
            "version": JSON_VERSION,
            "tools": [
                {
                    "name": tool.name,
                    "signature": encodable(signature(tool)),
                    "doc": encodable(_first_line(tool)),
                }
                for tool in known
            ],
            **as_json(spent or {}),
        },
    }


def _tools_title(known: Sequence[_Tool]) -> str:
    own = sum(tool.of_host for tool in known)
    whose = {"operator": len(known) - own, "host": own}
    return ", ".join(f"{count(n, 'tool')} of the {who}'s" for who, n in whose.items() if n)


def signature(tool: _Tool) -> str:
    """Return ``async name(city: str, days: int = 3) -> dict``, without async for the sync.

    Nor for the host's own, which are waited for in whichever way a cell can.
    """
    returns = f" -> {tool.returns}" if tool.returns else ""
    start = "async " if tool.is_async and not tool.of_host else ""
    return f"{start}{tool.name}({', '.join(_parameters(tool.parameters))}){returns}"


def _parameters(parameters: Sequence[_Parameter]) -> Iterator[str]:
    before, starred = -1, False
    for one in parameters:
        if before == _POSITIONAL_ONLY != one.kind:
            yield "/"
        if one.kind == _NAMED and not starred:
            yield "*"
        starred = starred or one.kind in (_REST, _NAMED)
        yield _parameter(one)
        before = one.kind
    if before == _POSITIONAL_ONLY:
        yield "/"


def _parameter(one: _Parameter) -> str:
    stars = {_REST: "*", _NAMED_REST: "**"}.get(one.kind, "")
    hint = f": {one.annotation}" if one.annotation else ""
    equals = " = " if hint else "="
    return f"{stars}{one.name}{hint}{'' if one.default is None else equals + one.default}"


def _first_line(tool: _Tool) -> str:
    return tool.doc.strip().partition("\n")[0][:_LONGEST]


def _tools_plain(tool: _Tool) -> Iterator[str]:
    yield from wrap(visible(signature(tool)), indent="  ", hanging="      ", columns=COLUMNS)
    if line := _first_line(tool):
        yield f"      {clip(visible(line), COLUMNS - 6)}"


def _tools_html(title: str, known: Sequence[_Tool], notes: Sequence[str]) -> m.Html:
    rows = [
        m.element(
            "div",
            m.code(signature(tool)),
            m.paragraph(_first_line(tool), color=m.MUTED, tight=True),
            style="margin-top:8px",
        )
        for tool in known
    ]
    foot = [m.paragraph(note, color=m.MUTED) for note in notes]
    return m.card(title, *rows, *foot, symbol="ƒ", color=m.GREY, label=title)


# What ``%usage`` shows: what each cell of a session took, and which took most.

#: Rows that are shown at once, and under ``top``.
MOST_ROWS: Final = 50
TOP: Final = 10
_HEADS: Final = ("wall", "cpu", "peak", "out", "read")
_COLUMN, _BAR = 10, 8
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_USAGE_HOW: Final = "%usage shows all cells, %usage top the dearest, %usage 7 one."


class UsageRow(NamedTuple):
    """One cell: its number, the first line of its source, and what it took."""

    number: int
    line: str
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    output_bytes: int
    read_bytes: int


class Totals(NamedTuple):
    """All cells of a session together, those without a row too."""

    cells: int
    wall_seconds: float
    cpu_seconds: float
    output_bytes: int
    read_bytes: int


def usage(
    rows: Sequence[UsageRow],
    totals: Totals,
    argument: str = "",
    spent: Mapping[str, Spent] | None = None,
) -> Bundle:
    """Return the table: the last rows, newest last, the ``top`` ones, or that of one cell.

    ``spent`` is what cells took of a session's budgets.
    """
    chosen = _chosen(rows, argument)
    if not chosen:
        said = "No cell has ended yet." if not rows else f"No such cell. {_USAGE_HOW}"
        return {"text/plain": said}
    title = _usage_title(totals)
    most = max(rows, key=lambda row: row.wall_seconds)
    left = budget_lines(spent or {})
    return {
        "text/plain": _usage_plain(title, chosen, most, left),
        "text/html": _usage_html(title, chosen, most, left),
        USAGE_JSON: {
            "version": JSON_VERSION,
            "totals": totals._asdict(),
            "cells": [row._asdict() | {"line": encodable(row.line)} for row in chosen],
            **as_json(spent or {}),
        },
    }


def _chosen(rows: Sequence[UsageRow], argument: str) -> Sequence[UsageRow]:
    if not argument:
        return rows[-MOST_ROWS:]
    if argument == "top":
        return sorted(rows, key=lambda row: row.wall_seconds, reverse=True)[:TOP]
    return [row for row in rows if str(row.number) == argument]


def _usage_title(totals: Totals) -> str:
    wall, cpu = duration(totals.wall_seconds), duration(totals.cpu_seconds)
    return f"Usage: {count(totals.cells, 'cell')}, {wall} wall, {cpu} cpu"


def _values(row: UsageRow) -> list[str]:
    """Return what a row shows, in the order of ``_HEADS``."""
    sizes = (row.peak_memory_bytes, row.output_bytes, row.read_bytes)
    shown = (size(value).replace(" bytes", " B") for value in sizes)
    return [duration(row.wall_seconds), duration(row.cpu_seconds), *shown]


def _part(row: UsageRow, most: UsageRow) -> float:
    return min(1.0, row.wall_seconds / most.wall_seconds) if most.wall_seconds > 0 else 0.0


# --- plain text -------------------------------------------------------------------------------


def _usage_plain(title: str, rows: Sequence[UsageRow], most: UsageRow, left: Sequence[str]) -> str:
    head = f"{'cell':>6}" + "".join(f"{name:>{_COLUMN}}" for name in _HEADS)
    table = [head, *(_usage_plain_row(row, most) for row in rows)]
    return "\n".join([*wrap(title, columns=COLUMNS), *table, *left])


def _usage_plain_row(row: UsageRow, most: UsageRow) -> str:
    mark = "▸" if row is most else " "
    start = f"{mark}{row.number:>5}" + "".join(f"{v:>{_COLUMN}}" for v in _values(row))
    start += f" {_bar(_part(row, most))} "
    return start + clip(visible(row.line), max(8, COLUMNS - width(start)))


def _bar(part: float) -> str:
    """Return a bar of blocks, ``_BAR`` columns wide with its blanks."""
    whole, eighths = divmod(round(part * _BAR * 8), 8)
    return ("█" * whole + _EIGHTHS[eighths].strip()).ljust(_BAR)


# --- HTML -------------------------------------------------------------------------------------


def _usage_html(
    title: str, rows: Sequence[UsageRow], most: UsageRow, left: Sequence[str]
) -> m.Html:
    heads = ("cell", *_HEADS, "", "")
    head = m.element("tr", *(_usage_cell(name, tag="th", right=name != "") for name in heads))
    table = m.element(
        "table",
        m.element("thead", head),
        m.element("tbody", *(_usage_html_row(row, most) for row in rows)),
        style="border-collapse:collapse;margin:0;font-size:12px;color:inherit;width:100%",
    )
    scroll = m.element("div", table, style="overflow-x:auto;margin-top:10px")
    note = m.paragraph(
        "read: from disk, as the cell's own process says. ", _USAGE_HOW, color=m.MUTED
    )
    notes = [*(m.paragraph(one, color=m.MUTED) for one in left), note]
    return m.card(title, scroll, *notes, symbol="◔", color=m.GREY, label=title)


def _usage_html_row(row: UsageRow, most: UsageRow) -> m.Html:
    dearest = row is most
    color = m.AMBER if dearest else m.GREY
    bar = m.element(
        "div", style=f"height:8px;width:{max(1, round(100 * _part(row, most)))}%;background:{color}"
    )
    number = m.element("b", f"▸ {row.number}") if dearest else str(row.number)
    cells = [_usage_cell(value, right=True) for value in (number, *_values(row))]
    line = m.element("span", clip(row.line, 60), style=f"font-family:{m.MONO}")
    return m.element("tr", *cells, _usage_cell(bar, extra="width:20%;"), _usage_cell(line))


def _usage_cell(child: str, *, tag: str = "td", right: bool = False, extra: str = "") -> m.Html:
    style = (
        f"text-align:{'right' if right else 'left'};vertical-align:middle;padding:3px 8px;border:0;"
        f"{extra}border-bottom:1px solid {m.LINE};white-space:nowrap"
    )
    scope: dict[str, Any] = {"scope": "col"} if tag == "th" else {}
    return m.element(tag, child, style=style, **scope)


# What ``%output`` shows: a list of what is kept, a page of it, or why there is none.

_TITLE: Final = "Output kept on disk"
_SYMBOL: Final = "≡"


@dataclass(frozen=True, slots=True)
class KeptRow:
    """One text that is kept: bytes, what shows it, and what is missing at its end."""

    cell: int
    kind: str
    size: int
    command: str
    missing: str


def kept_list(rows: Sequence[KeptRow]) -> Bundle:
    """Return the card that lists what is kept."""
    if not rows:
        return kept_note("Nothing is kept: no cell has said more than was shown.")
    lines = [f"  {_row(row)}" for row in rows]
    items = (m.paragraph(_row(row), tight=True) for row in rows)
    return {
        "text/plain": "\n".join([_TITLE, *lines]),
        "text/html": m.card(_TITLE, *items, symbol=_SYMBOL, color=m.GREY, label=_TITLE),
    }


def _row(row: KeptRow) -> str:
    missing = f" ({row.missing})" if row.missing else ""
    return f"cell {row.cell}, {row.kind}, {count(row.size, 'byte')}{missing}: {row.command}"


def kept_page(row: KeptRow, number: int, pages: int, content: str) -> Bundle:
    """Return the card for one page; ``content`` has no terminal sequences any more."""
    title = f"Output of cell {row.cell}, {row.kind}"
    where = f"page {number:,} of {pages:,}"
    if number < pages:
        where += f": {row.command} {number + 1}"
    elif row.missing:
        where += f" ({row.missing})"
    text = "\n".join(map(visible, content.expandtabs().split("\n")))
    style = (
        f"font-family:{m.MONO};font-size:{m.MONO_SIZE};white-space:pre-wrap;"
        "overflow:auto;max-height:32em;margin:8px 0 0"
    )
    body = (m.paragraph(where, tight=True), m.element("pre", text, style=style))
    return {
        "text/plain": f"{title}\n{where}\n{text}",
        "text/html": m.card(title, *body, symbol=_SYMBOL, color=m.GREY, label=title),
    }


def kept_note(line: str) -> Bundle:
    """Return the card for one line."""
    shown = visible(line)
    return {
        "text/plain": shown,
        "text/html": m.card(shown, symbol=_SYMBOL, color=m.GREY, label=shown),
    }
