"""``sys.path`` where cells are admitted: no library adds the folder that cells run in.

Some do by themselves: ``timeit.main`` adds ``.``; ``pydoc.cli``, unittest's discovery and pytest
add the folder's path. From then on every approved import would look there first, for a file that
nobody approved. A cell may add the folder: its text says so, and was approved with that.

An entry of a library's is replaced rather than left out, since some libraries delete it by its
place. A list that a cell binds to ``sys.path`` is that cell's own, and as any other.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.guest.audit_hook import roots

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Stands for the folder where a library added it; nothing can be there.
LEFT_OUT: Final = f"{os.devnull}/the-folder-that-cells-run-in"


class ImportPath(list[Any]):
    """A list of the folders that imports look in, of which ``folder`` is left to cells to add.

    Once a cell has added it, anything may.
    """

    def __init__(self, entries: Iterable[Any], folder: str) -> None:
        super().__init__(entries)
        self._folder = os.path.realpath(folder)
        self._is_added = False

    def append(self, entry: Any) -> None:
        """Add an entry at the end."""
        super().append(*self._taken([entry]))

    def insert(self, at: Any, entry: Any) -> None:
        """Add an entry before the one at a place."""
        super().insert(at, *self._taken([entry]))

    def extend(self, entries: Iterable[Any]) -> None:
        """Add entries at the end."""
        super().extend(self._taken(entries))

    def __iadd__(self, entries: Iterable[Any]) -> Self:  # type: ignore[misc]
        super().extend(self._taken(entries))
        return self

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice):
            super().__setitem__(at, self._taken(value))
        else:
            super().__setitem__(at, *self._taken([value]))

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Copy and pickle as a list: other processes may have no such class."""
        return list, (list(self),)

    def _taken(self, entries: Iterable[Any]) -> list[Any]:
        """Return what is added for these entries by the caller's caller."""
        found = list(entries)
        if self._is_added or not any(map(self._is_folder, found)):
            return found
        # Python's frozen modules add what they were told to, and for as long as that takes.
        if not sys._getframe(2).f_code.co_filename.startswith(roots()):  # noqa: SLF001 - as inspect does
            self._is_added = True
            return found
        return [LEFT_OUT if self._is_folder(entry) else entry for entry in found]

    def _is_folder(self, entry: Any) -> bool:
        """Return whether imports would look in the folder, or in the one that cells are in now."""
        if not isinstance(entry, str):
            return False
        try:
            return os.path.realpath(entry) in {self._folder, os.path.realpath("")}
        except (OSError, ValueError):  # no folder: what is relative may be one later
            return not os.path.isabs(entry)
