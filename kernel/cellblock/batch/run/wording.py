"""Records as text for people and for CI: nothing in it is a command to a terminal or a runner."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from cellblock.batch.formats.inert import inert, one_line
from cellblock.batch.run.fate import Fate
from cellblock.render.bundle import count
from cellblock.render.text import clip, visible_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.batch.run.fate import Record

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
