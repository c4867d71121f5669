"""The report of a check as text, JSON, SARIF or GitHub annotations. Pure.

Paths and source come from a stranger. Before they reach a terminal or a CI runner, commands in them
are made harmless by `inert`, `one_line` or `json_text`, which ``cellblock run`` uses, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import cellblock
from cellblock.analysis.findings import add_command
from cellblock.batch.verdict import CHECK_RULES, REPORTED_RULES
from cellblock.policy.vocabulary import base_of
from cellblock.render.allowing import Allowing, allowing
from cellblock.render.cards import JSON_VERSION, count, plain
from cellblock.render.outcomes import (
    drawn_source,
    excerpt,
    finding_json,
    remedies,
    rewrites,
    subject,
)
from cellblock.render.text import COLUMNS, clip, encodable, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.analysis import Finding, Rule
    from cellblock.batch.verdict import CheckedFile, CheckReport, PlacedFinding


class Format(StrEnum):
    """The format of a report."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


def format_report(report: CheckReport, form: Format) -> str:
    """Return the report in a format, with a newline at its end."""
    formats = {
        Format.text: _text_report,
        Format.json: _json_report,
        Format.sarif: _sarif_report,
        Format.github: _github_report,
    }
    return formats[form](report)


# --- text without commands to a terminal or a CI runner -------------------------------------------
# GitHub's runner acts on a line that begins with ``::`` after blanks, and on ``##[`` anywhere in a
# line (ActionCommand.cs, TryParseV2 and TryParse). Azure's acts on ``##vso[``, and TeamCity's on
# ``##teamcity[``.

_ANYWHERE: Final = re.compile(r"##(?=\w*\[)")
_AT_START: Final = re.compile(r"^(\s*):(?=:)")


def inert(text: str) -> str:
    """Replace one character of each CI command, so that no runner acts on it.

    Control characters must already be gone from the lines (``visible``). Columns stay the same, so
    that a caret stays below its character.
    """
    return "\n".join(_inert_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return any text as one visible line without commands."""
    return _inert_line(visible(text))


def json_text(value: Any) -> str:
    """Return indented JSON in ASCII, with CI commands escaped."""
    return json.dumps(value, indent=2).replace("##", "#\\u0023") + "\n"


def _inert_line(line: str) -> str:
    inside_inert = _ANYWHERE.sub("#\N{REPLACEMENT CHARACTER}", line)
    return _AT_START.sub("\\1\N{REPLACEMENT CHARACTER}", inside_inert)


# --- the words of all formats ---------------------------------------------------------------------


def _reason(placed: PlacedFinding) -> str:
    """Return a finding's place in a notebook, its subject and its reason, without a full stop."""
    finding = placed.finding
    place = f"cell {placed.cell}, line {finding.line}: " if placed.cell else ""
    if finding.rule in CHECK_RULES:
        subject_words = f"this {'cell' if placed.cell else 'file'} "
    else:
        subject_words = f"{subject(finding)} " if finding.subject else ""
    return place + subject_words + visible(finding.why)


def _summary(report: CheckReport) -> str:
    """Return a line on the whole check: the numbers of findings and files, and the policy."""
    files = count(len(report.files), "file")
    with_findings = sum(bool(file.verdict.findings) for file in report.files)
    summary = f"{files}, no findings"
    if report.total:
        summary = f"{count(report.total, 'finding')} in {with_findings:,} of {files}"
    if report.problems:
        summary += f", {count(len(report.problems), 'path')} not checked"
    return f"{summary} · policy {visible(report.policy)}{', template' * report.template}"


def _allowing(report: CheckReport) -> dict[str, Allowing]:
    """Return the lines that would allow all findings under a policy, by the policy's file."""
    lines: dict[str, list[str]] = {}
    for file in report.files:
        for placed in file.verdict.findings:
            lines.setdefault(file.policy_file, []).extend(placed.finding.allows)
    blocks = {name: allowing(every, name, checks=True) for name, every in lines.items()}
    return {name: block for name, block in blocks.items() if block.block}


def _to_do(file: CheckedFile, finding: Finding) -> list[str]:
    """Return what to do about a finding: what to write instead, and the command to allow it."""
    lines = [f"Instead: {finding.remedy}"] if finding.remedy else []
    lines += rewrites([finding])[0]
    if finding.allows:
        name = file.policy_file
        extends = base_of(file.policy_file)
        command = add_command(finding.allows, "" if extends else name, extends)
        lines.append(f"To allow it: {command}")
    return lines


# --- text: the place in a form that editors open, the line with a caret, why, what to do instead --


def _text_report(report: CheckReport) -> str:
    """Return the report for people, without problems: the command prints those on stderr."""
    blocks = [block for file in report.files for block in _text_blocks(file)]
    for allow in _allowing(report).values():
        instruction = wrap(plain(allow.how), columns=COLUMNS)
        blocks.append("\n".join([*instruction, *(f"    {visible(line)}" for line in allow.block)]))
    return inert("\n\n".join([*blocks, _summary(report)])) + "\n"


def _text_blocks(file: CheckedFile) -> Iterator[str]:
    """Yield a block of lines for each finding in a file."""
    findings = [placed_finding.finding for placed_finding in file.verdict.findings]
    rows = zip(file.verdict.findings, remedies(findings), rewrites(findings), strict=True)
    for placed, remedy, rewrite in rows:
        finding = placed.finding
        cell = f"cell {placed.cell}:" if placed.cell else ""
        location = f"{visible(file.path)}:{cell}{finding.line}:{finding.column + 1}"
        lines = [f"{location}: {visible(finding.rule)}"]
        if finding.excerpt.strip():
            lines += drawn_source(finding, COLUMNS)
        else:
            lines += wrap(finding.why, indent="  ", columns=COLUMNS)
        if remedy:
            lines += wrap(f"Instead: {remedy}", indent="  ", columns=COLUMNS)
        lines += [f"    {clip(line, COLUMNS - 4)}" for line in rewrite]
        yield "\n".join(lines)
    if more := file.verdict.left_out:
        yield f"{visible(file.path)}: and {count(more, 'more finding')}"


# --- JSON: the fields of a denial, and the file ---------------------------------------------------


def _json_report(report: CheckReport) -> str:
    """Return the report as JSON. ``line`` is a line of the cell, ``file_line`` one of the file."""
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
                {
                    "path": encodable(file.path),
                    "policy": encodable(file.policy),
                    "cell": placed.cell or None,
                    "file_line": placed.file_line or None,
                    **finding_json(placed.finding),
                }
                for file in report.files
                for placed in file.verdict.findings
            ],
            "allow": [
                {
                    "file": encodable(name),
                    "how": encodable(plain(allows.how)),
                    "lines": allows.block,
                }
                for name, allows in _allowing(report).items()
            ],
            "left_out": {
                encodable(file.path): file.verdict.left_out
                for file in report.files
                if file.verdict.left_out
            },
            "problems": [
                {"path": encodable(problem.path), "message": encodable(problem.message)}
                for problem in report.problems
            ],
        }
    )


# --- GitHub's workflow commands, which become annotations of a pull request -----------------------
# Escaped as the runner's toolkit does it: in data %, carriage return and line feed; in properties
# the colon and the comma, too.

_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({":": "%3A", ",": "%2C"})


def _github_report(report: CheckReport) -> str:
    """Return a command for each finding and problem, and the summary."""
    lines = [_annotation(file, placed) for file in report.files for placed in file.verdict.findings]
    lines += [
        _command({"file": file.path}, f"and {count(file.verdict.left_out, 'more finding')}")
        for file in report.files
        if file.verdict.left_out
    ]
    title = "cellblock could not check this path"
    lines += [
        _command({"title": title}, f"{problem.path}: {problem.message}")
        for problem in report.problems
    ]
    return "\n".join([*lines, one_line(_summary(report))]) + "\n"


def _annotation(file: CheckedFile, placed: PlacedFinding) -> str:
    """Return the command that annotates a finding's line."""
    finding = placed.finding
    line = str(max(1, placed.file_line))
    properties = {"file": file.path, "line": line, "endLine": line}
    if not placed.cell:  # in a notebook's file a line of source is a string of JSON
        properties |= {"col": str(finding.column + 1), "endColumn": str(finding.end_column)}
    source = excerpt(finding).line.strip()
    message = [_reason(placed), *([source] if source else [])]
    message += _to_do(file, finding)
    return _command(properties | {"title": finding.rule}, *message)


def _command(properties: dict[str, str], *lines: str) -> str:
    escaped = (
        f"{name}={_github_data(value).translate(_PROPERTY)}" for name, value in properties.items()
    )
    return f"::error {','.join(escaped)}::{_github_data(*lines)}"


def _github_data(*lines: str) -> str:
    return "\n".join(map(one_line, lines)).translate(_DATA)


# --- SARIF 2.1.0 (OASIS, 2020), for code scanning -------------------------------------------------
# A region is a place in the file: for a notebook, in its JSON. The cell is the logical location.

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
#: The results of a run that GitHub accepts.
MAX_RESULTS: Final = 25_000
#: The syntax of links and arguments in a message (3.11.5, 3.11.6).
_LINK: Final = re.compile(r"\](?=\()")
_ARGUMENT: Final = re.compile(r"\{(?=\d+\})")
_RULE_INDEX: Final = {name: number for number, name in enumerate(REPORTED_RULES)}


def _sarif_report(report: CheckReport) -> str:
    """Return the report as one SARIF run."""
    page = rules_page()
    driver: dict[str, Any] = {
        "name": "cellblock",
        "semanticVersion": cellblock.__version__,
        "rules": [_sarif_rule(rule, page) for rule in REPORTED_RULES.values()],
    }
    driver |= {"informationUri": page} if page else {}
    results = [result for file in report.files for result in _sarif_results(file)]
    notifications = [
        {
            "level": "error",
            "message": _sarif_message(f"{problem.path}: {problem.message}"),
            "locations": [{"physicalLocation": {"artifactLocation": _artifact(problem.path)}}],
        }
        for problem in report.problems
    ]
    left_out = len(results[MAX_RESULTS:]) + sum(file.verdict.left_out for file in report.files)
    if left_out:
        message = _sarif_message(f"{left_out:,} findings are left out")
        notifications.append({"level": "error", "message": message})
    invocation = {
        "executionSuccessful": not report.problems,
        "exitCode": report.status,
        "toolExecutionNotifications": notifications,
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results[:MAX_RESULTS],
        "properties": {"policy": encodable(report.policy), "template": report.template},
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def rules_page() -> str:
    """Return the URL of the page on rules, from the package's metadata; "" if that has none."""
    try:
        urls = metadata.metadata("cellblock").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return ""
    pages = (url.partition(", ")[2] for url in urls if url.startswith("Documentation, "))
    return f"{base.rstrip('/')}/rules.html" if (base := next(pages, "")) else ""


def _sarif_rule(rule: Rule, page: str) -> dict[str, Any]:
    why = f"{rule.why[0].upper()}{rule.why[1:]}."
    entry = {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title}: {rule.why}."},
        "help": {
            "text": f"{rule.title}. {why} Instead: {rule.remedy}",
            "markdown": f"**{rule.title}.** {why}\n\n**Instead.** {rule.remedy}",
        },
        "defaultConfiguration": {"level": "error"},
    }
    return entry | ({"helpUri": f"{page}#{rule.id}"} if page else {})


def _sarif_results(file: CheckedFile) -> Iterator[dict[str, Any]]:
    """Yield the results for a file's findings."""
    fingerprints = Counter[str]()
    for placed in file.verdict.findings:
        finding = placed.finding
        fingerprint = _digest(finding.rule, finding.subject, finding.excerpt)
        fingerprints[fingerprint] += 1
        first_step, *further_steps = _to_do(file, finding) or [""]
        text = f"{_reason(placed)}. {first_step}".rstrip()
        region: dict[str, Any] = {"startLine": max(1, placed.file_line)}
        if not placed.cell:
            region |= {"startColumn": finding.column + 1, "endColumn": finding.end_column + 1}
        if finding.excerpt.strip():
            region["snippet"] = {"text": visible(finding.excerpt)}
        physical = {"artifactLocation": _artifact(file.path), "region": region}
        location: dict[str, Any] = {"physicalLocation": physical}
        if placed.cell:
            location["logicalLocations"] = [{"name": f"cell {placed.cell}", "kind": "cell"}]
        yield {
            "ruleId": finding.rule,
            "ruleIndex": _RULE_INDEX[finding.rule],
            "level": "error",
            "message": _sarif_message(text, *further_steps),
            "locations": [location],
            # Equal findings are told apart by their order, not by the line, which may change.
            "partialFingerprints": {
                "cellblock/v1": _digest(fingerprint, str(fingerprints[fingerprint]))
            },
        }


def _sarif_message(*lines: str) -> dict[str, str]:
    """Return a message in which viewers find no links and arguments."""
    text = "\n".join(map(visible, lines))
    return {"text": _ARGUMENT.sub("{ ", _LINK.sub("] ", text))}


def _artifact(path: str) -> dict[str, str]:
    if Path(path).is_absolute():
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(os.fsencode(path)), "uriBaseId": "%SRCROOT%"}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(map(encodable, parts)).encode()).hexdigest()[:32]
