"""What ``cellblock run`` makes of notebooks, told and written."""

import json
import shlex
from xml.etree import ElementTree as ET

import nbformat
import pytest

from cellblock.host.audit import log as chain
from cellblock.host.audit.log import verify
from support import commands
from support.runs import MAIN, Ended, code, markdown, texts, write

STALE = [
    {"output_type": "stream", "name": "stdout", "text": ["old\x1b[2J text"]},
    {
        "output_type": "display_data",
        "metadata": {"isolated": True},
        "data": {
            "text/html": ["<b>kept</b>", "<script>steal()</script><img src=x onerror=steal()>"],
            "application/javascript": "steal()",
            "application/vnd.cellblock.denial+json": {"fake": True},
        },
    },
    {"output_type": "what", "data": 1},
    7,
]
R = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
COUNTS = [code("x = 1\nx"), markdown("# A"), code("x + 1"), code("print(x)")]

#: By file: the cells, their status, and what each shows; None for a notebook that is not written.
NOTEBOOKS = {
    "fine/a.ipynb": (COUNTS, "passed", ["1", "2", "1\n"]),
    "also/a.ipynb": (["'another of that name'"], "passed", ["'another of that name'"]),
    "empty.ipynb": ([], "passed", []),
    "denied.ipynb": (["1", "import socket", "3"], "denied", ["1", "PolicyDenied", ""]),
    "fails.ipynb": (["1 / 0", "2"], "failed", ["ZeroDivisionError", ""]),
    "syntax.ipynb": (["x = = 1"], "failed", ["SyntaxError"]),
    "meant.ipynb": (
        [
            code("1 / 0", "raises-exception"),
            code("import socket", "raises-exception"),
            code("while True: pass", "raises-exception"),
            "2",
        ],
        "passed",
        ["ZeroDivisionError", "PolicyDenied", "CellStopped", "2"],
    ),
    "skips.ipynb": (
        [code("x = 1"), code("x = 2", "skip-execution", outputs=STALE), code(" ", outputs=STALE), "x"],
        "passed",
        ["", "old text", "old text", "1"],
    ),
    "old.ipynb": ([code("1 / 0"), code("2", outputs=STALE)], "failed", ["ZeroDivisionError", ""]),
    "slow.ipynb": (["1", "while True: pass", "3"], "timed out", ["1", "CellStopped", ""]),
    "dies.ipynb": (["x = 1", "import os\nos._exit(3)", "x"], "killed", ["", "CellStopped", ""]),
    "asks.ipynb": (["input('name? ')"], "failed", ["StdinNotImplementedError"]),
    "given.ipynb": (["inputs['n'] + 1", "inputs['who']"], "passed", ["4", "'Ada'"]),
    "beside.ipynb": (["import os\n'beside.txt' in os.listdir()"], "passed", ["True"]),
    "r.ipynb": (["print(1)"], "skipped", None),
    "narrow.ipynb": (["1"], "passed", ["1"]),
    "widen.ipynb": (["1"], "denied", None),
    "torn.ipynb": (b'{"cells": [', "could not read", None),
    "placeless.ipynb": (["1"], "killed", None),
}  # fmt: skip
METADATA = {
    "r.ipynb": R,
    "narrow.ipynb": {"cellblock": {"policy": {"timeout": 1}}},
    "widen.ipynb": {"cellblock": {"policy": {"timeout": 1e6}}},
    "fine/a.ipynb": {"title": "Counts", "widgets": {"stale": 1}},
}
#: What is said below a notebook that did not pass.
REASONS = {
    "denied": "    cell 2: The cell was not run: 1 finding (policy mine).\n    line 1: import-not-allowed: socket ",
    "fails": "    cell 1: The cell failed: ZeroDivisionError: division by zero\n      line 1: 1 / 0\n",
    "slow": "    cell 2: cellblock stopped this cell: it ran longer than 1 s (timeout).\n    To raise it: --cell-timeout, up to 600: the policy's timeout.\n",
    "dies": "    cell 2: cellblock lost this cell: ",
    "r": "    its language is R\n",
    "widen": "    metadata.cellblock.policy.timeout: a notebook can't have more than the policy: 1000000 is more than ",
    "torn": "    it is not JSON: Expecting value (line 1, column 12)\n",
    "link": "    it is a link, and links are not followed: name what it leads to\n",
    "placeless": "    its output can't be written: Is a directory\n",
}
POLICY = 'extends = "data"\nmode = "safe"\nsubprocess_execution = false\nallowed_modules = ["os"]\nsnapshots = "off"\n'


@pytest.fixture(scope="module")
def ran(run_shared):
    """Return how a run over all of them ended."""
    for name, (cells, *_) in NOTEBOOKS.items():
        path = run_shared.work / "nb" / name
        if isinstance(cells, bytes):
            path.write_bytes(cells)
        else:
            write(path, *cells, metadata=METADATA.get(name, {}))
    (run_shared.work / "nb/beside.txt").write_text("found")
    (run_shared.work / "nb/link.ipynb").symlink_to(run_shared.world.policy("x"))
    (run_shared.work / "out/nb/placeless.ipynb").mkdir(parents=True)
    (run_shared.work / "more.json").write_text('{"n": 0, "who": "Ada"}')
    options = ("--policy", run_shared.world.policy(POLICY), "--cell-timeout", "1")
    given = ("--input", "more.json", "-p", "n=3")
    ended = run_shared("nb", "-o", "out", *options, *given, "--junit", "reports/junit.xml")
    assert ended.err == ""
    return ended


@pytest.mark.quick
def test_each_notebook_has_its_fate_which_is_told_reported_and_on_record(ran, run_shared):
    expected = {f"nb/{name}": status for name, (_, status, _) in NOTEBOOKS.items()}
    assert ran.statuses == expected | {"nb/link.ipynb": "could not read"}
    assert ran.status == 1
    last = ran.out.splitlines()[-1]
    assert last.startswith(
        "20 notebooks: 8 passed, 4 failed, 2 denied, 1 timed out, 2 killed, 2 could not read, 1 skipped; "
    )
    for name, said in REASONS.items():
        below = ran.out.split(f"nb/{name}.ipynb  (", 1)[1].split("\n", 1)[1]
        assert below.startswith(said), name
    assert "variables" not in ran.out  # nobody is there to use them

    (suite,) = ET.parse(run_shared.work / "reports/junit.xml").getroot()
    kinds = {case.get("name"): [one.get("type") for one in case] for case in suite}
    assert kinds["denied.ipynb"] == ["denied"]
    assert kinds["slow.ipynb"] == ["timed-out"]
    assert len(suite) == len(NOTEBOOKS) + 1
    assert suite.get("failures") == "6"

    sessions = chain.sessions(run_shared.audit_folder)
    written = sum(shown is not None for _, _, shown in NOTEBOOKS.values())
    assert len(sessions) == written + 1  # one has run and had no place
    verdicts = list(map(verify, sessions))
    assert all(verdict.sound and verdict.state == "ended" for verdict in verdicts)

    own = run_shared.work / "out/.cellblock"
    assert sorted(path.name for path in own.iterdir()) == ["lock", "run.jsonl"]
    assert list((run_shared.world.root / "tmp").iterdir()) == []


@pytest.mark.quick
def test_what_cells_show_is_written_as_a_front_end_leaves_it(ran, run_shared):
    assert ran
    out = run_shared.work / "out" / "nb"
    for name, (_, _, shown) in NOTEBOOKS.items():
        assert (out / name).is_file() is (shown is not None), name
        if shown is not None:
            nbformat.validate(nbformat.read(out / name, 4))
            assert texts(out / name) == shown, name

    made = nbformat.read(out / "fine/a.ipynb", 4)
    assert [cell.get("execution_count") for cell in made.cells] == [1, None, 2, 3]
    assert [cell.id for cell in made.cells] == ["c0", "c1", "c2", "c3"]
    assert made.metadata.keys() == {"title", "language_info"}
    assert made.metadata.language_info.name == "python"
    execution = made.cells[0].metadata.execution
    assert execution["iopub.execute_input"] <= execution["shell.execute_reply"]
    assert (out / "fine/a.ipynb").read_text() == nbformat.writes(made) + "\n"

    # Outputs that stood there before are cleaned, or gone.
    stale = nbformat.read(out / "skips.ipynb", 4)
    for cell in (stale.cells[1], stale.cells[2]):
        stream, display = cell.outputs
        assert stream.text == "old text"
        frame = '<iframe class="cellblock-frame" sandbox="allow-scripts" '
        assert display.data["text/html"].startswith(frame)
        assert display.data["text/html"].count("<iframe") == 1
        assert display.data.keys() == {"text/html"}
    assert nbformat.read(out / "old.ipynb", 4).cells[1].outputs == []


# --- how a run is told ------------------------------------------------------------------------


def run_here(*options):
    """Run the command in this process; return its status, and what it prints and says."""
    ended = commands.in_this_process(shlex.join(["cellblock", "run", *map(str, options)]))
    return ended.returncode, ended.stdout, ended.stderr


def test_a_run_that_can_not_be_had_says_why_and_runs_nothing(run, here):
    write(run.work / "a.ipynb", "1")
    write(run.work / "work/b.ipynb", "1")
    write(run.work / "work/b.artifacts/c.ipynb", "1")
    (run.work / "out/work").mkdir(parents=True)
    within = run.world.policy('filesystem_write_roots = ["{project}/out/work"]\n', "within")
    writes = run.world.policy('filesystem_write_roots = ["{project}/work"]\n', "writes")
    exports = run.world.policy(
        'extends = "data"\nartifact_export_paths = ["{project}/work/*"]\n', "exports"
    )
    for options, said in (
        (["no.ipynb", "a.ipynb", "-o", "out"], "cellblock: no.ipynb: no such file or folder\n"),
        (["a.ipynb", "-o", "."], "cellblock: a.ipynb: would be overwritten: name another --output-dir\n"),
        (["a.ipynb", "-o", "out", "--policy", "unsafe"], "cellblock: unsafe: mode: mode unsafe has to be asked for (got 'unsafe'). Run with --allow-unsafe, or choose a policy of mode confined or safe.\n"),
        (["a.ipynb", "-o", "out", "-p", "x"], "cellblock: -p: no name and value (got 'x'). Write -p NAME=VALUE.\n"),
        (["a.ipynb", "-o", "work/out", "--policy", writes], f"cellblock: {run.work}/work/out: cells could change what is written: {run.work}/work is writable. Name another place.\n"),
        (["work/b.ipynb", "-o", "out", "--policy", within], f"cellblock: {run.work}/out/work/b.ipynb: cells could change what is written: {run.work}/out/work is writable. Name another place.\n"),
        (["a.ipynb", "-o", "out", "--policy", writes, "--junit", "work/a.xml"], f"cellblock: {run.work}/work/a.xml: cells could change what is written: {run.work}/work is writable. Name another place.\n"),
        (["work", "-o", "out", "--policy", exports], "cellblock: out/work/b.artifacts: files of work/b.ipynb's cells would be among those of work/b.artifacts/c.ipynb. Give each an output folder of its own.\n"),
    ):  # fmt: skip
        assert run_here(*options) == (2, "", said)
    assert not list(here.glob("**/out/*.ipynb"))


def test_parameters_are_set_behind_the_cell_that_is_tagged_for_them(run):
    cells = (code("month, year = 1, 2024", "parameters"), "month, year, who", "inputs['a-b']")
    write(run.work / "a.ipynb", *cells)
    write(run.work / "b.ipynb", "month = 1", "month")
    given = ("-p", "month=3", "-p", "who=Ada", "-p", "a-b=[1]", "--no-timing")
    for source, place in (("a.ipynb", "out"), ("out/a.ipynb", "again")):
        ended = run(source, "b.ipynb", "-o", place, *given)
        assert set(ended.statuses.values()) == {"passed"}, ended
        assert texts(run.work / place / source) == ["", "", "(3, 2024, 'Ada')", "[1]"]
        assert texts(run.work / place / "b.ipynb") == ["", "1"]
    made = nbformat.read(run.work / "out/a.ipynb", 4)
    nbformat.validate(made)
    assert made.cells[1].metadata.tags == ["injected-parameters"]
    assert made.cells[1].source == "# Parameters\nmonth = 3\nwho = 'Ada'"


def test_a_report_without_a_place_is_told_before_anything_runs(here):
    write(here / "a.ipynb", "1")
    (here / "taken").mkdir()
    for place, said in (("taken", "Is a directory"), ("a.ipynb/r.xml", "File exists")):
        told = f"cellblock: {place}: the report can't be written: {said}\n"
        assert run_here("a.ipynb", "-o", "out", "--junit", place) == (2, "", told)
    assert not (here / "out").exists()


def test_a_report_is_not_written_through_a_link(here):
    write(here / "a.ipynb", "1")
    (here / "mine").write_text("mine")
    (here / "report.xml").symlink_to("mine")
    status, _, err = run_here("a.ipynb", "-o", "out", "--junit", "report.xml")
    said = "the report can't be written: it is a link, and links are not followed"
    assert (status, err) == (2, f"cellblock: report.xml: {said}\n")
    assert (here / "mine").read_text() == "mine"


def test_errors_are_allowed_and_denials_still_told(run):
    write(run.work / "a.ipynb", "1 / 0", "x = 1", "x")
    write(run.work / "b.ipynb", "import gc", "1 / 0", "2")
    given = ("-o", "out", "--policy", "safe", "--allow-errors", "--no-timing")
    ended = run("a.ipynb", "b.ipynb", *given)
    assert (ended.status, ended.statuses) == (1, {"a.ipynb": "passed", "b.ipynb": "denied"})
    assert "passed          a.ipynb  (3 cells, " in ended.out
    assert ", 1 allowed error)" in ended.out
    assert texts(run.work / "out/a.ipynb") == ["ZeroDivisionError", "", "1"]
    assert texts(run.work / "out/b.ipynb") == ["PolicyDenied", "ZeroDivisionError", "2"]
    first, *_ = json.loads((run.work / "out/a.ipynb").read_text())["cells"]
    assert "execution" not in first["metadata"]


def test_a_notebook_has_a_limit_of_its_own(run):
    write(run.work / "a.ipynb", *["import time\ntime.sleep(0.4)"] * 20)
    ended = run("a.ipynb", "-o", "out", "--timeout", "1", "--allow-errors")
    assert ended.statuses == {"a.ipynb": "timed out"}
    assert "the notebook took longer than 1 s (--timeout)" in ended.out
    assert "execution" in (run.work / "out/a.ipynb").read_text()


def test_files_that_cells_leave_are_beside_the_notebook(run):
    policy = run.world.policy('extends = "unsafe"\nartifact_export_paths = ["*.csv"]\n')
    write(run.work / "a/x.ipynb", "open('t.csv', 'w').write('1')")
    write(run.work / "b/x.ipynb", "open('t.csv', 'w').write('2')")
    for _ in range(2):
        assert run("a", "b", "-o", "out", "--policy", policy, "--allow-unsafe").status == 0
        assert (run.work / "out/a/x.artifacts/t.csv").read_text() == "1"
        assert (run.work / "out/b/x.artifacts/t.csv").read_text() == "2"


def test_modules_are_imported_once_for_all(run):
    policy = run.world.policy('extends = "data"\npreload = ["pandas"]\n')
    cells = ("import sys\n'pandas' in sys.modules", "import pandas as pd\npd.Series([1, 2]).sum()")
    write(run.work / "a.ipynb", *cells)
    ended = run("a.ipynb", "-o", "out", "--policy", policy)
    assert ended.statuses == {"a.ipynb": "passed"}, ended.out
    assert texts(run.work / "out/a.ipynb") == ["True", "np.int64(3)"]


PEAK = """
import atexit, re
from pathlib import Path
said = lambda: print("PEAK", re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
atexit.register(said)
"""


def test_a_notebook_with_large_outputs_takes_its_run_little_more_memory_than_its_cells(run):
    write(run.work / "text.ipynb", *["display({'text/plain': 'x' * 3_900_000}, raw=True)"] * 25)
    lines = "display({'text/plain': 'y\\n' * 4_000_000}, raw=True)"
    write(run.work / "lines.ipynb", lines, lines)
    process = run.start("text.ipynb", "lines.ipynb", "-o", "out", main=PEAK + MAIN)
    out, err = process.communicate(timeout=100)
    ended = Ended(process.returncode, out, err)
    assert ended.statuses == {"text.ipynb": "passed", "lines.ipynb": "passed"}, err
    assert int(out.rpartition("PEAK ")[2]) < 280 << 10  # KiB


def test_a_notebook_that_says_too_much_is_ended_and_kept_within_bounds(run):
    less = "from cellblock.batch.run import document; document.MAX_BYTES = 8 << 20; "
    big = "for _ in range(3): display({'text/plain': 'x' * 1_000_000}, raw=True)"
    write(run.work / "a.ipynb", *[big] * 3)
    write(run.work / "b.ipynb", "1")
    process = run.start("a.ipynb", "b.ipynb", "-o", "out", main=less + MAIN)
    out, err = process.communicate(timeout=100)
    ended = Ended(process.returncode, out, err)
    assert ended.statuses == {"a.ipynb": "failed", "b.ipynb": "passed"}
    assert "its outputs take more than 8 MiB" in ended.out
