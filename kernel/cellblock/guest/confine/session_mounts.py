"""Mounts for each session, if one zygote forks the guests of several sessions.

Guests inherit the mount and pid namespaces of their zygote. Without further measures they would
share its /dev/shm, see each other's processes in /proc, and see each other's folders by name. So
each sandbox of a pool has a mount namespace of its own, in which

- /dev/shm is empty and belongs to the session,
- /proc shows a process only those that it might trace: itself, and programs of its own session.
  Guests can't trace each other, because each session has a user namespace of its own, and no guest
  is dumpable,
- the pool's scratch folder contains the session's own folder only,
- everything that its cells don't write is read-only, if the OS kernel can do that (``layer.seal``).

The zygote has dropped the rights to make such a namespace before it imports anything that a policy
names. The mounter (``guest.mounter``) keeps these rights, and makes the namespaces (``serve``). It
was forked before, no guest has a connection to it, and it takes requests from the zygote only:

    zygote: SessionMounter ── _Request ──> mounter: serve ── forks ──> child: makes the namespaces
            ^──────────────── _Answer, with descriptors ──────────────────┘
    fork of the zygote: SessionNamespaces.enter, then its locks

By setns(2) the fork gets all rights in the namespaces, and its first lock drops these again. The
zygote's own filter allows setns(2) and neither unshare(2) nor mount(2), so that code which the
zygote imports can't make namespaces.

Sessions that stage what they write have a zygote each instead. Their overlay must be refreshed
before a cell, and is taken down by the last process that releases it; all sessions of one zygote
would wait for that.

Gap: /proc also hides processes that cells have forked and that have started no program since,
because they are not dumpable either, like the guest. They can be signalled and waited for all the
same.

Source: mount_namespaces(7), user_namespaces(7), setns(2); proc(5), hidepid.
"""

from __future__ import annotations

import array
import contextlib
import errno
import itertools
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.guest.confine import layer, libc
from cellblock.guest.confine.libc import ConfineError
from cellblock.guest.mounting import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    PLACE,
    SESSIONS,
    by,
    mount,
)
from cellblock.wire.messages import SHARED_MEMORY, SharedMemory

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence

    from cellblock.wire.messages import Plan

PROC: Final = "/proc"
#: Mount option of /proc: show only processes that the reader might trace (proc(5), "ptraceable").
_HIDE: Final = "hidepid=4"
_IN_MEMORY: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC
#: Mount options of a tmpfs with room for one empty folder.
_EMPTY: Final = "size=4k,nr_inodes=4,mode=0755"
_LONGEST: Final = 1 << 16
#: Descriptors that one message brings at most (unix(7)).
_MOST_DESCRIPTORS: Final = 253
#: Number of the mounter's first answer, which needs no request: whether sessions can have mounts.
_BEGUN: Final = 0
#: Seconds in which that answer must come. No session waits yet.
_BEGINNING: Final = 10.0
#: Seconds in which a session's namespaces must come, while all other sessions of the zygote wait.
#: It takes some milliseconds.
PATIENCE: Final = 3.0
#: Seconds to wait for an answer when the time is up: read one that is there, and wait no longer.
#: Not 0, which would make the socket non-blocking (``settimeout``).
_AT_ONCE: Final = 0.001


class _Beginning(msgspec.Struct):
    """Serve sessions, each with a /dev/shm of ``memory`` bytes; with 0 they have none.

    If ``seals``, all is read-only but a session's own folder and what all write, ``shared``.
    """

    memory: int
    shared: tuple[str, ...]
    seals: bool


class _Request(msgspec.Struct):
    """Asks the mounter for the namespaces of the session with this scratch folder."""

    number: int
    scratch: str


class _Answer(msgspec.Struct):
    """The answer to the request with this number: an errno, or 0 and descriptors beside it."""

    number: int
    error: int = 0


# --- the mounter --------------------------------------------------------------------------------


def serve(line: _socket.socket, first: bytes) -> None:
    """Make namespaces for sessions until the zygote is gone. Runs in the mounter.

    Each request is served by a process of its own, so that none waits for another. ``first`` is an
    encoded ``_Beginning``. The first answer says whether sessions can have mounts at all.
    """
    beginning = msgspec.msgpack.decode(first, type=_Beginning)
    try:
        # Each session's namespace is a copy of this one, with all that is mounted here.
        libc.unshare(layer.CLONE_NEWNS)
        mount("none", "/", "", layer.MS_REC | layer.MS_PRIVATE)
        _hide_processes()
    except OSError as error:
        _answer(line, _Answer(_BEGUN, error.errno or errno.EIO))
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need no reaping
    _answer(line, _Answer(_BEGUN))
    with contextlib.suppress(OSError):
        while True:
            data, _ = _receive(line)
            request = msgspec.msgpack.decode(data, type=_Request)
            try:
                child = os.fork()
            except OSError as error:
                _answer(line, _Answer(request.number, error.errno or errno.EIO))
                continue
            if child == 0:
                _serve(line, request, beginning)


def _serve(line: _socket.socket, request: _Request, beginning: _Beginning) -> None:
    """Make the namespaces that one request asks for, send the answer, and end this process."""
    answer = _Answer(request.number, errno.EIO)
    opened = list[int]()
    try:
        opened = _make(request.scratch, beginning)
        answer.error = 0
    except (OSError, ConfineError) as error:
        answer.error = error.errno or errno.EIO
    finally:
        _answer(line, answer, () if answer.error else opened)
        os._exit(0)


def _make(scratch: str, beginning: _Beginning) -> list[int]:
    """Enter new namespaces and make a session's mounts in them. Raises OSError and ConfineError.

    Return descriptors of the user namespace and the mount namespace, and if there is one of the
    /dev/shm.
    """
    layer.enter_user_namespace()
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]
    own_paths = [scratch]
    if beginning.memory:
        layer.mount_shared_memory(beginning.memory)
        opened.append(os.open(SHARED_MEMORY, layer.FOLDER))
        own_paths.append(SHARED_MEMORY)
    _leave_only(scratch)
    if beginning.seals and not layer.seal((*beginning.shared, *own_paths), apart=True):
        raise OSError(errno.EIO, "not all is read-only")
    return opened


def enter(user: int, mounts: int) -> None:
    """Move this process, which has one thread, into these namespaces. Raises OSError."""
    libc.setns(user, layer.CLONE_NEWUSER)
    libc.setns(mounts, layer.CLONE_NEWNS)


def _hide_processes() -> None:
    """Mount another /proc, which shows each reader only processes that it might trace.

    Whatever is mounted over parts of the present /proc is mounted over the same parts of the new
    one. Raises OSError.
    """
    covers = [path for path, _, _ in layer.mounts() if path.startswith(f"{PROC}/")]
    tops = [path for path in covers if not any(path.startswith(f"{top}/") for top in covers)]
    opened = [(path, os.open(path, PLACE)) for path in tops]
    mount("proc", PROC, "proc", _IN_MEMORY, _HIDE)
    for path, fd in opened:
        mount(by(fd), path, "", MS_BIND | layer.MS_REC)
        os.close(fd)


def _leave_only(folder: str) -> None:
    """Hide all siblings of ``folder``, which stays in place. Raises OSError."""
    parent = os.path.dirname(folder)
    fd = os.open(folder, PLACE)
    mount("tmpfs", parent, "tmpfs", _IN_MEMORY, _EMPTY)
    os.mkdir(folder, 0o700)
    mount(by(fd), folder, "", MS_BIND)
    mount("none", parent, "", MS_REMOUNT | MS_RDONLY | _IN_MEMORY)
    os.close(fd)


# --- the line between the two -------------------------------------------------------------------


def _answer(line: _socket.socket, answer: _Answer, fds: Sequence[int] = ()) -> None:
    with contextlib.suppress(OSError):
        # Without waiting: the zygote reads every answer, so there is always room for one.
        _send(line, msgspec.msgpack.encode(answer), fds, socket.MSG_DONTWAIT)


def _send(line: _socket.socket, data: bytes, fds: Sequence[int], flags: int = 0) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    line.sendmsg([data], rights if fds else [], flags)


def _receive(line: _socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and its descriptors. Raises OSError if the other process has ended."""
    space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
    fds = array.array("i")
    data, ancillary, _, _ = line.recvmsg(_LONGEST, space, socket.MSG_CMSG_CLOEXEC)
    for _, _, payload in ancillary:
        fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if not data:
        raise OSError(errno.EIO, "the process that mounts has ended")
    return data, list(fds)


# --- the zygote, and its forks ------------------------------------------------------------------


class SessionNamespaces:
    """The namespaces of one session, as descriptors; ``scratch`` is the session's folder."""

    def __init__(self, user: int, mounts: int, scratch: str) -> None:
        self.namespaces = (user, mounts)
        self.scratch = scratch

    def enter(self) -> ConfineError | None:
        """Move this process, which has one thread, into them; return the error if that failed."""
        try:
            enter(*self.namespaces)
        except OSError as error:
            return ConfineError("namespaces", error.errno or 0, "a session's mounts")
        return None

    def close(self) -> None:
        """Close the descriptors. The namespaces last as long as the session's processes."""
        for fd in self.namespaces:
            os.close(fd)


class SessionMounter:
    """The zygote's connection to the mounter, and the namespaces of all its sessions.

    The mounter begins at once, while the zygote imports. Call ``wait`` before the first session.
    If the mounter answers a request too late, that session can't be had; the late answer is thrown
    away, and the mounter is asked again for the next session. ``tell`` sends the host a message
    with a descriptor, which it closes.
    """

    def __init__(
        self,
        line: socket.socket,
        plan: Plan,
        scratch: str,
        tell: Callable[[msgspec.Struct, int], None],
    ) -> None:
        self._line = line
        self._tell = tell
        self._numbers = itertools.count(_BEGUN + 1)
        #: By the session's scratch folder, which identifies the session.
        self._sessions: dict[str, SessionNamespaces] = {}
        #: By the number of a fork: the scratch folder of its session.
        self._of_forks: dict[int, str] = {}
        own_paths = {scratch, SHARED_MEMORY}
        shared = tuple(path for path in plan.write_roots if path not in own_paths)
        beginning = _Beginning(plan.shared_memory, shared, plan.attributes)
        line.send(SESSIONS + msgspec.msgpack.encode(beginning))

    def wait(self) -> None:
        """Wait until the mounter can make mounts for sessions. Raises ConfineError if it can't."""
        try:
            self._read(_BEGUN, _BEGINNING)
        except OSError as error:
            raise ConfineError("namespaces", error.errno or 0, "a session's mounts") from error

    def enter_fork(self, number: int, scratch: str) -> SessionNamespaces:
        """Return the namespaces that fork ``number`` must enter: those of its session.

        They are made for the session's first fork. ``scratch`` identifies the session. Raises
        OSError.
        """
        if (namespaces := self._sessions.get(scratch)) is None:
            request = _Request(next(self._numbers), scratch)
            self._line.settimeout(PATIENCE)
            _send(self._line, msgspec.msgpack.encode(request), ())
            user, mounts, *memory = self._read(request.number, PATIENCE)
            namespaces = SessionNamespaces(user, mounts, scratch)
            self._sessions[scratch] = namespaces
            for fd in memory:
                self._tell(SharedMemory(scratch=scratch), fd)
        self._of_forks[number] = scratch
        return namespaces

    def of_fork(self, number: int) -> SessionNamespaces | None:
        """Return the namespaces that fork ``number`` has entered, or None."""
        return self._sessions.get(self._of_forks.get(number, ""))

    def end_forks(self, forks: Sequence[int]) -> None:
        """Forget these forks and their session, whose namespaces are closed here."""
        for scratch in {self._of_forks.pop(number, "") for number in forks}:
            if (namespaces := self._sessions.pop(scratch, None)) is not None:
                namespaces.close()

    def _read(self, number: int, seconds: float) -> list[int]:
        """Return the descriptors that come with the answer to request ``number``.

        Waits up to ``seconds``. Descriptors of late answers to earlier requests are closed. Raises
        OSError.
        """
        deadline = time.monotonic() + seconds
        while True:
            self._line.settimeout(max(deadline - time.monotonic(), _AT_ONCE))
            try:
                data, fds = _receive(self._line)
            except TimeoutError:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
            answer = msgspec.msgpack.decode(data, type=_Answer)
            if answer.number == number and not answer.error:
                return fds
            for fd in fds:
                os.close(fd)
            if answer.number == number:
                raise OSError(answer.error, os.strerror(answer.error))
