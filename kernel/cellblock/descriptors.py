"""Files by their descriptors: opened through no link, closed again; folders removed.

A path is resolved once, where a policy is read (``policy.paths``). Cells may put a link in a
folder's place after that, so what is used from then on is the descriptor of what was opened.

``remove_tree`` removes a folder that hostile code has filled: deep, unreadable, oddly named, full
of links. ``shutil.rmtree`` recurses, holds a descriptor per level and gives up where it may not
read.

``with_hidden_options`` gives a program arguments that a process listing does not show.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import os
import select
import stat
import sys
import time

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_MACOS = sys.platform == "darwin"
#: For naming a place: no pipe is waited for and no device touched.
_PLACE = os.O_RDONLY | os.O_NONBLOCK if _MACOS else os.O_PATH
#: Of macOS' open(2).
_O_NOFOLLOW_ANY = 0x20000000 if _MACOS else 0
#: What a session's folder is called, and what the private folder around each begins with.
SCRATCH = "scratch"
SCRATCH_PREFIX = "cellblock-"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: To read; it does not block on a named pipe.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: To write what is not there yet.
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


#: <asm-generic/socket.h>, from Linux 6.16 on.
SO_PASSRIGHTS = 83


def refuse_descriptors(sock: _socket.socket) -> None:
    """Have the OS kernel refuse whoever sends descriptors to this end of a Unix socket (EPERM).

    Whoever lets go of a file's last descriptor frees the file, in a call that no signal ends: of
    one in 10,000 pieces that takes 20 seconds. A descriptor that is not taken is let go of by the
    receiver, so a guest could hold the host up. Before Linux 6.16 nothing refuses it.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(_socket.SOL_SOCKET, SO_PASSRIGHTS, 0)


def is_readable(fd: int | _socket.socket, seconds: float | None = 0.0) -> bool:
    """Whether something can be read, or its end is there, now or within ``seconds``; None: ever.

    By poll(2): select(2) knows no descriptor from 1,024 on.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_unlinked(path: str, flags: int = _PLACE) -> int:
    """Return a descriptor of what a canonical path names. Raises OSError: ELOOP for a link in it.

    What was opened says itself where it is (proc(5)), so a link does not matter that comes or goes
    meanwhile.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | _O_NOFOLLOW_ANY)
    if not _MACOS and os.readlink(f"/proc/self/fd/{fd}") != path:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def open_beneath(folder: int, path: str) -> int:
    """Return a descriptor of the folder ``path`` beneath another. Raises OSError: ELOOP for a link.

    A path without ``..``; an empty one is the folder itself.
    """
    found = os.open(".", FOLDER, dir_fd=folder)
    for name in path.split("/"):
        if name:
            with closing(found) as above:
                found = os.open(name, FOLDER, dir_fd=above)
    return found


def stat_unlinked(path: str) -> os.stat_result:
    """Return the status of what a canonical path names. Raises OSError as ``open_unlinked``."""
    with closing(open_unlinked(path)) as fd:
        return os.fstat(fd)


def identity(path: str) -> tuple[int, int]:
    """Return device and inode of what a canonical path names; zeros where nothing is there."""
    try:
        found = stat_unlinked(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def status(folder: int | None, name: str) -> os.stat_result | None:
    """Return what a folder has under a name; None without either."""
    try:
        return None if folder is None else os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def read_regular(fd: int, most: int) -> bytes | None:
    """Return at most ``most`` bytes of a regular file, None of anything else. Raises OSError."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    with open(fd, "rb", closefd=False) as file:
        return file.read(most)


def lock(fd: int, how: int = fcntl.LOCK_EX, patience: float = 0.0) -> None:
    """Lock a file (flock(2)), waiting so many seconds at most. Raises OSError where that fails."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(patience / 100)
        else:
            return


# --- arguments that a process listing does not show -----------------------------------------------
#
# Anybody can read the command line of anybody's process (proc(5)), and the options of a wrapper
# name the folders of a policy. So they are written to a file in memory (memfd_create(2)) and read
# from a descriptor, as ``--args FD`` of bwrap(1). It is gone when its last reader has closed it.

#: Between a program's options and what it starts.
END = "--"


@contextlib.contextmanager
def written_args(args: Iterable[str]) -> Iterator[int]:
    """Yield an inheritable descriptor from which ``args`` can be read, each ended by a zero byte.

    Raises OSError where there is none.
    """
    with open(os.memfd_create("args", 0), "wb", buffering=0) as file:
        file.write(b"".join(os.fsencode(arg) + b"\0" for arg in args))
        file.seek(0)
        yield file.fileno()


@contextlib.contextmanager
def with_hidden_options(
    program: str, options: Sequence[str], argv: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the command that starts ``argv`` behind ``program``, with its options hidden."""
    with written_args(options) as fd:
        yield [program, "--args", str(fd), END, *argv]


def read_args(fd: int) -> list[str]:
    """Return the arguments that were written to ``fd``, and close it."""
    with open(fd, "rb") as file:
        return [os.fsdecode(arg) for arg in file.read().split(b"\0")[:-1]]


_NAMED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: str) -> None:
    """Remove ``folder`` and all in it, following no link; what can't be removed stays.

    What is mounted in it stays too: in a zygote's namespace that is what cells staged.
    So is the private one around a scratch folder.
    """
    with contextlib.suppress(OSError):
        _empty(folder)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    above, name = os.path.split(folder.rstrip("/"))
    if name == SCRATCH and os.path.basename(above).startswith(SCRATCH_PREFIX):
        with contextlib.suppress(OSError):
            os.rmdir(above)


def _empty(folder: str) -> None:
    """Walk with one descriptor, down by name and up by ``..``.

    Raises OSError when the way back up is not the way down.
    """
    here = _open(folder, None)
    device, _ = _identity(here)
    #: The folders above: what they are, the name that leads down, what else is in them.
    above: list[tuple[tuple[int, int], str, list[str]]] = []
    try:
        folders = _unlink_files(here)
        while folders or above:
            before = here
            if folders:
                name = folders.pop()
                with contextlib.suppress(OSError):
                    here = _open(name, before)
                if here != before and _identity(here)[0] != device:
                    os.close(here)
                    here = before
                if here != before:
                    above.append((_identity(before), name, folders))
                    os.close(before)
                    folders = _unlink_files(here)
                continue
            identity, name, folders = above.pop()
            here = os.open("..", FOLDER, dir_fd=before)
            os.close(before)
            if _identity(here) != identity:
                raise OSError("a folder was moved while it was being removed")
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)


def _unlink_files(folder: int) -> list[str]:
    """Unlink what is in a folder; return the names of the folders."""
    folders = []
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            folders.append(name)
        except OSError:
            continue
    return folders


def open_folder(name: str, within: int | None) -> int:
    """Open a folder; one that its maker has no right to read is made readable first."""
    try:
        return os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        with closing(os.open(name, _NAMED, dir_fd=within)) as named:
            # A path to a descriptor follows no link that a name might.
            os.chmod(f"/proc/self/fd/{named}", stat.S_IRWXU)
    return os.open(name, FOLDER, dir_fd=within)


def _open(name: str, within: int | None) -> int:
    """Open a folder, made its owner's where it is not, so that it can be emptied."""
    fd = open_folder(name, within)
    if ~os.fstat(fd).st_mode & stat.S_IRWXU:
        with contextlib.suppress(OSError):
            os.fchmod(fd, stat.S_IRWXU)
    return fd


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
