"""The folder that a run writes to: no name leads out of it, and no reader sees half a file.

A folder may be part of a checkout, so links in it are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError
from cellblock.guest import remove_tree as removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = _CREATE | os.O_EXCL
#: Does not block on a named pipe.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: The subfolder of the run's own files: journals, the run log, files that are not complete yet.
OWN: Final = ".cellblock"
_LOCK: Final = "lock"
_PARTIAL: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The folder can't be written to, or not by this run."""


class OutputFolder:
    """DIR. It is made if it is not there, and locked for this run until it is closed."""

    def __init__(self, path: Path) -> None:
        """Raise OutputFolderError where it can't be used."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            self._own = _make_folder(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        self._lock = self._take_lock()
        for name in self.names(_PARTIAL):
            self.remove(name)

    def _take_lock(self) -> int:
        try:
            lock = os.open(_LOCK, _APPEND, 0o600, dir_fd=self._own)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another run writes there. Wait for it, or name another folder"
            raise OutputFolderError(f"{self.path}: {what}.") from None
        except OSError as exc:
            raise OutputFolderError(f"{self.path}: can't be locked: {exc.strerror}") from None
        return lock

    def close(self) -> None:
        """Unlock the folder."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- the user's files -----------------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file whole or not at all; make the folders on the way. Raise OSError."""
        part = f"{os.urandom(8).hex()}{_PARTIAL}"
        descriptor = os.open(part, _NEW, 0o666, dir_fd=self._own)
        try:
            write_all(descriptor, content)
        finally:
            os.close(descriptor)
        try:
            with self._parent_of(name) as (folder, last):
                os.replace(part, last, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def remove_folder(self, name: str) -> str:
        """Remove a folder if it is there, and return its path. Raise OSError."""
        with self._parent_of(name) as (folder, last):
            removal.remove(f"/proc/self/fd/{folder}/{last}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _parent_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder that a file is to be in, and its name there. Raise OSError."""
        *folders, last = name.split("/")
        invalid = "\0" in name or any(part in {"", ".", ".."} for part in (*folders, last))
        if invalid or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "no name for a file in there")
        at = os.dup(self._root)
        try:
            for each in folders:
                at, above = _make_folder(each, at), at
                os.close(above)
            yield at, last
        finally:
            os.close(at)

    # --- the run's own files --------------------------------------------------------------------

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a new file into a folder of the run's own. Raise OSError."""
        at = _make_folder(folder, self._own)
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            write_all(descriptor, (content,))
        finally:
            os.close(descriptor)

    def append_to(self, name: str) -> int:
        """Return a descriptor for appending to a file of the run's own. Raise OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raise OSError."""
        with os.fdopen(os.open(name, _READ, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the run's own files whose names end so."""
        return sorted(name for name in os.listdir(self._own) if name.endswith(ending))  # noqa: PTH208 - of a descriptor

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _make_folder(name: str, folder: int) -> int:
    """Return a descriptor of a folder in a folder, made if it is not there. Raise OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def write_all(descriptor: int, content: Iterable[bytes]) -> None:
    """Write all of the content. Raise OSError."""
    with open(descriptor, "wb", _BUFFER, closefd=False) as file:
        file.writelines(content)
