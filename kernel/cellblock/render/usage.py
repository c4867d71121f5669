"""What ``%usage`` shows: what each cell of a session took, and which took most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.render import budgets
from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, USAGE_JSON, Bundle, count
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap
from cellblock.render.values import duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Rows that are shown at once, and under ``top``.
MOST_ROWS: Final = 50
TOP: Final = 10
_HEADS: Final = ("wall", "cpu", "peak", "out", "read")
_COLUMN, _BAR = 10, 8
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HOW: Final = "%usage shows all cells, %usage top the dearest, %usage 7 one."


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
    spent: Mapping[str, budgets.Spent] | None = None,
) -> Bundle:
    """Return the table: the last rows, newest last, the ``top`` ones, or that of one cell.

    ``spent`` is what cells took of a session's budgets.
    """
    chosen = _chosen(rows, argument)
    if not chosen:
        said = "No cell has ended yet." if not rows else f"No such cell. {_HOW}"
        return {"text/plain": said}
    title = _title(totals)
    most = max(rows, key=lambda row: row.wall_seconds)
    left = budgets.budget_lines(spent or {})
    return {
        "text/plain": _plain(title, chosen, most, left),
        "text/html": _html(title, chosen, most, left),
        USAGE_JSON: {
            "version": JSON_VERSION,
            "totals": totals._asdict(),
            "cells": [row._asdict() | {"line": encodable(row.line)} for row in chosen],
            **budgets.as_json(spent or {}),
        },
    }


def _chosen(rows: Sequence[UsageRow], argument: str) -> Sequence[UsageRow]:
    if not argument:
        return rows[-MOST_ROWS:]
    if argument == "top":
        return sorted(rows, key=lambda row: row.wall_seconds, reverse=True)[:TOP]
    return [row for row in rows if str(row.number) == argument]


def _title(totals: Totals) -> str:
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


def _plain(title: str, rows: Sequence[UsageRow], most: UsageRow, left: Sequence[str]) -> str:
    head = f"{'cell':>6}" + "".join(f"{name:>{_COLUMN}}" for name in _HEADS)
    table = [head, *(_plain_row(row, most) for row in rows)]
    return "\n".join([*wrap(title, columns=COLUMNS), *table, *left])


def _plain_row(row: UsageRow, most: UsageRow) -> str:
    mark = "▸" if row is most else " "
    start = f"{mark}{row.number:>5}" + "".join(f"{v:>{_COLUMN}}" for v in _values(row))
    start += f" {_bar(_part(row, most))} "
    return start + clip(visible(row.line), max(8, COLUMNS - width(start)))


def _bar(part: float) -> str:
    """Return a bar of blocks, ``_BAR`` columns wide with its blanks."""
    whole, eighths = divmod(round(part * _BAR * 8), 8)
    return ("█" * whole + _EIGHTHS[eighths].strip()).ljust(_BAR)


# --- HTML -------------------------------------------------------------------------------------


def _html(title: str, rows: Sequence[UsageRow], most: UsageRow, left: Sequence[str]) -> m.Html:
    heads = ("cell", *_HEADS, "", "")
    head = m.element("tr", *(_cell(name, tag="th", right=name != "") for name in heads))
    table = m.element(
        "table",
        m.element("thead", head),
        m.element("tbody", *(_html_row(row, most) for row in rows)),
        style="border-collapse:collapse;margin:0;font-size:12px;color:inherit;width:100%",
    )
    scroll = m.element("div", table, style="overflow-x:auto;margin-top:10px")
    note = m.paragraph("read: from disk, as the cell's own process says. ", _HOW, color=m.MUTED)
    notes = [*(m.paragraph(one, color=m.MUTED) for one in left), note]
    return m.card(title, scroll, *notes, symbol="◔", color=m.GREY, label=title)


def _html_row(row: UsageRow, most: UsageRow) -> m.Html:
    dearest = row is most
    color = m.AMBER if dearest else m.GREY
    bar = m.element(
        "div", style=f"height:8px;width:{max(1, round(100 * _part(row, most)))}%;background:{color}"
    )
    number = m.element("b", f"▸ {row.number}") if dearest else str(row.number)
    cells = [_cell(value, right=True) for value in (number, *_values(row))]
    line = m.element("span", clip(row.line, 60), style=f"font-family:{m.MONO}")
    return m.element("tr", *cells, _cell(bar, extra="width:20%;"), _cell(line))


def _cell(child: str, *, tag: str = "td", right: bool = False, extra: str = "") -> m.Html:
    style = (
        f"text-align:{'right' if right else 'left'};vertical-align:middle;padding:3px 8px;border:0;"
        f"{extra}border-bottom:1px solid {m.LINE};white-space:nowrap"
    )
    scope: dict[str, Any] = {"scope": "col"} if tag == "th" else {}
    return m.element(tag, child, style=style, **scope)
