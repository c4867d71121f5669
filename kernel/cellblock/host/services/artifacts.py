"""Artifacts: files that cells leave for the user, copied to a folder of the user's after each cell.

Invariant: files of a cell are hostile. No link is followed, only regular files with one name are
read, all that is read and written is bounded, and names pass ``safe_path`` before they are used or
shown. Cells can't write to the folder of copies. A file there that this session did not put there
is never written to: the copy gets another name.

After each cell, ``ArtifactCollector`` walks through the folders that cells may write to, finds the
files that match the policy's ``Patterns`` and are new or changed, and copies them. It does so in a
thread (``host.threads``), since a cell can hold a lock on a folder.
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


#: The most files that are copied for one cell and for a session, and that are listed as skipped.
MAX_PER_CELL: Final = 200
MAX_PER_SESSION: Final = 2_000
MAX_SKIPPED: Final = 50
#: Entries that one walk looks at, and levels of nested folders.
MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 32
#: Names that are tried for a copy if other files have its name.
_MAX_NUMBER: Final = 1_000
#: Doesn't wait if the file is a named pipe by now, nor takes a terminal.
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
    """The copy of a file: its name, relative to the folder of copies, and its absolute path.

    ``content_type`` is guessed from the name.
    """

    name: str
    path: str
    size_bytes: int
    content_type: str
    sha256: str = ""

    def as_dict(self) -> dict[str, str | int]:
        """Return the artifact as JSON data."""
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
    """The artifacts of one cell. ``uncounted``: there were more files than the bounds allow."""

    artifacts: list[Artifact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    uncounted: bool = False

    def __bool__(self) -> bool:
        return bool(self.artifacts or self.skipped or self.uncounted)


class TooManyEntries(Exception):
    """A walk has more than ``MAX_ENTRIES`` entries."""


class NotCopied(Exception):
    """A file is not copied; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that matches a pattern.

    ``folder`` is the descriptor of its folder, valid until the walk goes on; ``path`` is relative
    to ``root``.
    """

    folder: int
    name: str
    status: os.stat_result
    root: str
    path: str

    @property
    def key(self) -> Key:
        """The root and path, by which the collector knows the file again."""
        return self.root, self.path

    @property
    def state(self) -> tuple[int, ...]:
        """Numbers of the file's status, of which one differs when it has changed."""
        return *_state(self.status), self.status.st_ctime_ns


def _state(status: os.stat_result) -> tuple[int, ...]:
    """Return numbers of which one differs when a file was written to or replaced.

    The inode alone would not do, since its number may be used again. Without ``st_ctime``, which
    the rename of a copy to its final name changes.
    """
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


#: A copy, and its state right after it was made.
Copied = tuple[Artifact, tuple[int, ...]]


class ArtifactCollector:
    """The collector of a session's artifacts.

    The session calls ``begin`` before its first cell, ``after_cell`` after each, and ``close``.
    ``roots`` are the folders that cells may write to, canonical, none within another. Copies go to
    the folder ``path``, which is made for the first of them. ``max_bytes`` is the most for one
    file, ``max_total_bytes`` for all copies of the session, None for no limit. ``open_folder``
    opens a root, and raises OSError, also for a link.
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
        self._reactor = reactor
        self._roots = roots
        self._patterns = patterns
        self._path = path
        self._open_folder = open_folder
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        #: A descriptor of the folder of copies, while files are copied.
        self._fd: int | None = None
        #: The state of each file after the last cell; None before begin().
        self._known: dict[Key, tuple[int, ...]] | None = None
        self._copies: dict[Key, Copied] = {}
        self._closed = False
        self._work: threads.Work[None] | None = None

    def begin(self) -> None:
        """Note which files exist before the first cell: they are not artifacts until changed."""
        if self._known is None:
            self._known = {}
            # Files beyond the bound of a walk will count as new.
            with contextlib.suppress(TooManyEntries):
                self._known.update((entry.key, entry.state) for entry in self._search())

    def after_cell(self, done: Callable[[CellArtifacts], None]) -> None:
        """Copy new and changed files in a thread, then call ``done`` in the loop."""
        result = CellArtifacts()

        def on_collected(outcome: Future[None]) -> None:
            if (error := outcome.exception()) is not None:
                # A fault of the collector costs artifacts, but the cell still ends.
                traceback.print_exception(error)
            done(result)

        self._work = threads.begin(self._reactor, lambda: self._collect(result), on_collected)

    def close(self) -> None:
        """Copy nothing more. Files in the folder of copies stay."""
        self._closed = True
        if self._work is not None:
            self._work.forget()

    def _collect(self, result: CellArtifacts) -> None:
        try:
            self._copy_new(result)
        finally:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _copy_new(self, result: CellArtifacts) -> None:
        before = self._known or {}
        states_seen = dict[Key, tuple[int, ...]]()
        try:
            for entry in self._search():
                states_seen[entry.key] = entry.state
                if before.get(entry.key) == entry.state:
                    continue
                if len(result.artifacts) >= MAX_PER_CELL:
                    result.uncounted = True
                    continue
                try:
                    result.artifacts.append(self._copy(entry))
                except (NotCopied, OSError) as exc:
                    why = exc.strerror if isinstance(exc, OSError) else None
                    why = str(exc) if why is None else f"it can't be copied: {why}"
                    if len(result.skipped) < MAX_SKIPPED:
                        printable_path = entry.path.encode("utf-8", "replace").decode()
                        result.skipped.append(Skipped(printable_path, why))
                    else:
                        result.uncounted = True
        except TooManyEntries:
            result.uncounted = True
        self._known = states_seen

    def _search(self) -> Iterator[Entry]:
        """Yield each file that matches a pattern. Raises TooManyEntries.

        An entry is valid until the next one is yielded. Folders that can't be opened are left out.
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
            raise NotCopied("it is a link" if stat.S_ISLNK(mode) else "it is not a file")
        try:
            source = os.open(entry.name, _SOURCE, dir_fd=entry.folder)
        except OSError as exc:
            raise NotCopied(f"it can't be read: {exc.strerror}") from None
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise NotCopied("it is not a regular file")
            if status.st_nlink != 1:
                raise NotCopied("it has another name (a hard link)")
            self._check_size(status.st_size, earlier)
            name = safe_path(entry.path)
            folder, above = self._folder_of(name if earlier is None else earlier[0].name)
            try:
                copied = self._copy_to(folder, above, name, source, earlier)
            finally:
                os.close(folder)
        finally:
            os.close(source)
        self._copies[entry.key] = copied
        return copied[0]

    def _check_size(self, size: int, earlier: Copied | None) -> None:
        """Raise NotCopied if a file is too large to be copied in place of the copy ``earlier``.

        Also raise it for any file once the session has ended, which stops the thread.
        """
        if self._closed:
            raise NotCopied("the session has ended")
        if self._max_bytes is not None and size > self._max_bytes:
            raise NotCopied(f"it is larger than {self._max_bytes:,} bytes (artifact_max_bytes)")
        if self._max_total_bytes is None:
            return
        bytes_taken = sum(copy.size_bytes for copy, _ in self._copies.values())
        room = max(
            0, self._max_total_bytes - bytes_taken + (earlier[0].size_bytes if earlier else 0)
        )
        if size > room:
            raise NotCopied(f"no more than {room:,} bytes are left (artifacts_max_bytes)")

    def _folder_of(self, name: str) -> tuple[int, str]:
        """Open the folder of copies that ``name`` belongs in; return it and its path, "" or "…/".

        Missing folders are made, with another name if a file has theirs. Raises NotCopied, and
        OSError, also for a link: nobody knows what the user meant it for.
        """
        if self._fd is None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            self._fd = open_unlinked(self._path, FOLDER)
        folder = os.dup(self._fd)
        path = ""
        for folder_name in name.split("/")[:-1]:
            try:
                below, made_name = _make_folder(folder, folder_name)
            finally:
                os.close(folder)
            folder, path = below, f"{path}{made_name}/"
        return folder, path

    def _copy_to(
        self, folder: int, above: str, name: str, source: int, earlier: Copied | None
    ) -> Copied:
        """Copy a file into a folder whose path is ``above``; leave nothing there on an error.

        The size is checked at each piece, since a cell may let the file grow.
        """
        last, is_new = _free_name(folder, name.rpartition("/")[2], earlier)
        temporary_name = f".cellblock-{secrets.token_hex(8)}.part"
        digest = hashlib.sha256()
        size = 0
        try:
            with closing(os.open(temporary_name, NEW, 0o666, dir_fd=folder)) as target:
                for piece in read_parts(source):
                    size += len(piece.data)
                    self._check_size(size, earlier)
                    digest.update(piece.data)
                    write_part(target, piece)
                end_file(target)
            # Read after the file is closed: a file server may set its time only then.
            state = _state(os.lstat(temporary_name, dir_fd=folder))
            os.rename(temporary_name, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary_name, dir_fd=folder)
            if is_new:
                os.unlink(last, dir_fd=folder)  # the empty file that kept the name free
            raise
        name = f"{above}{last}"
        kind = content_type(last)
        return Artifact(name, f"{self._path}/{name}", size, kind, digest.hexdigest()), state


def _walk(
    folder: int, root: str, path: str, patterns: Patterns, counter: Iterator[int], depth: int = 0
) -> Iterator[Entry]:
    """Yield the matching files beneath a folder, and close its descriptor.

    Each folder is opened by its name in the one above, following no link. Whatever a cell moves or
    replaces by a link meanwhile, the walk stays beneath its root.
    """
    inner: list[tuple[str, Patterns]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if next(counter) > MAX_ENTRIES:
                    raise TooManyEntries
                patterns_left = patterns.down(entry.name)
                if not patterns_left.left:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # the file is gone
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if patterns_left.may_match_below:
                        inner.append((entry.name, patterns_left))
                elif patterns_left.match:
                    yield Entry(folder, entry.name, status, root, f"{path}{entry.name}")
        for name, patterns_left in inner if depth < MAX_DEPTH else ():
            with contextlib.suppress(OSError):
                below = os.open(name, FOLDER, dir_fd=folder)
                yield from _walk(below, root, f"{path}{name}/", patterns_left, counter, depth + 1)
    finally:
        os.close(folder)


def _make_folder(folder: int, name: str) -> tuple[int, str]:
    """Make a folder, or open the one that has the name; return it and its name.

    If a file has the name, the folder gets another one. Raises NotCopied, and OSError for a link.
    """
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
    """Return a name for a copy, and whether an empty file was made to reserve it.

    Otherwise the name is that of the earlier copy, which is to be replaced. Raises NotCopied,
    OSError.
    """
    if earlier is not None:
        # Only if the earlier copy is still there and nobody has written to it: the user may have.
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
    """Yield a name, then the name with numbers before its extension: ``plot-2.png``."""
    yield name
    stem, dot, extension = name.rpartition(".")
    for number in range(2, _MAX_NUMBER):
        yield f"{stem}-{number}{dot}{extension}" if stem else f"{name}-{number}"


# --- patterns ---------------------------------------------------------------------------------
#
#     pattern = part *( "/" part )
#     part    = "**" | glob         ; any number of folders, or one name, as in fnmatch
#
# A name that begins with a dot is only matched by a part that begins with one, too.

_ANY_FOLDERS: Final = "**"
_WILDCARDS: Final = frozenset("*?[")


def absolute_pattern(pattern: str, folder: str) -> str:
    """Return a pattern as an absolute one; a relative one is relative to ``folder``."""
    return pattern if pattern.startswith("/") else f"{folder}/{pattern}"


def fixed_folder(pattern: str) -> str:
    """Return the folder that an absolute pattern names before its first wildcard."""
    parts = pattern.split("/")[:-1]
    wildcard_positions = (
        position for position, part in enumerate(parts) if _WILDCARDS.intersection(part)
    )
    return "/".join(parts[: next(wildcard_positions, len(parts))]) or "/"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Globs at one place of a walk down the folders: the parts that are still to be matched.

    ``**`` stays among them for as long as it takes names, like a state of a finite automaton.
    """

    left: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, globs: Iterable[str]) -> Patterns:
        """Return the patterns of absolute globs, at the root of the file system."""
        return cls._with_skipped(tuple(filter(None, glob.split("/"))) for glob in globs)

    @classmethod
    def _with_skipped(cls, globs: Iterable[tuple[str, ...]]) -> Patterns:
        """Return the globs, and each glob without one or more of its leading ``**``.

        Each of these may also stand for no folder.
        """
        globs_left = set[tuple[str, ...]]()
        for parts in globs:
            skipped = next(
                (position for position, part in enumerate(parts) if part != _ANY_FOLDERS),
                len(parts),
            )
            globs_left.update(parts[position:] for position in range(skipped + 1))
        return cls(frozenset(globs_left))

    def at(self, folder: str) -> Patterns:
        """Return the patterns that are left in a folder, which is named by its whole path."""
        patterns = self
        for name in filter(None, folder.split("/")):
            patterns = patterns.down(name)
        return patterns

    def down(self, name: str) -> Patterns:
        """Return the patterns that are left for an entry of this name."""
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
    return part == _ANY_FOLDERS or _compiled_glob(part).match(name) is not None


@lru_cache(maxsize=256)
def _compiled_glob(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


# --- names ------------------------------------------------------------------------------------

#: Bytes of a name: file systems allow 255, and free_names may add a number.
MAX_NAME: Final = 200
_MAX_EXTENSION: Final = 10
#: Characters that mean something to a shell, a browser or another file system.
_AWKWARD_CHARS: Final = frozenset("<>:\"\\|?*`$;&#%'")


def safe_path(path: str) -> str:
    """Return a relative path without characters that hide or reorder text, or lead elsewhere.

    White space of any kind becomes a space, an invisible or awkward character an underscore. No
    part begins with a dot.
    """
    return "/".join(_safe_name(part) for part in path.split("/") if part) or "_"


def _safe_name(name: str) -> str:
    plain = unicodedata.normalize("NFC", name)
    spaced = (" " if char.isspace() else char for char in plain)
    safe_chars = (
        char if char.isprintable() and char not in _AWKWARD_CHARS else "_" for char in spaced
    )
    name = "".join(safe_chars).strip()
    if name.startswith((".", "-", "~")):
        name = "_" + name[1:]
    return _shorten(name) or "_"


def _shorten(name: str) -> str:
    """Return a name cut to ``MAX_NAME`` bytes, with its extension."""
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
