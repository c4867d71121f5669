"""What is shown of a run: each result when it is there, a summary at the end, and JUnit XML.

Nothing in it is a command to a terminal or a CI runner (`report_formats.inert`).
"""

from __future__ import annotations

import re
from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from cellblock.batch.report_formats import inert, one_line
from cellblock.batch.run.execution import NotebookStatus
from cellblock.render.cards import count
from cellblock.render.policy_card import gaps_text
from cellblock.render.text import clip, visible_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cellblock.batch.run.execution import NotebookResult
    from cellblock.batch.run.runner import RunResult

#: Lines of a reason that are printed, and columns of each.
_MAX_LINES: Final = 12
_COLUMNS: Final = 120
_STATUS_WIDTH: Final = max(map(len, NotebookStatus))


# --- in words -------------------------------------------------------------------------------------


def result_text(result: NotebookResult) -> str:
    """Return a result in a line, and below it why the notebook did not pass."""
    took = [count(result.cells, "cell"), f"{result.seconds:.2f} s"]
    took += [count(result.errors, "allowed error")] if result.errors else []
    took += ["kept"] if result.kept else []
    head = one_line(f"{result.status:<{_STATUS_WIDTH}}  {result.notebook}  ({', '.join(took)})")
    if result.status is NotebookStatus.passed or not result.reason:
        return head
    text = visible_lines(_where(result) + result.reason)
    # What cellblock adds to an error, reason and remedy, is shown whole.
    text = text.replace(" [cellblock: ", "\n[cellblock: ")
    lines = [
        part
        for line in text.split("\n")
        if line.strip()
        for part in (wrap(line, _COLUMNS) if line.startswith("[cellblock: ") else [line])
    ]
    more = [f"… {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    reason = [inert(f"    {clip(line, _COLUMNS)}") for line in lines[:_MAX_LINES] + more]
    return "\n".join([head, *reason])


def _where(result: NotebookResult) -> str:
    return f"cell {result.cell}: " if result.cell else ""


def totals(results: Sequence[NotebookResult], seconds: float) -> str:
    """Return how many notebooks ended with which status."""
    counted = Counter(result.status for result in results)
    counts = [f"{counted[status]} {status}" for status in NotebookStatus if counted[status]]
    kept = sum(result.kept for result in results)
    rate = (len(results) - kept) / seconds if seconds > 0 else 0.0
    text = f"{count(len(results), 'notebook')}: {', '.join(counts) or 'none run'}"
    text += f" ({kept} of them in an earlier run)" if kept else ""
    return f"{text}; {seconds:.1f} s, {rate:.1f} a second"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class Progress:
    """Prints how a run goes: each result, when it is there."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def ended(self, result: NotebookResult) -> None:
        """Print the result of a notebook."""
        _print(self._console, result_text(result))

    def stopping(self) -> None:
        """Print what is waited for, as a signal ends the run."""
        _print(self._console, "Ending: what runs is interrupted, and then killed.")

    def message(self, text: str) -> None:
        """Print something that the user should know."""
        _print(self._console, one_line(text))


def print_summary(console: Console, run: RunResult, seconds: float) -> None:
    """Print every gap (promise P7), and how many notebooks ended with which status."""
    if staged := sum(bool(one.staged) for one in run.results):
        said = f"Cells of {count(staged, 'notebook')} wrote to the project, which is as it was."
        how = "`cellblock changes list` has it for a week, or run with --changes keep, drop or DIR."
        _print(console, f"{said}\n{how}")
    for line in gaps_text(run.gaps).splitlines() if run.gaps else ():
        _print(console, one_line(line))
    _print(console, totals(run.results, seconds))


# --- JUnit XML, as CI servers read it: a test case for each notebook ------------------------------
# Source: the schema of Jenkins' xUnit plugin, which GitLab and others take, too.

#: Characters that XML 1.0 can't carry, whatever they are written as.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Sequence[NotebookResult], seconds: float) -> str:
    """Return the report. A CI runner that is shown it finds no command in it."""
    kinds = Counter(map(_element, results))
    counts = {
        "tests": str(len(results)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "cellblock run", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "cellblock run", **counts})
    for result in results:
        _add_case(suite, result)
    ET.indent(root)
    return inert(ET.tostring(root, encoding="unicode", xml_declaration=False)) + "\n"


def _add_case(suite: ET.Element, result: NotebookResult) -> None:
    folder, _, name = _legal(result.notebook).rpartition("/")
    about = {"classname": folder or ".", "name": name, "time": f"{result.seconds:.3f}"}
    case = ET.SubElement(suite, "testcase", about)
    if (kind := _element(result)) is not None:
        text = _legal(result.reason)
        message = _where(result) + (text.splitlines() or [""])[0]
        status = result.status.replace(" ", "-")
        ET.SubElement(case, kind, {"message": message, "type": status}).text = text


def _element(result: NotebookResult) -> str | None:
    """Return the kind of element that says why a notebook did not pass; None if it did."""
    match result.status:
        case NotebookStatus.passed:
            return None
        case NotebookStatus.failed | NotebookStatus.denied:  # the notebook is the cause
            return "failure"
        case NotebookStatus.skipped | NotebookStatus.interrupted:  # it was not tested to its end
            return "skipped"
    return "error"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
