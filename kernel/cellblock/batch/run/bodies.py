"""A cell as it is written: before it ran, and after."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cellblock.batch.run import stale

if TYPE_CHECKING:
    from cellblock.api.results import Result
    from cellblock.batch.run.notebook import Cell

#: Where a cell's metadata says when it ran.
EXECUTION: Final = "execution"


def before(cell: Cell, display: str) -> dict[str, Any]:
    """Return a cell as it is written before it runs; one that will not keeps its outputs."""
    if cell.outputs and not cell.runs:
        return cell.body | {"outputs": stale.cleaned(cell.outputs, display)}
    return cell.body


def after(cell: Cell, result: Result, times: tuple[str, str]) -> dict[str, Any]:
    """Return a cell that ran, without its outputs; times under nbclient's names."""
    began, ended = times
    execution = {
        "iopub.status.busy": began,
        "iopub.execute_input": began,
        "iopub.status.idle": ended,
        "shell.execute_reply": ended,
    }
    metadata = cell.body["metadata"] | {EXECUTION: execution}
    return cell.body | {"metadata": metadata, "execution_count": result.execution_count}


def now() -> str:
    """Return the time as it stands in messages and in notebooks."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
