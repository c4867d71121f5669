"""The report as GitHub's workflow commands, which become annotations of a pull request.

Escaped as the runner's toolkit does it: in data %, carriage return and line feed; in properties
the colon and the comma too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.batch.formats.inert import one_line
from cellblock.batch.formats.wording import place, reason, summary
from cellblock.render.bundle import count
from cellblock.render.excerpt import excerpt
from cellblock.render.findings import rewrites

if TYPE_CHECKING:
    from cellblock.batch.verdict import Checked, Found, Report

_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({":": "%3A", ",": "%2C"})


def github(report: Report) -> str:
    """Return one command for each finding and problem, and a line about the run."""
    lines = [_annotation(file, each) for file in report.files for each in file.verdict.found]
    lines += [
        _command({"file": file.path}, f"and {count(file.verdict.left_out, 'more finding')}")
        for file in report.files
        if file.verdict.left_out
    ]
    title = "cellblock could not check this path"
    lines += [_command({"title": title}, f"{p.path}: {p.message}") for p in report.problems]
    return "\n".join([*lines, one_line(summary(report))]) + "\n"


def _annotation(file: Checked, found: Found) -> str:
    finding, line = found.finding, str(max(1, found.file_line))
    where = {"file": file.path, "line": line, "endLine": line}
    if not found.cell:  # in a notebook's file a line of source is a string of JSON
        where |= {"col": str(finding.column + 1), "endColumn": str(finding.end_column)}
    said = [f"{place(found)}: {reason(found)}"] if found.cell else [reason(found)]
    if source := excerpt(finding).line.strip():
        said.append(source)
    said.append(f"Instead: {finding.remedy}")
    said += rewrites([finding])[0]
    return _command(where | {"title": finding.rule}, *said)


def _command(properties: dict[str, str], *lines: str) -> str:
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {told}::{_data(*lines)}"


def _property(value: str) -> str:
    return _data(value).translate(_PROPERTY)


def _data(*lines: str) -> str:
    return "\n".join(map(one_line, lines)).translate(_DATA)
