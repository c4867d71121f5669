"""How full a guest's scratch folder is: a walk over hostile folders in bounded steps."""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Entries that one look takes, some 4 µs each.
ENTRIES: Final = 4_000
#: Bytes that an entry counts as at least: files without number fill a disk too.
LEAST: Final = 4_096
#: Folders within folders that are followed; what lies deeper counts as too much.
DEEPEST: Final = 64
#: Folders not yet entered that are remembered; more count as too much.
MOST_FOLDERS: Final = 100_000
#: What counts as too much whatever the limit is.
ENDLESS: Final = 2**60
#: Above the limit by this part, and this many bytes, there is no time left for an interrupt.
FAR_PART, FAR_BYTES = 4, 64 << 20

#: Of ``st_blocks`` (stat(2)).
_BLOCK: Final = 512
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The bytes on disk beneath ``folder``, against ``limit``.

    A folder that was too full before a cell is the cell's fault only if it grows further: else
    nobody could clear it up.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self.limit = folder, limit
        #: What there was when the cell began; None until a walk has found that out.
        self._floor: int | None = 0
        self._walk: Iterator[int] | None = None
        self._counted = 0
        #: As far as it is known.
        self.size = 0
        #: Whether the last whole walk found more than the one before.
        self.grew = False

    def begin(self) -> None:
        """Take note that a cell begins, which answers for what comes."""
        self._floor = 0
        if self.size > self.limit:
            self._floor = self._walk = None

    def look(self) -> None:
        """Go on with the walk, or begin the next."""
        if self._walk is None:
            self._walk, self._counted = _sizes(self._folder), 0
        taken = 0
        for size in islice(self._walk, ENTRIES):
            taken += 1
            self._counted += size
        if taken == ENTRIES:
            self.size = max(self.size, self._counted)
        else:
            self._whole(self._counted)

    def _whole(self, total: int) -> None:
        self.grew, self.size, self._walk = total > self.size, total, None
        if self._floor is None:
            self._floor = total

    @property
    def full(self) -> bool:
        """Whether there is too much in it."""
        return self._floor is not None and self.size > max(self.limit, self._floor)

    @property
    def far(self) -> bool:
        """Whether there is so much that to wait would make it worse."""
        bound = max(self.limit, self._floor or 0)
        return self.full and self.size > bound + max(bound // FAR_PART, FAR_BYTES)


class _Level:
    """A folder that is open, and the folders in it that are not yet entered."""

    __slots__ = ("fd", "folders")

    def __init__(self, name: str, within: int | None) -> None:
        self.fd = _open(name, within)
        self.folders: list[str] = []

    def entries(self) -> Iterator[int]:
        """Yield what each entry takes; note the folders."""
        with os.scandir(self.fd) as found:
            for entry in found:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is gone
                    continue
                if stat.S_ISDIR(status.st_mode):
                    self.folders.append(entry.name)
                    yield max(LEAST, status.st_blocks * _BLOCK)
                else:
                    yield max(LEAST, status.st_blocks * _BLOCK // max(1, status.st_nlink))


def _sizes(folder: str) -> Iterator[int]:
    """Yield what each entry beneath ``folder`` takes of the disk.

    A descriptor a level, so that a folder that is moved, or made a link, leads nowhere else.
    """
    stack: list[_Level] = []
    waiting, down = 0, folder
    try:
        while True:
            with contextlib.suppress(OSError):
                stack.append(_Level(down, stack[-1].fd if stack else None))
                yield from stack[-1].entries()
                waiting += len(stack[-1].folders)
            while stack and not stack[-1].folders:
                os.close(stack.pop().fd)
            if not stack:
                return
            if waiting > MOST_FOLDERS or len(stack) > DEEPEST:
                yield ENDLESS
                return
            waiting, down = waiting - 1, stack[-1].folders.pop()
    finally:
        for level in stack:
            os.close(level.fd)


def _open(name: str, within: int | None) -> int:
    """Open a folder; one that its maker has no right to read is made readable first."""
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except PermissionError:
        named = os.open(name, _NAMED, dir_fd=within)
    try:
        # A path to a descriptor follows no link that a name might.
        Path(f"/proc/self/fd/{named}").chmod(stat.S_IRWXU)
    finally:
        os.close(named)
    return os.open(name, _FOLDER, dir_fd=within)
