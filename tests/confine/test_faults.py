"""Every call behind a lock, failing and silently doing nothing: the lock is not said to be taken.

The OS kernel answers so, by a filter that is there before (``support.faults``), not a replacement
in the code. A row is: what fails, and what that comes to. As root and as nobody.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
from functools import partial
from pathlib import Path

import pytest

from cellblock.guest.confine import ConfineError, arch, confine, libc, process
from cellblock.guest.confine.process import isolate_fork, isolate_zygote
from cellblock.wire.messages import Limits
from confine.cell import run
from support import faults

MACHINE = arch.current()
LIMITS = Limits(
    memory_max_bytes=1 << 30, max_processes=1000, max_open_files=200, max_file_size=1 << 20
)
REFUSED = "refused by the OS kernel"
NO_LANDLOCK = "landlock: this OS kernel has no Landlock, or it is not switched on"

#: Faults, by the lock that they are of, to what a guest comes to that has it required.
FATAL = {
    # Landlock: asking for its version, making a ruleset, adding rules, taking them.
    "landlock_create_ruleset=ENOSYS": NO_LANDLOCK,
    "landlock_create_ruleset=EOPNOTSUPP": NO_LANDLOCK,
    "landlock_create_ruleset=nothing": NO_LANDLOCK,
    "landlock_create_ruleset:2=0=EINVAL": f"landlock: {REFUSED}: Invalid argument",
    "landlock_create_ruleset:2=0=nothing": f"landlock: {REFUSED}: File descriptor in bad state",
    "openat2=ENOSYS": f"landlock: {REFUSED}: Function not implemented",
    "openat2=EPERM": f"landlock: {REFUSED}: Operation not permitted",
    "openat2=nothing": f"landlock: {REFUSED}: Bad file descriptor",
    "landlock_add_rule=EINVAL": f"landlock: {REFUSED}: Invalid argument",
    "landlock_add_rule=nothing": "landlock: read_file: its control failed: Permission denied",
    "landlock_restrict_self=EPERM": f"landlock: {REFUSED}: Operation not permitted",
    "landlock_restrict_self=E2BIG": f"landlock: {REFUSED}: Argument list too long",
    "landlock_restrict_self=nothing": "landlock: read_file: an attempt succeeded under the lock",
    # The system call filter.
    "seccomp=ENOSYS": f"seccomp: {REFUSED}: Function not implemented",
    "seccomp=EINVAL": f"seccomp: {REFUSED}: Invalid argument",
    "seccomp=EPERM": f"seccomp: {REFUSED}: Operation not permitted",
    "seccomp=nothing": "seccomp: udp: refused for another reason: Connection refused",
    # prctl(2): PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_DUMPABLE, PR_GET_DUMPABLE
    "prctl:0=38=EINVAL": f"no_new_privs: {REFUSED}: Invalid argument",
    "prctl:0=39=nothing": "no_new_privs: no_new_privs did not stick",
    "prctl:0=4=EINVAL": f"not_dumpable: {REFUSED}: Invalid argument",
    "prctl:0=4=nothing": "not_dumpable: the process stayed dumpable",
    "prctl:0=3=EINVAL": f"not_dumpable: {REFUSED}: Invalid argument",
    # Counting threads, by listing them.
    "getdents64=ENOSYS": "process: can't count threads: Function not implemented",
    "getdents64=nothing": "process: 0 threads exist, locks reach only one",
    # Capabilities: the sets, and looking at them.
    "capset=EPERM": f"capabilities: {REFUSED}: Operation not permitted",
    "capget=ENOSYS": f"capabilities: {REFUSED}: Function not implemented",
}
#: Likewise, for who has something to drop, or no_new_privs not yet.
FATAL_FOR_ROOT = {
    "prctl:0=38=nothing": "no_new_privs: no_new_privs did not stick",
    "capset=nothing": "capabilities: capabilities are left after capset",
    "prctl:0=24=EINVAL": "capabilities: capabilities are left in the bounding set",
    "prctl:0=24=nothing": "capabilities: capabilities are left in the bounding set",
    "prctl:0=24=ENOSYS": f"capabilities: {REFUSED}: Function not implemented",
    "prctl:0=28=nothing": "capabilities: the securebits did not stick",
}
#: Resource limits: the number that prlimit64(2) has for each, and how a report calls it.
RLIMITS = {
    "core": resource.RLIMIT_CORE,
    "locked memory": resource.RLIMIT_MEMLOCK,
    "signals": resource.RLIMIT_SIGPENDING,
    "memory_max_bytes": resource.RLIMIT_DATA,
    "resident memory": resource.RLIMIT_RSS,
    "max_open_files": resource.RLIMIT_NOFILE,
    "max_file_size": resource.RLIMIT_FSIZE,
    "stack": resource.RLIMIT_STACK,
}


def confined(world, *texts, **changes):
    """Return a program that meets faults and is then confined."""

    def program():
        ctypes.CDLL(None).prctl(process.PR_SET_DUMPABLE, 1, 0, 0, 0)  # who changed users is not
        resource.setrlimit(resource.RLIMIT_CORE, (1, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        faults.install(*texts)
        return confine(world.plan(limits=LIMITS, **changes)).achieved["capabilities"]

    return program


def each(faults, world, uid):
    """Return what comes of the same program under each fault."""
    return {fault: run(confined(world, fault), plan=None, uid=uid) for fault in faults}


def fatal(faults):
    return {fault: f"ConfineError: {why}" for fault, why in faults.items()}


def test_nothing_runs_where_the_call_behind_a_lock_fails_or_does_nothing(world, uid):
    assert each(FATAL, world, uid) == fatal(FATAL)


def test_nothing_of_roots_is_left_where_dropping_it_fails_or_does_nothing(world, uid):
    if uid:
        pytest.skip("whoever is not root has nothing to drop, and no_new_privs by now")
    assert each(FATAL_FOR_ROOT, world, uid) == fatal(FATAL_FOR_ROOT)


def test_nothing_runs_without_a_limit_that_was_to_be_set(world, uid):
    limited = {}
    for name, number in RLIMITS.items():
        fault = f"prlimit64:1={number}:2=*"
        limited[f"{fault}=EPERM"] = "rlimits: not allowed to raise maximum limit"
        limited[f"{fault}=nothing"] = f"rlimits: the limit for {name} did not stick"
    assert each(limited, world, uid) == fatal(limited)


def test_nothing_runs_without_a_limit_on_tasks_where_nobody_else_counts_them(world, uid):
    if not uid:
        pytest.skip("the OS kernel does not hold root to it, and the report says so")
    fault = f"prlimit64:1={resource.RLIMIT_NPROC}:2=*"
    for outcome in each([f"{fault}=EPERM", f"{fault}=nothing"], world, uid).values():
        assert outcome.startswith("ConfineError: rlimits: ")


def test_a_filter_that_does_nothing_is_seen_also_where_networks_and_processes_are_allowed(
    world, uid
):
    wide = {"network": True, "subprocess": True}
    outcome = run(confined(world, "seccomp=nothing", **wide), plan=None, uid=uid)
    assert outcome == "ConfineError: seccomp: netlink: an attempt succeeded under the lock"


def test_no_fault_and_the_same_is_locked(world, uid):
    outcome = run(confined(world, "acct=ENOSYS"), plan=None, uid=uid)
    assert outcome == "ok: none held" + ("" if uid else ", bounding set empty")


def test_what_an_unprivileged_user_may_not_drop_is_not_said_to_be_dropped(world, uid):
    outcome = run(confined(world, "prctl:0=24=EPERM"), plan=None, uid=uid)
    assert outcome == "ok: none held"


#: struct __user_cap_data_struct twice: nothing effective or permitted, CAP_CHOWN inheritable.
INHERITING = bytes(8) + b"\1\0\0\0" + bytes(12)


def test_capabilities_that_may_be_inherited_count_as_held(world, uid):
    if uid:
        pytest.skip("only root has any to inherit")

    def program():
        head = struct.pack("=Ii", process.VERSION_3, 0)
        spaces = (ctypes.create_string_buffer(data, len(data)) for data in (head, INHERITING))
        libc.syscall(MACHINE.numbers["capset"], *spaces)
        process.no_new_privs()  # to be let make a fault
        faults.install("capset=nothing")
        confine(world.plan())

    outcome = run(program, plan=None, uid=uid)
    assert outcome == "ConfineError: capabilities: capabilities are left after capset"


# --- the gate -------------------------------------------------------------------------------------

#: seccomp(2) with a listener, by its flags.
LISTENING = "seccomp:1=*"


def under_gate(world, *texts, hand_over=lambda _fd: None):
    def program():
        faults.install(*texts)
        report = confine(world.plan(), hand_over=hand_over)
        return "gate" in report.achieved, "seccomp" in report.achieved

    return program


def test_where_no_listener_can_be_had_the_filter_refuses_by_itself_and_no_gate_is_reported(
    world, uid
):
    for error in ("EBUSY", "EINVAL", "ENOSYS"):
        outcome = run(under_gate(world, f"{LISTENING}={error}"), plan=None, uid=uid)
        assert outcome == "ok: (False, True)", error


def test_a_listener_that_is_none_is_found_out(world, uid):
    outcome = run(under_gate(world, f"{LISTENING}=nothing"), plan=None, uid=uid)
    assert outcome == "ConfineError: seccomp: no listener came of the gate's filter"


def test_nothing_runs_where_a_listener_is_refused_for_another_reason(world, uid):
    for error in ("EPERM", "ENOMEM"):
        outcome = run(under_gate(world, f"{LISTENING}={error}"), plan=None, uid=uid)
        assert outcome.startswith(f"ConfineError: seccomp: {REFUSED}: "), error


def test_nothing_runs_where_the_listener_can_not_be_handed_over(world, uid):
    def program():
        ours, theirs = socket.socketpair()
        theirs.close()
        return under_gate(
            world, "acct=ENOSYS", hand_over=lambda fd: socket.send_fds(ours, [b"g"], [fd])
        )()

    outcome = run(program, plan=None, uid=uid)
    assert outcome == f"ConfineError: seccomp: {REFUSED}: Broken pipe"


# --- before the locks -----------------------------------------------------------------------------

#: PR_SET_PDEATHSIG, PR_GET_PDEATHSIG; PR_SET_DUMPABLE; PR_SET_CHILD_SUBREAPER.
ISOLATION = {
    "prctl:0=1=EINVAL": f"end with the zygote: {REFUSED}: Invalid argument",
    "prctl:0=1=nothing": "end with the zygote: it would outlive its parent",
    "setsid=EPERM": f"session: {REFUSED}: Operation not permitted",
    "setsid=nothing": "session: it stayed in another's session",
    "close_range=nothing": "inherited descriptors: descriptors are left open: [500]",
    "getdents64=ENOSYS": f"inherited descriptors: {REFUSED}: Function not implemented",
}
ZYGOTE = {
    "prctl:0=4=EINVAL": f"not_dumpable: {REFUSED}: Invalid argument",
    "prctl:0=4=nothing": "not_dumpable: the process stayed dumpable",
    "prctl:0=36=EINVAL": f"orphans: {REFUSED}: Invalid argument",
    "prctl:0=36=nothing": "orphans: its children's orphans would not come to it",
    "prctl:0=1=EINVAL": f"end with its parent: {REFUSED}: Invalid argument",
    "prctl:0=1=nothing": "end with its parent: it would outlive its parent",
}


def isolated(*texts):
    """Return a program that leaves its parent, with one descriptor too many."""

    def program():
        os.dup2(0, 500)
        faults.install(*texts)
        try:
            isolate_fork(os.getppid(), range(400))  # the child answers through a pipe below 400
        except ConfineError as error:
            return str(error)
        return os.getsid(0) == os.getpid(), Path("/proc/self/fd/500").exists()

    return program


def test_a_guest_that_can_not_leave_its_zygote_behind_does_not_start(uid):
    for fault, why in ISOLATION.items():
        assert run(isolated(fault), plan=None, uid=uid) == f"ok: {why}", fault


def test_without_a_call_that_closes_many_descriptors_each_is_closed(uid):
    outcome = run(isolated("close_range=ENOSYS"), plan=None, uid=uid)
    assert outcome == "ok: (True, False)"


def test_a_zygote_that_could_not_see_to_its_guests_does_not_start(uid):
    def program(fault):
        ctypes.CDLL(None).prctl(process.PR_SET_DUMPABLE, 1, 0, 0, 0)
        faults.install(fault)
        isolate_zygote(namespace=True)

    came = {fault: run(partial(program, fault), plan=None, uid=uid) for fault in ZYGOTE}
    assert came == fatal(ZYGOTE)


def test_what_is_left_open_is_found_out_whoever_was_to_close_it(monkeypatch, uid):
    monkeypatch.setattr(os, "closerange", lambda *_: None)
    assert (
        run(isolated("acct=ENOSYS"), plan=None, uid=uid)
        == f"ok: {ISOLATION['close_range=nothing']}"
    )


def test_a_zygote_that_has_gone_is_nothing_to_be_told_of(uid):
    def program():
        with pytest.raises(SystemExit):
            isolate_fork(os.getppid() + 1, range(1000))
        return signal.Signals(process._stored(process.PR_GET_PDEATHSIG)).name

    assert run(program, plan=None, uid=uid) == "ok: SIGKILL"
