"""The judge of `cellblock check`, for tests with cells and files of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.batch.check import judge_context
from cellblock.batch.judge import CellJudge
from cellblock.batch.verdict import CheckOptions
from cellblock.policy.load import load_for_check

if TYPE_CHECKING:
    from cellblock.analysis import Finding
    from cellblock.batch.judge import JudgeContext


def context(
    preset: str = "safe", folder: Path = Path("/"), *, template: bool = False, **less: Any
) -> JudgeContext:
    """Return the context for a preset or policy file with some fields changed.

    ``folder`` is the project's.
    """
    options = CheckOptions.of(load_for_check(preset).replace(**less), template=template)
    place = os.fsencode(folder)
    return judge_context(msgspec.structs.replace(options, project=place, folder=place))


def findings_of_cells(*sources: str, **keywords: Any) -> list[list[Finding]]:
    """Return the findings in each of these cells, judged one after another."""
    cells = CellJudge(context(**keywords), Path("/a.ipynb"))
    return [cells.judge(source) for source in sources]
