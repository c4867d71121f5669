"""Cards about the policy in force: its gaps here, ``%policy``, and what was narrowed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cellblock.policy.model import flat_fields as rows_of
from cellblock.render import cards as c
from cellblock.render.cards import (
    ENFORCEMENT_JSON,
    NARROWING_JSON,
    POLICY_JSON,
    Bundle,
    badge,
    capability_words,
    count,
    look,
    value_words,
)
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.policy.enforcement import Enforcement, Gap

#: Columns that a field's name takes in a table, and a capability's in a list of gaps.
_FIELD_COLUMNS: Final = 24
_CAPABILITY_COLUMNS: Final = 28
_STATUS_COLUMNS: Final = 11


def audit_only(backend: object) -> bool:
    """Return whether ``backend`` is the one that enforces nothing."""
    return backend == "noop"


def _sign(gaps: Sequence[Gap], backend: object = "") -> tuple[str, str]:
    """Return the symbol and the colour of a card about a policy with ``gaps``."""
    if audit_only(backend):
        return "✗", c.RED
    return ("◐", c.AMBER) if gaps else ("✓", c.GREEN)


def _field_indent(field: str) -> str:
    """Return a field's name as the first column of a table."""
    name = clip(visible(capability_words(field)), _FIELD_COLUMNS)
    return f"  {name}{' ' * (_FIELD_COLUMNS - width(name))} "


def _warning(gap: Gap) -> str:
    return f"{capability_words(gap.capability)}: {gap.consequence} → {gap.remedy}"


def _warning_lines(gaps: Sequence[Gap]) -> list[str]:
    warnings = (wrap(_warning(g), indent="! ", hanging="  ", columns=COLUMNS) for g in gaps)
    return [line for lines in warnings for line in lines]


# --- gaps: what the policy asks for and this machine does not enforce ---------------------------

TITLE = "Not everything in this policy is enforced on this machine"
#: The title under a backend that enforces nothing, with or without gaps.
AUDIT_ONLY = "Audit only: nothing of this policy is enforced by the operating system"
NO_GAPS = "Everything in this policy is enforced on this machine"


def gaps(gaps: Sequence[Gap], *, policy_name: str, backend: str) -> Bundle:
    """Return the enforcement card: one row per gap, with its consequence and remedy."""
    symbol, color = _sign(gaps, backend)
    return c.make_card(
        _gaps_title(gaps, backend),
        *map(_gap_html, gaps),
        lines=gaps_text(gaps, backend).split("\n"),
        symbol=symbol,
        color=color,
        side=c.chips(("policy", clip(policy_name, c.NAME_COLUMNS)), ("backend", backend)),
        mime=ENFORCEMENT_JSON,
        data={
            "policy": encodable(policy_name),
            "backend": encodable(backend),
            "gaps": [gap_json(gap) for gap in gaps],
        },
    )


def gap_json(gap: Gap) -> dict[str, Any]:
    """Return a gap as JSON data."""
    return {
        "capability": encodable(gap.capability),
        "status": str(gap.status),
        "asked": encodable(gap.asked),
        "actual": encodable(gap.actual),
        "consequence": encodable(gap.consequence),
        "remedy": encodable(gap.remedy),
    }


def gap_line(gap: Gap) -> str:
    """Return a gap as one line of a log."""
    what = f"gap: {capability_words(gap.capability)} is {gap.status}"
    text = f"{what}: {_asked(gap)}; {gap.consequence}; remedy: {gap.remedy}"
    return visible(text).replace("\n", " ")


def gaps_text(gaps: Sequence[Gap], backend: str = "") -> str:
    """Return the card of ``gaps`` for a terminal, 80 columns wide."""
    title = f"{'✗ ' if audit_only(backend) else ''}{_gaps_title(gaps, backend)}"
    if not gaps:
        return title
    names = [clip(visible(capability_words(g.capability)), _CAPABILITY_COLUMNS) for g in gaps]
    column = max(map(width, names))
    lines = wrap(title, columns=COLUMNS)
    for gap, name in zip(gaps, names, strict=True):
        indent = f"  {name}{' ' * (column - width(name))}   {gap.status:<{_STATUS_COLUMNS}}  "
        hanging = " " * width(indent)
        lines += wrap(gap.consequence, indent=indent, hanging=hanging, columns=COLUMNS)
        if gap.remedy:
            arrow = hanging + "→ "
            lines += wrap(gap.remedy, indent=arrow, hanging=hanging + "  ", columns=COLUMNS)
    return "\n".join(lines)


def _gaps_title(gaps: Sequence[Gap], backend: str) -> str:
    if audit_only(backend):
        return AUDIT_ONLY
    return TITLE if gaps else NO_GAPS


def _asked(gap: Gap) -> str:
    return f"asked: {gap.asked}; here: {gap.actual}"


def _gap_html(gap: Gap) -> c.Html:
    """Return what a gap means, what was asked and what is there, and what closes it."""
    name = c.element("span", capability_words(gap.capability), style="font-weight:600")
    parts = [
        c.heading(name, " · ", badge(gap.status), level=4),
        c.paragraph(gap.consequence, tight=True),
        c.paragraph(_asked(gap), color=c.MUTED, tight=True),
    ]
    if gap.remedy:
        parts.append(c.paragraph("→ ", gap.remedy, color=c.MUTED, tight=True))
    return c.element("div", *parts, style="margin-top:8px")


# --- %policy: every field, what is asked, and how far it is enforced ----------------------------

#: Fields that say which policy this is; they head the table.
_HEAD = ("name", "mode", "backend")


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
    backend = policy_view.get("backend")
    name = f"{policy_view.get('name', '')}{', narrowed' if before else ''}"
    if audit_only(backend):
        title = f"Policy {name}: audit only, nothing here is enforced by the OS"
    elif gaps:
        title = f"Policy {name}: {count(len(gaps), 'gap')} on this machine"
    else:
        title = f"Policy {name}: enforced on this machine"
    head = [(key, str(policy_view[key])) for key in _HEAD[1:] if key in policy_view]
    lines = wrap(title, columns=COLUMNS)
    lines += wrap(", ".join(f"{key}: {value}" for key, value in head), columns=COLUMNS)
    rows = []
    by_name = {e.capability: e for e in enforcement}
    for field, value in rows_of(policy_view).items():
        if field in _HEAD:
            continue
        words = value_words(field, value)
        if field in before:
            words += f" (narrowed from {value_words(field, before[field])})"
        # Where no limit is asked for, there is nothing to enforce.
        enforced = None if value is None else by_name.get(field)
        lines += _policy_lines(field, words, enforced)
        rows.append(_policy_row(field, words, enforced, [g for g in gaps if g.capability == field]))
    columns = [_policy_cell(text, tag="th") for text in ("Field", "Asked", "Enforced")]
    symbol, color = _sign(gaps, backend)
    data = {
        "policy": _jsonable(dict(policy_view)),
        "enforcement": [_enforcement_json(e) for e in enforcement],
        "gaps": [gap_json(gap) for gap in gaps],
    }
    if before:
        data["narrowed_from"] = _jsonable(dict(before))
    return c.make_card(
        title,
        c.table(columns, rows),
        lines=lines + _warning_lines(gaps),
        symbol=symbol,
        color=color,
        side=c.chips(*head),
        mime=POLICY_JSON,
        data=data,
    )


def _mechanism(enforcement: Enforcement) -> str:
    if not enforcement.holes:
        return enforcement.mechanism
    return f"{enforcement.mechanism}; not covered: {', '.join(enforcement.holes)}"


def _policy_lines(field: str, words: str, enforced: Enforcement | None) -> list[str]:
    indent = _field_indent(field)
    hanging = " " * width(indent)
    lines = wrap(words, indent=indent, hanging=hanging, columns=COLUMNS)
    if enforced is None:
        return lines
    status = f"{look(enforced.status).symbol} {enforced.status}: {_mechanism(enforced)}"
    return lines + wrap(status, indent=hanging, hanging=hanging + "  ", columns=COLUMNS)


def _policy_row(
    field: str, words: str, enforced: Enforcement | None, gaps: Sequence[Gap]
) -> c.Html:
    cells = [_policy_cell(c.element("b", capability_words(field))), _policy_cell(words)]
    if enforced is None:
        cells.append(_policy_cell(""))
    else:
        how = c.element("div", _mechanism(enforced), style=f"color:{c.MUTED}")
        what = [c.paragraph(f"{gap.consequence} → {gap.remedy}", tight=True) for gap in gaps]
        cells.append(_policy_cell(badge(enforced.status), how, *what))
    return c.element("tr", *cells)


def _policy_cell(*children: str, tag: str = "td") -> c.Html:
    return c.table_cell(
        *children, tag=tag, style="text-align:left;vertical-align:top;padding:4px 8px"
    )


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


# --- a policy that has become narrower: what is left, since when, and what is not enforced -------

_UNCHANGED: Final = "Nothing changes: the policy is as narrow as that already"
_NARROWER: Final = "The policy is narrower from the next cell on"
_FOR_GOOD: Final = "It stays so until the kernel is restarted."


class Guest(StrEnum):
    """Where cells run from now on, and what became of their variables."""

    same = "same"
    """In the guest that ran before: nothing that a guest is made of changed."""

    new = "new"
    """In a new guest; no cell had run in the old one."""

    kept = "kept"
    """In a copy of the guest under more locks, with its variables."""

    instead = "instead"
    """In a new guest that replaced one with variables."""


_GUESTS: Final = {
    Guest.same: "",
    Guest.new: "",
    Guest.kept: "Your variables are there: a copy of the guest goes on, under more locks.",
    Guest.instead: "Your variables are gone: a new guest runs, which never had more than this.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A field that changed, its value before, and its value now."""

    field: str
    before: object
    after: object

    @property
    def words(self) -> str:
        """The change in words: ``without numpy``, ``60 s → 10 s``."""
        before, after = self.before, self.after
        if isinstance(before, tuple) and isinstance(after, tuple) and after:
            gone = [entry for entry in before if entry not in after]
            more = [entry for entry in after if entry not in before]
            if gone and not more:
                return f"without {value_words(self.field, gone)}"
            if more and not gone:
                return f"also {value_words(self.field, more)}"
        return f"{value_words(self.field, before)} → {value_words(self.field, after)}"


def narrowed(
    changes: Sequence[Change],
    *,
    policy_name: str,
    guest: Guest,
    lost: Sequence[str] = (),
    gaps: Sequence[Gap] = (),
) -> Bundle:
    """Return the card; ``gaps`` are what this machine, or this guest, does not enforce of it.

    ``lost`` names what the copy of a guest lacks.
    """
    title = _NARROWER if changes else _UNCHANGED
    state = _GUESTS[guest] + (f" Not with it: {', '.join(lost)}." if lost else "")
    notes = [note for note in (state, _FOR_GOOD if changes else "") if note]
    lines = wrap(title, columns=COLUMNS)
    for one in changes:
        indent = _field_indent(one.field)
        lines += wrap(one.words, indent=indent, hanging=" " * width(indent), columns=COLUMNS)
    for note in notes:
        lines += wrap(note, columns=COLUMNS)
    symbol, color = _sign(gaps)
    return c.make_card(
        title,
        *(
            c.paragraph(c.element("b", capability_words(one.field)), f": {one.words}", tight=True)
            for one in changes
        ),
        *(c.paragraph(note, color=c.MUTED) for note in notes),
        *(c.paragraph(f"! {_warning(gap)}", tight=True) for gap in gaps),
        lines=lines + _warning_lines(gaps),
        symbol=symbol,
        color=color,
        side=c.policy_chip(policy_name),
        mime=NARROWING_JSON,
        data={
            "policy": encodable(policy_name),
            "guest": str(guest),
            "lost": [encodable(item) for item in lost],
            "changes": [
                {
                    "field": encodable(one.field),
                    "before": encodable(value_words(one.field, one.before)),
                    "after": encodable(value_words(one.field, one.after)),
                }
                for one in changes
            ],
            "gaps": [gap_json(gap) for gap in gaps],
        },
    )
