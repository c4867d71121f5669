"""``ops.read_file``, ``ops.write_file`` and ``ops.list_dir``: run in the worker, in threads.

A path that lies beneath a root is opened whoever changes names there meanwhile. openat2(2), Linux
5.6, resolves it within the root: neither ``..`` nor a link leads out, and no magic link of /proc is
followed. It is opened as a place first (O_PATH), so that no FIFO is waited for and no device is
touched; the place says what it is, and is opened for reading by its descriptor: nothing can come
between.

Gaps: a hard link that was made before is not recognised, and what another process of the same
user's mounts beneath a root is beneath it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.descriptors import NEW, closing
from cellblock.host.services.operations.catalog import not_granted, os_failure
from cellblock.host.services.operations.grants import OperationError
from cellblock.policy.paths import pattern_beneath, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.policy.operations import Operations


#: The same number on every architecture (syscalls(2)).
_SYS_OPENAT2: Final = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_AT_FDCWD: Final = -100
_PLACE: Final = os.O_PATH | os.O_CLOEXEC
#: A lease of another process is not waited for.
_READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: A new file: its mode, and how it is made.
_MODE: Final = 0o666
#: Tries while something is being renamed (openat2(2), EAGAIN).
_TRIES: Final = 32
_MAX_PATH: Final = 4_096
#: What proc(5) has behind the name of what is gone.
_GONE: Final = " (deleted)"
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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
    Patterns among what is denied count beneath the root that is nearest.
    """

    def __init__(
        self, operation: str, roots: Sequence[str], *, project: str, denied: Sequence[str]
    ) -> None:
        self._operation, self._roots = operation, roots
        self._project, self._denied = project, denied

    @contextlib.contextmanager
    def open(self, path: str, *, parent: bool = False) -> Iterator[tuple[int, str]]:
        """Open the place that a cell's path names; only its existence has been looked at.

        With ``parent``, open the folder that it is in, and yield its name there, too. Raises
        OperationError.
        """
        root, rest = self.check(path, of_file=parent)
        folder, _, name = rest.rpartition("/") if parent else (rest, "", "")
        flags = _PLACE | os.O_DIRECTORY if parent else _PLACE
        # The root by its canonical name: a link that was put in its place leads elsewhere.
        with (
            _os_errors_about(path),
            closing(_openat2(_AT_FDCWD, root, _PLACE, _NO_SYMLINKS)) as at,
        ):
            fd = _openat2(at, folder, flags, _BENEATH) if folder else os.dup(at)
        with closing(fd):
            with _os_errors_about(path):
                found = real_name(fd)
            self._refuse_denied(f"{found}/{name}" if name else found, path)
            yield fd, name

    def check(self, path: str, *, of_file: bool = False) -> tuple[str, str]:
        """Return the root that a path is spelled beneath, and the rest of it. Opens nothing.

        ``of_file``: it has to name something in a folder. Raises OperationError for what is
        refused wherever it leads.
        """
        if not path or "\0" in path or len(os.fsencode(path)) > _MAX_PATH:
            raise not_granted(f"{path[:100]!r} is no path")
        # As in the policy, and not the folder that cells have for it.
        is_home = path == "~" or path.startswith("~/")
        named = str(Path(path).expanduser()) if is_home else path
        wanted = os.path.normpath(f"{self._project}/{named}" if named[0] != "/" else named)
        wanted = wanted.replace("//", "/", 1) if wanted.startswith("//") else wanted
        found = [root for root in self._roots if within(wanted, root)]
        if not found:
            raise not_granted(f"{path}: it is beneath no root of [{self._operation}]")
        root = max(found, key=len)
        rest = wanted[len(root) :].lstrip("/")
        if of_file and (not rest or path.endswith("/")):
            raise not_granted(f"{path}: it is no file beneath a root of [{self._operation}]")
        self._refuse_denied(f"{root}/{rest}" if rest else root, path)
        return root, rest

    def _refuse_denied(self, real: str, path: str) -> None:
        if self.denies(real):
            raise not_granted(f"{path}: it is never read or written (read_deny_paths)")

    def denies(self, real: str) -> bool:
        """Whether a canonical path is never read or written."""
        in_denied = any(within(real, denied) for denied in self._denied)
        return in_denied or pattern_beneath(real, self._roots, self._denied) != ""


def real_name(fd: int) -> str:
    """Return where ``fd`` is now, links resolved; where it was, if it is gone.

    proc(5) adds a text to the name of what is gone, and a file may have a name that ends so. Which
    of the two it is, only the file says: by the number of its names, and by what has that name now.
    Raises OSError, for a file too that is being deleted or has lost this name of several.
    """
    for _ in range(_TRIES):
        # First: what is gone before its name is read stays gone.
        found = os.fstat(fd)
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if not name.endswith(_GONE):
            return name
        if found.st_nlink == 0:
            return name.removesuffix(_GONE)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(name), found):
                return name
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _reopen(place: int, flags: int = 0) -> int:
    """Return a descriptor for reading what ``place`` is. Raises OSError."""
    return os.open(f"/proc/self/fd/{place}", _READING | flags)


@contextlib.contextmanager
def _os_errors_about(path: str) -> Iterator[None]:
    """Raise OSErrors as OperationErrors about ``path`` as the cell spelled it."""
    try:
        yield
    except OSError as exc:
        if exc.errno in {errno.EXDEV, errno.ELOOP}:
            raise not_granted(f"{path}: a link on the way leads out of the root") from None
        if exc.errno == errno.ENOSYS:
            raise not_granted("this OS kernel has no openat2: it takes Linux 5.6") from None
        raise os_failure(path, exc) from None


class Files:
    """The three operations, as far as ``section`` grants them."""

    def __init__(self, section: Operations, *, project: str, denied: Sequence[str]) -> None:
        self._section, self._project, self._denied = section, project, denied

    def _granted(self, name: str) -> tuple[Any, Roots]:
        table = getattr(self._section, name)
        return table, Roots(f"ops.{name}", table.roots, project=self._project, denied=self._denied)

    def read_file(
        self, path: str, *, binary: bool = False, offset: int = 0, size: int | None = None
    ) -> str | bytes:
        """Read a file: ``catalog.READ_FILE``."""
        table, roots = self._granted("read_file")
        most = table.max_bytes
        if offset < 0 or (size is not None and not 0 <= size <= most):
            message = f"offset is 0 or more, size 0 to {most:,} bytes (max_bytes)"
            raise OperationError("ValueError", message)
        with roots.open(path) as (place, _):
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise OperationError("NotAFile", f"{path}: no file")
            try:
                data = _read(_reopen(place), offset, most + 1 if size is None else size)
            except OSError as exc:
                raise os_failure(path, exc) from None
        if len(data) > most:
            message = f"{path}: it has more than {most:,} bytes (max_bytes); read a part of it"
            raise OperationError("TooLarge", f"{message}: offset=0, size={most}")
        if binary:
            return data
        try:
            return data.decode("utf-8" if offset else "utf-8-sig")
        except UnicodeDecodeError as exc:
            message = f"{path}: it is no UTF-8 text (byte {offset + exc.start:,}); pass binary=True"
            raise OperationError("UnicodeDecodeError", message) from None

    def write_file(self, path: str, data: str | bytes) -> int:
        """Write a whole file: ``catalog.WRITE_FILE``."""
        table, roots = self._granted("write_file")
        content = data.encode() if isinstance(data, str) else data
        if len(content) > table.max_bytes:
            message = (
                f"{path}: {len(content):,} bytes; {table.max_bytes:,} may be written (max_bytes)"
            )
            raise OperationError("TooLarge", message)
        with roots.open(path, parent=True) as (folder, name):
            mode = _mode_of(folder, name, path, replace=table.replace)
            beside = f".cellblock-{os.urandom(8).hex()}"
            try:
                fd = os.open(beside, NEW, _MODE, dir_fd=folder)
            except OSError as exc:
                raise os_failure(path, exc) from None
            try:
                _write(fd, content, mode)
                # Put in its place: nobody reads half of it, and other names of the file that was
                # there keep what it had. A link that was put there meanwhile is not followed.
                if table.replace:
                    os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    os.link(
                        beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False
                    )
            except FileExistsError:
                raise _exists(path) from None
            except OSError as exc:
                # Of no kind that is in UNWRITTEN: a rename may fail, and have been done.
                raise OperationError("OSError", f"{path}: {exc.strerror or 'it failed'}") from None
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside, dir_fd=folder)
        return len(content)

    def list_dir(self, path: str = ".") -> list[dict[str, Any]]:
        """List a folder: ``catalog.LIST_DIR``."""
        table, roots = self._granted("list_dir")
        with roots.open(path) as (place, _):
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                raise OperationError("NotAFolder", f"{path}: no folder")
            try:
                real = real_name(place)
                with closing(_reopen(place, os.O_DIRECTORY)) as folder:
                    found = _entries(folder, real, path, roots, table.max_entries)
            except OSError as exc:
                raise os_failure(path, exc) from None
        return sorted(found, key=lambda entry: entry["name"])


def _read(fd: int, offset: int, size: int) -> bytes:
    parts: list[bytes] = []
    with open(fd, "rb", buffering=0) as file:
        if offset:
            file.seek(offset)
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts)


def _mode_of(folder: int, name: str, path: str, *, replace: bool) -> int | None:
    """Return the mode of the file that is there, None if there is none.

    It is only looked at: a name that changes now is replaced, and never followed.
    """
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise os_failure(path, exc) from None
    if not replace:
        raise _exists(path)
    if stat.S_IFMT(mode) not in {stat.S_IFREG, stat.S_IFLNK}:
        raise OperationError("NotAFile", f"{path}: there is something else of that name")
    return stat.S_IMODE(mode) & 0o777 if stat.S_ISREG(mode) else None


def _write(fd: int, content: bytes, mode: int | None) -> None:
    with os.fdopen(fd, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        if mode is not None:
            os.fchmod(fd, mode)


def _exists(path: str) -> OperationError:
    return not_granted(f"{path}: it is there already, and may not be replaced (replace)")


def _entries(folder: int, real: str, path: str, roots: Roots, most: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) >= most:
                message = f"{path}: it has more than {most:,} entries (max_entries)"
                raise OperationError("TooLarge", message)
            if roots.denies(f"{real}/{entry.name}"):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # it is gone
                continue
            # A name that is not UTF-8 is shown, and can't be asked for.
            name = os.fsencode(entry.name).decode("utf-8", "backslashreplace")
            size, modified = status.st_size, status.st_mtime
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
            found.append({"name": name, "kind": kind, "size": size, "modified": modified})
    return found
