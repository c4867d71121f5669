"""Finding the files that are meant, and have changed, beneath folders that cells may write.

A descriptor a folder, opened by name within the one above and through no link: whatever is moved
or made a link meanwhile, the walk stays beneath its root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from cellblock.policy.paths import open_unlinked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.artifacts.patterns import Patterns, States

#: Entries of one walk, and folders within each other.
ENTRIES: Final = 20_000
DEEPEST: Final = 32
#: Entries of a walk between which others have their turn.
AT_ONCE: Final = 500
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Which file it is, and how it was when it was looked at.
State = tuple[int, int, int, int, int]


class TooMany(Exception):  # noqa: N818 - never leaves this package
    """There is more than is looked at."""


class Entry:
    """Something that is meant: the folder that it is in, its name there, its path from a root."""

    __slots__ = ("folder", "name", "path", "root", "status")

    def __init__(
        self, folder: int, name: str, status: os.stat_result, *, root: str, path: str
    ) -> None:
        self.folder, self.name, self.status = folder, name, status
        self.root, self.path = root, path

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.root, self.path

    @property
    def state(self) -> State:
        """What changes when the file does."""
        status = self.status
        return (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )


def open_folder(path: str) -> int:
    """Open a root. Raises OSError, for a link too."""
    return open_unlinked(path, FOLDER)


class Search:
    """One walk over all roots; yields entries, and None where others may have their turn."""

    def __init__(
        self, roots: tuple[str, ...], patterns: Patterns, opener: Callable[[str], int]
    ) -> None:
        self._roots, self._patterns, self._opener = roots, patterns, opener
        self._left, self._root = ENTRIES, ""

    def run(self) -> Iterator[Entry | None]:
        """Walk. Raises TooMany; what can't be opened is left out. An entry is for its turn only."""
        for root in self._roots:
            self._root = root
            states = self._patterns.at(root)
            if not self._patterns.leads_on(states):
                continue
            with contextlib.suppress(OSError):
                yield from self._folder(self._opener(root), "", states, DEEPEST)

    def _folder(self, folder: int, path: str, states: States, depth: int) -> Iterator[Entry | None]:
        inner: list[tuple[str, States]] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    yield from self._entry(folder, path, entry, states, inner)
            for name, its in inner if depth else ():
                with contextlib.suppress(OSError):
                    yield from self._folder(
                        os.open(name, FOLDER, dir_fd=folder), f"{path}{name}/", its, depth - 1
                    )
        finally:
            os.close(folder)

    def _entry(
        self,
        folder: int,
        path: str,
        entry: os.DirEntry[str],
        states: States,
        inner: list[tuple[str, States]],
    ) -> Iterator[Entry | None]:
        self._left -= 1
        if self._left < 0:
            raise TooMany
        if self._left % AT_ONCE == 0:
            yield None
        its = self._patterns.down(states, entry.name)
        if not its:
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # it is gone
            return
        if stat.S_ISDIR(status.st_mode):
            if self._patterns.leads_on(its):
                inner.append((entry.name, its))
        elif self._patterns.meant(its):
            yield Entry(folder, entry.name, status, root=self._root, path=f"{path}{entry.name}")
