"""Mounts of one session, where guests of several sessions are forked from one zygote.

Guests of one zygote have its mount and pid namespaces. So they would share its /dev/shm, see each
other's processes in its /proc, and each other's folders by name. The sandboxes of a pool therefore
have a mount namespace each, in which

- /dev/shm is empty and the session's own,
- /proc shows a process those that it might trace: itself, and programs of its own session. Guests
  can't trace each other: each is in a user namespace of its own, and no guest is dumpable,
- of the pool's scratch folder the session's own folder is left,
- all that its cells don't write is read-only, if the OS kernel can do that (``layer.seal``).

Sessions that stage what they write have a zygote each instead: an overlay is asked for before a
cell, and ends in the process that lets go of it last, and here all would wait for that.

A zygote has given up the rights to make one before it imports anything that a policy names. So the
mounter makes it (``serve``), and keeps those rights: it was forked before, no guest has a line to
it, and it takes requests (``_Request``) from the zygote alone. The zygote gets descriptors of the
namespaces, and its fork enters them (``SessionNamespaces.enter``): by setns(2) it gets all rights
in them, which the first of its locks drops again. The zygote's own filter lets setns(2) through and
neither unshare(2) nor mount(2), so that code which a zygote imports can make no namespaces of its
own.

Gap: /proc hides processes that cells have forked, and that have started no program since: they are
no more dumpable than the guest. They can be signalled and waited for all the same.

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
#: Only processes that the reader might trace are shown (proc(5), "ptraceable").
_HIDE: Final = "hidepid=4"
_IN_MEMORY: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC
#: Room for one empty folder.
_EMPTY: Final = "size=4k,nr_inodes=4,mode=0755"
_LONGEST: Final = 1 << 16
#: Descriptors that one message brings at most (unix(7)).
_MOST_DESCRIPTORS: Final = 253
#: The number of the answer that is not asked for: whether there can be sessions.
_BEGUN: Final = 0
#: Seconds that the mounter has to begin in, while nobody else waits.
_BEGINNING: Final = 10.0
#: Seconds that it has for a session's mounts, while all others wait: it takes some milliseconds.
PATIENCE: Final = 3.0
#: Seconds for what is there already; 0 would be no timeout but an error (``settimeout``).
_AT_ONCE: Final = 0.001


class _Beginning(msgspec.Struct):
    """Serve sessions, each with a /dev/shm of ``memory`` bytes; with 0 they have none.

    If ``seals``, all is read-only but a session's own folder and what all write, ``shared``.
    """

    memory: int
    shared: tuple[str, ...]
    seals: bool


class _Request(msgspec.Struct):
    """Make mounts for the session whose scratch folder this is."""

    number: int
    scratch: str


class _Answer(msgspec.Struct):
    """What came of the request of that number: an errno, or 0 with descriptors beside it."""

    number: int
    error: int = 0


# --- the mounter --------------------------------------------------------------------------------


def serve(line: _socket.socket, asked: bytes) -> None:
    """Make namespaces, each in a process of its own, until the zygote is gone.

    ``asked`` is an encoded ``_Beginning``. The first answer says whether sessions can be had at
    all. No request waits for another.
    """
    beginning = msgspec.msgpack.decode(asked, type=_Beginning)
    try:
        # What is mounted here is in every session's namespace, which is a copy of this one.
        libc.unshare(layer.CLONE_NEWNS)
        mount("none", "/", "", layer.MS_REC | layer.MS_PRIVATE)
        _hide_processes()
    except OSError as error:
        _answer(line, _Answer(_BEGUN, error.errno or errno.EIO))
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for them
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
    """Do what one request asks for, say so, and end this process."""
    answer, opened = _Answer(request.number, errno.EIO), list[int]()
    try:
        opened = _make(request.scratch, beginning)
        answer.error = 0
    except (OSError, ConfineError) as error:
        answer.error = error.errno or errno.EIO
    finally:
        _answer(line, answer, () if answer.error else opened)
        os._exit(0)


def _make(scratch: str, beginning: _Beginning) -> list[int]:
    """Enter namespaces that are made for a session; return what ``SessionNamespaces`` takes.

    Raises OSError and ConfineError.
    """
    layer.enter_user_namespace()
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]
    own = [scratch]
    if beginning.memory:
        layer.mount_shared_memory(beginning.memory)
        opened.append(os.open(SHARED_MEMORY, layer.FOLDER))
        own.append(SHARED_MEMORY)
    _leave_only(scratch)
    if beginning.seals and not layer.seal((*beginning.shared, *own), apart=True):
        raise OSError(errno.EIO, "not all is read-only")
    return opened


def enter(user: int, mounts: int) -> None:
    """Move this process, which has one thread, into these namespaces. Raises OSError."""
    libc.setns(user, layer.CLONE_NEWUSER)
    libc.setns(mounts, layer.CLONE_NEWNS)


def _hide_processes() -> None:
    """Mount /proc anew, with those processes alone that the reader might trace.

    What covers parts of the present one covers the same parts of the new one.
    """
    covers = [path for path, _, _ in layer.mounts() if path.startswith(f"{PROC}/")]
    tops = [path for path in covers if not any(path.startswith(f"{top}/") for top in covers)]
    opened = [(path, os.open(path, PLACE)) for path in tops]
    mount("proc", PROC, "proc", _IN_MEMORY, _HIDE)
    for path, fd in opened:
        mount(by(fd), path, "", MS_BIND | layer.MS_REC)
        os.close(fd)


def _leave_only(folder: str) -> None:
    """Have nothing but ``folder`` be in the folder that it lies in."""
    above = os.path.dirname(folder)
    own = os.open(folder, PLACE)
    mount("tmpfs", above, "tmpfs", _IN_MEMORY, _EMPTY)
    os.mkdir(folder, 0o700)
    mount(by(own), folder, "", MS_BIND)
    mount("none", above, "", MS_REMOUNT | MS_RDONLY | _IN_MEMORY)
    os.close(own)


# --- the line between the two -------------------------------------------------------------------


def _answer(line: _socket.socket, answer: _Answer, fds: Sequence[int] = ()) -> None:
    with contextlib.suppress(OSError):
        # The zygote reads all answers before it waits for another one.
        _send(line, msgspec.msgpack.encode(answer), fds, socket.MSG_DONTWAIT)


def _send(line: _socket.socket, data: bytes, fds: Sequence[int], flags: int = 0) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    line.sendmsg([data], rights if fds else [], flags)


def _receive(line: _socket.socket) -> tuple[bytes, list[int]]:
    """Return a message and its descriptors. Raises OSError where the other side has ended."""
    space, fds = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4), array.array("i")
    data, ancillary, _, _ = line.recvmsg(_LONGEST, space, socket.MSG_CMSG_CLOEXEC)
    for _, _, payload in ancillary:
        fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if not data:
        raise OSError(errno.EIO, "the process that mounts has ended")
    return data, list(fds)


# --- the zygote, and its forks ------------------------------------------------------------------


def can_seal(writable: Sequence[str]) -> bool:
    """Return whether all but ``writable`` can be made read-only for a session.

    By a trial, in a process of its own: before the zygote's locks, which guests are under, too.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            layer.enter_user_namespace()
            status = 0 if layer.seal(writable, apart=True) else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


class SessionNamespaces:
    """The namespaces of one session, by descriptors; ``scratch`` is its folder."""

    def __init__(self, user: int, mounts: int, scratch: str) -> None:
        self.namespaces = (user, mounts)
        self.scratch = scratch

    def enter(self) -> ConfineError | None:
        """Move this process, which has one thread, into them; return why that failed."""
        try:
            enter(*self.namespaces)
        except OSError as error:
            return ConfineError("namespaces", error.errno or 0, "a session's mounts")
        return None

    def close(self) -> None:
        """Let go of them: its processes keep them."""
        for fd in self.namespaces:
            os.close(fd)


class SessionMounter:
    """The zygote's line to a mounter that makes namespaces for sessions, and those that there are.

    It is asked to begin at once, and does so while the zygote imports; ``wait`` comes before the
    first session. Where it answers late, that session is not had; what it answers then is thrown
    away, and the next session is asked for as before. ``tell`` sends the host a message, with a
    descriptor that is closed then.
    """

    def __init__(
        self,
        line: socket.socket,
        plan: Plan,
        scratch: str,
        tell: Callable[[msgspec.Struct, int], None],
    ) -> None:
        self._line, self._tell = line, tell
        self._numbers = itertools.count(_BEGUN + 1)
        #: By the session's scratch folder, which names it.
        self._sessions: dict[str, SessionNamespaces] = {}
        #: The sessions that forks are of, by their numbers.
        self._of_forks: dict[int, str] = {}
        own = {scratch, SHARED_MEMORY}
        shared = tuple(path for path in plan.write_roots if path not in own)
        beginning = _Beginning(plan.shared_memory, shared, plan.attributes)
        line.send(SESSIONS + msgspec.msgpack.encode(beginning))

    def wait(self) -> None:
        """Wait until sessions can be served. Raises ConfineError where they can't be."""
        try:
            self._read(_BEGUN, _BEGINNING)
        except OSError as error:
            raise ConfineError("namespaces", error.errno or 0, "a session's mounts") from error

    def enter_fork(self, number: int, scratch: str) -> SessionNamespaces:
        """Return the namespaces that a fork is to enter: its session's, made for the first one.

        Raises OSError.
        """
        if (there := self._sessions.get(scratch)) is None:
            asked = _Request(next(self._numbers), scratch)
            self._line.settimeout(PATIENCE)
            _send(self._line, msgspec.msgpack.encode(asked), ())
            user, mounts, *memory = self._read(asked.number, PATIENCE)
            there = self._sessions[scratch] = SessionNamespaces(user, mounts, scratch)
            for fd in memory:
                self._tell(SharedMemory(scratch=scratch), fd)
        self._of_forks[number] = scratch
        return there

    def of_fork(self, number: int) -> SessionNamespaces | None:
        """Return the namespaces that a fork has entered, if it has."""
        return self._sessions.get(self._of_forks.get(number, ""))

    def end_forks(self, forks: Sequence[int]) -> None:
        """Forget forks that end, and with them the session that they are of."""
        for scratch in {self._of_forks.pop(number, "") for number in forks}:
            if (there := self._sessions.pop(scratch, None)) is not None:
                there.close()

    def _read(self, number: int, seconds: float) -> list[int]:
        """Return the descriptors that come with the answer of that number. Raises OSError."""
        end = time.monotonic() + seconds
        while True:
            self._line.settimeout(max(end - time.monotonic(), _AT_ONCE))
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
