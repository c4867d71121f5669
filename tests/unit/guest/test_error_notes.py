"""Which policy field a refusal of the OS layer names."""

import errno
import os
import sqlite3

import pytest

from cellblock.guest.runner import explain
from cellblock.wire.messages import Plan

LOCKED = Plan(
    locks=("landlock", "seccomp"),
    read_roots=("/usr", "/project"),
    write_roots=("/scratch",),
    device_files=("/dev/null",),
)


def noted(error, plan=LOCKED):
    explain(error, plan)
    return getattr(error, "__notes__", [])


def refused(path, number=errno.EACCES):
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/etc/passwd", "filesystem_read_roots"),
        ("/usrlocal", "filesystem_read_roots"),
        ("/project/../etc/passwd", "filesystem_read_roots"),
        ("/project/out.csv", "filesystem_write_roots"),
        (b"/usr/lib/x", "filesystem_write_roots"),
    ],
)
def test_a_path_is_judged_by_the_roots(path, field):
    (note,) = noted(refused(path))
    assert note.startswith("cellblock: ")
    assert f"To allow it: {field}" in note


@pytest.mark.parametrize(
    "error",
    [
        OSError(
            errno.EACCES, "Failed to open local file '/etc/passwd'. Detail: [errno 13]"
        ),  # arrow
        PermissionError("Permission denied (os error 13): /etc/passwd"),  # polars
    ],
)
def test_a_path_is_found_in_what_a_library_says(error):
    (note,) = noted(error)
    assert "/etc/passwd is outside the folders that cells may use" in note


def test_a_database_that_can_not_be_opened_is_explained(tmp_path):
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "absent" / "x.db").execute("create table t(a)")
    (note,) = noted(caught.value)
    assert "filesystem_write_roots" in note


@pytest.mark.parametrize(
    "error",
    [
        refused("/scratch/x"),
        refused("/dev/null"),
        refused("/etc/x", errno.ENOENT),
        PermissionError("said by user code"),
        OSError(errno.EACCES, "no file named"),
        PermissionError("can't open '/scratch/x'"),
        sqlite3.OperationalError("no such table"),
        ValueError("/etc/passwd"),
        refused(7),
    ],
    ids=range(9),
)
def test_what_is_not_our_doing_gets_no_note(error):
    assert noted(error) == []


def test_without_locks_and_where_the_policy_allows_it_nothing_is_our_doing():
    assert noted(refused("/etc/passwd"), Plan()) == []

    def connect():
        raise OSError(errno.EACCES, "x")  # socket.connect()

    with pytest.raises(OSError) as caught:
        connect()
    assert noted(caught.value, Plan(locks=("seccomp",), network=True, subprocess=True)) == []


def test_calls_are_known_by_the_line_that_made_them():
    def fork():
        raise OSError(errno.EPERM, "x")  # os.fork()

    def connect():
        raise OSError(errno.EACCES, "x")  # socket.socket()

    for action, field in ((fork, "subprocess_execution"), (connect, "network_access")):
        with pytest.raises(OSError) as caught:
            action()
        (note,) = noted(caught.value)
        assert field in note
        assert noted(caught.value) == [note]


def test_the_cause_is_noted_where_it_is_and_what_raises_at_every_touch_is_left_alone():
    cause = refused("/etc/passwd")
    error = RuntimeError("library")
    error.__cause__ = cause
    assert noted(error) == []
    assert len(cause.__notes__) == 1

    class NastyError(PermissionError):
        @property
        def errno(self):
            raise RuntimeError

    explain(NastyError(13, "x", "/etc"), LOCKED)
