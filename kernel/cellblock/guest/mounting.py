"""Mounting: the calls that the zygote and the mounter use to mount layers and sessions' folders.

Used by ``confine.layer`` (the zygote mounts layers), ``mounter`` (changes them later) and
``confine.session_mounts``. Imports little, because the mounter stays small and imports this before
anything larger.

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
#: Flags that a remount in a user namespace must keep, each as statvfs(3) reports it and as mount(2)
#: takes it. Source: mount_namespaces(7).
_KEPT = (
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, 1024),
    (os.ST_NODIRATIME, 2048),
    (os.ST_RELATIME, 1 << 21),
)
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: Question to the mounter: make all layers forget the names that they have looked up. The other
#: question is a path to be covered, behind its layer's number and a colon.
REFRESH = b"refresh"
#: First message to a mounter that will make mounts for sessions; ``session_mounts`` reads the rest.
SESSIONS = b"sessions:"

_libc = ctypes.CDLL(None, use_errno=True)


def namespaces() -> list[int]:
    """Open this process's user and mount namespace, for the mounter to enter. Raises OSError."""
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]


def enter_namespace(fd: int, kind: int) -> None:
    """Enter a namespace (setns(2)). Raises OSError."""
    _call(_libc.setns, fd, kind)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount something, or change a mount (mount(2)). Raises OSError."""
    arguments = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind)]
    data = ctypes.c_char_p(options.encode()) if options else None
    _call(_libc.mount, *arguments, ctypes.c_ulong(flags), data)


def make_read_only(fd: int) -> None:
    """Make the mount at a descriptor read-only, with its other flags unchanged. Raises OSError."""
    flags = os.fstatvfs(fd).f_flag
    kept_flags = sum(mount_flag for flag, mount_flag in _KEPT if flags & flag)
    mount("none", by(fd), "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept_flags)


def by(fd: int) -> str:
    """Return a path that names an open descriptor."""
    return f"/proc/self/fd/{fd}"


def walk(folder: int, path: str, stack: contextlib.ExitStack) -> int:
    """Open ``path`` beneath an open folder, following no link. Raises OSError.

    ``stack`` closes the descriptors.
    """
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
    """Make overlays forget the names that they have looked up, by remounting. Raises OSError.

    ``merged`` are descriptors of the overlays.
    """
    for fd in merged:
        mount("none", by(fd), "", MS_REMOUNT | MS_NOSUID | MS_NODEV)


def cover(path: str, folder_fd: int, empty: tuple[int, int]) -> None:
    """Mount the empty folder or file of ``empty`` over ``path`` beneath the folder ``folder_fd``.

    If there is nothing at ``path``, a folder is made there first, so that none can be made later.
    Raises OSError.
    """
    with contextlib.ExitStack() as stack:
        *folders, last = path.split("/")
        for name in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder_fd)
            folder_fd = walk(folder_fd, name, stack)
        with contextlib.suppress(FileExistsError):
            os.mkdir(last, dir_fd=folder_fd)
        is_folder = stat.S_ISDIR(os.fstat(target_fd := walk(folder_fd, last, stack)).st_mode)
        mount(by(empty[0 if is_folder else 1]), by(target_fd), "", MS_BIND)
        make_read_only(walk(folder_fd, last, stack))
