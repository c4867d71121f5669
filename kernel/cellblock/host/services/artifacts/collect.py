"""A session's artifacts: what is copied out after each cell, in steps that hold nobody up."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
import time
import traceback
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cellblock.host.services.artifacts.store import Shelf, Unfit
from cellblock.policy.paths import open_unlinked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from cellblock.host.services.artifacts.store import Copied
    from cellblock.host.session.types import Reactor


# Finding the files that are meant, and have changed, beneath folders that cells may write.
#
# A descriptor a folder, opened by name within the one above and through no link: whatever is
# moved or made a link meanwhile, the walk stays beneath its root.

#: Entries of one walk, and folders within each other.
ENTRIES: Final = 20_000
DEEPEST: Final = 32
#: Entries of a walk between which others have their turn.
AT_ONCE: Final = 500
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Which file it is, and how it was when it was looked at.
State = tuple[int, int, int, int, int]


class TooMany(Exception):
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


# Which files are meant: globs, matched name by name on the way down.
#
# Grammar of a pattern::
#
#     pattern = part *( "/" part )
#     part    = "**" | glob         ; any number of folders, or one name as fnmatch has it
#
# Names that begin with a dot are meant only where the part does.

#: Any number of folders.
_ANY: Final = "**"
_WILD: Final = frozenset("*?[")
#: Which patterns are matched up to which of their parts.
States = frozenset[tuple[int, int]]


def rooted(pattern: str, folder: str) -> str:
    """Return a pattern as an absolute one; any other is relative to ``folder``, canonical."""
    return pattern if pattern.startswith("/") else f"{folder}/{pattern}"


def begins_in(pattern: str) -> str:
    """Return the folder that an absolute pattern names before its first wildcard, or its file."""
    parts = pattern.split("/")[:-1]
    wild = (at for at, part in enumerate(parts) if _WILD.intersection(part))
    return "/".join(parts[: next(wild, len(parts))]) or "/"


class Patterns:
    """Absolute globs. A walk begins with ``at`` a folder and goes ``down`` by names."""

    def __init__(self, globs: Iterable[str]) -> None:
        self._parts = [tuple(filter(None, one.split("/"))) for one in globs]

    def at(self, folder: str) -> States:
        """Return the states in an absolute folder; none where nothing beneath it is meant."""
        states = self._settled({(index, 0) for index in range(len(self._parts))})
        for name in filter(None, folder.split("/")):
            states = self.down(states, name)
        return states

    def down(self, states: States, name: str) -> States:
        """Return the states of an entry of that name."""
        found = set()
        for index, place in states:
            parts = self._parts[index]
            if place < len(parts) and _matches(parts[place], name):
                found.add((index, place if parts[place] == _ANY else place + 1))
        return self._settled(found)

    def meant(self, states: States) -> bool:
        """Say whether a file with these states is meant."""
        return any(place == len(self._parts[index]) for index, place in states)

    def leads_on(self, states: States) -> bool:
        """Say whether something in a folder with these states may be meant."""
        return any(place < len(self._parts[index]) for index, place in states)

    def _settled(self, states: set[tuple[int, int]]) -> States:
        """Return the states with those that ``**`` has for no folder at all."""
        waiting = list(states)
        while waiting:
            index, place = waiting.pop()
            parts, further = self._parts[index], (index, place + 1)
            if place < len(parts) and parts[place] == _ANY and further not in states:
                states.add(further)
                waiting.append(further)
        return frozenset(states)


def _matches(part: str, name: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return part == _ANY or _compiled(part).match(name) is not None


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


# Files that cells leave for their users: found after a cell, and copied to a folder of the
# host's.
#
# Invariant: whatever a cell puts there is hostile. No link is followed, nothing but a regular
# file with one name is read, what is read and written is bounded, and names are made harmless
# before they are used or shown.


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that was copied out: its name in the folder of artifacts, and where it is now.

    ``content_type`` is told by the first bytes, and of text by the name as well.
    """

    name: str
    path: str
    size_bytes: int
    content_type: str
    sha256: str = ""

    def as_dict(self) -> dict[str, str | int]:
        """Return it as JSON data."""
        return {
            "name": self.name,
            "path": self.path,
            "size_bytes": self.size_bytes,
            "content_type": self.content_type,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was to be copied out, and why it was not."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class CellArtifacts:
    """What came of one cell's files; ``uncounted`` says that there were more than are looked at."""

    artifacts: tuple[Artifact, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    uncounted: bool = False

    def __bool__(self) -> bool:
        return bool(self.artifacts or self.skipped or self.uncounted)


#: Seconds that one step takes.
STEP: Final = 0.02
#: Files that are copied of one cell and of a session, and that are told of as left out.
MOST_OF_A_CELL: Final = 200
MOST_OF_A_SESSION: Final = 2_000
MOST_SKIPPED: Final = 50
Key = tuple[str, str]


class ArtifactCollector:
    """``roots`` are the folders that cells may write, canonical and none within another.

    ``path`` is where copies go. ``most`` are bytes of one file, ``most_in_all`` of all that the
    session has there; None is no limit.
    """

    def __init__(
        self,
        reactor: Reactor,
        roots: tuple[str, ...],
        patterns: Patterns,
        path: str,
        *,
        most: int | None,
        most_in_all: int | None,
        opener: Callable[[str], int] = open_folder,
    ) -> None:
        self._reactor, self._roots, self._patterns = reactor, roots, patterns
        self._opener, self._most_in_all = opener, most_in_all
        self._shelf = Shelf(path, most)
        #: Files as they were when they were last looked at; None before that.
        self._known: dict[Key, State] | None = None
        self._copies: dict[Key, Copied] = {}
        self._closed = False

    def begin(self) -> None:
        """Take note of what is there before the first cell: it is nobody's artifact."""
        if self._known is None:
            self._known = {}
            # What is too much to be seen counts as new.
            with contextlib.suppress(TooMany):
                for entry in self.search():
                    if entry is not None:
                        self._known[entry.key] = entry.state

    def after_cell(self, done: Callable[[CellArtifacts], None]) -> None:
        """Copy out what is new or changed; ``done`` gets that, at once where it is little."""
        found = Exporting(self)
        steps = found.run()

        def go_on() -> None:
            try:
                until = time.monotonic() + STEP
                for _ in steps:
                    if self._closed:
                        return
                    if time.monotonic() > until:
                        self._reactor.call_later(0, go_on)
                        return
            except Exception:  # noqa: BLE001 - a fault of ours costs artifacts, not the cell's end
                traceback.print_exc()
            done(found.result())

        go_on()

    def close(self) -> None:
        """Copy nothing more."""
        self._closed = True
        self._shelf.close()

    # --- for Exporting ------------------------------------------------------------------------

    def search(self) -> Iterator[Entry | None]:
        """Yield what is meant, and None in between. Raises TooMany."""
        return Search(self._roots, self._patterns, self._opener).run()

    def known(self) -> dict[Key, State]:
        """Return what was there at the last look."""
        return self._known or {}

    def know(self, seen: dict[Key, State]) -> None:
        """Take note of what is there now."""
        self._known = seen

    def copy(self, entry: Entry) -> Generator[None, None, Artifact]:
        """Copy a file; return what it is now. Raises Unfit, OSError."""
        earlier = self._copies.get(entry.key)
        if earlier is None and len(self._copies) >= MOST_OF_A_SESSION:
            raise Unfit(f"the session has copied {MOST_OF_A_SESSION:,} already")
        copied = yield from self._shelf.put(entry, self._room(earlier), earlier)
        self._copies[entry.key] = copied
        return Artifact(
            name=copied.name,
            path=f"{self._shelf.path}/{copied.name}",
            size_bytes=copied.size,
            content_type=copied.kind,
            sha256=copied.sha256,
        )

    def _room(self, earlier: Copied | None) -> int | None:
        if self._most_in_all is None:
            return None
        taken = sum(copy.size for copy in self._copies.values())
        return max(0, self._most_in_all - taken + (earlier.size if earlier else 0))


class Exporting:
    """One cell's."""

    def __init__(self, exports: ArtifactCollector) -> None:
        self._exports = exports
        self._artifacts: list[Artifact] = []
        self._skipped: list[Skipped] = []
        self._uncounted = False

    def run(self) -> Generator[None, None, None]:
        """Copy; yields where others may have their turn."""
        before = self._exports.known()
        seen: dict[Key, State] = {}
        try:
            for entry in self._exports.search():
                yield
                if entry is not None:
                    seen[entry.key] = entry.state
                    if before.get(entry.key) != entry.state:
                        yield from self._take(entry)
        except TooMany:
            self._uncounted = True
        self._exports.know(seen)

    def _take(self, entry: Entry) -> Generator[None, None, None]:
        if len(self._artifacts) >= MOST_OF_A_CELL:
            self._uncounted = True
            return
        try:
            self._artifacts.append((yield from self._exports.copy(entry)))
        except Unfit as exc:
            self._skip(entry, str(exc))
        except OSError as exc:
            self._skip(entry, f"it can't be copied: {exc.strerror}")

    def _skip(self, entry: Entry, why: str) -> None:
        if len(self._skipped) < MOST_SKIPPED:
            self._skipped.append(Skipped(_readable(entry.path), why))
        else:
            self._uncounted = True

    def result(self) -> CellArtifacts:
        """Return what came of it."""
        return CellArtifacts(tuple(self._artifacts), tuple(self._skipped), self._uncounted)


def _readable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
