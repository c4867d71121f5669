"""Staged changes: listing what a session's cells wrote, showing diffs, dropping it.

The cells of a session don't write to the user's project. They write to a layer over each root (an
overlay's upper folder), and the files there are *staged changes*, which the user keeps or drops.
The host lists them while the session runs, and for a week after it has ended. ``Staged`` is a
session's layers, ``Change`` is one file that differs. ``keepable`` says why a change is never kept;
``keeping`` makes the others in the project.

Cells wrote every file in a layer, under names of their choice, so the host reads layers as hostile:
it follows no link, opens regular files only, and bounds the entries that it looks at, the bytes
that it compares and the lines that it shows (promise P14).

    CHANGES/SESSION/session.json    when the session began, its policy, roots and audit log
    CHANGES/SESSION/settled.json    changes that were kept or dropped, so are no longer staged
    CHANGES/SESSION/N/upper/        what cells wrote beneath root N; whiteouts for what they deleted

A change that was kept or dropped stays in the layer, since nobody may change the upper folder of a
mounted overlay. ``settled.json`` marks it, with the state of both files::

                keep, drop
    staged  ----------------->  settled (kept or dropped)
            <-----------------
             the staged file or the user's own changes again

The folder of a session, and who holds a lock on ``session.json``::

    begin() --> running --------> ended --> end() removes a folder without changes that can be kept
                shared lock,      no lock   a later kernel may adopt the rest (``adoption``)
                held by the host            sweep() removes it after a week, if not kept before
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from cellblock.descriptors import (
    FILE,
    FOLDER,
    NEW,
    closing,
    identity,
    open_unlinked,
    read_regular,
    remove_tree,
    status,
)
from cellblock.errors import ChangesError
from cellblock.host.services.keepable import (
    DEEPEST,
    FILE_IN_PLACE_OF_FOLDER,
    FOLDER_IN_PLACE_OF_FILE,
    TOO_DEEP,
    UNREADABLE,
    Reasons,
    is_setting,
    why_never,
    why_secret,
)
from cellblock.host.sparse import read_parts
from cellblock.policy.folders import changes_folder
from cellblock.policy.model import Audit
from cellblock.policy.paths import within
from cellblock.render.headings import Heading
from cellblock.render.text import exactly, unified, visible
from cellblock.wire.messages import HOME, UPPER

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from cellblock.policy.model import Policy
    from cellblock.wire.messages import Layer

T = TypeVar("T")

#: Seconds for which the changes of an ended session can be kept, and how many sessions' are.
KEPT_FOR: Final = 7 * 24 * 3600
MOST_SESSIONS: Final = 200
#: Entries of all layers that one listing looks at. A drop takes more, since it is the way out of a
#: layer that is too large to be listed.
MOST_ENTRIES: Final = 50_000
_MOST_DROPPED: Final = 100_000
#: Characters of all paths in one listing, and paths that one call may name.
_MOST_CHARACTERS: Final = 8 << 20
_MOST_PATHS: Final = 100
#: Bytes of the longest text that a diff is shown of, lines of a diff, and characters of its lines.
_MOST_DIFFED: Final = 200_000
_MOST_LINES: Final = 400
_LONGEST_LINE: Final = 500
#: Bytes that are read at once when two files are compared.
_PART: Final = 1 << 20
#: Bytes of staged files that one listing compares with the user's, and what each file counts as at
#: least: opening many small files takes time, too.
_MOST_COMPARED: Final = 64 << 20
_LEAST_COMPARED: Final = 64 << 10
_INFO: Final = "session.json"
#: Seconds after which a folder without ``session.json`` is removed: its session never began.
_ORPHANED: Final = 3_600
_SETTLED: Final = "settled.json"
#: Seconds for which ``take`` tries again: ``runs``, in another process, may hold the lock briefly.
_PATIENCE: Final = 0.1
#: Bytes of either file that are read.
_MOST_INFO: Final = 1 << 20
_MOST_SETTLED: Final = 32 << 20

#: The one name that is never kept although people write to it on purpose, and the file in it that
#: each commit changes.
GIT: Final = ".git"
_COMMITS: Final = "logs/HEAD"

Kind = Literal["new", "changed", "deleted"]
#: Numbers of a file's status, of which one differs when the file has changed; None for no file.
State = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Change:
    """A file that a session's cells made, changed or deleted.

    ``path`` is relative to ``root``. ``size`` is that of the staged file and ``before`` that of the
    user's, in bytes, None if there is no such file. ``why_not`` says why the change is never kept,
    and is empty if it can be. ``yours_since`` is when the user's own file was changed, in seconds
    since 1970, if that was after the session began; otherwise None.
    """

    root: str
    path: str
    kind: Kind
    size: int | None
    before: int | None
    why_not: str = ""
    yours_since: float | None = None
    #: The states of the staged file and of the user's when the change was listed.
    staged: State = field(default=None, repr=False)
    yours: State = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return the absolute path of the user's file."""
        return f"{self.root.rstrip('/')}/{self.path}"


class Kept(Struct, frozen=True):
    """A change that was kept. ``sha256`` is of the file's content, empty if it was deleted."""

    change: Change
    sha256: str


class Settled(NamedTuple):
    """A change that was kept or dropped: the states in which that left both files.

    ``content`` is the SHA-256 of a staged file that was kept, and empty if it was dropped.
    """

    yours: State
    staged: State
    content: str = ""

    def is_of(self, change: Change) -> bool:
        """Return whether a change is still the one that was settled: neither file has changed."""
        return (self.yours, self.staged) == (change.yours, change.staged)


class Diff(NamedTuple):
    """A unified diff, or a line that says why there is none.

    ``cut`` is the number of lines that were shortened or left out. A line that a terminal may show
    in another order is followed by one that begins with ``!`` and repeats it in the order of its
    text.
    """

    text: str
    cut: int = 0


#: The fields of a policy's ``audit`` that ``session.json`` has, since keeping is audited after the
#: session has ended, too.
_LOG: Final = ("folder", "max_bytes", "fsync", "required")


@dataclass(frozen=True, slots=True)
class Staged:
    """The layers of one session, whose changes can be kept or dropped.

    ``layers`` has for each root its path, the folder of its layer, and the paths beneath it that
    the policy hides. ``began`` is in seconds since 1970, ``policy`` the policy's name. ``session``
    is the session's name in its audit ``log``. ``lock`` is the descriptor that shows that the
    session runs, -1 without one. For ``adoption``: ``names`` are the kernel's, by which a later
    kernel knows the session as its own; ``asked`` are the fields of the policy that the session
    began under; ``inodes`` are those of the roots.
    """

    id: str
    layers: tuple[tuple[str, str, tuple[str, ...]], ...]
    began: float = 0.0
    policy: str = ""
    session: str = ""
    log: Audit | None = None
    lock: int = -1
    names: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict, repr=False)
    inodes: tuple[int, ...] = ()
    #: The folder that relative paths begin at; empty for the only root.
    base: str = ""
    #: What was kept through this object.
    kept: list[Kept] = field(default_factory=list, repr=False, compare=False)

    def is_written_to(self) -> bool:
        """Return whether cells wrote anything that is listed.

        Call it in a thread: a cell can hold a lock on the folders.
        """
        for _, folder, _ in self.layers:
            home = is_of_home(folder)
            with contextlib.suppress(OSError), os.scandir(f"{folder}/{UPPER}") as entries:
                if any(not (home and is_setting(entry.name)) for entry in entries):
                    return True
        return False

    def has_home(self) -> bool:
        """Return whether what cells write below ``~`` is staged, too."""
        return any(is_of_home(folder) for _, folder, _ in self.layers)

    def commits(self) -> tuple[State, ...]:
        """Return states that differ after a cell has committed to the repository at a root.

        A session compares them before and after a cell, and tells the user at once that the commit
        is not kept: git tells the cell that all is well. Call it in a thread.
        """
        states = list[State]()
        for _, folder, _ in self.layers:
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                folder_fd, name = enter(f"{folder}/{UPPER}", f"{GIT}/{_COMMITS}", stack)
                states.append(state(status(folder_fd, name)))
        return tuple(states)

    @property
    def folder(self) -> str:
        """Return the session's folder, which holds its layers and both of its files."""
        return f"{changes_folder()}/{self.id}"

    def changes(self, paths: Collection[str] = (), most: int | None = None) -> list[Change]:
        """Return the files that differ from the project; with ``paths``, those at or beneath them.

        Files of the user's that were changed or deleted come first, since there may be so many new
        ones that nobody reads on. Both groups are sorted by name. A relative path begins at
        ``base``, or at the only root. A folder is listed as the files in it. A listing takes 30 µs
        an entry. Raises ChangesError for more than ``most`` entries (``MOST_ENTRIES``), or paths
        that are too long together.
        """
        bounds = _Bounds(most or MOST_ENTRIES)
        settled = self.settled()
        paths = self.named(paths)
        changes = list[Change]()
        for root, folder, hidden in self.layers:
            within_root = tuple(_beneath(root, path) for path in paths)
            walk = _Walk(
                root,
                frozenset(hidden),
                settled,
                self.began,
                within_root,
                bounds,
                at_home=is_of_home(folder),
            )
            changes += walk.changes(f"{folder}/{UPPER}")
        return sorted(changes, key=lambda change: (change.kind == "new", change.name))

    def named(self, paths: Collection[str]) -> list[str]:
        """Return paths that a user typed as absolute ones.

        Raises ChangesError for a relative path that could lie in more than one root.
        """
        absolute_paths = list[str]()
        roots = [root for root, _, _ in self.layers]
        projects = [root for root, folder, _ in self.layers if not is_of_home(folder)]
        for path in paths:
            if path == "~" or path.startswith("~/"):
                absolute_paths.append(os.path.normpath(f"{self._home()}{path[1:]}"))
                continue
            absolute = os.path.normpath(os.path.join(self.base, path)) if self.base else path
            is_in_root = os.path.isabs(absolute) and any(
                _beneath(root, absolute) is not None for root in roots
            )
            if not is_in_root and not os.path.isabs(path):
                if len(projects) > 1:
                    folders = " or ".join(map(visible, projects))
                    raise ChangesError(f"{visible(path)} could lie in {folders}: name it whole")
                absolute = path if path.startswith("..") else os.path.join(*projects, path)
            absolute_paths.append(absolute)
        return absolute_paths

    def _home(self) -> str:
        """Return the user's home folder as it was for the session."""
        homes = (root for root, folder, _ in self.layers if is_of_home(folder))
        return next(homes, os.path.expanduser("~"))

    def chosen(self, paths: Collection[str] = (), *, overwrite: bool = False) -> list[Change]:
        """Return the changes at or beneath ``paths`` that can be kept; without paths, of all.

        Raises ChangesError for a path where nothing changed or where nothing can be kept, and,
        unless ``overwrite``, for a file that the user changed after the session began.
        """
        if len(paths) > _MOST_PATHS:
            raise ChangesError(f"more than {_MOST_PATHS} paths: name the folders that they are in")
        picked = self.changes(paths)
        for path, whole in zip(paths, self.named(paths), strict=True):
            matches = [change for change in picked if _is_at(change, whole)]
            if not matches:
                raise ChangesError(f"nothing was changed at {visible(path)}")
            if all(change.why_not for change in matches):
                raise ChangesError(
                    f"{visible(self.label(matches[0]))} is not kept: {matches[0].why_not}"
                )
        picked = [change for change in picked if not change.why_not]
        for change in picked:
            if change.yours_since is not None and not overwrite:
                when = time.strftime("%H:%M:%S", time.localtime(change.yours_since))
                fact = f"{visible(self.label(change))} was changed by somebody else at {when}"
                raise ChangesError(
                    f"{Heading.NOT_KEPT}{fact}, after the session began. Keep the other files by "
                    "their names, or this one over yours with --overwrite; `cellblock changes diff "
                    f"{self.id}` shows how they differ"
                )
        return picked

    def label(self, change: Change) -> str:
        """Return a change's path in the form that users are shown and that ``named`` takes.

        That is ``~/PATH`` for what cells wrote below ``~``, a path relative to ``base`` if that
        lies in the root, otherwise the absolute path.
        """
        if any(root == change.root and is_of_home(folder) for root, folder, _ in self.layers):
            return f"~/{change.path}"
        if not within(self.base, change.root):
            return change.name
        path = os.path.relpath(change.name, self.base)
        return f"./{path}" if path.startswith("-") else path

    def diff(self, change: Change, digest: str = "", *, most: int | None = _MOST_LINES) -> Diff:
        """Return a text file's unified diff, or a line that says why there is none.

        The diff is empty if the texts are equal, as for a new empty file. With a ``digest``, there
        is a diff only if the staged file has that SHA-256. At most ``most`` lines are shown, and
        only the start of long lines; notes say how much is left out. If ``most`` is None,
        everything is shown. A cell chose the file's name, which can't break out of its line.
        """
        name = visible(self.label(change))
        if self._hides(change):
            return _diff_of(f"{name}: not shown, as the policy denies it")
        new = self._text(change, staged=True) if change.kind != "deleted" else ""
        old = self._text(change, staged=False) if change.kind != "new" else ""
        if new is None or old is None:
            return _diff_of(f"{name}: not a text, or too large to be shown")
        if digest and hashlib.sha256(new.encode()).hexdigest() != digest:
            return _diff_of(f"{name}: it changes while it is looked at")
        # Split as git does, at "\n" only: str.splitlines splits at other characters, too.
        lines = unified(
            old.removesuffix("\n").split("\n") if old else [],
            new.removesuffix("\n").split("\n") if new else [],
            f"{name} (yours)" if change.kind != "new" else "/dev/null",
            f"{name} (staged)" if change.kind != "deleted" else "/dev/null",
        )
        for text, side in ((old, "yours"), (new, "the staged one")):
            if text and not text.endswith("\n"):
                lines.append(f"\\ no newline at the end of {side}")
        if most is None:
            return _diff_of(*lines)
        shown_lines = [_shortened(line) for line in lines[:most]]
        left_out = max(0, len(lines) - most)
        cut = left_out + sum(len(line) > _LONGEST_LINE for line in lines[:most])
        shown_lines += [f"… {left_out:,} more lines"] if left_out else []
        return _diff_of(*shown_lines, cut=cut)

    def _hides(self, change: Change) -> bool:
        """Return whether the policy denies the file; it may have been narrowed since the write."""
        return any(root == change.root and change.path in hidden for root, _, hidden in self.layers)

    def _text(self, change: Change, *, staged: bool) -> str | None:
        """Return the text of the staged file, or of the user's; None if it is not a short text."""
        try:
            with contextlib.ExitStack() as stack:
                base = self.upper(change.root) if staged else change.root
                folder, name = enter(base, change.path, stack)
                fd = stack.enter_context(closing(os.open(name, FILE, dir_fd=folder)))
                text = read_regular(fd, _MOST_DIFFED + 1)
                return None if text is None or len(text) > _MOST_DIFFED else text.decode()
        except (OSError, UnicodeDecodeError):
            return None

    def upper(self, root: str) -> str:
        """Return the folder that holds what cells wrote beneath a root."""
        return next(f"{folder}/{UPPER}" for own, folder, _ in self.layers if own == root)

    def without(self, denied: Collection[str]) -> Staged:
        """Return these layers without paths that are denied now.

        Nothing at or beneath those is listed, shown or kept.
        """
        layers = []
        for root, folder, hidden in self.layers:
            paths = [
                relative_path
                for path in denied
                if (relative_path := _beneath(root, path)) is not None
            ]
            if "" not in paths:
                layers.append((root, folder, (*hidden, *paths)))
        return replace(self, layers=tuple(layers))

    # --- settled: no longer staged ------------------------------------------------------------

    def settled(self) -> dict[str, Settled]:
        """Return the changes that were kept or dropped, by the absolute path of each file."""
        try:
            with open(f"{self.folder}/{_SETTLED}", encoding="utf-8") as file:
                entries = json.loads(file.read(_MOST_SETTLED))
            return {
                name: Settled(_state_of(yours), _state_of(staged), str(content))
                for name, (yours, staged, content) in entries.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def settle(self, changes: Sequence[Change], contents: Mapping[str, str] | None = None) -> None:
        """Mark changes as no longer staged, until one of their files changes. Raises OSError.

        ``contents`` has the SHA-256 digest of each staged file that was kept, by its name.
        """
        newly = {
            change.name: Settled(change.yours, change.staged, (contents or {}).get(change.name, ""))
            for change in changes
        }
        settled_changes = {**self.settled(), **newly}
        new = f"{self.folder}/{_SETTLED}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        with open(os.open(new, NEW, 0o600), "w", encoding="utf-8") as file:
            json.dump(settled_changes, file)
        os.replace(new, f"{self.folder}/{_SETTLED}")

    def drop(self, paths: Collection[str] = ()) -> Sequence[Change]:
        """Drop all changes, or those at or beneath ``paths``.

        If the session has ended and all are dropped, its folder is removed, and nothing is
        returned. Otherwise the changes are only marked as settled and returned: nobody may change
        the upper folder of a mounted overlay, so cells see their files until the session ends.
        More changes can be dropped than listed, since dropping them is all that a user can do
        about a layer that is too large. Raises ChangesError, OSError.
        """
        lock = -1 if paths else self.take()
        if lock < 0 and (paths or self.runs()):
            dropped = self.changes(paths, most=_MOST_DROPPED)
            self.settle(dropped)
            return dropped
        remove_tree(self.folder)
        if lock >= 0:
            os.close(lock)
        return ()

    def is_dropped(self) -> bool:
        """Return whether all that cells wrote has been kept or dropped."""
        try:
            return bool(self.settled()) and not self.changes(most=_MOST_DROPPED)
        except (ChangesError, OSError):
            return False

    def close(self) -> None:
        """Release the lock that ``begin`` took: the session has ended."""
        os.close(self.lock)

    def runs(self) -> bool:
        """Return whether the session still runs, so that its layers are in use."""
        try:
            fd = os.open(f"{self.folder}/{_INFO}", FILE)
        except OSError:
            return False
        with closing(fd):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def take(self) -> int:
        """Return a descriptor that locks the session for its holder; -1 if the session runs.

        Nobody else can take or adopt the session until the descriptor is closed.
        """
        path = f"{self.folder}/{_INFO}"
        until = time.monotonic() + _PATIENCE
        try:
            fd = os.open(path, FILE)
        except OSError:
            return -1
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever had the lock before may have removed the folder, or begun the session.
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    return fd
            except BlockingIOError:  # the session runs, or `runs` holds the lock for a moment
                if time.monotonic() < until:
                    time.sleep(_PATIENCE / 10)
                    continue
            except OSError:
                pass
            os.close(fd)
            return -1


def finish(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, and return what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def is_of_home(folder: str) -> bool:
    """Return whether a layer's folder holds what cells wrote below ``~``."""
    return os.path.basename(folder) == HOME


def _beneath(root: str, path: str) -> str | None:
    """Return a path relative to a root; "" if it is the root or above it, None if elsewhere."""
    normal = os.path.normpath(path)
    top = root.rstrip("/")
    if not normal.startswith("/"):
        return None if normal.split("/")[0] == ".." else normal.removeprefix(".")
    if f"{top}/".startswith(f"{normal.rstrip('/')}/"):
        return ""
    return normal[len(top) + 1 :] if normal.startswith(f"{top}/") else None


def _diff_of(*lines: str, cut: int = 0) -> Diff:
    """Return lines as a Diff, each followed by its text in order if a terminal may reorder it."""
    shown_lines = (
        each for line in lines for each in (line, *(f"! {note}" for note in exactly(line)))
    )
    return Diff("\n".join(shown_lines), cut)


def _shortened(line: str) -> str:
    excess = len(line) - _LONGEST_LINE
    return line if excess <= 0 else f"{line[:_LONGEST_LINE]}… {excess:,} more characters"


def _is_at(change: Change, path: str) -> bool:
    """Return whether a change is at or beneath a path, or is a folder above it, never kept."""
    relative_path = _beneath(change.root, path)
    if relative_path is None or not relative_path:
        return relative_path is not None
    # A folder that is never kept, .git for example, is one change for all beneath it.
    in_folder = bool(change.why_not) and f"{relative_path}/".startswith(f"{change.path}/")
    return in_folder or f"{change.path}/".startswith(f"{relative_path}/")


def _state_of(numbers: Sequence[int] | None) -> State:
    """Return a state that was read from JSON."""
    return None if numbers is None else tuple(map(int, numbers))


def state(file_status: os.stat_result | None) -> State:
    """Return the numbers of a file's status, of which one differs when the file has changed."""
    if file_status is None:
        return None
    return (
        file_status.st_dev,
        file_status.st_ino,
        file_status.st_size,
        file_status.st_mtime_ns,
        file_status.st_ctime_ns,
    )


# --- reading what was staged ----------------------------------------------------------------------


class _Bounds:
    """What is left of the bounds on one listing, over all of its layers."""

    def __init__(self, most: int) -> None:
        self._most = self._entries = most
        self._compared = _MOST_COMPARED
        self._characters = _MOST_CHARACTERS

    def names(self, folder: int, prefix: str) -> list[str]:
        """Return the names in a folder, sorted, and count them.

        Raises ChangesError beyond a bound, and OSError.
        """
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, self._entries + 1))
        self._entries -= len(names)
        self._characters -= len(names) * len(prefix) + sum(map(len, names))
        if self._entries < 0 or self._characters < 0:
            raise ChangesError(
                f"more than {self._most:,} files were written or deleted: name the files or "
                "folders that you want, or have a cell remove what nobody needs"
            )
        return names

    def compares(self, size: int) -> bool:
        """Return whether two files of this size may still be compared, and count them."""
        self._compared -= max(size, _LEAST_COMPARED)
        return self._compared >= 0


class _Walk:
    """A walk through one layer, which compares it with the user's files beneath its root.

    In its methods, ``above`` is the descriptor of a folder of the layer, and ``below`` that of the
    same folder of the project, None if there is none; ``staged`` and ``before`` are the status of a
    file in each. ``hidden`` are paths that the policy denies. ``named`` are the paths to list,
    relative to the root, None for one elsewhere; with none of them the walk lists all.
    """

    def __init__(
        self,
        root: str,
        hidden: frozenset[str],
        settled: dict[str, Settled],
        began: float,
        named_paths: Sequence[str | None],
        bounds: _Bounds,
        *,
        at_home: bool = False,
    ) -> None:
        #: Whether this is the layer of the cells' home folder. Cells saw nothing of the user's
        #: there, so they deleted nothing, whatever the layer looks like.
        self._at_home = at_home
        self._root = root
        self._hidden = hidden
        self._settled = settled
        self._bounds = bounds
        #: Nanoseconds since 1970, as ``st_ctime_ns``.
        self._began = int(began * 1e9)
        self._reasons = Reasons(root, at_home=at_home)
        #: How many folders around the walk's place are, in the project, something else than a
        #: folder.
        self._blocked = 0
        self._only_named = bool(named_paths)
        self._named = [path for path in named_paths if path is not None]

    def changes(self, upper: str) -> Iterator[Change]:
        """Yield the files that differ. Raises ChangesError."""
        with contextlib.ExitStack() as stack:
            try:
                above = stack.enter_context(closing(os.open(upper, FOLDER)))
            except OSError:
                return
            below: int | None = None
            with contextlib.suppress(OSError):
                below = stack.enter_context(closing(open_unlinked(self._root, FOLDER)))
            yield from self._folder("", above, below, 0)

    def _folder(self, prefix: str, above: int, below: int | None, depth: int) -> Iterator[Change]:
        """Yield the changes in a folder. ``prefix`` is its path, empty or with a slash at its end.

        What each name of the layer yields; the first line that fits it counts:

        - a path that the policy hides: nothing, or a secret that cells made there
        - a program's own setting at home: nothing
        - a folder that may be kept: the changes in it
        - a whiteout: a deletion
        - a file with the same content as the user's: nothing
        - anything else: a new or changed file

        If cells made the folder anew, it hides the user's. Each name there that the layer lacks
        then yields a deletion.
        """
        names = self._names(prefix, above)
        for name in names:
            path = f"{prefix}{name}"
            staged, before = status(above, name), status(below, name)
            if staged is None:
                continue
            if path in self._hidden:
                yield from self._in_a_hidden_place(path, staged)
                continue
            if self._at_home and not prefix and is_setting(name):
                continue
            never = why_never(f"{self._root}/{path}", staged, above, below)
            if stat.S_ISDIR(staged.st_mode) and not never:
                yield from self._enter(path, above, below, name, depth)
            elif is_whiteout(staged):
                yield from self._deleted(path, below, name, before, staged, staged.st_ctime_ns)
            elif not self._is_same(above, below, name, staged, before):
                self._unsettle_if_rewritten(path, above, name, staged)
                yield from self._new_or_changed(path, below, name, staged, before, never)
        for name in self._covered(prefix, above, below, names):
            file_status = status(below, name)
            yield from self._deleted(f"{prefix}{name}", below, name, file_status, None, self._began)

    def _in_a_hidden_place(self, path: str, staged: os.stat_result) -> Iterator[Change]:
        """Yield what cells made at a hidden path, if its name is one of secrets.

        Cells see nothing of the user's there. Only the name is looked at, which the cells chose,
        and not what the user has at that path.
        """
        if not is_whiteout(staged) and (why := why_secret(path)):
            yield from self._unless_settled(
                Change(self._root, path, "new", None, None, why, staged=state(staged))
            )

    def _unless_settled(self, change: Change) -> Iterator[Change]:
        """Yield a change that is never kept, unless it was dropped and nothing changed since."""
        settled_change = self._settled.get(change.name)
        if settled_change is None or not settled_change.is_of(change):
            yield change

    def _new_or_changed(
        self,
        path: str,
        below: int | None,
        name: str,
        staged: os.stat_result,
        before: os.stat_result | None,
        never: str,
    ) -> Iterator[Change]:
        """Yield a staged file, and the deletion of the user's files if it took a folder's place.

        If ``never`` says why it is not kept, it is one change, for a folder with all beneath it.
        """
        if never:
            kind: Kind = "new" if before is None else "changed"
            size = size_of(staged)
            size_before = size_of(before)
            yield from self._unless_settled(
                Change(self._root, path, kind, size, size_before, never, staged=state(staged))
            )
            return
        yield from self._change(path, staged, before)
        if before is not None and stat.S_ISDIR(before.st_mode):
            for change in self._deleted(path, below, name, before, None):
                yield replace(change, why_not=change.why_not or FILE_IN_PLACE_OF_FOLDER)

    def _names(self, prefix: str, folder: int) -> list[str]:
        """Return the names in a folder that are to be listed, or lead to a path that is."""
        if not self._only_named or any(
            not path or prefix.startswith(f"{path}/") for path in self._named
        ):
            return self._bounds.names(folder, prefix)
        after = (path[len(prefix) :] for path in self._named if path.startswith(prefix))
        names = {path.split("/")[0] for path in after}
        return sorted(name for name in names if status(folder, name) is not None)

    def _is_same(
        self,
        above: int,
        below: int | None,
        name: str,
        staged: os.stat_result,
        before: os.stat_result | None,
    ) -> bool:
        """Return whether a staged file has the user's content.

        An overlay copies a file into the layer when it is opened for writing. A file that can't be
        compared counts as changed.
        """
        if below is None or before is None or staged.st_size != before.st_size:
            return False
        if not (stat.S_ISREG(staged.st_mode) and stat.S_ISREG(before.st_mode)):
            return False
        if not self._bounds.compares(staged.st_size):
            return False
        try:
            with (
                open(os.open(name, FILE, dir_fd=above), "rb") as new,
                open(os.open(name, FILE, dir_fd=below), "rb") as old,
            ):
                part_numbers = range(staged.st_size // _PART + 1)  # it may grow meanwhile
                return all(new.read(_PART) == old.read(_PART) for _ in part_numbers)
        except OSError:
            return False

    def _unsettle_if_rewritten(
        self, path: str, above: int, name: str, staged: os.stat_result
    ) -> None:
        """Count a file that was kept as staged again if its content has changed since.

        Its state may not show that while a cell has the file mapped: only the first write to a
        page of a mapping changes the times (mmap(2)).
        """
        full = Change(self._root, path, "changed", None, None).name
        settled_change = self._settled.get(full)
        if (
            settled_change is None
            or not settled_change.content
            or not self._bounds.compares(staged.st_size)
        ):
            return
        with contextlib.suppress(OSError), closing(os.open(name, FILE, dir_fd=above)) as file:
            content, bytes_left = hashlib.sha256(), staged.st_size
            for chunk in read_parts(file):
                bytes_left -= len(chunk.data)
                if bytes_left < 0:  # the file grows while it is read
                    break
                content.update(chunk.data)
            if content.hexdigest() != settled_change.content:
                self._settled[full] = settled_change._replace(staged=None)

    def _enter(
        self, path: str, above: int, below: int | None, name: str, depth: int
    ) -> Iterator[Change]:
        """Yield the changes in a folder of the layer.

        If the user has a file in the folder's place, that file counts as deleted.
        """
        if depth >= DEEPEST:
            yield Change(self._root, path, "new", None, None, TOO_DEEP)
            return
        with contextlib.ExitStack() as stack:
            try:
                inner = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=above)))
                # Without the right to search it, its names could be read, and nothing of its files.
                os.stat(".", dir_fd=inner)
            except OSError:
                yield Change(self._root, path, "new", None, None, UNREADABLE)
                return
            under, status_below = None, status(below, name)
            if status_below is not None and stat.S_ISDIR(status_below.st_mode):
                with contextlib.suppress(OSError):
                    under = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=below)))
            blocks = status_below is not None and not stat.S_ISDIR(status_below.st_mode)
            self._blocked += blocks
            why = ""
            for change in self._folder(f"{path}/", inner, under, depth + 1):
                why = FOLDER_IN_PLACE_OF_FILE
                yield change
            self._blocked -= blocks
            if not blocks:
                return
            # Nothing in the folder can be kept, as the file is in its place. If the deletion of
            # the file were kept, the user would have neither.
            status_above = status(above, name)
            for change in self._deleted(path, below, name, status_below, status_above, self._began):
                yield replace(change, why_not=change.why_not or why)

    def _deleted(
        self,
        path: str,
        below: int | None,
        name: str,
        before: os.stat_result | None,
        staged: os.stat_result | None,
        when: int | None = None,
    ) -> Iterator[Change]:
        """Yield the deletion of a file, or of each file in a folder.

        ``when`` is the time of the deletion, in nanoseconds since 1970: a file that the user made
        or changed after it is not the one that was deleted, so is not listed. A whiteout has that
        time. A folder that was made anew has not, and perhaps there was nothing to delete, as where
        a folder is mounted over to deny it; then ``when`` is the time when the session began. For
        None all files count as deleted.
        """
        if before is None or path in self._hidden or self._at_home:
            return
        if why := why_never(f"{self._root}/{path}", before, below):
            yield Change(self._root, path, "deleted", None, None, why)
            return
        if not stat.S_ISDIR(before.st_mode):
            if when is None or before.st_ctime_ns <= when:
                yield from self._change(path, staged, before, deleted=True)
            return
        if path.count("/") > DEEPEST:
            return
        with contextlib.ExitStack() as stack:
            try:
                fd = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=below)))
            except OSError:
                return
            for inner in self._names(f"{path}/", fd):
                inner_before = status(fd, inner)
                yield from self._deleted(f"{path}/{inner}", fd, inner, inner_before, None, when)

    def _change(
        self,
        path: str,
        staged: os.stat_result | None,
        before: os.stat_result | None,
        *,
        deleted: bool = False,
    ) -> Iterator[Change]:
        """Yield the change of one file, unless it was kept or dropped and nothing changed since."""
        yours = None if before is None or stat.S_ISDIR(before.st_mode) else before
        judged = before if staged is None or deleted else staged
        kind: Kind = "deleted" if deleted else "new" if yours is None else "changed"
        change = Change(
            self._root,
            path,
            kind,
            None if staged is None or deleted else staged.st_size,
            None if yours is None else yours.st_size,
            self._reasons.why_not(path, judged, before, blocked=bool(self._blocked)),
            staged=state(staged),
            yours=state(yours),
        )
        settled_change = self._settled.get(change.name)
        if settled_change is not None and settled_change.is_of(change):
            return
        # By st_ctime, which nobody sets (ADR 0033). A file that keeping itself wrote is not newer.
        settled_as = None if settled_change is None else settled_change.yours
        newer = yours is not None and yours.st_ctime_ns > self._began and change.yours != settled_as
        yield replace(change, yours_since=yours.st_ctime) if newer and yours else change

    def _covered(
        self, prefix: str, above: int, below: int | None, names: Sequence[str]
    ) -> list[str]:
        """Return the names of the project that a folder hides because cells made it anew."""
        if below is None or not is_opaque(above):
            return []
        try:
            return sorted(set(self._names(prefix, below)).difference(names))
        except OSError:
            return []


def is_opaque(folder: int) -> bool:
    """Return whether a folder of a layer was made anew, and so hides the one below."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def size_of(file_status: os.stat_result | None) -> int | None:
    """Return the size of a regular file in bytes; None for anything else."""
    return (
        None
        if file_status is None or not stat.S_ISREG(file_status.st_mode)
        else file_status.st_size
    )


def is_whiteout(file_status: os.stat_result) -> bool:
    """Return whether a file of a layer marks the one below as deleted (overlayfs.rst)."""
    return stat.S_ISCHR(file_status.st_mode) and file_status.st_rdev == 0


def enter(
    base: str,
    path: str,
    stack: contextlib.ExitStack,
    made_folders: list[tuple[str, str]] | None = None,
) -> tuple[int, str]:
    """Open the folder that holds ``path`` beneath ``base``, following no link.

    Return its descriptor, which ``stack`` closes, and the path's last name. With ``made_folders``,
    folders that are missing are made, and ``base`` and the path of each are added to it. Raises
    OSError.
    """
    folder = stack.enter_context(closing(open_unlinked(base, FOLDER)))
    *folders, last = path.split("/")
    for depth, name in enumerate(folders):
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        if made_folders is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=folder)
                made_folders.append((base, "/".join(folders[: depth + 1])))
        folder = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=folder)))
    return folder, last


# --- sessions -------------------------------------------------------------------------------------


def of_layers(
    layers: Sequence[Layer],
    policy: Policy,
    session: str = "",
    names: Sequence[str] = (),
    adopted: Staged | None = None,
) -> Staged:
    """Return the layers of a session that starts, as Staged.

    ``session`` is the session's name in the audit log, ``names`` are the names of its kernel. A
    session that has ``adopted`` the layers of an earlier session counts as begun when the earlier
    session began.
    """
    each = tuple((layer.kept_in or layer.root, layer.folder, layer.hidden) for layer in layers)
    number = os.path.basename(os.path.dirname(layers[0].folder)) if layers else ""
    return Staged(
        number,
        each,
        time.time() if adopted is None else adopted.began,
        policy.name,
        session,
        policy.audit if policy.audit.log else None,
        -1 if adopted is None else adopted.lock,
        tuple(names),
        policy.as_dict(),
        tuple(identity(root)[1] for root, _, _ in each),
    )


def begin(staged: Staged) -> Staged:
    """Write ``session.json`` beside the layers, and lock it.

    Return ``staged`` with the descriptor of the lock. While this descriptor is open, the session
    counts as running. Raises OSError.
    """
    log = staged.log
    info = {
        "began": staged.began,
        "policy": staged.policy,
        "layers": staged.layers,
        "session": staged.session,
        "log": log and [getattr(log, name) for name in _LOG],
        "names": staged.names,
        "asked": staged.asked,
        "inodes": staged.inodes,
    }
    new = f"{staged.folder}/{_INFO}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    fd = os.open(new, NEW, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    with open(os.dup(fd), "w", encoding="utf-8") as file:
        json.dump(info, file)
    os.replace(new, f"{staged.folder}/{_INFO}")
    if staged.lock >= 0:  # the lock on the file of an adopted session, which was replaced
        os.close(staged.lock)
    return replace(staged, lock=fd)


_sweeping = threading.Lock()


def sweep_in_thread() -> None:
    """Sweep in a thread, unless one does so already: a slow disk must not hold up a session."""
    if _sweeping.acquire(blocking=False):
        threading.Thread(target=_sweep_once, name="cellblock-sweep", daemon=True).start()


def _sweep_once() -> None:
    try:
        sweep()
    finally:
        _sweeping.release()


def sweep() -> None:
    """Remove the folders of ended sessions that are too old, or the oldest of too many.

    Raises nothing.
    """
    began = list[tuple[float, str]]()
    with contextlib.suppress(OSError), os.scandir(changes_folder()) as entries:
        for entry in entries:
            try:
                began.append((os.stat(f"{entry.path}/{_INFO}").st_mtime, entry.name))
            except OSError:
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _ORPHANED:
                        remove_tree(entry.path)
    began.sort(reverse=True)
    for number, (when, name) in enumerate(began):
        old = number >= MOST_SESSIONS or time.time() - when > KEPT_FOR
        staged = Staged(name, ())
        if old and (lock := staged.take()) >= 0:
            remove_tree(staged.folder)
            os.close(lock)


def end(number: str) -> Staged | None:
    """Clean up after the session of this number, which has been closed.

    Return it if any of its changes can still be kept. Otherwise remove its folder and return None.
    """
    staged = session(number)
    try:
        nothing = staged is None or all(change.why_not for change in staged.changes())
    except (ChangesError, OSError):
        nothing = False  # too many entries to be listed, for example: the user may still name some
    if nothing:
        remove_tree(Staged(number, ()).folder)
    elif staged is not None:
        _remove_settings(staged)
    return None if nothing else staged


def _remove_settings(staged: Staged) -> None:
    """Remove what libraries put below ``~``: it may be large, and is never listed or kept."""
    for _, folder, _ in staged.layers:
        upper = f"{folder}/{UPPER}"
        with contextlib.suppress(OSError):
            for name in os.listdir(upper) if is_of_home(folder) else ():
                if is_setting(name):
                    remove_tree(f"{upper}/{name}")
                    with contextlib.suppress(OSError):
                        os.unlink(f"{upper}/{name}")  # if it was not a folder


def sessions() -> list[Staged]:
    """Return all sessions that have a folder, running ones too, the newest first."""
    try:
        listed = [session(name) for name in os.listdir(changes_folder())]
    except OSError:
        return []
    existing = [staged for staged in listed if staged is not None]
    return sorted(existing, key=lambda staged: staged.began, reverse=True)


def session(number: str) -> Staged | None:
    """Return the layers of the session of this number; None if it is not known."""
    try:
        with open(f"{changes_folder()}/{number}/{_INFO}", encoding="utf-8") as file:
            info = json.loads(file.read(_MOST_INFO))
        layers = tuple(
            (str(root), str(folder), tuple(map(str, hidden)))
            for root, folder, hidden in info["layers"]
        )
        log = Audit(**dict(zip(_LOG, info["log"], strict=True))) if info["log"] else None
        return Staged(
            number,
            layers,
            float(info["began"]),
            str(info["policy"]),
            str(info["session"]),
            log,
            names=tuple(map(str, info.get("names", ()))),
            asked=dict(info.get("asked", {})),
            inodes=tuple(map(int, info.get("inodes", ()))),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
