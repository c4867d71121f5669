"""Thread pools of numeric libraries, as threadpoolctl finds them for scikit-learn.

It reads ``/proc/self/maps``, which is closed to a guest that took over from another. There it asks
the loader instead, as it does where there is no /proc.
"""

from __future__ import annotations

from typing import Any

from cellblock.guest import mender


def install() -> None:
    """Mend threadpoolctl when it is imported. For the zygote, before any fork."""
    mender.install({"threadpoolctl": _mend})


def _mend(module: Any) -> None:
    kind = module.ThreadpoolController
    look, ask = kind._find_libraries_with_linux, kind._find_libraries_with_dl_iterate_phdr  # noqa: SLF001

    def find(self: Any) -> None:
        try:
            look(self)
        except PermissionError:
            ask(self)

    kind._find_libraries_with_linux = find  # noqa: SLF001
