"""Probes: attempts that prove locks, each with its positive control, in one table (``PROBES``).

They are tried in two ways. Each guest tries some once it has taken its locks, on files and sockets
that every machine has (``at_start``, called by ``confine.witness``). ``cellblock doctor`` tries all
of them: the host starts guests that make a ``LockTrial`` and end, on files, sockets and processes
that the host has made for the trial (``wire.messages.Trial``).

An attempt raises OSError if it is refused, and returns if it is not. A control does something that
is allowed, and raises if that fails, too. No attempt does harm if it succeeds. The host decides
what the results mean for a capability (``backends.report``).

First the attempts, then the table, then ``LockTrial``.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import sys
import threading
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cellblock.descriptors import closing
from cellblock.wire.messages import Attempt, Trial, TrialResults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Attempts on files: to read, write, make, move and link files that this guest may not.


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read()


def _append(path: str) -> None:
    with closing(os.open(path, os.O_WRONLY | os.O_APPEND)) as fd:
        os.write(fd, b"x")


def _make(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _make_and_remove(trial: Trial) -> None:
    _make(f"{trial.scratch}/made")
    os.unlink(f"{trial.scratch}/made")


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _read_inside(trial: Trial) -> None:
    _read(f"{trial.inside}/file")


def _write_in_scratch(trial: Trial) -> None:
    _make(f"{trial.scratch}/written")
    _append(f"{trial.scratch}/written")
    os.unlink(f"{trial.scratch}/written")


def _read_by_hard_link(trial: Trial) -> None:
    os.link(trial.secret, f"{trial.scratch}/linked")
    _read(f"{trial.scratch}/linked")


def _read_by_link(trial: Trial) -> None:
    os.symlink(trial.secret, f"{trial.scratch}/link")
    try:
        _read(f"{trial.scratch}/link")
    finally:
        os.unlink(f"{trial.scratch}/link")


def _write_on_import_path(_trial: Trial) -> None:
    """Try to make a file without a name in each folder of ``sys.path``. Raises the last refusal."""
    refusal: OSError | None = None
    for folder in filter(os.path.isdir, sys.path):
        try:
            os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))
        except OSError as error:
            refusal = error
        else:
            return
    raise refusal or OSError(errno.EOPNOTSUPP, "there is no such folder")


def _use_inherited(trial: Trial) -> None:
    if not stat.S_ISSOCK(os.fstat(trial.bait).st_mode):
        raise OSError(errno.EBADF, "its number is another descriptor's by now")


# Attempts on the network: to reach the host's own listeners in every way.

MSG_FASTOPEN: Final = 0x20000000
IPPROTO_MPTCP: Final = 262
#: Seconds that a call to the host's own listeners may take.
_TIMEOUT: Final = 2.0


@contextlib.contextmanager
def _new_socket(family: int, kind: int, protocol: int = 0) -> Iterator[_socket.socket]:
    with contextlib.closing(_socket.socket(family, kind, protocol)) as sock:
        sock.settimeout(_TIMEOUT)
        yield sock


def _tcp(trial: Trial, protocol: int = 0, port: str = "tcp") -> None:
    with _new_socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.connect(("127.0.0.1", trial.ports[port]))


def _fast_open(trial: Trial) -> None:
    with _new_socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(None)  # with a timeout it would not wait for the answer
        sock.sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", trial.ports["tcp_fast_open"]))


def _udp(trial: Trial) -> None:
    with _new_socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", trial.ports["udp"]))
        # If nobody listens, as in a network of the guest's own, the second raises.
        sock.send(b"x")
        sock.send(b"x")


def _unix(trial: Trial, name: str) -> None:
    with _new_socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(trial.sockets[name])


def _netlink(_trial: Trial) -> None:
    with _new_socket(socket.AF_NETLINK, socket.SOCK_RAW):
        pass


def _listen(trial: Trial) -> None:
    """Listen for connections. Also counts as refused if the guest has a network of its own.

    Nobody outside can connect to such a network. The network is the guest's own if a port at which
    the host listens is free in it. If cells may listen at listed ports only (``Plan.bound``), this
    may be refused before the network is examined.
    """
    with _new_socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.listen()
    with _new_socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.0.1", trial.ports["tcp"]))
        except PermissionError:
            raise
        except OSError:
            return
    raise OSError(errno.ENETUNREACH, "it is a network of its own")


def _connect(trial: Trial, name: str, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, trial.ports[name]), _TIMEOUT)


def _call_listed(trial: Trial) -> None:
    with _connect(trial, "listed") as sock:
        sock.sendall(b"x")


def _turn(trial: Trial) -> None:
    """Dissolve a connection to a listed host, and connect the same socket elsewhere."""
    import ctypes  # noqa: PLC0415 - the host imports this module too, and its Python may lack it

    connect = ctypes.CDLL(None, use_errno=True).connect
    nowhere = struct.pack("=H14x", socket.AF_UNSPEC)
    port = trial.ports["turn_connection"]
    elsewhere = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", port, 127, 0, 0, 1)
    with _connect(trial, "listed") as sock:
        sock.settimeout(None)
        for address in (nowhere, elsewhere):
            if connect(sock.fileno(), address, len(address)):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))


def _pair(_trial: Trial) -> None:
    first, second = socket.socketpair()
    with first, second:
        first.sendall(b"x")
        second.recv(1)


# Attempts on processes: to start some, to reach other users' programs, to exceed a limit.

MIB: Final = 2**20


def _variable(name: str) -> None:
    if name not in os.environ:
        raise OSError(errno.ENOENT, "not in the environment")


def _child(act: Callable[[], object]) -> None:
    """Call ``act`` in a child process. Raises the OSError that it raised there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except OSError as error:
            status = error.errno or 1
        finally:
            os._exit(status)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(status, os.strerror(status))


def _spawn(_trial: Trial) -> None:
    try:
        pid = os.posix_spawn("/nonexistent", ["-"], {})
    except FileNotFoundError:
        return  # a process was made, and found nothing to execute
    os.waitpid(pid, 0)


def _execute(_trial: Trial) -> None:
    try:
        os.execve("/nonexistent", ["-"], {})
    except FileNotFoundError:
        return


def _thread(_trial: Trial) -> None:
    started = threading.Thread(target=_nothing)
    started.start()
    started.join()


def _nothing() -> None: ...


def _itself(_trial: Trial) -> None:
    os.kill(os.getpid(), 0)
    resource.prlimit(0, resource.RLIMIT_NOFILE)


def _limit(trial: Trial) -> None:
    resource.prlimit(trial.process, resource.RLIMIT_NOFILE, (64, 64))


def _open_too_many(trial: Trial) -> None:
    opened: list[int] = []
    try:
        while len(opened) <= (trial.limits.max_open_files or 0):
            opened.append(os.dup(1))
    finally:
        for fd in opened:
            os.close(fd)


def _take_too_much(trial: Trial) -> None:
    mmap.mmap(-1, (trial.limits.memory_max_bytes or 0) + MIB, flags=mmap.MAP_PRIVATE).close()


def _write_at(trial: Trial, offset: int) -> None:
    with closing(os.open(f"{trial.scratch}/long", os.O_WRONLY | os.O_CREAT, 0o600)) as fd:
        try:
            os.pwrite(fd, b"x", offset)
        finally:
            os.unlink(f"{trial.scratch}/long")


#: The lowest priority, to which every user may set their own processes (setpriority(2)).
_LOWEST: Final = 19

# --- the table ------------------------------------------------------------------------------------

# Errnos that count as a refusal.
_DENIED: Final = (errno.EACCES, errno.EPERM)
#: For files that exist, as the host knows: they may be hidden as well as refused.
_HIDDEN: Final = (*_DENIED, errno.ENOENT, errno.EROFS, errno.EXDEV)
_UNREACHED: Final = (*_DENIED, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ENOENT)
_NOBODY: Final = (*_DENIED, errno.ESRCH)

#: The policies that a probe is for. "list" is a list of network addresses.
When = Literal["always", "no network", "list", "no processes", "processes"]


class Probe(msgspec.Struct, frozen=True):
    """One attempt. ``hole`` says what a cell can do if the attempt passes.

    ``refusals`` are the errnos that prove a lock; other errors prove nothing. ``around`` marks a
    way around a lock: if only such attempts pass, the capability is enforced in part. If
    ``only_by`` names a lock of the guest, the attempt says nothing about a capability that rests on
    others.

    If ``at_start`` is set, each guest makes the attempt to check that ``lock`` holds. ``at_start``
    is then the positive control, as the host has made nothing for the guest, and no thread may
    exist.
    """

    name: str
    capability: str
    hole: str
    attempt: Callable[[Trial], object]
    control: Callable[[Trial], object]
    refusals: tuple[int, ...] = _DENIED
    around: bool = False
    when: When = "always"
    only_by: str = ""
    lock: str = ""
    at_start: Callable[[Trial], object] | None = None


#: Probe that is tried only in guests that have a thread before their locks.
EARLIER_THREAD: Final = "earlier_thread"
INHERITED: Final = "inherited_descriptor"
#: Holes that backends also declare.
NAMES: Final = "cells can see the names, sizes, times and links of your files (not what is in them)"
EARLIER_LINKS: Final = (
    "a denied file that has another name (a hard link) beneath a read root is readable"
)
_READ, _WRITE = "filesystem_read_roots", "filesystem_write_roots"
_NET, _RUN = "network_access", "subprocess_execution"

#: By capability in the order of ``policy.model.DECLARED``. Attempts are made in this order.
PROBES: Final[tuple[Probe, ...]] = (
    Probe(
        "read_file",
        _READ,
        "a cell can read files outside the roots",
        lambda w: _read(w.secret),
        _read_inside,
        _HIDDEN,
        lock="landlock",
        at_start=lambda w: _open(w.inside),
    ),
    Probe(
        "list_folder",
        _READ,
        "a cell can list folders outside the roots",
        lambda w: _open(w.outside),
        lambda w: _open(f"{w.inside}/folder"),
        _HIDDEN,
        lock="landlock",
        at_start=lambda w: _open(w.inside),
    ),
    Probe(
        "look_up_name",
        _READ,
        NAMES,
        lambda w: os.stat(w.secret),
        lambda w: os.stat(f"{w.inside}/file"),
        _HIDDEN,
        around=True,
    ),
    Probe(
        "follow_link",
        _READ,
        "a cell can read through a link that it makes",
        _read_by_link,
        _write_in_scratch,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "hard_link",
        _READ,
        "a cell can read through a hard link that it makes",
        _read_by_hard_link,
        _write_in_scratch,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "move_file",
        _READ,
        "a cell can move a file to where it can read it",
        lambda w: os.rename(f"{w.outside}/movable", f"{w.scratch}/moved"),
        _write_in_scratch,
        _HIDDEN,
        around=True,
    ),
    Probe(
        INHERITED,
        _READ,
        "a cell has what the host had open",
        _use_inherited,
        lambda _trial: os.fstat(1),
        (errno.EBADF,),
        around=True,
    ),
    Probe(
        EARLIER_THREAD,
        _READ,
        "a thread from before the locks is not held",
        lambda w: _read(w.secret),
        _read_inside,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "write_file",
        _WRITE,
        "a cell can write to files outside the roots",
        lambda w: _append(w.secret),
        _write_in_scratch,
        _HIDDEN,
    ),
    Probe(
        "write_readable_file",
        _WRITE,
        "a cell can write to what it may only read",
        lambda w: _append(f"{w.inside}/file"),
        _write_in_scratch,
        _HIDDEN,
    ),
    Probe(
        "make_file",
        _WRITE,
        "a cell can make files outside the roots",
        lambda w: _make(f"{w.outside}/new"),
        _make_and_remove,
        _HIDDEN,
    ),
    Probe(
        "truncate",
        _WRITE,
        "a cell can empty files outside the roots",
        lambda w: os.truncate(f"{w.outside}/long", 0),
        _write_in_scratch,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "remove",
        _WRITE,
        "a cell can remove files outside the roots",
        lambda w: os.unlink(f"{w.outside}/removable"),
        _make_and_remove,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "chmod",
        _WRITE,
        "a cell can change who may read a file",
        lambda w: os.chmod(f"{w.inside}/file", 0o640),
        _read_inside,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "utime",
        _WRITE,
        "a cell can change a file's times",
        lambda w: os.utime(f"{w.inside}/file", (1, 1)),
        _read_inside,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "read_denied_file",
        "read_deny_paths",
        "a cell can read denied files",
        lambda w: _read(f"{w.denied}/file"),
        _read_inside,
        _HIDDEN,
    ),
    Probe(
        "earlier_hard_link",
        "read_deny_paths",
        EARLIER_LINKS,
        lambda w: _read(f"{w.inside}/earlier"),
        _read_inside,
        _HIDDEN,
        around=True,
    ),
    Probe(
        "tcp",
        _NET,
        "a cell can connect by TCP",
        _tcp,
        _pair,
        _UNREACHED,
        when="no network",
        lock="seccomp",
        at_start=_itself,
    ),
    Probe(
        "tcp_fast_open",
        _NET,
        "a cell can connect by TCP Fast Open",
        _fast_open,
        _pair,
        _UNREACHED,
        around=True,
        when="no network",
    ),
    Probe(
        "udp",
        _NET,
        "a cell can send datagrams (UDP)",
        _udp,
        _pair,
        _UNREACHED,
        around=True,
        when="no network",
        lock="seccomp",
        at_start=_itself,
    ),
    Probe(
        "listen",
        _NET,
        "a cell can listen for connections",
        _listen,
        _pair,
        _UNREACHED,
        around=True,
        when="no network",
    ),
    Probe(
        "unlisted_port",
        _NET,
        "a cell can connect to other ports",
        lambda w: _connect(w, "unlisted_port").close(),
        _call_listed,
        _UNREACHED,
        when="list",
    ),
    Probe(
        "unlisted_host",
        _NET,
        "a cell can connect to other hosts",
        lambda w: _connect(w, "unlisted_host", "127.0.0.2").close(),
        _call_listed,
        _UNREACHED,
        when="list",
    ),
    Probe(
        "turn_connection",
        _NET,
        "a cell can turn a connection elsewhere",
        _turn,
        _call_listed,
        _UNREACHED,
        around=True,
        when="list",
    ),
    Probe(
        "mptcp",
        _NET,
        "a cell can connect by MPTCP",
        lambda w: _tcp(w, IPPROTO_MPTCP, "mptcp"),
        _pair,
        _UNREACHED,
        around=True,
    ),
    Probe(
        "unix_socket",
        _NET,
        "a cell can connect to local sockets",
        lambda w: _unix(w, "path"),
        _pair,
        _UNREACHED,
        around=True,
    ),
    Probe(
        "abstract_socket",
        _NET,
        "a cell can connect to abstract local sockets",
        lambda w: _unix(w, "abstract"),
        _pair,
        _UNREACHED,
        around=True,
    ),
    Probe(
        "netlink",
        _NET,
        "a cell can ask the OS kernel by netlink",
        _netlink,
        _pair,
        (*_DENIED, errno.EOPNOTSUPP),
        around=True,
        lock="seccomp",
        at_start=_itself,
    ),
    Probe(
        "fork",
        _RUN,
        "a cell can fork",
        lambda _trial: _child(_nothing),
        _thread,
        when="no processes",
        lock="seccomp",
        at_start=_itself,
    ),
    Probe("spawn", _RUN, "a cell can start processes", _spawn, _thread, when="no processes"),
    Probe(
        "execute",
        _RUN,
        "a cell can execute programs",
        _execute,
        _thread,
        when="no processes",
        lock="seccomp",
        at_start=_itself,
    ),
    Probe(
        "child_reads",
        _RUN,
        "processes that a cell starts can read outside the roots",
        lambda w: _child(lambda: _read(w.secret)),
        lambda w: _child(lambda: _read_inside(w)),
        _HIDDEN,
        when="processes",
    ),
    Probe(
        "signal",
        _RUN,
        "a cell can signal other processes",
        lambda w: os.kill(w.process, signal.SIGCONT),
        _itself,
        _NOBODY,
        around=True,
        lock="seccomp",
        at_start=_itself,
    ),
    Probe(
        "limit_of_another",
        _RUN,
        "a cell can lower other processes' limits",
        _limit,
        _itself,
        _NOBODY,
        around=True,
    ),
    Probe(
        "priority_of_another",
        _RUN,
        "a cell can change other processes' priority",
        lambda w: os.setpriority(os.PRIO_PROCESS, w.process, _LOWEST),
        _itself,
        _NOBODY,
        around=True,
    ),
    Probe(
        "write_on_import_path",
        "package_installation",
        "a cell can change packages",
        _write_on_import_path,
        _write_in_scratch,
        _HIDDEN,
    ),
    Probe(
        "environment",
        "env_var_access",
        "a cell can read the host's environment",
        lambda w: _variable(w.variable),
        lambda _trial: _variable("HOME"),
        (errno.ENOENT,),
    ),
    Probe(
        "take_too_much",
        "memory_max_bytes",
        "a cell can take more memory",
        _take_too_much,
        lambda _trial: mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE).close(),
        (errno.ENOMEM,),
        only_by="rlimits",
    ),
    Probe(
        "open_too_many",
        "max_open_files",
        "a cell can open more files",
        _open_too_many,
        lambda _trial: os.close(os.dup(1)),
        (errno.EMFILE,),
    ),
    Probe(
        "write_too_long",
        "max_file_size",
        "a cell can write larger files",
        lambda w: _write_at(w, w.limits.max_file_size or 0),
        lambda w: _write_at(w, 0),
        (errno.EFBIG,),
    ),
)
BY_NAME: Final = {probe.name: probe for probe in PROBES}


# --- a trial: a guest that is started like any other, tries its locks and runs no user's code -----

#: Lowest descriptor number for the bait, the socket that a guest must close. The numbers from here
#: on are free, both before and after the guest has closed the descriptors that it inherits.
_ABOVE: Final = 20
#: Seconds in which a thread must have made its attempt.
_THREAD_TIMEOUT: Final = 5.0
_LONGEST: Final = 200


class LockTrial:
    """The probes that one guest tries.

    Made before the guest closes inherited descriptors and takes its locks. All results are sent in
    one frame; the host compares them with what it observes itself and with what is declared.
    """

    def __init__(self, trial: Trial, fds: Sequence[int]) -> None:
        # The bait: a socket that the guest must close with all other inherited descriptors.
        bait = fcntl.fcntl(fds[0], fcntl.F_DUPFD, _ABOVE)
        self._trial = msgspec.structs.replace(trial, bait=bait)
        self._locked = threading.Event()
        self._thread = threading.Thread(target=self._read_from_thread, daemon=True)
        self._results: dict[str, Attempt] = {}

    def before_locks(self) -> None:
        """Start the thread that the locks may not restrict, if the trial asks for one."""
        if self._trial.thread:
            self._thread.start()

    def run(self) -> TrialResults:
        """Try all probes, once the locks are taken. Never raises."""
        if self._trial.thread:
            self._locked.set()
            self._thread.join(_THREAD_TIMEOUT)
        else:
            for name in self._trial.probes:
                self._results[name] = attempt(name, self._trial)
        return TrialResults(results=dict(self._results))

    def _read_from_thread(self) -> None:
        self._locked.wait()
        self._results[EARLIER_THREAD] = attempt(EARLIER_THREAD, self._trial)


def attempt(name: str, trial: Trial) -> Attempt:
    """Try one probe and return its outcome. Never raises."""
    probe = BY_NAME.get(name)
    if probe is None:
        return _unwitnessed("not known to this guest")
    try:
        probe.control(trial)
    except Exception as error:
        return _unwitnessed(f"its control failed: {error}")
    try:
        probe.attempt(trial)
    except OSError as error:
        if error.errno in probe.refusals:
            return _refused(error)
        return _unwitnessed(f"refused for another reason: {error}")
    except Exception as error:
        return _unwitnessed(f"it could not be made: {type(error).__name__}: {error}")
    return Attempt(outcome="passed")


def _refused(error: OSError) -> Attempt:
    return Attempt(outcome="refused", detail=errno.errorcode.get(error.errno or 0, ""))


def _unwitnessed(why: str) -> Attempt:
    detail = why.encode("ascii", "replace").decode()[:_LONGEST]
    return Attempt(outcome="unwitnessed", detail=detail)
