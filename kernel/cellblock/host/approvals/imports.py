"""Where packages are that may be approved of: installed for the interpreter, by nobody's cell."""

from __future__ import annotations

import os
import sysconfig
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from cellblock.host.guests.spawn import import_path

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Folders of these names hold nothing else.
_INSTALLED: Final = ("dist-packages", "site-packages")


def is_installed(package: str, more: tuple[str, ...] = ()) -> bool:
    """Say whether guests find ``package`` among what is installed, or in one of ``more`` folders.

    Not in a notebook's folder, nor by a link that leads elsewhere; nothing of it is imported. One
    without a file of its own is none: whoever adds a folder adds to it.
    """
    path = [*import_path(), *more]
    try:
        spec = PathFinder.find_spec(package, path)
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.origin or not os.path.isabs(spec.origin):  # noqa: PTH117 - no object for it
        return False
    real = PurePath(os.path.realpath(spec.origin))
    return any(real.is_relative_to(folder) for folder in _real({*_folders(), *more}))


def _real(folders: Iterable[str]) -> list[str]:
    return [os.path.realpath(folder) for folder in folders]


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    named = [path for path in import_path() if PurePath(path).name in _INSTALLED]
    paths = sysconfig.get_paths()
    return (*named, paths["purelib"], paths["platlib"])
