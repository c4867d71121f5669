"""Attempts on files: to read, write, make, move and link what this guest may not."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock.guest.attempts.place import Place


def read(path: str) -> None:
    """Read a file to its end."""
    with open(path, "rb") as file:
        file.read()


def append(path: str) -> None:
    """Add a byte to a file."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"x")
    finally:
        os.close(fd)


def make(path: str) -> None:
    """Make a file that is not there."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def make_and_remove(w: Place) -> None:
    """Make a file in the scratch folder, and remove it."""
    make(f"{w.scratch}/made")
    os.unlink(f"{w.scratch}/made")


def read_inside(w: Place) -> None:
    """Read a file that this guest may."""
    read(f"{w.inside}/file")


def write_in_scratch(w: Place) -> None:
    """Make a file in the scratch folder, change it and remove it."""
    make(f"{w.scratch}/written")
    append(f"{w.scratch}/written")
    os.unlink(f"{w.scratch}/written")


def hard_link(w: Place) -> None:
    """Read a secret by another name of its."""
    os.link(f"{w.outside}/secret", f"{w.scratch}/linked")
    read(f"{w.scratch}/linked")


def link(w: Place) -> None:
    """Read a secret by way of a link."""
    os.symlink(f"{w.outside}/secret", f"{w.scratch}/link")
    try:
        read(f"{w.scratch}/link")
    finally:
        os.unlink(f"{w.scratch}/link")


def move(w: Place) -> None:
    """Move a file to where this guest may read it."""
    os.rename(f"{w.outside}/movable", f"{w.scratch}/moved")


def write_on_import_path(_w: Place) -> None:
    """Make a file without a name wherever modules come from. Raises what the last refusal was."""
    refused: OSError | None = None
    for folder in filter(os.path.isdir, sys.path):
        try:
            os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))
        except OSError as error:
            refused = error
        else:
            return
    raise refused or OSError(errno.EOPNOTSUPP, "there is no such folder")
