"""Removing a folder that hostile code has filled: deep, unreadable, oddly named, full of links.

``shutil.rmtree`` recurses, holds a descriptor per level and gives up where it may not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: str) -> None:
    """Remove ``folder`` and all in it, following no link; what can't be removed stays."""
    with contextlib.suppress(OSError):
        _Emptying(folder).run()
    with contextlib.suppress(OSError):
        Path(folder).rmdir()


class _Emptying:
    """A walk with one descriptor, down by name and up by ``..``; single use."""

    def __init__(self, folder: str) -> None:
        self._at = _open(folder, None)
        #: The folders above: what they are, the name that leads down, what else is in them.
        self._above: list[tuple[tuple[int, int], str, list[str]]] = []

    def run(self) -> None:
        """Empty it. Raises OSError when the way back up is not the way down."""
        try:
            names = self._unlink()
            while names or self._above:
                names = self._down(names.pop(), names) if names else self._up()
        finally:
            os.close(self._at)

    def _unlink(self) -> list[str]:
        """Unlink what is here; return the names of the folders."""
        folders = []
        for name in os.listdir(self._at):
            try:
                os.unlink(name, dir_fd=self._at)
            except IsADirectoryError:
                folders.append(name)
            except OSError:
                continue
        return folders

    def _down(self, name: str, others: list[str]) -> list[str]:
        try:
            inner = _open(name, self._at)
        except OSError:
            return others
        self._above.append((_identity(self._at), name, others))
        self._move(inner)
        return self._unlink()

    def _up(self) -> list[str]:
        identity, name, others = self._above.pop()
        self._move(os.open("..", _FOLDER, dir_fd=self._at))
        if _identity(self._at) != identity:
            raise OSError("a folder was moved while it was being removed")
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._at)
        return others

    def _move(self, fd: int) -> None:
        os.close(self._at)
        self._at = fd


def _open(name: str, within: int | None) -> int:
    """Open a folder, made its owner's where it is not: its maker may have no right to read it."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=within)
    except PermissionError:
        named = os.open(name, _NAMED, dir_fd=within)
        try:
            # A path to a descriptor follows no link that a name might.
            Path(f"/proc/self/fd/{named}").chmod(stat.S_IRWXU)
        finally:
            os.close(named)
        return os.open(name, _FOLDER, dir_fd=within)
    if ~os.fstat(fd).st_mode & stat.S_IRWXU:
        with contextlib.suppress(OSError):
            os.fchmod(fd, stat.S_IRWXU)
    return fd


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
