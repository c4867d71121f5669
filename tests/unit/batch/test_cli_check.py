"""`cellblock check`: what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support.notebooks import notebook

ROOT = Path(__file__).parents[3]
BAD = notebook("x = 1", "import gc")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make a folder the current one."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def run(processes, judged_in_process):  # noqa: ARG001
    """Run the command in-process, which judges here; return exit status, stdout and stderr."""
    return processes


@pytest.fixture
def processes(here, command):
    """Run the command in-process, which judges in others; return exit status, stdout and stderr."""
    assert here
    return partial(command, "check")


def test_clean_files_end_with_0(run, here):
    (here / "a.ipynb").write_text(notebook("import math"))
    (here / "b.py").write_text("x = 1\n")
    assert run(".") == (0, "2 files, no findings · policy safe\n", "")


def test_findings_end_with_1_and_are_shown_with_their_place(run, here):
    (here / "a.ipynb").write_text(BAD)
    status, out, err = run(".")
    assert (status, err) == (1, "")
    assert out == (
        "a.ipynb:cell 2:1:8: import-not-allowed\n"
        "  1 │ import gc\n"
        "    │        ^^ gc hands out every object in the process\n"
        "\n"
        "To allow it, write this to cells.toml, by hand or by cellblock policy add\n"
        "cells.toml 'LINES'; then give --policy cells.toml.\n"
        '    extends = "safe"\n'
        '    add.allowed_modules = ["gc"]\n'
        "\n"
        "1 finding in 1 of 1 file · policy safe\n"
    )


def test_what_can_t_be_checked_ends_with_2_and_the_rest_is_checked(run, here):
    (here / "a.ipynb").write_text(BAD)
    status, out, err = run(".", "gone.ipynb", "empty\x1b[2J##[x]")
    assert status == 2
    assert "a.ipynb:cell 2:1:8: import-not-allowed" in out
    assert out.endswith("\n1 finding in 1 of 1 file, 2 paths not checked · policy safe\n")
    assert err == (
        "cellblock: empty␛[2J#\N{REPLACEMENT CHARACTER}[x]: no such file or folder\n"
        "cellblock: gone.ipynb: no such file or folder\n"
    )


def test_no_link_is_followed_and_nothing_shown_of_what_it_leads_to(run, here, monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cr3t")
    (here / "environ.py").symlink_to("/proc/self/environ")
    (here / "loop.py").symlink_to("loop.py")
    os.mkfifo(here / "pipe.py")
    for paths in [["."], ["environ.py", "loop.py", "pipe.py"]]:
        status, out, err = run(*paths)
        assert (status, err) == (1, "")
        assert "s3cr3t" not in out
        assert out.count(": file-not-readable\n") == 3
        assert out.count("is a link, and links are not followed") == 2


BROKEN = {
    "cut.ipynb": BAD[:80].encode(),
    "nested.ipynb": b"[" * 100_000,
    "other.ipynb": b'{"nbformat": 4}',
    "python2.py": b"print 'x'",
    "bytes.py": b"x = 1\n'\xff'",
}


def test_broken_files_are_findings_with_their_place_and_no_traceback(run, here):
    for name, content in BROKEN.items():
        (here / name).write_bytes(content)
    status, out, err = run(".")
    assert (status, err) == (1, "")
    assert [line for line in out.splitlines() if ".py:" in line or ".ipynb:" in line] == [
        "bytes.py:2:1: file-not-readable",
        "cut.ipynb:7:4: file-not-readable",
        "nested.ipynb:1:1: file-not-readable",
        "other.ipynb:1:1: file-not-readable",
        "python2.py:1:1: source-not-python",
    ]


def test_the_order_is_that_of_the_paths_however_many_processes_there_are(processes, here):
    for number in range(30):
        (here / f"{number:02}.py").write_text("import gc\n" * (1 + 50 * (number % 2)))
    one = processes(".", "--jobs", "1")
    assert processes(".", "--jobs", "4") == one
    names = [line[:2] for line in one[1].splitlines() if line[:2].isdecimal()]
    assert names == sorted(names)


LAB = 'extends = "data"\nmode = "safe"\nfilesystem_read_roots = ["data"]\nallowed_modules = ["numpy"]\n'


def asking(*cells, **policy):
    return notebook(*cells, metadata={"cellblock": {"policy": policy}})


def test_a_notebook_is_checked_by_what_it_leaves_of_the_policy_and_where_it_lies(run, here):
    (here / "cells.toml").write_text(LAB)
    (here / "less.ipynb").write_text(asking("import numpy", allowed_modules=[]))
    path = asking("import numpy", filesystem_read_roots=["{project}/data/x"])
    (here / "path.ipynb").write_text(path)
    (here / "more.ipynb").write_text(asking("import numpy", timeout=1e6))
    relative = asking("import numpy", filesystem_read_roots=["x"])
    (here / "data").mkdir()
    for folder in (here, here / "data"):
        (folder / "place.ipynb").write_text(relative)
    first = run(".", "--policy", "cells.toml")
    assert [line for line in first[1].splitlines() if ".ipynb:" in line] == [
        "less.ipynb:cell 1:1:8: import-not-allowed",
        "more.ipynb:17:5: policy-only-narrows",
        "place.ipynb:17:5: policy-only-narrows",
    ]
    assert (first[0], first[2]) == (1, "")


def test_a_policy_of_a_file_judges_though_nothing_of_it_is_here(run, here):
    (here / "cells.toml").write_text('[add]\nallowed_modules = ["gc", "their_package"]\n')
    (here / "a.ipynb").write_text(notebook("import gc, their_package"))
    said = "1 file, no findings · policy cells\n"
    assert run("a.ipynb", "--policy", "cells.toml") == (0, said, "")


def test_a_run_that_can_t_be_ends_with_2(run, here):
    (here / "a.py").write_text("x = 1")
    policy = "saef: no such policy. Did you mean safe? Or give a file."
    output = "no/such/folder: the report can't be written: No such file or directory"
    assert run("a.py", "--policy", "saef") == (2, "", f"cellblock: {policy}\n")
    assert run("a.py", "--output", "no/such/folder") == (2, "", f"cellblock: {output}\n")


def test_templates_may_define_and_not_act(run, here):
    (here / "a.py").write_text("def run(state):\n    print(state)\n\nrun(1)\n")
    assert run("a.py")[0] == 0
    status, out, _ = run("a.py", "--template")
    assert status == 1
    assert out == (
        "a.py:4:1: template-definitions\n"
        "  4 │ run(1)\n"
        "    │ ^^^^^^ runs when the template is loaded, not when a cell asks for it\n"
        "  Instead: put it into a function that run(state) calls.\n"
        "\n"
        "1 finding in 1 of 1 file · policy safe, template\n"
    )


def test_patterns_leave_out(run, here):
    for name in ("drafts/a.py", "b.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("import gc")
    assert run(".", "--exclude", "drafts", "--exclude", "b.*")[0] == 2  # nothing is left
    assert run(".", "--exclude", "b.*")[1].startswith("drafts/a.py:")


def test_a_report_is_written_to_a_file(run, here):
    (here / "a.ipynb").write_text(BAD)
    status, out, err = run(".", "--format", "sarif", "--output", "report.sarif")
    assert (status, out, err) == (1, "", "")
    log = json.loads((here / "report.sarif").read_text("ascii"))
    (result,) = log["runs"][0]["results"]
    lines = BAD.splitlines()
    at = result["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert lines[at - 1] == '    "import gc"'


def test_a_link_that_was_checked_out_in_a_reports_place_is_not_followed(run, here, tmp_path):
    (here / "a.py").write_text("x = 1")
    (tmp_path / "mine").write_text("mine")
    (here / "report.sarif").symlink_to(tmp_path / "mine")
    said = "report.sarif: the report can't be written: it is a link, and links are not followed"
    assert run("a.py", "--output", "report.sarif") == (2, "", f"cellblock: {said}\n")
    assert (tmp_path / "mine").read_text() == "mine"
    assert run("a.py", "--output", "/dev/stdout")[0] == 0


def test_as_a_process_it_leaves_none_and_writes_what_its_locale_can(here):
    (here / "a.py").write_text("import gc")
    command = [Path(sys.executable).with_name("cellblock"), "check", "a.py"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(here), "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=60, text=True
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "\\u2502 import gc\n" in ran.stdout


# --- the hook ---------------------------------------------------------------------------------

HOOKS = ROOT / ".pre-commit-hooks.yaml"
needs_tree = pytest.mark.skipif(not HOOKS.exists(), reason="only the source tree has the hook")


def the_hook():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")
    (hook,) = yaml.safe_load(HOOKS.read_text("utf-8"))
    return hook


@needs_tree
def test_pre_commit_takes_the_hook_and_stops_a_commit_by_it(here, monkeypatch):
    pytest.importorskip("pre_commit", reason="comes with the extra 'test'")
    command = [sys.executable, "-m", "pre_commit"]
    subprocess.run([*command, "validate-manifest", HOOKS], check=True, timeout=60)
    # As installed, but here: no environment is made, and nothing is fetched.
    hook = the_hook()
    hook |= {"language": "system", "args": hook["args"]}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (here / ".pre-commit-config.yaml").write_text(json.dumps(config))  # JSON is YAML
    (here / "--exclude=x.py").write_text("import gc")
    (here / "a b.ipynb").write_text(notebook("import math"))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(here.parent / "pre-commit"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run("git init -q && git add -A", shell=True, check=True)

    def ran():
        every = [*command, "run", "--all-files", "--color=never"]
        done = subprocess.run(every, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout

    status, out = ran()
    assert (status, out.count("import-not-allowed")) == (1, 1), out
    (here / "--exclude=x.py").write_text("import math")
    status, out = ran()
    assert (status, out.split(".")[0], out.split(".")[-1]) == (0, "cellblock check", "Passed\n")


@needs_tree
def test_the_hook_takes_names_of_files_for_nothing_else(run, here):
    for name in ("--exclude=*.py", "--policy=x.py", "a.py"):
        (here / name).write_text("import gc")
    status, out, _ = run(*the_hook()["args"], "--exclude=*.py", "--policy=x.py", "a.py")
    assert status == 1
    assert out.endswith("3 findings in 3 of 3 files · policy safe\n")
