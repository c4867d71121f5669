"""A notebook's audit log comes home with it, or it is said that it does not."""

import asyncio
import dataclasses

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from cellblock.batch.cluster import MAX_AUDIT_BYTES, ClusterExecutor, TaskResult, audit_files
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import NotebookResult, NotebookStatus
from cellblock.batch.run.output_folder import FileSaver, OutputFolder
from cellblock.policy.model import Audit, Policy

SESSION = "0123456789abcdef"
FILE = f"20260101T000000Z-{SESSION}.jsonl"


@pytest.fixture
def audit(tmp_path):
    return Audit(folder=str(tmp_path))


@pytest.fixture
def output(tmp_path):
    made = OutputFolder(tmp_path / "out")
    yield made
    made.close()


def workers(folder, said):
    """Return the executor of a cluster that nobody has gone to yet."""
    return ClusterExecutor("tcp://127.0.0.1:9", Policy(), folder, said.append, allow_unsafe=False)


def home(made, folder, answer):
    """Have what a worker has returned, as a run has it."""

    async def taken():
        saver = FileSaver(folder, "a.ipynb", "key", asyncio.get_running_loop())
        record = made._take_home(answer, saver)
        saver.close(done=True)
        return record

    return asyncio.run(taken())


def test_a_log_comes_and_one_that_is_too_large_is_left(audit, tmp_path):
    (tmp_path / FILE).write_bytes(b"1")
    assert audit_files(SESSION, audit) == ({FILE: b"1"}, "")

    with (tmp_path / FILE).open("wb") as file:
        file.truncate(MAX_AUDIT_BYTES + 1)
    assert audit_files(SESSION, audit) == ({}, "it is over 16 MiB")


@pytest.mark.parametrize(("session", "log"), [("", True), (SESSION, False)])
def test_where_no_log_is_written_none_is_missed(audit, session, log):
    assert audit_files(session, dataclasses.replace(audit, log=log)) == ({}, "")


def test_a_log_that_can_not_be_read_is_left_and_why_is_said(audit, tmp_path):
    assert audit_files(SESSION, audit) == ({}, f"no session {SESSION}")
    (tmp_path / FILE).mkdir()
    assert audit_files(SESSION, audit) == ({}, "it can't be read: Is a directory")


def test_a_run_says_which_log_has_stayed_on_its_worker(output):
    said = []
    record = NotebookResult(notebook="nb/a.ipynb", status=NotebookStatus.passed, session=SESSION)
    answer = TaskResult(result=record, audit_left="it is over 16 MiB")
    assert home(workers(output, said), output, answer) == record
    assert said == ["nb/a.ipynb: its audit log stays on its worker: it is over 16 MiB"]


def test_a_log_is_kept_where_the_output_has_no_place(output):
    (output.path / "a.ipynb").mkdir()
    said = []
    record = NotebookResult(
        notebook="a.ipynb", status=NotebookStatus.passed, cells=1, session=SESSION
    )
    document = Document((), {}, 5).to_bytes()
    answer = TaskResult(result=record, document=document, audit={FILE: b"1"})
    ended = home(workers(output, said), output, answer)
    assert (ended.status, ended.cells) == (NotebookStatus.killed, 1)
    assert ended.reason == "its output can't be written: Is a directory"
    assert (output.path / ".cellblock/audit" / FILE).read_bytes() == b"1"
    assert said == []
