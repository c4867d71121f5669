"""Thread pools of numeric libraries, which a fork does not copy.

OpenMP's are let go of before a fork: a copy would wait for their threads for ever. The next
parallel region starts them again (OpenMP 5.0, ``omp_pause_resource_all``).

threadpoolctl, by which scikit-learn finds them, reads ``/proc/self/maps``. That is closed to a
guest that took over; there it asks the loader instead, as it does where there is no /proc.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

from cellblock.guest import import_hooks

_OPENMP: Final = ("libgomp", "libomp", "libiomp")
_HARD: Final = 2
_RTLD_NOLOAD: Final = 4


class OpenMP:
    """The OpenMP libraries that are loaded: numeric packages bring one each."""

    def __init__(self) -> None:
        self._modules = 0
        self._pause: list[Any] = []

    def let_go(self) -> None:
        """End the threads that wait for this thread's next parallel region."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._pause = [pause for name in _loaded() if (pause := _pausing(name)) is not None]
        for pause in self._pause:
            pause(_HARD)


class _Loaded(ctypes.Structure):
    """The beginning of dl_iterate_phdr(3)'s ``dl_phdr_info``."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def _loaded() -> list[str]:
    """Return the files of the OpenMP libraries in this process."""
    found: list[str] = []

    def take(info: Any, _size: int, _data: int | None) -> int:
        name = os.fsdecode(info.contents.name or b"")
        if name.rpartition("/")[2].startswith(_OPENMP):
            found.append(name)
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(kind(take), None)
    return found


def _pausing(name: str) -> Any:
    """Return a library's function for it; None for one from before OpenMP 5.0."""
    try:
        return ctypes.CDLL(name, mode=_RTLD_NOLOAD).omp_pause_resource_all
    except (OSError, AttributeError):
        return None


def install() -> None:
    """Mend threadpoolctl when it is imported. For the zygote, before any fork."""
    import_hooks.install_mender({"threadpoolctl": _mend})


def _mend(module: Any) -> None:
    kind = module.ThreadpoolController
    look, ask = kind._find_libraries_with_linux, kind._find_libraries_with_dl_iterate_phdr  # noqa: SLF001

    def find(self: Any) -> None:
        try:
            look(self)
        except PermissionError:
            ask(self)

    kind._find_libraries_with_linux = find  # noqa: SLF001
