"""Artifacts: files that cells leave for their user, copied to a folder of his after each cell.

Invariant: what a cell leaves is hostile. No link is followed, nothing but a regular file with one
name is read, what is read and written is bounded, and names are made safe_path before they are used
or shown. Cells can't write to the folder of copies. What is there already, and was not put there by
this session, is never written to: the copy gets another name.

``ArtifactCollector`` walks over the folders that cells may write, finds what matches the policy's
``Patterns`` and has changed, and copies it, in a thread (``host.threads``): cells can keep their
folders locked. Imports ``policy.paths``.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import itertools
import os
import re
import secrets
import stat
import traceback
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from cellblock.descriptors import FOLDER, NEW, closing, open_unlinked
from cellblock.host import threads
from cellblock.host.sparse import end_file, read_parts, write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from cellblock.host.reactor import Reactor


#: Files that are copied of one cell, and of a session; and that are listed as skipped.
MAX_PER_CELL: Final = 200
MAX_PER_SESSION: Final = 2_000
MAX_SKIPPED: Final = 50
#: Entries of one walk, and folders within each other.
MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 32
#: Names that are tried if others have theirs.
_MAX_NUMBER: Final = 1_000
#: Doesn't wait for a pipe that was put there, nor take a terminal.
_SOURCE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: Content types by extension: Python's own table, whatever this machine has added to it.
_TYPES: Final = MimeTypes()
_OTHER_TYPES: Final = {
    ".ipynb": "application/x-ipynb+json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_UNKNOWN_TYPE: Final = "application/octet-stream"
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that was copied: its name in the folder of artifacts, and its path.

    ``content_type`` goes by the name.
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
    """A file that was not copied, and why."""

    name: str
    why: str


@dataclass(slots=True)
class CellArtifacts:
    """The files of one cell. ``uncounted``: there were more than are looked at."""

    artifacts: list[Artifact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    uncounted: bool = False

    def __bool__(self) -> bool:
        return bool(self.artifacts or self.skipped or self.uncounted)


class TooManyEntries(Exception):
    """A walk has more entries than are looked at."""


class NotCopied(Exception):
    """A file is not copied; says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that a pattern matches: its folder's descriptor, its name, its path from a root."""

    folder: int
    name: str
    status: os.stat_result
    root: str
    path: str

    @property
    def key(self) -> Key:
        """What tells it from all others."""
        return self.root, self.path

    @property
    def state(self) -> tuple[int, ...]:
        """What changes when the file does."""
        return *_state(self.status), self.status.st_ctime_ns


def _state(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes with a file and its content; an inode's number may be used again.

    Without ``st_ctime``, which a rename changes.
    """
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


#: A copy, and the state in which it was left.
Copied = tuple[Artifact, tuple[int, ...]]


class ArtifactCollector:
    """Copies the files of a session's cells.

    ``roots`` are the folders that cells may write, canonical and none within another; ``path`` is
    where copies go, a folder that is made with the first. ``max_bytes`` are bytes of one file,
    ``max_total_bytes`` of all copies of the session; None is no limit. ``open_folder`` opens a
    root, and raises OSError, for a link too.
    """

    def __init__(
        self,
        reactor: Reactor,
        roots: tuple[str, ...],
        patterns: Patterns,
        path: str,
        *,
        max_bytes: int | None,
        max_total_bytes: int | None,
        open_folder: Callable[[str], int],
    ) -> None:
        self._reactor, self._roots, self._patterns, self._path = reactor, roots, patterns, path
        self._open_folder, self._max_bytes, self._max_total_bytes = (
            open_folder,
            max_bytes,
            max_total_bytes,
        )
        #: The folder of copies, while there is something to copy.
        self._fd: int | None = None
        #: States at the last look; None before the first cell.
        self._known: dict[Key, tuple[int, ...]] | None = None
        self._copies: dict[Key, Copied] = {}
        self._closed = False
        self._work: threads.Work[None] | None = None

    def begin(self) -> None:
        """Note what is there before the first cell: that is no cell's artifact."""
        if self._known is None:
            self._known = {}
            # What is beyond the bound of a walk counts as new.
            with contextlib.suppress(TooManyEntries):
                self._known.update((entry.key, entry.state) for entry in self._search())

    def after_cell(self, done: Callable[[CellArtifacts], None]) -> None:
        """Copy what is new or changed, in a thread; ``done`` gets the result in the loop."""
        found = CellArtifacts()

        def end(outcome: Future[None]) -> None:
            if (error := outcome.exception()) is not None:
                # A fault of ours costs artifacts, not the cell's end.
                traceback.print_exception(error)
            done(found)

        self._work = threads.begin(self._reactor, lambda: self._collect(found), end)

    def close(self) -> None:
        """Copy nothing more; what is in the folder of copies stays."""
        self._closed = True
        if self._work is not None:
            self._work.forget()

    def _collect(self, found: CellArtifacts) -> None:
        try:
            self._copy_new(found)
        finally:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _copy_new(self, found: CellArtifacts) -> None:
        before, seen = self._known or {}, dict[Key, tuple[int, ...]]()
        try:
            for entry in self._search():
                seen[entry.key] = entry.state
                if before.get(entry.key) == entry.state:
                    continue
                if len(found.artifacts) >= MAX_PER_CELL:
                    found.uncounted = True
                    continue
                try:
                    found.artifacts.append(self._copy(entry))
                except (NotCopied, OSError) as exc:
                    why = exc.strerror if isinstance(exc, OSError) else None
                    why = str(exc) if why is None else f"it can't be copied: {why}"
                    if len(found.skipped) < MAX_SKIPPED:
                        shown = entry.path.encode("utf-8", "replace").decode()
                        found.skipped.append(Skipped(shown, why))
                    else:
                        found.uncounted = True
        except TooManyEntries:
            found.uncounted = True
        self._known = seen

    def _search(self) -> Iterator[Entry]:
        """Yield what matches. Raises TooManyEntries.

        An entry is valid until the next one; what can't be opened is left out.
        """
        counter = itertools.count(1)
        for root in self._roots:
            patterns = self._patterns.at(root)
            if patterns.may_match_below:
                with contextlib.suppress(OSError):
                    yield from _walk(self._open_folder(root), root, "", patterns, counter)

    # --- copying ------------------------------------------------------------------------------

    def _copy(self, entry: Entry) -> Artifact:
        """Copy a file, block by block. Raises NotCopied, OSError."""
        earlier = self._copies.get(entry.key)
        if earlier is None and len(self._copies) >= MAX_PER_SESSION:
            raise NotCopied(f"the session has copied {MAX_PER_SESSION:,} already")
        mode = entry.status.st_mode
        if not stat.S_ISREG(mode):
            raise NotCopied("it is a link" if stat.S_ISLNK(mode) else "it is no file")
        try:
            source = os.open(entry.name, _SOURCE, dir_fd=entry.folder)
        except OSError as exc:
            raise NotCopied(f"it can't be read: {exc.strerror}") from None
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise NotCopied("it is no regular file")
            if status.st_nlink != 1:
                raise NotCopied("it has another name (a hard link)")
            self._check_size(status.st_size, earlier)
            wanted = safe_path(entry.path)
            folder, above = self._folder_of(wanted if earlier is None else earlier[0].name)
            try:
                copied = self._copy_to(folder, above, wanted, source, earlier)
            finally:
                os.close(folder)
        finally:
            os.close(source)
        self._copies[entry.key] = copied
        return copied[0]

    def _check_size(self, size: int, earlier: Copied | None) -> None:
        """Raise NotCopied for a file that is too large, where it takes the place of ``earlier``.

        And for any, once the session has ended.
        """
        if self._closed:
            raise NotCopied("the session has ended")
        if self._max_bytes is not None and size > self._max_bytes:
            raise NotCopied(f"it is larger than {self._max_bytes:,} bytes (artifact_max_bytes)")
        if self._max_total_bytes is None:
            return
        taken = sum(copy.size_bytes for copy, _ in self._copies.values())
        room = max(0, self._max_total_bytes - taken + (earlier[0].size_bytes if earlier else 0))
        if size > room:
            raise NotCopied(f"no more than {room:,} bytes are left (artifacts_max_bytes)")

    def _folder_of(self, name: str) -> tuple[int, str]:
        """Open the folder for ``name``, made if need be; return it and its path: "" or "…/".

        If a file has its name, it gets the next one. Raises NotCopied, and OSError, for links too:
        where those lead is the user's to say.
        """
        if self._fd is None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            self._fd = open_unlinked(self._path, FOLDER)
        at, path = os.dup(self._fd), ""
        for part in name.split("/")[:-1]:
            try:
                below, found = _make_folder(at, part)
            finally:
                os.close(at)
            at, path = below, f"{path}{found}/"
        return at, path

    def _copy_to(
        self, folder: int, above: str, wanted: str, source: int, earlier: Copied | None
    ) -> Copied:
        """Copy a file, which may grow, into a folder; leave nothing there if that fails."""
        last, is_new = _free_name(folder, wanted.rpartition("/")[2], earlier)
        part = f".cellblock-{secrets.token_hex(8)}.part"
        digest, size = hashlib.sha256(), 0
        try:
            with closing(os.open(part, NEW, 0o666, dir_fd=folder)) as target:
                for piece in read_parts(source):
                    size += len(piece.data)
                    self._check_size(size, earlier)
                    digest.update(piece.data)
                    write_part(target, piece)
                end_file(target)
            # Closed: only now does a file server know the time.
            state = _state(os.lstat(part, dir_fd=folder))
            os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            if is_new:
                os.unlink(last, dir_fd=folder)  # the empty file that kept the name free
            raise
        name, kind = f"{above}{last}", content_type(last)
        return Artifact(name, f"{self._path}/{name}", size, kind, digest.hexdigest()), state


def _walk(
    folder: int, root: str, path: str, patterns: Patterns, counter: Iterator[int], depth: int = 0
) -> Iterator[Entry]:
    """Walk through a folder, and close it.

    Each folder is opened by its name within the one above, through no link: whatever is moved or
    made a link meanwhile, the walk stays beneath its root.
    """
    inner: list[tuple[str, Patterns]] = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if next(counter) > MAX_ENTRIES:
                    raise TooManyEntries
                its = patterns.down(entry.name)
                if not its.left:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is gone
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if its.may_match_below:
                        inner.append((entry.name, its))
                elif its.match:
                    yield Entry(folder, entry.name, status, root, f"{path}{entry.name}")
        for name, its in inner if depth < MAX_DEPTH else ():
            with contextlib.suppress(OSError):
                below = os.open(name, FOLDER, dir_fd=folder)
                yield from _walk(below, root, f"{path}{name}/", its, counter, depth + 1)
    finally:
        os.close(folder)


def _make_folder(folder: int, name: str) -> tuple[int, str]:
    for free in free_names(name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(free, dir_fd=folder)
        try:
            return os.open(free, FOLDER, dir_fd=folder), free
        except NotADirectoryError:
            if stat.S_ISLNK(os.lstat(free, dir_fd=folder).st_mode):
                raise
    raise NotCopied("a thousand others have its name")


def _free_name(folder: int, name: str, earlier: Copied | None) -> tuple[str, bool]:
    """Return a name for a copy, and whether an empty file was made to keep it free.

    Else it is that of the copy to be replaced. Raises NotCopied, OSError.
    """
    if earlier is not None:
        # Only if it is still the file that was put there, and nobody has written to it.
        before = earlier[0].name.rpartition("/")[2]
        with contextlib.suppress(OSError):
            if _state(os.lstat(before, dir_fd=folder)) == earlier[1]:
                return before, False
    for free in free_names(name):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(free, NEW, 0o666, dir_fd=folder))
            return free, True
    raise NotCopied("a thousand others have its name")


def free_names(name: str) -> Iterator[str]:
    """Yield a name, and then with a number before its extension: ``plot-2.png``."""
    yield name
    stem, dot, extension = name.rpartition(".")
    for number in range(2, _MAX_NUMBER):
        yield f"{stem}-{number}{dot}{extension}" if stem else f"{name}-{number}"


# --- patterns ---------------------------------------------------------------------------------
#
#     pattern = part *( "/" part )
#     part    = "**" | glob         ; any number of folders, or one name as fnmatch has it
#
# A name that begins with a dot is matched only by a part that does.

_ANY_FOLDERS: Final = "**"
_WILD: Final = frozenset("*?[")


def absolute_pattern(pattern: str, folder: str) -> str:
    """Return a pattern as an absolute one; a relative one is relative to ``folder``."""
    return pattern if pattern.startswith("/") else f"{folder}/{pattern}"


def fixed_folder(pattern: str) -> str:
    """Return the folder that an absolute pattern names before its first wildcard."""
    parts = pattern.split("/")[:-1]
    wild = (at for at, part in enumerate(parts) if _WILD.intersection(part))
    return "/".join(parts[: next(wild, len(parts))]) or "/"


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is left of globs on the way down: the parts that are still to be matched."""

    left: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, globs: Iterable[str]) -> Patterns:
        """Return absolute globs, at the root of the file system."""
        return cls._with_skipped(tuple(filter(None, glob.split("/"))) for glob in globs)

    @classmethod
    def _with_skipped(cls, found: Iterable[tuple[str, ...]]) -> Patterns:
        """Add what is left where ``**`` stands for no folder at all."""
        left = set[tuple[str, ...]]()
        for parts in found:
            skipped = next(
                (at for at, part in enumerate(parts) if part != _ANY_FOLDERS), len(parts)
            )
            left.update(parts[at:] for at in range(skipped + 1))
        return cls(frozenset(left))

    def at(self, folder: str) -> Patterns:
        """Return what is left in a folder."""
        patterns = self
        for name in filter(None, folder.split("/")):
            patterns = patterns.down(name)
        return patterns

    def down(self, name: str) -> Patterns:
        """Return what is left for an entry of that name."""
        return self._with_skipped(
            parts if parts[0] == _ANY_FOLDERS else parts[1:]
            for parts in self.left
            if parts and _matches(parts[0], name)
        )

    @property
    def match(self) -> bool:
        """Whether a file at this place matches."""
        return () in self.left

    @property
    def may_match_below(self) -> bool:
        """Whether something in a folder at this place may match."""
        return any(self.left)


def _matches(part: str, name: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return part == _ANY_FOLDERS or _compiled(part).match(name) is not None


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


# --- names ------------------------------------------------------------------------------------

#: Bytes of a name: file systems take 255, and a number may be added.
MAX_NAME: Final = 200
_MAX_EXTENSION: Final = 10
#: Characters with a meaning in a shell, a browser or another file system.
_AWKWARD: Final = frozenset("<>:\"\\|?*`$;&#%'")


def safe_path(path: str) -> str:
    """Return a relative path without characters that hide or reorder text or lead elsewhere.

    Blanks of any kind become spaces; what is invisible or awkward, underscores. No part begins with
    a dot.
    """
    return "/".join(_safe_name(part) for part in path.split("/") if part) or "_"


def _safe_name(name: str) -> str:
    plain = unicodedata.normalize("NFC", name)
    spaced = (" " if char.isspace() else char for char in plain)
    shown = (char if char.isprintable() and char not in _AWKWARD else "_" for char in spaced)
    name = "".join(shown).strip()
    if name.startswith((".", "-", "~")):
        name = "_" + name[1:]
    return _shorten(name) or "_"


def _shorten(name: str) -> str:
    """Shorten a name that is too long; its extension stays."""
    if len(name.encode()) <= MAX_NAME:
        return name
    stem, dot, extension = name.rpartition(".")
    tail = f"{dot}{extension}" if dot and len(extension) <= _MAX_EXTENSION else ""
    room = MAX_NAME - len(tail.encode())
    return (stem if tail else name).encode()[:room].decode("utf-8", "ignore") + tail


def content_type(name: str) -> str:
    """Return the content type of a file by its name."""
    kind, packed = _TYPES.guess_type(name)
    if packed is not None:
        return "application/gzip" if packed == "gzip" else _UNKNOWN_TYPE
    return kind or _OTHER_TYPES.get(PurePath(name).suffix.lower(), _UNKNOWN_TYPE)
