"""What `cellblock check` judges by, for tests that hand it cells and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.batch.check_workers import by_terms
from cellblock.batch.judge import Cells
from cellblock.batch.verdict import Terms
from cellblock.policy.load import to_judge_by

if TYPE_CHECKING:
    from cellblock.analysis import Finding
    from cellblock.batch.judge import By


def by(
    preset: str = "safe", folder: Path = Path("/"), *, template: bool = False, **less: Any
) -> By:
    """Return it of a preset, or a file, with some fields changed; ``folder`` is the project's."""
    terms = Terms.of(to_judge_by(preset).replace(**less), template=template)
    place = os.fsencode(folder)
    return by_terms(msgspec.structs.replace(terms, project=place, folder=place))


def of_cells(*sources: str, **keywords: Any) -> list[list[Finding]]:
    """Return what is found in each of these cells, one after another."""
    cells = Cells(by(**keywords), Path("/a.ipynb"))
    return [cells.judge(source) for source in sources]
