"""Receipts of notebooks that were run: of the file that was written, what was copied out or kept."""

import hashlib
import re

import pytest
from typer.testing import CliRunner

from cellblock.api import receipts
from cellblock.cli.main import app
from support.runs import write

POLICY = """
extends = "data"
filesystem_read_roots = ["{project}"]
filesystem_staged_roots = ["{project}"]
artifact_export_paths = ["{scratch}/*.png"]
"""
CELL = (
    "import os\n_ = open('new.csv', 'w').write('a')\n"
    "_ = open(os.environ['HOME'] + '/plot.png', 'w').write('b')"
)


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def ran(run, here):
    """Run a notebook that writes files, and one that fails; return their folder."""
    write(here / "a.ipynb", CELL)
    write(here / "b.ipynb", "inputs['n'] + 1")
    policy = run.world.policy(POLICY)
    options = ("-o", "out", "--policy", policy, "--changes", "keep", "-p", "n=1", "--receipt")
    write(here / "c.ipynb", "1 / 0")
    ended = run("a.ipynb", "b.ipynb", "c.ipynb", *options)
    assert ended.status == 1, ended
    return here / "out"


def verified(file):
    return receipts.verify(file.read_bytes(), receipts.own_key(make=False).public_key())


def test_each_notebook_has_one_beside_it_of_all_that_came_of_it(ran, here):
    said = verified(ran / "a.receipt.json")
    found = {one.name: one.digest["sha256"] for one in said.subject}
    assert found == {
        "notebook": sha256(ran / "a.ipynb"),
        "artifacts/plot.png": sha256(ran / "a.artifacts" / "plot.png"),
        "kept/new.csv": sha256(here / "new.csv"),
    }
    made = said.predicate
    assert (made.notebook, made.notebook_sha256) == ("a.ipynb", sha256(here / "a.ipynb"))
    assert (made.status, made.cells, made.errors, made.policy) == ("passed", 1, 0, "mine")
    assert made.parameters_sha256 == receipts.digest({"n": 1})
    assert verified(ran / "b.receipt.json").predicate.session != made.session
    assert verified(ran / "c.receipt.json").predicate.status == "failed"


def test_a_notebook_that_was_changed_since_is_not_what_it_is_for(ran, monkeypatch):
    monkeypatch.chdir(ran)
    verify = ["receipt", "verify", "b.receipt.json", "--file", "b.ipynb"]
    done = CliRunner().invoke(app, verify)
    assert done.exit_code == 0, done.output
    assert re.search(r"notebook b.ipynb, session \w+: passed\n1 cell ran\nended ", done.output)
    assert done.output.endswith("b.ipynb: notebook\n")
    (ran / "b.ipynb").write_text((ran / "b.ipynb").read_text().replace("2", "3"))
    assert CliRunner().invoke(app, verify).exit_code == 1


def test_what_a_cell_wrote_passes_for_no_notebook(ran, here, tmp_path):
    forged = tmp_path / "a.ipynb"
    forged.write_bytes((here / "new.csv").read_bytes())
    verify = ["receipt", "verify", str(ran / "a.receipt.json"), "--file"]
    done = CliRunner().invoke(app, [*verify, str(forged)])
    assert done.exit_code == 1, done.output
    assert "the receipt is not for this file" in done.output
    done = CliRunner().invoke(app, [*verify, f"kept/new.csv={forged}"])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, [*verify, f"notebook={forged}"]).exit_code == 1


def test_nothing_runs_where_nothing_can_be_signed(run, here):
    write(here / "a.ipynb", "1")
    key = receipts.key_file()
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_text("no key")
    key.chmod(0o600)
    ended = run("a.ipynb", "-o", "out", "--receipt")
    assert ended.status == 2
    assert not (here / "out" / "a.ipynb").exists()
