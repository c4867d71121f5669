"""What is said of findings, however it is drawn: in a line, with remedies and rewrites, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.render.bundle import count
from cellblock.render.text import clip, encodable, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.analysis import Finding

#: Lines of a rewrite: a guest may claim more.
_MOST_REWRITE = 2
_IN_SUMMARY = 4
#: Columns that a name is given.
NAME_COLUMNS = 40
#: Rules whose reasons are whole sentences.
ABOUT_THE_CELL = frozenset(
    {
        "argument-not-allowed",
        "cell-not-approved",
        "not-a-template",
        "relative-import",
        "source-too-complex",
        "template-not-found",
        "template-state",
    }
)


def summary(findings: Sequence[Finding]) -> str:
    """Return one line: ``2 findings: import-not-allowed at line 1 (os), …``."""
    named = [
        f"{visible(f.rule)} at line {f.line}" + (f" ({subject(f)})" if f.subject else "")
        for f in findings[:_IN_SUMMARY]
    ]
    left = len(findings) - len(named)
    more = [f"and {left:,} more"] if left else []
    return f"{count(len(findings), 'finding')}: {', '.join([*named, *more])}"


def subject(finding: Finding) -> str:
    """Return what a finding is about, visible and not too long."""
    return clip(visible(finding.subject), NAME_COLUMNS)


def remedies(findings: Sequence[Finding]) -> list[str]:
    """Return each finding's remedy, empty where an earlier finding has said it."""
    said: set[str] = set()
    told = []
    for finding in findings:
        told.append("" if finding.remedy in said else _continued(finding.remedy))
        said.add(finding.remedy)
    return told


def rewrites(findings: Sequence[Finding]) -> list[list[str]]:
    """Return each finding's rewrite by lines, none where an earlier finding has shown it."""
    shown = [finding.rewrite for finding in findings]
    return [
        []
        if text in shown[:index]
        else [visible(ln) for ln in text.split("\n")[:_MOST_REWRITE] if ln]
        for index, text in enumerate(shown)
    ]


def _continued(remedy: str) -> str:
    """Return ``remedy`` as it reads after "Instead:"; names and acronyms keep their case."""
    first, _, _ = remedy.partition(" ")
    return remedy[:1].lower() + remedy[1:] if first.istitle() and first.isalpha() else remedy


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON data: lines count from 1, columns from 0 and in characters."""
    told = {
        "rule": finding.rule,
        "line": finding.line,
        "column": finding.column,
        "end_column": finding.end_column,
        "excerpt": encodable(finding.excerpt),
        "subject": encodable(finding.subject),
        "why": encodable(finding.why),
        "remedy": encodable(finding.remedy),
    }
    more = {"detail": finding.detail, "rewrite": finding.rewrite}
    return told | {key: encodable(text) for key, text in more.items() if text}
