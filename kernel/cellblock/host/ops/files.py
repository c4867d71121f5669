"""``ops.read_file``, ``ops.write_file`` and ``ops.list_dir``. Run in the worker, in threads."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.ops import beneath
from cellblock.host.ops.errors import OperationError, failed, not_granted

if TYPE_CHECKING:
    from cellblock.host.ops.settings import ListDir, ReadFile, Settings, WriteFile

_MODE: Final = 0o666
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _roots(operation: str, roots: tuple[str, ...], settings: Settings) -> beneath.Roots:
    return beneath.Roots(operation, roots, project=settings.project, denied=settings.denied)


class Reader:
    """Reads files beneath the roots of a table."""

    def __init__(self, table: ReadFile, settings: Settings) -> None:
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
                data = _read(beneath.reopened(place), offset, self._most + 1, size)
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

    def __init__(self, table: WriteFile, settings: Settings) -> None:
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

    def __init__(self, table: ListDir, settings: Settings) -> None:
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
                real = beneath.real_name(place)
                folder = beneath.reopened(place, os.O_DIRECTORY)
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
    kind = beneath.kind_of(known.st_mode)
    return [{"name": name, "kind": kind, "size": known.st_size, "modified": known.st_mtime}]


def _refuse_unless(holds: bool, path: str, kind: str, what: str) -> None:
    if not holds:
        raise OperationError(kind, f"{path}: {what}")
