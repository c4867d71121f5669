"""System calls that the guest may make whatever their arguments, and why.

Whatever is not here, and not in ``syscall_args.gates``, is refused: with EPERM if the table knows
the call, with ENOSYS if it does not, so that libraries take their fallback path. To refuse a call
that is allowed, delete its name. Landlock decides what the calls of ``FILES`` may touch. An entry
that an architecture lacks is skipped there.

Refused on purpose, though honest programs make them:
chmod, chown, utime (by path and by descriptor): neither lock can tell inside from outside, and a
    descriptor opened for reading is enough for an owner's fchmod. But see ``ATTRIBUTES``.
xattr: as above, and reading them tells what Landlock does not let be read.
sync_file_range, syncfs, sync: they make others' data go to the disk.
membarrier, futex_waitv: no library of the data stack makes them; they reach beyond the process.
readlink: the target of a link outside the roots is contents, not a name.
flock: an exclusive lock needs no write access and would stop the file's other users.
memfd_create, mlockall, SysV and POSIX queues: memory that the limits do not see (as mmap, gated).
timer_create, sigqueue: they deliver SIGSTOP, and a stopped guest is a hung kernel.
seccomp, landlock_* (but see ``NEEDS_GATE``): one cell could lock out the cells after it.
"""

from __future__ import annotations

import errno
from typing import Final

import msgspec


class Group(msgspec.Struct, frozen=True):
    """Calls that are allowed for one reason."""

    why: str
    names: tuple[str, ...]


def _group(why: str, names: str) -> Group:
    return Group(why, tuple(names.split()))


ALWAYS: Final = (
    _group(
        "files: Landlock decides which; names and metadata it does not hide",
        """
        access
        chdir
        faccessat
        faccessat2
        fchdir
        fstat
        fstatfs
        getcwd
        getdents
        getdents64
        link
        linkat
        lstat
        mkdir
        mkdirat
        newfstatat
        rename
        renameat
        rmdir
        stat
        statfs
        statx
        symlink
        symlinkat
        umask
        unlink
        unlinkat
        """,
    ),
    _group(
        "open descriptors: what could be opened may be used",
        """
        close
        close_range
        copy_file_range
        dup
        dup2
        dup3
        fadvise64
        fallocate
        fdatasync
        fsync
        ftruncate
        lseek
        pread64
        preadv
        pwrite64
        pwritev
        read
        readahead
        readv
        sendfile
        write
        writev
        """,
    ),
    _group(
        "own memory, executable too: extension modules and ctypes callbacks need it",
        """
        brk
        get_mempolicy
        madvise
        mlock
        mprotect
        mseal
        msync
        munlock
        munmap
        """,
    ),
    _group(
        "threads: their start is gated, their running is not",
        """
        exit
        exit_group
        getcpu
        restart_syscall
        rseq
        sched_get_priority_max
        sched_get_priority_min
        sched_yield
        set_robust_list
        set_tid_address
        wait4
        waitid
        """,
    ),
    _group(
        "clocks, read and waited for",
        """
        alarm
        clock_getres
        clock_gettime
        clock_nanosleep
        getitimer
        gettimeofday
        nanosleep
        setitimer
        time
        timerfd_create
        timerfd_gettime
        timerfd_settime
        times
        """,
    ),
    _group(
        "own signal handlers",
        """
        pause
        rt_sigaction
        rt_sigpending
        rt_sigprocmask
        rt_sigreturn
        rt_sigsuspend
        rt_sigtimedwait
        sigaltstack
        signalfd
        signalfd4
        """,
    ),
    _group(
        "event loops",
        """
        epoll_create
        epoll_create1
        epoll_ctl
        epoll_pwait
        epoll_pwait2
        epoll_wait
        eventfd
        eventfd2
        pipe
        poll
        ppoll
        pselect6
        select
        """,
    ),
    _group(
        "the guest's channel and socket pairs: connected streams without addresses",
        """
        getpeername
        getsockname
        shutdown
        """,
    ),
    _group(
        "facts about itself and the machine",
        """
        capget
        getegid
        geteuid
        getgid
        getgroups
        getpgrp
        getpid
        getppid
        getrandom
        getresgid
        getresuid
        getrlimit
        getrusage
        gettid
        getuid
        sysinfo
        uname
        """,
    ),
)

NETWORK: Final = (
    _group(
        "network_access: internet sockets; socket() itself is gated by family",
        """
        accept
        accept4
        bind
        connect
        listen
        recvmmsg
        sendmmsg
        """,
    ),
)

SUBPROCESS: Final = (
    _group(
        "subprocess_execution: programs beneath the read roots, under the same locks",
        """
        execve
        fork
        vfork
        """,
    ),
)

#: Allowed only where all is mounted read-only but what cells write (``layer.seal``). chmod itself
#: is gated by its bits.
ATTRIBUTES: Final = (
    "chown",
    "fchown",
    "fchownat",
    "futimesat",
    "lchown",
    "utime",
    "utimensat",
    "utimes",
)

#: Allowed only where Landlock has its TRUNCATE right (ABI 3): nothing else decides on the path.
NEEDS_TRUNCATE_RIGHT: Final = ("truncate",)

#: Allowed only under the gate: the zygote has one ruleset laid, its own, when the policy becomes
#: narrower, and refuses every other.
NEEDS_GATE: Final = ("landlock_restrict_self",)

#: Allowed a zygote whatever their arguments: calls that it needs to lock guests, to decide about
#: their calls and to end them; and calls that take a process id, since its filter compares with the
#: zygote's own, which a guest does not have.
ZYGOTE: Final = (
    "capset",
    "getpgid",
    "getpriority",
    "getsid",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "prlimit64",
    "readlink",
    "readlinkat",
    "sched_getaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "sched_setaffinity",
    "seccomp",
    "sendmsg",
    "setpriority",
    "setsid",
)

#: For one that removes what guests leave, which may be folders that nobody can read.
REMOVING: Final = ("chmod", "fchmod", "fchmodat")

#: What a refused call fails with, where EPERM would mislead honest callers.
REFUSED_WITH: Final = {
    # glibc then starts threads by clone, whose flags a filter can read.
    "clone3": errno.ENOSYS,
    # shutil.copy2 and HDF5 then go on without.
    "fgetxattr": errno.ENOTSUP,
    "flistxattr": errno.ENOTSUP,
    "flock": errno.ENOSYS,
    "fremovexattr": errno.ENOTSUP,
    "fsetxattr": errno.ENOTSUP,
    "getxattr": errno.ENOTSUP,
    "getxattrat": errno.ENOTSUP,
    "io_uring_setup": errno.ENOSYS,
    "lgetxattr": errno.ENOTSUP,
    "listxattr": errno.ENOTSUP,
    "listxattrat": errno.ENOTSUP,
    "llistxattr": errno.ENOTSUP,
    "lremovexattr": errno.ENOTSUP,
    "lsetxattr": errno.ENOTSUP,
    # Its flags are in memory, where a filter can't see them; openat is gated.
    "openat2": errno.ENOSYS,
    # "Not a symbolic link": glibc's and Python's realpath then take the path as it stands.
    "readlink": errno.EINVAL,
    "readlinkat": errno.EINVAL,
    "removexattr": errno.ENOTSUP,
    "removexattrat": errno.ENOTSUP,
    "setxattr": errno.ENOTSUP,
    "setxattrat": errno.ENOTSUP,
}
