"""The card for what the policy asks and this machine does not enforce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.render import markup as m
from cellblock.render.bundle import ENFORCEMENT_JSON, JSON_VERSION, Bundle
from cellblock.render.status import badge, capability_words
from cellblock.render.text import COLUMNS, clip, encodable, visible, width, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.enforcement import Gap

TITLE = "Not everything in this policy is enforced on this machine"
#: Said in place of the title under a backend that enforces nothing, gaps or not.
AUDIT_ONLY = "Audit only: nothing of this policy is enforced by the operating system"
NO_GAPS = "Everything in this policy is enforced on this machine"
_STATUS_COLUMNS = 11
_NAME_COLUMNS = 28


def audit_only(backend: object) -> bool:
    """Return whether ``backend`` is the one that looks and holds nothing."""
    return backend == "noop"


def gaps(gaps: Sequence[Gap], *, policy_name: str, backend: str) -> Bundle:
    """Return the enforcement card: one row per gap, with its consequence and remedy."""
    return {
        "text/plain": plain(gaps, backend),
        "text/html": _html(gaps, policy_name, backend),
        ENFORCEMENT_JSON: {
            "version": JSON_VERSION,
            "policy": encodable(policy_name),
            "backend": encodable(backend),
            "gaps": [gap_json(gap) for gap in gaps],
        },
    }


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


def line(gap: Gap) -> str:
    """Return a gap as one line of a log."""
    what = f"gap: {capability_words(gap.capability)} is {gap.status}"
    said = f"{what}: {_asked(gap)}; {gap.consequence}; remedy: {gap.remedy}"
    return visible(said).replace("\n", " ")


def _asked(gap: Gap) -> str:
    return f"asked: {gap.asked}; here: {gap.actual}"


def _title(gaps: Sequence[Gap], backend: str) -> str:
    if audit_only(backend):
        return AUDIT_ONLY
    return TITLE if gaps else NO_GAPS


def plain(gaps: Sequence[Gap], backend: str = "") -> str:
    """Return the card for a terminal, 80 columns wide."""
    title = f"{'✗ ' if audit_only(backend) else ''}{_title(gaps, backend)}"
    if not gaps:
        return title
    names = [clip(visible(capability_words(g.capability)), _NAME_COLUMNS) for g in gaps]
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


def _html(gaps: Sequence[Gap], policy_name: str, backend: str) -> m.Html:
    title = _title(gaps, backend)
    symbol, color = ("◐", m.AMBER) if gaps else ("✓", m.GREEN)
    if audit_only(backend):
        symbol, color = "✗", m.RED
    side = m.chips(("policy", clip(policy_name, 40)), ("backend", backend))
    rows = [_row(gap) for gap in gaps]
    return m.card(title, *rows, symbol=symbol, color=color, label=title, side=side)


def _row(gap: Gap) -> m.Html:
    """Return a gap: what it means first, what was asked and what is there, what closes it."""
    name = m.element("span", capability_words(gap.capability), style="font-weight:600")
    head = m.heading(name, " · ", badge(gap.status), level=4)
    shown = [m.paragraph(gap.consequence, tight=True)]
    shown.append(m.paragraph(_asked(gap), color=m.MUTED, tight=True))
    if gap.remedy:
        shown.append(m.paragraph("→ ", gap.remedy, color=m.MUTED, tight=True))
    return m.element("div", head, *shown, style="margin-top:8px")
