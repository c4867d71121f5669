"""A notebook's audit log comes home with it, or it is said that it does not."""

import dataclasses

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

from cellblock.batch.cluster import MAX_AUDIT_BYTES, ClusterExecutor, TaskResult, audit_files
from cellblock.batch.run.document import Document
from cellblock.batch.run.execution import NotebookResult, NotebookStatus
from cellblock.batch.run.runner import OutputFolder
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


def test_a_log_comes_home_or_the_run_says_that_it_stays(output):
    said = []
    record = NotebookResult(notebook="a.ipynb", status=NotebookStatus.passed, session=SESSION)
    made = ClusterExecutor("tcp://127.0.0.1:9", Policy(), output, said.append, allow_unsafe=False)
    document = Document((), {}, 5).to_bytes()
    answer = TaskResult(result=record, document=document, audit={FILE: b"1"})
    result, taken = made._take_home(answer)
    assert (result, taken.to_bytes()) == (record, document)
    assert (output.path / ".cellblock/audit" / FILE).read_bytes() == b"1"
    assert said == []
    answer = TaskResult(result=record, audit_left="it is over 16 MiB")
    assert made._take_home(answer) == (record, None)
    assert said == ["a.ipynb: its audit log stays on its worker: it is over 16 MiB"]
