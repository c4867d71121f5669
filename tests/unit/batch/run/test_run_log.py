"""What a resumed run leaves out."""

import os

import pytest

from cellblock.batch.run.execution import NotebookResult, NotebookStatus, RunOptions
from cellblock.batch.run.runner import OutputFolder, OutputFolderError, RunLog

NAME = "a/x.ipynb"


@pytest.fixture
def folder(tmp_path):
    made = OutputFolder(tmp_path)
    yield made
    made.close()


def entered(folder, *, key="key", resumed=True):
    log = RunLog(folder, resumed=resumed)
    log.append(NAME, key, NotebookResult(notebook=NAME, status=NotebookStatus.passed, cells=2))
    log.close()


def test_the_same_notebook_is_known_by_its_key_and_name(folder):
    entered(folder)
    log = RunLog(folder, resumed=True)
    kept = log.find(NAME, "key")
    assert (kept.status, kept.cells, kept.kept) == (NotebookStatus.passed, 2, True)
    assert log.find(NAME, "other") is None
    assert log.find("b.ipynb", "key") is None


def test_a_run_that_is_not_resumed_begins_anew(folder):
    entered(folder)
    assert RunLog(folder, resumed=False).find(NAME, "key") is None


def test_lines_that_are_none_are_passed_over(folder):
    entered(folder)
    with (folder.path / ".cellblock/run.jsonl").open("ab") as file:
        file.write(b'\xff\n{"output": 1}\n[]\n' + b"[" * 10**5 + b'\n{"output":"61","key"')
    entered(folder, key="other")
    assert RunLog(folder, resumed=True).find(NAME, "other") is not None


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    OutputFolder(tmp_path).close()
    (tmp_path / ".cellblock/lock").unlink()
    os.mkfifo(tmp_path / ".cellblock/lock")
    with pytest.raises(OutputFolderError, match="can't be locked"):
        OutputFolder(tmp_path)


def test_a_key_tells_apart_what_would_run_differently():
    terms = RunOptions()
    keys = [
        terms.key(b"x", "policy"),
        terms.key(b"y", "policy"),
        terms.key(b"x", "other"),
        RunOptions(parameters={"n": 1}).key(b"x", "policy"),
        RunOptions(parameters={"n": 2}).key(b"x", "policy"),
        RunOptions(parameters={"n": 2**70}).key(b"x", "policy"),
        RunOptions(allow_errors=True).key(b"x", "policy"),
        RunOptions(timeout=1.0).key(b"x", "policy"),
        RunOptions(changes="keep").key(b"x", "policy"),
        RunOptions(cell_timeout=1.0).key(b"x", "policy"),
    ]
    assert len(set(keys)) == len(keys)
    assert terms.key(b"x", "policy") == RunOptions().key(b"x", "policy")
    assert terms.key(b"x", "policy") == RunOptions(changes="drop").key(b"x", "policy")
