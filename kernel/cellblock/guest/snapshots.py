"""Snapshots: a copy of the guest that waits, so that a killed cell costs nothing.

The copy is made between two requests, on the main thread, and comes to a stop in the middle of
``take``, waiting on a socket of its own. When it is told to go on, ``take`` returns there too: it
is the guest then, with everything the guest had but what a fork can't copy.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import os
import random
import select
import signal
import socket
import stat
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.guest.confine import libc, process
from cellblock.guest.deeds import permitted
from cellblock.guest.output import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.guest import native_pools
    from cellblock.guest.channel import Channel
    from cellblock.guest.loop import Driver
    from cellblock.guest.network import Network
    from cellblock.guest.output import Outlet


# Open files, for a snapshot: what a copy needs so that they are as they were.
#
# A copy shares its open files with the original, offsets too. Where the original has read on,
# written, cut or grown them before it was killed, the copy sets them back. A file that can be
# read is kept in memory while it is small; of others only the length is known, which is enough
# for what only ever grows. Files that are not open stay as the killed cell left them.

#: Bytes of open files that are kept, each and together.
MOST_EACH = 8 * 2**20
MOST_TOGETHER = 32 * 2**20
#: Descriptors that are looked at, from the lowest; this many unused ones in a row are the end.
_MOST, _GAP = 256, 16
_FIRST = 4


class Kept(NamedTuple):
    """One open file: where it stood, and its contents where they could be kept."""

    fd: int
    inode: tuple[int, int]
    offset: int
    size: int
    changed: int
    writable: bool
    contents: bytes | None


def look(before: tuple[Kept, ...] = ()) -> tuple[Kept, ...]:
    """Return what is open now. ``before`` saves reading again what has not changed."""
    known = {(kept.inode, kept.size, kept.changed): kept.contents for kept in before}
    found, room, unused = list[Kept](), MOST_TOGETHER, 0
    for fd in range(_FIRST, _MOST):
        try:
            status = os.fstat(fd)
        except OSError:
            unused += 1
            if unused >= _GAP:
                break
            continue
        unused = 0
        if stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                kept = _kept(fd, status, known, room)
                room -= len(kept.contents or b"")
                found.append(kept)
    return tuple(found)


def _kept(
    fd: int,
    status: os.stat_result,
    known: dict[tuple[tuple[int, int], int, int], bytes | None],
    room: int,
) -> Kept:
    mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    inode, size, changed = (status.st_dev, status.st_ino), status.st_size, status.st_ctime_ns
    contents = known.get((inode, size, changed))
    if contents is None and mode == os.O_RDWR and size <= min(MOST_EACH, room):
        contents = os.pread(fd, size, 0)
    offset = os.lseek(fd, 0, os.SEEK_CUR)
    return Kept(fd, inode, offset, size, changed, mode != os.O_RDONLY, contents)


def still_open(kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """Return those that a copy has: a library may close some in children (matplotlib its fonts)."""
    return tuple(one for one in kept if _is_open(one))


def _is_open(one: Kept) -> bool:
    try:
        status = os.fstat(one.fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == one.inode


def restore(kept: tuple[Kept, ...]) -> int:
    """Set open files back to how they were kept; return how many that was not possible for."""
    return sum(not _restored(one) for one in kept)


def _restored(one: Kept) -> bool:
    try:
        status = os.fstat(one.fd)
        if (status.st_dev, status.st_ino) != one.inode:
            return False
        whole = True
        if one.writable and (status.st_size, status.st_ctime_ns) != (one.size, one.changed):
            whole = _rewritten(one, status.st_size)
        os.lseek(one.fd, one.offset, os.SEEK_SET)
    except OSError:
        return False
    return whole


def _rewritten(one: Kept, size: int) -> bool:
    """Set the contents back; say whether they are what they were, as far as can be known."""
    if one.contents is not None:
        position = 0
        while position < len(one.contents):
            position += os.pwrite(one.fd, one.contents[position : position + 2**20], position)
    os.ftruncate(one.fd, one.size)
    return one.contents is not None or size >= one.size


# Connections, for a snapshot: a copy has none.
#
# A fork shares them with the guest, and two processes at one connection take each other's bytes;
# and while a copy holds one, closing it in the guest would not be heard at the other end. So a
# copy lets go of them at once. Should it take over, its sockets say that they are not connected.

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
#: Descriptors that are looked at, from the lowest; this many unused ones in a row are the end.
_CONNECTIONS_FIRST, _CONNECTIONS_MOST, _CONNECTIONS_GAP = 4, 4_096, 32


def let_go() -> int:
    """Put a socket that leads nowhere in place of each that is connected; return how many."""
    found, unused, nowhere = 0, 0, -1
    for fd in range(_CONNECTIONS_FIRST, _CONNECTIONS_MOST):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            unused += 1
            if unused >= _CONNECTIONS_GAP:
                break
            continue
        unused = 0
        if stat.S_ISSOCK(mode) and _is_connected(fd):
            with contextlib.suppress(OSError):
                nowhere = _socket.socket().detach() if nowhere < 0 else nowhere
                os.dup2(nowhere, fd, inheritable=os.get_inheritable(fd))
                found += 1
    if nowhere >= 0:
        os.close(nowhere)
    return found


def _is_connected(fd: int) -> bool:
    """Say whether this is TCP's end of a connection, or of one that is being made."""
    try:
        sock = _socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        if sock.family not in _INTERNET or sock.type != socket.SOCK_STREAM:
            return False
        sock.getpeername()
    except OSError:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return not poll.poll(0) and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    else:
        return True
    finally:
        sock.detach()


# Forking a running guest.
#
# By ``os.fork``, because only there nothing of Python's runs between the C library's fork and
# the interpreter's repairs in the child: a request to give up the GIL, made by a thread that the
# child does not have, would be waited for in between for ever.


def fork() -> int:
    """Fork as ``os.fork`` does, without its warning of threads. Raises OSError.

    Their loss is known, and told to the user when a copy takes over.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return int(permitted(os.fork))


_PR_SET_PDEATHSIG = 1
#: Taken before cells can put something else in its place.
_seed_global = random.seed
_DESCRIPTORS = 3
#: Threads of ours, which start again by themselves.
_OWN_THREADS = "cellblock-"
#: Names of threads that are told, and characters of each.
_MOST_NAMES, _LONGEST_NAME = 20, 100


class Snapshots:
    """Makes copies of this guest, and what a copy does when it takes over."""

    def __init__(
        self,
        channel: Channel,
        outlet: Outlet,
        driver: Driver,
        zygote: int,
        openmp: native_pools.OpenMP | None,
        network: Network | None = None,
        *,
        connects: bool = False,
    ) -> None:
        self._channel, self._outlet, self._driver = channel, outlet, driver
        self._network, self._connects = network, connects
        #: How many connections a copy has let go of.
        self._connections = 0
        #: None where no library can have one.
        self._openmp = openmp
        #: The pid of the zygote, whose death is to be ours.
        self._zygote = zygote
        self._copies: list[int] = []
        self._files: tuple[Kept, ...] = ()
        self._orphaned = False
        self._lost: list[str] = []

    def take(self, request: messages.Snapshot) -> messages.Resume | None:
        """Make a copy. Returns None in the original, and in the copy what it is to go on with."""
        fds, threads = self._channel.take_descriptors(), list[str]()
        self.settle()
        try:
            self._outlet.flush()
            self._files = look(self._files)
            threads = _threads()
            if self._openmp is not None:
                self._openmp.let_go()
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._channel.send(messages.NotStanding(id=request.id, errno=_number(exc)))
            pid = -1
        if pid:
            self._part(pid, fds)
            return None
        return self._stand(request, fds, threads)

    def _fork(self, fds: list[int]) -> int:
        """Fork with nothing half said. Raises OSError, MemoryError."""
        if len(fds) != _DESCRIPTORS:
            raise OSError(errno.EMFILE, "")
        with self._outlet.still(), self._channel.still():
            return fork()

    def _part(self, pid: int, fds: list[int]) -> None:
        """Let go of what is the child's: while it is open here, its end can't be seen."""
        self._copies += [pid] if pid > 0 else []
        for fd in fds:
            os.close(fd)

    def _stand(
        self, request: messages.Snapshot, fds: list[int], threads: list[str]
    ) -> messages.Resume:
        """Wait, as the copy, until the guest is gone, and make a twin when the host asks."""
        try:
            self._copies, self._orphaned, self._lost = [], True, threads
            self._files = still_open(self._files)
            self._connections = _let_go() if self._connects else 0
            process.set_name("snapshot")
            message = self._wait(request, fds)
            while isinstance(message, messages.Snapshot):
                message = self._double(message)
        except BaseException:
            os._exit(0)
        if not isinstance(message, messages.Resume):
            os._exit(1)
        return message

    def _wait(self, request: messages.Snapshot, fds: list[int]) -> messages.ToGuest:
        """Stand on a channel of its own; return what the host says."""
        for target, fd in zip((self._channel.fileno(), 1, 2), fds, strict=True):
            os.dup2(fd, target, inheritable=target != self._channel.fileno())
            os.close(fd)
        # The host stops it. Whoever could end it is gone: it goes on, and sees that by itself.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
        self._channel.renew()
        self._outlet.renew()
        self._channel.send(messages.Standing(id=request.id, connections=self._connections))
        return self._channel.recv()

    def _double(self, request: messages.Snapshot) -> messages.ToGuest:
        """Make a twin of this copy; return what either of them is told next.

        The host, which stops this one, is told when nothing of the twin's is open in here.
        """
        fds = self._channel.take_descriptors()
        self.settle()
        try:
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._part(-1, fds)
            self._channel.send(messages.NotStanding(id=request.id, errno=_number(exc)))
            return self._channel.recv()
        if pid == 0:
            self._copies, self._orphaned = [], True
            return self._wait(request, fds)
        self._part(pid, fds)
        self._channel.send(messages.Standing(id=request.id))
        return self._channel.recv()

    def go_on(self, resume: messages.Resume) -> messages.Resumed:
        """Make what a fork can't copy anew; return what can't be had again."""
        self.settle()
        process.set_name("guest")
        _reseed(resume.seed)
        tasks = self._driver.resume()
        changed = restore(self._files)
        if self._network is not None:
            self._network.renew(self._channel.take_descriptors())
            if resume.plan is not None and not resume.plan.relayed:
                self._network.end()
        return messages.Resumed(
            threads=self._lost, tasks=tasks, files=changed, connections=self._connections
        )

    def settle(self) -> None:
        """Do what could not be done before: bury dropped copies, die with the zygote."""
        for pid in tuple(self._copies):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._copies.remove(pid)
        # While the killed guest is our parent, its death would be ours.
        if self._orphaned and os.getppid() == self._zygote:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            self._orphaned = False


def _let_go() -> int:

    return let_go()


def _number(exc: OSError | MemoryError) -> int:
    """Return the error's number as errno(3) has them."""
    number = (exc.errno or 0) if isinstance(exc, OSError) else errno.ENOMEM
    return number if number in errno.errorcode else errno.EIO


def _threads() -> list[str]:
    """Return the names of the cells' threads: a copy has none of them."""
    main = threading.main_thread()
    # Not `enumerate`: a thread that ended for want of memory may have kept its lock.
    active = list(vars(threading)["_active"].values())
    names = [str(t.name) for t in active if t is not main]
    told = [name for name in names if not name.startswith(_OWN_THREADS)]
    return [encodable(name)[:_LONGEST_NAME] for name in told[:_MOST_NAMES]]


def _reseed(seed: bytes) -> None:
    """Give the global generators states of their own, or two guests would draw the same secrets."""
    _seed_global(seed)
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        with contextlib.suppress(Exception):  # a cell may have put anything there
            words = [int.from_bytes(seed[i : i + 4]) for i in range(0, len(seed), 4)]
            numpy.seed(words)
