"""Frameworks over MCP: each page's code, with the real package and a model that is a script."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import doc_pages
from support.kernels import ROOT

SCRIPTS = ROOT / "tests/docs/frameworks"
#: What `make frameworks` makes: an environment for each, with what its page installs.
ENVIRONMENTS = ROOT / "artifacts/frameworks"


@pytest.mark.parametrize("name", ["openai-agents", "crewai", "llamaindex", "autogen"])
def test_an_agent_keeps_its_variables_and_reads_why_a_cell_was_refused(world, monkeypatch, name):
    python = ENVIRONMENTS / name / "bin/python"
    if not (ENVIRONMENTS / name / "made").exists():  # which is written last
        pytest.skip(f"{name} is not installed: make frameworks does it")
    (world.work / "data").mkdir()
    (world.work / "data/sales.csv").write_text("day,amount\n1,40\n2,2.5\n")
    world.write("agent.toml", doc_pages.files("howto/agent.md")["agent.toml"])
    world.write("analyst.py", doc_pages.files(f"howto/{name}.md")["analyst.py"])
    # Named apart from the framework, which it imports from beside itself otherwise.
    script = f"run_{name.replace('-', '_')}.py"
    for file in (script, "script.py"):
        shutil.copy(SCRIPTS / file, world.root)
    for variable, value in world.environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{world.work}:{world.root}")
    ran = subprocess.run(
        [python, world.root / script],
        cwd=world.work,
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["answer"] == "42.5"
    read, refused, total, variables = told["read"]
    assert "The cell ran and showed nothing." in read
    assert "import-not-allowed: subprocess" in refused
    assert "42.5" in total
    assert "rows: list, length 2" in variables
