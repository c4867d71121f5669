"""``ops.read_file``, ``ops.write_file``, ``ops.list_dir``: run in the worker of operations.

A path is opened beneath a root, safely even if somebody changes names there meanwhile::

    openat2(O_PATH, RESOLVE_BENEATH) --> judge the descriptor: type, real name --> open it

openat2(2), of Linux 5.6, resolves the path within the root: neither ``..`` nor a link leads out,
and no magic link of /proc is followed. With O_PATH it does not wait for a FIFO, nor touch a device.
The type and the real name of that descriptor are judged, and it is opened for reading by
/proc/self/fd, so nothing can be swapped in between. Functions here run in threads.

Gaps: a hard link that was made before is not recognised. Files that another process of the same
user mounts beneath a root count as beneath it.
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
_PLACE_FLAGS: Final = os.O_PATH | os.O_CLOEXEC
#: Doesn't wait for a lease of another process.
_READING_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: The mode of a new file.
_NEW_FILE_MODE: Final = 0o666
#: Tries while names are changed on the way (openat2(2), EAGAIN).
_TRIES: Final = 32
_MAX_PATH: Final = 4_096
#: The text that proc(5) adds to the name of a deleted file.
_DELETED_SUFFIX: Final = " (deleted)"
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Return a descriptor of a path in a folder. Raises OSError."""
    open_how = _How(flags=flags, mode=0, resolve=resolve | _NO_MAGICLINKS)
    size = ctypes.sizeof(open_how)
    name = os.fsencode(path)
    for _ in range(_TRIES):
        fd: int = _libc.syscall(_SYS_OPENAT2, folder, name, ctypes.byref(open_how), size)
        if fd >= 0:
            return fd
        if (number := ctypes.get_errno()) not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number))


class Roots:
    """The folders that one operation may touch.

    ``roots`` and ``denied`` are canonical paths; relative paths begin at ``project``. A pattern in
    ``denied`` counts for names beneath the nearest root.
    """

    def __init__(
        self, operation: str, roots: Sequence[str], *, project: str, denied: Sequence[str]
    ) -> None:
        self._operation = operation
        self._roots = roots
        self._project = project
        self._denied = denied

    @contextlib.contextmanager
    def open(self, path: str, *, parent: bool = False) -> Iterator[tuple[int, str]]:
        """Open the file or folder of a cell's path as a place (O_PATH); yield its descriptor, "".

        With ``parent``, open the folder that holds it instead, and yield its name in that. What it
        is has not been checked. Raises OperationError.
        """
        root, rest = self.check(path, of_file=parent)
        folder, _, name = rest.rpartition("/") if parent else (rest, "", "")
        flags = _PLACE_FLAGS | os.O_DIRECTORY if parent else _PLACE_FLAGS
        # The root is opened without following links: its name is canonical, so a link in it was
        # put there later.
        with (
            _os_errors_about(path),
            closing(_openat2(_AT_FDCWD, root, _PLACE_FLAGS, _NO_SYMLINKS)) as root_fd,
        ):
            fd = _openat2(root_fd, folder, flags, _BENEATH) if folder else os.dup(root_fd)
        with closing(fd):
            with _os_errors_about(path):
                real = real_name(fd)
            self._refuse_denied(f"{real}/{name}" if name else real, path)
            yield fd, name

    def check(self, path: str, *, of_file: bool = False) -> tuple[str, str]:
        """Return the root that a path is beneath by its spelling, and the rest of the path.

        Opens nothing. ``of_file``: the path must name something in a folder. Raises OperationError
        for a path that is refused whatever links are in it.
        """
        if not path or "\0" in path or len(os.fsencode(path)) > _MAX_PATH:
            raise not_granted(f"{path[:100]!r} is not a path")
        # ``~`` is the user's home, as in the policy, and not the folder that cells have for it.
        is_home = path == "~" or path.startswith("~/")
        expanded = str(Path(path).expanduser()) if is_home else path
        whole = os.path.normpath(f"{self._project}/{expanded}" if expanded[0] != "/" else expanded)
        whole = whole.replace("//", "/", 1) if whole.startswith("//") else whole
        roots = [root for root in self._roots if within(whole, root)]
        if not roots:
            raise not_granted(f"{path}: it is not beneath a root of [{self._operation}]")
        root = max(roots, key=len)
        rest = whole[len(root) :].lstrip("/")
        if of_file and (not rest or path.endswith("/")):
            raise not_granted(f"{path}: it is not a file beneath a root of [{self._operation}]")
        self._refuse_denied(f"{root}/{rest}" if rest else root, path)
        return root, rest

    def _refuse_denied(self, real: str, path: str) -> None:
        if self.denies(real):
            raise not_granted(f"{path}: it is never read or written (read_deny_paths)")

    def denies(self, real: str) -> bool:
        """Return whether a canonical path is never read or written."""
        in_denied = any(within(real, denied) for denied in self._denied)
        return in_denied or pattern_beneath(real, self._roots, self._denied) != ""


def real_name(fd: int) -> str:
    """Return the canonical path of a descriptor; of a deleted file, the path that it had.

    proc(5) adds " (deleted)" to the path of a deleted file, but a file's own name may end so, too.
    To tell them apart, look at how many names (hard links) the file has, and at the file that has
    this path now. Raises OSError, also for a file that has lost this name and still has others.
    """
    for _ in range(_TRIES):
        # Before its name is read: a file that has no name then gets none later.
        status = os.fstat(fd)
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if not name.endswith(_DELETED_SUFFIX):
            return name
        if status.st_nlink == 0:
            return name.removesuffix(_DELETED_SUFFIX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(name), status):
                return name
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _reopen(place: int, flags: int = 0) -> int:
    """Open the file of an O_PATH descriptor for reading. Raises OSError."""
    return os.open(f"/proc/self/fd/{place}", _READING_FLAGS | flags)


@contextlib.contextmanager
def _os_errors_about(path: str) -> Iterator[None]:
    """Raise OSErrors as OperationErrors about ``path``, which is as the cell spelled it."""
    try:
        yield
    except OSError as exc:
        if exc.errno in {errno.EXDEV, errno.ELOOP}:
            raise not_granted(f"{path}: a link on the way leads out of the root") from None
        if exc.errno == errno.ENOSYS:
            raise not_granted("this OS kernel has no openat2: it takes Linux 5.6") from None
        raise os_failure(path, exc) from None


class Files:
    """The three operations, as the policy's ``section`` grants them."""

    def __init__(self, section: Operations, *, project: str, denied: Sequence[str]) -> None:
        self._section = section
        self._project = project
        self._denied = denied

    def _granted(self, name: str) -> tuple[Any, Roots]:
        """Return the policy's table of an operation, and its roots."""
        table = getattr(self._section, name)
        return table, Roots(f"ops.{name}", table.roots, project=self._project, denied=self._denied)

    def read_file(
        self, path: str, *, binary: bool = False, offset: int = 0, size: int | None = None
    ) -> str | bytes:
        """Read a file, as ``catalog.READ_FILE`` describes."""
        table, roots = self._granted("read_file")
        most = table.max_bytes
        if offset < 0 or (size is not None and not 0 <= size <= most):
            message = f"offset is 0 or more, size 0 to {most:,} bytes (max_bytes)"
            raise OperationError("ValueError", message)
        with roots.open(path) as (place, _):
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise OperationError("NotAFile", f"{path}: no file")
            try:
                data = _read_and_close(_reopen(place), offset, most + 1 if size is None else size)
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
            where = f"byte {offset + exc.start:,}"
            message = f"{path}: it is not UTF-8 text ({where}); pass binary=True"
            raise OperationError("UnicodeDecodeError", message) from None

    def write_file(self, path: str, data: str | bytes) -> int:
        """Write a whole file, as ``catalog.WRITE_FILE`` describes."""
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
                fd = os.open(beside, NEW, _NEW_FILE_MODE, dir_fd=folder)
            except OSError as exc:
                raise os_failure(path, exc) from None
            try:
                _write(fd, content, mode)
                # A new file is put in place of the old one, so nobody reads half of it, and other
                # names of the old one (hard links) keep its content. A link that was put there
                # meanwhile is replaced, not followed.
                if table.replace:
                    os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    os.link(
                        beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False
                    )
            except FileExistsError:
                raise _exists(path) from None
            except OSError as exc:
                # A kind that is not in UNWRITTEN: a rename may fail after it was done.
                raise OperationError("OSError", f"{path}: {exc.strerror or 'it failed'}") from None
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(beside, dir_fd=folder)
        return len(content)

    def list_dir(self, path: str = ".") -> list[dict[str, Any]]:
        """List a folder, as ``catalog.LIST_DIR`` describes."""
        table, roots = self._granted("list_dir")
        with roots.open(path) as (place, _):
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                raise OperationError("NotAFolder", f"{path}: no folder")
            try:
                real = real_name(place)
                with closing(_reopen(place, os.O_DIRECTORY)) as folder:
                    entries = _entries(folder, real, path, roots, table.max_entries)
            except OSError as exc:
                raise os_failure(path, exc) from None
        return sorted(entries, key=lambda entry: entry["name"])


def _read_and_close(fd: int, offset: int, size: int) -> bytes:
    """Read up to ``size`` bytes from ``offset``, and close the descriptor."""
    chunks: list[bytes] = []
    with open(fd, "rb", buffering=0) as file:
        if offset:
            file.seek(offset)
        while size > 0 and (chunk := file.read(size)):
            chunks.append(chunk)
            size -= len(chunk)
    return b"".join(chunks)


def _mode_of(folder: int, name: str, path: str, *, replace: bool) -> int | None:
    """Return the mode of the file that a write replaces; None if there is no file, or a link.

    Raises OperationError if the file may not be replaced. If another file or link gets the name
    after this check, the write replaces that one. It follows no link.
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
    """Write a new file, with a mode if given, and close its descriptor."""
    with os.fdopen(fd, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        if mode is not None:
            os.fchmod(fd, mode)


def _exists(path: str) -> OperationError:
    return not_granted(f"{path}: it is there already, and may not be replaced (replace)")


def _entries(folder: int, real: str, path: str, roots: Roots, most: int) -> list[dict[str, Any]]:
    """Return the entries of a folder without denied ones. ``real`` is its canonical path.

    Raises OperationError for more than ``most``.
    """
    listed: list[dict[str, Any]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(listed) >= most:
                message = f"{path}: it has more than {most:,} entries (max_entries)"
                raise OperationError("TooLarge", message)
            if roots.denies(f"{real}/{entry.name}"):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # the file is gone
                continue
            # A file whose name is not UTF-8 is listed, but can't be opened by this name.
            name = os.fsencode(entry.name).decode("utf-8", "backslashreplace")
            size = status.st_size
            modified = status.st_mtime
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
            listed.append({"name": name, "kind": kind, "size": size, "modified": modified})
    return listed
