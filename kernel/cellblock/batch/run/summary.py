"""What is printed of a run that has ended: a table, gaps, and how many met which fate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.batch.formats.inert import inert, one_line
from cellblock.batch.run import wording
from cellblock.batch.run.fate import Fate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cellblock.batch.run.fate import Record
    from cellblock.batch.run.runner import Ran

#: Notebooks of which each has a row; of more, only those that did not pass.
_MOST: Final = 40
_STYLES: Final = {Fate.passed: "green", Fate.skipped: "dim", Fate.interrupted: "yellow"}


def print_summary(console: Console, ran: Ran, seconds: float) -> None:
    """Print it."""
    shown = rows(ran.records)
    if shown:
        _print_table(console, shown)
    for line in gaps(ran):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    totals = wording.totals(ran.records, seconds)
    console.print(totals, markup=False, highlight=False, soft_wrap=True)


def rows(records: Sequence[Record]) -> list[Record]:
    """Return the records that have a row, in the order of their names."""
    whole = len(records) <= _MOST
    shown = (one for one in records if whole or one.fate is not Fate.passed)
    return sorted(shown, key=lambda one: one.notebook)


def gaps(ran: Ran) -> list[str]:
    """Return lines that tell of each gap: never silent (promise P7)."""
    from cellblock.render.gaps import plain  # noqa: PLC0415 - most runs have none

    return list(map(one_line, plain(ran.gaps).splitlines())) if ran.gaps else []


def _print_table(console: Console, records: Sequence[Record]) -> None:
    """Print a row a record; a name that is folded may begin a line with any of its characters."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - after the run
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table("verdict", box=SIMPLE_HEAD)
    table.add_column("notebook", overflow="fold")
    for name in ("cells", "time", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("where")
    for record in records:
        first, *rest = wording.row(record)
        table.add_row(Text(first, _STYLES.get(record.fate, "red")), *map(Text, rest))
    with console.capture() as folded:
        console.print(table)
    console.file.write(inert(folded.get()))
