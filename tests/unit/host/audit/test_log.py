"""The file of an audit log: private, whole lines, and what happens without room."""

import contextlib
import fcntl
import json
import os
import resource
import stat
from pathlib import Path

import pytest

from cellblock.errors import AuditError
from cellblock.host.audit import log as chain
from cellblock.host.audit import records
from cellblock.host.audit.log import MOST_WAITING, Log, body, verify
from cellblock.host.audit.recorder import Audit
from cellblock.host.session.types import ExecuteRequest


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "audit"


@pytest.fixture
def log(folder):
    made = Log(folder, max_bytes=1 << 20, fsync=False)
    yield made
    made.close()


def write(log, *texts):
    for text in texts:
        log.write([body(records.Notice(text=text))])


def read(folder):
    """Return the records of all files, in their order."""
    return [
        json.loads(line)
        for path in sorted(folder.iterdir())
        for line in path.open(encoding="utf-8")
    ]


def only(folder):
    (session,) = chain.sessions(folder)
    return verify(session)


@contextlib.contextmanager
def full_at(size):
    """Let no file of this process's grow beyond ``size``, as a full disk would not.

    Not beyond the block: pytest writes files of its own.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# --- what is on disk ------------------------------------------------------------------------------


def test_sessions_that_begin_within_a_second_are_listed_in_their_order(folder):
    logs = [Log(folder, max_bytes=1 << 20, fsync=False) for _ in range(6)]
    for log in reversed(logs):
        write(log, "x")
        log.close()
    assert [one.id for one in chain.sessions(folder)] == [log.session for log in logs]
    assert chain.find(folder, "last").id == logs[-1].session


def test_a_log_is_the_users_alone_as_is_its_folder_and_a_record_on_disk_when_it_was_written(
    log, folder
):
    write(log, "a", "b")
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert fcntl.fcntl(log._fd, fcntl.F_GETFL) & os.O_APPEND
    assert fcntl.fcntl(log._fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    found = [(r["seq"], r["kind"], r["text"]) for r in read(folder)]
    assert found == [(0, "gap", "a"), (1, "gap", "b")]
    assert only(folder).sound


def test_with_fsync_it_is_handed_to_the_disk(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    log = Log(folder, max_bytes=1 << 20, fsync=True)
    write(log, "a")
    assert synced == [log._fd]


def test_what_stands_in_a_logs_place_is_not_written_to(log, folder, tmp_path):
    folder.mkdir(parents=True, mode=0o700)
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was")
    for put in (log.path.symlink_to, lambda other: os.link(other, log.path)):
        put(theirs)
        with pytest.raises(AuditError, match="another file has its name"):
            write(log, "x")
        log.path.unlink()
    assert theirs.read_text() == "as it was"
    write(log, "x")  # positive control


def test_a_log_that_has_all_its_bytes_says_so(folder):
    log = Log(folder, max_bytes=1_000, fsync=False)
    assert log.used_up() is None
    write(log, *"abcd" * 4)
    assert "the 1,000 bytes that the log of a session may have" in str(log.used_up())
    log.close()


def test_two_sessions_share_a_folder_and_no_file(folder):
    logs = [Log(folder, max_bytes=1 << 20, fsync=False) for _ in range(2)]
    for text in "abc":
        for log in logs:
            write(log, text)
    found = chain.sessions(folder)
    assert len(found) == 2
    assert all(verify(one).sound and one.running() for one in found)


# --- what others did to it ------------------------------------------------------------------------


def test_a_log_that_was_removed_goes_on_in_a_new_file(log, folder):
    write(log, "a", "b")
    log.path.unlink()
    write(log, "c")
    assert [r["text"] for r in read(folder)] == ["c"]
    (problem,) = only(folder).problems
    assert problem.what == "records 0 to 1 are missing before record 2"


def test_a_log_that_another_wrote_to_goes_on_behind_that(log, folder):
    write(log, "a")
    with log.path.open("ab") as file:
        file.write(b"{}\n{")
    write(log, "b", "c")
    problems = [(p.line, p.what) for p in only(folder).problems]
    assert problems == [(2, "no record"), (3, "no record")]
    assert [line[-2:] for line in log.path.read_bytes().splitlines()[3:]] == [b'"}'] * 2


def test_a_log_that_another_cut_goes_on_in_a_line_of_its_own(log, folder):
    write(log, "a", "b")
    os.truncate(log.path, 10)
    write(log, "c")
    first, *_ = only(folder).problems
    assert (first.line, first.what) == (1, "no record")
    assert json.loads(log.path.read_text().splitlines()[-1])["text"] == "c"


def linked(folder):
    (folder.parent / "theirs").mkdir()
    folder.symlink_to(folder.parent / "theirs")


def shared(folder):
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (linked, "its folder is a link"),
        (shared, "it would not be this user's alone"),
    ],
)
def test_a_folder_that_is_a_link_or_that_others_may_write_holds_no_log(
    log, folder, change, message
):
    folder.parent.mkdir()
    change(folder)
    with pytest.raises(AuditError) as refused:
        write(log, "a")
    assert refused.value.message == message
    assert not list(folder.iterdir())


def test_a_file_in_the_folders_place_is_an_error_that_names_file_key_and_remedy(log, folder):
    folder.parent.mkdir()
    folder.write_text("")
    with pytest.raises(AuditError) as refused:
        write(log, "a")
    assert str(refused.value) == (
        f"{log.path}: audit.folder: it can't be written: Not a directory. "
        f"Make {folder} writable, or set another audit.folder in the policy."
    )


# --- no room --------------------------------------------------------------------------------------


def test_a_line_that_a_full_disk_cut_is_taken_back(log, folder):
    write(log, "a")
    before = log.path.read_bytes()
    with full_at(len(before) + 100), pytest.raises(AuditError) as refused:
        write(log, "b")
    assert refused.value.message == "it can't be written: File too large"
    assert refused.value.remedy == "Make room there, or set another audit.folder in the policy."
    assert log.path.read_bytes() == before
    write(log, "c")
    assert [r["text"] for r in read(folder)] == ["a", "c"]
    assert only(folder).sound


def test_a_cut_line_that_cannot_be_taken_back_is_ended(log, folder, monkeypatch):
    write(log, "a")
    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", _fails)
        with full_at(log.path.stat().st_size + 100), pytest.raises(AuditError):
            write(log, "b")
    write(log, "c")
    assert [(p.line, p.what) for p in only(folder).problems] == [(2, "no record")]


def _fails(*_):
    raise OSError(5, "Input/output error")


def test_what_could_not_be_written_waits_and_is_written_in_its_order(log, folder):
    audit = Audit(log)
    assert audit.enter(records.Notice(text="a")) is None
    with full_at(log.path.stat().st_size + 10):
        assert isinstance(audit.enter(records.Notice(text="b")), AuditError)
        assert isinstance(audit.enter(records.Notice(text="c")), AuditError)
    assert audit.enter(records.Notice(text="d")) is None
    assert [r["text"] for r in read(folder)] == list("abcd")


def test_what_waits_has_a_bound_and_the_log_says_how_much_is_lost(log, folder):
    audit = Audit(log)
    audit.enter(records.Notice(text="a"))
    with full_at(log.path.stat().st_size):
        for _ in range(12):
            audit.enter(records.Notice(text="b" * (MOST_WAITING // 10)))
    audit.enter(records.Notice(text="c"))
    *waited, lost = read(folder)[1:]
    assert lost["kind"] == "lost"
    assert lost["records"] + len(waited) == 13
    assert only(folder).sound


def cell(raw="x = 1"):
    return ExecuteRequest(code=raw, execution_count=1)


def test_a_cell_that_may_not_start_for_want_of_a_log_is_on_it_as_refused(log, folder):
    audit = Audit(log, required=True)
    assert audit.decided(cell(), (), {}) is None
    with full_at(log.path.stat().st_size):
        assert isinstance(audit.decided(cell(), (), {}), AuditError)
    assert audit.decided(cell(), (), {}) is None
    found = [(r["cell"], r["decision"], r.get("why")) for r in read(folder)]
    assert found == [
        (1, "allowed", None),
        (2, "refused", "the audit log could not be written"),
        (3, "allowed", None),
    ]


def test_a_log_that_is_not_required_keeps_no_cell_from_running_and_is_told_of_once(log):
    audit = Audit(log)
    audit.decided(cell(), (), {})
    for _ in range(2):
        with full_at(log.path.stat().st_size):
            for told in (True, False):
                assert audit.decided(cell(), (), {}) is None
                assert (audit.new_problem() is not None) is told
        audit.decided(cell(), (), {})


def test_without_a_log_nothing_is_entered_and_nothing_is_required(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    audit = Audit(required=True)
    assert audit.decided(cell(), (), {}) is None
    assert audit.enter(records.Notice(text="a")) is None
    audit.close()
    assert not list(Path().iterdir())


LONG = "x" * 2 * MOST_WAITING  # longer than all that may wait


@pytest.mark.parametrize(
    ("raw", "source"), [("'\ud800'", "'?'"), (LONG, LONG)], ids=["odd", "long"]
)
def test_a_source_that_is_no_text_or_long_is_on_the_log(log, folder, raw, source):
    audit = Audit(log, sources=True)
    assert audit.decided(cell(raw), (), {}) is None
    (record,) = read(folder)
    assert record["source"] == source
    assert only(folder).sound


def test_what_is_lost_when_a_session_ends_is_said_on_stderr(log, capsys):
    audit = Audit(log)
    audit.enter(records.Notice(text="a"))
    path = log.path
    with full_at(path.stat().st_size):
        audit.enter(records.Notice(text="b"))
        audit.close()
    assert capsys.readouterr().err == (
        f"cellblock: 2 audit records lost: {path}: audit.folder: it can't be written: "
        "File too large. Make room there, or set another audit.folder in the policy.\n"
    )
