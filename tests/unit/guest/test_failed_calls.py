"""What a guest tells of the call behind an exception."""

import errno
import os
import resource
import socket
import sqlite3

import pytest

from cellblock.guest.tracebacks import failed_call
from cellblock.wire.messages import FailedCall

DENIED = errno.EACCES


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(DENIED, "x", "/no/../etc"), FailedCall("file", DENIED, "/etc")),
        (OSError(DENIED, "x", b"/usr/x"), FailedCall("file", DENIED, "/usr/x")),
        (OSError(DENIED, "open '/a/b'. Detail"), FailedCall("file", DENIED, "/a/b")),  # arrow
        (PermissionError("no (os error 13): /a"), FailedCall("file", DENIED, "/a")),  # polars
        (OSError(DENIED, "x", 7), FailedCall("file", DENIED)),
        (MemoryError(), FailedCall("memory")),
        (RuntimeError("can't start new thread"), FailedCall("thread", errno.EAGAIN)),
        (socket.gaierror(socket.EAI_AGAIN, "x"), FailedCall("network", errno.EHOSTUNREACH)),
        (ValueError("/etc/passwd"), None),
        (OSError("no number"), None),
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


def test_a_target_is_no_longer_than_the_wire_takes():
    assert len(failed_call(OSError(DENIED, "x", "/" + "x" * 5_000)).target) == 1_000


def test_a_database_that_can_not_be_opened_is_told(tmp_path):
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "absent" / "x.db").execute("create table t(a)")
    assert failed_call(caught.value).kind == "database"


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
