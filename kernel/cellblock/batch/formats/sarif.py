"""The report as SARIF 2.1.0 (OASIS, 2020), for code scanning.

Regions are of the file, in a notebook that of the JSON; the cell is the logical location.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import cellblock
from cellblock.batch.formats.inert import json_text
from cellblock.batch.formats.wording import place, reason
from cellblock.batch.rules import REPORTED
from cellblock.render.findings import rewrites
from cellblock.render.text import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.analysis import Rule
    from cellblock.batch.verdict import Checked, Found, Problem, Report

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
