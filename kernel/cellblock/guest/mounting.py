"""Mounting: by whoever lays layers, makes mounts for sessions, or changes what is mounted there.

The mounter imports this before anything of weight is: it imports little.

Source: mount(2), mount_namespaces(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
#: The first that it is asked where it makes mounts for sessions; what follows is read there.
SESSIONS = b"sessions:"

_libc = ctypes.CDLL(None, use_errno=True)


def namespaces() -> list[int]:
    """Open those that this process is in, for the mounter to enter. Raises OSError."""
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]


def enter_namespace(fd: int, kind: int) -> None:
    """Enter a namespace (setns(2)). Raises OSError."""
    _call(_libc.setns, fd, kind)


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


def forget(merged: Sequence[int]) -> None:
    """Have overlays, which are opened, forget what they have looked up. Raises OSError."""
    for fd in merged:
        mount("none", by(fd), "", MS_REMOUNT | MS_NOSUID | MS_NODEV)


def cover(path: str, at: int, empty: tuple[int, int]) -> None:
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
