"""The mounter: a process that may mount where a zygote is, when the zygote itself no longer may.

An overlay remembers the names that it has looked up: a file that the user adds or replaces below
would stay missing, or as it was. Mounted anew with the same options it forgets them
(``shrink_dcache_sb``), which takes the rights that the zygote drops. So another process keeps them,
does that, and ends with the zygote. It also covers what a narrower policy denies of a layer: cut
out of Landlock's rules, all would be denied that cells made beside it. A mount holds whatever is
made, moved or deleted, above it and below.

The zygote alone has a line to the mounter (``confine.layer.Mounter``), and asks it when the host
says so: whoever has privileges waits for no guest, and no guest can have it do anything.

What it has it keeps, like the ``reaper``: it is forked before anything of weight is imported, when
it is not known yet whether there will be layers, and imports little. Where there are, the zygote
sends it the namespaces that they are in, and it enters those (setns(2)). Else it ends.
"""

from __future__ import annotations

import _socket
import array
import contextlib
import ctypes
import errno
import os
import signal
import stat

from cellblock.guest.reaper import set_attribute

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_NAME = ctypes.create_string_buffer(b"cb-mounter")
# <linux/sched.h>
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
# <linux/mount.h>
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
#: Flags of a mount that one in a user namespace must keep (mount_namespaces(7)).
_KEPT = (
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, 1024),
    (os.ST_NODIRATIME, 2048),
    (os.ST_RELATIME, 1 << 21),
)
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: What the zygote asks: that all layers forget what they looked up; else the path of a layer that
#: is to be covered, behind the layer's number and a colon.
REFRESH = b"refresh"
_LONGEST = 1 << 16
#: Descriptors that one message brings at most (unix(7)).
_MOST_DESCRIPTORS = 253
_LINE = 3

_libc = ctypes.CDLL(None, use_errno=True)


# --- for the zygote -------------------------------------------------------------------------------


def fork() -> int:
    """Fork a mounter; return the zygote's end of the line to it. Raises OSError."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    zygote = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()
            _isolate(zygote)
            os.dup2(theirs.fileno(), _LINE)
            os.closerange(_LINE + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
            _serve(_socket.socket(fileno=_LINE), zygote)
        finally:
            os._exit(0)
    theirs.close()
    return ours.detach()


def namespaces() -> list[int]:
    """Open those that the mounter is to enter. Raises OSError."""
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]


# --- the process ----------------------------------------------------------------------------------


def _isolate(zygote: int) -> None:
    """End with the zygote, and let nobody trace this process."""
    set_attribute(_PR_SET_NAME, ctypes.addressof(_NAME))
    set_attribute(_PR_SET_PDEATHSIG, signal.SIGKILL)
    set_attribute(_PR_SET_DUMPABLE, 0)
    if os.getppid() != zygote:  # before it was asked for
        os._exit(1)


def _serve(line: _socket.socket, zygote: int) -> None:
    """Enter where the zygote has laid layers, and mount what it asks for, until it is gone."""
    _, ancillary, _, _ = line.recvmsg(1, _socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4))
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    if not fds:
        return  # nothing is staged
    user, mounts, *merged, folder, file = fds
    _enter(user, mounts)
    _isolate(zygote)  # other rights took that back (prctl(2))
    while question := line.recv(_LONGEST):
        answer = str(_mount(question, merged, (folder, file))).encode()
        line.send(answer, _socket.MSG_DONTWAIT)  # the zygote reads one before it asks


def _enter(user: int, mounts: int) -> None:
    if os.fstat(user).st_ino != os.stat("/proc/self/ns/user").st_ino:
        _call(_libc.setns, user, _CLONE_NEWUSER)
    _call(_libc.setns, mounts, _CLONE_NEWNS)
    os.close(user)
    os.close(mounts)


def _mount(question: bytes, merged: Sequence[int], empty: tuple[int, int]) -> int:
    """Do what the zygote asks for; return an errno, or 0."""
    try:
        if question == REFRESH:
            for fd in merged:
                mount("none", by(fd), "", MS_REMOUNT | MS_NOSUID | MS_NODEV)
        else:
            number, _, path = question.partition(b":")
            _cover(os.fsdecode(path), merged[int(number)], empty)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _cover(path: str, at: int, empty: tuple[int, int]) -> None:
    """Mount nothing over a path in folder ``at``, which is made where it is not there."""
    with contextlib.ExitStack() as stack:
        *folders, last = path.split("/")
        for name in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
            at = walk(at, name, stack)
        with contextlib.suppress(FileExistsError):
            os.mkdir(last, dir_fd=at)
        is_folder = stat.S_ISDIR(os.fstat(place := walk(at, last, stack)).st_mode)
        mount(by(empty[0 if is_folder else 1]), by(place), "", MS_BIND)
        make_read_only(walk(at, last, stack))


# --- mounting, for whoever lays a layer, too ------------------------------------------------------


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount something, or change a mount (mount(2)). Raises OSError."""
    words = [ctypes.c_char_p(os.fsencode(word)) for word in (source, target, kind)]
    data = ctypes.c_char_p(options.encode()) if options else None
    _call(_libc.mount, *words, ctypes.c_ulong(flags), data)


def make_read_only(fd: int) -> None:
    """Have a mount be read-only, and else as it was. Raises OSError."""
    flags = os.fstatvfs(fd).f_flag
    kept = sum(each for flag, each in _KEPT if flags & flag)
    mount("none", by(fd), "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def by(fd: int) -> str:
    """Return a name for what is opened."""
    return f"/proc/self/fd/{fd}"


def walk(folder: int, path: str, stack: contextlib.ExitStack) -> int:
    """Open what lies beneath a folder, through no link. Raises OSError."""
    for name in path.split("/"):
        folder = os.open(name, PLACE, dir_fd=folder)
        stack.callback(os.close, folder)
        if stat.S_ISLNK(os.fstat(folder).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return folder


def _call(function: Any, *args: Any) -> None:
    if function(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
