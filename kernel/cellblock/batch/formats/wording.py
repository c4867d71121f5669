"""What all formats say of a finding, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.batch.rules import OWN
from cellblock.render.bundle import count
from cellblock.render.findings import subject
from cellblock.render.text import visible

if TYPE_CHECKING:
    from cellblock.batch.verdict import Found, Report


def place(found: Found) -> str:
    """Return where in its file a finding stands: ``cell 3, line 2``."""
    line = f"line {found.finding.line}"
    return f"cell {found.cell}, {line}" if found.cell else line


def reason(found: Found) -> str:
    """Return what is refused and why, without a full stop."""
    finding = found.finding
    if finding.rule in OWN:
        return f"this {'cell' if found.cell else 'file'} {visible(finding.why)}"
    named = f"{subject(finding)} " if finding.subject else ""
    return named + visible(finding.why)


def summary(report: Report) -> str:
    """Return one line about the run."""
    files = count(len(report.files), "file")
    with_findings = sum(bool(file.verdict.found) for file in report.files)
    said = f"{files}, no findings"
    if report.total:
        said = f"{count(report.total, 'finding')} in {with_findings:,} of {files}"
    if report.problems:
        said += f", {count(len(report.problems), 'path')} not checked"
    return f"{said} · policy {visible(report.policy)}{', template' * report.template}"
