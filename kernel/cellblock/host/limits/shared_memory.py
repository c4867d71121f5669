"""Guests' /dev/shm: memory that no process is shown to hold."""

from __future__ import annotations

import contextlib
import os
from itertools import islice

from cellblock.descriptors import closing, open_folder
from cellblock.host.limits.scratch import LEAST

#: Entries that are removed at once, and levels of folders that are entered, which takes 0.2 s at
#: most. Any more entries stay, and count.
_MOST_REMOVED = 10_000
_DEEPEST_REMOVED = 3


class SharedMemory:
    """The /dev/shm of a zygote's guests, by a descriptor that the zygote sent."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def held(self) -> int:
        """Return the bytes of all files in it, whether or not they are mapped or have a name.

        Each entry counts ``LEAST`` bytes more, because very many empty files fill memory, too.
        """
        system = os.fstatvfs(self._folder)
        blocks = system.f_blocks - system.f_bfree
        entries = system.f_files - system.f_ffree
        return blocks * system.f_frsize + entries * LEAST

    def empty(self) -> bool:
        """Remove the files in it; return whether there were any."""
        return _remove_entries(self._folder, _MOST_REMOVED, _DEEPEST_REMOVED) > 0

    def close(self) -> None:
        """Close the descriptor, which keeps the files alive."""
        os.close(self._folder)


def _remove_entries(folder: int, most: int, levels: int) -> int:
    """Remove the entries of a folder that hostile code has filled; return how many were removed."""
    entries = list[tuple[str, bool]]()
    with contextlib.suppress(OSError), os.scandir(folder) as scanned:
        entries += (
            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(scanned, most)
        )
    removed = 0
    for name, is_folder in entries:
        with contextlib.suppress(OSError):  # the entry is gone, or a folder is not empty yet
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif levels and removed < most:
                with closing(open_folder(name, folder)) as within:
                    removed += _remove_entries(within, most - removed, levels - 1)
                os.rmdir(name, dir_fd=folder)
            removed += 1
    return removed
