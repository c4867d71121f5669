"""Remove a folder that hostile code has filled: deep, unreadable, oddly named, full of links.

``shutil.rmtree`` recurses, holds a descriptor per level and gives up where it may not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from cellblock.descriptors import FOLDER, closing

_NAMED: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: str) -> None:
    """Remove ``folder`` and all in it, following no link; what can't be removed stays.

    So is the private one of the same name around it, if there is one.
    """
    path = Path(folder)
    with contextlib.suppress(OSError):
        _empty(folder)
    with contextlib.suppress(OSError):
        path.rmdir()
    if path.parent.name == path.name:
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _empty(folder: str) -> None:
    """Walk with one descriptor, down by name and up by ``..``.

    Raises OSError when the way back up is not the way down.
    """
    here = _open(folder, None)
    #: The folders above: what they are, the name that leads down, what else is in them.
    above: list[tuple[tuple[int, int], str, list[str]]] = []
    try:
        folders = _unlink_files(here)
        while folders or above:
            before = here
            if folders:
                name = folders.pop()
                with contextlib.suppress(OSError):
                    here = _open(name, before)
                if here != before:
                    above.append((_identity(before), name, folders))
                    os.close(before)
                    folders = _unlink_files(here)
                continue
            identity, name, folders = above.pop()
            here = os.open("..", FOLDER, dir_fd=before)
            os.close(before)
            if _identity(here) != identity:
                raise OSError("a folder was moved while it was being removed")
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)


def _unlink_files(folder: int) -> list[str]:
    """Unlink what is in a folder; return the names of the folders."""
    folders = []
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            folders.append(name)
        except OSError:
            continue
    return folders


def open_folder(name: str, within: int | None) -> int:
    """Open a folder; one that its maker has no right to read is made readable first."""
    try:
        return os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        with closing(os.open(name, _NAMED, dir_fd=within)) as named:
            # A path to a descriptor follows no link that a name might.
            Path(f"/proc/self/fd/{named}").chmod(stat.S_IRWXU)
    return os.open(name, FOLDER, dir_fd=within)


def _open(name: str, within: int | None) -> int:
    """Open a folder, made its owner's where it is not, so that it can be emptied."""
    fd = open_folder(name, within)
    if ~os.fstat(fd).st_mode & stat.S_IRWXU:
        with contextlib.suppress(OSError):
            os.fchmod(fd, stat.S_IRWXU)
    return fd


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
