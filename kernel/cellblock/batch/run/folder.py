"""The folder that a run writes to: no name leads out of it, and no reader sees half a file.

A folder may come with what is checked out into it: links beneath it are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError
from cellblock.guest import removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = _CREATE | os.O_EXCL
#: Waits for no reader of a pipe.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: The run's own: journals, the ledger, files that are not whole yet.
OWN: Final = ".cellblock"
_LOCK: Final = "lock"
_UNFINISHED: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The folder can't be written to, or not by this run."""


class OutputFolder:
    """DIR, made if it is not there, and this run's alone until it is closed."""

    def __init__(self, path: Path) -> None:
        """Raise OutputFolderError where it can't be had."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
            self._own = _made(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        self._lock = self._locked()
        for name in self.names(_UNFINISHED):
            self.remove(name)

    def _locked(self) -> int:
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
        """Let others write there."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- what is for the user -----------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file whole or not at all; folders on the way are made. Raises OSError."""
        part = f"{os.urandom(8).hex()}{_UNFINISHED}"
        with self.open_new(part, 0o666) as descriptor:
            put(descriptor, content)
        try:
            with self._folder_of(name) as (folder, last):
                os.replace(part, last, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def cleared(self, name: str) -> str:
        """Return the path of a folder that is not there, or not any more. Raises OSError."""
        with self._folder_of(name) as (folder, last):
            removal.remove(f"/proc/self/fd/{folder}/{last}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder that a file is to be in, and its name there. Raises OSError."""
        *folders, last = name.split("/")
        odd = "\0" in name or any(part in {"", ".", ".."} for part in (*folders, last))
        if odd or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "no name for a file in there")
        at = os.dup(self._root)
        try:
            for each in folders:
                at, above = _made(each, at), at
                os.close(above)
            yield at, last
        finally:
            os.close(at)

    # --- what is the run's own ----------------------------------------------------------------

    @contextlib.contextmanager
    def open_new(self, name: str, mode: int = 0o600) -> Iterator[int]:
        """Yield a descriptor of a new file of the run's own. Raises OSError."""
        descriptor = os.open(name, _NEW, mode, dir_fd=self._own)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a file of the run's own into a folder of such files. Raises OSError."""
        at = _made(folder, self._own)
        try:
            descriptor = os.open(name, _NEW, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            put(descriptor, (content,))
        finally:
            os.close(descriptor)

    def append_to(self, name: str) -> int:
        """Return a descriptor for writing at the end of a file of the run's own. Raises OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raises OSError."""
        with os.fdopen(os.open(name, _READ, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the run's own files whose names end so."""
        return sorted(name for name in os.listdir(self._own) if name.endswith(ending))  # noqa: PTH208

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _made(name: str, folder: int) -> int:
    """Return a descriptor of a folder in a folder, made if it is not there. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def put(descriptor: int, content: Iterable[bytes]) -> None:
    """Write all of it. Raises OSError."""
    with open(descriptor, "wb", _BUFFER, closefd=False) as file:
        file.writelines(content)
