"""A report as a text, as JSON, as SARIF, as GitHub's annotations. Pure.

Paths and source are a stranger's: they reach nobody's terminal or CI runner but inert.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.batch.verdict import Report


class Format(StrEnum):
    """What a report is written as."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


def written(report: Report, form: Format) -> str:
    """Return the report in one of the formats, ended by a line break."""
    match form:
        case Format.text:
            from cellblock.batch.formats.text import text as write  # noqa: PLC0415 - one is needed
        case Format.json:
            from cellblock.batch.formats.data import data as write  # noqa: PLC0415 - as above
        case Format.sarif:
            from cellblock.batch.formats.sarif import sarif as write  # noqa: PLC0415 - as above
        case Format.github:
            from cellblock.batch.formats.github import github as write  # noqa: PLC0415 - as above
    return write(report)
