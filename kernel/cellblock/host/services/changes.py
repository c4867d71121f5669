"""What a session staged: listing it, showing it as a diff, dropping it.

Cells wrote all of it, under names of their choice, so it is read like anything of a guest's: no
link is followed, nothing is opened but regular files, and what is looked at, compared and shown is
bounded (promise P14). ``keepable`` says why something is not kept; ``keeping`` makes the rest in
the project.

    CHANGES/SESSION/session.json    when, of which project and policy; of which roots; its audit log
    CHANGES/SESSION/settled.json    what of it was kept or dropped, and is no longer staged
    CHANGES/SESSION/N/upper/        what cells wrote beneath root N; whiteouts for what they deleted
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
    FOLDER_IN_ITS_PLACE,
    IN_ITS_PLACE,
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

#: Seconds for which what was not kept can still be, and sessions of which that is so.
KEPT_FOR: Final = 7 * 24 * 3600
MOST_SESSIONS: Final = 200
#: Entries of a layer that are looked at, or at most dropped.
MOST_ENTRIES: Final = 50_000
_MOST_DROPPED: Final = 100_000
#: Characters of all paths in one listing, and paths that are asked for at once.
_MOST_CHARACTERS: Final = 8 << 20
_MOST_PATHS: Final = 100
#: Bytes of a text file of which a diff is shown, lines of that, and characters of a line.
_MOST_DIFFED: Final = 200_000
_MOST_LINES: Final = 400
_LONGEST_LINE: Final = 500
_PART: Final = 1 << 20
#: Bytes that one listing compares with what they were, and what each file counts as at least.
_MOST_COMPARED: Final = 64 << 20
_LEAST_COMPARED: Final = 64 << 10
_INFO: Final = "session.json"
#: Seconds after which a folder that no session began has been left by one that could not.
_ORPHANED: Final = 3_600
_SETTLED: Final = "settled.json"
#: Seconds that one who wants a session to itself waits for those who only look whether it runs.
_PATIENCE: Final = 0.1
_MOST_INFO: Final = 1 << 20
_MOST_SETTLED: Final = 32 << 20

#: Of the names that are never kept the one that people write to on purpose; and what each commit
#: of theirs changes in it.
GIT: Final = ".git"
_COMMITS: Final = "logs/HEAD"

Kind = Literal["new", "changed", "deleted"]
#: What changes when a file does; None where there is none.
State = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Change:
    """One file that a session made, changed or deleted.

    ``path`` is beneath ``root``. ``size`` and ``before`` are bytes, None where there is no file.
    ``why_not`` says why it is never kept, and is empty where it can be. ``yours_since`` is when
    your own file was changed, where that was after the session began, in seconds since 1970.
    """

    root: str
    path: str
    kind: Kind
    size: int | None
    before: int | None
    why_not: str = ""
    yours_since: float | None = None
    #: The staged file and yours as they were listed.
    staged: State = field(default=None, repr=False)
    yours: State = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return its whole path."""
        return f"{self.root.rstrip('/')}/{self.path}"


class Kept(Struct, frozen=True):
    """A change that was kept; ``sha256`` is of the file's content, empty where it was deleted."""

    change: Change
    sha256: str


class Settled(NamedTuple):
    """What was kept or dropped: the user's file and the staged one, as they were left.

    ``content`` is the SHA-256 of what was kept; of what was dropped it is empty.
    """

    yours: State
    staged: State
    content: str = ""

    def is_of(self, change: Change) -> bool:
        """Return whether a change is what was kept or dropped, by both files' states."""
        return (self.yours, self.staged) == (change.yours, change.staged)


class Diff(NamedTuple):
    """A unified diff, or a line about what is none; ``cut`` lines of it are not in it whole.

    A line that a terminal may show in another order is followed by one that begins with ``!`` and
    repeats it in the order of its text.
    """

    text: str
    cut: int = 0


#: What of a policy's audit log those need who keep something when the session is over.
_LOG: Final = ("folder", "max_bytes", "fsync", "required")


@dataclass(frozen=True, slots=True)
class Staged:
    """The layers of one session: what lies in them can be kept, or dropped.

    ``session`` is what it is called in its audit ``log``. ``names`` are those of its kernel, by
    which a later one knows that as its own, ``asked`` the fields of the policy that it began under,
    ``inodes`` those of the roots (``adoption``).
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
    #: Where paths that are not absolute begin.
    base: str = ""
    #: What was kept by this object.
    kept: list[Kept] = field(default_factory=list, repr=False, compare=False)

    def is_written_to(self) -> bool:
        """Whether cells wrote anything that is listed. Cells can lock the folders: for a thread."""
        for _, folder, _ in self.layers:
            home = is_of_home(folder)
            with contextlib.suppress(OSError), os.scandir(f"{folder}/{UPPER}") as entries:
                if any(not (home and is_setting(entry.name)) for entry in entries):
                    return True
        return False

    def has_home(self) -> bool:
        """Whether what cells write below ``~`` is staged, too."""
        return any(is_of_home(folder) for _, folder, _ in self.layers)

    def commits(self) -> tuple[State, ...]:
        """Return what changes when a cell commits to the repository at a root; for a thread.

        That it is not kept is said at once: git tells the cell that all is well.
        """
        found = list[State]()
        for _, folder, _ in self.layers:
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                at, name = enter(f"{folder}/{UPPER}", f"{GIT}/{_COMMITS}", stack)
                found.append(state(status(at, name)))
        return tuple(found)

    @property
    def folder(self) -> str:
        """Return where all of it lies."""
        return f"{changes_folder()}/{self.id}"

    def changes(self, paths: Collection[str] = (), most: int | None = None) -> list[Change]:
        """Return what differs from the project; with ``paths``, what is at or beneath them.

        Files of the user's that changed or were deleted come first, since new ones may be so many
        that nobody sees what stands behind them; then each is sorted by its name.
        A path that is not absolute begins at ``base``, or beneath the only root. A folder counts by
        the files in it. It takes 30 µs an entry. Raises ChangesError for more than ``most`` entries
        (``MOST_ENTRIES``), or for folders too deep.
        """
        bounds, settled, paths = _Bounds(most or MOST_ENTRIES), self.settled(), self.named(paths)
        found = list[Change]()
        for root, folder, hidden in self.layers:
            wanted = tuple(_beneath(root, path) for path in paths)
            walk = _Walk(
                root,
                frozenset(hidden),
                settled,
                self.began,
                wanted,
                bounds,
                at_home=is_of_home(folder),
            )
            found += walk.changes(f"{folder}/{UPPER}")
        return sorted(found, key=lambda change: (change.kind == "new", change.name))

    def named(self, paths: Collection[str]) -> list[str]:
        """Return whole paths. Raises ChangesError for one that could be in more than one root."""
        named, roots = list[str](), [root for root, _, _ in self.layers]
        projects = [root for root, folder, _ in self.layers if not is_of_home(folder)]
        for path in paths:
            if path == "~" or path.startswith("~/"):
                named.append(os.path.normpath(f"{self._home()}{path[1:]}"))
                continue
            at = os.path.normpath(os.path.join(self.base, path)) if self.base else path
            known = os.path.isabs(at) and any(_beneath(root, at) is not None for root in roots)
            if not known and not os.path.isabs(path):
                if len(projects) > 1:
                    folders = " or ".join(map(visible, projects))
                    raise ChangesError(f"{visible(path)} could lie in {folders}: name it whole")
                at = path if path.startswith("..") else os.path.join(*projects, path)
            named.append(at)
        return named

    def _home(self) -> str:
        """Return the user's home folder, as the session had it."""
        homes = (root for root, folder, _ in self.layers if is_of_home(folder))
        return next(homes, os.path.expanduser("~"))

    def chosen(self, paths: Collection[str] = (), *, overwrite: bool = False) -> list[Change]:
        """Return what can be kept of the changes at or beneath ``paths``; without those, of all.

        Raises ChangesError for a path at which nothing changed, or nothing can be kept; and, but to
        ``overwrite``, for a file that the user changed since the session began.
        """
        if len(paths) > _MOST_PATHS:
            raise ChangesError(f"more than {_MOST_PATHS} paths: name the folders that they are in")
        picked = self.changes(paths)
        for path, whole in zip(paths, self.named(paths), strict=True):
            found = [one for one in picked if _is_at(one, whole)]
            if not found:
                raise ChangesError(f"nothing was changed at {visible(path)}")
            if all(one.why_not for one in found):
                raise ChangesError(
                    f"{visible(self.label(found[0]))} is not kept: {found[0].why_not}"
                )
        picked = [one for one in picked if not one.why_not]
        for change in picked:
            if change.yours_since is not None and not overwrite:
                when = time.strftime("%H:%M:%S", time.localtime(change.yours_since))
                what = f"{visible(self.label(change))} was changed by somebody else at {when}"
                raise ChangesError(
                    f"{Heading.NOT_KEPT}{what}, after the session began. Keep the other files by "
                    "their names, or this one over yours with --overwrite; `cellblock changes diff "
                    f"{self.id}` shows how they differ"
                )
        return picked

    def label(self, change: Change) -> str:
        """Return its path as ``named`` takes it: from ``base``, where that lies in the root.

        What cells wrote below ``~`` is called so.
        """
        if any(root == change.root and is_of_home(folder) for root, folder, _ in self.layers):
            return f"~/{change.path}"
        if not within(self.base, change.root):
            return change.name
        path = os.path.relpath(change.name, self.base)
        return f"./{path}" if path.startswith("-") else path

    def diff(self, change: Change, digest: str = "", *, most: int | None = _MOST_LINES) -> Diff:
        """Return a text file's unified diff, or a line about what is none; never an empty one.

        With a ``digest``, of the file that has that SHA-256 and of no other. At most ``most`` lines
        of it, none too long, or all for None; what is left out is said. The file's name is a cell's
        choice: it stays within its line.
        """
        name = visible(self.label(change))
        if self._hides(change):
            return _said(f"{name}: not shown, as the policy denies it")
        new = self._text(change, staged=True) if change.kind != "deleted" else ""
        old = self._text(change, staged=False) if change.kind != "new" else ""
        if new is None or old is None:
            return _said(f"{name}: not a text, or too large to be shown")
        if digest and hashlib.sha256(new.encode()).hexdigest() != digest:
            return _said(f"{name}: it changes while it is looked at")
        # As git has it: what Python alone takes for the end of a line is part of one.
        lines = unified(
            old.removesuffix("\n").split("\n") if old else [],
            new.removesuffix("\n").split("\n") if new else [],
            f"{name} (yours)" if change.kind != "new" else "/dev/null",
            f"{name} (staged)" if change.kind != "deleted" else "/dev/null",
        )
        for text, whose in ((old, "yours"), (new, "the staged one")):
            if text and not text.endswith("\n"):
                lines.append(f"\\ no newline at the end of {whose}")
        if most is None:
            return _said(*lines)
        shown, left_out = [_cut(line) for line in lines[:most]], max(0, len(lines) - most)
        cut = left_out + sum(len(line) > _LONGEST_LINE for line in lines[:most])
        shown += [f"… {left_out:,} more lines"] if left_out else []
        return _said(*shown, cut=cut)

    def _hides(self, change: Change) -> bool:
        """Whether the policy denies what is there: a narrower one may do so since."""
        return any(root == change.root and change.path in hidden for root, _, hidden in self.layers)

    def _text(self, change: Change, *, staged: bool) -> str | None:
        """Return a file's text, staged or yours; None where it is none, or too long."""
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
        """Return the folder of what cells wrote beneath a root."""
        return next(f"{folder}/{UPPER}" for own, folder, _ in self.layers if own == root)

    def without(self, denied: Collection[str]) -> Staged:
        """Return the same without what is denied now: nothing of it is listed, shown or kept."""
        layers = []
        for root, folder, hidden in self.layers:
            paths = [at for path in denied if (at := _beneath(root, path)) is not None]
            if "" not in paths:
                layers.append((root, folder, (*hidden, *paths)))
        return replace(self, layers=tuple(layers))

    # --- what is no longer staged -------------------------------------------------------------

    def settled(self) -> dict[str, Settled]:
        """Return what was kept or dropped: your file and the staged one, as they were left."""
        try:
            with open(f"{self.folder}/{_SETTLED}", encoding="utf-8") as file:
                found = json.loads(file.read(_MOST_SETTLED))
            return {
                name: Settled(_state_of(yours), _state_of(staged), str(content))
                for name, (yours, staged, content) in found.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def settle(self, changes: Sequence[Change], contents: Mapping[str, str] | None = None) -> None:
        """Note that these are no longer staged, until a file of theirs changes. Raises OSError.

        ``contents`` are SHA-256 digests of staged files that were kept, by name.
        """
        left = {
            one.name: Settled(one.yours, one.staged, (contents or {}).get(one.name, ""))
            for one in changes
        }
        known = {**self.settled(), **left}
        new = f"{self.folder}/{_SETTLED}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        with open(os.open(new, NEW, 0o600), "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(new, f"{self.folder}/{_SETTLED}")

    def drop(self, paths: Collection[str] = ()) -> Sequence[Change]:
        """Throw it away. While the session runs, what is there now is no longer staged.

        With ``paths`` only what is at or beneath them, and nothing is removed.

        Cells of that session see it until it ends. Returns what that is, also where it is more than
        a listing takes, for dropping is what one can do about that. Raises ChangesError, OSError.
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
        """Whether cells wrote something, and nothing of it is staged any more."""
        try:
            return bool(self.settled()) and not self.changes(most=_MOST_DROPPED)
        except (ChangesError, OSError):
            return False

    def close(self) -> None:
        """Tell that the session, which ``begin`` began, has ended."""
        os.close(self.lock)

    def runs(self) -> bool:
        """Whether the session still runs: then its layers are in use."""
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
        """Return a descriptor that has the session to itself while it is open; -1 if it runs."""
        path, until = f"{self.folder}/{_INFO}", time.monotonic() + _PATIENCE
        try:
            fd = os.open(path, FILE)
        except OSError:
            return -1
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    return fd
            except BlockingIOError:  # a session that runs; or who only looks, for a moment
                if time.monotonic() < until:
                    time.sleep(_PATIENCE / 10)
                    continue
            except OSError:
                pass
            os.close(fd)
            return -1


def finish(work: Generator[None, None, T]) -> T:
    """Return what a generator returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def is_of_home(folder: str) -> bool:
    """Whether a layer's folder holds what cells wrote below ``~``."""
    return os.path.basename(folder) == HOME


def _beneath(root: str, path: str) -> str | None:
    """Return a path from a root, empty for all of it, None for what is elsewhere."""
    asked, top = os.path.normpath(path), root.rstrip("/")
    if not asked.startswith("/"):
        return None if asked.split("/")[0] == ".." else asked.removeprefix(".")
    if f"{top}/".startswith(f"{asked.rstrip('/')}/"):
        return ""
    return asked[len(top) + 1 :] if asked.startswith(f"{top}/") else None


def _said(*lines: str, cut: int = 0) -> Diff:
    shown = (each for line in lines for each in (line, *(f"! {note}" for note in exactly(line))))
    return Diff("\n".join(shown), cut)


def _cut(line: str) -> str:
    cut = len(line) - _LONGEST_LINE
    return line if cut <= 0 else f"{line[:_LONGEST_LINE]}… {cut:,} more characters"


def _is_at(change: Change, path: str) -> bool:
    """Whether a change is at or beneath a path, or of a folder above that is never kept."""
    at = _beneath(change.root, path)
    if at is None or not at:
        return at is not None
    within_it = bool(change.why_not) and f"{at}/".startswith(f"{change.path}/")
    return within_it or f"{change.path}/".startswith(f"{at}/")


def _state_of(found: Sequence[int] | None) -> State:
    return None if found is None else tuple(map(int, found))


def state(found: os.stat_result | None) -> State:
    """Return what changes when this file does."""
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# --- reading what was staged ----------------------------------------------------------------------


class _Bounds:
    """How much one listing still looks at."""

    def __init__(self, most: int) -> None:
        self._most = self._entries = most
        self._compared = _MOST_COMPARED
        self._characters = _MOST_CHARACTERS

    def names(self, folder: int, prefix: str) -> list[str]:
        """Return what is in a folder, sorted. Raises ChangesError for too much, OSError."""
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
        """Return whether two files of this size are to be compared."""
        self._compared -= max(size, _LEAST_COMPARED)
        return self._compared >= 0


class _Walk:
    """Finds what differs beneath one root; ``wanted`` are paths from there."""

    def __init__(
        self,
        root: str,
        hidden: frozenset[str],
        settled: dict[str, Settled],
        began: float,
        wanted: Sequence[str | None],
        bounds: _Bounds,
        *,
        at_home: bool = False,
    ) -> None:
        #: Whether it is the cells' home folder: they saw nothing of the user's there, so whatever
        #: the layer looks like they deleted nothing.
        self._at_home = at_home
        self._root, self._hidden, self._settled, self._bounds = root, hidden, settled, bounds
        self._began = int(began * 1e9)
        self._reasons = Reasons(root, at_home=at_home)
        #: Whether something else than a folder is above, in the project.
        self._blocked = 0
        self._asked, self._wanted = bool(wanted), [path for path in wanted if path is not None]

    def changes(self, upper: str) -> Iterator[Change]:
        """Yield what differs. Raises ChangesError."""
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
        """Compare a folder of the layer with the same of the project."""
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
                self._look_at_settled(path, above, name, staged)
                yield from self._instead(path, below, name, staged, before, never)
        for name in self._covered(prefix, above, below, names):
            there = status(below, name)
            yield from self._deleted(f"{prefix}{name}", below, name, there, None, self._began)

    def _in_a_hidden_place(self, path: str, staged: os.stat_result) -> Iterator[Change]:
        """Yield what cells made where they see nothing of the user's, if that holds secrets.

        Its name alone, which the cells gave it: what the user has there is not looked at.
        """
        if not is_whiteout(staged) and (why := why_secret(path)):
            yield from self._unless_settled(
                Change(self._root, path, "new", None, None, why, staged=state(staged))
            )

    def _unless_settled(self, made: Change) -> Iterator[Change]:
        """Yield what is never kept, unless it was dropped as it is."""
        known = self._settled.get(made.name)
        if known is None or not known.is_of(made):
            yield made

    def _instead(
        self,
        path: str,
        below: int | None,
        name: str,
        staged: os.stat_result,
        before: os.stat_result | None,
        never: str,
    ) -> Iterator[Change]:
        """Yield what stands in a place of the project, or that of a folder which is gone there.

        Where ``never`` says why it is not kept, that is one change for all beneath it.
        """
        if never:
            kind: Kind = "new" if before is None else "changed"
            size, was = size_of(staged), size_of(before)
            yield from self._unless_settled(
                Change(self._root, path, kind, size, was, never, staged=state(staged))
            )
            return
        yield from self._change(path, staged, before)
        if before is not None and stat.S_ISDIR(before.st_mode):
            for one in self._deleted(path, below, name, before, None):
                yield replace(one, why_not=one.why_not or IN_ITS_PLACE)

    def _names(self, prefix: str, folder: int) -> list[str]:
        """Return the names in a folder that are wanted, or lead there."""
        if not self._asked or any(
            not path or prefix.startswith(f"{path}/") for path in self._wanted
        ):
            return self._bounds.names(folder, prefix)
        after = (path[len(prefix) :] for path in self._wanted if path.startswith(prefix))
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
        """Whether a file has what it had: it was opened to be written, say."""
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
                parts = range(staged.st_size // _PART + 1)  # it may grow meanwhile
                return all(new.read(_PART) == old.read(_PART) for _ in parts)
        except OSError:
            return False

    def _look_at_settled(self, path: str, above: int, name: str, staged: os.stat_result) -> None:
        """Count a file that was kept as staged again if it has another content by now.

        Its state does not say so while a cell has it mapped: only the first write to a page of a
        mapping changes the times (mmap(2)).
        """
        full = Change(self._root, path, "changed", None, None).name
        known = self._settled.get(full)
        if known is None or not known.content or not self._bounds.compares(staged.st_size):
            return
        with contextlib.suppress(OSError), closing(os.open(name, FILE, dir_fd=above)) as file:
            content, left = hashlib.sha256(), staged.st_size
            for part in read_parts(file):
                left -= len(part.data)
                if left < 0:  # it grows meanwhile
                    break
                content.update(part.data)
            if content.hexdigest() != known.content:
                self._settled[full] = known._replace(staged=None)

    def _enter(
        self, path: str, above: int, below: int | None, name: str, depth: int
    ) -> Iterator[Change]:
        if depth >= DEEPEST:
            yield Change(self._root, path, "new", None, None, TOO_DEEP)
            return
        with contextlib.ExitStack() as stack:
            try:
                inner = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=above)))
            except OSError:
                yield Change(self._root, path, "new", None, None, UNREADABLE)
                return
            under, there = None, status(below, name)
            if there is not None and stat.S_ISDIR(there.st_mode):
                with contextlib.suppress(OSError):
                    under = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=below)))
            blocks = there is not None and not stat.S_ISDIR(there.st_mode)
            self._blocked += blocks
            why = ""
            for one in self._folder(f"{path}/", inner, under, depth + 1):
                why = FOLDER_IN_ITS_PLACE
                yield one
            self._blocked -= blocks
            if not blocks:
                return
            # Without what took its place, the user would be left with neither.
            now = status(above, name)
            for one in self._deleted(path, below, name, there, now, self._began):
                yield replace(one, why_not=one.why_not or why)

    def _deleted(
        self,
        path: str,
        below: int | None,
        name: str,
        before: os.stat_result | None,
        staged: os.stat_result | None,
        when: int | None = None,
    ) -> Iterator[Change]:
        """Yield what was deleted with a name: the files of a folder one by one.

        What the user made or changed after ``when`` is not what was deleted: when there came a
        whiteout. A folder that was made does not say when. There may have been nothing then, as
        where one is mounted over to deny it, so nothing that came since the session began is meant.
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
                below_it = status(fd, inner)
                yield from self._deleted(f"{path}/{inner}", fd, inner, below_it, None, when)

    def _change(
        self,
        path: str,
        staged: os.stat_result | None,
        before: os.stat_result | None,
        *,
        deleted: bool = False,
    ) -> Iterator[Change]:
        """Yield what differs of a file, unless it was kept or dropped as it is."""
        there = None if before is None or stat.S_ISDIR(before.st_mode) else before
        found = before if staged is None or deleted else staged
        kind: Kind = "deleted" if deleted else "new" if there is None else "changed"
        made = Change(
            self._root,
            path,
            kind,
            None if staged is None or deleted else staged.st_size,
            None if there is None else there.st_size,
            self._reasons.why_not(path, found, before, blocked=bool(self._blocked)),
            staged=state(staged),
            yours=state(there),
        )
        known = self._settled.get(made.name)
        if known is not None and known.is_of(made):
            return
        yours = None if known is None else known.yours
        newer = there is not None and there.st_ctime_ns > self._began and made.yours != yours
        yield replace(made, yours_since=there.st_ctime) if newer and there else made

    def _covered(
        self, prefix: str, above: int, below: int | None, names: Sequence[str]
    ) -> list[str]:
        """Return what a folder of the layer hides of the one below, because it was made anew."""
        if below is None or not is_opaque(above):
            return []
        try:
            return sorted(set(self._names(prefix, below)).difference(names))
        except OSError:
            return []


def is_opaque(folder: int) -> bool:
    """Whether a folder of a layer, which was made anew, hides the one below."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def size_of(found: os.stat_result | None) -> int | None:
    """Return the bytes of a regular file; None for anything else."""
    return None if found is None or not stat.S_ISREG(found.st_mode) else found.st_size


def is_whiteout(found: os.stat_result) -> bool:
    """Whether it says that a file below was deleted (overlayfs.rst)."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def enter(
    base: str,
    path: str,
    stack: contextlib.ExitStack,
    made: list[tuple[str, str]] | None = None,
) -> tuple[int, str]:
    """Return the folder that holds ``path`` beneath ``base``, and its last name. Raises OSError.

    With ``made``, folders that are missing are made, and their paths added to it.
    """
    folder = stack.enter_context(closing(open_unlinked(base, FOLDER)))
    *folders, last = path.split("/")
    for depth, name in enumerate(folders):
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        if made is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=folder)
                made.append((base, "/".join(folders[: depth + 1])))
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
    """Return what a session that runs has staged; ``session`` is its name in the audit log.

    One that goes on with what was ``adopted`` began when that did.
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
    """Write down, beside the layers, what they are of.

    Return the same with a descriptor that tells, while it is open, that the session runs. Raises
    OSError.
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
    if staged.lock >= 0:
        os.close(staged.lock)
    return replace(staged, lock=fd)


_sweeping = threading.Lock()


def sweep_in_thread() -> None:
    """Sweep beside a session that begins, unless that is being done: a disk may take its time."""
    if _sweeping.acquire(blocking=False):
        threading.Thread(target=_sweep_once, name="cellblock-sweep", daemon=True).start()


def _sweep_once() -> None:
    try:
        sweep()
    finally:
        _sweeping.release()


def sweep() -> None:
    """Remove what can no longer be kept: by age, and the oldest of too many. Raises nothing."""
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
        one = Staged(name, ())
        if old and (lock := one.take()) >= 0:
            remove_tree(one.folder)
            os.close(lock)


def end(number: str) -> Staged | None:
    """End the session of this number, which is closed; return what can still be kept.

    Without any its folder is removed.
    """
    found = session(number)
    try:
        nothing = found is None or all(one.why_not for one in found.changes())
    except (ChangesError, OSError):
        nothing = False
    if nothing:
        remove_tree(Staged(number, ()).folder)
    elif found is not None:
        _remove_settings(found)
    return None if nothing else found


def _remove_settings(staged: Staged) -> None:
    """Remove what libraries put below ``~``, which may be much: nobody is offered it."""
    for _, folder, _ in staged.layers:
        upper = f"{folder}/{UPPER}"
        with contextlib.suppress(OSError):
            for name in os.listdir(upper) if is_of_home(folder) else ():
                if is_setting(name):
                    remove_tree(f"{upper}/{name}")
                    with contextlib.suppress(OSError):
                        os.unlink(f"{upper}/{name}")  # no folder


def sessions() -> list[Staged]:
    """Return what can still be kept, the newest first."""
    try:
        found = [session(name) for name in os.listdir(changes_folder())]
    except OSError:
        return []
    there = [one for one in found if one is not None]
    return sorted(there, key=lambda one: one.began, reverse=True)


def session(number: str) -> Staged | None:
    """Return what the session of this number staged, None where it is not known."""
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
