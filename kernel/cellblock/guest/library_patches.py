"""Libraries patched for what a guest is: the standard library at once, others when imported.

The system call filter refuses readlink everywhere, and chmod and utime but where all else is
mounted read-only (``confine.layer.seal``), because it can't tell inside from outside. Honest code
meets that in functions that do their work and then copy a mode or a time, that make sure of a mode
that is there already, or that resolve links on the way: these go on without. The calls themselves
stay refused, and a change that a cell asks for still fails.

It refuses shared memory without a file too, which ``mmap.mmap(-1, n)`` asks for by default. Where
there is no process to share it with, private memory is the same thing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import mmap
import os
import posixpath
import shutil
import stat
import subprocess
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    #: Takes a module that was just imported.
    Patch = Callable[[Any], None]


class _PatchingFinder:
    """Find what ``sys.path`` has, and run a patch after a module that has one."""

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module to patch, None for any other."""
        patch = self._patches.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            # A version that is made otherwise works as it would have.
            with contextlib.suppress(Exception):
                patch(module)

        loader.exec_module = exec_module
        return spec


def patch_when_imported(patches: Mapping[str, Patch]) -> None:
    """Patch these modules, by name, when they are imported. For the zygote, before any fork."""
    sys.meta_path[:0] = [_PatchingFinder(patches), _DistutilsFinder()]


class _DistutilsFinder:
    """Find ``distutils`` where setuptools has it, as in a Python that was started with its site.

    There a .pth file of setuptools' sees to that; Python 3.12 and later have no other.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what setuptools says of ``distutils``; None for all else, and without it."""
        if fullname != "distutils":
            return None
        with contextlib.suppress(ImportError, AttributeError):
            hack: Any = importlib.import_module("_distutils_hack")
            if hack.enabled():
                found: ModuleSpec | None = hack.DISTUTILS_FINDER.find_spec(fullname, path, target)
                return found
        return None


#: How threadpoolctl, by which scikit-learn finds its thread pools, looks for libraries: by
#: /proc/self/maps, or by the loader.
_BY_MAPS: Final = "_find_libraries_with_linux"
_BY_LOADER: Final = "_find_libraries_with_dl_iterate_phdr"


def patch_threadpoolctl(module: Any) -> None:
    """Let it ask the loader where the map of a guest that took over can't be read."""
    kind = module.ThreadpoolController
    by_maps, by_loader = getattr(kind, _BY_MAPS), getattr(kind, _BY_LOADER)

    def find(self: Any) -> None:
        try:
            by_maps(self)
        except PermissionError:
            by_loader(self)

    setattr(kind, _BY_MAPS, find)


def patch_pdb(module: Any) -> None:
    """Let an interrupt end a debugger that waits for a command: Python's asks again for ever."""

    def set_trace(*, header: str | None = None, commands: Iterable[str] | None = None) -> None:
        from IPython.core.debugger import InterruptiblePdb  # noqa: PLC0415 - it imports pdb

        debugger: Any = InterruptiblePdb()
        debugger.rcLines.extend(commands or ())  # which Python has from 3.14 on
        if header is not None:
            debugger.message(header)
        frame = inspect.currentframe()
        debugger.set_trace(frame and frame.f_back)

    module.set_trace = set_trace


def patch_start_method(module: Any) -> None:
    """Fork by default in 3.14 too: its server of forks listens on a socket, which no cell may."""
    if sys.version_info >= (3, 14):
        fork = vars(module)["_concrete_contexts"]["fork"]
        vars(module)["_get_platform_default_context"] = lambda: fork


def patch_standard_library(*, processes: bool = False) -> None:
    """Replace functions by ones that go on without. For the zygote, once, before any fork.

    ``processes``: cells may start some, and share memory with them.
    """
    for name in ("copymode", "copystat"):
        setattr(shutil, name, _skip_if_refused(getattr(shutil, name)))
    for name in ("chmod", "fchmod"):
        original = getattr(os, name)
        changed = _succeed_if_unchanged(original)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in able:
                able.add(changed)
        setattr(os, name, changed)
    # 3.13 does this itself. os.path and posixpath are one module.
    posixpath.realpath = _realpath(posixpath.realpath)
    if processes:
        # This interpreter was started without site-packages, and what cells start is to have them.
        vars(subprocess)["_args_from_interpreter_flags"] = list
    else:
        mmap.mmap = _private_mmap(mmap.mmap)  # type: ignore[misc]


def _skip_if_refused(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def copy(*args: Any, **options: Any) -> None:
        with contextlib.suppress(PermissionError):
            original(*args, **options)

    return copy


def _succeed_if_unchanged(original: Callable[..., None]) -> Callable[..., None]:
    """Let a change of mode succeed that changes nothing: dbm.dumb and others make sure of it."""

    @functools.wraps(original)
    def change(path: Any, mode: int, **options: Any) -> None:
        try:
            original(path, mode, **options)
        except PermissionError:
            if stat.S_IMODE(os.stat(path, **options).st_mode) != stat.S_IMODE(mode):
                raise

    return change


def _realpath(original: Callable[..., Any]) -> Any:
    """Resolve links as far as that is allowed."""

    @functools.wraps(original)
    def realpath(filename: Any, *, strict: bool = False) -> Any:
        try:
            return original(filename, strict=strict)
        except OSError:
            if strict:
                raise
            return os.path.abspath(filename)

    return realpath


def _private_mmap(original: Any) -> Any:
    kinds = mmap.MAP_SHARED | mmap.MAP_PRIVATE

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
                if flags & kinds == mmap.MAP_SHARED:
                    flags = flags & ~kinds | mmap.MAP_PRIVATE
            return super().__new__(cls, fileno, length, flags, prot, access, offset, **options)

    Mapping.__name__ = Mapping.__qualname__ = original.__name__
    Mapping.__module__, Mapping.__doc__ = original.__module__, original.__doc__
    return Mapping
