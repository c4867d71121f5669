"""Keeps library classes as they are: a method that user code puts into one would run as library.

``collections.abc.Mapping.get = f`` is called with ``os.environ`` sooner or later. The interpreter
has a flag for types that must not change (C API: Py_TPFLAGS_IMMUTABLETYPE); it is set on every
class of the standard library, of IPython and of the guest.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

from cellblock.guest.audit_exempt import run_exempt

if TYPE_CHECKING:
    from collections.abc import Callable

#: Py_TPFLAGS_HEAPTYPE: made by a class statement, or by type().
IMMUTABLE, HEAP = 1 << 8, 1 << 9
#: Offset of tp_flags in PyTypeObject on 64-bit builds; checked against ``__flags__`` before use.
_OFFSET = 168
LIBRARY = frozenset({"IPython", *sys.stdlib_module_names})
#: Classes that write to themselves as they work; nothing but cells uses the second.
_CHANGING = frozenset({"weakref.finalize", "difflib.HtmlDiff"})
_subclasses: Callable[[type], list[type]] = type.__dict__["__subclasses__"]


def freeze_loaded(packages: frozenset[str] = LIBRARY) -> None:
    """Freeze every class there is of ``packages``, those that functions made included."""
    stack: list[type] = [object]
    seen = {id(object)}
    while stack:
        kind = stack.pop()
        for below in _subclasses(kind):
            if id(below) not in seen:
                seen.add(id(below))
                stack.append(below)
        module = kind.__module__
        if type(module) is str and module.partition(".")[0] in packages:
            freeze(kind)


def freeze(kind: type) -> None:
    """Make ``kind`` refuse new attributes, if it does not write to itself."""
    flags = kind.__flags__
    if flags & IMMUTABLE or not flags & HEAP or f"{kind.__module__}.{kind.__name__}" in _CHANGING:
        return
    field = run_exempt(ctypes.c_ulong.from_address, id(kind) + _OFFSET)
    if field.value == flags:
        field.value = flags | IMMUTABLE
