"""Landlock: which files and TCP ports the guest may open, and whom it may signal.

Source: landlock(7), <linux/landlock.h>. Every right that the running ABI knows is handled, so
what no rule grants is refused. What Landlock does not cover at any ABI (stat, chmod, chown,
utime, xattr, inotify, UDP, pathname sockets) is the system call filter's business.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.guest.confine import arch, aside, libc, process, seccomp
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.confine.notify import NEW_LISTENER, WAIT_KILLABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cellblock.guest.confine.arch import Arch
    from cellblock.wire.messages import Plan


CREATE_RULESET_VERSION: Final = 1
RULE_PATH_BENEATH: Final = 1
RULE_NET_PORT: Final = 2
RESTRICT_SELF_LOG_SAME_EXEC_OFF: Final = 1
HIGHEST_KNOWN_ABI: Final = 7
# <linux/fcntl.h>, <linux/openat2.h>
AT_FDCWD: Final = -100
RESOLVE_NO_SYMLINKS: Final = 0x04

# LANDLOCK_ACCESS_FS_*, with the ABI that brought each.
EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_CHAR: Final = 1 << 6
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_FIFO: Final = 1 << 10
MAKE_BLOCK: Final = 1 << 11
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
IOCTL_ABI: Final = 5
FS_BY_ABI: Final = (
    (1, (1 << 13) - 1),
    (2, REFER),
    (3, TRUNCATE),
    (IOCTL_ABI, IOCTL_DEV),
)
# LANDLOCK_ACCESS_NET_* (ABI 4) and LANDLOCK_SCOPE_* (ABI 6).
BIND_TCP: Final = 0b01
BIND_TCP_AND_CONNECT_TCP: Final = 0b11
NET_ABI: Final = 4
SCOPE_ABSTRACT_UNIX_AND_SIGNAL: Final = 0b11
SCOPE_ABI: Final = 6
TRUNCATE_ABI: Final = 3
QUIET_ABI: Final = 7

READ: Final = READ_FILE | READ_DIR
#: No devices.
WRITE: Final = (
    READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
)
DEVICE: Final = READ_FILE | WRITE_FILE | TRUNCATE
#: Not to be written: a shared writable mapping of it is memory that no limit counts (zero(4)).
READ_ONLY_DEVICES: Final = ("/dev/zero",)
#: What opening a place comes to that is not there, or not for us.
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)
#: Rights that the OS kernel accepts on a rule for something that is not a directory.
FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


class Handled(msgspec.Struct, frozen=True):
    """What one ruleset decides about; 0 means that the ABI has no such rule."""

    fs: int
    net: int
    scopes: int
    flags: int

    @property
    def packed(self) -> bytes:
        """``struct landlock_ruleset_attr``, as long as the ABI needs it."""
        words = [self.fs, self.net, self.scopes][: 3 if self.scopes else 2 if self.net else 1]
        return struct.pack(f"={len(words)}Q", *words)


def abi(arch: Arch) -> int:
    """Return the running ABI, 0 where Landlock is absent or switched off at boot."""
    try:
        return libc.syscall(arch.numbers["landlock_create_ruleset"], 0, 0, CREATE_RULESET_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def handled(version: int, *, network: bool, binds: bool = False) -> Handled:
    """Return all that ABI ``version`` can decide; TCP is left alone where the policy allows it.

    ``binds``: but for the ports at which guests listen.
    """
    fs = 0
    for since, rights in FS_BY_ABI:
        fs |= rights if version >= since else 0
    net = BIND_TCP_AND_CONNECT_TCP
    if network:
        net = BIND_TCP if binds else 0
    return Handled(
        fs=fs,
        net=net if version >= NET_ABI else 0,
        scopes=SCOPE_ABSTRACT_UNIX_AND_SIGNAL if version >= SCOPE_ABI else 0,
        flags=RESTRICT_SELF_LOG_SAME_EXEC_OFF if version >= QUIET_ABI else 0,
    )


def apply(plan: Plan, arch: Arch, version: int) -> str:
    """Restrict this thread, for good. Needs no_new_privs. Raises OSError, LockFailed."""
    if version < 1:
        raise LockFailed("this OS kernel has no Landlock, or it is not switched on")
    handle = handled(version, network=plan.has_sockets, binds=plan.bound is not None)
    ruleset, absent = ruleset_of(plan, arch, handle)
    try:
        # The guest may read its own memory map: threadpoolctl (scikit-learn) looks for BLAS there.
        # procfs makes a new inode, which no rule names, once it has forgotten the old one; an open
        # descriptor keeps it. A process that the guest forks has another map, and no rule for it.
        own = f"/proc/{os.getpid()}/maps"
        if _allow(arch, ruleset, handle, own, READ_FILE):
            os.open(own, os.O_PATH | os.O_CLOEXEC)
        restrict_self(arch, ruleset, handle.flags)
    finally:
        os.close(ruleset)
    parts = [f"ABI {version}", "files"]
    parts += ["tcp"] if handle.net else []
    parts += ["signals and abstract sockets"] if handle.scopes else []
    parts += [f"{len(absent)} roots absent"] if absent else []
    return ", ".join(parts)


def ruleset_of(plan: Plan, arch: Arch, handle: Handled) -> tuple[int, list[str]]:
    """Return the descriptor of a ruleset that restricts nobody yet, and roots that are absent.

    Raises OSError.
    """
    attr = ctypes.create_string_buffer(handle.packed, len(handle.packed))
    ruleset = libc.syscall(arch.numbers["landlock_create_ruleset"], attr, len(handle.packed), 0)
    try:
        for port in plan.bound or () if handle.net else ():
            # struct landlock_net_port_attr: __u64 allowed_access, port
            rule = ctypes.create_string_buffer(struct.pack("=QQ", BIND_TCP, port), 16)
            libc.syscall(arch.numbers["landlock_add_rule"], ruleset, RULE_NET_PORT, rule, 0)
        numbers = {device.path: os.makedev(device.major, device.minor) for device in plan.devices}
        return ruleset, [
            path
            for path, rights in grants(plan)
            if not _allow(arch, ruleset, handle, path, rights, numbers.get(path))
        ]
    except BaseException:
        os.close(ruleset)
        raise


def restrict_self(arch: Arch, ruleset: int, flags: int = 0) -> None:
    """Lay a ruleset on this thread, on top of what lies there. Raises OSError."""
    libc.syscall(arch.numbers["landlock_restrict_self"], ruleset, flags)


def grants(plan: Plan) -> Iterable[tuple[str, int]]:
    """Yield each path of the plan with its rights; one path may come up more than once."""
    execute = EXECUTE if plan.subprocess else 0
    # Programs speak by FIFOs. What the host opens in these folders it opens without waiting.
    write = WRITE | (MAKE_FIFO if plan.subprocess else 0)
    write |= MAKE_SOCK if plan.local_sockets else 0
    for path in plan.read_roots:
        yield path, READ | execute
    for path in plan.listed:
        yield path, READ_DIR
    for path in plan.writable:
        yield path, write
    for path in plan.device_files:
        yield path, READ_FILE if path in READ_ONLY_DEVICES else DEVICE
    for device in plan.devices:
        yield device.path, DEVICE | (IOCTL_DEV if device.requests else 0)


def _allow(
    arch: Arch,
    ruleset: int,
    handle: Handled,
    path: str,
    rights: int,
    number: int | None = None,
) -> bool:
    """Add one rule. Return False if nothing is there: then nothing is granted, which is safe.

    Nor is a device granted that has another ``number`` than the host found at its path.
    """
    try:
        fd = _open_beneath(arch, path)
    except OSError as error:
        # Not EPERM: no file is behind that, but a filter that knows no openat2.
        if error.errno in _ABSENT:
            return False
        raise
    try:
        found = os.fstat(fd)
        if number is not None and not (stat.S_ISCHR(found.st_mode) and found.st_rdev == number):
            return False
        if not stat.S_ISDIR(found.st_mode):
            rights &= FILE_RIGHTS
        # packed: __u64 allowed_access; __s32 parent_fd
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & handle.fs, fd), 12)
        libc.syscall(arch.numbers["landlock_add_rule"], ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
    return True


def _open_beneath(arch: Arch, path: str) -> int:
    """Open ``path`` for naming it, following no link at all: the plan's paths are canonical.

    An earlier guest may have put a link where the plan saw a folder. openat2 is as old as
    Linux 5.6, so wherever Landlock is.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    how = ctypes.create_string_buffer(
        struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS), 24
    )
    return libc.syscall(arch.numbers["openat2"], AT_FDCWD, name, how, 24)


# More locks on a guest that runs: what the zygote prepares, and what the guest does about it.
#
# A policy that becomes narrower asks for less than a guest has, and nothing can be laid on a
# process from outside. So a copy of the guest, which has one thread, asks for a ruleset when it
# takes over; its gate stops the call, and the zygote puts a ruleset of its own behind the number
# that the call names. Whatever code the copy is by then, it goes on restricted or it does not go
# on.
#
# What decides about networks, programs and their number is the gate itself; resource limits are
# lowered from outside (prlimit(2)). What is open stays open.

#: Rulesets that are laid on one guest after its first: the OS kernel has room for 16 in all.
MOST_AGAIN: Final = 8


def request_ruleset() -> None:
    """Ask the zygote to lay a ruleset on this process's only thread. Raises OSError."""
    machine = arch.current()
    if machine is None:
        raise OSError(errno.ENOSYS, "no system call table")
    number = os.dup(1)  # any that is open: the zygote puts the ruleset there
    try:
        restrict_self(machine, number)
    finally:
        os.close(number)


def ruleset(plan: Plan, layers: int, namespaces: Sequence[int] = ()) -> int:
    """Return a ruleset for ``plan``, and see that so many of them, and one more, can be laid.

    For the zygote, which is under whatever else its guests are under. It is made aside, in a
    session's ``namespaces`` where the guest sees other files than the zygote. Raises OSError,
    LockFailed.
    """
    machine = arch.current()
    if machine is None or not _can_wait_killable(machine):
        raise LockFailed("this needs Linux 5.19")
    version = min(abi(machine), plan.highest_abi or HIGHEST_KNOWN_ABI)
    if version < 1 or layers > MOST_AGAIN:
        raise LockFailed("the guest was narrowed too often" if version else "no Landlock")
    handle = handled(version, network=plan.has_sockets, binds=plan.bound is not None)
    if not _fits(handle, layers + 1):
        raise LockFailed("the OS kernel takes no more rulesets")

    def make() -> int:
        made, _absent = ruleset_of(plan, machine, handle)
        return made

    return aside.descriptor(make, namespaces)


def _can_wait_killable(machine: Arch) -> bool:
    """Return whether a stopped call can't be interrupted: else one could slip away from its answer.

    The OS kernel looks at the flags before it looks at what is to be loaded (seccomp(2)).
    """
    try:
        flags = NEW_LISTENER | WAIT_KILLABLE
        libc.syscall(machine.numbers["seccomp"], seccomp.SET_MODE_FILTER, flags, None)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


@functools.lru_cache
def _fits(handle: Handled, times: int) -> bool:
    """Try, in a child of ours, whether a ruleset can be laid so many times (E2BIG)."""
    machine = arch.current()
    if machine is None:
        return False
    attr = ctypes.create_string_buffer(handle.packed, len(handle.packed))
    made = libc.syscall(machine.numbers["landlock_create_ruleset"], attr, len(handle.packed), 0)
    pid = os.fork()
    if pid:
        os.close(made)
        return os.waitpid(pid, 0)[1] == 0
    status = 1
    try:
        process.no_new_privs()
        for _ in range(times):
            restrict_self(machine, made)
        status = 0
    finally:
        os._exit(status)
