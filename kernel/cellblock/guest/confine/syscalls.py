"""The tables of system calls that a guest may make, with any arguments or with some only, and why.

``seccomp`` compiles the filter from them. A call that is neither in these groups nor in ``gates``
is refused: with EPERM if the numbers table (``arch``) has it, else with ENOSYS, so that libraries
take their fallback path. To refuse a call that is allowed, delete its name. Landlock decides which
files the calls on files may touch. An entry that an architecture lacks is skipped there.

Refused on purpose, though honest programs make these calls:
chmod, chown, utime (by path and by descriptor): neither lock can tell inside from outside, and a
    descriptor that was opened for reading is enough for an owner's fchmod. But see ``ATTRIBUTES``.
xattr: the same, and attributes of files that Landlock keeps from being read could be read.
sync_file_range, syncfs, sync: they make other programs' data go to the disk.
membarrier, futex_waitv: no library of the data stack makes them, and they reach beyond the process.
readlink, without programs: the target of a link outside the roots is contents, not a name.
flock, unless guests are ``apart``: an exclusive lock needs no write access, and would stop the
    file's other users.
memfd_create, mlockall, SysV and POSIX queues: memory that no limit counts (as for mmap, a gate).
sendfile, splice, tee, vmsplice: a byte in a pipe keeps its page, even a huge one, when the file is
    truncated and no process has the page. copy_file_range leaves nothing in between.
fallocate, except its mode 0: blocks beyond a file's end, which RLIMIT_FSIZE does not bound.
timer_create, but see ``TIMERS``, and sigqueue: they can deliver SIGSTOP, and a stopped guest is a
    hung kernel. A program's timer can only stop the program itself. A guest that its own cell stops
    is replaced like one that hangs.
seccomp, landlock_* (but see ``NEEDS_GATE``): one cell could lock out later cells.

A ``Gate`` here is a list of alternatives for a call's arguments. The call is allowed if all
conditions of one alternative hold. They see registers, never memory. (The gate of ``notify`` is
something else: there the zygote decides.)
"""

from __future__ import annotations

import errno
from mmap import MAP_ANONYMOUS, MAP_PRIVATE
from os import O_CLOEXEC, O_NONBLOCK, O_TRUNC
from socket import (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
    AF_UNIX,
    IPPROTO_TCP,
    IPPROTO_UDP,
    SOCK_CLOEXEC,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
)  # fmt: skip
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        copy_file_range
        dup
        dup2
        dup3
        fadvise64
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
    _group(
        "a limit of its own: soft and hard are alike, so that it can only become less",
        "setrlimit",
    ),
)

#: Allowed if cells may start programs and the session has a user namespace of its own
#: (``Grants.own_users``). A timer signals only the process that made it. But the number of timers
#: and pending signals is limited for all processes of a user in a namespace together
#: (RLIMIT_SIGPENDING).
TIMERS: Final = (
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
)

#: Allowed if cells may start programs, since ls, git, cp and realpath read links. Links outside of
#: the roots are hidden together with their names, by a mount namespace, if there is one.
LINKS: Final = ("readlink", "readlinkat")

#: Allowed if guests are apart (``Grants.apart``): no other program locks files that they can open.
APART: Final = ("flock",)

#: Calls that name a process, by their first or second argument. Behind the zygote's gate, the
#: zygote checks whose process it is.
ABOUT_PROCESSES: Final = (
    "getpgid",
    "getsid",
    "prlimit64",
    "sched_getaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "sched_setaffinity",
)

#: Allowed if cells may start programs, behind the zygote's gate, which checks whose process is put
#: in a group.
GROUPING: Final = ("setpgid",)

#: Calls that set a mode, and the number of the argument that is the mode.
CHANGING_MODES: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}

#: Only mounts bound what these calls and ``CHANGING_MODES`` reach. So they are allowed if all that
#: cells may not write is mounted read-only (``layer.seal``). The zygote's gate (``notify``) refuses
#: them to a guest that may not write all the rest. A mode's bits are checked, too.
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

#: Allowed if Landlock has its TRUNCATE right (ABI 3): nothing else decides about the path.
NEEDS_TRUNCATE_RIGHT: Final = ("truncate",)

#: Allowed behind the zygote's gate. When the policy becomes narrower, the zygote allows one
#: ruleset, its own, and refuses every other. It makes each fork of a sandbox begin a session, by
#: which it knows whose a call is, and records the sessions that programs begin.
NEEDS_GATE: Final = ("landlock_restrict_self", "setsid")

#: Allowed in a zygote, with any arguments: calls that it needs to lock guests, to decide about
#: their calls and to end them; and calls that take a process id, because guests inherit the
#: zygote's filter, which would compare with the zygote's id.
ZYGOTE: Final = (
    "capset",
    "getpgid",
    "getpriority",
    "getsid",
    "kcmp",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "prlimit64",
    "process_vm_readv",
    "process_vm_writev",
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

#: Allowed in a zygote that removes files of guests, which may be in folders without permissions.
REMOVING: Final = ("chmod", "fchmod", "fchmodat")

#: Allowed in a zygote whose forks enter mounts that were made for their session
#: (``session_mounts``).
ENTERING: Final = ("setns",)

#: Errnos of refused calls, for those where EPERM would mislead honest callers.
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
    # Python, Go and Rust then read and write.
    "sendfile": errno.EINVAL,
    "setxattr": errno.ENOTSUP,
    "setxattrat": errno.ENOTSUP,
    # timeout(1) then falls back to alarm(2), without a warning.
    "timer_create": errno.ENOSYS,
}


# --- gates: calls that are allowed with some arguments only ---------------------------------------

# A gate is made of conditions on the arguments in registers.
#
# If the OS kernel takes an int, only the low 32 bits count, and only these are compared. Pointers
# are compared whole.


class In(msgspec.Struct, frozen=True):
    """The argument is one of these values."""

    arg: int
    values: tuple[int, ...]


class NotIn(msgspec.Struct, frozen=True):
    """The argument is none of these values."""

    arg: int
    values: tuple[int, ...]


class Masked(msgspec.Struct, frozen=True):
    """The argument's bits under ``mask`` are one of ``values``."""

    arg: int
    mask: int
    values: tuple[int, ...]


class Null(msgspec.Struct, frozen=True):
    """The argument is a null pointer (all 64 bits)."""

    arg: int


class Below(msgspec.Struct, frozen=True):
    """The pointer is below the address ``top``."""

    arg: int
    top: int


class Own(msgspec.Struct, frozen=True):
    """The argument is the guest's process id, or one of ``others`` (0 means self)."""

    arg: int
    others: tuple[int, ...] = ()


Condition = In | NotIn | Masked | Null | Below | Own
Alternative = tuple[Condition, ...]


class Gate(msgspec.Struct, frozen=True):
    """The arguments with which a call is allowed. With others it fails with ``errno``.

    If a ``void`` alternative holds, the call succeeds without being made. Each alternative in
    ``otherwise`` has an errno of its own, after which programs do without the call.
    """

    name: str
    alternatives: tuple[Alternative, ...]
    why: str
    errno: int = errno.EPERM
    void: tuple[Alternative, ...] = ()
    otherwise: tuple[tuple[Alternative, int], ...] = ()


#: The id by which setresuid(2) and the like leave an id as it is.
NO_ID: Final = 0xFFFFFFFF


class Grants(msgspec.Struct, frozen=True):
    """The facts on which the filter depends: the policy, other locks, and the machine."""

    #: Sockets of the internet's families are allowed. They reach what the network namespace has.
    network: bool = False
    #: Unix sockets are allowed: no others than the guests' can be named.
    local: bool = False
    #: Cells may start programs.
    subprocess: bool = False
    #: Landlock confines signals (ABI 6).
    scoped: bool = False
    #: Landlock decides about truncation (ABI 3).
    truncate: bool = False
    #: The zygote decides about starts, signals and others (``notify``).
    gated: bool = False
    #: This is the zygote's own filter, under which its guests take their locks.
    zygote: bool = False
    #: This zygote removes files that guests leave.
    removing: bool = False
    #: The guests of this zygote enter mounts that were made for their session.
    entering: bool = False
    #: Nothing is mounted writable except what cells may write.
    attributes: bool = False
    #: No other program of the user writes files that guests can open.
    apart: bool = False
    #: The session shares its user namespace with no other one.
    own_users: bool = False
    #: The families of ioctl(2) requests that the drivers of granted devices take (``OF_DRIVERS``).
    #: Empty unless Landlock decides which devices take requests (ABI 5).
    requests: frozenset[str] = frozenset()
    #: The ids that a guest has, and may set.
    user: int = NO_ID
    group: int = NO_ID
    #: From this address on there are only stacks of processes' first threads.
    stacks: int = 0x7FFB_FF70_0000


# <linux/sched.h>
CLONE_VM: Final = 0x100
CLONE_FILES: Final = 0x400
CLONE_SIGHAND: Final = 0x800
CLONE_THREAD: Final = 0x10000
#: Flags never allowed for a thread: PIDFD, PTRACE, VFORK, PARENT, UNTRACED, IO and every NEW*.
CLONE_NEVER: Final = 0x1000 | 0x2000 | 0x8000 | 0x800000 | 0x80000000 | 0x7E020080
#: Flags never allowed for a snapshot, which shares nothing: VM, FS, FILES, SIGHAND.
CLONE_SHARED: Final = 0x100 | 0x200 | 0x400 | 0x800
#: CSIGNAL: the signal that a parent gets when the child ends, which must not be SIGSTOP.
CLONE_SIGNAL: Final = 0xFF
SIGCHLD: Final = 17
#: <linux/close_range.h>
CLOSE_RANGE_UNSHARE: Final = 2
#: S_ISUID and S_ISGID: a program that a guest leaves in a writable root must not run as its owner.
MODE_NEVER: Final = 0o6000
#: SCHED_OTHER, SCHED_BATCH, SCHED_IDLE of sched(7): ZeroMQ sets the one that its threads have.
ORDINARY: Final = (0, 3, 5)
#: Bits of mknod(2)'s mode for the type of file, and the types that are not devices. Landlock allows
#: FIFOs in writable folders only.
KIND_OF_FILE: Final = 0o170000
NO_DEVICES: Final = (0, 0o010000, 0o100000)
O_ACCMODE: Final = 3
#: <linux/fs.h>
RWF_NOWAIT: Final = 8
O_DIRECT: Final = 0o40000
SOCK_TYPE_BITS: Final = 0xFFFFFFFF & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)
#: MSG_OOB, on stream sockets a source of kernel bugs (CVE-2025-38236); MSG_FASTOPEN connects.
MSG_NEVER: Final = 0x1 | 0x20000000
#: MSG_DONTROUTE, which has no effect on a Unix socket. A guest sends its gate's listener with this
#: flag, and the gate lets such a message pass. The main filter, which is loaded afterwards, refuses
#: it.
HANDING_OVER: Final = 0x4
#: SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU: a stopped guest is a hung kernel.
STOP_SIGNALS: Final = (19, 20, 21, 22)
_SIGN: Final = 0x80000000
#: -1, by which kill(2) signals every process.
EVERYBODY: Final = 0xFFFFFFFF
# <linux/mman.h>
MAP_TYPE: Final = 0xF
MAP_GROWSDOWN: Final = 0x100
MAP_HUGETLB: Final = 0x40000
#: FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME of <linux/futex.h>, which go with every operation.
FUTEX_FLAGS: Final = 0x80 | 0x100
FCNTL: Final = (
    0,  # F_DUPFD
    1,  # F_GETFD
    2,  # F_SETFD
    3,  # F_GETFL
    4,  # F_SETFL
    5,  # F_GETLK
    6,  # F_SETLK
    7,  # F_SETLKW
    36,  # F_OFD_GETLK
    37,  # F_OFD_SETLK
    38,  # F_OFD_SETLKW
    1030,  # F_DUPFD_CLOEXEC
    1032,  # F_GETPIPE_SZ
)
IOCTL: Final = (
    0x5401,  # TCGETS: isatty
    0x5413,  # TIOCGWINSZ
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
    0x802C542A,  # TCGETS2: isatty in newer C libraries
)
#: Masks for a request's number (<asm-generic/ioctl.h>): the letter of the driver that takes it
#: (_IOC_TYPE), and all bits except the sequence number.
_TYPE: Final = 0xFF00
_NOT_SEQUENCE: Final = 0xFFFF_FF00
#: The requests that drivers of granted devices take, by their letters. No terminal, socket, pipe or
#: file system takes a letter that is here (Documentation/userspace-api/ioctl/ioctl-number.rst), so
#: the requests do nothing except on a device. Which devices take them Landlock decides, by the
#: right IOCTL_DEV.
OF_DRIVERS: Final[dict[str, tuple[Alternative, ...]]] = {
    "dri": (
        (Masked(1, _TYPE, (0x3E00,)),),  # '>', sync_file: fences
        (Masked(1, _TYPE, (0x6200,)),),  # 'b', dma-buf: what devices share
        (Masked(1, _TYPE, (0x6400,)),),  # 'd', DRM
    ),
    "kfd": ((Masked(1, _TYPE, (0x4B00,)),),),  # 'K', which consoles take too: none is granted
    "nvidia": (
        (Masked(1, _TYPE, (0x4600,)),),  # 'F': nvidiactl and GPUs
        (Masked(1, _TYPE, (0x6D00,)),),  # 'm': nvidia-modeset
        # nvidia-uvm numbers its requests from 1, and begins and ends with two of its own. Of files
        # FIBMAP (1) takes a capability, and FIGETBSZ (2) says the size of a block.
        (Masked(1, _NOT_SEQUENCE, (0,)),),
        (In(1, (0x3000_0001, 0x3000_0002)),),
    ),
}
#: The requests of each family that come before a device or its driver keeps anything for a process:
#: a mask for the number, and the values under that mask. The gate (``notify``) stops only these,
#: because an answer takes 0.1 ms, and programs make thousands of requests a second.
BEGINS_USE: Final[dict[str, tuple[tuple[int, tuple[int, ...]], ...]]] = {
    # VERSION and GET_CAP, by which libdrm chooses a driver; MODE_CREATE_DUMB, which takes neither.
    "dri": ((0xFFFF, (0x6400, 0x640C, 0x64B2)),),
    # GET_VERSION, which the runtime asks first, and ACQUIRE_VM, without which there is no memory.
    "kfd": ((0xFFFF, (0x4B01, 0x4B15)),),
    # RM_ALLOC_MEMORY, RM_ALLOC and XFER_CMD, which may hold either: the driver looks at no letter.
    # All of modeset, and the first request of nvidia-uvm.
    "nvidia": (
        (0xFF, (0x27, 0x2B, 0xD3)),
        (_TYPE, (0x6D00,)),
        (0xFFFF_FFFF, (0x3000_0001,)),
    ),
}
# <linux/seccomp.h>: _IOWR('!', 0, struct seccomp_notif), _IOWR('!', 1, struct seccomp_notif_resp),
# _IOW('!', 2, __u64) (Linux 5.11),
# _IOW('!', 3, struct seccomp_notif_addfd): id, flags, srcfd, newfd, newfd_flags (Linux 5.9)
NOTIF_RECV: Final = 0xC0502100
NOTIF_SEND: Final = 0xC0182101
NOTIF_ID_VALID: Final = 0x40082102
NOTIF_ADDFD: Final = 0x40182103
NOTIF: Final = (NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID, NOTIF_ADDFD)
PRCTL: Final = (
    2,  # PR_GET_PDEATHSIG
    3,  # PR_GET_DUMPABLE
    15,  # PR_SET_NAME: threads name themselves
    16,  # PR_GET_NAME
    21,  # PR_GET_SECCOMP
    23,  # PR_CAPBSET_READ
    30,  # PR_GET_TIMERSLACK
    38,  # PR_SET_NO_NEW_PRIVS: set already
    39,  # PR_GET_NO_NEW_PRIVS
    51,  # PR_SVE_GET_VL
    56,  # PR_GET_TAGGED_ADDR_CTRL
    0x53564D41,  # PR_SET_VMA: allocators name their mappings
)
GETSOCKOPT: Final = (
    3,  # SO_TYPE
    4,  # SO_ERROR
    7,  # SO_SNDBUF
    8,  # SO_RCVBUF
    9,  # SO_KEEPALIVE
    20,  # SO_RCVTIMEO
    21,  # SO_SNDTIMEO
    30,  # SO_ACCEPTCONN
    38,  # SO_PROTOCOL
    39,  # SO_DOMAIN
)
#: SO_SNDBUF, SO_RCVBUF: no limit on memory counts the contents of sockets' buffers.
BUFFERS: Final = 7, 8
#: Without SO_ATTACH_FILTER and the like, which bring code into the OS kernel.
SETSOCKOPT: Final = (
    2,  # SO_REUSEADDR
    9,  # SO_KEEPALIVE
    13,  # SO_LINGER
    15,  # SO_REUSEPORT
    20,  # SO_RCVTIMEO
    21,  # SO_SNDTIMEO
)
TCP_OPTIONS: Final = (
    1,  # TCP_NODELAY
    4,  # TCP_KEEPIDLE
    5,  # TCP_KEEPINTVL
    6,  # TCP_KEEPCNT
    12,  # TCP_QUICKACK
    18,  # TCP_USER_TIMEOUT
)
IP_LEVELS: Final = (0, 41)
IP_OPTIONS: Final = (
    11,  # IP_RECVERR: the C library's resolver
    25,  # IPV6_RECVERR
    26,  # IPV6_V6ONLY
)
#: Without priority inheritance: there, the owner is named by number, whoever it is, and the OS
#: kernel changes that process's scheduling unchecked (also CVE-2014-3153, CVE-2021-3347).
FUTEX: Final = (
    0,  # FUTEX_WAIT
    1,  # FUTEX_WAKE
    3,  # FUTEX_REQUEUE
    4,  # FUTEX_CMP_REQUEUE
    5,  # FUTEX_WAKE_OP
    9,  # FUTEX_WAIT_BITSET
    10,  # FUTEX_WAKE_BITSET
)
#: ARCH_SET_FS and the shadow stack calls, which a new program's loader makes first.
ARCH_PRCTL: Final = (0x1002, 0x5001, 0x5002, 0x5003, 0x5005)


def gates(grants: Grants) -> tuple[Gate, ...]:
    """Return the gates for these grants."""
    return (
        *_files(grants),
        *_memory(grants),
        *_process(grants),
        *_signals(grants),
        *_sockets(grants),
    )


def _files(grants: Grants) -> Iterator[Gate]:
    why = "truncating what is open for reading: Landlock below ABI 3 does not see it"
    yield Gate("open", _opens_honestly(1), why)
    yield Gate("openat", _opens_honestly(2), why)
    yield Gate("creat", ((Masked(1, MODE_NEVER, (0,)),),), "no set-user-id files")
    if grants.attributes:
        for name, mode in CHANGING_MODES.items():
            yield Gate(name, ((Masked(mode, MODE_NEVER, (0,)),),), "no set-user-id files")
    if grants.subprocess:
        mode_mask = MODE_NEVER | KIND_OF_FILE
        for name, mode in (("mknod", 1), ("mknodat", 2)):
            yield Gate(
                name, ((Masked(mode, mode_mask, NO_DEVICES),),), "files and FIFOs, no devices"
            )
    yield Gate("fcntl", ((In(1, FCNTL),),), "no F_SETOWN, F_SETSIG: a signal to anybody; no leases")
    # RLIMIT_FSIZE bounds a file's size. Mode 0 extends that; KEEP_SIZE takes the disk without, and
    # INSERT_RANGE moves what is there beyond it. Callers then write zeros, or do without.
    why = "no blocks beyond the size that the limit bounds"
    yield Gate("fallocate", ((In(1, (0,)),),), why, errno.EOPNOTSUPP)
    queries = IOCTL + NOTIF if grants.zygote else IOCTL
    ioctls: tuple[Alternative, ...] = ((In(1, queries),),)
    for family in sorted(grants.requests):
        ioctls += OF_DRIVERS[family]
    yield Gate("ioctl", ioctls, "devices: queries only, no TIOCSTI, no FIOASYNC")
    yield Gate("renameat2", ((In(4, (0, 1, 2)),),), "no whiteouts")
    cached = "whether a page is in memory says who read it last"
    for name in ("preadv2", "pwritev2"):
        yield Gate(name, ((Masked(5, RWF_NOWAIT, (0,)),),), cached, errno.EOPNOTSUPP)
    flags = O_CLOEXEC | O_NONBLOCK | O_DIRECT
    yield Gate("pipe2", ((Masked(1, 0xFFFFFFFF & ~flags, (0,)),),), "no notification pipes")


def _opens_honestly(arg: int) -> tuple[Alternative, ...]:
    """Allow opening a file, but truncation only with write access, and no set-user-id mode.

    ``arg`` is the number of the argument with the flags; the mode is the next one. C libraries pass
    0 for the mode if they make no file. Set-group-id modes are refused as well.
    """
    write_only = 1
    read_write = 2
    mode = Masked(arg + 1, MODE_NEVER, (0,))
    return (
        (mode, Masked(arg, O_TRUNC, (0,))),
        (mode, Masked(arg, O_ACCMODE, (write_only,))),
        (mode, Masked(arg, O_ACCMODE, (read_write,))),
    )


def _memory(grants: Grants) -> Iterator[Gate]:
    """Yield the gates that refuse memory which no limit counts.

    - Huge pages (hugetlbpage): the pool is the machine's, and counts in no process's memory that
      the host reads. A program is told that the pool is empty, as it mostly is, and takes ordinary
      memory.
    - Shared memory without a file: its pages stay even if no process has them mapped any more
      (madvise(2), MADV_DONTNEED), and then no file of /proc shows them. Processes share memory by
      files in /dev/shm, which has a size.
    - Growing mappings: a piece of the first stack that is moved can still grow, whatever its size.
      Programs that can't move memory in place copy it.
    """
    kind = MAP_TYPE | MAP_GROWSDOWN | MAP_HUGETLB
    private: Alternative = (Masked(3, kind, (MAP_PRIVATE,)),)
    pool: Alternative = (Masked(3, kind, (MAP_PRIVATE | MAP_HUGETLB,)),)
    uncounted = MAP_GROWSDOWN | MAP_ANONYMOUS
    counted = (private, (Masked(3, uncounted, (0,)),))
    why = "memory that the limit counts"
    yield Gate("mmap", counted, why, otherwise=((pool, errno.ENOMEM),))
    yield Gate("mremap", ((Below(0, grants.stacks),),), "as mmap", errno.ENOMEM)
    why = "no owner by number"
    operation = Masked(1, 0xFFFFFFFF & ~FUTEX_FLAGS, FUTEX)
    yield Gate("futex", ((operation,),), why, errno.ENOSYS)


def _process(grants: Grants) -> Iterator[Gate]:
    # Threads must share one table of descriptors: max_open_files bounds a table, and the buffers of
    # its descriptors, and must do so for the whole process.
    shared = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD
    thread: Alternative = (Masked(0, shared | CLONE_NEVER, (shared,)),)
    own_flags = CLONE_NEVER | CLONE_THREAD | CLONE_SIGNAL
    child: Alternative = (Masked(0, own_flags, (0, SIGCHLD)),)
    unshared = Masked(2, CLOSE_RANGE_UNSHARE, (0,))
    yield Gate("close_range", ((unshared,),), "no descriptors of one thread alone")
    children = grants.subprocess or grants.gated
    yield Gate("clone", (thread, child) if children else (thread,), "threads, unless gated")
    yield from _about_processes(grants)
    if grants.subprocess:
        yield from _identities(grants)
    # PR_SET_PDEATHSIG: a snapshot that takes over ends with its zygote, as the guest did (SIGKILL).
    # A waiting one is continued (SIGCONT), so that it notices that nobody is left to wake it.
    dies_with_parent: Alternative = (In(0, (1,)), In(1, (9, 18)))
    yield Gate("prctl", ((In(0, PRCTL),), dies_with_parent), "names and queries")
    yield Gate("personality", ((In(0, (0xFFFFFFFF,)),),), "query only")
    if grants.subprocess:
        yield Gate("arch_prctl", ((In(0, ARCH_PRCTL),),), "program start")


def _about_processes(grants: Grants) -> Iterator[Gate]:
    """Yield the gates of calls that name a process: the guest may name itself.

    A filter knows one process id. Programs have others, so for them the zygote decides
    (``notify``).
    """
    # All guests must have the same priority. A process of low priority that is delayed within a
    # system call also delays others that wait for what this call has locked: a disk's folders, a
    # process's memory.
    why = "all guests have one priority; that of another is not its business"
    yield Gate("setpriority", (), why, void=((In(0, (0,)), Own(1, (0,))),))
    if grants.subprocess and grants.gated:
        yield Gate("sched_setscheduler", (), why, void=((In(1, ORDINARY),),))
    if grants.gated:
        # The zygote can check single processes only, not groups or all processes of a user.
        yield Gate("getpriority", ((In(0, (0,)),),), "processes, no groups and no users")
        if not grants.subprocess:
            yield Gate("prlimit64", ((Null(2),),), "limits are the policy's")
        return
    yield Gate("getpgid", ((Own(0, (0,)),),), "which processes exist is not the guest's business")
    yield Gate("getsid", ((Own(0, (0,)),),), "as getpgid")
    yield Gate("getpriority", ((In(0, (0,)), Own(1, (0,))),), "as getpgid")
    yield Gate("sched_setaffinity", ((Own(0, (0,)),),), "itself only")
    # glibc asks about threads by their ids, and takes ENOSYS for "not known".
    yield Gate("sched_getaffinity", ((Own(0, (0,)),),), "as getpgid", errno.ENOSYS)
    yield Gate("sched_getparam", ((Own(0, (0,)),),), "as getpgid")
    yield Gate("sched_getscheduler", ((Own(0, (0,)),),), "as getpgid")
    read_only: tuple[Alternative, ...] = ((Own(0, (0,)), Null(2)),)
    lowered: tuple[Alternative, ...] = ((Own(0, (0,)),),)
    limits = lowered if grants.subprocess else read_only
    yield Gate("prlimit64", limits, "on itself: limits are the policy's")


#: Calls that set user ids and group ids, and how many ids each takes.
USER_IDS: Final = (("setuid", 1), ("setreuid", 2), ("setresuid", 3))
GROUP_IDS: Final = (("setgid", 1), ("setregid", 2), ("setresgid", 3))


def _identities(grants: Grants) -> Iterator[Gate]:
    """Yield the gates of calls that set ids: only to the present ones, as posix_spawn(3) does.

    make(1) starts programs in this way. A guest has no capability, but might have a saved id of
    another user.
    """
    for calls, own_id in ((USER_IDS, grants.user), (GROUP_IDS, grants.group)):
        for name, count in calls:
            same = tuple(In(arg, (own_id, NO_ID)) for arg in range(count))
            yield Gate(name, (same,), "its own ids")


def _signals(grants: Grants) -> Iterator[Gate]:
    why = "itself only, and never to stop"
    if grants.gated and grants.subprocess:
        # Also groups, which the zygote checks, but not all processes at once.
        yield Gate("kill", ((NotIn(0, (EVERYBODY,)), NotIn(1, STOP_SIGNALS)),), why)
        anyone: Alternative = (Masked(0, _SIGN, (0,)), NotIn(0, (0,)))
        yield Gate("tgkill", ((*anyone, NotIn(2, STOP_SIGNALS)),), why)
        return
    if grants.gated or (grants.subprocess and grants.scoped):
        # Children and snapshots have ids that the filter can't know. The zygote checks them, or
        # Landlock keeps signals inside the domain.
        anyone = (Masked(0, _SIGN, (0,)), NotIn(0, (0,)))
        yield Gate("kill", ((*anyone, NotIn(1, STOP_SIGNALS)),), why)
        yield Gate("tgkill", ((*anyone, NotIn(2, STOP_SIGNALS)),), why)
        return
    yield Gate("kill", ((Own(0), NotIn(1, STOP_SIGNALS)),), why)
    yield Gate("tgkill", ((Own(0), NotIn(2, STOP_SIGNALS)),), why)


def _sockets(grants: Grants) -> Iterator[Gate]:
    pair: Alternative = (In(0, (AF_UNIX,)), Masked(1, SOCK_TYPE_BITS, (SOCK_STREAM,)), In(2, (0,)))
    yield Gate("socketpair", (pair,), "connected streams; datagrams could be sent elsewhere")
    harmless: Alternative = (Masked(3, MSG_NEVER, (0,)),)
    connected: Alternative = (*harmless, Null(4))
    yield Gate("sendto", (harmless if grants.network else connected,), "no address, no out-of-band")
    yield Gate("recvfrom", (harmless,), "no out-of-band data")
    yield Gate("recvmsg", ((Masked(2, MSG_NEVER, (0,)),),), "no out-of-band data")
    yield from _socket_options(grants)
    stream = (In(0, (AF_INET, AF_INET6)), Masked(1, SOCK_TYPE_BITS, (SOCK_STREAM,)))
    datagram = (In(0, (AF_INET, AF_INET6)), Masked(1, SOCK_TYPE_BITS, (SOCK_DGRAM,)))
    tcp, udp = In(2, (0, IPPROTO_TCP)), In(2, (0, IPPROTO_UDP))
    if grants.network:
        kinds: tuple[Alternative, ...] = ((*stream, tcp), (*datagram, udp))
        if grants.local:
            local = Masked(1, SOCK_TYPE_BITS, (SOCK_STREAM, SOCK_DGRAM))
            kinds += ((In(0, (AF_UNIX,)), local, In(2, (0,))),)
        # The errno of an OS kernel without netlink: ZeroMQ asks for devices by it, and ends the
        # process at any other.
        netlink = (((In(0, (AF_NETLINK,)),), errno.EOPNOTSUPP),)
        why = "TCP and UDP, and local ones"
        yield Gate("socket", kinds, why, errno.EACCES, otherwise=netlink)
        around = Masked(2, HANDING_OVER | MSG_NEVER, (0,))
        yield Gate("sendmsg", ((around,),), "nothing around the gate, no out-of-band data")
        for name in ("recvmmsg", "sendmmsg"):
            yield Gate(name, (harmless,), "no out-of-band data")


def _socket_options(grants: Grants) -> Iterator[Gate]:
    reads: tuple[Alternative, ...] = ((In(1, (SOL_SOCKET,)), In(2, GETSOCKOPT)),)
    write: tuple[Alternative, ...] = ((In(1, (SOL_SOCKET,)), In(2, SETSOCKOPT)),)
    if grants.network:
        internet: tuple[Alternative, ...] = (
            (In(1, (IPPROTO_TCP,)), In(2, TCP_OPTIONS)),
            (In(1, IP_LEVELS), In(2, IP_OPTIONS)),
        )
        reads, write = reads + internet, write + internet
    yield Gate("getsockopt", reads, "no SO_PEERPIDFD")
    # Setting buffer sizes does nothing, without an error: the OS kernel would also cut larger ones
    # down silently (socket(7)).
    void = ((In(1, (SOL_SOCKET,)), In(2, BUFFERS)),)
    yield Gate("setsockopt", write, "no socket filters, no larger buffers", void=void)
