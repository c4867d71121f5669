"""Keeps library classes as they are: a method that user code puts into one would run as library.

``collections.abc.Mapping.get = f`` is called with ``os.environ`` sooner or later. The interpreter
has a flag for types that must not change (C API: Py_TPFLAGS_IMMUTABLETYPE); it is set on every
class that a facade shows and on what it derives from.
"""

from __future__ import annotations

import ctypes
import sys

from cellblock.guest.deeds import doing
from cellblock.guest.guards.access import namespace_of_module

_IMMUTABLE = 1 << 8
_HEAP = 1 << 9
#: Offset of tp_flags in PyTypeObject on 64-bit builds; checked against ``__flags__`` before use.
_OFFSET = 168


def freeze(kind: type) -> None:
    """Make ``kind`` and its bases refuse new attributes."""
    for base in type.mro(kind):
        _mark(base)


def freeze_package(package: str) -> None:
    """Freeze every class that the loaded modules of ``package`` define, but not their bases."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package.partition(".")[0] and name.startswith(package):
            for value in list(namespace_of_module(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    _mark(value)


def _mark(kind: type) -> None:
    flags = kind.__flags__
    if flags & _IMMUTABLE or not flags & _HEAP:
        return
    with doing():
        field = ctypes.c_ulong.from_address(id(kind) + _OFFSET)
    if field.value == flags:
        field.value = flags | _IMMUTABLE
