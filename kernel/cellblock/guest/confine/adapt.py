"""What the locks break in the standard library, mended.

The filter refuses chmod, utime and readlink everywhere, because it can't tell inside from
outside. Honest code meets that in functions that do their work and then copy a mode or a time,
that see to it that a mode is what it is already, or that resolve links on the way: these go on
without. The calls themselves stay refused, and a change that a cell asks for still fails.

It refuses shared memory without a file too, which mmap.mmap(-1, n) asks for by default. Where
there is no process to share it with, private memory is the same thing.
"""

from __future__ import annotations

import functools
import mmap
import os
import posixpath
import shutil
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARING = mmap.MAP_SHARED | mmap.MAP_PRIVATE


def mend_library(*, processes: bool = False) -> None:
    """Replace functions by ones that do without. For the zygote, once, before any fork.

    ``processes`` says that cells may start some, with which they may share memory.
    """
    for module, name in ((shutil, "copymode"), (shutil, "copystat")):
        setattr(module, name, _without_permission(getattr(module, name)))
    for name in ("chmod", "fchmod"):
        _replace_in_os(name, _unless_it_is_so_already(getattr(os, name)))
    # 3.13 does this itself. os.path and posixpath are one module.
    posixpath.realpath = _resolved_as_far_as_allowed(posixpath.realpath)
    if not processes:
        mmap.mmap = _private_where_anonymous(mmap.mmap)  # type: ignore[misc]


def _without_permission(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def copied_or_not(*args: Any, **options: Any) -> None:
        try:
            original(*args, **options)
        except PermissionError:
            return

    return copied_or_not


def _replace_in_os(name: str, replacement: Callable[..., None]) -> None:
    """Put ``replacement`` in os, and where os says what its functions can do."""
    original = getattr(os, name)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if original in able:
            able.add(replacement)
    setattr(os, name, replacement)


def _unless_it_is_so_already(original: Callable[..., None]) -> Callable[..., None]:
    """Let a change of mode succeed that changes nothing: dbm.dumb and others make sure of it."""

    @functools.wraps(original)
    def changed(path: Any, mode: int, **options: Any) -> None:
        try:
            original(path, mode, **options)
        except PermissionError:
            now = os.stat(path, **options).st_mode
            if stat.S_IMODE(now) != stat.S_IMODE(mode):
                raise

    return changed


def _resolved_as_far_as_allowed(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def realpath(filename: Any, *, strict: bool = False) -> Any:
        try:
            return original(filename, strict=strict)
        except OSError:
            if strict:
                raise
            return os.path.abspath(filename)

    return realpath


def _private_where_anonymous(original: Any) -> Any:
    class Mapping(original):  # type: ignore[misc]
        def __new__(
            cls,
            fileno: int,
            length: int,
            flags: int = mmap.MAP_SHARED,
            prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
            access: int = mmap.ACCESS_DEFAULT,
            offset: int = 0,
            **options: Any,
        ) -> Any:
            if fileno == -1 and access in (mmap.ACCESS_DEFAULT, mmap.ACCESS_WRITE):
                access = mmap.ACCESS_DEFAULT
                if flags & _SHARING == mmap.MAP_SHARED:
                    flags = flags & ~_SHARING | mmap.MAP_PRIVATE
            return super().__new__(cls, fileno, length, flags, prot, access, offset, **options)

    Mapping.__name__ = Mapping.__qualname__ = original.__name__
    Mapping.__module__, Mapping.__doc__ = original.__module__, original.__doc__
    return Mapping
