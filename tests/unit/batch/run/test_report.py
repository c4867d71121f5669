"""What is said of a run: to people, to a CI server, and nothing that either obeys."""

import io
from functools import partial
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from cellblock.batch.run import report
from cellblock.batch.run.execution import NotebookResult, NotebookStatus
from cellblock.batch.run.report import Progress, ProgressBar, junit, print_summary
from cellblock.batch.run.runner import RunResult
from cellblock.cli import run as cli_run
from cellblock.policy.enforcement import Gap

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
    assert report.result_text(PASSED) == "passed          a/x.ipynb  (5 cells, 0.12 s)"
    assert report.result_text(DENIED) == (
        "denied          b.ipynb  (2 cells, 0.05 s)\n"
        "    cell 3: The cell was not run: 1 finding (policy safe).\n"
        "    line 1: import-not-allowed: os"
    )

    lines = "\n".join(f"line {n} " + "x" * 500 for n in range(100))
    told = report.result_text(
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
        "  memory max bytes   partial      files on a file system in memory that are not\n"
        "                                  mapped count for scratch_max_bytes\n"
        "                                  → run the kernel in a cgroup with memory.max\n"
        "1 notebook: 1 passed; 2.0 s, 0.5 a second\n"
    )


def test_what_a_notebook_says_commands_neither_terminal_nor_runner():
    def show(console):
        with Progress(console) as lines:
            lines.ended(HOSTILE)
        print_summary(console, RunResult((HOSTILE,), (), 0), 1.0)

    text = printed(show)
    assert "\x1b" not in text
    assert "##[" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert "[bold]no markup[/]" in text


def test_a_name_that_a_table_folds_commands_no_runner():
    for columns in range(40, 80):
        name = "a" * 20 + "::error::x " * 9 + "[b]:smile:.ipynb"
        ran = RunResult(
            (NotebookResult(notebook=name, status=NotebookStatus.failed, cell=1),), (), 0
        )
        text = printed(partial(print_summary, run=ran, seconds=1.0), columns=columns)
        assert not any(line.lstrip().startswith("::") for line in text.splitlines()), columns
        assert "\U0001f604" not in text, columns


def test_a_report_that_a_runner_is_shown_commands_nothing():
    text = junit([HOSTILE], 1.0)
    assert "##[" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())


def test_on_a_terminal_only_what_did_not_pass_stands_above_the_bar():
    def show(console):
        with ProgressBar(console, 3) as bar:
            for one in (PASSED, DENIED):
                bar.began(one.notebook)
                bar.ended(one)
            bar.stopping()

    text = printed(show, force_terminal=True, color_system=None)
    assert "denied          b.ipynb  (2 cells, 0.05 s)\n" in text
    assert "a/x.ipynb  (5" not in text
    assert "2/3" in text
    assert "Ending: what runs is interrupted, and then killed." in text


def test_where_colours_are_forced_into_a_pipe_there_is_no_bar(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Console().is_terminal
    assert isinstance(cli_run._progress(Console(), 3), Progress)


def test_a_summary_has_a_row_a_notebook_and_counts_statuses():
    text = printed(lambda console: print_summary(console, RunResult((DENIED, PASSED), (), 0), 2.0))
    assert [line.split() for line in text.splitlines() if "ipynb" in line] == [
        ["passed", "a/x.ipynb", "5", "0.12", "s", "50.0", "MiB"],
        ["denied", "b.ipynb", "2", "0.05", "s", "cell", "3"],
    ]
    assert text.splitlines()[-1] == "2 notebooks: 1 passed, 1 denied; 2.0 s, 1.0 a second"


def test_of_many_notebooks_those_that_did_not_pass_have_a_row_and_what_was_kept_is_told_apart():
    many = (*[PASSED] * 100, DENIED)
    text = printed(lambda console: print_summary(console, RunResult(many, (), 0), 2.0))
    assert text.count("ipynb") == 1

    kept = NotebookResult(notebook="a", status=NotebookStatus.passed, kept=True)
    said = "2 notebooks: 2 passed (1 of them in an earlier run); 2.0 s, 0.5 a second"
    assert report.totals([kept, PASSED], 2.0) == said


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
