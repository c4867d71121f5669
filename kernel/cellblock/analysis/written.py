"""Findings by the lines that people wrote, where IPython made others of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cellblock.analysis.findings import EXCERPT_LIMIT, LINE_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.analysis.findings import Finding
    from cellblock.analysis.transform import Transformed


def as_written(found: Sequence[Finding], raw: str, transformed: Transformed) -> list[Finding]:
    """Return findings by the lines of ``raw``; they were made by those that IPython made of it."""
    if not transformed.changed or not found:
        return list(found)
    before = LINE_END.split(raw)
    lines = list(_lines(before, LINE_END.split(transformed.source), transformed.line_offset))
    made = []
    for finding in found:
        beyond = finding.line + transformed.line_offset  # in a cell magic's body, which is one line
        number = lines[finding.line - 1] if finding.line <= len(lines) else beyond
        made.append(_shown(finding, min(number, len(before)), before))
    return made


def _lines(before: list[str], after: list[str], offset: int) -> Iterator[int]:
    """Yield for each line of ``after`` that of ``before`` it is from. Both count from 1.

    IPython makes one line of an escape that goes on over several; all else keeps its line.
    """
    same = _count(before) - offset == _count(after)
    at = offset
    for line in after:
        yield at + 1
        while not same and at < len(before) - 1 and before[at] != line and before[at][-1:] == "\\":
            at += 1
        at += 1


def _count(lines: list[str]) -> int:
    return len(lines) - (not lines[-1])


def _shown(finding: Finding, number: int, before: list[str]) -> Finding:
    """Return a finding with the line as it was written, marked whole where it was transformed."""
    text = before[number - 1].replace("\t", " ")
    if text[finding.cut : finding.cut + EXCERPT_LIMIT] == finding.excerpt:
        return dataclasses.replace(finding, line=number)
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return dataclasses.replace(
        finding,
        line=number,
        column=start,
        end_column=max(end, start + 1),
        excerpt=text[:EXCERPT_LIMIT],
        cut=0,
    )
