"""What processes are called on either side of a pid namespace, with real ones on both."""

import contextlib
import os
import shutil
import signal
import subprocess

import msgspec
import pytest

from cellblock.host.guests import zygote
from cellblock.host.guests.zygote import NO_PROCESS, Translation
from cellblock.wire import messages


def namespaces():
    command = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "true"]
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="no pid namespace can be made here")


@pytest.fixture
def inner():
    """A process that is the first of its pid namespace, by its number here."""
    command = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        outer.stdin.write(b"x")
        outer.stdin.flush()
        outer.stdout.read(1)
        with open(f"/proc/{outer.pid}/task/{outer.pid}/children") as children:  # noqa: PTH123
            pid = int(children.read())
        yield pid
        outer.kill()


@needs_namespaces
def test_a_fork_is_known_here_by_what_its_descriptor_says_and_not_by_what_is_said(inner):
    translation, pidfd = Translation(), os.pidfd_open(inner)
    told = translation.forked(messages.Forked(id=7, pid=1), pidfd)
    os.close(pidfd)
    assert told == messages.Forked(id=7, pid=inner)
    # The zygote is told its own numbers back.
    claim = messages.Members(id=7, session=inner, pids=(inner, NO_PROCESS - 1))
    assert translation.members(claim) == messages.Members(id=7, session=1, pids=(1,))
    lock = messages.Confine(id=7, ticket=3, session=inner, pid=inner, plan=messages.Plan())
    assert translation.confine(lock) == msgspec.structs.replace(lock, session=1, pid=1)
    gone = msgspec.structs.replace(lock, pid=NO_PROCESS - 1)
    assert translation.confine(gone).pid == NO_PROCESS, "what is gone is nobody else by then"
    ended = messages.Reaped(pid=1, status=9)
    assert translation.reaped(ended) == messages.Reaped(pid=inner, status=9)


@needs_namespaces
def test_a_snapshot_that_serves_is_known_by_both_of_its_numbers(inner):
    translation = Translation()
    translation.serves(inner)
    translation.serves(NO_PROCESS - 1)  # it was gone by then
    assert translation.reaped(messages.Reaped(pid=1, status=9)).pid == inner


def test_an_orphan_that_the_zygote_buries_is_nobody_here():
    ended = Translation().reaped(messages.Reaped(pid=os.getpid(), status=0))
    assert ended.pid > NO_PROCESS


def test_what_is_gone_before_it_is_heard_of_can_not_be_anybody_else():
    with subprocess.Popen(["true"]) as process:
        pidfd = os.pidfd_open(process.pid)
        process.wait()
    translation = Translation()
    told = translation.forked(messages.Forked(id=1, pid=5), pidfd)
    os.close(pidfd)
    assert told.pid == NO_PROCESS
    assert translation.reaped(messages.Reaped(pid=5, status=256)).pid == NO_PROCESS
    with pytest.raises(ProcessLookupError):
        os.kill(told.pid, signal.SIGCONT)


def test_no_process_has_the_number_of_none():
    with open("/proc/sys/kernel/pid_max") as most:  # noqa: PTH123
        assert int(most.read()) <= NO_PROCESS
    with contextlib.suppress(ProcessLookupError):
        os.kill(NO_PROCESS, 0)
        raise AssertionError
    assert zygote._innermost(NO_PROCESS) == 0
