"""Open files are as they were: position, length, contents while they are small."""

import os
import threading

import pytest

from cellblock.guest import snapshots


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_what_was_appended_is_cut_off_and_where_a_file_was_read_to_is_restored(path):
    path.write_text("abcdef")
    with path.open() as file:
        os.lseek(file.fileno(), 2, os.SEEK_SET)
        kept = snapshots.capture_files()
        os.lseek(file.fileno(), 5, os.SEEK_SET)
        assert snapshots.restore_files(kept) == 0
        assert os.read(file.fileno(), 9) == b"cdef"

    with path.open("w") as file:
        os.write(file.fileno(), b"before")
        kept = snapshots.capture_files()
        os.write(file.fileno(), b" and after")
        assert snapshots.restore_files(kept) == 0
    assert path.read_bytes() == b"before"


def test_what_was_overwritten_is_written_back(path):
    path.write_bytes(b"0123456789")
    with path.open("r+b", buffering=0) as file:
        kept = snapshots.capture_files()
        file.write(b"xxx")
        file.truncate(5)
        assert snapshots.restore_files(kept) == 0
        assert file.tell() == 0
    assert path.read_bytes() == b"0123456789"


def test_what_is_too_large_to_keep_and_was_cut_is_told(path, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST_EACH", 4)
    path.write_bytes(b"0123456789")
    with path.open("r+b", buffering=0) as file:
        kept = snapshots.capture_files()
        file.truncate(5)
        assert snapshots.restore_files(kept) == 1


def test_a_descriptor_that_is_another_file_by_now_is_left_alone(path, tmp_path):
    path.write_bytes(b"0123456789")
    other = tmp_path / "other"
    other.write_bytes(b"other")
    with path.open("r+b", buffering=0) as file:
        kept = [one for one in snapshots.capture_files() if one.fd == file.fileno()]
        with other.open("r+b") as replaced:
            os.dup2(replaced.fileno(), file.fileno())
        assert snapshots.restore_files(tuple(kept)) == 1
    assert other.read_bytes() == b"other"


def test_contents_are_read_again_only_when_they_changed(path):
    path.write_bytes(b"0123456789")
    with path.open("r+b", buffering=0) as file:
        (first,) = [one for one in snapshots.capture_files() if one.fd == file.fileno()]
        (second,) = [one for one in snapshots.capture_files((first,)) if one.fd == file.fileno()]
        assert second.contents is first.contents


def test_what_a_copy_does_not_have_open_any_more_is_not_missed(path, tmp_path):
    path.write_bytes(b"fonts")
    other = tmp_path / "other"
    other.write_bytes(b"text")
    with path.open() as closed, other.open() as left:
        kept = snapshots.capture_files()
        fd = closed.fileno()
        closed.close()  # as matplotlib does in every child
        assert sum(map(snapshots._is_open, kept)) == len(kept) - 1
        with open(other) as another:  # noqa: PTH123
            assert another.fileno() == fd
            assert sum(map(snapshots._is_open, kept)) == len(kept) - 1
        assert snapshots.restore_files(tuple(filter(snapshots._is_open, kept))) == 0
        assert left.read() == "text"


@pytest.mark.parametrize(("call", "mode"), [("ftruncate", "w"), ("pwrite", "w+")])
def test_what_takes_too_long_is_told_and_left_as_it_is_then(path, monkeypatch, call, mode):
    """As a file in many pieces, and one that a process which does not end keeps locked.

    The next cell runs by then.
    """
    monkeypatch.setattr(snapshots, "_RESTORING", 0.05)
    calls, unlocked, ended = [], threading.Event(), threading.Event()

    def delayed(*args):
        calls.append(args)
        unlocked.wait()
        return snapshots._STEP

    def restore(whole):
        whole()
        ended.set()

    monkeypatch.setattr(snapshots, "run_exempt", restore)
    with path.open(mode) as file:
        os.write(file.fileno(), bytes(2 * snapshots._STEP) if mode == "w+" else b"")
        kept = [one for one in snapshots.capture_files() if one.fd == file.fileno()]
        os.write(file.fileno(), bytes(3 * snapshots._STEP))
        stood = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        with monkeypatch.context() as blocked:
            blocked.setattr(snapshots.os, call, delayed)
            assert snapshots.restore_files(tuple(kept)) == 1
            unlocked.set()
            assert ended.wait(60)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == stood
    assert len(calls) == 1
