"""Workflow files: that they parse, and run what they are there for."""

from pathlib import Path

import pytest

import cellblock

ROOT = Path(cellblock.__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"

pytestmark = pytest.mark.skipif(not WORKFLOWS.exists(), reason="only the source tree has workflows")


def test_the_workflow_for_macos_parses_and_runs_the_tests_for_macos():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab, where that is")
    # YAML 1.1 reads a bare "on" as True.
    workflow = yaml.safe_load((WORKFLOWS / "macos.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()

    assert set(workflow) == {"name", True, "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    assert all(runner.startswith("macos-") for runner in job["strategy"]["matrix"]["runner"])
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1].split()[-2:] == ["tests/macos", "tests/backends/test_seatbelt.py"]
    for path in commands[-1].split()[-2:]:
        assert (ROOT / path).exists()
