"""Opening what lies beneath a root, whoever changes names there meanwhile. Linux 5.6 and later.

openat2(2) resolves a path within a folder: neither ``..`` nor a link leads out of it, and no magic
link of /proc is followed. What is found is opened as a place first (O_PATH), so that no FIFO is
waited for and no device is touched; what it is is asked of that place, and it is opened for reading
by its descriptor, so that nothing can come between.

Gaps: a hard link that was made before is not recognised, and what another process of the same
user's mounts beneath a root is beneath it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from cellblock.host.ops.errors import failed, not_granted
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The same number on every architecture (syscalls(2)).
_SYS_OPENAT2: Final = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_AT_FDCWD: Final = -100
_PLACE: Final = os.O_PATH | os.O_CLOEXEC
#: Of one that was found already: a lease of another process is not waited for.
_READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: Tries, where something was renamed just then (openat2(2), EAGAIN).
_TRIES: Final = 32
_LONGEST: Final = 4_096


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Return a descriptor. Raises OSError."""
    how = _How(flags=flags, mode=0, resolve=resolve | _NO_MAGICLINKS)
    size = ctypes.sizeof(how)
    name = os.fsencode(path)
    for _ in range(_TRIES):
        fd: int = _libc.syscall(_SYS_OPENAT2, folder, name, ctypes.byref(how), size)
        if fd >= 0:
            return fd
        if (number := ctypes.get_errno()) not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number))


class Roots:
    """What one operation may touch.

    ``roots`` and ``denied`` are canonical, ``project`` is what relative paths are relative to.
    """

    def __init__(
        self, operation: str, roots: Sequence[str], *, project: str, denied: Sequence[str]
    ) -> None:
        self._operation, self._roots = operation, roots
        self._project, self._denied = project, denied

    @contextlib.contextmanager
    def place(self, path: str) -> Iterator[int]:
        """Open the place that a cell names; no more than its existence has been looked at.

        Raises OperationError.
        """
        root, rest = self.spelled(path)
        with _told(path):
            fd = self._open(root, rest)
        try:
            self.check(fd, path)
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that a cell's path leads to; yield it with the name in it."""
        root, rest = self.spelled(path, of_file=True)
        folder, _, name = rest.rpartition("/")
        with _told(path):
            fd = self._open(root, folder, os.O_DIRECTORY)
        try:
            self.check(fd, path, name)
            yield fd, name
        finally:
            os.close(fd)

    def check(self, fd: int, path: str, name: str = "") -> None:
        """Raise OperationError if what ``fd`` is, or ``name`` in it, is denied by the policy."""
        with _told(path):
            found = real_name(fd)
        self._refuse_denied(f"{found}/{name}" if name else found, path)

    def _refuse_denied(self, real: str, path: str) -> None:
        if self.denies(real):
            raise not_granted(f"{path}: it is never read or written (read_deny_paths)")

    def denies(self, real: str) -> bool:
        """Say whether a canonical path is one that is never read or written."""
        return any(within(real, denied) for denied in self._denied)

    def _open(self, root: str, rest: str, flags: int = 0) -> int:
        # The root itself by its canonical name: whoever put a link in its place led elsewhere.
        at = _openat2(_AT_FDCWD, root, _PLACE, _NO_SYMLINKS)
        try:
            return _openat2(at, rest, _PLACE | flags, _BENEATH) if rest else os.dup(at)
        finally:
            os.close(at)

    def spelled(self, path: str, *, of_file: bool = False) -> tuple[str, str]:
        """Return the root that a path is spelled beneath, and the rest of it. Opens nothing.

        ``of_file``: it has to name something in a folder. Raises OperationError for what is
        refused wherever it leads.
        """
        root, rest = self._beneath(path)
        if of_file and (not rest or path.endswith("/")):
            raise not_granted(f"{path}: it is no file beneath a root of [{self._operation}]")
        self._refuse_denied(f"{root}/{rest}" if rest else root, path)
        return root, rest

    def _beneath(self, path: str) -> tuple[str, str]:
        if not path or "\0" in path or len(os.fsencode(path)) > _LONGEST:
            raise not_granted(f"{path[:100]!r} is no path")
        wanted = os.path.normpath(f"{self._project}/{path}" if path[0] != "/" else path)
        wanted = wanted.replace("//", "/", 1) if wanted.startswith("//") else wanted
        for root in sorted(self._roots, key=len, reverse=True):
            if within(wanted, root):
                return root, wanted[len(root) :].lstrip("/")
        raise not_granted(f"{path}: it is beneath no root of [{self._operation}]")


def real_name(fd: int) -> str:
    """Return where ``fd`` is now, links resolved; where it was, if it is gone. Raises OSError."""
    return os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")  # noqa: PTH115 - no path


def reopened(place: int, flags: int = 0) -> int:
    """Return a descriptor for reading what ``place`` is. Raises OSError."""
    return os.open(f"/proc/self/fd/{place}", _READING | flags)


def kind_of(mode: int) -> str:
    """Return what an entry is, by its mode."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the OS kernel says into an error about ``path`` as the cell spelled it."""
    try:
        yield
    except OSError as exc:
        if exc.errno in {errno.EXDEV, errno.ELOOP}:
            raise not_granted(f"{path}: a link on the way leads out of the root") from None
        if exc.errno == errno.ENOSYS:
            raise not_granted("this OS kernel has no openat2: it takes Linux 5.6") from None
        raise failed(path, exc) from None
