"""The example notebooks run, and go wrong only where they mean to."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.kernels import ROOT, argv_for

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHIPPED = {
    path.parent.name: json.loads(path.read_text())
    for path in (ROOT / "kernelspec").glob("*/kernel.json")
}


@pytest.fixture
def installed(world, monkeypatch):
    """Install the shipped kernelspecs where only this test finds them."""
    for name, spec in SHIPPED.items():
        folder = world.home / ".local/share/jupyter/kernels" / name
        folder.mkdir(parents=True)
        policy = spec["argv"][spec["argv"].index("--policy") + 1]
        (folder / "kernel.json").write_text(json.dumps(spec | {"argv": argv_for(policy)}))
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    return world


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_as_its_text_says(installed, path):
    notebook = nbformat.read(path, 4)
    assert notebook.metadata.kernelspec.name in SHIPPED
    client = NotebookClient(
        notebook,
        timeout=60,
        allow_errors=True,
        resources={"metadata": {"path": str(installed.work)}},
    )
    client.execute()
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            wrong = [o for o in cell.outputs if o.output_type == "error"]
            meant = "raises-exception" in cell.metadata.get("tags", [])
            assert bool(wrong) == meant, f"{cell.source}\n{wrong}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_kept_without_output(path):
    for cell in nbformat.read(Path(path), 4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
