"""A file's content to a verdict: its cells in order, with places as they were written.

PURE but for the time and memory that it takes; ``batch.worker`` bounds those.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, AnyStr

import msgspec

from cellblock.analysis.findings import Report
from cellblock.analysis.policy import NO_RULES
from cellblock.analysis.templates import entry
from cellblock.batch.cells import Cells
from cellblock.batch.notebook import UnreadableError, read_notebook, read_script
from cellblock.batch.positions import Places, place_of
from cellblock.batch.rules import own_finding
from cellblock.batch.verdict import MOST_FOUND, Found, Kind, Verdict
from cellblock.errors import AdmissionError, PolicyError, WideningError
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.batch.cells import By
    from cellblock.batch.notebook import Notebook


def judge(content: bytes, kind: Kind, by: By, file: Path) -> Verdict:
    """Return what is found in a notebook or a script, which lies at ``file``.

    Raises:
        MemoryError: it takes more than there is.

    """
    cells = Cells(by, file)
    try:
        if kind == Kind.script:
            found = _judge_script(read_script(content), cells, template=by.template)
        else:
            found = _judge_notebook(read_notebook(content), cells, file)
    except UnreadableError as error:
        found = [_unreadable(error, content)]
    except AdmissionError as error:
        return Verdict(placed=True, problem=encodable(f"what may run is not known: {error}"))
    told = tuple(map(_carried, found[:MOST_FOUND]))
    return Verdict(told, len(found[MOST_FOUND:]), placed=cells.placed)


def _judge_script(source: str, cells: Cells, *, template: bool) -> list[Found]:
    each = [*cells.judge(source), *(entry(source) if template else ())]
    return [Found(finding, 0, finding.line) for finding in sorted(each)]


def _judge_notebook(notebook: Notebook, cells: Cells, file: Path) -> list[Found]:
    """Judge the cells in order. Metadata that no kernel takes is found before them."""
    try:
        cells.narrow_as(notebook, file)
        before = []
    except PolicyError as error:
        before = [_not_narrowed(error, notebook.text)]
    found = [
        (cell.number, finding) for cell in notebook.cells for finding in cells.judge(cell.source)
    ]
    if not found:
        return before
    places = Places(notebook.text)
    each = (Found(one, cell, places.file_line(cell, one.line)) for cell, one in found)
    return [*before, *each]


def _not_narrowed(error: PolicyError, text: str) -> Found:
    """Return why no kernel would run a notebook that asks for this, where it asks."""
    from cellblock.policy.cell import NOT_KEPT, ONLY_NARROWS  # noqa: PLC0415 - few notebooks ask

    rule = ONLY_NARROWS if isinstance(error, WideningError) else NOT_KEPT
    line, start, end = place_of(text, error.key.split("."))
    report = Report(_line(text, line, "\n"), NO_RULES)
    got = "" if rule == ONLY_NARROWS or not error.value else f": {error.value}"
    why = f"{error.key}: {error.message}{got}"
    report.add_at(rule, (1, start, end), error.key, why=why, remedy=error.remedy)
    return Found(dataclasses.replace(report.findings[0], line=line), 0, line)


def _unreadable(error: UnreadableError, content: bytes) -> Found:
    text = "" if error.cell else _line(content, error.line, b"\n").decode(errors="replace")
    finding = own_finding(
        "file-not-readable", error.why, line=error.line, column=error.column, text=text
    )
    return Found(finding, error.cell, 0 if error.cell else error.line)


def _line(text: AnyStr, number: int, newline: AnyStr) -> AnyStr:
    start = 0
    for _ in range(number - 1):
        start = text.find(newline, start) + 1
    end = text.find(newline, start)
    return text[start : len(text) if end < 0 else end]


def _carried(found: Found) -> Found:
    """Return what can be sent: source may hold half a letter."""
    finding = found.finding
    carried = dataclasses.replace(
        finding,
        excerpt=encodable(finding.excerpt),
        subject=encodable(finding.subject),
        why=encodable(finding.why),
    )
    return msgspec.structs.replace(found, finding=carried)
