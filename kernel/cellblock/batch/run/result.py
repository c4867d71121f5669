"""What becomes of a notebook, in a word and in a record that is small enough to keep."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.batch.report_formats import inert, one_line
from cellblock.render.cards import count
from cellblock.render.text import clip, encodable, visible_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.api.results import Result


#: Characters of why a notebook did not pass.
LONGEST_REASON: Final = 2_000


class Fate(StrEnum):
    """How a notebook ended."""

    #: Every cell ran, and none failed that was not allowed to.
    passed = "passed"
    #: A cell raised an exception.
    failed = "failed"
    #: The policy refused a cell, or what the notebook asks for.
    denied = "denied"
    #: A cell, or the notebook, took longer than it may.
    timed_out = "timed out"
    #: A cell was ended from outside: memory, a crash, a breach; or no guest could be had.
    killed = "killed"
    #: It is no notebook, or not one that can be read within the bounds.
    unreadable = "could not read"
    #: It was not begun: its language is another, or the run was ended before.
    skipped = "skipped"
    #: The run was ended while it ran.
    interrupted = "interrupted"


#: Fates that the same notebook meets again under the same terms: a resumed run keeps them.
FINAL: Final = frozenset({Fate.passed, Fate.failed, Fate.denied, Fate.timed_out, Fate.killed})
_TIMES: Final = frozenset({"timeout", "cpu"})


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a notebook that has ended.

    ``cell`` is the one that decided its fate, counting cells of all types from 1, or 0;
    ``cells`` are those that ran, ``errors`` those among them that were allowed to fail and did.
    Times are seconds. ``kept`` says that an earlier run came to this.
    """

    notebook: str
    fate: Fate
    reason: str = ""
    cell: int = 0
    cells: int = 0
    errors: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    #: The audit log of its session.
    session: str = ""
    kept: bool = False


class Ending(msgspec.Struct, frozen=True):
    """A fate and the reason for it."""

    fate: Fate
    reason: str = ""
    cell: int = 0


def said(text: str) -> str:
    """Return a reason as it is recorded: text that can be sent, and not too much of it."""
    text = encodable(text.strip())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def ending_of(result: Result, cell: int, *, own_limit: bool = False) -> Ending | None:
    """Return what a cell's result means for its notebook; None where it ran to its end.

    ``own_limit`` says that the seconds it had were the run's, and not the policy's.
    """
    if result.success:
        return None
    if result.stop is not None:
        result = replace(result, stop=replace(result.stop, said=_stopped(result, own_limit)))
    return Ending(_fate(result), said(result.to_string(LONGEST_REASON)), cell)


def _stopped(result: Result, own_limit: bool) -> str:
    """Say why a cell was stopped: what became of its variables is of no use to anybody here."""
    from cellblock.host.cell.status import LIMITS  # noqa: PLC0415 - few cells are

    stop, error = result.stop, result.error
    if stop is None or error is None:
        return ""
    text = f"The cell was stopped: {error.message}."
    if own_limit and stop.why == "timeout":
        return f"{text}\nRaise it: --cell-timeout, up to the policy's timeout."
    setting = LIMITS.get(stop.why)
    return text if setting is None else f"{text}\nRaise it: {setting} in the policy."


def _fate(result: Result) -> Fate:
    match result.status:
        case "denied" | "refused":
            return Fate.denied
        case "stopped" if result.stop is not None and result.stop.why in _TIMES:
            return Fate.timed_out
        case "stopped" if result.stop is not None and result.stop.why == "interrupt":
            return Fate.interrupted
        case "error":
            return Fate.failed
    return Fate.killed


# Records as text for people and for CI: nothing in it is a command to a terminal or a runner.

#: Lines of a reason that are printed, and columns of each.
_LINES: Final = 12
_COLUMNS: Final = 120
_MIB: Final = 1 << 20
_WIDEST: Final = max(map(len, Fate))


def told(record: Record) -> str:
    """Return a record in a line, and why it did not pass in those below."""
    return "\n".join([one_line(f"{record.fate:<{_WIDEST}}  {head(record)}"), *reason(record)])


def head(record: Record) -> str:
    """Return which notebook it was and what it took."""
    took = [count(record.cells, "cell"), f"{record.seconds:.2f} s"]
    took += [count(record.errors, "allowed error")] if record.errors else []
    took += ["kept"] if record.kept else []
    return f"{record.notebook}  ({', '.join(took)})"


def reason(record: Record) -> list[str]:
    """Return the lines of why a notebook did not pass, fit to be printed."""
    if record.fate is Fate.passed or not record.reason:
        return []
    where = f"cell {record.cell}: " if record.cell else ""
    lines = [line for line in visible_lines(where + record.reason).split("\n") if line.strip()]
    more = [f"… {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    return [inert(f"    {clip(line, _COLUMNS)}") for line in lines[:_LINES] + more]


def totals(records: Sequence[Record], seconds: float) -> str:
    """Return how many notebooks met which fate."""
    counted = Counter(record.fate for record in records)
    told = [f"{counted[fate]} {fate}" for fate in Fate if counted[fate]]
    kept = sum(record.kept for record in records)
    rate = (len(records) - kept) / seconds if seconds > 0 else 0.0
    parts = f"{count(len(records), 'notebook')}: {', '.join(told) or 'none run'}"
    parts += f" ({kept} of them in an earlier run)" if kept else ""
    return f"{parts}; {seconds:.1f} s, {rate:.1f} a second"


def row(record: Record) -> tuple[str, ...]:
    """Return a record's row of the summary: fate, notebook, cells, time, memory, where."""
    where = f"cell {record.cell}" if record.cell and record.fate is not Fate.passed else ""
    memory = f"{record.peak_memory_bytes / _MIB:.1f} MiB" if record.peak_memory_bytes else ""
    name = one_line(record.notebook)
    return (record.fate, name, str(record.cells), f"{record.seconds:.2f} s", memory, where)
