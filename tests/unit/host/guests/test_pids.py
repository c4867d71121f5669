"""What processes are called on either side of a pid namespace, with real ones on both."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest

from cellblock.host.guests.zygote import NO_PROCESS, Pids


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
    pids, pidfd = Pids(namespace=True), os.pidfd_open(inner)
    assert pids.forked(1, pidfd) == inner
    os.close(pidfd)
    # The zygote is told its own numbers back; what is gone is nobody else by then.
    assert pids.inside(inner) == 1
    assert pids.inside(NO_PROCESS - 1) == NO_PROCESS
    assert pids.reaped(1) == inner


@needs_namespaces
def test_a_snapshot_that_serves_is_known_by_both_of_its_numbers(inner):
    pids = Pids(namespace=True)
    pids.serves(inner)
    pids.serves(NO_PROCESS - 1)  # it was gone by then
    assert pids.reaped(1) == inner


def test_an_orphan_that_the_zygote_buries_is_nobody_here():
    assert Pids(namespace=True).reaped(os.getpid()) > NO_PROCESS


def test_what_is_gone_before_it_is_heard_of_can_not_be_anybody_else():
    with subprocess.Popen(["true"]) as process:
        pidfd = os.pidfd_open(process.pid)
        process.wait()
    pids = Pids(namespace=True)
    pid = pids.forked(5, pidfd)
    os.close(pidfd)
    assert pid == pids.reaped(5) == NO_PROCESS
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_no_process_has_the_number_of_none():
    with open("/proc/sys/kernel/pid_max") as most:  # noqa: PTH123
        assert int(most.read()) <= NO_PROCESS
    with contextlib.suppress(ProcessLookupError):
        os.kill(NO_PROCESS, 0)
        raise AssertionError
    assert Pids(namespace=True).inside(NO_PROCESS) == NO_PROCESS


def test_without_a_namespace_numbers_are_the_same():
    pids = Pids(namespace=False)
    assert (pids.forked(5, None), pids.inside(5), pids.reaped(5)) == (5,) * 3
