"""What values, and texts of others, become in a record: bounded, and as they can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.analysis.admission import sha256
from cellblock.host.audit import records
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellblock.analysis import Finding
    from cellblock.host.session.types import Cell, Restored
    from cellblock.policy.enforcement import Gap

#: Characters of a text that a guest may have written.
_LONGEST: Final = 200


def expressions_of(cell: Cell, admitted: Iterable[str]) -> tuple[records.Expression, ...]:
    """Return a cell's expressions as they are entered; ``admitted`` are names of those that run."""
    names = set(admitted)
    return tuple(
        records.Expression(sha256=sha256(text), decision="allowed" if name in names else "denied")
        for name, text in cell.user_expressions.items()
    )


def refused(
    expressions: Iterable[records.Expression], those: records.Decision
) -> tuple[records.Expression, ...]:
    """Return the expressions of a cell that is refused, ``those`` among them refused with it."""
    return tuple(
        replace(each, decision="refused") if each.decision == those else each
        for each in expressions
    )


def bounded(times: Mapping[str, int]) -> dict[str, int]:
    """Return addresses as they are entered, and how often each was asked for."""
    return {said(address): number for address, number in times.items()}


def gap_of(gap: Gap) -> records.Gap:
    """Return a gap as it is entered."""
    return records.Gap(
        capability=gap.capability,
        status=str(gap.status),
        asked=gap.asked,
        consequence=gap.consequence,
        actual=gap.actual,
        contradicted=gap.contradicted,
    )


def restore_of(restored: Restored) -> records.Restore:
    """Return what a snapshot that took over lacks, as it is entered."""
    return records.Restore(
        threads=len(restored.threads),
        tasks=restored.tasks,
        files=restored.files,
        connections=restored.connections,
        again=restored.again,
        missed=restored.missed,
    )


def findings_of(findings: Sequence[Finding], *, sources: bool) -> tuple[records.Finding, ...]:
    """Return findings as they are entered: names that were refused, but no text beside them."""
    return tuple(
        records.Finding(
            rule=f.rule,
            line=f.line,
            column=f.column,
            subject=said(f.subject) if sources or _is_name(f.subject) else "",
            excerpt=said(f.excerpt) if sources else "",
        )
        for f in findings
    )


def _is_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.lstrip("%").split("."))


def name(text: str) -> str:
    """Return what should be a name, or nothing: a guest may say anything."""
    return text[:_LONGEST] if _is_name(text) else ""


def said(text: str) -> str:
    """Return a text of others, bounded."""
    return whole(text[:_LONGEST])


def whole(text: str) -> str:
    """Return a text as it can be written."""
    return encodable(text)
