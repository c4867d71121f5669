"""Attributes of a process: descriptors, session, capabilities, resource limits, parent's death.

``isolate_zygote`` and ``isolate_fork`` are the first steps of a zygote and of a guest. The others
are locks, which ``confine`` takes.

Each function reads back what it has set, because a seccomp filter above this process may pretend
success in place of the OS kernel (seccomp(2)).
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
    """Make a zygote untraceable and the parent of its guests' orphans.

    ``namespace`` says that the zygote is the first process of a pid namespace. It then also ends
    when its parent ends. Raises ConfineError.
    """
    _step("not_dumpable", not_dumpable)
    _step("orphans", _become_subreaper)
    if namespace:
        # The parent, which started the namespace (bubblewrap), waits outside. The host can kill
        # only that one, and the zygote must end with it.
        _step("end with its parent", _die_with_parent)


def isolate_fork(zygote: int, keep: Collection[int]) -> None:
    """Make a fork end with the zygote, lead a session, and hold no descriptor but ``keep``.

    Called before the locks. Raises ConfineError if a step fails, SystemExit if the zygote is gone.
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
    """Return the number that a prctl query stores at an address."""
    space = ctypes.create_string_buffer(4)
    libc.prctl(option, space)
    number: int = struct.unpack("=i", space.raw)[0]
    return number


def close_inherited(keep: Collection[int]) -> None:
    """Close every descriptor that is not in ``keep``, whatever its number.

    Goes up to the hard limit on open files, since a descriptor above the soft limit stays open when
    that limit is lowered. Raises LockFailed if a descriptor is left open, OSError without /proc.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    highest = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    # A limit may have been lowered below a descriptor that is open.
    highest = max(highest, *map(int, os.listdir(_OPEN)))
    start = 0
    for fd in sorted(keep):
        if fd > start:  # CPython takes the empty range before 0 for all descriptors
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, highest + 1)
    # The listing includes the descriptor of the folder that was listed, which is closed by now.
    listed = [fd for fd in map(int, os.listdir(_OPEN)) if fd not in keep]
    if left_open := [fd for fd in listed if _is_open(fd)]:
        raise LockFailed(f"descriptors are left open: {left_open[:5]}")


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
    """Make this process dumpable meanwhile, so that the user owns /proc/self (proc(5)).

    Raises OSError.
    """
    libc.prctl(PR_SET_DUMPABLE, 1)
    try:
        yield
    finally:
        libc.prctl(PR_SET_DUMPABLE, 0)


def no_new_privs() -> str:
    """Make set-user-id programs and file capabilities powerless, for good.

    Return a statement for the report. Raises OSError, LockFailed.
    """
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.prctl(PR_GET_NO_NEW_PRIVS) != 1:
        raise LockFailed("no_new_privs did not stick")
    return "set"


def not_dumpable() -> str:
    """Refuse ptrace, /proc/PID/mem and core dumps by processes of the same user.

    Side effect (proc(5)): root then owns the files in /proc/PID, so that the host of an
    unprivileged user can still read status, stat and statm, but not io, fd or smaps.
    Return a statement for the report. Raises OSError, LockFailed.
    """
    libc.prctl(PR_SET_DUMPABLE, 0)
    if libc.prctl(PR_GET_DUMPABLE) != 0:
        raise LockFailed("the process stayed dumpable")
    return "set"


def thread_count() -> int:
    """Return how many threads this process has, including those that Python did not start.

    Raises OSError if /proc is missing: then nothing proves that there is a single thread.
    """
    return len(os.listdir("/proc/self/task"))


# Linux capabilities: all are dropped, from every set.
# <linux/capability.h>, <linux/prctl.h>, <linux/securebits.h>
VERSION_3: Final = 0x20080522
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_GET_SECUREBITS: Final = 27
PR_SET_SECUREBITS: Final = 28
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
#: NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock: executing a program as uid 0
#: then gives no capability.
SECUREBITS: Final = 0b1100_1111
_CAPABILITIES: Final = range(64)


def drop_capabilities(arch: Arch) -> str:
    """Empty the bounding, ambient, effective, permitted and inheritable sets of this thread.

    Return a statement for the report. Raises OSError, and LockFailed if a capability is left that
    could have been dropped.
    """
    bounding = _drop_bounding()
    _try_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # Without CAP_SETPCAP this fails, but then no capability could come back.
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
    """Empty the bounding set; return whether it is empty. An unprivileged user can't change it."""
    if not any(map(_in_bounding, _CAPABILITIES)):
        return True  # the zygote has emptied it
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
    """Make a prctl call; return False if it isn't permitted or the OS kernel doesn't know it."""
    try:
        libc.prctl(option, value)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True


# Resource limits: the soft and the hard limit are set alike, so that a cell can't raise them again.

#: From a field of ``wire.messages.Limits`` to the number of the resource limit that enforces it.
RLIMIT_NUMBERS: Final[dict[str, int]] = {
    field: getattr(resource, limit) for field, limit in messages.RLIMITS.items()
}
#: Limits that have no policy field. Programs may set limits of their own, and must not lock more
#: memory or run at a higher priority than now. So the hard limit is made as low as the soft one.
RAISED_BY_NOBODY: Final = (
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_NICE,
    resource.RLIMIT_RTPRIO,
)
#: Signals that may be pending for a guest. Linux counts the pending signals of all processes of a
#: user together, so one guest could use up what the user's other programs need. Honest programs
#: have a handful. A real-time signal above this limit is delivered once, however often it was sent
#: (signal(7)).
MOST_SIGNALS: Final = 1_024


def apply_limits(limits: Limits, *, gated: bool = False) -> str:
    """Set every limit that is configured, except that on open files (``limit_files``).

    Also forbid core dumps and locked memory, and bound pending signals. ``gated`` says that the
    gate counts tasks, so that no limit on them is set here. Return a statement for the report.
    Raises OSError, ValueError, LockFailed.
    """
    done = [
        _lower(resource.RLIMIT_CORE, 0, "core"),
        # No memory limit counts pages of files, as Linux can drop them and read them again. It
        # can't drop locked ones.
        _lower(resource.RLIMIT_MEMLOCK, 0, "locked memory"),
        _lower(resource.RLIMIT_SIGPENDING, MOST_SIGNALS, "signals"),
    ]
    for number in RAISED_BY_NOBODY:
        soft, _ = resource.getrlimit(number)
        resource.setrlimit(number, (soft, soft))
    for field, number in RLIMIT_NUMBERS.items():
        maximum = getattr(limits, field)
        if maximum is not None and number != resource.RLIMIT_NOFILE:
            done.append(_lower(number, maximum, field))
    if limits.memory_max_bytes is not None:
        # Linux does not enforce RSS. It is set for programs that choose their size by it: dask's
        # workers then spill to disk in time, and are not stopped.
        done.append(_lower(resource.RLIMIT_RSS, limits.memory_max_bytes, "resident memory"))
        # The main thread's stack grows outside of RLIMIT_DATA.
        done.append(_lower(resource.RLIMIT_STACK, limits.memory_max_bytes, "stack"))
    if limits.max_processes is not None and not gated:
        done.append(limit_tasks(limits.max_processes))
    return ", ".join(done)


def limit_files(maximum: int | None, *, sockets: bool) -> str:
    """Allow ``maximum`` open files; if the guest has sockets, at most half of the zygote's limit.

    Linux counts the descriptors in unread messages of all processes of a user together, and
    compares the sum with the limit of the process that sends one more (unix(7), ETOOMANYREFS). A
    guest with sockets could send descriptors to itself, never receive them, and so keep the host,
    the zygote and other guests from sending theirs. With a lower limit, the guest fails before
    they do. Guests themselves send the gate's listener before this limit is set.

    Return a statement for the report, empty if nothing was set. Raises OSError, ValueError,
    LockFailed.
    """
    if sockets:
        half = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        maximum = half if maximum is None else min(maximum, half)
    return "" if maximum is None else _lower(resource.RLIMIT_NOFILE, maximum, "max_open_files")


def _lower(number: int, maximum: int, label: str) -> str:
    """Set the soft and hard limit to ``maximum``, or to the lower value that ``_at_most`` gives.

    ``label`` names the limit in the statement that is returned. Raises LockFailed if the limits
    don't read back as set.
    """
    soft, hard = resource.getrlimit(number)
    value = _at_most(number, maximum, soft, hard)
    resource.setrlimit(number, (value, value))
    if resource.getrlimit(number) != (value, value):
        raise LockFailed(f"the limit for {label} did not stick")
    return f"{label}={value}"


def _at_most(number: int, maximum: int, soft: int, hard: int) -> int:
    """Return ``maximum``, but not more than the hard limit; for a stack, than the soft limit.

    A higher stack could grow to addresses that the filter takes for other memory
    (``Grants.stacks``).
    """
    most = soft if number == resource.RLIMIT_STACK else hard
    return maximum if most == resource.RLIM_INFINITY else min(maximum, most)


def lower_limits(pid: int, limits: Limits) -> None:
    """Lower another process's limits, soft and hard. Raises OSError, ValueError."""
    for field, number in RLIMIT_NUMBERS.items():
        soft, hard = resource.prlimit(pid, number)
        maximum = getattr(limits, field)
        if maximum is not None:
            value = _at_most(number, maximum, soft, hard)
            resource.prlimit(pid, number, (value, value))


def limit_tasks(allowance: int) -> str:
    """Allow ``allowance`` tasks more than the user has now. Used if no gate counts tasks.

    RLIMIT_NPROC counts all tasks of the user on the machine, this notebook's or not, and Linux
    never applies it to uid 0 (getrlimit(2); kernel/fork.c, ``INIT_USER``). Return a statement for
    the report. Raises OSError, ValueError, LockFailed.
    """
    uid = os.getuid()
    if uid == 0:
        return "max_processes not applied to uid 0"
    numbers = (entry for entry in os.scandir("/proc") if entry.name.isdecimal())
    present = sum(_threads_if_owned(entry, uid) for entry in numbers)
    return _lower(resource.RLIMIT_NPROC, present + allowance, "tasks of this user")


def _threads_if_owned(entry: os.DirEntry[str], uid: int) -> int:
    """Return how many threads a process of the user has; 0 for another user's, or if it is gone."""
    try:
        if entry.stat().st_uid not in (uid, 0):
            return 0
        lines = Path(entry.path, "status").read_bytes().splitlines()
        fields = dict(line.partition(b":")[::2] for line in lines)
        return int(fields[b"Threads"]) if int(fields[b"Uid"].split()[0]) == uid else 0
    except (OSError, KeyError, ValueError):
        return 0
