"""Cards about the policy in force: its gaps on this machine, ``%policy``, and a narrowing.

The words for a field's value come from its row in ``policy.model``. ``allowances`` tells a
language model what a policy allows (``api.explained``); ``enforced`` and ``unverified`` are for
JupyterLab's extension (``jupyter.lab``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cellblock.policy.model import ROWS, flat_fields
from cellblock.policy.rows import Never, Row, Shown
from cellblock.render import cards as c
from cellblock.render.cards import (
    ENFORCEMENT_JSON,
    NARROWING_JSON,
    POLICY_JSON,
    Bundle,
    badge,
    count,
    look,
)
from cellblock.render.text import clip, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cellblock.policy.model import Enforcement, Gap


def _value_words(field: str, value: object) -> str:
    """Return a field's value in words: by the function in its row, or as other values."""
    words_of = _row(field).words
    return c.value_words(field, value) if words_of is None else words_of(value)


#: Columns of a field's name in a table.
_FIELD_COLUMNS: Final = 26
#: Columns of a capability's name in a list of gaps.
_CAPABILITY_COLUMNS: Final = 28
_STATUS_COLUMNS: Final = 11
#: The column at which a field's value begins.
_VALUE_COLUMN: Final = _FIELD_COLUMNS + 3
#: The backend that enforces nothing.
_NO_BACKEND: Final = "noop"


def _sign(gaps: Sequence[Gap], backend: object = "", *, tried: bool = True) -> tuple[str, str]:
    """Return the symbol and the colour of a card about a policy with these ``gaps``.

    ``tried``: the locks have been tried on this machine.
    """
    if backend == _NO_BACKEND:
        return "✗", c.RED
    if gaps:
        return "◐", c.AMBER
    return ("✓", c.GREEN) if tried else c.look("asserted")


def _field_lines(field: str, words: str) -> list[str]:
    """Return the lines of a table's row: a field's name, and words beside it."""
    name = clip(visible(field), _FIELD_COLUMNS)
    indent = f"  {name}{' ' * (_FIELD_COLUMNS - width(name))} "
    return wrap(words, indent=indent, hanging=" " * width(indent))


def _gap_lines(gaps: Sequence[Gap], indent: str) -> list[str]:
    """Return the consequences and remedies of gaps, as lines below a field's name."""
    lines = list[str]()
    for gap in gaps:
        lines += wrap(c.plain(gap.consequence), indent=indent)
        if gap.remedy:
            lines += wrap(c.plain(gap.remedy), indent=f"{indent}→ ", hanging=f"{indent}  ")
    return lines


def _gap_paragraphs(gaps: Sequence[Gap]) -> list[str]:
    """Return the consequences and remedies of gaps in HTML."""
    paragraphs = list[str]()
    for gap in gaps:
        paragraphs.append(c.paragraph(c.prose(gap.consequence), tight=True))
        if gap.remedy:
            paragraphs.append(c.paragraph("→ ", c.prose(gap.remedy), color=c.MUTED, tight=True))
    return paragraphs


def _unplaced_gaps(gaps: Sequence[Gap]) -> tuple[list[str], list[str]]:
    """Return gaps below the names of their fields, as lines and in HTML, for outside of a table."""
    lines = list[str]()
    body = list[str]()
    for field in dict.fromkeys(gap.capability for gap in gaps):
        field_gaps = [gap for gap in gaps if gap.capability == field]
        first, *rest = _gap_lines(field_gaps, " " * _VALUE_COLUMN)
        lines += [*_field_lines(field, first.strip()), *rest]
        body += [c.paragraph(c.code(field)), *_gap_paragraphs(field_gaps)]
    return lines, body


# --- gaps: parts of the policy that this machine does not enforce -------------------------------

TITLE: Final = "Not everything in this policy is enforced on this machine"
NO_GAPS: Final = "Everything in this policy is enforced on this machine"
#: The title under a backend that enforces nothing, with or without gaps.
_AUDIT_ONLY: Final = "Audit only: nothing of this policy is enforced by the operating system"
_MORE_NOTE: Final = "%policy shows all that is enforced."


def gaps(gaps: Sequence[Gap], *, policy_name: str, backend: str) -> Bundle:
    """Return the card above a first cell: what cells can do against the policy, and the remedies.

    A single gap is the card's title.
    """
    symbol, color = _sign(gaps, backend)
    title = _gaps_title(gaps, backend)
    rows = gaps
    if len(gaps) == 1 and backend != _NO_BACKEND:
        title = f"On this machine {visible(gaps[0].consequence)}"
        rows = ()
    lines = wrap(f"{'✗ ' if backend == _NO_BACKEND else ''}{title}")
    body = list[str]()
    for gap in rows:
        lines += wrap(c.plain(gap.consequence), indent="  ", hanging="    ")
        body.append(c.paragraph(c.prose(gap.consequence), tight=True))
    for remedy in dict.fromkeys(gap.remedy for gap in gaps if gap.remedy):
        lines += wrap(f"→ {c.plain(remedy)}", indent="  ", hanging="    ")
        body.append(c.paragraph("→ ", c.prose(remedy), color=c.MUTED))
    return c.make_card(
        title,
        *body,
        c.paragraph(_MORE_NOTE, color=c.MUTED),
        lines=[*lines, *wrap(_MORE_NOTE, indent="  ")],
        symbol=symbol,
        color=color,
        side=c.chips(("policy", clip(policy_name, c.NAME_COLUMNS)), ("backend", backend)),
        mime=ENFORCEMENT_JSON,
        data={"policy": policy_name, "backend": backend, "gaps": list(map(_gap_json, gaps))},
    )


def _gaps_title(gaps: Sequence[Gap], backend: str) -> str:
    if backend == _NO_BACKEND:
        return _AUDIT_ONLY
    return TITLE if gaps else NO_GAPS


def _gap_json(gap: Gap) -> dict[str, Any]:
    fields = ("capability", "status", "asked", "actual", "consequence", "remedy")
    return {field: getattr(gap, field) for field in fields}


def gap_line(gap: Gap) -> str:
    """Return a gap as one line for a log."""
    start = f"gap: {gap.capability} is {gap.status}"
    text = f"{start}: {_asked_and_actual(gap)}; {gap.consequence}; remedy: {gap.remedy}"
    return visible(text).replace("\n", " ")


def gaps_text(gaps: Sequence[Gap], backend: str = "") -> str:
    """Return all gaps as text for a terminal, 80 columns wide."""
    title = f"{'✗ ' if backend == _NO_BACKEND else ''}{_gaps_title(gaps, backend)}"
    if not gaps:
        return title
    names = [clip(visible(gap.capability), _CAPABILITY_COLUMNS) for gap in gaps]
    column = max(map(width, names))
    lines = wrap(title)
    for gap, name in zip(gaps, names, strict=True):
        indent = f"  {name}{' ' * (column - width(name))}   {gap.status:<{_STATUS_COLUMNS}}  "
        hanging = " " * width(indent)
        lines += wrap(gap.consequence, indent=indent, hanging=hanging)
        if gap.remedy:
            lines += wrap(gap.remedy, indent=f"{hanging}→ ", hanging=f"{hanging}  ")
    return "\n".join(lines)


def _asked_and_actual(gap: Gap) -> str:
    return f"asked: {gap.asked}; here: {gap.actual}"


# --- %policy: what the policy asks for, and how far it is enforced ------------------------------

#: Fields that identify the policy. They are above the table.
_HEAD_FIELDS: Final = ("name", "mode", "backend")
#: The row of a field that no policy has. The card shows such a field all the same.
_UNKNOWN_ROW: Final = Row(narrower=Never("no policy has it"))
_CELL_STYLE: Final = "text-align:left;vertical-align:top;padding:4px 8px;overflow-wrap:break-word"
_CELL_STYLES: Final = (
    f"{_CELL_STYLE};min-width:min(16em,22vw)",
    # A path may be broken anywhere, and a word has room.
    f"{_CELL_STYLE};overflow-wrap:anywhere;min-width:10em",
    f"{_CELL_STYLE};overflow-wrap:anywhere;min-width:10em",
)
_ALL_FIELDS: Final = "Unused fields are left out: `cellblock policy show` has all."
_ASSERTED_NOTE: Final = (
    "verified: tried on this machine, and it held. asserted: set, and not tried; "
    "`cellblock doctor` tries what can be tried. "
)
_COLUMNS: Final = ("Field", "Asked", "Enforced")


def _rows(view: Mapping[str, object], shown: Collection[str]) -> dict[str, object]:
    """Return the fields of a policy to show, with their values, in the order of the table.

    Fields that have no effect are left out, unless they are in ``shown``.
    """
    # A field with words of its own is shown as a whole, not by the fields of its table.
    whole = {name: value for name, value in view.items() if _row(name).words is not None}
    fields = flat_fields({name: value for name, value in view.items() if name not in whole}) | whole

    def in_one_of(field: str, tables: Collection[str]) -> bool:
        return any(field == table or field.startswith(f"{table}.") for table in tables)

    def counts(field: str) -> bool:
        """Return whether a field has an effect: it is used, and so is the field it depends on."""
        row = _row(field)
        if row.only_with is not None:
            needed_fields, values = row.only_with
            needed_fields = (needed_fields,) if isinstance(needed_fields, str) else needed_fields
            if values == "any":
                return any(
                    value for name, value in fields.items() if in_one_of(name, needed_fields)
                )
            return any(fields.get(needed) in values for needed in needed_fields)
        return row.shown is not Shown.used or fields[field] not in ((), {}, "", "never")

    places = list(Shown)
    ordered = sorted(fields, key=lambda field: places.index(_row(field).shown))
    return {
        name: fields[name]
        for name in ordered
        if name not in _HEAD_FIELDS and (name in shown or counts(name))
    }


def _row(field: str) -> Row:
    """Return the row of a field, or of the table that it is in."""
    return ROWS.get(field.partition(".")[0], _UNKNOWN_ROW)


def _field_name(field: str) -> c.Html:
    """Return a field's name in HTML, which may be broken only behind underscores."""
    parts = re.findall(r"[^_]+_*|_+", field)
    return c.code(
        c.join(*(c.element("span", piece, style="display:inline-block") for piece in parts))
    )


def _asked_words(field: str, value: object, before: Mapping[str, object]) -> str:
    """Return a field's value in words, and how it was narrowed, if it was.

    ``before`` has the earlier values of narrowed fields. Entries that a narrowing added to a list,
    as of denied paths, come first.
    """
    if field not in before:
        return _value_words(field, value)
    earlier = before[field]
    removed, added = _lost_and_gained(earlier, value)
    if added and not removed:
        earlier_words = f", {_value_words(field, earlier)}" if earlier else ""
        return f"{_value_words(field, added)} (narrowed){earlier_words}"
    if removed and not added:
        return f"{_value_words(field, value)} (narrowed: without {_value_words(field, removed)})"
    return f"{_value_words(field, value)} (narrowed from {_value_words(field, earlier)})"


def _lost_and_gained(before: object, after: object) -> tuple[list[object], list[object]]:
    """Return the entries that a list lost and those that it got.

    Both are empty if one of the values is not a list, or if the list is empty now.
    """
    if not (isinstance(before, tuple) and isinstance(after, tuple) and after):
        return [], []
    removed = [entry for entry in before if entry not in after]
    return removed, [entry for entry in after if entry not in before]


def policy_table(
    policy_view: Mapping[str, object],
    enforcement: Sequence[Enforcement],
    gaps: Sequence[Gap],
    before: Mapping[str, object] = MappingProxyType({}),
) -> Bundle:
    """Return the table of a policy, which ``%policy`` shows.

    ``policy_view`` has the policy's fields; ``name``, ``mode`` and ``backend`` are above the table.
    A field without an enforcement of its own shows none. ``before`` has the values of narrowed
    fields at the kernel's start. HTML folds rarely needed fields away, unless they have a gap or
    are narrowed.
    """
    backend = policy_view.get("backend")
    tried = any(entry.status == "verified" for entry in enforcement)
    name = f"{policy_view.get('name', '')}{' (narrowed)' if before else ''}"
    if backend == _NO_BACKEND:
        title = f"Policy {name}: audit only, nothing here is enforced by the OS"
    elif gaps:
        title = f"Policy {name}: {count(len(gaps), 'gap')} on this machine"
    elif tried:
        title = f"Policy {name}: enforced on this machine"
    else:
        title = f"Policy {name}: in place on this machine, and not tried"
    head = [(key, str(policy_view[key])) for key in _HEAD_FIELDS[1:] if key in policy_view]
    lines = wrap(title) + wrap(", ".join(f"{key}: {value}" for key, value in head))
    rows = list[tuple[str, str, str]]()
    folded_rows = list[tuple[str, str, str]]()
    by_name = {entry.capability: entry for entry in enforcement}
    special = {*before, *(gap.capability for gap in gaps)}
    fields = _rows(policy_view, special)
    for field, value in fields.items():
        words = _asked_words(field, value, before)
        field_gaps = [gap for gap in gaps if gap.capability == field]
        lines += _field_lines(field, words)
        # A field without a limit has nothing to enforce.
        enforced = None if value is None else by_name.get(field)
        enforced_html = c.join(*_gap_paragraphs(field_gaps))
        if enforced is not None:
            mechanism = enforced.mechanism
            if enforced.holes and not field_gaps:
                # If there is a gap, it says this.
                mechanism += f"; not covered: {', '.join(enforced.holes)}"
            status = f"{look(enforced.status)[0]} {enforced.status}: {c.plain(mechanism)}"
            indent = " " * _VALUE_COLUMN
            lines += wrap(status, indent=indent, hanging=indent + "  ")
            mechanism_html = c.element("div", c.prose(mechanism), style=f"color:{c.MUTED}")
            enforced_html = c.join(badge(enforced.status), mechanism_html, enforced_html)
        lines += _gap_lines(field_gaps, " " * (_VALUE_COLUMN + 2))
        table_rows = rows if _row(field).shown is Shown.first or field in special else folded_rows
        table_rows.append((_field_name(field), words, enforced_html))
    other_lines, unplaced_html = _unplaced_gaps(
        [gap for gap in gaps if gap.capability not in fields]
    )
    asserted = any(entry.status == "asserted" for entry in enforcement)
    note = _ASSERTED_NOTE * asserted + _ALL_FIELDS
    symbol, color = _sign(gaps, backend, tried=tried)
    folded_table = c.table(_COLUMNS, folded_rows, _CELL_STYLES)
    data = {
        "policy": dict(policy_view),
        "enforcement": list(map(_enforcement_json, enforcement)),
        "gaps": list(map(_gap_json, gaps)),
    }
    if before:
        data["narrowed_from"] = dict(before)
    return c.make_card(
        title,
        c.table(_COLUMNS, rows, _CELL_STYLES),
        *unplaced_html,
        c.folded(count(len(folded_rows), "more field"), folded_table) if folded_rows else "",
        c.paragraph(c.prose(note), color=c.MUTED),
        lines=lines + other_lines + wrap(c.plain(note)),
        symbol=symbol,
        color=color,
        side=c.chips(*head),
        mime=POLICY_JSON,
        data=data,
    )


def allowances(
    policy_view: Mapping[str, object], gaps: Sequence[Gap], modules: Sequence[str] | None
) -> str:
    """Return what a policy allows, a line for each field, and its gaps, for a language model.

    A model has no use for mechanisms, or for fields that are not ``for_cells``. Limits that are not
    set are left out. ``modules`` are all modules that cells can import, or None if all can be.
    """
    lines = [f"Policy {policy_view.get('name', '')}, mode {policy_view.get('mode', '')}:"]
    fields = _rows(policy_view, {gap.capability for gap in gaps})
    for field, value in fields.items():
        if modules is not None and field == "allowed_modules":
            lines.append(f"modules that cells can import: {', '.join(modules)}")
        elif value is not None and _row(field).for_cells:
            lines.append(f"{field}: {_asked_words(field, value, {})}")
    return "\n".join([*lines, *map(gap_line, gaps)])


def enforced(
    policy_view: Mapping[str, object], enforcement: Sequence[Enforcement]
) -> list[tuple[str, str]]:
    """Return the fields that hold: each with its value in words, and the mechanism behind it."""
    by_name = {entry.capability: entry for entry in enforcement if entry.holds}
    return [
        (
            f"{field}: {_value_words(field, value)}",
            f"{entry.status}: {entry.mechanism}",
        )
        for field, value in _rows(policy_view, ()).items()
        if value is not None and (entry := by_name.get(field)) is not None
    ]


def unverified(gaps: Sequence[Gap], backend: str, proved: str) -> str:
    """Return why it is not known that a policy holds; empty if probes proved it.

    ``proved`` is the time of the proof, or empty.
    """
    if gaps or backend == _NO_BACKEND:
        return f"{_gaps_title(gaps, backend)}."
    if proved:
        return ""
    return (
        "The limits are set, and not yet tried on this machine. "
        "This kernel tries them soon; cellblock doctor tries them at once."
    )


def _enforcement_json(enforcement: Enforcement) -> dict[str, Any]:
    fields = ("capability", "status", "mechanism", "holes", "evidence")
    return {field: getattr(enforcement, field) for field in fields}


# --- a policy that has become narrower ----------------------------------------------------------

_UNCHANGED: Final = "Nothing changes: the policy is as narrow as that already"
_NARROWER: Final = "The policy is narrower from the next cell on"
_FOR_GOOD: Final = "It stays so until the kernel is restarted."
_NOT_WHOLLY: Final = "Not everything of it is enforced here:"


class Guest(StrEnum):
    """The guest that runs cells after a narrowing, which decides about their variables."""

    same = "same"  # the guest from before: nothing changed that concerns a guest
    new = "new"  # a new guest, but no cell had run in the old one
    kept = "kept"  # a copy of the guest under more locks, with its variables
    instead = "instead"  # a new guest, which replaced one with variables


_GUEST_NOTES: Final = {
    Guest.same: "",
    Guest.new: "",
    Guest.kept: "Your variables are kept, and cells run under the new limits.",
    Guest.instead: "Your variables are gone: cells start afresh, and under the new limits.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A field that a narrowing changed, with its value before and after."""

    field: str
    before: object
    after: object

    @property
    def words(self) -> str:
        """The change in words: ``without numpy``, ``60 s → 10 s``."""
        before = self.before
        after = self.after
        removed, added = _lost_and_gained(before, after)
        if removed and not added:
            return f"without {_value_words(self.field, removed)}"
        if added and not removed:
            return f"also {_value_words(self.field, added)}"
        return f"{_value_words(self.field, before)} → {_value_words(self.field, after)}"


def narrowed(
    changes: Sequence[Change],
    *,
    policy_name: str,
    guest: Guest,
    lost: Sequence[str] = (),
    gaps: Sequence[Gap] = (),
) -> Bundle:
    """Return the card of a narrowing.

    ``gaps`` are the parts of it that this machine, or the guest that runs on, does not enforce.
    ``lost`` says what the copy of a guest lacks.
    """
    title = _NARROWER if changes else _UNCHANGED
    state = _GUEST_NOTES[guest] + (f" Not kept: {', '.join(lost)}." if lost else "")
    notes = [note for note in (state, _FOR_GOOD if changes else "") if note]
    lines = wrap(title)
    body = list[str]()
    for change in changes:
        lines += _field_lines(change.field, change.words)
        name = c.code(change.field)
        body.append(c.paragraph(name, f": {change.words}", tight=True))
    for note in notes:
        lines += wrap(note)
        body.append(c.paragraph(note, color=c.MUTED))
    symbol, color = _sign(gaps)
    if gaps:
        gap_lines, gap_html = _unplaced_gaps(gaps)
        lines += [_NOT_WHOLLY, *gap_lines]
        body += [c.paragraph(_NOT_WHOLLY), *gap_html]
    return c.make_card(
        title,
        *body,
        lines=lines,
        symbol=symbol,
        color=color,
        side=c.policy_chip(policy_name),
        mime=NARROWING_JSON,
        data={
            "policy": policy_name,
            "guest": guest,
            "lost": lost,
            "changes": [
                {
                    "field": change.field,
                    "before": _value_words(change.field, change.before),
                    "after": _value_words(change.field, change.after),
                }
                for change in changes
            ],
            "gaps": list(map(_gap_json, gaps)),
        },
    )
