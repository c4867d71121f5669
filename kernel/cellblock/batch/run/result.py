"""How a notebook ended, in a result that is small enough to keep; and how a whole run went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.errors import CellblockError
from cellblock.host.cell.status import LIMITS
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from cellblock.api.results import Result
    from cellblock.policy.enforcement import Gap

#: Characters of why a notebook did not pass.
MAX_REASON: Final = 2_000


class NotebookStatus(StrEnum):
    """How a notebook ended."""

    #: Every cell ran, and none failed that was not allowed to.
    passed = "passed"
    #: A cell raised an exception.
    failed = "failed"
    #: The policy refused a cell, or what the notebook asks for.
    denied = "denied"
    #: A cell, or the notebook, took longer than it may.
    timed_out = "timed out"
    #: A cell was ended from outside (memory, a crash, a breach), or there was no guest for it.
    killed = "killed"
    #: The file is no notebook, or not one that can be read within the bounds.
    unreadable = "could not read"
    #: The notebook was not begun: its language is another, or the run was ended before.
    skipped = "skipped"
    #: The run was ended while the notebook ran.
    interrupted = "interrupted"


#: Statuses that the same notebook gets again with the same options: a resumed run keeps them.
REPEATABLE: Final = frozenset(
    {
        NotebookStatus.passed,
        NotebookStatus.failed,
        NotebookStatus.denied,
        NotebookStatus.timed_out,
        NotebookStatus.killed,
    }
)


class NotebookResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a notebook.

    ``cell`` is the one that decided the status, counting cells of all types from 1, or 0.
    ``cells`` is how many ran, ``errors`` how many of those failed and were allowed to. Times are in
    seconds. ``session`` names the session's audit log. ``staged`` is by what name ``cellblock
    changes`` knows what its cells wrote to the project, if that is still staged. ``kept`` says that
    the result is an earlier run's.
    """

    notebook: str
    status: NotebookStatus = msgspec.field(name="fate")  # in files of earlier runs, too
    reason: str = ""
    cell: int = 0
    cells: int = 0
    errors: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    session: str = ""
    staged: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run went. ``signal`` is the one that ended it, or 0."""

    results: tuple[NotebookResult, ...]
    gaps: tuple[Gap, ...]
    signal: int


class UnwritableError(CellblockError):
    """What was run can't be written."""

    def result(self, of: NotebookResult) -> NotebookResult:
        """Return the result of a notebook that this happened to."""
        why = clip_reason(str(self))
        return msgspec.structs.replace(of, status=NotebookStatus.killed, reason=why, cell=0)


class Ending(msgspec.Struct, frozen=True):
    """The status of a notebook, the reason for it, and the cell."""

    status: NotebookStatus
    reason: str = ""
    cell: int = 0


def clip_reason(text: str) -> str:
    """Return a reason that can be sent and is not too long."""
    text = encodable(text.strip())
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def ending_of(result: Result, cell: int, *, own_limit: bool = False) -> Ending | None:
    """Return how a cell's result ends its notebook; None if the cell succeeded.

    ``own_limit`` says that the cell's timeout was the run's and not the policy's.
    """
    if result.success:
        return None
    status, stop = NotebookStatus.killed, result.stop
    match result.status:
        case "denied" | "refused":
            status = NotebookStatus.denied
        case "error":
            status = NotebookStatus.failed
        case "stopped" if stop is not None and stop.why in {"timeout", "cpu"}:
            status = NotebookStatus.timed_out
        case "stopped" if stop is not None and stop.why == "interrupt":
            status = NotebookStatus.interrupted
    if stop is not None:
        # Why it was stopped. That its variables were restored is of no use here.
        why = "" if result.error is None else f"The cell was stopped: {result.error.message}."
        if why and own_limit and stop.why == "timeout":
            why += "\nTo raise it: --cell-timeout, up to the policy's timeout."
        elif why and stop.why in LIMITS:
            why += f"\nTo raise it, set {LIMITS[stop.why]} in a policy file."
        result = replace(result, stop=replace(stop, said=why))
    return Ending(status, clip_reason(result.to_string(MAX_REASON)), cell)
