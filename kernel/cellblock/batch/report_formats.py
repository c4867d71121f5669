"""A report as a text, as JSON, as SARIF, as GitHub's annotations. Pure.

Paths and source are a stranger's: they reach nobody's terminal or CI runner but inert.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import cellblock
from cellblock.batch import Format
from cellblock.batch.verdict import OWN, REPORTED
from cellblock.render.cards import JSON_VERSION, count
from cellblock.render.denial import drawn_source, excerpt, finding_json, remedies, rewrites, subject
from cellblock.render.text import COLUMNS, clip, encodable, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.analysis import Rule
    from cellblock.batch.verdict import Checked, Found, Problem, Report


# Text that neither a terminal nor a CI runner takes for a command.
#
# GitHub's runner acts on a line that begins with ``::`` behind blanks, and on ``##[`` anywhere
# in one (``ActionCommand.cs``, ``TryParseV2`` and ``TryParse``); Azure's on ``##vso[``,
# TeamCity's on ``##teamcity[``.

#: Stands where a character of a command was.
_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"
_ANYWHERE: Final = re.compile(r"##(?=\w*\[)")
_AT_START: Final = re.compile(r"^(\s*):(?=:)")


def inert(text: str) -> str:
    """Return text of visible lines with one character of each command replaced.

    As many columns as before, so that what stands below a character stays there.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return any text as one visible line that commands nothing."""
    return _line(visible(text))


def json_text(value: Any) -> str:
    """Return JSON in ASCII, indented. What commands is spelled by its number."""
    return json.dumps(value, indent=2).replace("##", "#\\u0023") + "\n"


def _line(line: str) -> str:
    return _AT_START.sub(rf"\1{_INSTEAD}", _ANYWHERE.sub(f"#{_INSTEAD}", line))


def data(report: Report) -> str:
    """Return the report. Of a finding, ``line`` is the cell's and ``file_line`` the file's."""
    return json_text(
        {
            "version": JSON_VERSION,
            "cellblock": cellblock.__version__,
            "policy": encodable(report.policy),
            "template": report.template,
            "status": report.status,
            "files": len(report.files),
            "total": report.total,
            "findings": [
                _found(file, each) for file in report.files for each in file.verdict.found
            ],
            "left_out": {
                encodable(file.path): file.verdict.left_out
                for file in report.files
                if file.verdict.left_out
            },
            "problems": [
                {"path": encodable(one.path), "message": encodable(one.message)}
                for one in report.problems
            ],
        }
    )


def _found(file: Checked, found: Found) -> dict[str, Any]:
    place = {
        "path": encodable(file.path),
        "cell": found.cell or None,
        "file_line": found.file_line or None,
    }
    return place | finding_json(found.finding)


# What all formats say of a finding, in the same words.


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


# The report as GitHub's workflow commands, which become annotations of a pull request.
#
# Escaped as the runner's toolkit does it: in data %, carriage return and line feed; in
# properties the colon and the comma too.

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


# The report for people: a place that editors open, the line with a caret, why, what instead.


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


# The report as SARIF 2.1.0 (OASIS, 2020), for code scanning.
#
# Regions are of the file, in a notebook that of the JSON; the cell is the logical location.

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
#: What GitHub takes of one run.
MOST_RESULTS: Final = 25_000
#: What viewers make links and arguments of in a message (3.11.5, 3.11.6).
_LINK: Final = re.compile(r"\](?=\()")
_ARGUMENT: Final = re.compile(r"\{(?=\d+\})")
_NUMBERS: Final = {name: number for number, name in enumerate(REPORTED)}


def sarif(report: Report) -> str:
    """Return the report as one run."""
    results = [result for file in report.files for result in _results(file)]
    return json_text(
        {
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {"driver": _driver()},
                    "columnKind": "unicodeCodePoints",
                    "invocations": [_invocation(report, len(results[MOST_RESULTS:]))],
                    "results": results[:MOST_RESULTS],
                    "properties": {
                        "policy": encodable(report.policy),
                        "template": report.template,
                    },
                }
            ],
        }
    )


def rules_page() -> str:
    """Return where the rules are described, as the package tells it; nothing if it does not."""
    try:
        urls = metadata.metadata("cellblock").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return ""
    found = (url.partition(", ")[2] for url in urls if url.startswith("Documentation, "))
    return f"{base.rstrip('/')}/rules.html" if (base := next(found, "")) else ""


def _driver() -> dict[str, Any]:
    page = rules_page()
    driver: dict[str, Any] = {
        "name": "cellblock",
        "semanticVersion": cellblock.__version__,
        "rules": [_rule(rule, page) for rule in REPORTED.values()],
    }
    return driver | ({"informationUri": page} if page else {})


def _rule(rule: Rule, page: str) -> dict[str, Any]:
    why = f"{rule.why[0].upper()}{rule.why[1:]}."
    described = {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title}: {rule.why}."},
        "help": {
            "text": f"{rule.title}. {why} Instead: {rule.remedy}",
            "markdown": f"**{rule.title}.** {why}\n\n**Instead.** {rule.remedy}",
        },
        "defaultConfiguration": {"level": "error"},
    }
    return described | ({"helpUri": f"{page}#{rule.id}"} if page else {})


def _invocation(report: Report, left_out: int) -> dict[str, Any]:
    told = [_notification(problem) for problem in report.problems]
    hidden = left_out + sum(file.verdict.left_out for file in report.files)
    if hidden:
        told.append({"level": "error", "message": _message(f"{hidden:,} findings are left out")})
    return {
        "executionSuccessful": not report.problems,
        "exitCode": report.status,
        "toolExecutionNotifications": told,
    }


def _notification(problem: Problem) -> dict[str, Any]:
    where = {"physicalLocation": {"artifactLocation": _artifact(problem.path)}}
    message = _message(f"{problem.path}: {problem.message}")
    return {"level": "error", "message": message, "locations": [where]}


def _results(file: Checked) -> Iterator[dict[str, Any]]:
    seen = Counter[str]()
    for found in file.verdict.found:
        finding = found.finding
        mark = _digest(finding.rule, finding.subject, finding.excerpt)
        seen[mark] += 1
        said = f"{place(found)}: {reason(found)}." if found.cell else f"{reason(found)}."
        yield {
            "ruleId": finding.rule,
            "ruleIndex": _NUMBERS[finding.rule],
            "level": "error",
            "message": _message(f"{said} Instead: {finding.remedy}", *rewrites([finding])[0]),
            "locations": [_location(file.path, found)],
            # Which of those alike it is, and not the line: it may move.
            "partialFingerprints": {"cellblock/v1": _digest(mark, str(seen[mark]))},
        }


def _message(*lines: str) -> dict[str, str]:
    """Return a message that is text and nothing else."""
    text = "\n".join(map(visible, lines))
    return {"text": _ARGUMENT.sub("{ ", _LINK.sub("] ", text))}


def _location(path: str, found: Found) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(1, found.file_line)}
    finding = found.finding
    if not found.cell:
        region |= {"startColumn": finding.column + 1, "endColumn": finding.end_column + 1}
    if finding.excerpt.strip():
        region["snippet"] = {"text": visible(finding.excerpt)}
    where = {"artifactLocation": _artifact(path), "region": region}
    if not found.cell:
        return {"physicalLocation": where}
    cell = {"name": f"cell {found.cell}", "kind": "cell"}
    return {"physicalLocation": where, "logicalLocations": [cell]}


def _artifact(path: str) -> dict[str, str]:
    if os.path.isabs(path):  # noqa: PTH117 - a text
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(os.fsencode(path)), "uriBaseId": "%SRCROOT%"}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(map(encodable, parts)).encode()).hexdigest()[:32]


def written(report: Report, form: Format) -> str:
    """Return the report in one of the formats, ended by a line break."""
    return {Format.text: text, Format.json: data, Format.sarif: sarif, Format.github: github}[form](
        report
    )
