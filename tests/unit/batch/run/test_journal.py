"""A run that is killed at any moment loses no cell that ended, and its end is known once."""

import asyncio
import json
import os

import pytest

from cellblock.batch.run import output_folder as module
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import (
    NotebookResult,
    NotebookStatus,
    RunOptions,
    UnwritableError,
)
from cellblock.batch.run.output_folder import (
    FileSaver,
    OutputFolder,
    OutputFolderError,
    RunLog,
    recover,
)
from support.runs import code

NAME = "a/x.ipynb"
PASSED = NotebookResult(notebook=NAME, status=NotebookStatus.passed, cells=2, seconds=1.5)
SHOWN = [{"output_type": "stream", "name": "stdout", "text": "1"}]


class Once:
    """A notebook of three cells on its way."""

    def __init__(self, root, loop):
        self.folder = OutputFolder(root)
        self.document = Document([code(str(n), id=f"c{n}") for n in range(3)], {"k": 1}, 5)
        self.saver = FileSaver(self.folder, NAME, "key", loop)
        self.saver.begin(self.document)

    def run_cell(self, index, widgets=None):
        cell = self.document.put(index, code(str(index), id=f"c{index}", outputs=SHOWN))
        self.document.take_widgets(widgets or {})
        self.saver.save_cell(index, cell, widgets or {})

    def die(self):
        """Leave what a killed process leaves."""
        self.saver.close(done=False)
        self.folder.close()


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def once(tmp_path, loop):
    return Once(tmp_path, loop)


def folded(root, left=0):
    """What the next run in the folder finds: the log as it is resumed, and how many files.

    So many journals are left.
    """
    folder = OutputFolder(root)
    log = RunLog(folder, resumed=True)
    made = recover(folder, log)
    log.load()
    log.close()
    assert len(folder.names(".cells")) == left
    folder.close()
    return log, made


def shown(root):
    cells = json.loads((root / NAME).read_bytes())["cells"]
    return ["".join(out["text"][0] for out in cell["outputs"]) for cell in cells]


def test_cells_that_ended_are_in_the_file_once_the_run_was_killed(once, tmp_path):
    once.run_cell(0)
    once.run_cell(2, {"w": {"model_name": "M"}})
    once.die()
    assert not (tmp_path / NAME).exists()
    log, made = folded(tmp_path)
    assert (made, shown(tmp_path)) == (1, ["1", "", "1"])
    assert (tmp_path / NAME).read_bytes() == b"".join(once.document.file_content())
    assert log.find(NAME, "key", passed=False) is None


def test_a_cell_that_was_updated_is_as_it_was_last(once, tmp_path):
    once.run_cell(0)
    once.saver.save_cell(0, once.document.put(0, code("0", id="c0")), {})
    once.die()
    folded(tmp_path)
    assert shown(tmp_path) == ["", "", ""]


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_line_that_was_cut_off_costs_that_line_alone(once, tmp_path, cut):
    once.run_cell(0)
    once.run_cell(1)
    once.die()
    (journal,) = (tmp_path / ".cellblock").glob("*.cells")
    journal.write_bytes(journal.read_bytes()[:-cut])
    folded(tmp_path)
    assert shown(tmp_path) == ["1", "", ""]


BEGUN = b'{"type":"begun","output":"%b","key":"k","metadata":%b,"minor":5,"cells":1}\n'
CELL = b'{"type":"cell","index":0,"cell":%b}\n'
NONE = [
    b"",
    b"{}\n",
    b"\xff\n",
    b'{"type":"ended"}\n',
    b"[" * 10**5,
    BEGUN % (b"61", b"{}"),
    BEGUN % (b"61", b'{"a":' * 200_000 + b"1" + b"}" * 200_000) + CELL % b"{}",
    BEGUN % (b"61", b"{}") + CELL % (b"[" * 200_000 + b"]" * 200_000),
]


@pytest.mark.parametrize("content", NONE)
def test_a_journal_that_is_none_is_removed(tmp_path, content):
    OutputFolder(tmp_path).close()
    (tmp_path / ".cellblock/x.cells").write_bytes(content)
    assert folded(tmp_path)[1] == 0


def test_what_was_put_in_the_place_of_the_runs_own_files_ends_no_run(tmp_path):
    OutputFolder(tmp_path).close()
    (tmp_path / ".cellblock/x.cells").mkdir()
    (tmp_path / ".cellblock/y.cells").symlink_to("/dev/zero")
    (tmp_path / ".cellblock/run.jsonl").write_bytes(b"[" * 10**5 + b"\n")
    assert folded(tmp_path, left=1)[1] == 0


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    OutputFolder(tmp_path).close()
    (tmp_path / ".cellblock/lock").unlink()
    os.mkfifo(tmp_path / ".cellblock/lock")
    with pytest.raises(OutputFolderError, match="can't be locked"):
        OutputFolder(tmp_path)


@pytest.mark.parametrize("name", ["../x.ipynb", "\0", "a\0/x.ipynb"])
def test_a_journal_that_names_a_file_elsewhere_writes_none(once, tmp_path, name):
    once.die()
    (journal,) = (tmp_path / ".cellblock").glob("*.cells")
    line = journal.read_bytes()
    journal.write_bytes(line.replace(NAME.encode().hex().encode(), name.encode().hex().encode()))
    assert folded(tmp_path, left=1)[1] == 0
    assert not (tmp_path.parent / "x.ipynb").exists()


def test_a_notebook_that_ended_just_before_is_not_run_again(once, tmp_path):
    once.run_cell(0)
    once.saver.finish(PASSED)
    assert shown(tmp_path) == ["1", "", ""]
    once.die()
    log, _ = folded(tmp_path)
    kept = log.find(NAME, "key", passed=True)
    assert (kept.status, kept.cells, kept.kept) == (NotebookStatus.passed, 2, True)


def test_one_that_is_done_leaves_no_journal(once):
    once.saver.finish(PASSED)
    once.saver.close(done=True)
    assert once.folder.names("") == ["lock"]
    once.folder.close()


def test_the_file_follows_while_cells_run(once, tmp_path, loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_DELAY", 0.01)
    once.run_cell(0)
    assert not (tmp_path / NAME).exists()
    loop.run_until_complete(asyncio.sleep(0.1))
    assert shown(tmp_path) == ["1", "", ""]
    once.run_cell(1)
    loop.run_until_complete(asyncio.sleep(0.1))
    assert shown(tmp_path) == ["1", "1", ""]
    once.die()


def test_many_cells_are_written_a_few_times(once, loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_DELAY", 0.02)
    written = []
    monkeypatch.setattr(once.folder, "write", lambda *what: written.append(what))

    async def cells():
        for _ in range(500):
            once.run_cell(1)
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)

    loop.run_until_complete(cells())
    assert 1 <= len(written) < 100
    once.die()


def test_what_can_not_be_written_is_told(once, tmp_path):
    (tmp_path / NAME).mkdir(parents=True)
    with pytest.raises(UnwritableError, match="its output can't be written: Is a directory"):
        once.saver.finish(PASSED)
    once.die()


# --- the log -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    made = OutputFolder(tmp_path)
    yield made
    made.close()


def resumed(folder):
    made = RunLog(folder, resumed=True)
    made.load()
    return made


def entered(folder, status, key="key"):
    log = RunLog(folder, resumed=True)
    log.append(NAME, key, NotebookResult(notebook=NAME, status=status))
    log.close()


def test_the_last_word_on_the_same_notebook_and_key_counts(folder):
    entered(folder, NotebookStatus.failed)
    entered(folder, NotebookStatus.passed)
    assert resumed(folder).find(NAME, "key", passed=False).status is NotebookStatus.passed

    entered(folder, NotebookStatus.passed)
    assert resumed(folder).find(NAME, "other", passed=False) is None
    assert resumed(folder).find("b.ipynb", "key", passed=False) is None


@pytest.mark.parametrize("status", NotebookStatus)
def test_what_the_same_notebook_meets_again_is_kept(folder, status):
    entered(folder, status)
    log = resumed(folder)
    kept = log.find(NAME, "key", passed=False)
    again = status in {
        NotebookStatus.unreadable,
        NotebookStatus.skipped,
        NotebookStatus.interrupted,
    }
    assert (kept is None) is again
    assert (log.find(NAME, "key", passed=True) is not None) is (status is NotebookStatus.passed)


def test_a_run_that_is_not_resumed_begins_anew(folder):
    entered(folder, NotebookStatus.passed)
    RunLog(folder, resumed=False).close()
    assert resumed(folder).find(NAME, "key", passed=False) is None


def test_lines_that_are_none_are_passed_over(folder):
    entered(folder, NotebookStatus.passed)
    with (folder.path / ".cellblock/run.jsonl").open("ab") as file:
        file.write(b'\xff\n{"output": 1}\n[]\n{"output":"61","key"')
    entered(folder, NotebookStatus.failed, key="other")
    assert resumed(folder).find(NAME, "other", passed=False).status is NotebookStatus.failed


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
