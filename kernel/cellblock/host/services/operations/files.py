"""``ops.read_file``, ``ops.write_file`` and ``ops.list_dir``. Run in the worker, in threads."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.services.operations.urls import OperationError, failed, not_granted
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.host.services.operations.catalog import (
        ListDir,
        OperationGrants,
        ReadFile,
        WriteFile,
    )


# Opening what lies beneath a root, whoever changes names there meanwhile. Linux 5.6 and later.
#
# openat2(2) resolves a path within a folder: neither ``..`` nor a link leads out of it, and no
# magic link of /proc is followed. What is found is opened as a place first (O_PATH), so that no
# FIFO is waited for and no device is touched; what it is is asked of that place, and it is
# opened for reading by its descriptor, so that nothing can come between.
#
# Gaps: a hard link that was made before is not recognised, and what another process of the same
# user's mounts beneath a root is beneath it.

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


_MODE: Final = 0o666
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _roots(operation: str, roots: tuple[str, ...], settings: OperationGrants) -> Roots:
    return Roots(operation, roots, project=settings.project, denied=settings.denied)


class Reader:
    """Reads files beneath the roots of a table."""

    def __init__(self, table: ReadFile, settings: OperationGrants) -> None:
        self._roots = _roots("ops.read_file", table.roots, settings)
        self._most = table.max_bytes

    def read_file(
        self, path: str, *, binary: bool = False, offset: int = 0, size: int | None = None
    ) -> str | bytes:
        """Read a file, beneath the folders that the policy grants.

        Relative paths are relative to the folder that the kernel was started in. Text is UTF-8;
        with ``binary`` you get bytes. ``offset`` and ``size`` (bytes) read a part of a large file.
        """
        if offset < 0 or (size is not None and not 0 <= size <= self._most):
            said = f"offset is 0 or more, size 0 to {self._most:,} bytes (max_bytes)"
            raise OperationError("ValueError", said)
        with self._roots.place(path) as place:
            _refuse_unless(stat.S_ISREG(os.fstat(place).st_mode), path, "NotAFile", "no file")
            try:
                data = _read(reopened(place), offset, self._most + 1, size)
            except OSError as exc:
                raise failed(path, exc) from None
        if len(data) > self._most:
            said = f"{path}: it has more than {self._most:,} bytes (max_bytes); read a part of it"
            raise OperationError("TooLarge", f"{said}: offset=0, size={self._most}")
        return data if binary else _text(data, path, offset)


def _read(fd: int, offset: int, most: int, size: int | None) -> bytes:
    left = most if size is None else size
    parts: list[bytes] = []
    with open(fd, "rb", buffering=0) as file:
        if offset:
            file.seek(offset)
        while left > 0 and (part := file.read(left)):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _text(data: bytes, path: str, offset: int) -> str:
    try:
        return data.decode("utf-8" if offset else "utf-8-sig")
    except UnicodeDecodeError as exc:
        said = f"{path}: it is no UTF-8 text (byte {offset + exc.start:,}); pass binary=True"
        raise OperationError("UnicodeDecodeError", said) from None


class Writer:
    """Writes files beneath the roots of a table."""

    def __init__(self, table: WriteFile, settings: OperationGrants) -> None:
        self._roots = _roots("ops.write_file", table.roots, settings)
        self._most, self._replace = table.max_bytes, table.replace

    def write_file(self, path: str, data: str | bytes) -> int:
        """Write a whole file, beneath the folders that the policy grants.

        A file of that name is replaced, in one step. Text is written as UTF-8. Returns how many
        bytes were written.
        """
        content = data.encode() if isinstance(data, str) else data
        if len(content) > self._most:
            said = f"{path}: {len(content):,} bytes; {self._most:,} may be written (max_bytes)"
            raise OperationError("TooLarge", said)
        with self._roots.parent(path) as (folder, name):
            mode = self._mode(folder, name, path)
            beside = f".cellblock-{os.urandom(8).hex()}"
            try:
                fd = os.open(beside, _MAKE, _MODE, dir_fd=folder)
            except OSError as exc:
                raise failed(path, exc) from None
            try:
                self._write(folder, name, content, mode, (fd, beside))
            except FileExistsError:
                raise self._there(path) from None
            except OSError as exc:
                # Of no kind that is in UNWRITTEN: a rename may fail, and have been done.
                raise OperationError("OSError", f"{path}: {exc.strerror or 'it failed'}") from None
        return len(content)

    def _mode(self, folder: int, name: str, path: str) -> int | None:
        """Return the mode of the file that is there, None where there is none.

        That it is one is only looked at: a name that changes now is replaced, and never followed.
        """
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise failed(path, exc) from None
        if not self._replace:
            raise self._there(path)
        may_go = stat.S_IFMT(found.st_mode) in {stat.S_IFREG, stat.S_IFLNK}
        _refuse_unless(may_go, path, "NotAFile", "there is something else of that name")
        return stat.S_IMODE(found.st_mode) & 0o777 if stat.S_ISREG(found.st_mode) else None

    @staticmethod
    def _there(path: str) -> OperationError:
        return not_granted(f"{path}: it is there already, and may not be replaced (replace)")

    def _write(
        self, folder: int, name: str, content: bytes, mode: int | None, made: tuple[int, str]
    ) -> None:
        """Write what was ``made`` beside the file, then put it in its place: nobody reads half.

        Other names of the file that was there keep what it had. Raises OSError.
        """
        fd, beside = made
        try:
            with open(fd, "wb", buffering=0) as file:  # noqa: PTH123 - by descriptor
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
                if mode is not None:
                    os.fchmod(fd, mode)
            if self._replace:
                os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                # A link that was put in its place meanwhile is not followed.
                os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)


class Lister:
    """Lists folders beneath the roots of a table."""

    def __init__(self, table: ListDir, settings: OperationGrants) -> None:
        self._roots = _roots("ops.list_dir", table.roots, settings)
        self._most = table.max_entries

    def list_dir(self, path: str = ".") -> list[dict[str, Any]]:
        """List a folder, beneath those that the policy grants.

        Each entry has ``name``, ``kind`` (file, folder, link, other), ``size`` in bytes and
        ``modified`` in seconds since 1970; they come by name.
        """
        with self._roots.place(path) as place:
            _refuse_unless(stat.S_ISDIR(os.fstat(place).st_mode), path, "NotAFolder", "no folder")
            try:
                real = real_name(place)
                folder = reopened(place, os.O_DIRECTORY)
                try:
                    found = self._entries(folder, real, path)
                finally:
                    os.close(folder)
            except OSError as exc:
                raise failed(path, exc) from None
        return sorted(found, key=lambda entry: entry["name"])

    def _entries(self, folder: int, real: str, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= self._most:
                    said = f"{path}: it has more than {self._most:,} entries (max_entries)"
                    raise OperationError("TooLarge", said)
                if not self._roots.denies(f"{real}/{entry.name}"):
                    found += _entry(entry)
        return found


def _entry(entry: os.DirEntry[str]) -> list[dict[str, Any]]:
    """Return what is told of an entry; nothing of one that has gone."""
    try:
        known = entry.stat(follow_symlinks=False)
    except OSError:
        return []
    # A name that is no UTF-8 can be shown, and not be asked for.
    name = os.fsencode(entry.name).decode("utf-8", "backslashreplace")
    kind = kind_of(known.st_mode)
    return [{"name": name, "kind": kind, "size": known.st_size, "modified": known.st_mtime}]


def _refuse_unless(holds: bool, path: str, kind: str, what: str) -> None:
    if not holds:
        raise OperationError(kind, f"{path}: {what}")
