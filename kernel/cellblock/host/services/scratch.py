"""Files that a program puts into a sandbox's scratch folder, or takes from there.

A guest writes in that folder while the host opens things in it. So each part of a name is opened
in the folder before it, through no link, and what was opened is what is looked at (promise P13).
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.descriptors import closing
from cellblock.errors import ExchangeError
from cellblock.host.sparse import end_file, read_parts, write_part

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: A named pipe, or a lease of another process, is not waited for.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_PARTS: Final = 32


def put(scratch: int, name: str, source: str | Path, most: int | None) -> None:
    """Copy ``source`` to ``name`` in the folder ``scratch``, which is closed.

    What has that name, a link too, is replaced as a whole. Raises ExchangeError for more than
    ``most`` bytes, and OSError for a ``source`` that can't be read.
    """
    with _parent(scratch, name, make=True) as (folder, last), Path(source).open("rb") as original:
        _check(name, os.fstat(original.fileno()), most, "scratch_max_bytes")
        unfinished = f".{secrets.token_hex(16)}"
        with _errors(name):
            made = os.open(unfinished, _MAKE, 0o644, dir_fd=folder)
        try:
            with closing(made), _errors(name):
                _copy(original.fileno(), made, name, most)
                os.rename(unfinished, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)
            raise


def take(scratch: int, name: str, target: str | Path, most: int) -> None:
    """Copy the file ``name`` in the folder ``scratch``, which is closed, to ``target``.

    Raises ExchangeError for what is no file of up to ``most`` bytes, OSError for a ``target`` that
    can't be written. What was there before is replaced once all is copied.
    """
    with _parent(scratch, name) as (folder, last):
        with _errors(name):
            opened = os.open(last, _READ, dir_fd=folder)
        target = Path(target)
        unfinished = target.with_name(f".{secrets.token_hex(16)}")
        try:
            found = os.fstat(opened)
            _check(name, found, most, "max_bytes")
            if found.st_nlink != 1:
                raise ExchangeError(f"{name} has another name (a hard link); have a cell copy it")
            with unfinished.open("xb") as copy:
                _copy(opened, copy.fileno(), name, most)
            unfinished.replace(target)
        finally:
            os.close(opened)
            unfinished.unlink(missing_ok=True)


@contextmanager
def _parent(scratch: int, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the folder beneath ``scratch`` that ``name`` is in, open, and its last part."""
    folder = scratch
    try:
        *above, last = parts = name.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name or len(parts) > _MOST_PARTS:
            raise ExchangeError(f"{name!r} is no file in the scratch folder: name one without ..")
        for part in above:
            with _errors(name):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, last
    finally:
        os.close(folder)


def _check(name: str, found: os.stat_result, most: int | None, limit: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ExchangeError(f"{name} is no regular file: pack folders into one")
    if most is not None and found.st_size > most:
        raise ExchangeError(f"{name} has {found.st_size:,} bytes; {limit} is {most:,}")


def _copy(original: int, copy: int, name: str, most: int | None) -> None:
    """Copy what is there when it is read: a file may grow meanwhile. A hole remains one."""
    left = most
    for part in read_parts(original):
        if left is not None:
            left -= len(part.data)
            if left < 0:
                raise ExchangeError(f"{name} grew while it was copied: have no cell write to it")
        write_part(copy, part)
    end_file(copy)


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Raise an OSError in the scratch folder as an ExchangeError."""
    try:
        yield
    except OSError as exc:
        raise ExchangeError(f"{name} in the scratch folder: {exc.strerror}") from None
