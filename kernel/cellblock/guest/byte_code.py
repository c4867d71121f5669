"""Which source files were compiled here: a guest keeps no byte code, so it tells the host."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader

from cellblock.wire.messages import MOST_COMPILED

_LONGEST = 1_000
_compiled: list[str] = []


def watch() -> None:
    """Note what was compiled until now, and from now on which source files are read.

    A module's is read where there is no byte code of it. What compiles it is left as it is: one
    more frame would show in the traceback of a syntax error.
    """
    for module in sys.modules.values():
        name, kept = getattr(module, "__file__", None), getattr(module, "__cached__", None)
        if name and kept and not os.path.exists(kept):
            _compiled.append(name)
    read = SourceFileLoader.get_data

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        data = read(self, path)
        if path == self.path:
            _compiled.append(path)
        return data

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign, assignment]


def take() -> list[str]:
    """Return what has not been told yet, some at a time."""
    taken = _compiled[:MOST_COMPILED]
    del _compiled[:MOST_COMPILED]
    return [path for path in taken if path.isprintable() and len(path) <= _LONGEST]
