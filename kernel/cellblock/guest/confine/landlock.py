"""Landlock: which files and TCP ports the guest may open, and which processes it may signal.

``apply`` restricts a new guest. ``ruleset`` and ``request_ruleset`` add a ruleset to a guest that
runs, when its policy becomes narrower.

Every right that the running ABI knows is handled, so what no rule grants is refused. What Landlock
covers at no ABI (stat, chmod, chown, utime, xattr, inotify, UDP, pathname sockets) is left to the
system call filter.

Source: landlock(7), <linux/landlock.h>.
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
#: Without the right to make devices.
WRITE: Final = (
    READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
)
DEVICE: Final = READ_FILE | WRITE_FILE | TRUNCATE
#: Never writable: a shared writable mapping of it is memory that no limit counts (zero(4)).
READ_ONLY_DEVICES: Final = ("/dev/zero",)
#: Errnos of opening a path that does not exist, or that this user may not reach.
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)
#: Rights that the OS kernel accepts on a rule for something that is not a directory.
FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


class Handled(msgspec.Struct, frozen=True):
    """The rights that one ruleset decides about; 0 means that the ABI has no such rights."""

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
    """Return the running OS kernel's ABI, 0 if it has no Landlock or Landlock is switched off."""
    try:
        return libc.syscall(arch.numbers["landlock_create_ruleset"], 0, 0, CREATE_RULESET_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def handled(version: int, *, network: bool, binds: bool = False) -> Handled:
    """Return all rights that ABI ``version`` can decide about.

    If the policy allows a ``network``, TCP is not decided about, except for the ports at which
    guests listen if ``binds`` says so.
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
    """Restrict this thread, for good. Needs no_new_privs.

    Return a statement for the report. Raises OSError, LockFailed.
    """
    if version < 1:
        raise LockFailed("this OS kernel has no Landlock, or it is not switched on")
    handle = handled(version, network=plan.has_sockets, binds=plan.bound is not None)
    ruleset, absent = ruleset_of(plan, arch, handle)
    try:
        # The guest may read its own memory map: threadpoolctl (scikit-learn) looks for BLAS there.
        # The descriptor stays open on purpose. Without it procfs would forget the inode that the
        # rule names, and make another one. Processes that the guest forks have no such rule.
        memory_map = f"/proc/{os.getpid()}/maps"
        if _allow(arch, ruleset, handle, memory_map, READ_FILE):
            os.open(memory_map, os.O_PATH | os.O_CLOEXEC)
        restrict_self(arch, ruleset, handle.flags)
    finally:
        os.close(ruleset)
    parts = [f"ABI {version}", "files"]
    parts += ["tcp"] if handle.net else []
    parts += ["signals and abstract sockets"] if handle.scopes else []
    parts += [f"{len(absent)} roots absent"] if absent else []
    return ", ".join(parts)


def ruleset_of(plan: Plan, arch: Arch, handle: Handled) -> tuple[int, list[str]]:
    """Make a ruleset for ``plan``, which restricts no process yet.

    Return its descriptor and the plan's paths that do not exist. Raises OSError.
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
    """Restrict this thread by a ruleset, beside those that it has. Raises OSError."""
    libc.syscall(arch.numbers["landlock_restrict_self"], ruleset, flags)


def grants(plan: Plan) -> Iterable[tuple[str, int]]:
    """Yield each path of the plan with its rights. A path may occur more than once."""
    execute = EXECUTE if plan.subprocess else 0
    # Programs use FIFOs between each other. No FIFO can make the host wait, as it opens files in
    # these folders without blocking.
    write = WRITE | (MAKE_FIFO if plan.subprocess else 0)
    write |= MAKE_SOCK if plan.local_sockets else 0
    for path in plan.read_roots:
        yield path, READ | execute
    for path in plan.listed:
        yield path, READ_DIR
    for path in plan.writable:
        # A program that cells have compiled gives them nothing new: they can load it as a library.
        yield path, write | execute
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
    """Add one rule. Return False if the path does not exist: then nothing is granted.

    Return False, too, if ``number`` is given and the path is not the device of that number, which
    the host found there. Raises OSError.
    """
    try:
        fd = _open_beneath(arch, path)
    except OSError as error:
        # EPERM is no such errno. It means that a seccomp filter above us does not know openat2.
        if error.errno in _ABSENT:
            return False
        raise
    try:
        status = os.fstat(fd)
        if number is not None and not (stat.S_ISCHR(status.st_mode) and status.st_rdev == number):
            return False
        if not stat.S_ISDIR(status.st_mode):
            rights &= FILE_RIGHTS
        # packed: __u64 allowed_access; __s32 parent_fd
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & handle.fs, fd), 12)
        libc.syscall(arch.numbers["landlock_add_rule"], ruleset, RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
    return True


def _open_beneath(arch: Arch, path: str) -> int:
    """Open ``path`` with O_PATH, following no link at all: the plan's paths are canonical.

    An earlier guest may have put a link where the host found a folder when it made the plan. Every
    OS kernel with Landlock has openat2, which came with Linux 5.6. Raises OSError.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    open_how = ctypes.create_string_buffer(
        struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS), 24
    )
    return libc.syscall(arch.numbers["openat2"], AT_FDCWD, name, open_how, 24)


# More locks on a guest that runs: what the zygote prepares, and what the guest does.
#
# When the policy becomes narrower, the guest must lose rights, but no process can restrict another
# one by Landlock. So a copy of the guest, which has one thread, asks for a ruleset when it takes
# over (``request_ruleset``). Its gate stops that call, and the zygote puts a ruleset of its own
# (``ruleset``) at the descriptor number that the call names (``notify.Gate._lay_ruleset``).
# Whatever code the copy runs by then, it goes on restricted or not at all.
#
# Networks, programs and their number are decided by the gate itself, under its new plan. Resource
# limits are lowered from outside (prlimit(2)). Files that are open stay open.

#: Rulesets that a guest may get after its first. The OS kernel allows 16 in all.
MOST_AGAIN: Final = 8


def request_ruleset() -> None:
    """Restrict this process's only thread by the ruleset that is due. Raises OSError.

    The zygote supplies the ruleset, at the gate.
    """
    machine = arch.current()
    if machine is None:
        raise OSError(errno.ENOSYS, "no system call table")
    number = os.dup(1)  # any descriptor: the zygote replaces it by the ruleset
    try:
        restrict_self(machine, number)
    finally:
        os.close(number)


def ruleset(plan: Plan, layers: int, namespaces: Sequence[int] = ()) -> int:
    """Return the descriptor of a ruleset for ``plan``, for a guest that has ``layers`` of them.

    Called in the zygote. The OS kernel limits how many rulesets a process may have. Those that were
    there before the guests' own also restrict the zygote, so a child of the zygote can try whether
    one more is allowed. Another child makes the ruleset (``aside``), in a session's ``namespaces``
    if the guest sees other files than the zygote. Raises OSError, LockFailed.
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
        fd, _absent = ruleset_of(plan, machine, handle)
        return fd

    return aside.descriptor(make, namespaces)


def _can_wait_killable(machine: Arch) -> bool:
    """Return whether the OS kernel can keep signals from interrupting a received call.

    Without that, a guest could interrupt the call that restricts it, and go on unrestricted. Asks
    by loading no program at all: the OS kernel checks the flags first (seccomp(2)).
    """
    try:
        flags = NEW_LISTENER | WAIT_KILLABLE
        libc.syscall(machine.numbers["seccomp"], seccomp.SET_MODE_FILTER, flags, None)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


@functools.lru_cache
def _fits(handle: Handled, times: int) -> bool:
    """Try, in a child, whether a process can be restricted so many times (else E2BIG)."""
    machine = arch.current()
    if machine is None:
        return False
    attr = ctypes.create_string_buffer(handle.packed, len(handle.packed))
    ruleset = libc.syscall(machine.numbers["landlock_create_ruleset"], attr, len(handle.packed), 0)
    pid = os.fork()
    if pid:
        os.close(ruleset)
        return os.waitpid(pid, 0)[1] == 0
    status = 1
    try:
        process.no_new_privs()
        for _ in range(times):
            restrict_self(machine, ruleset)
        status = 0
    finally:
        os._exit(status)
