"""Mending libraries for what a guest is: a function is run after a module that a cell imports."""

from __future__ import annotations

import contextlib
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Mend = Callable[[Any], None]


def install_mender(mends: Mapping[str, Mend]) -> None:
    """Mend these modules, by name, when they are imported. For the zygote, before any fork."""
    sys.meta_path.insert(0, _Mender(mends))


class _Mender:
    """Finds what ``sys.path`` has, and runs a mend after a module that has one."""

    def __init__(self, mends: Mapping[str, Mend]) -> None:
        self._mends = mends

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module to mend, None for any other."""
        mend = self._mends.get(fullname)
        if mend is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader, mend)
        return spec


def _run_after(loader: Any, mend: Mend) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        # A version that is made otherwise shows as it would have.
        with contextlib.suppress(Exception):
            mend(module)

    loader.exec_module = exec_module
