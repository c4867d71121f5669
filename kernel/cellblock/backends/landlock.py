"""Landlock and a system call filter: the guest locks itself, nothing wraps the zygote.

Contract: files outside the roots can't be opened, nothing is connected unless network_access is
True, no process is started unless subprocess_execution is, and no other process is signalled. Under
a list of addresses the host's relay connects.
Gap: names, sizes and times of files outside the roots can be looked up.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends.base import Backend, Declare, Support
from cellblock.backends.probes import probe_locks, unprobed
from cellblock.backends.shared import (
    EARLIER_LINKS,
    HOST,
    NAMES,
    RELAYED,
    RLIMITS,
    by_policy,
    holds,
    partly,
)
from cellblock.policy.enforcement import Enforcement, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.policy.model import Policy

#: Linux with Landlock, and the architectures that ``guest.confine`` has a table for.
OLDEST: Final = (5, 13)
ARCHITECTURES: Final = ("aarch64", "x86_64")
_NONE: Final = "this OS kernel has no Landlock, or it is not switched on: boot with lsm=landlock,…"
#: landlock_create_ruleset(2), which has one number everywhere, and what has it tell the ABI.
_CREATE_RULESET, _VERSION = 444, 1

_FILES = ("landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS = ("seccomp", "no_new_privs")


def _network(policy: Policy, support: Support) -> Declare:
    del support
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = f"{RELAYED}; system call filter: a cell connects nothing"
        return holds("network_access", mechanism, locks=_CALLS)
    return holds("network_access", "system call filter: no socket is opened", locks=_CALLS)


def _processes(policy: Policy, support: Support) -> Declare:
    del support
    if policy.subprocess_execution:
        mechanism = "programs beneath the system's folders, under the same locks"
        return holds("subprocess_execution", mechanism, locks=_FILES)
    mechanism = "system call filter: neither fork nor exec"
    return holds("subprocess_execution", mechanism, locks=_CALLS)


def _denied(policy: Policy, support: Support) -> Declare:
    del support
    from cellblock.backends.planner import splits_roots  # noqa: PLC0415 - plan is heavier

    mechanism = "Landlock: no rule covers them"
    if not splits_roots(policy):
        return holds("read_deny_paths", mechanism, locks=_FILES)
    return partly(
        "read_deny_paths",
        mechanism,
        EARLIER_LINKS,
        "what is created beside them after the kernel's start is not readable",
        locks=_FILES,
    )


def _packages(policy: Policy, support: Support) -> Declare:
    del support
    if policy.package_installation:
        return lambda _policy, _support: Enforcement(
            "package_installation", Status.unavailable, "the host alone installs packages", (), ""
        )
    return holds("package_installation", "no folder on the import path is writable", locks=_FILES)


def _memory(policy: Policy, support: Support) -> Declare:
    del support
    mechanism = (
        "RLIMIT_DATA: what is larger is a MemoryError; the filter refuses what it misses; "
        "the host kills a guest that it sees to hold an eighth more"
    )
    holes = [
        "files on a file system in memory that are not mapped: scratch_max_bytes",
        "buffers of sockets and pipes: a quarter MiB for each of max_open_files in each process",
    ]
    if policy.subprocess_execution:
        holes += ["what processes that a cell starts take in between, or share"]
    return partly("memory_max_bytes", mechanism, *holes, locks=("rlimits", "seccomp"))


class Landlock(Backend):
    """The locks of ``guest.confine``, all of them required."""

    name = "landlock"
    relays = True
    locks = ("capabilities", "no_new_privs", "not_dumpable", "rlimits", "landlock", "seccomp")
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        **RLIMITS,
        "filesystem_read_roots": partly(
            "filesystem_read_roots",
            "Landlock: files and folders outside the roots can't be opened",
            NAMES,
            locks=_FILES,
        ),
        "filesystem_write_roots": holds(
            "filesystem_write_roots",
            "Landlock; the system call filter refuses changes of mode, owner, times, attributes",
            locks=_FILES,
        ),
        "memory_max_bytes": by_policy("memory_max_bytes", _memory),
        "read_deny_paths": by_policy("read_deny_paths", _denied),
        "network_access": by_policy("network_access", _network),
        "subprocess_execution": by_policy("subprocess_execution", _processes),
        "package_installation": by_policy("package_installation", _packages),
    }

    def glance(self) -> Support:
        """Look at the architecture and whether the OS kernel has Landlock; take no lock."""
        machine = os.uname()
        if machine.sysname != "Linux" or _version(machine.release) < OLDEST:
            return unprobed("needs Linux 5.13 or later", usable=False)
        if machine.machine not in ARCHITECTURES:
            return unprobed(f"no system call table for {machine.machine}", usable=False)
        if why := _missing():
            return unprobed(why, usable=False)
        return unprobed("left to the guest's report", usable=True)

    def probe(self) -> Support:
        """Take the locks in a child and look whether they hold."""
        found = self.glance()
        return probe_locks(self.locks) if found.usable else found


def _missing() -> str:
    """Ask the OS kernel for Landlock's ABI, as guests do; return what is missing, or nothing."""
    try:
        import ctypes  # noqa: PLC0415 - not every Python was built with it
    except ImportError:
        return "this Python has no ctypes: use one that was built with libffi"
    abi = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return "" if abi > 0 else _NONE


def _version(release: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, found.groups())) if found else (0, 0)
