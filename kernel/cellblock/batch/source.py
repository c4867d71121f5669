"""The source of one cell, or of a script, to findings: the kernel's own analysis.

What is found is told by the lines that people wrote, and source that no Python reads is found, too.
PURE.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from cellblock.analysis import (
    Finding,
    Rules,
    analyse,
    analyse_template,
    size,
    transform,
)
from cellblock.analysis.findings import LINE_END, Report
from cellblock.analysis.transform import parse
from cellblock.analysis.written import as_written
from cellblock.batch.rules import own_finding

#: Magics whose body is Python that the analysis has looked at, if it is.
_CELL_MAGIC: Final = re.compile(r"\s*%%(?:capture|prun|time|timeit)\b[^\r\n]*(?:\r\n|\r|\n)")


def judge_source(raw: str, rules: Rules, *, template: bool = False) -> list[Finding]:
    """Return what the kernel would find in a cell, by the lines of ``raw``, and if it is no code.

    Raises MemoryError.
    """
    if excess := size.excess(raw):
        return [_too_long(raw, rules, *excess)]
    transformed = transform(raw)
    source = transformed.source
    found = (analyse_template if template else analyse)(source, rules) or _syntax_errors(source)
    return as_written(found, raw, transformed) if found else _errors_in_body(raw)


def _too_long(raw: str, rules: Rules, has: int, cap: int, what: str) -> Finding:
    report = Report(raw, rules)
    why = f"is too long to be looked at: {has:,} {what}, and {cap:,} are the most"
    report.add_at("source-too-complex", (1, 0, 1), "", why=why)
    return report.findings[0]


def _syntax_errors(source: str) -> list[Finding]:
    """Return where Python gives up, if it does: the kernel lets that through and nothing runs."""
    try:
        parse(source)
    except SyntaxError as error:
        lines = LINE_END.split(source)
        line = min(max(1, error.lineno or 1), len(lines))
        text = lines[line - 1]
        column = min(max(0, (error.offset or 1) - 1), len(text))
        why = f"is not Python: {error.msg}"
        return [own_finding("source-not-python", why, line=line, column=column, text=text)]
    except (ValueError, RecursionError):
        pass  # the analysis has told
    return []


def _errors_in_body(raw: str) -> list[Finding]:
    """Return where Python gives up in the code that a cell magic carries.

    Magics within magics are few here: the analysis has refused more.
    """
    magic = _CELL_MAGIC.match(raw)
    if magic is None:
        return []
    body = raw[magic.end() :]
    transformed = transform(body)
    errors = _syntax_errors(transformed.source)
    found = as_written(errors, body, transformed) if errors else _errors_in_body(body)
    above = len(LINE_END.findall(magic[0]))
    return [dataclasses.replace(each, line=each.line + above) for each in found]
