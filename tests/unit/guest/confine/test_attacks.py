"""Every attack is run for real, twice: confined it fails as the row says, unconfined it succeeds."""

# Rows are called with the world, used or not; attacks name the calls that they are about.
# ruff: noqa: ARG005, PTH101, PTH102, PTH104, PTH106, PTH108, PTH115, PTH123, PTH208, PTH211
from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401 - sockets look it up, and who is nobody may not read it
import fcntl
import os
import resource
import signal
import socket
import struct
import termios
from functools import partial
from typing import NamedTuple

import pytest

from cellblock.guest.confine import arch
from cellblock.guest.confine.libc import prctl, syscall
from unit.guest.confine.cell import run

MACHINE = arch.current()
LIBC = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """Make a system call by name, around every library."""
    return syscall(MACHINE.numbers[name], *args)


def buffer(data):
    return ctypes.create_string_buffer(data, max(len(data), 1))


def path(p):
    return buffer(os.fsencode(p) + b"\0")


class Row(NamedTuple):
    id: str
    attack: object  # takes the world
    expected: str
    control: bool = True  # False: can't be tried unconfined here
    root: bool = False  # the control needs root


def close(fd):
    os.close(fd)


def read_fd(w):
    return os.open(w.readable / "file", os.O_RDONLY)


def unlink_and_restore(w):
    os.unlink(w.outside / "file")
    (w.outside / "file").write_text("contents of outside\n")


def swap_out_and_back(w):
    os.rename(w.outside / "file", w.scratch / "moved")
    os.rename(w.scratch / "moved", w.outside / "file")


def hard_link(w, source):
    os.link(source, w.scratch / "hard")
    os.unlink(w.scratch / "hard")


def make(w, maker, name="made"):
    maker(w.scratch / name)
    os.unlink(w.scratch / name)


def bind_unix(w):
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(w.scratch / "sock"))
    os.unlink(w.scratch / "sock")


def inotify(_w):
    fd = call("inotify_init1", 0)
    LIBC.inotify_add_watch(fd, b"/tmp", 2)


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def pass_descriptor(_w):
    a, _ = pair()
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))])


def attach_filter(_w):
    a, _ = pair()
    code = buffer(struct.pack("=HBBI", 6, 0, 0, 0xFFFF))
    a.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", 1, ctypes.addressof(code)))


def out_of_band(_w):
    a, b = pair()
    a.send(b"x", socket.MSG_OOB)
    del b


def tcp(w):
    socket.create_connection(("127.0.0.1", w.port), timeout=2).close()


def listen(_w):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()


def fork(_w):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def raw_fork(_w):
    pid = call("clone", 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def spawn(_w):
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def execute(_w):
    # The child has written nothing by then, so success is "nothing" and a refusal is an errno.
    os.execve("/bin/true", ["true"], {})


def stop(_w, send):
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    send(signal.SIGTSTP)


def tgkill_stop(number):
    call("tgkill", os.getpid(), os.getpid(), number)


def fcntl_on_pipe(_w, command, value):
    r, _ = os.pipe()
    fcntl.fcntl(r, command, value)


def ioctl_on_pipe(_w, request, value):
    r, _ = os.pipe()
    fcntl.ioctl(r, request, struct.pack("i", value))


def own_a_pipe(w):
    """F_SETOWN_EX: struct f_owner_ex { int type; pid_t pid; }"""
    r, _ = os.pipe()
    call("fcntl", r, 15, buffer(struct.pack("ii", 1, w.sentinel)))


def queue_signal(_w, number):
    # siginfo_t with si_code SI_QUEUE, to itself
    info = buffer(struct.pack("iii", number, 0, -1).ljust(128, b"\0"))
    signal.signal(number, signal.SIG_IGN)
    call("rt_sigqueueinfo", os.getpid(), number, info)


def timer_that_stops(_w):
    event = buffer(struct.pack("QiiQ", 0, signal.SIGSTOP, 0, 0).ljust(64, b"\0"))
    call("timer_create", 1, event, buffer(bytes(8)))


def vm_readv(w):
    target, space = buffer(bytes(16)), buffer(bytes(16))
    call("process_vm_readv", w.sentinel, target, 0, space, 0, 0)


def pty_inject(_w):
    _, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")


def splice(_w):
    r, w = os.pipe()
    _, w2 = os.pipe()
    os.write(w, b"x")
    call("splice", r, 0, w2, 0, 1, 0)


def tee(_w):
    r, w = os.pipe()
    _, w2 = os.pipe()
    os.write(w, b"x")
    call("tee", r, w2, 1, 0)


def install_filter(_w):
    prctl(38, 1)
    code = buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
    call("seccomp", 1, 0, buffer(struct.pack("@HP", 1, ctypes.addressof(code))))


def io_uring(_w):
    close(call("io_uring_setup", 4, buffer(bytes(120))))


def perf(_w):
    attr = buffer(struct.pack("IIQ", 1, 128, 1).ljust(128, b"\0"))
    close(call("perf_event_open", attr, 0, -1, -1, 0))


def bpf_map(_w):
    attr = buffer(struct.pack("IIIII", 2, 4, 8, 1, 0).ljust(128, b"\0"))
    close(call("bpf", 0, attr, 72))


def add_key(_w):
    call("add_key", path("user"), path("cellblock-test"), buffer(b"x"), 1, -2)


def mq_open(_w):
    fd = call("mq_open", path("cellblock-test"), os.O_CREAT | os.O_RDWR, 0o600, 0)
    close(fd)
    call("mq_unlink", path("cellblock-test"))


def shared_memory(_w):
    segment = call("shmget", 0, 4096, 0o1600)
    call("shmctl", segment, 0, 0)


def semaphores(_w):
    call("semctl", call("semget", 0, 1, 0o1600), 0, 0)


def message_queue(_w):
    call("msgctl", call("msgget", 0, 0o1600), 0, 0)


def mount(w):
    call("unshare", 0x20000)
    call("mount", path("none"), path(w.scratch), path("tmpfs"), 0, 0)


FILES = [
    Row("read", lambda w: (w.outside / "file").read_text(), "EACCES"),
    Row("read through a link", lambda w: (w.scratch / "link").read_text(), "EACCES"),
    Row("read through dot-dot", lambda w: (w.scratch / "../outside/file").read_text(), "EACCES"),
    Row("read through /proc", lambda w: open(f"/proc/self/root{w.outside}/file").close(), "EACCES"),
    Row(
        "read relative to a descriptor",
        lambda w: os.open("outside/file", 0, dir_fd=os.open(w.outside.parent, os.O_PATH)),
        "EACCES",
    ),
    Row("list", lambda w: len(os.listdir(w.outside)), "EACCES"),
    Row("list the root", lambda w: len(os.listdir("/")), "EACCES"),
    Row("execute bit only", lambda w: os.open("/bin/true", os.O_RDONLY) and None, "EACCES"),
    Row("append", lambda w: open(w.outside / "file", "a").close(), "EACCES"),
    Row("create", lambda w: os.mkdir(w.outside / "d") or os.rmdir(w.outside / "d"), "EACCES"),
    Row("append to readable", lambda w: open(w.readable / "file", "a").close(), "EACCES"),
    Row(
        "create in readable",
        lambda w: os.symlink("x", w.readable / "s") or os.unlink(w.readable / "s"),
        "EACCES",
    ),
    Row("truncate", lambda w: os.truncate(w.outside / "spare", 5), "EACCES"),
    Row("truncate readable", lambda w: os.truncate(w.readable / "spare", 5), "EACCES"),
    Row(
        "truncate by opening for reading",
        lambda w: close(os.open(w.readable / "spare", os.O_RDONLY | os.O_TRUNC)),
        "EPERM",
    ),
    Row("unlink", unlink_and_restore, "EACCES"),
    Row("rename out of reach", swap_out_and_back, "EACCES"),
    Row("hard link to outside", lambda w: hard_link(w, w.outside / "file"), "EXDEV"),
    Row("hard link to readable", lambda w: hard_link(w, w.readable / "file"), "EXDEV"),
    Row(
        "hard link through a descriptor",
        lambda w: hard_link(w, f"/proc/self/fd/{read_fd(w)}"),
        "EXDEV",
        control=False,
    ),
    Row("fifo", lambda w: make(w, os.mkfifo), "EPERM"),
    Row(
        "device node",
        lambda w: make(w, partial(os.mknod, mode=0o20600, device=0x103)),
        "EPERM",
        root=True,
    ),
    Row("unix socket", bind_unix, "EPERM"),
    Row("chmod", lambda w: os.chmod(w.outside / "file", 0o644), "EPERM"),
    Row("chmod through a readable descriptor", lambda w: os.fchmod(read_fd(w), 0o644), "EPERM"),
    Row(
        "fchmodat2", lambda w: call("fchmodat2", -100, path(w.outside / "file"), 0o644, 0), "EPERM"
    ),
    Row("chown", lambda w: os.chown(w.outside / "file", -1, -1), "EPERM"),
    Row("fchown", lambda w: os.fchown(read_fd(w), -1, -1), "EPERM"),
    Row("utime", lambda w: os.utime(w.outside / "file"), "EPERM"),
    Row("utime through a readable descriptor", lambda w: os.utime(read_fd(w)), "EPERM"),
    Row("set attribute", lambda w: os.setxattr(w.outside / "file", "user.x", b"1"), "ENOTSUP"),
    Row(
        "set attribute through a descriptor",
        lambda w: os.setxattr(read_fd(w), "user.x", b"1"),
        "ENOTSUP",
    ),
    Row("read attribute", lambda w: len(os.listxattr(w.outside / "file")), "ENOTSUP"),
    Row("read a link", lambda w: len(os.readlink(w.outside / "link")), "EINVAL"),
    Row("watch", inotify, "EPERM"),
    Row(
        "lock what is readable",
        lambda w: fcntl.flock(read_fd(w), fcntl.LOCK_EX | fcntl.LOCK_NB),
        "ENOSYS",
    ),
    Row("lease", lambda w: fcntl.fcntl(read_fd(w), fcntl.F_SETLEASE, fcntl.F_RDLCK), "EPERM"),
    Row(
        "openat2",
        lambda w: close(call("openat2", -100, path(w.readable), buffer(bytes(24)), 24)),
        "ENOSYS",
    ),
    Row(
        "file handle",
        lambda w: call(
            "name_to_handle_at",
            -100,
            path(w.readable / "file"),
            buffer(struct.pack("I", 128).ljust(140, b"\0")),
            buffer(bytes(8)),
            0,
        ),
        "EPERM",
    ),
    Row("mount", mount, "EPERM", root=True),
    Row("chroot", lambda w: os.chroot(w.scratch), "EPERM", root=True),
    Row("own environment", lambda w: open("/proc/self/environ").close(), "EACCES", root=True),
    Row("another's environment", lambda w: open(f"/proc/{os.getppid()}/cmdline").close(), "EACCES"),
    Row("processes", lambda w: len(os.listdir("/proc")), "EACCES"),
    Row(
        "shared memory file",
        lambda w: (
            open("/dev/shm/cellblock-test", "w").close() or os.unlink("/dev/shm/cellblock-test")
        ),
        "EACCES",
    ),
    Row(
        "device control",
        lambda w: fcntl.ioctl(os.open("/dev/random", os.O_RDONLY), 0x80045200, bytes(4)) and None,
        "EPERM",
    ),
]
NETWORK = [
    Row("tcp", tcp, "EPERM"),
    Row("listen", listen, "EPERM"),
    *(
        Row(
            f"socket {name}",
            lambda w, f=family, t=kind, p=proto: socket.socket(f, t, p).close(),
            "EPERM",
            root=root,
        )
        for name, family, kind, proto, root in (
            ("udp", 2, 2, 0, False),
            ("tcp6", 10, 1, 0, False),
            ("mptcp", 2, 1, 262, False),
            ("icmp", 2, 3, 1, True),
            ("unix stream", 1, 1, 0, False),
            ("unix datagram", 1, 2, 0, False),
            ("netlink", 16, 3, 0, False),
            ("packet", 17, 3, 3, True),
        )
    ),
    Row("datagram pair", lambda w: len(socket.socketpair(1, 2)), "EPERM"),
    Row("send a descriptor", pass_descriptor, "EPERM"),
    Row("socket filter", attach_filter, "EPERM"),
    Row("out-of-band data", out_of_band, "EPERM"),
    Row("peer's process", lambda w: len(pair()[0].getsockopt(1, 77, 4)), "EPERM"),
]
PROCESSES = [
    Row("fork", fork, "EPERM"),
    Row("clone", raw_fork, "EPERM"),
    Row("clone3", lambda w: call("clone3", buffer(bytes(88)), 1), "ENOSYS", control=False),
    Row("posix_spawn", spawn, "EPERM"),
    Row("exec", execute, "EPERM", control=False),
    Row(
        "execveat",
        lambda w: call("execveat", -100, path("/nonexistent"), 0, 0, 0),
        "EPERM",
        control=False,
    ),
    Row("kill", lambda w: os.kill(w.sentinel, 0), "EPERM"),
    Row("kill the parent", lambda w: os.kill(os.getppid(), 0), "EPERM", root=True),
    Row("kill the group", lambda w: os.kill(0, 0), "EPERM"),
    Row("kill all", lambda w: os.kill(-1, 0), "EPERM"),
    Row("killpg", lambda w: os.kill(-os.getpgid(0), 0), "EPERM"),
    Row("tgkill", lambda w: call("tgkill", w.sentinel, w.sentinel, 0), "EPERM"),
    Row("tkill", lambda w: call("tkill", w.sentinel, 0), "EPERM"),
    Row("rt_sigqueueinfo", lambda w: queue_signal(w, signal.SIGUSR1), "EPERM"),
    Row("pidfd", lambda w: close(os.pidfd_open(w.sentinel)), "EPERM"),
    Row("stop itself", lambda w: stop(w, lambda n: os.kill(os.getpid(), n)), "EPERM"),
    Row("stop itself by tgkill", lambda w: stop(w, tgkill_stop), "EPERM"),
    Row("stop itself by raise", lambda w: stop(w, signal.raise_signal), "EPERM"),
    Row("stop itself by timer", timer_that_stops, "EPERM"),
    Row("stop itself at a parent's death", lambda w: prctl(1, signal.SIGSTOP), "EPERM"),
    Row(
        "signal by F_SETOWN",
        lambda w: fcntl_on_pipe(w, fcntl.F_SETOWN, w.sentinel),
        "EPERM",
        root=True,
    ),
    Row("signal by F_SETOWN_EX", own_a_pipe, "EPERM", root=True),
    Row("choose the signal of F_SETOWN", lambda w: fcntl_on_pipe(w, 10, 9), "EPERM"),
    Row(
        "signal by FIOSETOWN",
        lambda w: ioctl_on_pipe(w, 0x8901, os.getpid()),
        "EPERM",
        control=False,
    ),
    Row("async input", lambda w: ioctl_on_pipe(w, 0x5452, 1), "EPERM"),
    Row("ptrace", lambda w: call("ptrace", 0, 0, 0, 0), "EPERM"),
    Row("process memory", vm_readv, "EPERM"),
    Row(
        "limits of another",
        lambda w: len(resource.prlimit(w.sentinel, resource.RLIMIT_NOFILE)),
        "EPERM",
    ),
    Row(
        "own limits",
        lambda w: call("prlimit64", 0, resource.RLIMIT_CORE, buffer(bytes(16)), 0),
        "EPERM",
    ),
    Row("nice of another", lambda w: os.setpriority(os.PRIO_PROCESS, w.sentinel, 0), "EPERM"),
    Row("nice of the user", lambda w: os.getpriority(os.PRIO_USER, 0), "EPERM"),
    Row(
        "affinity of another",
        lambda w: os.sched_setaffinity(w.sentinel, os.sched_getaffinity(0)),
        "EPERM",
    ),
    Row("scheduler", lambda w: os.sched_setscheduler(0, 0, os.sched_param(0)), "EPERM"),
    Row("io priority", lambda w: call("ioprio_set", 1, 0, 0x4000), "EPERM"),
    Row("session", lambda w: os.setsid() and None, "EPERM"),
    Row("process group", lambda w: os.setpgid(0, 0), "EPERM"),
    Row("whose session", lambda w: os.getsid(w.sentinel) and None, "EPERM"),
    Row("dumpable again", lambda w: prctl(4, 1), "EPERM"),
    Row("subreaper", lambda w: prctl(36, 1), "EPERM"),
    Row("become somebody", lambda w: os.setresuid(-1, -1, -1), "EPERM"),
]
KERNEL = [
    Row("io_uring", io_uring, "ENOSYS"),
    Row("perf", perf, "EPERM", root=True),
    Row("bpf", bpf_map, "EPERM", root=True),
    Row("userfaultfd", lambda w: close(call("userfaultfd", 1)), "EPERM"),
    Row("keyring", add_key, "EPERM"),
    Row("user namespace", lambda w: call("unshare", 0x10000000), "EPERM"),
    Row("mount namespace", lambda w: call("unshare", 0x20000), "EPERM", root=True),
    Row("join a namespace", lambda w: call("setns", 0, 0), "EPERM", control=False),
    Row("personality", lambda w: call("personality", 0x40000), "EPERM"),
    Row("memory file", lambda w: close(os.memfd_create("x")), "EPERM"),
    Row("message queue file", mq_open, "EPERM"),
    Row("shared memory", shared_memory, "EPERM"),
    Row("semaphores", semaphores, "EPERM"),
    Row("message queue", message_queue, "EPERM"),
    Row("fanotify", lambda w: close(call("fanotify_init", 0, 0)), "EPERM", root=True),
    Row("kernel log", lambda w: call("syslog", 10, 0, 0), "EPERM", root=True),
    Row("another filter", install_filter, "EPERM"),
    Row("another ruleset", lambda w: call("landlock_create_ruleset", 0, 0, 1), "EPERM"),
    Row("splice", splice, "EPERM"),
    Row("tee", tee, "EPERM"),
    Row("page cache", lambda w: call("mincore", 0, 0, 0), "EPERM"),
    Row(
        "capabilities",
        lambda w: call("capset", buffer(struct.pack("=Ii", 0x20080522, 0)), buffer(bytes(24))),
        "EPERM",
    ),
    Row("host name", lambda w: socket.sethostname(socket.gethostname()), "EPERM", root=True),
    Row("sync", lambda w: call("sync"), "EPERM"),
    Row("a call of the future", lambda w: syscall(999), "ENOSYS", control=False),
    Row("terminal injection", pty_inject, "EACCES", root=True),
]
ALL = [*FILES, *NETWORK, *PROCESSES, *KERNEL]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.id.replace(" ", "-"))
def test_confined_it_fails_and_unconfined_it_succeeds(row, world, uid):
    attack = partial(row.attack, world)

    assert run(attack, plan=world.plan(), uid=uid) == row.expected
    if not row.control or (row.root and uid != 0):
        return
    control = run(attack, plan=None, uid=uid)
    if control in ("ENOSYS", "EOPNOTSUPP", "EPROTONOSUPPORT", "EAFNOSUPPORT"):
        pytest.skip(f"confined it fails; this OS kernel offers no control: {control}")
    assert control.startswith("ok")
