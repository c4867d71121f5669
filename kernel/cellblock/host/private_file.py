"""A file in the user's cache folder that is his alone, and there whole or not at all.

A file that is missing, too large, a link, no file or not the user's alone has nothing in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from cellblock.host.history import FOLDER, check_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFile:
    """The file at ``path``, of which at most ``most_bytes`` are read."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._folder, self._name, self._most = path.parent, path.name, most_bytes

    def read(self) -> bytes:
        """Return what is in it. Never raises."""
        with contextlib.suppress(OSError), self._opened() as folder:
            file = os.open(self._name, _READ, dir_fd=folder)
            try:
                return self._content(file)
            finally:
                os.close(file)
        return b""

    def _content(self, file: int) -> bytes:
        status = os.fstat(file)
        check_own(status, self._name)
        if not stat.S_ISREG(status.st_mode) or status.st_size > self._most:
            return b""
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(self._most)

    def write(self, content: bytes) -> None:
        """Put a new file in place of the old one. Raises OSError, and the old one stays."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with self._opened() as folder:
            name = f".{self._name}-{os.getpid()}-{os.urandom(4).hex()}"
            file = os.open(name, _MAKE, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(content)
                os.replace(name, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                raise

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._folder, FOLDER)
        try:
            check_own(os.fstat(folder), self._folder)
            yield folder
        finally:
            os.close(folder)
