"""What is said of a run: to people, to a CI server, and nothing that either obeys."""

import io
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from cellblock.batch.run import runner
from cellblock.batch.run.execution import NotebookResult, NotebookStatus
from cellblock.batch.run.runner import Progress, RunResult, junit, print_summary
from cellblock.policy.model import Gap

PASSED = NotebookResult(
    notebook="a/x.ipynb",
    status=NotebookStatus.passed,
    cells=5,
    seconds=0.123,
    peak_memory_bytes=50 << 20,
)
DENIED = NotebookResult(
    notebook="b.ipynb",
    status=NotebookStatus.denied,
    reason="The cell was not run: 1 finding (policy safe).\n\nline 1: import-not-allowed: os",
    cell=3,
    cells=2,
    seconds=0.05,
)
SKIPPED = NotebookResult(
    notebook="r.ipynb", status=NotebookStatus.skipped, reason="its language is R"
)
GAP = Gap(
    capability="memory_max_bytes",
    status="partial",
    asked="1",
    actual="RLIMIT_DATA",
    consequence="files on a file system in memory that are not mapped count for scratch_max_bytes",
    remedy="run the kernel in a cgroup with memory.max",
)
HOSTILE = NotebookResult(
    notebook="\x1b[2J::error::x.ipynb",
    status=NotebookStatus.failed,
    reason="::add-mask::x\n##[error]y\n\x1b[31mred\x00\n[bold]no markup[/]",
    cell=1,
)


def printed(show, columns=100, **options):
    text = io.StringIO()
    show(Console(file=text, highlight=False, width=columns, **options))
    return text.getvalue()


def test_a_notebook_is_told_in_a_line_and_why_it_did_not_pass_below_within_bounds():
    assert runner.result_text(PASSED) == "passed          a/x.ipynb  (5 cells, 0.12 s)"
    assert runner.result_text(DENIED) == (
        "denied          b.ipynb  (2 cells, 0.05 s)\n"
        "    cell 3: The cell was not run: 1 finding (policy safe).\n"
        "    line 1: import-not-allowed: os"
    )

    lines = "\n".join(f"line {n} " + "x" * 500 for n in range(100))
    told = runner.result_text(
        NotebookResult(notebook="a", status=NotebookStatus.failed, reason=lines)
    ).splitlines()
    assert len(told) == 14
    assert max(map(len, told)) == 124
    assert told[-1] == "    … 88 more lines"


def test_what_is_not_enforced_is_told_in_lines_that_a_terminal_holds():
    text = printed(lambda console: print_summary(console, RunResult((PASSED,), (GAP,), 0), 2.0))
    _, _, told = text.partition("Not everything")
    assert f"Not everything{told}" == (
        "Not everything in this policy is enforced on this machine\n"
        "  memory_max_bytes   partial      files on a file system in memory that are not\n"
        "                                  mapped count for scratch_max_bytes\n"
        "                                  → run the kernel in a cgroup with memory.max\n"
        "1 notebook: 1 passed; 2.0 s, 0.5 a second\n"
    )


def test_what_a_notebook_says_commands_neither_terminal_nor_runner():
    def show(console):
        Progress(console).ended(HOSTILE)
        print_summary(console, RunResult((HOSTILE,), (), 0), 1.0)

    text = printed(show)
    assert "\x1b" not in text
    assert "##[" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert "[bold]no markup[/]" in text


def test_a_summary_counts_statuses_and_tells_apart_what_was_kept():
    kept = NotebookResult(notebook="a", status=NotebookStatus.passed, kept=True)
    ran = RunResult((kept, PASSED, DENIED), (), 0)
    text = printed(lambda console: print_summary(console, ran, 2.0))
    said = "2 passed, 1 denied (1 of them in an earlier run); 2.0 s, 1.0 a second"
    assert text == f"3 notebooks: {said}\n"


def test_a_report_that_a_runner_is_shown_commands_nothing():
    text = junit([HOSTILE], 1.0)
    assert "##[" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())


def test_a_ci_server_is_told_each_notebook():
    root = ET.fromstring(junit([PASSED, DENIED, SKIPPED], 3.0))
    (suite,) = root
    about = {"tests": "3", "failures": "1", "errors": "0", "skipped": "1", "time": "3.000"}
    assert suite.attrib == {"name": "cellblock run", **about}
    passed, denied, skipped = suite
    assert passed.attrib == {"classname": "a", "name": "x.ipynb", "time": "0.123"}
    assert list(passed) == []
    (failure,) = denied
    message = "cell 3: The cell was not run: 1 finding (policy safe)."
    assert (failure.tag, failure.attrib) == ("failure", {"message": message, "type": "denied"})
    assert failure.text == DENIED.reason
    assert skipped[0].attrib == {"message": "its language is R", "type": "skipped"}


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        (NotebookStatus.failed, "failure"),
        (NotebookStatus.denied, "failure"),
        (NotebookStatus.timed_out, "error"),
        (NotebookStatus.killed, "error"),
        (NotebookStatus.unreadable, "error"),
        (NotebookStatus.skipped, "skipped"),
        (NotebookStatus.interrupted, "skipped"),
    ],
)
def test_a_status_is_a_failure_an_error_or_neither(status, tag):
    (case,) = ET.fromstring(junit([NotebookResult(notebook="a", status=status)], 1.0))[0]
    assert case[0].tag == tag


def test_whatever_a_cell_says_the_report_is_xml():
    said = "".join(map(chr, range(0x20))) + "\x7f\x85\ufffe\uffff<![CDATA[]]>&'\"\U0001f600"
    record = NotebookResult(notebook=f"{said}/{said}", status=NotebookStatus.failed, reason=said)
    (case,) = ET.fromstring(junit([record], 1.0))[0]
    assert case[0].text.endswith("<![CDATA[]]>&'\"\U0001f600")
