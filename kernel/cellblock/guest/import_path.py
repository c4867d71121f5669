"""``sys.path`` if cells need approval: no library can add the folder that cells run in.

Some libraries do so by themselves: ``timeit.main`` adds ``.``; ``pydoc.cli``, unittest's discovery
and pytest add the folder's path. Afterwards every approved import would look there first, and find
files that nobody approved. A cell may add the folder, because its text says so and was approved.

The entry of a library is replaced, not dropped, since some libraries later delete the entry at that
position. A list that a cell assigns to ``sys.path`` is an ordinary list.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.guest.audit_hook import roots

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Entry that replaces the folder if a library adds it. No file can be there.
LEFT_OUT: Final = f"{os.devnull}/the-folder-that-cells-run-in"


class ImportPath(list[Any]):
    """The list of folders that imports look in, to which only cells can add ``folder``.

    Once a cell has added it, libraries may, too.
    """

    def __init__(self, entries: Iterable[Any], folder: str) -> None:
        super().__init__(entries)
        self._folder = os.path.realpath(folder)
        self._is_added = False

    def append(self, entry: Any) -> None:
        """Add an entry at the end."""
        super().append(*self._admissible([entry]))

    def insert(self, index: Any, entry: Any) -> None:
        """Add an entry before the one at ``index``."""
        super().insert(index, *self._admissible([entry]))

    def extend(self, entries: Iterable[Any]) -> None:
        """Add entries at the end."""
        super().extend(self._admissible(entries))

    def __iadd__(self, entries: Iterable[Any]) -> Self:  # type: ignore[misc]
        super().extend(self._admissible(entries))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            super().__setitem__(index, self._admissible(value))
        else:
            super().__setitem__(index, *self._admissible([value]))

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Copy and pickle as a list, because other processes may lack this class."""
        return list, (list(self),)

    def _admissible(self, entries: Iterable[Any]) -> list[Any]:
        """Return the entries as they may be added. The function that adds them calls a method here.

        If that is a library's, the folder is replaced.
        """
        new_entries = list(entries)
        if self._is_added or not any(map(self._is_folder, new_entries)):
            return new_entries
        # Frames outside of the libraries' folders are cells, and Python's frozen modules, which add
        # what their caller told them to.
        if not sys._getframe(2).f_code.co_filename.startswith(roots()):  # noqa: SLF001 - as inspect does
            self._is_added = True
            return new_entries
        return [LEFT_OUT if self._is_folder(entry) else entry for entry in new_entries]

    def _is_folder(self, entry: Any) -> bool:
        """Return whether an entry is the folder, or the present working folder."""
        if not isinstance(entry, str):
            return False
        try:
            return os.path.realpath(entry) in {self._folder, os.path.realpath("")}
        except (OSError, ValueError):  # not a folder now, but a relative path may be one later
            return not os.path.isabs(entry)
