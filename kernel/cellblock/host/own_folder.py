"""A folder on disk that belongs to one running kernel, and goes with it.

Kernels' folders lie side by side. Each holds a lock (flock(2)) for as long as its kernel lives,
so that a later kernel tells those of the dead, and removes them. Links are never followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Final

from cellblock.host.history import FOLDER, check_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK: Final = "lock"
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Tries, and seconds between them, while another kernel removes what dead ones left.
_TRIES, _PAUSE = 20, 0.005


class OwnFolder:
    """One kernel's folder, made when the first file is."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._name = ""
        self._fd: int | None = None
        self._lock: int | None = None

    def create(self, name: str) -> int:
        """Return a descriptor of a new file, the user's alone. Raises OSError."""
        return os.open(name, _MAKE, 0o600, dir_fd=self._made())

    def append(self, name: str) -> int:
        """Return a descriptor for writing at a file's end. Raises OSError."""
        return os.open(name, _APPEND, dir_fd=self._made())

    def read(self, name: str) -> int:
        """Return a descriptor for reading a file. Raises OSError."""
        return os.open(name, _READ, dir_fd=self._made())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._made())

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        if self._fd is None or self._lock is None:
            return
        with contextlib.suppress(OSError), self._beside() as beside:
            _empty(self._fd)
            os.rmdir(self._name, dir_fd=beside)
        os.close(self._fd)
        os.close(self._lock)
        self._fd = self._lock = None

    def sweep(self) -> None:
        """Remove what kernels left that ended without doing so."""
        if not self._parent.exists():
            return
        with contextlib.suppress(OSError), self._beside() as beside:
            lock = _locked(beside, fcntl.LOCK_EX)
            try:
                for name in os.listdir(beside):  # noqa: PTH208 - by descriptor
                    if name not in (self._name, _LOCK):
                        _remove_dead(beside, name)
            finally:
                os.close(lock)

    def _made(self) -> int:
        if self._fd is None:
            with self._beside() as beside:
                guard = _locked(beside, fcntl.LOCK_SH)  # nobody sweeps before ours is locked
                try:
                    self._fd = self._make(beside)
                finally:
                    os.close(guard)
        return self._fd

    def _make(self, beside: int) -> int:
        """Make a folder, lock it and return it; one that fails half-way is left to be swept."""
        name = f"{os.getpid()}-{os.urandom(4).hex()}"
        os.mkdir(name, 0o700, dir_fd=beside)
        folder = os.open(name, FOLDER, dir_fd=beside)
        try:
            self._lock = _locked(folder, fcntl.LOCK_EX)
        except OSError:
            os.close(folder)
            raise
        self._name = name
        return folder

    @contextlib.contextmanager
    def _beside(self) -> Iterator[int]:
        """Open the folder that kernels' folders lie in. Raises OSError, for others' too."""
        self._parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        above = os.open(self._parent.parent, FOLDER)
        try:
            check_own(os.fstat(above), self._parent.parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._parent.name, 0o700, dir_fd=above)
            beside = os.open(self._parent.name, FOLDER, dir_fd=above)
        finally:
            os.close(above)
        try:
            check_own(os.fstat(beside), self._parent)
            yield beside
        finally:
            os.close(beside)


def _locked(folder: int, how: int) -> int:
    """Return the lock of a folder, held. Raises OSError when it can't be had at once."""
    lock = os.open(_LOCK, _OPEN, 0o600, dir_fd=folder)
    for tries in range(_TRIES):
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except OSError:
            if how == fcntl.LOCK_EX or tries == _TRIES - 1:
                os.close(lock)
                raise
            time.sleep(_PAUSE)
        else:
            break
    return lock


def _remove_dead(beside: int, name: str) -> None:
    """Remove a kernel's folder unless its lock is held."""
    with contextlib.suppress(OSError):
        folder = os.open(name, FOLDER, dir_fd=beside)
        try:
            check_own(os.fstat(folder), name)
            lock = _locked(folder, fcntl.LOCK_EX)
            try:
                _empty(folder)
            finally:
                os.close(lock)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=beside)


def _empty(folder: int) -> None:
    """Remove the files of a folder; one that has folders in it is not ours, and stays."""
    for name in os.listdir(folder):
        os.unlink(name, dir_fd=folder)
