"""The report for people: a place that editors open, the line with a caret, why, what instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.batch.formats.inert import inert
from cellblock.batch.formats.wording import summary
from cellblock.render.bundle import count
from cellblock.render.denial import drawn_source
from cellblock.render.findings import remedies, rewrites
from cellblock.render.text import COLUMNS, clip, visible, wrap

if TYPE_CHECKING:
    from cellblock.batch.verdict import Checked, Found, Report


def text(report: Report) -> str:
    """Return the report; paths that could not be checked are told elsewhere, one a line."""
    blocks = [block for file in report.files for block in _blocks(file)]
    return inert("\n\n".join([*blocks, summary(report)])) + "\n"


def _blocks(file: Checked) -> list[str]:
    found = file.verdict.found
    findings = [each.finding for each in found]
    drawn = zip(found, remedies(findings), rewrites(findings), strict=True)
    blocks = [_block(file.path, *one) for one in drawn]
    if more := file.verdict.left_out:
        blocks.append(f"{visible(file.path)}: and {count(more, 'more finding')}")
    return blocks


def _block(path: str, found: Found, remedy: str, rewrite: list[str]) -> str:
    finding = found.finding
    cell = f"cell {found.cell}:" if found.cell else ""
    lines = [f"{visible(path)}:{cell}{finding.line}:{finding.column + 1}: {visible(finding.rule)}"]
    if finding.excerpt.strip():
        lines += drawn_source(finding, COLUMNS)
    else:
        lines += wrap(finding.why, indent="  ", columns=COLUMNS)
    if remedy:
        lines += wrap(f"Instead: {remedy}", indent="  ", columns=COLUMNS)
    lines += [f"    {clip(line, COLUMNS - 4)}" for line in rewrite]
    return "\n".join(lines)
