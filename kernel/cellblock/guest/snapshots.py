"""Snapshots: copies of the guest that wait, so that a killed cell does not cost the variables.

A snapshot is a fork of the guest, made between two requests on the main thread. ``server`` calls
``Snapshots.take`` when the host asks for one. In the guest it returns None. In the copy it waits on
a channel of its own:

    forked ── SnapshotReady ──> waiting ── Resume ──> ``take`` returns it; the server takes over
                                  │    └── channel closed, or any failure ──> ended
                                  └── Snapshot ──> forks once more (a twin, or a variant); both wait

A copy that takes over has everything that the guest had, except what a fork can't copy:

- other threads, whose names the user is told;
- connections, which a copy drops at once;
- thread pools of OpenMP, which are ended before the fork and start again by themselves;
- the state of open files, which a copy that takes over sets back.
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


# Open files. Original and copy share their offsets and contents. If the original has read, written,
# truncated or extended a file before it was killed, a copy that takes over sets the file back. For
# that, the contents of small files that can be read and written are kept in memory. Of others only
# the size is known, which is enough for files that only grow. Files that are not open stay as the
# killed cell left them.

#: Most bytes that are kept of an open file, and of all together.
MOST_EACH = 8 * 2**20
MOST_TOGETHER = 32 * 2**20
#: Bytes that are written or truncated in one step, and seconds that restoring all files may take:
#: less than the time in which a copy must take over.
_STEP: Final = 2**20
_RESTORING: Final = 2.0


class OpenFile(NamedTuple):
    """The state of one open file. ``contents`` is None if they could not be kept."""

    fd: int
    inode: tuple[int, int]
    offset: int
    size: int
    changed: int
    writable: bool
    contents: bytes | None


def capture_files(before: tuple[OpenFile, ...] = ()) -> tuple[OpenFile, ...]:
    """Return the state of all open files.

    ``before`` is what an earlier call returned: contents of files that have not changed since are
    taken from there, and not read again.
    """
    known_contents = {(file.inode, file.size, file.changed): file.contents for file in before}
    files = list[OpenFile]()
    room = MOST_TOGETHER
    for fd, status in descriptors(256):
        if not stat.S_ISREG(status.st_mode):
            continue
        with contextlib.suppress(OSError):
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            size = status.st_size
            changed = status.st_ctime_ns
            contents = known_contents.get((_inode(status), size, changed))
            if contents is None and mode == os.O_RDWR and size <= min(MOST_EACH, room):
                contents = os.pread(fd, size, 0)
            room -= len(contents or b"")
            offset = os.lseek(fd, 0, os.SEEK_CUR)
            writable = mode != os.O_RDONLY
            files.append(OpenFile(fd, _inode(status), offset, size, changed, writable, contents))
    return tuple(files)


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open(file: OpenFile) -> bool:
    """Return whether the descriptor still belongs to the same file."""
    try:
        return _inode(os.fstat(file.fd)) == file.inode
    except OSError:
        return False


def restore_files(files: tuple[OpenFile, ...]) -> int:
    """Set open files back to their recorded state; return for how many that was not possible.

    Works in a thread, for two seconds at most. A process that can't be killed any more may keep a
    file locked, and truncating a file of many pieces takes the OS kernel long. A copy that waited
    for that would be taken for one that does not take over. Files that are late count as lost.
    """
    lost_fds = {file.fd for file in files}
    is_done = _thread.allocate_lock()
    is_late = Event()

    def restore() -> None:
        for file in files:
            if _restore(file, is_late):
                lost_fds.discard(file.fd)
        is_done.release()

    if not any(map(_has_changed, files)):  # only offsets to set, which takes no time
        return sum(not _restore(file, is_late) for file in files)
    is_done.acquire()
    with contextlib.suppress(RuntimeError):  # too many threads: no file is restored
        _thread.start_new_thread(run_exempt, (restore,))
        is_done.acquire(timeout=_RESTORING)
    is_late.set()
    return len(lost_fds)


def _has_changed(file: OpenFile) -> bool:
    """Return whether a file that can be written has changed since its state was recorded."""
    try:
        status = os.fstat(file.fd)
    except OSError:
        return False
    return file.writable and (status.st_size, status.st_ctime_ns) != (file.size, file.changed)


def _restore(file: OpenFile, is_late: Event) -> bool:
    """Set one file back; return whether its state is the recorded one, as far as is known.

    Stops and returns False once ``is_late`` is set.
    """
    try:
        status = os.fstat(file.fd)
        whole = True
        if _inode(status) != file.inode:
            return False
        if _has_changed(file):
            position = 0
            end = status.st_size
            while file.contents is not None and position < len(file.contents):
                if is_late.is_set():
                    return False
                position += os.pwrite(file.fd, file.contents[position : position + _STEP], position)
            while end > file.size:  # from the end, in steps, so that it can be given up
                if is_late.is_set():
                    return False
                end = max(file.size, end - _STEP)
                os.ftruncate(file.fd, end)
            whole = file.contents is not None or status.st_size >= file.size
        if is_late.is_set():  # a cell runs by now, and writes at the present offset
            return False
        os.lseek(file.fd, file.offset, os.SEEK_SET)
    except OSError:
        return False
    return whole


# A waiting copy must not have files and pipes open. A file that a cell closes would stay locked,
# and could not be executed ("Text file busy"), and a reader of a pipe would wait for the end of its
# data. So a copy *puts them aside*: it keeps O_PATH descriptors only (open(2)), and opens the files
# again when it takes over (ADR 0029). A fork of a sandbox does so, too, and then has offsets of its
# own. Folders are included: through one that is open, a fork could list what it may not open.

#: Descriptors that are looked at if the policy has no lower limit.
_MOST_OPEN: Final = 1 << 16


class PutAside(NamedTuple):
    """A file, folder or pipe that a copy will open again."""

    fd: int
    flags: int
    inheritable: bool
    #: None for a pipe.
    offset: int | None


def put_aside(files: tuple[OpenFile, ...], but: Collection[int] = ()) -> list[PutAside]:
    """Replace open files, folders and pipes by O_PATH descriptors, until ``open_again``.

    Return what ``open_again`` needs. Descriptors in ``but`` stay as they are. ``files`` has the
    offsets of files, recorded before the fork.
    """
    aside = list[PutAside]()
    offsets = {entry.fd: entry.offset for entry in files}
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
            entry = PutAside(fd, flags, os.get_inheritable(fd), offset)
            _put_in_place(os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC), entry)
            aside.append(entry)
    return aside


def open_again(aside: list[PutAside]) -> int:
    """Open again what was put aside; return how many files and folders can't be opened any more.

    Their descriptors stay O_PATH descriptors, which can't be read or written. So do those of pipes
    whose other end is gone, which are not counted.
    """
    lost_count = 0
    # The reading end of a pipe first: if this process has both ends, the writing end can't be
    # opened before the reading end is.
    for entry in sorted(aside, key=lambda entry: entry.flags & os.O_ACCMODE):
        with contextlib.suppress(OSError):
            if not fcntl.fcntl(entry.fd, fcntl.F_GETFL) & os.O_PATH:
                continue  # replaced meanwhile: a copy gets a stdout of its own
            if not _open_again(entry) and entry.offset is not None:
                lost_count += 1
    return lost_count


def _open_again(entry: PutAside) -> bool:
    """Open one file, folder or pipe again; return whether that was possible."""
    try:
        flags = entry.flags & (os.O_ACCMODE | os.O_APPEND) | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(f"/proc/self/fd/{entry.fd}", flags)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        if entry.offset is not None:
            os.lseek(opened, entry.offset, os.SEEK_SET)
        fcntl.fcntl(opened, fcntl.F_SETFL, entry.flags)
    _put_in_place(opened, entry)
    return True


def _put_in_place(opened: int, entry: PutAside) -> None:
    """Move a descriptor to the number of ``entry``."""
    os.dup2(opened, entry.fd, inheritable=entry.inheritable)
    os.close(opened)


# Connections. A fork shares them with the guest. Two processes on one connection would take each
# other's bytes, and while a copy holds one, its peer does not notice that the guest has closed it.
# So a copy drops connections at once; if it takes over, its sockets say that they are not
# connected. In a network of the session's own it also drops servers: the programs that they serve
# end with the guest, and a port that one cell has closed would stay taken when the next opens it.


def drop_connections(*, servers: bool = False) -> int:
    """Replace connected sockets by unconnected ones, and listening sockets too if ``servers``.

    Return how many were connected.
    """
    connected = 0
    nowhere = -1
    for fd, status in descriptors(4_096, 32):
        if stat.S_ISSOCK(status.st_mode) and _is_connected(fd):
            with contextlib.suppress(OSError):
                listens = _listens(fd)
                if listens and not servers:
                    continue
                nowhere = _socket.socket().detach() if nowhere < 0 else nowhere
                os.dup2(nowhere, fd, inheritable=os.get_inheritable(fd))
                connected += not listens
    if nowhere >= 0:
        os.close(nowhere)
    return connected


def _listens(fd: int) -> bool:
    sock = _socket.socket(fileno=fd)
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    finally:
        sock.detach()


def _is_connected(fd: int) -> bool:
    """Return whether this is a TCP socket that is connected, is connecting or listens."""
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
        # Not connected. A new socket is always ready to write (POLLHUP), one that is connecting or
        # listens is not.
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return not poll.poll(0)
    else:
        return True
    finally:
        sock.detach()


# Thread pools of OpenMP. A copy would wait for their threads for ever, since it does not have them.
# So they end before a fork; the next parallel region starts them again (OpenMP 5.0,
# ``omp_pause_resource_all``).

#: How the file names of OpenMP libraries begin.
_OPENMP: Final = ("libgomp", "libomp", "libiomp")
#: ``omp_pause_hard``: release all resources.
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
                # Libraries older than OpenMP 5.0 don't have this function.
                with contextlib.suppress(OSError, AttributeError):
                    library = ctypes.CDLL(name, mode=_RTLD_NOLOAD)
                    self._pause.append(library.omp_pause_resource_all)
        for pause in self._pause:
            pause(_HARD)


def _openmp_libraries() -> list[str]:
    """Return the files of the OpenMP libraries in this process."""
    names: list[str] = []

    def on_library(info: Any, _size: int, _data: int | None) -> int:
        name = os.fsdecode(info.contents.name or b"")
        if name.rpartition("/")[2].startswith(_OPENMP):
            names.append(name)
        return 0

    pointer = ctypes.POINTER(_LoadedLibrary)
    callback_type = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(callback_type(on_library), None)
    return names


#: ``os.fork`` itself: ``effects`` later replaces it to note the forks of cells.
_fork: Final = os.fork
#: The entry that ``simplefilter("ignore", DeprecationWarning)`` makes in ``warnings.filters``.
_NO_WARNING: Final = ("ignore", None, DeprecationWarning, None, 0)


def fork() -> int:
    """Fork as ``os.fork`` does, without its warning about threads. Raises OSError.

    The fork must be made by ``os.fork``. Only there, no Python code runs between the C library's
    fork and the interpreter's repairs in the child. If some ran, the child could wait for ever to
    hand the GIL to a thread that it does not have. That other threads are lost is known: the user
    is told when a copy takes over.

    Signals are blocked meanwhile. A signal would make Linux give the fork up and begin it again
    (ERESTARTNOINTR). The gate would see a second fork, and only one is due.
    """
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    # Not by catch_warnings: it makes Python forget which warnings were shown, so that a library's
    # warning, which is shown once, would be shown again after every snapshot.
    filters: Any = warnings.filters
    filters.insert(0, _NO_WARNING)
    try:
        return int(run_exempt(_fork))
    finally:
        filters.remove(_NO_WARNING)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Functions that cells could replace, taken before they can.
_begin_session: Final = os.setsid
_seed_global = random.seed
_get_random = random.getstate
_set_random = random.setstate
#: Number of descriptors that come with ``Snapshot``: a copy's channel, stdout and stderr.
_DESCRIPTORS = 3
#: Seconds that returning free memory to the OS kernel may take in the guest.
_TRIM_SECONDS = 0.005
#: Most names of threads that are reported, and most characters of each.
_MOST_NAMES, _LONGEST_NAME = 20, 100


class Snapshots:
    """Makes copies of this guest. In a copy, waits for the host's message and then takes over.

    ``zygote`` is the zygote's pid; copies end with the zygote. ``openmp`` says that libraries may
    have threads of OpenMP, ``connects`` that they may have connections, ``serves`` that they may
    have servers in a network of the session's own.
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
        self._channel = channel
        self._outlet = outlet
        self._driver = driver
        self._connects = connects
        self._zygote = zygote
        self._serves = serves
        self._openmp = OpenMP() if openmp else None
        #: In a copy: how many connections it has dropped.
        self._connections = 0
        #: Whether the guest returns free memory before a fork. If not, its copies do.
        self._trims = True
        #: Pids of this process's copies that have not been reaped.
        self._copies: list[int] = []
        hide_copies(self._copies)
        #: The state of open files at the last fork.
        self._files: tuple[OpenFile, ...] = ()
        #: In a copy: what it must open again, and how many files it could not open.
        self._aside: list[PutAside] = []
        self._lost_files = 0
        #: In a copy: its parent is not the zygote yet, so it does not end with the zygote.
        self._orphaned = False
        self._lost_threads: list[str] = []
        #: In a copy that took over: a seed for random numbers, used when it has run ``_again``
        #: cells again.
        self._seed: bytes | None = None
        self._again = 0

    def take(self, request: messages.Snapshot) -> messages.Resume | None:
        """Fork a copy. Return None in the guest, and ``Resume`` in a copy that must take over.

        If no copy can be made, the guest sends ``SnapshotFailed``. A copy that can't wait or is
        told something else ends.
        """
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
        """Return free memory to the OS kernel, so that its pages are not shared with copies.

        Otherwise, writing to such a page would copy the old contents first. If the heap has many
        holes, this takes too long to wait for. From then on the copies do it instead, while the
        guest goes on. That saves less, as older copies have these pages, too.
        """
        began = time.monotonic()
        libc.give_back_free_memory()
        self._trims = time.monotonic() - began < _TRIM_SECONDS

    def _fork(self, fds: list[int]) -> int:
        """Fork while no frame is being sent. Raises OSError, MemoryError."""
        if len(fds) != _DESCRIPTORS:
            raise OSError(errno.EMFILE, "")
        random_state = _get_random()
        register_tasks = self._driver.remember_tasks()
        with self._channel.hold():
            pid = fork()
        if not pid:
            _set_random(random_state)  # ``random`` seeds itself anew in a fork
            register_tasks()
        return pid

    def _keep_copy(self, pid: int, fds: list[int]) -> None:
        """Record a copy, and close its descriptors: the host must see when they are closed."""
        self._copies.append(pid)
        for fd in fds:
            os.close(fd)

    def _fail(
        self, request: messages.Snapshot, fds: list[int], error: OSError | MemoryError
    ) -> None:
        """Report that no copy could be made, and close the descriptors that were for it."""
        number = (error.errno or 0) if isinstance(error, OSError) else errno.ENOMEM
        number = number if number in errno.errorcode else errno.EIO
        self._channel.send(messages.SnapshotFailed(id=request.id, errno=number))
        for fd in fds:
            os.close(fd)

    def _wait_as_copy(
        self, request: messages.Snapshot, fds: list[int], threads: list[str]
    ) -> messages.Resume:
        """Wait as a copy; return ``Resume`` when the host sends it.

        Forks once more whenever the host asks: a twin, or a variant of a fork. On any other message
        or failure, this process ends.
        """
        try:
            self._copies.clear()
            self._orphaned = True
            self._lost_threads = threads
            # A library may close files in a child process (matplotlib its fonts).
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
        """Switch to the copy's own channel and pipes, send ``SnapshotReady``; return the answer."""
        for target, fd in zip((self._channel.fileno(), 1, 2), fds, strict=True):
            os.dup2(fd, target, inheritable=target != self._channel.fileno())
            os.close(fd)
        # The host stops waiting copies (SIGSTOP). When its parent ends, this copy is continued. If
        # the host is gone, too, the copy notices that by itself, as its channel is closed.
        libc.prctl(process.PR_SET_PDEATHSIG, signal.SIGCONT)
        self._channel.reset_after_fork()
        self._outlet.stand_on_own_pipes()
        self._channel.send(messages.SnapshotReady(id=request.id, connections=self._connections))
        return self._channel.recv()

    def _fork_again(self, request: messages.Snapshot) -> messages.ToGuest:
        """Fork this waiting copy once more. Both processes return the host's next message.

        This copy closes its descriptors of the new one before it sends ``SnapshotReady``, because
        the host stops this copy as soon as it has that message.
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
        """Replace what a fork can't copy; return a ``Resumed`` that says what is lost.

        Open files are left to ``have_files``, which comes after the locks.
        """
        self._catch_up()
        if resume.session:
            _begin_session()
        process.set_name("guest")
        # Cells that are run again draw the same random numbers as before. The new seed counts after
        # the last of them.
        self._seed = resume.seed
        self._again = resume.again
        self.ran_again(0)
        tasks = self._driver.resume()
        if resume.place is None:
            self._open_files_again()
        return messages.Resumed(
            threads=self._lost_threads, tasks=tasks, connections=self._connections
        )

    def have_files(self, resume: messages.Resume) -> int:
        """Set open files back to their recorded state; return for how many that was not possible.

        Call it after the copy has taken its locks. Landlock restricts threads, and files are set
        back in a new thread, which must be restricted, too. A fork also opens its files only then,
        because it must not write to its parent's, and sets none back, as its parent goes on.
        """
        if resume.place is not None:
            self._open_files_again()
        return self._lost_files if resume.fork else restore_files(self._files)

    def _open_files_again(self) -> None:
        aside, self._aside = self._aside, []
        self._lost_files = run_exempt(open_again, aside)

    def ran_again(self, cells: int = 1) -> None:
        """Note that ``cells`` have ended. After the last that is run again, seed random numbers."""
        self._again -= cells
        if self._seed is not None and self._again <= 0:
            _reseed(self._seed)
            self._seed = None

    def _catch_up(self) -> None:
        """Do what was not possible before: reap dropped copies, and end with the zygote."""
        for pid in tuple(self._copies):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._copies.remove(pid)
        # Only once the zygote is the parent. Until the killed guest is gone, it is the parent, and
        # its death would end this process.
        if self._orphaned and os.getppid() == self._zygote:
            libc.prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL)
            self._orphaned = False


def _names_of_threads() -> list[str]:
    return [encodable(str(t.name))[:_LONGEST_NAME] for t in cells_threads()[:_MOST_NAMES]]


def _reseed(seed: bytes) -> None:
    """Seed the global generators, so that no two guests draw the same secrets."""
    _seed_global(seed)
    effects.rekey()
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        with contextlib.suppress(Exception):  # a cell may have put another module there
            seed_words = [int.from_bytes(seed[i : i + 4]) for i in range(0, len(seed), 4)]
            numpy.seed(seed_words)
