"""The compiled filter, run in the simulator: every gate, both architectures, no kernel needed."""

from __future__ import annotations

import errno
from functools import cache

import pytest

from cellblock.guest.confine import arch, seccomp, syscalls
from cellblock.guest.confine.syscalls import NO_ID, Grants, gates
from confine.simulator import Call, verdict

PID = 4242
ALLOW = "allow"
EPERM = errno.EPERM
NOTHING = 0  # it succeeds, and does nothing
THREAD = 0x3D0F00  # what glibc's pthread_create asks for
HIGH = 1 << 40  # bits that the OS kernel ignores in an int argument
CLOSED = Grants(truncate=True, scoped=True)
NETWORK = Grants(network=True, truncate=True, scoped=True)
SUBPROCESS = Grants(subprocess=True, truncate=True, scoped=True, user=7, group=9)
GATED_PROGRAMS = Grants(subprocess=True, truncate=True, scoped=True, gated=True)
LOCAL = Grants(network=True, local=True, truncate=True, scoped=True)
OWN_USERS = Grants(subprocess=True, truncate=True, scoped=True, own_users=True)
APART = Grants(truncate=True, scoped=True, apart=True)
GATED = Grants(truncate=True, scoped=True, gated=True)
ATTRIBUTES = Grants(truncate=True, scoped=True, attributes=True)

ROWS = [
    # files
    (CLOSED, "openat", (0, 1, 0o100), ALLOW),
    (CLOSED, "openat", (0, 1, 0o1000 | 1), ALLOW),
    (CLOSED, "openat", (0, 1, 0o1000 | 2), ALLOW),
    (CLOSED, "openat", (0, 1, 0o1000), EPERM),
    (CLOSED, "openat", (0, 1, 0o1000 | 3), EPERM),
    (CLOSED, "openat", (0, 1, 0o101, 0o777), ALLOW),
    (CLOSED, "openat", (0, 1, 0o101, 0o4755), EPERM),
    (CLOSED, "openat", (0, 1, 0o101, 0o2755 | HIGH), EPERM),
    (CLOSED, "open", (1, 0o101, 0o4755), EPERM),
    (CLOSED, "creat", (1, 0o4755), EPERM),
    *((CLOSED, name, (1, 0o600), EPERM) for name in ("chmod", "fchmod", "chown", "utime")),
    (ATTRIBUTES, "fchmod", (3, 0o600), ALLOW),
    (ATTRIBUTES, "fchmod", (3, 0o4600), EPERM),
    (ATTRIBUTES, "fchmodat2", (0, 1, 0o2600, 0), EPERM),
    (CLOSED, "renameat2", (0, 1, 0, 1, 2), ALLOW),
    (CLOSED, "renameat2", (0, 1, 0, 1, 4), EPERM),
    (CLOSED, "fcntl", (3, 4, 0), ALLOW),
    (CLOSED, "fcntl", (3, 8, 1), EPERM),
    (CLOSED, "fcntl", (3, 8 | HIGH, 1), EPERM),
    (CLOSED, "fcntl", (3, 10, 9), EPERM),
    (CLOSED, "fcntl", (3, 15, 9), EPERM),
    (CLOSED, "fcntl", (3, 1024, 0), EPERM),
    (CLOSED, "ioctl", (3, 0x5401, 0), ALLOW),
    (CLOSED, "ioctl", (3, 0x5412, 0), EPERM),
    (CLOSED, "ioctl", (3, 0x5412 | HIGH, 0), EPERM),
    (CLOSED, "ioctl", (3, 0x5452, 0), EPERM),
    (CLOSED, "pipe2", (1, 0o2004000), ALLOW),
    (CLOSED, "pipe2", (1, 0o200), EPERM),
    (CLOSED, "truncate", (1, 0), ALLOW),
    (Grants(), "truncate", (1, 0), EPERM),
    (CLOSED, "flock", (3, 2), errno.ENOSYS),
    (CLOSED, "readlinkat", (0, 1), errno.EINVAL),
    (CLOSED, "setxattr", (1, 1), errno.ENOTSUP),
    (CLOSED, "openat2", (0, 1), errno.ENOSYS),
    (CLOSED, "preadv2", (3, 1, 1, 0, 0, 0), ALLOW),
    (CLOSED, "preadv2", (3, 1, 1, 0, 0, 1), ALLOW),
    (CLOSED, "preadv2", (3, 1, 1, 0, 0, 8), errno.EOPNOTSUPP),
    (CLOSED, "pwritev2", (3, 1, 1, 0, 0, 8 | HIGH), errno.EOPNOTSUPP),
    (CLOSED, "fallocate", (3, 0, 0, 4096), ALLOW),
    # each mode of <linux/falloc.h>: KEEP_SIZE, PUNCH_HOLE, ..., INSERT_RANGE, UNSHARE, WRITE_ZEROES
    *((CLOSED, "fallocate", (3, 1 << n, 0, 4096), errno.EOPNOTSUPP) for n in range(8)),
    (CLOSED, "fallocate", (3, 3 | HIGH, 0, 4096), errno.EOPNOTSUPP),
    (SUBPROCESS, "fallocate", (3, 1, 0, 4096), errno.EOPNOTSUPP),
    # memory: what RLIMIT_DATA counts
    (CLOSED, "mremap", (0x7F12_3456_7000, 4096, 8192, 1), ALLOW),
    (CLOSED, "mremap", (0x5555_5555_7000, 4096, 8192, 1), ALLOW),
    (CLOSED, "mremap", (0x7FFB_FF6F_F000, 4096, 8192, 1), ALLOW),
    (CLOSED, "mremap", (0x7FFA_FFFF_F000, 4096, 8192, 1), ALLOW),
    (CLOSED, "mremap", (0x7FFB_FF70_0000, 4096, 4 << 30, 1), errno.ENOMEM),
    (CLOSED, "mremap", (0x7FFC_0000_5000, 4096, 4 << 30, 1), errno.ENOMEM),
    (CLOSED, "mremap", (0x7FFF_FFFF_F000, 4096, 4 << 30, 1), errno.ENOMEM),
    (CLOSED, "mmap", (0, 4096, 3, 0x22, -1, 0), ALLOW),
    (CLOSED, "mmap", (0, 4096, 3, 0x20022, -1, 0), ALLOW),
    (CLOSED, "mmap", (0, 4096, 1, 0x1, 5, 0), ALLOW),
    (CLOSED, "mmap", (0, 4096, 5, 0x802, 5, 0), ALLOW),
    (CLOSED, "mmap", (0, 4096, 3, 0x21, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 4096, 3, 0x23, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 4096, 3, 0x21 | HIGH, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 4096, 3, 0x122, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 4096, 3, 0x101, 5, 0), EPERM),
    (SUBPROCESS, "mmap", (0, 4096, 3, 0x1, 5, 0), ALLOW),
    (SUBPROCESS, "mmap", (0, 4096, 3, 0x21, -1, 0), EPERM),
    (SUBPROCESS, "mmap", (0, 4096, 3, 0x122, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 2 << 20, 3, 0x40022, -1, 0), errno.ENOMEM),
    (SUBPROCESS, "mmap", (0, 1 << 30, 3, 0x40022 | 30 << 26, -1, 0), errno.ENOMEM),
    (CLOSED, "mmap", (0, 2 << 20, 3, 0x40022 | HIGH, -1, 0), errno.ENOMEM),
    (CLOSED, "mmap", (0, 2 << 20, 3, 0x40021, -1, 0), EPERM),
    (CLOSED, "mmap", (0, 2 << 20, 3, 0x40122, -1, 0), EPERM),
    (CLOSED, "memfd_create", (0, 0), EPERM),
    # futexes: no owner by number
    *((CLOSED, "futex", (0, op), ALLOW) for op in (0, 1, 3, 4, 5, 9, 10, 128, 129, 0x189)),
    *((CLOSED, "futex", (0, op | HIGH), errno.ENOSYS) for op in (2, 6, 7, 8, 11, 12, 13)),
    *((CLOSED, "futex", (0, op | 128), errno.ENOSYS) for op in (6, 7, 8, 11, 12, 13, 0x200)),
    # threads and processes
    (CLOSED, "clone", (THREAD,), ALLOW),
    (CLOSED, "clone", (THREAD | HIGH,), ALLOW),
    (CLOSED, "clone", (17,), EPERM),
    (CLOSED, "clone", (0x4100 | 17,), EPERM),
    (CLOSED, "clone", (THREAD | 0x10000000,), EPERM),
    (CLOSED, "clone", (THREAD | 0x40000000,), EPERM),
    (CLOSED, "clone", (THREAD | 0x2000,), EPERM),
    (CLOSED, "clone", (THREAD & ~0x100,), EPERM),
    (CLOSED, "clone", (THREAD & ~0x400,), EPERM),
    (CLOSED, "clone3", (1, 88), errno.ENOSYS),
    (CLOSED, "close_range", (3, 0xFFFF_FFFF, 0), ALLOW),
    (CLOSED, "close_range", (3, 0xFFFF_FFFF, 4), ALLOW),
    (CLOSED, "close_range", (3, 0xFFFF_FFFF, 2), EPERM),
    (CLOSED, "close_range", (3, 0xFFFF_FFFF, 6 | HIGH), EPERM),
    (CLOSED, "execve", (1,), EPERM),
    (SUBPROCESS, "clone", (17,), ALLOW),
    (SUBPROCESS, "clone", (0x4100 | 17,), ALLOW),
    (SUBPROCESS, "clone", (0x10000000 | 17,), EPERM),
    (SUBPROCESS, "clone", (0x8000 | 17,), EPERM),
    (SUBPROCESS, "clone", (0,), ALLOW),
    (SUBPROCESS, "clone", (19,), EPERM),
    (SUBPROCESS, "clone", (THREAD & ~0x400,), EPERM),
    (GATED, "clone", (17,), ALLOW),
    (GATED, "clone", (0x4100 | 20,), EPERM),
    (SUBPROCESS, "execve", (1,), ALLOW),
    (SUBPROCESS, "execveat", (1,), EPERM),
    (SUBPROCESS, "setsid", (), EPERM),
    (SUBPROCESS, "setpgid", (0, 0), EPERM),
    (GATED, "setsid", (), ALLOW),  # the gate's to refuse
    *((GATED_PROGRAMS, name, (4243, 0), ALLOW) for name in ("setsid", "setpgid", "getpgid")),
    (SUBPROCESS, "getpgid", (PID + 1,), EPERM),
    (GATED_PROGRAMS, "setpriority", (0, 0, 19), NOTHING),
    (GATED_PROGRAMS, "setpriority", (0, PID + 1, 1), EPERM),
    (GATED_PROGRAMS, "setpriority", (1, PID + 1, 1), EPERM),
    (GATED_PROGRAMS, "getpriority", (2, 0), EPERM),
    *((GATED_PROGRAMS, "sched_setscheduler", (PID + 1, kind, 1), NOTHING) for kind in (0, 3, 5)),
    (GATED_PROGRAMS, "sched_setscheduler", (0, 1, 1), EPERM),  # SCHED_FIFO
    (GATED_PROGRAMS, "sched_setscheduler", (0, 0x40000000, 1), EPERM),
    (SUBPROCESS, "sched_setscheduler", (0, 0, 1), EPERM),
    # sockets of programs among themselves
    (NETWORK, "socket", (1, 1, 0), errno.EACCES),
    (LOCAL, "socket", (16, 3, 0), errno.EOPNOTSUPP),
    (LOCAL, "socket", (1, 1, 0), ALLOW),
    (LOCAL, "socket", (1, 2 | 0o2000000, 0), ALLOW),
    (LOCAL, "socket", (1, 5, 0), errno.EACCES),
    (LOCAL, "socket", (1, 3, 0), errno.EACCES),
    (LOCAL, "socket", (40, 1, 0), errno.EACCES),
    # ids and limits of its own
    (CLOSED, "setresuid", (7, 7, 7), EPERM),
    (SUBPROCESS, "setresuid", (7, NO_ID, 7), ALLOW),
    (SUBPROCESS, "setresuid", (7, 7, 8), EPERM),
    (SUBPROCESS, "setresuid", (8, NO_ID, NO_ID), EPERM),
    (SUBPROCESS, "setreuid", (7, 0), EPERM),
    (SUBPROCESS, "setuid", (0,), EPERM),
    (SUBPROCESS, "setuid", (7,), ALLOW),
    (SUBPROCESS, "setresgid", (9, 9, 9), ALLOW),
    (SUBPROCESS, "setgid", (7,), EPERM),
    (SUBPROCESS, "setgroups", (0, 0), EPERM),
    (CLOSED, "setrlimit", (7, 1), EPERM),
    (CLOSED, "prlimit64", (0, 7, 1, 0), EPERM),
    (SUBPROCESS, "setrlimit", (7, 1), ALLOW),
    (SUBPROCESS, "prlimit64", (0, 7, 1, 0), ALLOW),
    (SUBPROCESS, "prlimit64", (PID + 1, 7, 1, 0), EPERM),
    (CLOSED, "timer_create", (1, 0, 1), errno.ENOSYS),
    (SUBPROCESS, "timer_create", (1, 1, 1), errno.ENOSYS),
    (OWN_USERS, "timer_create", (1, 1, 1), ALLOW),
    # FIFOs, links and locks
    (CLOSED, "mknodat", (0, 1, 0o10600, 0), EPERM),
    (SUBPROCESS, "mknodat", (0, 1, 0o10600, 0), ALLOW),
    (SUBPROCESS, "mknodat", (0, 1, 0o100600, 0), ALLOW),
    (SUBPROCESS, "mknodat", (0, 1, 0o600, 0), ALLOW),
    *(
        (SUBPROCESS, "mknodat", (0, 1, kind | 0o600, 0x105), EPERM)
        for kind in (0o20000, 0o60000, 0o140000, 0o40000, 0o120000)
    ),
    (SUBPROCESS, "mknod", (1, 0o14600, 0), EPERM),
    (SUBPROCESS, "readlinkat", (0, 1), ALLOW),
    (SUBPROCESS, "flock", (3, 2), errno.ENOSYS),
    (APART, "flock", (3, 2), ALLOW),
    # signals
    (CLOSED, "kill", (PID, 15), ALLOW),
    (CLOSED, "kill", (PID | HIGH, 15), ALLOW),
    (CLOSED, "kill", (PID, 19), EPERM),
    (CLOSED, "kill", (PID, 20), EPERM),
    (CLOSED, "kill", (PID, 21), EPERM),
    (CLOSED, "kill", (PID, 22), EPERM),
    (CLOSED, "kill", (PID, 19 | HIGH), EPERM),
    (CLOSED, "kill", (0, 15), EPERM),
    (CLOSED, "kill", (-1, 15), EPERM),
    (GATED_PROGRAMS, "kill", (-1, 15), EPERM),
    (GATED_PROGRAMS, "kill", (-PID, 15), ALLOW),
    (GATED_PROGRAMS, "kill", (-PID, 19), EPERM),
    (SUBPROCESS, "kill", (-PID, 15), EPERM),
    (CLOSED, "kill", (-PID, 15), EPERM),
    (CLOSED, "kill", (PID + 1, 0), EPERM),
    (CLOSED, "tgkill", (PID, PID + 1, 10), ALLOW),
    (CLOSED, "tgkill", (PID, PID + 1, 19), EPERM),
    (CLOSED, "tgkill", (PID + 1, PID, 10), EPERM),
    (CLOSED, "tkill", (PID, 10), EPERM),
    (CLOSED, "rt_sigqueueinfo", (PID, 10), EPERM),
    (SUBPROCESS, "kill", (PID + 1, 15), ALLOW),
    (SUBPROCESS, "kill", (PID + 1, 19), EPERM),
    (SUBPROCESS, "kill", (0, 15), EPERM),
    (SUBPROCESS, "kill", (-1, 15), EPERM),
    (Grants(subprocess=True), "kill", (PID + 1, 15), EPERM),
    # other processes
    (CLOSED, "prlimit64", (0, 7, 0, 1), ALLOW),
    (CLOSED, "prlimit64", (PID, 7, 0, 1), ALLOW),
    (CLOSED, "prlimit64", (PID + 1, 7, 0, 1), EPERM),
    (CLOSED, "prlimit64", (0, 7, 1, 0), EPERM),
    (CLOSED, "prlimit64", (0, 7, HIGH, 0), EPERM),
    (CLOSED, "setpriority", (0, 0, 5), NOTHING),
    (CLOSED, "setpriority", (0, PID, 5), NOTHING),
    (CLOSED, "setpriority", (0, PID + 1, 5), EPERM),
    (CLOSED, "setpriority", (1, 0, 5), EPERM),
    (CLOSED, "setpriority", (2, 0, 5), EPERM),
    (CLOSED, "sched_setaffinity", (0, 8, 1), ALLOW),
    (CLOSED, "sched_setaffinity", (PID + 1, 8, 1), EPERM),
    (CLOSED, "getpgid", (PID + 1,), EPERM),
    (CLOSED, "getsid", (0,), ALLOW),
    *((GATED, name, (PID + 1, 0, 0), ALLOW) for name in syscalls.ABOUT_PROCESSES),  # the gate's
    (GATED, "prlimit64", (PID, 7, 1, 0), EPERM),
    (GATED, "getpriority", (0, PID + 1), ALLOW),
    (GATED, "getpriority", (1, PID + 1), EPERM),
    (CLOSED, "prctl", (15, 1), ALLOW),
    (CLOSED, "prctl", (1, 19), EPERM),
    (CLOSED, "prctl", (4, 1), EPERM),
    (CLOSED, "prctl", (22, 2), EPERM),
    (CLOSED, "personality", (0xFFFFFFFF,), ALLOW),
    (CLOSED, "personality", (0x40000,), EPERM),
    # sockets
    (CLOSED, "socketpair", (1, 1, 0), ALLOW),
    (CLOSED, "socketpair", (1, 1 | 0o2000000 | 0o4000, 0), ALLOW),
    (CLOSED, "socketpair", (1, 2, 0), EPERM),
    (CLOSED, "socketpair", (1, 5, 0), EPERM),
    (CLOSED, "socketpair", (2, 1, 0), EPERM),
    (CLOSED, "socket", (2, 1, 0), EPERM),
    (CLOSED, "socket", (1, 1, 0), EPERM),
    (CLOSED, "connect", (3, 1, 16), EPERM),
    (CLOSED, "sendmsg", (3, 1, 0), EPERM),
    (CLOSED, "sendto", (3, 1, 1, 0, 0, 0), ALLOW),
    (CLOSED, "sendto", (3, 1, 1, 0x4000, 0, 0), ALLOW),
    (CLOSED, "sendto", (3, 1, 1, 1, 0, 0), EPERM),
    (CLOSED, "sendto", (3, 1, 1, 0x20000000, 0, 0), EPERM),
    (CLOSED, "sendto", (3, 1, 1, 0, 0x1000, 16), EPERM),
    (CLOSED, "sendto", (3, 1, 1, 0, HIGH, 16), EPERM),
    (CLOSED, "recvfrom", (3, 1, 1, 1, 0, 0), EPERM),
    (CLOSED, "recvmsg", (3, 1, 1), EPERM),
    (CLOSED, "recvmsg", (3, 1, 0), ALLOW),
    (CLOSED, "getsockopt", (3, 1, 4), ALLOW),
    (CLOSED, "getsockopt", (3, 1, 77), EPERM),
    (CLOSED, "setsockopt", (3, 1, 7), NOTHING),
    (NETWORK, "setsockopt", (3, 1, 8), NOTHING),
    (CLOSED, "setsockopt", (3, 1, 32), EPERM),  # SO_SNDBUFFORCE
    (CLOSED, "setsockopt", (3, 1, 26), EPERM),
    (CLOSED, "setsockopt", (3, 6, 1), EPERM),
    (NETWORK, "socket", (2, 1 | 0o2000000, 0), ALLOW),
    (NETWORK, "socket", (10, 2, 17), ALLOW),
    (NETWORK, "socket", (2, 3, 1), errno.EACCES),
    (NETWORK, "socket", (2, 1, 262), errno.EACCES),
    (NETWORK, "socket", (2, 2, 1), errno.EACCES),
    (NETWORK, "socket", (1, 1, 0), errno.EACCES),
    (NETWORK, "socket", (16, 3, 0), errno.EOPNOTSUPP),
    (NETWORK, "socket", (40, 1, 0), errno.EACCES),
    (NETWORK, "sendto", (3, 1, 1, 0, 0x1000, 16), ALLOW),
    (NETWORK, "setsockopt", (3, 6, 1), ALLOW),
    (NETWORK, "setsockopt", (3, 1, 26), EPERM),
    (NETWORK, "connect", (3, 1, 16), ALLOW),
    (NETWORK, "socket", (2, 1, 132), errno.EACCES),
    (NETWORK, "socket", (1 | HIGH, 1, 0), errno.EACCES),
    (NETWORK, "setsockopt", (3, 6, 30), EPERM),  # TCP_FASTOPEN_CONNECT
    (NETWORK, "setsockopt", (3, 6, 31), EPERM),  # TCP_ULP
    (NETWORK, "setsockopt", (3, 1, 25), EPERM),  # SO_BINDTODEVICE
    (NETWORK, "setsockopt", (3, 0, 19), EPERM),  # IP_TRANSPARENT
    (NETWORK, "io_uring_setup", (1, 1), errno.ENOSYS),
    (NETWORK, "sendmsg", (3, 1, 0), ALLOW),
    (NETWORK, "sendmsg", (3, 1, 4), EPERM),
    (NETWORK, "sendmsg", (3, 1, 0x4004 | HIGH), EPERM),
    (NETWORK, "sendmsg", (3, 1, 1), EPERM),  # MSG_OOB
    (NETWORK, "sendmsg", (3, 1, 0x20000000), EPERM),  # MSG_FASTOPEN
    *((NETWORK, name, (3, 1, 1, 0), ALLOW) for name in ("recvmmsg", "sendmmsg")),
    *((NETWORK, name, (3, 1, 1, 1), EPERM) for name in ("recvmmsg", "sendmmsg")),
    *((CLOSED, name, (3, 1, 1, 0), EPERM) for name in ("recvmmsg", "sendmmsg")),
    # locks: the gate decides which, and without one none
    (CLOSED, "landlock_restrict_self", (3, 0), EPERM),
    (GATED, "landlock_restrict_self", (3, 0), ALLOW),
    (GATED, "landlock_create_ruleset", (1, 8, 0), EPERM),
    (GATED, "landlock_add_rule", (3, 1, 1, 0), EPERM),
    (GATED, "seccomp", (1, 0, 1), EPERM),
]


@pytest.fixture(params=arch.KNOWN)
def machine(request):
    return arch.named(request.param)


@cache
def built(name, grants):
    return seccomp.build(name, grants).filled(PID)


def code(machine, grants):
    return built(machine.name, grants)


def test_a_call_is_decided_by_its_arguments(machine):
    for grants, name, args, expected in ROWS:
        if name in machine.numbers:
            call = Call(machine.numbers[name], machine.audit, args)
            assert verdict(code(machine, grants), call) == expected, (grants, name, args)


def test_a_call_under_another_architecture_is_refused_whatever_its_number(machine):
    program = code(machine, NETWORK)

    for foreign in {0x40000003, 0x40000028, 0xC00000B7, 0xC000003E, 0} - {machine.audit}:
        assert {verdict(program, Call(number, foreign)) for number in range(480)} == {EPERM}


def test_x32_calls_are_refused():
    machine = arch.named("x86_64")
    program = code(machine, NETWORK)

    verdicts = {verdict(program, Call(0x40000000 | nr, machine.audit)) for nr in range(560)}

    assert verdicts == {errno.ENOSYS}


def test_every_number_up_to_a_thousand_is_decided_as_documented(machine):
    """What no table knows is not implemented; a gate refuses at least what makes no sense."""
    allowed = {name for group in syscalls.ALWAYS for name in group.names} | {"truncate"}
    gated = {gate.name: gate for gate in gates(CLOSED)}
    names = {number: name for name, number in machine.numbers.items()}
    assert max(names) < 1024
    program = code(machine, CLOSED)

    for number in range(1024):
        name = names.get(number)
        if name is None:
            expected = {errno.ENOSYS}
        elif name in gated:
            expected = {ALLOW, gated[name].errno, *([NOTHING] if gated[name].void else [])}
        else:
            expected = {ALLOW if name in allowed else syscalls.REFUSED_WITH.get(name, EPERM)}
        assert verdict(program, Call(number, machine.audit)) in expected, name or number


def test_a_number_of_the_future_is_not_implemented(machine):
    for number in (-1, 2**31 - 1, 470, 500, 1000, 5000):
        assert verdict(code(machine, NETWORK), Call(number, machine.audit)) == errno.ENOSYS


def test_the_filter_fits_the_kernel_and_searches_in_few_steps(machine):
    program = seccomp.build(machine.name, Grants(network=True, subprocess=True))

    assert len(program) < 1024
