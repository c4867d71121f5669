"""The scripts that make targets and CI rely on."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"

pytestmark = pytest.mark.skipif(not TOOLS.exists(), reason="only the source tree has tools")


def _run(tool, *args):
    command = [sys.executable, str(TOOLS / tool), *map(str, args)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def _cell(count, *outputs):
    return {"cell_type": "code", "execution_count": count, "outputs": list(outputs)}


def _shown(kind, data):
    bundle = {f"application/vnd.cellblock.{kind}+json": data}
    return {"output_type": "display_data", "data": bundle}


def test_the_summary_counts_denials_apart_from_errors_and_guesses_nothing(tmp_path):
    failed = {"output_type": "error", "ename": "X", "evalue": "", "traceback": []}
    gap = {"capability": "network_access", "consequence": "cells reach the network"}
    policy = {"policy": {"name": "safe", "backend": "landlock"}, "gaps": [gap]}
    cells = [
        _cell(1, _shown("policy", policy)),
        _cell(2, _shown("denial", {}), failed),
        _cell(3, failed),
        _cell(None),
        {"cell_type": "markdown", "source": ""},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    assert _run("summary.py", tmp_path / "n.ipynb").stdout == (
        "cells    3 of 4 ran or were refused\n"
        "denied   1\n"
        "stopped  0\n"
        "errors   1 of the cells' own\n"
        "policy   safe\n"
        "backend  landlock\n"
        "gaps     1\n"
        "         network_access: cells reach the network\n"
    )

    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [_cell(1)]}))
    shown = _run("summary.py", tmp_path / "n.ipynb").stdout
    assert "policy   not told: the notebook has no %policy cell and no gap was shown\n" in shown
    assert "backend  not told\n" in shown
    assert "gaps     none shown\n" in shown


@pytest.mark.parametrize(
    ("module", "status"), [("tests.backends.test_landlock", 1), ("tests.unit.test_x", 0)]
)
def test_a_skipped_backend_test_fails_ci(tmp_path, module, status):
    case = f'<testcase classname="{module}" name="t"><skipped message="no kernel"/></testcase>'
    (tmp_path / "j.xml").write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    ended = _run("skips.py", tmp_path / "j.xml")
    assert ended.returncode == status
    assert f"{module}::t: no kernel" in ended.stdout


def test_a_python_that_is_not_there_is_said_so():
    command = [str(TOOLS / "find-python"), "3.99"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "No Python 3.99 found on PATH or below ~/.pyenv.\n"


def test_each_promise_has_the_lines_that_were_run_of_what_keeps_it():
    def report(run, total):
        names = ("covered_lines", "covered_branches", "num_statements", "num_branches")
        return {"summary": dict(zip(names, (run, 0, total, 0), strict=True))}

    files = {
        "kernel/cellblock/wire/frames.py": report(1, 2),
        "/x/kernel/cellblock/wire.py": report(1, 2),
        "kernel/cellblock/wireless.py": report(0, 9),
    }
    tool = runpy.run_path(str(TOOLS / "promises.py"))
    assert tool["reached"]({"files": files}, ["wire"]) == (2, 4)
    with pytest.raises(ValueError, match="names host, which is not there"):
        tool["reached"]({"files": files}, ["host"])
    kept = tool["kept_by"]((TOOLS.parent / "docs" / "promises.md").read_text())
    assert list(kept) == [f"P{number}" for number in range(1, 15)]
    for module in (module for modules in kept.values() for module in modules):
        path = TOOLS.parent / "kernel" / "cellblock" / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module
