"""The report as JSON: fields as in a denial's, and where the file is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cellblock
from cellblock.batch.formats.inert import json_text
from cellblock.render.bundle import JSON_VERSION
from cellblock.render.findings import finding_json
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from cellblock.batch.verdict import Checked, Found, Report


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
