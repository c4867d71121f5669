"""A run that is ended, by whatever, leaves no process, and runs what passed no second time."""

import signal
import time

import pytest

from support import processes
from support.runs import Ended, texts, write

SLOW = "import time\ntime.sleep(60)"


def started(run, *options):
    return run.start("nb", "-o", "out", *options)


def ended(process):
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, err)


def waits(run, cells):
    """Wait until so many cells have ended, as their audit logs say."""

    def ended():
        logs = (run.world.home / ".cache/cellblock/audit").glob("*.jsonl")
        return sum(path.read_text().count('"kind":"outcome"') for path in logs) >= cells

    processes.until(ended, 60)


def test_a_run_that_is_told_to_end_ends_its_cells_and_writes_what_ended(run):
    write(run.work / "nb/a.ipynb", "'done'", SLOW, "3")
    write(run.work / "nb/b.ipynb", "1")
    process = started(run, "-j", "1")
    waits(run, 1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    was = ended(process)
    assert was.status == 130, was
    assert was.statuses == {"nb/a.ipynb": "interrupted", "nb/b.ipynb": "skipped"}
    assert "Stopping: cells that still run are interrupted, and then killed.\n" in was.out
    assert was.err == ""
    assert texts(run.work / "out/nb/a.ipynb") == ["'done'", "KeyboardInterrupt", ""]


def test_a_report_that_fails_does_not_hide_which_signal_ended_a_run(run):
    write(run.work / "nb/a.ipynb", "'done'", SLOW)
    process = started(run, "--junit", "reports/r.xml")
    waits(run, 1)
    (run.work / "reports/r.xml").mkdir()
    process.send_signal(signal.SIGTERM)
    was = ended(process)
    told = "cellblock: reports/r.xml: the report can't be written: Is a directory\n"
    assert (was.status, was.err, was.statuses) == (143, told, {"nb/a.ipynb": "interrupted"})


def test_a_cell_that_does_not_give_way_is_killed_when_the_run_ends(run):
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(1)"
    write(run.work / "nb/a.ipynb", stubborn, "while True: pass")
    process = started(run, "--policy", "unsafe", "--allow-unsafe")
    waits(run, 1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    was = ended(process)
    assert (was.status, was.statuses) == (130, {"nb/a.ipynb": "interrupted"})


@pytest.mark.quick
def test_a_resumed_run_keeps_what_came_to_an_end_and_runs_the_rest(run):
    for name in "abcd":
        write(run.work / f"nb/{name}.ipynb", f"'{name}'", "2")
    write(run.work / "nb/e.ipynb", "'e'", SLOW, "3")
    write(run.work / "nb/f.ipynb", "1 / 0")
    process = started(run, "-j", "1")
    waits(run, 9)
    process.kill()
    process.communicate()

    write(run.work / "nb/e.ipynb", "'e'", "2", "3")
    write(run.work / "nb/a.ipynb", "'changed'")
    was = run("nb", "-o", "out", "--resume")
    kept = [line.split()[1] for line in was.out.splitlines() if line.endswith(", kept)")]
    assert kept == ["nb/b.ipynb", "nb/c.ipynb", "nb/d.ipynb"]
    assert was.statuses == {f"nb/{n}.ipynb": "passed" for n in "abcde"} | {"nb/f.ipynb": "failed"}
    assert texts(run.work / "out/nb/a.ipynb") == ["'changed'"]
    assert texts(run.work / "out/nb/e.ipynb") == ["'e'", "2", "3"]
