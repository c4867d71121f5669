"""`cellblock check` lets pass what a kernel admits, and nothing else: approved cells, templates."""

import json
import shutil
from pathlib import Path

import pytest

from cellblock.cli import main as cli
from support.notebooks import notebook

SHIPPED = Path(__file__).parents[3] / "notebooks"


@pytest.fixture
def run(command, monkeypatch, tmp_path, judged_in_process):  # noqa: ARG001
    """Run the command in-process in a folder above the notebooks'; return status, stdout, stderr."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.toml").write_text('admission = "approved"\n')
    (tmp_path / "work").mkdir()
    return command


@pytest.fixture
def written(tmp_path):
    def write(*cells, name="a.ipynb"):
        (tmp_path / "work" / name).write_text(notebook(*cells))

    return write


def approve(run):
    run("approve", "work/a.ipynb", "--policy", "lab.toml", "--yes")


def check(run, name="a.ipynb", policy="lab.toml"):
    return run("check", "--policy", policy, f"work/{name}")


def test_what_was_approved_passes_and_what_was_changed_since_does_not(run, written):
    written("x = 1", "", "%usage", "x + 1")
    approve(run)
    assert check(run)[:2] == (0, "1 file, no findings · policy lab\n")
    written("x = 1", "x + 2")
    status, out, _ = check(run)
    assert status == 1
    assert out == (
        "work/a.ipynb:cell 2:1:1: cell-not-approved\n"
        "  1 │ x + 2\n"
        "    │ ^^^^^ This text is not among the cells that were approved\n"
        "  Instead: have it approved: cellblock approve NOTEBOOK, with this kernel's\n"
        "  --policy.\n"
        "\n"
        "1 finding in 1 of 1 file · policy lab\n"
    )


def test_rules_hold_for_what_was_approved(run, written):
    written("import gc")
    approve(run)
    status, out, _ = check(run)
    assert (status, out.partition("\n")[0]) == (1, "work/a.ipynb:cell 1:1:8: import-not-allowed")


def test_what_is_approved_of_another_notebook_is_not_of_this_one(run, written):
    written("x = 1")
    approve(run)
    written("x = 1", name="b.ipynb")
    assert check(run, "b.ipynb")[0] == 1


def test_what_is_taken_back_counts_at_once_whatever_verdicts_are_kept(run, written):
    written("x = 1")
    approve(run)
    assert check(run)[0] == 0
    run("approve", "--revoke", "work/a.ipynb", "--policy", "lab.toml")
    assert check(run)[0] == 1


def test_a_key_or_a_manifest_that_is_missing_is_no_clean_verdict(run, written, tmp_path):
    written("x = 1")
    data = tmp_path / "XDG_DATA_HOME" / "cellblock"
    status, out, err = check(run)
    last = "0 files, no findings, 1 path not checked · policy lab"
    assert (status, out.splitlines()[-1]) == (2, last)
    assert err.startswith(
        f"cellblock: work/a.ipynb: cellblock can't tell which cells may run: {data}/approval.key: "
    )
    approve(run)
    (manifest,) = (data / "approved").glob("*.json")
    whole = manifest.read_bytes()
    manifest.unlink()
    _, _, err = check(run)
    assert err == (
        f"cellblock: work/a.ipynb: cellblock can't tell which cells may run: {manifest}: approval.folder: no"
        f" notebook in {tmp_path / 'work'} was approved. Approve what is to run: cellblock approve NOTEBOOK.\n"
    )
    manifest.write_bytes(whole.replace(b"x = 1", b"y = 1"))
    status, _, err = check(run)
    assert status == 2
    assert "it was changed since it was signed" in err


def test_of_the_lesson_on_templates_only_what_it_shows_being_refused_is_found(run):
    lesson = SHIPPED / "templates.ipynb"
    policy = str(lesson.with_suffix(".toml"))
    _, out, _ = run("check", "--policy", policy, "--format", "json", str(lesson))
    cells = json.loads(lesson.read_text())["cells"]
    shown = {n for n, one in enumerate(cells, 1) if "tags" in one["metadata"]}
    found = [(one["cell"], one["rule"]) for one in json.loads(out)["findings"]]
    assert {cell for cell, _ in found} == shown
    assert {rule for _, rule in found} == {"template-state", "not-a-template"}


def test_under_templates_any_other_cell_is_a_finding(run, written, tmp_path):
    (tmp_path / "t.toml").write_text('admission = "template"\n')
    written('%%template describe\n{"numbers": [1, 2]}', "x = 1", "%template", "")
    status, out, _ = check(run, policy="t.toml")
    assert status == 1
    assert [line for line in out.split("\n") if line.startswith("work")] == [
        "work/a.ipynb:cell 2:1:1: not-a-template"
    ]


def test_a_template_or_schema_that_is_changed_makes_another_verdict(run, written, tmp_path):
    folder = tmp_path / "shelf"
    shutil.copytree(Path(cli.__file__).parents[1] / "templates", folder)
    folder.chmod(0o700)
    (tmp_path / "t.toml").write_text(f'admission = "template"\ntemplates.folders = ["{folder}"]\n')
    written('%%template describe\n{"numbers": [1, 2]}')
    assert check(run, policy="t.toml")[0] == 0
    schema, source = folder / "describe.schema.json", folder / "describe.py"
    kept = schema.read_text()
    schema.write_text('{"type": "array"}')
    assert ": template-state\n" in check(run, policy="t.toml")[1]
    schema.write_text(kept)
    source.write_text("def run(state):\n    return open(state)\n")
    status, out, _ = check(run, policy="t.toml")
    assert status == 1
    assert out.startswith("work/a.ipynb:cell 1:1:1: builtin-not-allowed\n")
    assert "template describe, line 2: open opens files" in " ".join(out.split())
