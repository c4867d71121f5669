"""Files by their descriptors: opening without following links, closing, removing folders.

A path is resolved once, when a policy is read (``policy.paths``). Cells may put a link in the place
of a folder after that, so from then on only descriptors are used, of the folders that were opened.

``remove_tree`` removes a folder that hostile code has filled: deep, unreadable, with odd names,
full of links. ``shutil.rmtree`` can't be used: it recurses, holds a descriptor for each level, and
gives up at a folder that it may not read.

``with_hidden_options`` gives a program arguments that a process listing does not show.

A zygote may be started before much is imported, so this module doesn't even import ``typing``.
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
#: Flags for a descriptor that only names a place: opening waits for no pipe and touches no device.
_PATH_FLAGS = os.O_RDONLY | os.O_NONBLOCK if _MACOS else os.O_PATH
#: macOS: open(2) fails for a link anywhere in the path.
_O_NOFOLLOW_ANY = 0x20000000 if _MACOS else 0
#: The name of a session's scratch folder.
SCRATCH = "scratch"
#: How the name of the private folder around a scratch folder begins.
SCRATCH_PREFIX = "cellblock-"
#: Flags to open a folder.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Flags to read a file, without blocking on a named pipe.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Flags to write a new file.
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


#: <asm-generic/socket.h>, from Linux 6.16 on.
SO_PASSRIGHTS = 83


def refuse_descriptors(sock: _socket.socket) -> None:
    """Make the OS kernel refuse descriptors that are sent to this end of a Unix socket (EPERM).

    Closing the last descriptor of a deleted file frees the file, in a call that no signal
    interrupts: 20 seconds for a file in 10,000 pieces. The receiver of a socket closes descriptors
    that it doesn't accept, so a guest could block the host that way. Linux before 6.16 can't refuse
    them; then this does nothing.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(_socket.SOL_SOCKET, SO_PASSRIGHTS, 0)


def is_readable(fd: int | _socket.socket, seconds: float | None = 0.0) -> bool:
    """Return whether ``fd`` has data or is at its end, now or within ``seconds`` (None: no limit).

    It uses poll(2), because select(2) can't take descriptors from 1,024 on.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Yield a descriptor, and close it afterwards."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_unlinked(path: str, flags: int = _PATH_FLAGS) -> int:
    """Return a descriptor of the file or folder at a canonical path.

    Raises OSError, with ELOOP if the path has a link. The opened file itself says where it is
    (/proc/self/fd, proc(5)), so it doesn't matter if links come or go meanwhile.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | _O_NOFOLLOW_ANY)
    if not _MACOS and os.readlink(f"/proc/self/fd/{fd}") != path:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def open_beneath(folder: int, path: str) -> int:
    """Return a descriptor of the folder ``path`` beneath an open folder.

    ``path`` must not have ``..``; an empty path is the folder itself. Raises OSError, with ELOOP
    for a link.
    """
    current = os.open(".", FOLDER, dir_fd=folder)
    for name in path.split("/"):
        if name:
            with closing(current) as parent:
                current = os.open(name, FOLDER, dir_fd=parent)
    return current


def stat_unlinked(path: str) -> os.stat_result:
    """Return the status of the file at a canonical path. Raises OSError like ``open_unlinked``."""
    with closing(open_unlinked(path)) as fd:
        return os.fstat(fd)


def identity(path: str) -> tuple[int, int]:
    """Return device and inode of the file at a canonical path; zeros if there is none."""
    try:
        at_path = stat_unlinked(path)
    except OSError:
        return 0, 0
    return at_path.st_dev, at_path.st_ino


def status(folder: int | None, name: str) -> os.stat_result | None:
    """Return the status of ``name`` in a folder; None if there is no folder or no such name."""
    try:
        return None if folder is None else os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def read_regular(fd: int, most: int) -> bytes | None:
    """Return at most ``most`` bytes of a regular file; None for other files. Raises OSError."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    with open(fd, "rb", closefd=False) as file:
        return file.read(most)


def lock(fd: int, how: int = fcntl.LOCK_EX, patience: float = 0.0) -> None:
    """Lock a file (flock(2)), waiting at most ``patience`` seconds. Raises OSError."""
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
# Every user can read the command lines of all processes (proc(5)), and the options of a wrapper
# name the folders of a policy. So the options are written to a file in memory (memfd_create(2)),
# and the program reads them from its descriptor, like ``--args FD`` of bwrap(1). The file is gone
# when its last reader has closed it.

#: Separates a program's options from the command that it starts.
END = "--"


@contextlib.contextmanager
def written_args(args: Iterable[str]) -> Iterator[int]:
    """Yield an inheritable descriptor to read ``args`` from, each followed by a zero byte.

    Raises OSError if the file can't be made.
    """
    with open(os.memfd_create("args", 0), "wb", buffering=0) as file:
        file.write(b"".join(os.fsencode(arg) + b"\0" for arg in args))
        file.seek(0)
        yield file.fileno()


@contextlib.contextmanager
def with_hidden_options(
    program: str, options: Sequence[str], argv: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the command by which ``program`` starts ``argv``, with the program's options hidden."""
    with written_args(options) as fd:
        yield [program, "--args", str(fd), END, *argv]


def read_args(fd: int) -> list[str]:
    """Return the arguments that were written to ``fd``, and close it."""
    with open(fd, "rb") as file:
        return [os.fsdecode(arg) for arg in file.read().split(b"\0")[:-1]]


_NAMED_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: str) -> None:
    """Remove ``folder`` and everything in it, without following links.

    Files that can't be removed stay. So does what is mounted in the folder: in a zygote's
    namespace, these mounts hold the files that cells staged. The private folder around a scratch
    folder is removed too.
    """
    with contextlib.suppress(OSError):
        _empty(folder)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    parent, name = os.path.split(folder.rstrip("/"))
    if name == SCRATCH and os.path.basename(parent).startswith(SCRATCH_PREFIX):
        with contextlib.suppress(OSError):
            os.rmdir(parent)


def _empty(folder: str) -> None:
    """Remove everything in a folder, however deep.

    It holds one descriptor, walking down by name and up by ``..``. Raises OSError if ``..`` is not
    the folder that it came from: then somebody moved the folder, and the walk could leave the tree.
    """
    current = open_folder(folder, None, stat.S_IRWXU)
    device, _ = _identity(current)
    #: The folders above: the identity of each, the name that leads down, its other folders.
    parents: list[tuple[tuple[int, int], str, list[str]]] = []
    try:
        folders = _unlink_files(current)
        while folders or parents:
            previous = current
            if folders:
                name = folders.pop()
                with contextlib.suppress(OSError):
                    current = open_folder(name, previous, stat.S_IRWXU)
                if current != previous and _identity(current)[0] != device:
                    os.close(current)
                    current = previous
                if current != previous:
                    parents.append((_identity(previous), name, folders))
                    os.close(previous)
                    folders = _unlink_files(current)
                continue
            identity, name, folders = parents.pop()
            current = os.open("..", FOLDER, dir_fd=previous)
            os.close(previous)
            if _identity(current) != identity:
                raise OSError("a folder was moved while it was being removed")
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=current)
    finally:
        os.close(current)


def _unlink_files(folder: int) -> list[str]:
    """Unlink the files in a folder; return the names of its folders."""
    folders = []
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            folders.append(name)
        except OSError:
            continue
    return folders


#: The owner's rights to list a folder's names, and to reach what they name.
_TO_LOOK = stat.S_IRUSR | stat.S_IXUSR


def open_folder(name: str, within: int | None, rights: int = _TO_LOOK) -> int:
    """Return a descriptor of a folder, after giving its owner ``rights`` in it that are missing."""
    try:
        fd = os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        with closing(os.open(name, _NAMED_FLAGS, dir_fd=within)) as path_fd:
            give_rights(path_fd, rights)
        return os.open(name, FOLDER, dir_fd=within)
    with contextlib.suppress(OSError):
        give_rights(fd, rights)
    return fd


def make_usable(path: str) -> None:
    """Give the owner of a folder all rights in it if some are missing. Raises OSError."""
    with closing(os.open(path, _NAMED_FLAGS)) as path_fd:
        give_rights(path_fd)


def give_rights(folder: int, rights: int = stat.S_IRWXU) -> None:
    """Give the owner of an open folder ``rights`` in it that are missing. Raises OSError."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if ~mode & rights:
        # By the descriptor's path: chmod by name would follow a link.
        os.chmod(f"/proc/self/fd/{folder}", mode | rights)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
