"""Attributes of a process: descriptors, session, capabilities, resource limits, whose end is whose.

What is set is asked for again: a filter above us may answer for the OS kernel (seccomp(2)).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import libc
from cellblock.guest.confine.libc import LockFailed, fatal
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from cellblock.guest.confine.arch import Arch
    from cellblock.wire.messages import Limits


# <linux/prctl.h>
PR_SET_PDEATHSIG: Final = 1
PR_GET_PDEATHSIG: Final = 2
PR_SET_DUMPABLE: Final = 4
PR_GET_DUMPABLE: Final = 3
PR_SET_NO_NEW_PRIVS: Final = 38
PR_GET_NO_NEW_PRIVS: Final = 39
PR_SET_NAME: Final = 15
PR_SET_CHILD_SUBREAPER: Final = 36
PR_GET_CHILD_SUBREAPER: Final = 37
#: Names that ps(1) and top(1) show; 15 bytes at most.
_NAMES: Final = {
    name: ctypes.create_string_buffer(f"cb-{name}".encode())
    for name in ("zygote", "guest", "snapshot")
}
_OPEN: Final = "/proc/self/fd"


def isolate_zygote(*, namespace: bool) -> None:
    """Do what a zygote does for all its guests; in a pid ``namespace`` of its own, end with it.

    Raises ConfineError.
    """
    _step("not_dumpable", not_dumpable)
    _step("orphans", _become_subreaper)
    if namespace:
        # What started it waits outside; that is what the host can kill, and we are to go with it.
        _step("end with its parent", _die_with_parent)


def isolate_fork(zygote: int, keep: Collection[int]) -> None:
    """End with the zygote, lead a session, hold no descriptor but ``keep``.

    These come before the locks, which take none of it back. Raises ConfineError where one of them
    fails, SystemExit where the zygote has gone.
    """
    _step("end with the zygote", _die_with_parent)
    if os.getppid() != zygote:  # before it was asked for
        raise SystemExit(1)
    _step("session", _start_session)
    _step("inherited descriptors", lambda: close_inherited(keep))


def _step(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except (OSError, LockFailed) as error:
        raise fatal(name, error) from error


def _become_subreaper() -> None:
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if _stored(PR_GET_CHILD_SUBREAPER) != 1:
        raise LockFailed("its children's orphans would not come to it")


def _die_with_parent() -> None:
    """Ask the OS kernel to kill this process when its parent ends, however (prctl(2))."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if _stored(PR_GET_PDEATHSIG) != signal.SIGKILL:
        raise LockFailed("it would outlive its parent")


def _start_session() -> None:
    os.setsid()
    if os.getsid(0) != os.getpid():
        raise LockFailed("it stayed in another's session")


def _stored(option: int) -> int:
    """Return the number that a prctl stores at an address."""
    space = ctypes.create_string_buffer(4)
    libc.prctl(option, space)
    number: int = struct.unpack("=i", space.raw)[0]
    return number


def close_inherited(keep: Collection[int]) -> None:
    """Close every descriptor that is not in ``keep``, whatever its number.

    The upper end is the hard limit on open files: a descriptor above the soft one survives a
    lowering of it. Raises LockFailed where one is left all the same, OSError without /proc.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    highest = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    # Some may lie above today's limit.
    highest = max(highest, *map(int, os.listdir(_OPEN)))
    start = 0
    for fd in sorted(keep):
        if fd > start:  # CPython turns the empty range before 0 into all of them
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, highest + 1)
    # Among what is listed is the descriptor by which it is listed.
    listed = [fd for fd in map(int, os.listdir(_OPEN)) if fd not in keep]
    if left := [fd for fd in listed if _is_open(fd)]:
        raise LockFailed(f"descriptors are left open: {left[:5]}")


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def set_name(name: str) -> None:
    """Name this process in ps(1) and top(1): zygote, guest or snapshot."""
    libc.prctl(PR_SET_NAME, _NAMES[name])


@contextlib.contextmanager
def dumpable() -> Iterator[None]:
    """Have the files of /proc/self be this user's meanwhile (proc(5)). Raises OSError."""
    libc.prctl(PR_SET_DUMPABLE, 1)
    try:
        yield
    finally:
        libc.prctl(PR_SET_DUMPABLE, 0)


def no_new_privs() -> str:
    """Make set-user-id programs and file capabilities powerless, for good."""
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.prctl(PR_GET_NO_NEW_PRIVS) != 1:
        raise LockFailed("no_new_privs did not stick")
    return "set"


def not_dumpable() -> str:
    """Refuse ptrace, /proc/PID/mem and core dumps by processes of the same user.

    Side effect (proc(5)): the files under /proc/PID become root's, so that the host of an
    unprivileged user can still read status, stat and statm, but not io, fd or smaps.
    """
    libc.prctl(PR_SET_DUMPABLE, 0)
    if libc.prctl(PR_GET_DUMPABLE) != 0:
        raise LockFailed("the process stayed dumpable")
    return "set"


def thread_count() -> int:
    """Count this process's threads, as the kernel does; Python does not know C's threads.

    Raises OSError where /proc is missing: then nothing vouches for a single thread.
    """
    return len(os.listdir("/proc/self/task"))


# Linux capabilities: all of them dropped, from every set.
# <linux/capability.h>, <linux/prctl.h>, <linux/securebits.h>
VERSION_3: Final = 0x20080522
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_GET_SECUREBITS: Final = 27
PR_SET_SECUREBITS: Final = 28
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
#: NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 means nothing on exec.
SECUREBITS: Final = 0b1100_1111
_CAPABILITIES: Final = range(64)


def drop_capabilities(arch: Arch) -> str:
    """Empty the bounding, ambient, effective, permitted and inheritable sets.

    Raises OSError, and LockFailed where something is left that could be taken away.
    """
    bounding = _drop_bounding()
    _try_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # Without CAP_SETPCAP this fails, and then there was nothing to keep from coming back.
    locked = _try_prctl(PR_SET_SECUREBITS, SECUREBITS)
    if locked and libc.prctl(PR_GET_SECUREBITS) & SECUREBITS != SECUREBITS:
        raise LockFailed("the securebits did not stick")
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    libc.syscall(arch.numbers["capset"], header, ctypes.create_string_buffer(24))
    if any(held_capabilities(arch)):
        raise LockFailed("capabilities are left after capset")
    return f"none held{', bounding set empty' if bounding else ''}"


def held_capabilities(arch: Arch) -> tuple[int, int, int]:
    """Return the effective, permitted and inheritable sets of this thread, as bit masks."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(24)
    libc.syscall(arch.numbers["capget"], header, data)
    words = struct.unpack("=6I", data.raw)
    effective, permitted, inheritable = (words[n + 3] << 32 | words[n] for n in range(3))
    return effective, permitted, inheritable


def _drop_bounding() -> bool:
    """Return whether the bounding set is empty now; an unprivileged user may not change it."""
    if not any(map(_in_bounding, _CAPABILITIES)):
        return True  # the zygote's was emptied
    for capability in _CAPABILITIES:
        try:
            libc.prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EPERM:
                return False
            if error.errno != errno.EINVAL:
                raise
            break  # the OS kernel knows no capability this high
    if any(map(_in_bounding, _CAPABILITIES)):
        raise LockFailed("capabilities are left in the bounding set")
    return True


def _in_bounding(capability: int) -> bool:
    try:
        return libc.prctl(PR_CAPBSET_READ, capability) != 0
    except OSError as error:
        if error.errno != errno.EINVAL:  # as above
            raise
        return False


def _try_prctl(option: int, value: int) -> bool:
    """Return whether it was done; that it may not be, or is not known, is no failure."""
    try:
        libc.prctl(option, value)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True


# Resource limits: soft and hard alike, so that a cell can't raise them again.

#: Field of ``wire.messages.Limits`` to the number of the limit that carries it.
RLIMIT_NUMBERS: Final[dict[str, int]] = {
    field: getattr(resource, limit) for field, limit in messages.RLIMITS.items()
}
#: Limits that the policy has no field for. Programs may set limits of their own, and what may be
#: locked in memory, or run before others, is not to become more: hard is made as low as soft.
RAISED_BY_NOBODY: Final = (
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_NICE,
    resource.RLIMIT_RTPRIO,
)
#: Signals that may wait for guests. Linux counts those of all of a user's processes together, so
#: that one guest could use up what the user's other programs have; honest ones have a handful. A
#: real-time signal beyond it is delivered once, however often it was sent (signal(7)).
MOST_SIGNALS: Final = 1_024


def apply_limits(limits: Limits, *, gated: bool = False) -> str:
    """Set every limit that is configured, but that on open files; no core dumps or locked pages.

    Few signals may wait. ``gated``: the gate counts tasks. Raises OSError, ValueError, LockFailed.
    """
    done = [
        _lower(resource.RLIMIT_CORE, 0, "core"),
        # Pages of files count for no process, as they can be read again; locked ones stay.
        _lower(resource.RLIMIT_MEMLOCK, 0, "locked memory"),
        _lower(resource.RLIMIT_SIGPENDING, MOST_SIGNALS, "signals"),
    ]
    for which in RAISED_BY_NOBODY:
        soft, _ = resource.getrlimit(which)
        resource.setrlimit(which, (soft, soft))
    for field, which in RLIMIT_NUMBERS.items():
        wanted = getattr(limits, field)
        if wanted is not None and which != resource.RLIMIT_NOFILE:
            done.append(_lower(which, wanted, field))
    if limits.memory_max_bytes is not None:
        # Linux does not enforce RSS. Programs that size themselves by it, as dask's workers do,
        # spill in time and are not stopped.
        done.append(_lower(resource.RLIMIT_RSS, limits.memory_max_bytes, "resident memory"))
        # The main thread's stack grows outside of RLIMIT_DATA.
        done.append(_lower(resource.RLIMIT_STACK, limits.memory_max_bytes, "stack"))
    if limits.max_processes is not None and not gated:
        done.append(limit_tasks(limits.max_processes))
    return ", ".join(done)


def limit_files(wanted: int | None, *, sockets: bool) -> str:
    """Allow ``wanted`` open files; with ``sockets``, half of what the zygote may open at most.

    Descriptors that are on their way in messages are counted for all of a user's processes
    together, against the limit of who sends one more (unix(7), ETOOMANYREFS). A guest with sockets
    that sends some to itself and takes none up would keep host, zygote and other guests from
    sending theirs; so these send under the zygote's limit. Raises OSError, ValueError, LockFailed.
    """
    if sockets:
        half = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        wanted = half if wanted is None else min(wanted, half)
    return "" if wanted is None else _lower(resource.RLIMIT_NOFILE, wanted, "max_open_files")


def _lower(which: int, wanted: int, label: str) -> str:
    """Set both limits to ``wanted``, or to what ``_at_most`` says."""
    soft, hard = resource.getrlimit(which)
    value = _at_most(which, wanted, soft, hard)
    resource.setrlimit(which, (value, value))
    if resource.getrlimit(which) != (value, value):
        raise LockFailed(f"the limit for {label} did not stick")
    return f"{label}={value}"


def _at_most(which: int, wanted: int, soft: int, hard: int) -> int:
    """Return ``wanted`` or the hard limit, whichever is lower; of a stack, the soft one.

    A stack may not grow to where the filter takes it for other memory (``Grants.stacks``).
    """
    most = soft if which == resource.RLIMIT_STACK else hard
    return wanted if most == resource.RLIM_INFINITY else min(wanted, most)


def lower_limits(pid: int, limits: Limits) -> None:
    """Lower another process's limits, soft and hard. Raises OSError, ValueError."""
    for field, which in RLIMIT_NUMBERS.items():
        soft, hard = resource.prlimit(pid, which)
        wanted = getattr(limits, field)
        if wanted is not None:
            value = _at_most(which, wanted, soft, hard)
            resource.prlimit(pid, which, (value, value))


def limit_tasks(wanted: int) -> str:
    """Allow ``wanted`` tasks more than the user has now.

    RLIMIT_NPROC counts all tasks of the user on the machine, this notebook's or not, and
    Linux never applies it to uid 0 (getrlimit(2); kernel/fork.c, ``INIT_USER``).
    """
    uid = os.getuid()
    if uid == 0:
        return "max_processes not applied to uid 0"
    numbers = (entry for entry in os.scandir("/proc") if entry.name.isdecimal())
    present = sum(_threads_if_owned(entry, uid) for entry in numbers)
    return _lower(resource.RLIMIT_NPROC, present + wanted, "tasks of this user")


def _threads_if_owned(entry: os.DirEntry[str], uid: int) -> int:
    """Count a process's threads if it is the user's; a process that has vanished has none."""
    try:
        if entry.stat().st_uid not in (uid, 0):
            return 0
        lines = Path(entry.path, "status").read_bytes().splitlines()
        fields = dict(line.partition(b":")[::2] for line in lines)
        return int(fields[b"Threads"]) if int(fields[b"Uid"].split()[0]) == uid else 0
    except (OSError, KeyError, ValueError):
        return 0
