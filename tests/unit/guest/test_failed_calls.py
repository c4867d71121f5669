"""What a guest tells of the call behind an exception."""

import errno
import os
import resource
import socket
import sqlite3
import sys
from pathlib import Path

import pytest

from cellblock.guest.audit_hook import effects
from cellblock.guest.tracebacks import failed_call
from cellblock.wire.messages import FailedCall

DENIED, MISSING = errno.EACCES, errno.ENOENT


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(DENIED, "x", "/no/../etc"), FailedCall("file", DENIED, "/etc")),
        (OSError(DENIED, "x", b"/usr/x"), FailedCall("file", DENIED, "/usr/x")),
        (OSError(DENIED, "open '/a/b'. Detail"), FailedCall("file", DENIED, "/a/b")),  # arrow
        (PermissionError("no (os error 13): /a"), FailedCall("file", DENIED, "/a")),  # polars
        (OSError("x (os error 30): /a/b"), FailedCall("file", errno.EROFS, "/a/b")),
        (FileNotFoundError("x (os error 2): /a/b c"), FailedCall("file", MISSING, "/a/b c")),
        (FileNotFoundError("/a/b.parquet"), FailedCall("file", MISSING, "/a/b.parquet")),
        (FileNotFoundError("/a/b.txt not found."), FailedCall("file", MISSING, "/a/b.txt")),
        (OSError("File `'/a/b.py'` not found."), FailedCall("file", MISSING, "/a/b.py")),
        (OSError("not 'a name' but '/a/b'"), FailedCall("file", MISSING, "/a/b")),
        (
            OSError("Cannot save file into a non-existent directory: '/a/b'"),  # pandas
            FailedCall("file", MISSING, "/a/b", writes=True, in_folder=True),
        ),
        (
            RuntimeError("Parent directory /a/b does not exist."),  # PyTorch
            FailedCall("file", MISSING, "/a/b", writes=True, in_folder=True),
        ),
        (
            RuntimeError('IO Error: Cannot open file "/a/b.db": No such file or directory'),
            FailedCall("file", MISSING, "/a/b.db"),  # DuckDB
        ),
        (RuntimeError("/a/b.shp: Permission denied"), FailedCall("file", DENIED, "/a/b.shp")),
        (KeyError("/a/b"), None),
        (RuntimeError("'/a/b' is no table"), None),
        (
            OSError(errno.EXDEV, "x", "/etc", None, "/a"),
            FailedCall("file", errno.EXDEV, "/etc", True, other="/a"),
        ),
        (OSError(MISSING, "x", "/no", None, "/a"), FailedCall("file", MISSING, "/no")),
        (OSError(errno.EBUSY, "x", "/etc", None, "/a"), FailedCall("file", errno.EBUSY, "/etc")),
        (OSError(DENIED, "x", 7), FailedCall("file", DENIED)),
        (OSError(errno.EPERM, os.strerror(errno.EPERM)), FailedCall("file", errno.EPERM)),
        (OSError(errno.EPERM, "The program would replace the interpreter"), None),
        (MemoryError(), FailedCall("memory")),
        (
            MemoryError("Unable to allocate 1.5 KiB for an array with shape (2,)"),
            FailedCall("memory", size=1_536),
        ),
        (MemoryError("malloc of size 1000 failed"), FailedCall("memory", size=1_000)),
        (RuntimeError("can't start new thread"), FailedCall("thread", errno.EAGAIN)),
        (socket.gaierror(socket.EAI_AGAIN, "x"), FailedCall("network", errno.EHOSTUNREACH)),
        (ValueError("/etc/passwd"), None),
        (OSError("no number"), None),
        (ConnectionError("retries exceeded with url: /a (refused)"), None),
        (OSError(10**6, "no number of the OS kernel's"), None),
        (sqlite3.OperationalError("no such table"), None),
    ],
)
def test_a_call_is_told_with_number_and_target(error, told):
    assert failed_call(error) == told


def test_a_thread_that_lacked_memory_for_its_stack_is_told_apart():
    error = RuntimeError("can't start new thread")
    ours, theirs = os.pipe()
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))
        os.write(theirs, str(failed_call(error).errno).encode())
        os._exit(0)
    os.wait()
    assert int(os.read(ours, 10)) == errno.ENOMEM
    assert failed_call(error).errno == errno.EAGAIN


def test_a_module_that_imports_passed_by_is_told_with_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/usr/lib"])
    (tmp_path / "helper.py").touch()
    missing = [ModuleNotFoundError("x", name=name) for name in ("helper.sub", "other", None)]
    told = FailedCall("import", target=str(tmp_path / "helper"))
    assert [failed_call(error) for error in missing] == [told, None, None]
    monkeypatch.setattr(sys, "path", [""])
    assert failed_call(missing[0]) is None


def test_a_target_is_no_longer_than_the_wire_takes():
    assert len(failed_call(OSError(DENIED, "x", "/" + "x" * 5_000)).target) == 1_000


@pytest.mark.parametrize(
    ("name", "target", "writes"),
    [
        ("/absent/x.db", "/absent/x.db", True),
        (b"/absent/x.db", "/absent/x.db", True),
        (Path("/absent/x.db"), "/absent/x.db", True),
        ("file:/absent/a%20b.db?mode=ro", "/absent/a b.db", False),
        ("file:///absent/x.db", "/absent/x.db", True),
    ],
)
def test_a_database_that_can_not_be_opened_is_told(name, target, writes, monkeypatch):
    monkeypatch.setattr(effects, "database", name)
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect("/absent/x.db")
    assert failed_call(caught.value) == FailedCall("database", 0, target, writes)


@pytest.mark.parametrize("name", [None, ":memory:", "", 7])
def test_a_database_of_which_no_file_is_known_is_not_told(name, monkeypatch):
    monkeypatch.setattr(effects, "database", name)
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect("/absent/x.db")
    assert failed_call(caught.value) is None


def test_calls_are_known_by_the_line_that_made_them():
    def fork():
        raise OSError(errno.EPERM, "x")  # os.fork()

    def connect():
        raise OSError(DENIED, "x")  # socket.socket()

    def kill():
        raise OSError(errno.EPERM, "x")  # os.kill()

    for action, kind in ((fork, "process"), (connect, "network"), (kill, "signal")):
        with pytest.raises(OSError) as caught:
            action()
        assert failed_call(caught.value).kind == kind


def test_a_cause_counts_and_what_raises_at_every_touch_is_left_alone():
    error = RuntimeError("library")
    error.__cause__ = OSError(DENIED, os.strerror(DENIED), "/etc/passwd")
    assert failed_call(error).target == "/etc/passwd"

    class NastyError(PermissionError):
        @property
        def errno(self):
            raise RuntimeError

    assert failed_call(NastyError(13, "x", "/etc")) is None
