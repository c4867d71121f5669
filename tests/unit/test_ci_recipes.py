"""The recipes in docs/ci.md: YAML that parses, steps that run, and a gate that shuts."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.cli import main
from support.notebooks import notebook

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ci.md"
CLEAN, BAD = notebook("import math"), notebook("import gc")

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="only the source tree has the page")


def recipes():
    """Return each block of YAML as data."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [yaml.safe_load(block) for block in blocks]


def jobs_of(recipe):
    """Return a workflow's jobs, but for those that run notebooks: tests/docs has these."""
    return [job for name, job in recipe.get("jobs", {}).items() if name == "check"]


def scripts():
    """Return the commands of each job that checks, and a hook's as pre-commit calls it."""
    found = []
    for recipe in recipes():
        if "repos" in recipe:
            (hook,) = recipe["repos"][0]["hooks"]
            found.append([" ".join(["cellblock check", *hook["args"], "notebooks/a.ipynb"])])
        for job in [*jobs_of(recipe), recipe.get("cells", {})]:
            steps = [step["run"] for step in job.get("steps", []) if "run" in step]
            found += [steps] if steps else []
            found += [job["script"]] if "script" in job else []
    return [[line for line in script if not line.startswith("pip install")] for script in found]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Make a repository with what the recipes name; return a function that runs a line in it."""
    for name, text in (
        ("notebooks/a.ipynb", CLEAN),
        ("templates/t.py", "def run(state):\n    return 1\n"),
        ("policy/lab.toml", 'extends = "safe"\n'),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("HOME", tmp_path),
        ("XDG_CACHE_HOME", tmp_path / "cache"),
        ("BASE", "main"),
        ("RUNNER_TEMP", tmp_path),
    ):
        monkeypatch.setenv(name, str(value))

    def run(line):
        if not line.startswith("cellblock "):
            return subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=False).returncode
        # In this process: a start of Python's each would be most of the time.
        monkeypatch.setattr(sys, "argv", shlex.split(os.path.expandvars(line)))
        with pytest.raises(SystemExit) as ended:
            main.main()
        return ended.value.code

    identity = "-c user.name=a -c user.email=a@example.org"
    made = f"git init -q && git add -A && git {identity} commit -qm a"
    assert run(f"{made} && git update-ref refs/remotes/origin/main HEAD") == 0
    return run


def test_every_kind_of_recipe_is_tried_and_workflows_may_only_read_and_keep_no_credentials():
    assert [len(script) for script in scripts()] == [1, 2, 2, 1, 1]
    assert all("cellblock check " in script[-1] for script in scripts())

    workflows = [recipe for recipe in recipes() if "jobs" in recipe]
    assert len(workflows) == 4
    for workflow in workflows:
        assert workflow["permissions"]["contents"] == "read"
        (job,) = workflow["jobs"].values()
        checkout = next(step for step in job["steps"] if "checkout" in step.get("uses", ""))
        assert checkout["with"]["persist-credentials"] is False
        assert not [step for step in job["steps"] if "${{" in step.get("run", "")]


def test_the_gate_opens_for_what_is_clean_and_shuts_for_what_is_not(project, tmp_path):
    for script in scripts():
        for line in script:
            assert project(line) == 0, line
    (tmp_path / "notebooks/a.ipynb").write_text(BAD)
    # What a pull request says of the policy is not asked, but by the hook on its author's machine.
    (tmp_path / "policy/lab.toml").write_text('[add]\nallowed_modules = ["gc"]\n')
    for script in scripts():
        line = next(line for line in script if "notebooks" in line)
        assert project(line) == (0 if "policy/" in line else 1), line
    (report,) = tmp_path.glob("*.sarif")
    assert "import-not-allowed" in report.read_text()
