"""Snapshots: a copy of the guest that waits, so that a killed cell costs nothing.

The copy is forked between two requests, on the main thread, and comes to a stop in the middle of
``take``, waiting on a socket of its own. When the host has it go on, ``take`` returns there too: it
is the guest then, with everything the guest had but what a fork can't copy: threads, which are
named to the user; connections; thread pools of OpenMP; and the state of open files, set back here.
"""

from __future__ import annotations

import _socket
import _thread
import contextlib
import ctypes
import errno
import fcntl
import os
import random
import resource
import select
import signal
import socket
import stat
import sys
import time
import warnings
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.guest.audit_hook import cells_threads, descriptors, effects
from cellblock.guest.children import hide_copies
from cellblock.guest.confine import libc, process
from cellblock.guest.output import encodable
from cellblock.guest.violations import run_exempt
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Collection

    from cellblock.guest.channel import Channel
    from cellblock.guest.loop import Driver
    from cellblock.guest.output import Outlet


# Open files. A copy shares them with the original, offsets too. Where the original has read on,
# written, cut or grown them before it was killed, the copy sets them back. A file that can be
# read is kept in memory while it is small; of others only the length is known, which is enough
# for what only ever grows. Files that are not open stay as the killed cell left them.

#: Bytes of open files that are kept, each and together.
MOST_EACH = 8 * 2**20
MOST_TOGETHER = 32 * 2**20
#: Bytes that are written or cut at once, and seconds that all of it may take: less than a copy has
#: to take over.
_STEP: Final = 2**20
_RESTORING: Final = 2.0


class OpenFile(NamedTuple):
    """One open file: where it stood, and its contents where they could be kept."""

    fd: int
    inode: tuple[int, int]
    offset: int
    size: int
    changed: int
    writable: bool
    contents: bytes | None


def capture_files(before: tuple[OpenFile, ...] = ()) -> tuple[OpenFile, ...]:
    """Return what is open now. ``before`` saves reading again what has not changed."""
    known = {(one.inode, one.size, one.changed): one.contents for one in before}
    found, room = list[OpenFile](), MOST_TOGETHER
    for fd, status in descriptors(256):
        if not stat.S_ISREG(status.st_mode):
            continue
        with contextlib.suppress(OSError):
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            size, changed = status.st_size, status.st_ctime_ns
            contents = known.get((_inode(status), size, changed))
            if contents is None and mode == os.O_RDWR and size <= min(MOST_EACH, room):
                contents = os.pread(fd, size, 0)
            room -= len(contents or b"")
            offset, writable = os.lseek(fd, 0, os.SEEK_CUR), mode != os.O_RDONLY
            found.append(OpenFile(fd, _inode(status), offset, size, changed, writable, contents))
    return tuple(found)


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open(one: OpenFile) -> bool:
    try:
        return _inode(os.fstat(one.fd)) == one.inode
    except OSError:
        return False


def restore_files(files: tuple[OpenFile, ...]) -> int:
    """Set open files back to how they were; return how many that was not possible for.

    In a thread: a process that is no more to be ended can keep a file locked, and to cut one that
    was written in many pieces takes the OS kernel long. Then it counts as not possible: who waits
    for more is taken for one that does not take over.
    """
    lost, is_done, is_late = {one.fd for one in files}, _thread.allocate_lock(), Event()

    def restore() -> None:
        for one in files:
            if _restore(one, is_late):
                lost.discard(one.fd)
        is_done.release()

    if not any(map(_has_changed, files)):  # nothing that takes time
        return sum(not _restore(one, is_late) for one in files)
    is_done.acquire()
    with contextlib.suppress(RuntimeError):  # there are too many threads: none is restored
        _thread.start_new_thread(run_exempt, (restore,))
        is_done.acquire(timeout=_RESTORING)
    is_late.set()
    return len(lost)


def _has_changed(one: OpenFile) -> bool:
    """Return whether it is another by now, or the same and no longer what it was."""
    try:
        status = os.fstat(one.fd)
    except OSError:
        return False
    return one.writable and (status.st_size, status.st_ctime_ns) != (one.size, one.changed)


def _restore(one: OpenFile, is_late: Event) -> bool:
    """Return whether it is what it was, as far as can be known, and in time."""
    try:
        status, whole = os.fstat(one.fd), True
        if _inode(status) != one.inode:
            return False
        if _has_changed(one):
            position, end = 0, status.st_size
            while one.contents is not None and position < len(one.contents):
                if is_late.is_set():
                    return False
                position += os.pwrite(one.fd, one.contents[position : position + _STEP], position)
            while end > one.size:  # from its end, in steps: one for all can't be given up
                if is_late.is_set():
                    return False
                end = max(one.size, end - _STEP)
                os.ftruncate(one.fd, end)
            whole = one.contents is not None or status.st_size >= one.size
        if is_late.is_set():  # a cell runs already, and writes where it stands
            return False
        os.lseek(one.fd, one.offset, os.SEEK_SET)
    except OSError:
        return False
    return whole


# Were files and pipes open in a waiting copy, too, a file that a cell closes would stay locked, and
# could not be run ("Text file busy"), and who reads of a pipe would wait for its end. So a copy has
# no more than O_PATH's descriptors of them (open(2)), and opens them anew when it takes over. So
# does a fork, which has offsets of its own then (ADR 0178). By a folder that is open a fork would
# list what it may not open.

#: Descriptors that are looked at where the policy has no lower limit.
_MOST_OPEN: Final = 1 << 16


class PutAside(NamedTuple):
    """A file, folder or pipe that a copy is to open anew."""

    fd: int
    flags: int
    inheritable: bool
    #: None of a pipe.
    offset: int | None


def put_aside(files: tuple[OpenFile, ...], but: Collection[int] = ()) -> list[PutAside]:
    """Keep no more of open files, folders and pipes, ``but`` of these, than what opens them anew.

    ``files`` know where each is read or written next.
    """
    aside, offsets = list[PutAside](), {one.fd: one.offset for one in files}
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST_OPEN)
    for fd, status in descriptors(most, gap=most):  # a cell may have chosen any number
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if fd in but or not (is_file or stat.S_ISFIFO(status.st_mode)):
            continue
        with contextlib.suppress(OSError):  # it stays open
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            if flags & os.O_PATH:
                continue
            offset = None
            if is_file:
                offset = offsets[fd] if fd in offsets else os.lseek(fd, 0, os.SEEK_CUR)
            one = PutAside(fd, flags, os.get_inheritable(fd), offset)
            _put_in_place(os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC), one)
            aside.append(one)
    return aside


def open_again(aside: list[PutAside]) -> int:
    """Open again what was put aside; return how many files and folders may not be opened any more.

    Those lead nowhere, and pipes do whose other end has gone.
    """
    lost = 0
    # Of a pipe that was both ends of ours, the reading one first: without it the other has no end.
    for one in sorted(aside, key=lambda one: one.flags & os.O_ACCMODE):
        with contextlib.suppress(OSError):
            if not fcntl.fcntl(one.fd, fcntl.F_GETFL) & os.O_PATH:
                continue  # it is another by now: stdout, of the copy's own
            if not _open_again(one) and one.offset is not None:
                lost += 1
    return lost


def _open_again(one: PutAside) -> bool:
    try:
        again = one.flags & (os.O_ACCMODE | os.O_APPEND) | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(f"/proc/self/fd/{one.fd}", again)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        if one.offset is not None:
            os.lseek(opened, one.offset, os.SEEK_SET)
        fcntl.fcntl(opened, fcntl.F_SETFL, one.flags)
    _put_in_place(opened, one)
    return True


def _put_in_place(opened: int, one: PutAside) -> None:
    os.dup2(opened, one.fd, inheritable=one.inheritable)
    os.close(opened)


# Connections. A fork shares them with the guest, and two processes at one connection take each
# other's bytes; and while a copy holds one, closing it in the guest would not be heard at the
# other end. So a copy drops them at once. Should it take over, its sockets say that they are not
# connected. In a network of the session's own it drops servers, too: whom they serve is gone with
# the guest, and a port would stay taken that a cell has closed, to be opened by the next.


def drop_connections(*, servers: bool = False) -> int:
    """Replace connected sockets by ones that lead nowhere, and listening ones if ``servers``.

    Return how many were connected.
    """
    found, nowhere = 0, -1
    for fd, status in descriptors(4_096, 32):
        if stat.S_ISSOCK(status.st_mode) and _is_connected(fd):
            with contextlib.suppress(OSError):
                listens = _listens(fd)
                if listens and not servers:
                    continue
                nowhere = _socket.socket().detach() if nowhere < 0 else nowhere
                os.dup2(nowhere, fd, inheritable=os.get_inheritable(fd))
                found += not listens
    if nowhere >= 0:
        os.close(nowhere)
    return found


def _listens(fd: int) -> bool:
    sock = _socket.socket(fileno=fd)
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    finally:
        sock.detach()


def _is_connected(fd: int) -> bool:
    """Whether this is TCP's end of a connection, or of one that is being made, or a server's."""
    try:
        sock = _socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        internet = sock.family in (socket.AF_INET, socket.AF_INET6)
        if not internet or sock.type != socket.SOCK_STREAM:
            return False
        sock.getpeername()
    except OSError:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return not poll.poll(0)
    else:
        return True
    finally:
        sock.detach()


# Thread pools of OpenMP. A copy would wait for their threads for ever, so they end before a fork;
# the next parallel region starts them again (OpenMP 5.0, ``omp_pause_resource_all``).

_OPENMP: Final = ("libgomp", "libomp", "libiomp")
_HARD: Final = 2
_RTLD_NOLOAD: Final = 4


class _LoadedLibrary(ctypes.Structure):
    """The beginning of dl_iterate_phdr(3)'s ``dl_phdr_info``."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


class OpenMP:
    """The OpenMP libraries that are loaded: numeric packages bring one each."""

    def __init__(self) -> None:
        self._modules = 0
        self._pause: list[Any] = []

    def end_threads(self) -> None:
        """End the threads that wait for this thread's next parallel region."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._pause = []
            for name in _openmp_libraries():
                # One from before OpenMP 5.0 has no such function.
                with contextlib.suppress(OSError, AttributeError):
                    library = ctypes.CDLL(name, mode=_RTLD_NOLOAD)
                    self._pause.append(library.omp_pause_resource_all)
        for pause in self._pause:
            pause(_HARD)


def _openmp_libraries() -> list[str]:
    """Return the files of the OpenMP libraries in this process."""
    found: list[str] = []

    def take(info: Any, _size: int, _data: int | None) -> int:
        name = os.fsdecode(info.contents.name or b"")
        if name.rpartition("/")[2].startswith(_OPENMP):
            found.append(name)
        return 0

    pointer = ctypes.POINTER(_LoadedLibrary)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(kind(take), None)
    return found


#: Before it notes what cells fork.
_fork: Final = os.fork
#: As ``warnings.filters`` has ``simplefilter("ignore", DeprecationWarning)``.
_NO_WARNING: Final = ("ignore", None, DeprecationWarning, None, 0)


def fork() -> int:
    """Fork as ``os.fork`` does, without its warning of threads. Raises OSError.

    By ``os.fork``, because only there nothing of Python's runs between the C library's fork and
    the interpreter's repairs in the child: a request to give up the GIL, made by a thread that the
    child does not have, would be waited for in between for ever. Other threads' loss is known, and
    told to the user when a copy takes over.

    Signals wait meanwhile. If one came, Linux would give the fork up and begin it again
    (ERESTARTNOINTR): the gate would see a second fork, and only one is due.
    """
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    # Not by catch_warnings: each change that it notes has Python forget which warnings were shown,
    # and a library's, which is shown once, would be shown again after every copy.
    filters: Any = warnings.filters
    filters.insert(0, _NO_WARNING)
    try:
        return int(run_exempt(_fork))
    finally:
        filters.remove(_NO_WARNING)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: Taken before cells can put something else in its place.
_begin_session: Final = os.setsid
_seed_global, _get_random, _set_random = random.seed, random.getstate, random.setstate
#: Channel, stdout and stderr of a copy.
_DESCRIPTORS = 3
#: Seconds that giving free memory back may take.
_TRIM_SECONDS = 0.005
#: Names of threads that are reported, and characters of each.
_MOST_NAMES, _LONGEST_NAME = 20, 100


class Snapshots:
    """Makes copies of this guest, and what a copy does when it takes over.

    ``zygote`` is the pid whose death is to be ours. ``openmp``: a library may have OpenMP's
    threads; ``connects``: one may have connections; ``serves``: and servers, in a network of the
    session's own.
    """

    def __init__(
        self,
        channel: Channel,
        outlet: Outlet,
        driver: Driver,
        *,
        zygote: int,
        openmp: bool,
        connects: bool,
        serves: bool = False,
    ) -> None:
        self._channel, self._outlet, self._driver = channel, outlet, driver
        self._connects, self._zygote = connects, zygote
        self._serves = serves
        self._openmp = OpenMP() if openmp else None
        #: How many connections a copy has dropped.
        self._connections = 0
        #: Whether the guest gives free memory back, and not its copy.
        self._trims = True
        self._copies: list[int] = []
        hide_copies(self._copies)
        self._files: tuple[OpenFile, ...] = ()
        #: What a copy is to open again, and how many of its files it could not.
        self._aside: list[PutAside] = []
        self._lost_files = 0
        self._orphaned = False
        self._lost_threads: list[str] = []
        #: Of a copy that took over: a seed for when it has run so many cells again.
        self._seed: bytes | None = None
        self._again = 0

    def take(self, request: messages.Snapshot) -> messages.Resume | None:
        """Make a copy. Return None in the original, and in the copy what it is to go on with."""
        fds = self._channel.take_descriptors()
        self._catch_up()
        try:
            self._files = capture_files(self._files)
            threads = _names_of_threads()
            if self._openmp is not None:
                self._openmp.end_threads()
            if self._trims:
                self._give_back()
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._fail(request, fds, exc)
            return None
        if pid:
            self._keep_copy(pid, fds)
            return None
        return self._wait_as_copy(request, fds, threads)

    def _give_back(self) -> None:
        """Let go of pages that hold nothing: what older copies have there is not to be copied.

        From a heap with many holes it takes longer than anybody should wait. Then the copy does it
        from now on, while the guest goes on; that spares less, as older copies have those pages.
        """
        began = time.monotonic()
        libc.give_back_free_memory()
        self._trims = time.monotonic() - began < _TRIM_SECONDS

    def _fork(self, fds: list[int]) -> int:
        """Fork with nothing half said. Raises OSError, MemoryError."""
        if len(fds) != _DESCRIPTORS:
            raise OSError(errno.EMFILE, "")
        drawn, register_tasks = _get_random(), self._driver.remember_tasks()
        with self._channel.hold():
            pid = fork()
        if not pid:
            _set_random(drawn)  # ``random`` has seeded itself anew
            register_tasks()
        return pid

    def _keep_copy(self, pid: int, fds: list[int]) -> None:
        """Close what is the child's: while it is open here, its end can't be seen."""
        self._copies.append(pid)
        for fd in fds:
            os.close(fd)

    def _fail(
        self, request: messages.Snapshot, fds: list[int], error: OSError | MemoryError
    ) -> None:
        number = (error.errno or 0) if isinstance(error, OSError) else errno.ENOMEM
        number = number if number in errno.errorcode else errno.EIO
        self._channel.send(messages.SnapshotFailed(id=request.id, errno=number))
        for fd in fds:
            os.close(fd)

    def _wait_as_copy(
        self, request: messages.Snapshot, fds: list[int], threads: list[str]
    ) -> messages.Resume:
        """Wait until the guest is gone, and fork whenever the host asks: a twin, or a variant."""
        try:
            self._copies.clear()
            self._orphaned, self._lost_threads = True, threads
            # A library may close some in children (matplotlib its fonts).
            self._files = tuple(filter(_is_open, self._files))
            if self._connects:
                self._connections = drop_connections(servers=self._serves)
            self._aside = run_exempt(put_aside, self._files, fds)
            if not self._trims:
                libc.give_back_free_memory()
            process.set_name("snapshot")
            message = self._wait(request, fds)
            while isinstance(message, messages.Snapshot):
                message = self._fork_again(message)
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
        libc.prctl(process.PR_SET_PDEATHSIG, signal.SIGCONT)
        self._channel.reset_after_fork()
        self._outlet.stand_on_own_pipes()
        self._channel.send(messages.SnapshotReady(id=request.id, connections=self._connections))
        return self._channel.recv()

    def _fork_again(self, request: messages.Snapshot) -> messages.ToGuest:
        """Fork this waiting copy; return the next message of either of the two.

        The host, which stops this one, is told when nothing of the other's is open in here.
        """
        fds = self._channel.take_descriptors()
        self._catch_up()
        try:
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._fail(request, fds, exc)
            return self._channel.recv()
        if pid == 0:
            self._copies.clear()
            self._orphaned = True
            return self._wait(request, fds)
        self._keep_copy(pid, fds)
        self._channel.send(messages.SnapshotReady(id=request.id))
        return self._channel.recv()

    def take_over(self, resume: messages.Resume) -> messages.Resumed:
        """Make what a fork can't copy anew; return what can't be had again."""
        self._catch_up()
        if resume.session:
            _begin_session()
        process.set_name("guest")
        # What is run again first draws what it drew before.
        self._seed, self._again = resume.seed, resume.again
        self.ran_again(0)
        tasks = self._driver.resume()
        if resume.place is None:
            self._open_files_again()
        return messages.Resumed(
            threads=self._lost_threads, tasks=tasks, connections=self._connections
        )

    def have_files(self, resume: messages.Resume) -> int:
        """Have open files as they were; return how many that was not possible for.

        Call it under the locks that the copy is to have. What they bind is a thread, and files are
        set back in one. A fork also opens its files there: it is not to write to its parent's.
        """
        if resume.place is not None:
            self._open_files_again()
        return self._lost_files if resume.fork else restore_files(self._files)

    def _open_files_again(self) -> None:
        aside, self._aside = self._aside, []
        self._lost_files = run_exempt(open_again, aside)

    def ran_again(self, cells: int = 1) -> None:
        """Note that a cell ended; behind the last that is run again, random numbers are new."""
        self._again -= cells
        if self._seed is not None and self._again <= 0:
            _reseed(self._seed)
            self._seed = None

    def _catch_up(self) -> None:
        """Do what could not be done before: reap dropped copies, die with the zygote."""
        for pid in tuple(self._copies):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._copies.remove(pid)
        # While the killed guest is our parent, its death would be ours.
        if self._orphaned and os.getppid() == self._zygote:
            libc.prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL)
            self._orphaned = False


def _names_of_threads() -> list[str]:
    return [encodable(str(t.name))[:_LONGEST_NAME] for t in cells_threads()[:_MOST_NAMES]]


def _reseed(seed: bytes) -> None:
    """Give the global generators states of their own, or two guests would draw the same secrets."""
    _seed_global(seed)
    effects.rekey()
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        with contextlib.suppress(Exception):  # a cell may have put anything there
            words = [int.from_bytes(seed[i : i + 4]) for i in range(0, len(seed), 4)]
            numpy.seed(words)
