"""More locks on a guest that runs: what the zygote prepares, and what the guest does about it.

A policy that becomes narrower asks for less than a guest has, and nothing can be laid on a process
from outside. So a copy of the guest, which has one thread, asks for a ruleset when it takes over;
its gate stops the call, and the zygote puts a ruleset of its own behind the number that the call
names. Whatever code the copy is by then, it goes on restricted or it does not go on.

What decides about networks, programs and their number is the gate itself; resource limits are
lowered from outside (prlimit(2)). What is open stays open.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import arch, landlock, libc, process, seccomp
from cellblock.guest.confine.errors import LockFailed
from cellblock.guest.confine.gate import NEW_LISTENER, WAIT_KILLABLE
from cellblock.guest.confine.rlimits import CARRIERS

if TYPE_CHECKING:
    from cellblock.guest.confine.arch import Arch
    from cellblock.wire.messages import Limits, Plan

#: Rulesets that are laid on one guest after its first: the OS kernel has room for 16 in all.
MOST_AGAIN: Final = 8


def ask() -> None:
    """Have the zygote's ruleset laid on this process, its only thread. Raises OSError."""
    machine = arch.current()
    if machine is None:
        raise OSError(errno.ENOSYS, "no system call table")
    number = os.dup(1)  # any that is open: the zygote puts the ruleset there
    try:
        landlock.restrict_self(machine, number)
    finally:
        os.close(number)


def ruleset(plan: Plan, layers: int) -> int:
    """Return a ruleset for ``plan``, and see that so many of them, and one more, can be laid.

    For the zygote, which is under whatever else its guests are under. Raises OSError, LockFailed.
    """
    machine = arch.current()
    if machine is None or not _can_wait_killable(machine):
        raise LockFailed("this needs Linux 5.19")
    version = min(landlock.abi(machine), plan.highest_abi or landlock.HIGHEST_KNOWN_ABI)
    if version < 1 or layers > MOST_AGAIN:
        raise LockFailed("the guest was narrowed too often" if version else "no Landlock")
    handle = landlock.handled(version, network=plan.network)
    made, _absent = landlock.ruleset_of(plan, machine, handle)
    if not _fits(machine, made, layers + 1):
        os.close(made)
        raise LockFailed("the OS kernel takes no more rulesets")
    return made


def lower(pid: int, limits: Limits) -> None:
    """Lower a process's resource limits, soft and hard. Raises OSError, ValueError."""
    for field, which in CARRIERS.items():
        hard, wanted = resource.prlimit(pid, which)[1], getattr(limits, field)
        if wanted is None:
            continue
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.prlimit(pid, which, (value, value))


def _can_wait_killable(machine: Arch) -> bool:
    """Say whether a stopped call can't be interrupted: else one could slip away from its answer.

    The OS kernel looks at the flags before it looks at what is to be loaded (seccomp(2)).
    """
    try:
        flags = NEW_LISTENER | WAIT_KILLABLE
        libc.syscall(machine.numbers["seccomp"], seccomp.SET_MODE_FILTER, flags, None)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def _fits(machine: Arch, made: int, times: int) -> bool:
    """Try, in a child of ours, whether a ruleset can be laid so many times (E2BIG)."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    status = 1
    try:
        process.no_new_privs()
        for _ in range(times):
            landlock.restrict_self(machine, made)
        status = 0
    finally:
        os._exit(status)
