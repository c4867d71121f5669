from __future__ import annotations

import re
from pathlib import Path

import pytest

from cellblock.guest.confine import arch, syscalls
from cellblock.guest.confine.syscalls import Grants, gates

ARCHES = {name: arch.named(name) for name in arch.KNOWN}
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/aarch64-linux-gnu/asm/unistd_64.h",
}
EVERYTHING = Grants(network=True, subprocess=True, scoped=True, truncate=True)
ALL_GROUPS = (*syscalls.ALWAYS, *syscalls.NETWORK, *syscalls.SUBPROCESS)
ALLOWED = {name for group in ALL_GROUPS for name in group.names}
GATED = {gate.name for gate in gates(EVERYTHING)}

#: Whoever can make one of these leaves the sandbox, changes what lies outside, or hangs it.
NEVER = [
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "capset",
    "chmod",
    "chown",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "clone3",
    "delete_module",
    "execveat",
    "fanotify_init",
    "fanotify_mark",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "file_setattr",
    "finit_module",
    "fremovexattr",
    "fsconfig",
    "fsetxattr",
    "fsmount",
    "fsopen",
    "fspick",
    "futimesat",
    "init_module",
    "inotify_add_watch",
    "inotify_init",
    "inotify_init1",
    "io_setup",
    "io_submit",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "ioprio_set",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "listmount",
    "lremovexattr",
    "lsetxattr",
    "lsm_set_self_attr",
    "mbind",
    "memfd_create",
    "memfd_secret",
    "migrate_pages",
    "mincore",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "mq_open",
    "msgget",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "openat2",
    "perf_event_open",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "pivot_root",
    "process_madvise",
    "process_mrelease",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "readlink",
    "readlinkat",
    "reboot",
    "remap_file_pages",
    "removexattr",
    "removexattrat",
    "request_key",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "seccomp",
    "semget",
    "set_mempolicy",
    "setdomainname",
    "setfsgid",
    "setfsuid",
    "setgroups",
    "sethostname",
    "setns",
    "settimeofday",
    "setxattr",
    "setxattrat",
    "shmat",
    "shmget",
    "splice",
    "statmount",
    "swapoff",
    "swapon",
    "sync",
    "syncfs",
    "syslog",
    "tee",
    "tkill",
    "umount2",
    "unshare",
    "userfaultfd",
    "utime",
    "utimensat",
    "utimes",
    "vhangup",
    "vmsplice",
]


@pytest.mark.parametrize("name", ARCHES)
def test_a_table_is_sorted_and_gives_each_number_once(name):
    numbers = ARCHES[name].numbers

    assert list(numbers) == sorted(numbers)
    assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("name", HEADERS)
def test_a_table_agrees_with_the_system_headers(name):
    header = Path(HEADERS[name])
    if not header.exists():
        pytest.skip(f"no kernel headers for {name} here")
    pattern = r"#define __NR_(\w+) (\d+)"
    theirs = {name: int(nr) for name, nr in re.findall(pattern, header.read_text())}

    ours = ARCHES[name].numbers
    assert {key: ours.get(key) for key in theirs} == theirs


def test_both_tables_number_new_calls_alike():
    tables = [{k: v for k, v in each.numbers.items() if v >= 424} for each in ARCHES.values()]

    assert tables[0] == tables[1]


def test_the_generic_table_has_the_numbers_that_arm64_is_known_for():
    known = {"read": 63, "openat": 56, "clone": 220, "execve": 221, "exit_group": 94, "kill": 129}
    numbers = ARCHES["aarch64"].numbers

    assert {name: numbers[name] for name in known} == known
    assert "open" not in numbers
    assert "fork" not in numbers


def test_every_name_that_decides_something_is_a_call():
    known = {name for each in ARCHES.values() for name in each.numbers}
    named = ALLOWED | GATED | set(syscalls.REFUSED_WITH) | set(syscalls.NEEDS_TRUNCATE_RIGHT)

    assert sorted((named | set(NEVER)) - known) == []


def test_a_call_is_decided_in_one_place():
    names = [name for group in ALL_GROUPS for name in group.names]

    assert len(names) == len(set(names))
    assert set() == ALLOWED & GATED
    assert (ALLOWED | GATED) & set(syscalls.REFUSED_WITH) == set()


def test_groups_are_sorted_so_that_a_diff_is_a_review():
    for group in ALL_GROUPS:
        assert list(group.names) == sorted(group.names), group.why


def test_nothing_that_leaves_the_sandbox_is_allowed_under_any_policy():
    assert sorted((ALLOWED | GATED) & set(NEVER)) == []
