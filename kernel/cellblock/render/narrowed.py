"""The card for a policy that has become narrower: what is left, since when, and what is not yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, NARROWING_JSON, Bundle
from cellblock.render.gaps import gap_json
from cellblock.render.status import capability_words
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap
from cellblock.render.values import asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.enforcement import Gap

_NOTHING: Final = "Nothing changes: the policy is as narrow as that already"
_TITLE: Final = "The policy is narrower from the next cell on"
_FOR_GOOD: Final = "It stays so until the kernel is restarted."
_NAME_COLUMNS: Final = 24


class Guest(StrEnum):
    """Where cells run from now on, and what became of their variables."""

    same = "same"
    """Where they did: nothing that a guest is made of changed."""

    new = "new"
    """In a new guest, before anything had run."""

    kept = "kept"
    """In a copy of the guest that has more locks, with the variables that there were."""

    instead = "instead"
    """In a new guest, in place of one with variables."""


_GUESTS: Final = {
    Guest.same: "",
    Guest.new: "",
    Guest.kept: "Your variables are there: a copy of the guest goes on, under more locks.",
    Guest.instead: "Your variables are gone: a new guest runs, which never had more than this.",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A field that changed, its value before, and its value now."""

    field: str
    before: object
    after: object

    @property
    def words(self) -> str:
        """What became of it."""
        before, after = self.before, self.after
        if isinstance(before, tuple) and isinstance(after, tuple) and after:
            gone = [entry for entry in before if entry not in after]
            more = [entry for entry in after if entry not in before]
            if gone and not more:
                return f"without {asked(self.field, gone)}"
            if more and not gone:
                return f"also {asked(self.field, more)}"
        return f"{asked(self.field, before)} → {asked(self.field, after)}"


def narrowed(
    rows: Sequence[Row],
    *,
    policy_name: str,
    guest: Guest,
    lost: Sequence[str] = (),
    gaps: Sequence[Gap] = (),
) -> Bundle:
    """Return the card; ``gaps`` are what this machine, or this guest, does not enforce of it.

    ``lost`` names what the copy of a guest does not have.
    """
    title = _TITLE if rows else _NOTHING
    state = _GUESTS[guest] + (f" Not with it: {', '.join(lost)}." if lost else "")
    notes = [note for note in (state, _FOR_GOOD if rows else "") if note]
    return {
        "text/plain": _plain(title, rows, notes, gaps),
        "text/html": _html(title, rows, notes, gaps, policy_name),
        NARROWING_JSON: {
            "version": JSON_VERSION,
            "policy": encodable(policy_name),
            "guest": str(guest),
            "lost": [encodable(item) for item in lost],
            "changes": [_json(row) for row in rows],
            "gaps": [gap_json(gap) for gap in gaps],
        },
    }


def _json(row: Row) -> dict[str, str]:
    return {
        "field": encodable(row.field),
        "before": encodable(asked(row.field, row.before)),
        "after": encodable(asked(row.field, row.after)),
    }


def _warning(gap: Gap) -> str:
    return f"{capability_words(gap.capability)}: {gap.consequence} → {gap.remedy}"


def _plain(title: str, rows: Sequence[Row], notes: Sequence[str], gaps: Sequence[Gap]) -> str:
    lines = wrap(title, columns=COLUMNS)
    for row in rows:
        name = clip(visible(capability_words(row.field)), _NAME_COLUMNS)
        indent = f"  {name}{' ' * (_NAME_COLUMNS - width(name))} "
        hanging = " " * width(indent)
        lines += wrap(row.words, indent=indent, hanging=hanging, columns=COLUMNS)
    for note in notes:
        lines += wrap(note, columns=COLUMNS)
    for gap in gaps:
        lines += wrap(_warning(gap), indent="! ", hanging="  ", columns=COLUMNS)
    return "\n".join(lines)


def _html(
    title: str, rows: Sequence[Row], notes: Sequence[str], gaps: Sequence[Gap], policy_name: str
) -> m.Html:
    body = [
        m.paragraph(m.element("b", capability_words(row.field)), f": {row.words}", tight=True)
        for row in rows
    ]
    body += [m.paragraph(note, color=m.MUTED) for note in notes]
    body += [m.paragraph(f"! {_warning(gap)}", tight=True) for gap in gaps]
    symbol, color = ("◐", m.AMBER) if gaps else ("✓", m.GREEN)
    side = m.chip("policy", clip(visible(policy_name), 40))
    return m.card(title, *body, symbol=symbol, color=color, label=title, side=side)
