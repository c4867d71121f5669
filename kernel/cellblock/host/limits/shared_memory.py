"""Guests' /dev/shm: memory that is held without a process that holds it."""

from __future__ import annotations

import contextlib
import os
from itertools import islice

from cellblock.descriptors import closing, open_folder
from cellblock.host.limits.scratch import LEAST

#: Entries of a folder that are removed, and folders within folders that are entered: what more
#: there is stays, and counts. It takes 0.2 s at most.
_MOST_REMOVED, _DEEPEST_REMOVED = 10_000, 3


class SharedMemory:
    """The /dev/shm that the guests of one zygote have, by a descriptor that the zygote sent."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def held(self) -> int:
        """Return the bytes in it, whether anybody has them mapped or not, with a name or without.

        An entry counts ``LEAST`` besides: files without number fill memory too.
        """
        found = os.fstatvfs(self._folder)
        blocks, entries = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
        return blocks * found.f_frsize + entries * LEAST

    def empty(self) -> bool:
        """Remove what is in it; return whether there was anything."""
        return _remove_entries(self._folder, _MOST_REMOVED, _DEEPEST_REMOVED) > 0

    def close(self) -> None:
        """Close the descriptor, which keeps what is in it."""
        os.close(self._folder)


def _remove_entries(folder: int, most: int, levels: int) -> int:
    """Remove what is in an open folder that hostile code has filled; return how many entries."""
    entries = list[tuple[str, bool]]()
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        entries += ((one.name, one.is_dir(follow_symlinks=False)) for one in islice(found, most))
    removed = 0
    for name, is_folder in entries:
        with contextlib.suppress(OSError):  # it is gone, or more is in it than is removed
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif levels and removed < most:
                with closing(open_folder(name, folder)) as within:
                    removed += _remove_entries(within, most - removed, levels - 1)
                os.rmdir(name, dir_fd=folder)
            removed += 1
    return removed
