"""How a run goes, as it goes: a line a notebook, and on a terminal a bar below them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from cellblock.batch.report_formats import inert, one_line
from cellblock.batch.run import result
from cellblock.batch.run.result import Fate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from cellblock.batch.run.result import Record
    from cellblock.batch.run.runner import Ran


_ENDING: Final = "Ending: what runs is interrupted, and then killed."
#: Names that stand beside the bar.
_NAMES: Final = 3


class Lines:
    """For CI, and whatever else is no terminal: what has ended, each in its own lines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begun(self, name: str) -> None:
        """Say nothing: it will end."""

    def ended(self, record: Record) -> None:
        """Say how it ended."""
        self._print(result.told(record))

    def stopping(self) -> None:
        """Say what is waited for."""
        self._print(_ENDING)

    def said(self, text: str) -> None:
        """Say it."""
        self._print(one_line(text))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """For a terminal: a bar with what runs now, and above it what did not pass."""

    def __init__(self, console: Console, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.progress import TimeElapsedColumn as Elapsed  # noqa: PLC0415

        columns = (BarColumn(), MofNCompleteColumn(), Elapsed(), TextColumn("{task.description}"))
        self._progress: Progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID = self._progress.add_task("", total=total)
        self._running: dict[str, None] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begun(self, name: str) -> None:
        """Show that it runs."""
        self._running[name] = None
        self._show()

    def ended(self, record: Record) -> None:
        """Go on by one; say what did not pass."""
        self._running.pop(record.notebook, None)
        if record.fate is not Fate.passed:
            self._print(result.told(record))
        self._progress.advance(self._task)
        self._show()

    def stopping(self) -> None:
        """Say what is waited for."""
        self._print(_ENDING)

    def said(self, text: str) -> None:
        """Say it."""
        self._print(one_line(text))

    def _print(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self) -> None:
        from rich.markup import escape  # noqa: PLC0415 - imported by then

        names = [one_line(name) for name in list(self._running)[:_NAMES]]
        more = [f"and {len(self._running) - _NAMES} more"] if len(self._running) > _NAMES else []
        self._progress.update(self._task, description=escape(", ".join(names + more)))


# What is printed of a run that has ended: a table, gaps, and how many met which fate.

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
    totals = result.totals(ran.records, seconds)
    console.print(totals, markup=False, highlight=False, soft_wrap=True)


def rows(records: Sequence[Record]) -> list[Record]:
    """Return the records that have a row, in the order of their names."""
    whole = len(records) <= _MOST
    shown = (one for one in records if whole or one.fate is not Fate.passed)
    return sorted(shown, key=lambda one: one.notebook)


def gaps(ran: Ran) -> list[str]:
    """Return lines that tell of each gap: never silent (promise P7)."""
    from cellblock.render.stopped import plain  # noqa: PLC0415 - most runs have none

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
        first, *rest = result.row(record)
        table.add_row(Text(first, _STYLES.get(record.fate, "red")), *map(Text, rest))
    with console.capture() as folded:
        console.print(table)
    console.file.write(inert(folded.get()))


# A run as JUnit XML, as CI servers read it: a test case for each notebook.
#
# Source: the schema of Jenkins' xUnit plugin, which GitLab and others take, too.

#: Fates that are the notebook's doing, and those that are not a test's failure but its end.
_FAILURES: Final = frozenset({Fate.failed, Fate.denied})
_SKIPPED: Final = frozenset({Fate.skipped, Fate.interrupted})
#: Characters that XML 1.0 can't carry, whatever they are written as.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(records: Sequence[Record], seconds: float) -> str:
    """Return the report. A CI runner that is shown it finds no command in it."""
    kinds = Counter(map(_element, records))
    counts = {
        "tests": str(len(records)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "cellblock run", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "cellblock run", **counts})
    for record in records:
        _case(suite, record)
    ET.indent(root)
    return inert(ET.tostring(root, encoding="unicode", xml_declaration=False)) + "\n"


def _case(suite: ET.Element, record: Record) -> None:
    folder, _, name = _legal(record.notebook).rpartition("/")
    about = {"classname": folder or ".", "name": name, "time": f"{record.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", about)
    if (kind := _element(record)) is None:
        return
    where = f"cell {record.cell}: " if record.cell else ""
    text = _legal(record.reason)
    message = where + (text.splitlines() or [""])[0]
    told = ET.SubElement(case, kind, {"message": message, "type": record.fate.replace(" ", "-")})
    told.text = text


def _element(record: Record) -> str | None:
    if record.fate is Fate.passed:
        return None
    if record.fate in _FAILURES:
        return "failure"
    return "skipped" if record.fate in _SKIPPED else "error"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
