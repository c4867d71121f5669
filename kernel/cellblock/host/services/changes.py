"""What a session staged: listing it, showing it as a diff, keeping it, dropping it.

Cells wrote all of it, under names of their choice, so it is read like anything of a guest's: no
link is followed, nothing is opened but regular files, and what is walked is bounded. Keeping copies
regular files into the project, or removes them there, all or nothing: each new file is written
beside its place first, and what was there stays until all of them are.

    CHANGES/SESSION/session.json    when, of which project and policy; of which roots
    CHANGES/SESSION/N/upper/        what cells wrote beneath root N; whiteouts for what they deleted
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import json
import os
import stat
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from cellblock.errors import CellblockError
from cellblock.guest import remove_tree
from cellblock.policy.folders import changes_folder
from cellblock.policy.paths import within
from cellblock.policy.secret_files import SECRETS, pattern_of
from cellblock.wire.messages import UPPER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from cellblock.wire.messages import Layer

#: Seconds for which what was not kept can still be.
KEPT_FOR: Final = 7 * 24 * 3600
#: Entries of a layer that are looked at, and folders within folders.
MOST_ENTRIES: Final = 20_000
_DEEPEST: Final = 64
#: Bytes of a text file of which a diff is shown, and lines of that.
_MOST_DIFFED: Final = 200_000
_MOST_LINES: Final = 400
_PART: Final = 1 << 20
#: Bytes of a file that is compared with what it was.
_MOST_COMPARED: Final = 64 << 20
_INFO: Final = "session.json"
_MOST_INFO: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: Never kept, beside ``SECRETS``: what other programs run or trust by its name.
NEVER_KEPT: Final = frozenset({
    ".bashrc", ".direnv", ".git", ".gitattributes", ".gitmodules", ".hg", ".idea", ".ipython",
    ".jupyter", ".pre-commit-config.yaml", ".profile", ".svn", ".venv", ".vscode", "conftest.py",
    "jupyter_config.py", "jupyter_server_config.py", "sitecustomize.py", "usercustomize.py",
})  # fmt: skip

Kind = Literal["new", "changed", "deleted"]


class ChangesError(CellblockError):
    """What can't be listed, kept or dropped, and why."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file that a session made, changed or deleted.

    ``path`` is beneath ``root``. ``size`` and ``before`` are bytes, None where there is no file.
    ``why_not`` says why it is never kept; empty where it can be.
    """

    root: str
    path: str
    kind: Kind
    size: int | None
    before: int | None
    why_not: str = ""

    @property
    def name(self) -> str:
        """Return its whole path."""
        return f"{self.root.rstrip('/')}/{self.path}"


@dataclass(frozen=True, slots=True)
class Staged:
    """The layers of one session: what lies in them can be kept, or dropped."""

    id: str
    layers: tuple[tuple[str, str, tuple[str, ...]], ...]
    began: float = 0.0
    policy: str = ""
    lock: int = -1

    def changes(self) -> list[Change]:
        """Return what differs from the project, sorted; no more than ``MOST_ENTRIES``.

        A folder counts by the files in it. Raises ChangesError for more, or for folders too deep.
        """
        found: list[Change] = []
        for root, folder, hidden in self.layers:
            for change in _walk(root, f"{folder}/{UPPER}", frozenset(hidden)):
                inside = any(within(change.path, name) for name in hidden)
                why_not = change.why_not or ("cells don't read what is there" if inside else "")
                found.append(replace(change, why_not=why_not))
                if len(found) > MOST_ENTRIES:
                    raise ChangesError(f"more than {MOST_ENTRIES:,} files were written")
        return sorted(found, key=lambda change: change.name)

    def diff(self, change: Change) -> str:
        """Return a text file's unified diff, or a line about what is none."""
        new = self._text(change, staged=True) if change.kind != "deleted" else ""
        old = self._text(change, staged=False) if change.kind != "new" else ""
        if new is None or old is None:
            return f"{change.name}: not a text, or too large to be shown"
        lines = difflib.unified_diff(
            old.splitlines(),
            new.splitlines(),
            f"{change.name} (yours)" if change.kind != "new" else "/dev/null",
            f"{change.name} (staged)" if change.kind != "deleted" else "/dev/null",
            lineterm="",
        )
        shown = [line for line, _ in zip(lines, range(_MOST_LINES), strict=False)]
        return "\n".join(shown)

    def _text(self, change: Change, *, staged: bool) -> str | None:
        with contextlib.ExitStack() as stack:
            base = self._upper(change.root) if staged else change.root
            try:
                folder, name = _enter(base, change.path, stack)
                fd = os.open(name, _FILE, dir_fd=folder)
            except OSError:
                return None
            stack.callback(os.close, fd)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_DIFFED:
                return None
            try:
                return os.read(fd, _MOST_DIFFED).decode()
            except (UnicodeDecodeError, OSError):
                return None

    def _upper(self, root: str) -> str:
        return next(f"{folder}/{UPPER}" for own, folder, _ in self.layers if own == root)

    def chosen(self, paths: Collection[str]) -> list[Change]:
        """Return the changes at or beneath ``paths``, all where there are none of those.

        A path is absolute, or beneath a root. Raises ChangesError for one that nothing changed.
        """
        changes = self.changes()
        if not paths:
            return [change for change in changes if not change.why_not]
        picked: list[Change] = []
        for path in paths:
            asked = os.path.normpath(path)
            match = [
                change
                for change in changes
                if any(own == asked or own.startswith(f"{asked}/") for own in _names(change))
            ]
            if not match:
                raise ChangesError(f"nothing was changed at {path}")
            for change in match:
                if change.why_not:
                    raise ChangesError(f"{change.name} is not kept: {change.why_not}")
            picked += match
        return list(dict.fromkeys(picked))

    def keep(self, changes: Sequence[Change]) -> None:
        """Make these changes in the project, all or none; then they are no longer staged.

        Raises ChangesError where a file could not be written, or is no longer what was listed.
        """
        _Keeping(self._upper).run(changes)

    def runs(self) -> bool:
        """Whether the session still runs: then its layers are in use."""
        try:
            fd = os.open(f"{changes_folder()}/{self.id}/{_INFO}", _FILE)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def remove(self) -> None:
        """Remove all of it, for a session that has ended."""
        remove_tree.remove(f"{changes_folder()}/{self.id}")


def _names(change: Change) -> tuple[str, str]:
    return change.path, change.name


# --- reading what was staged ----------------------------------------------------------------------


def _walk(root: str, upper: str, hidden: frozenset[str]) -> Iterator[Change]:
    with contextlib.ExitStack() as stack:
        try:
            above = os.open(upper, _FOLDER)
        except OSError:
            return
        stack.callback(os.close, above)
        below: int | None = None
        with contextlib.suppress(OSError):
            below = os.open(root, _FOLDER)
            stack.callback(os.close, below)
        yield from _walk_folder(root, "", above, below, hidden, 0)


def _walk_folder(
    root: str, prefix: str, above: int, below: int | None, hidden: frozenset[str], depth: int
) -> Iterator[Change]:
    """Compare a folder of the layer with the same of the project."""
    if depth > _DEEPEST:
        raise ChangesError(f"folders are nested more than {_DEEPEST} deep")
    names = sorted(os.listdir(above))
    if len(names) > MOST_ENTRIES:
        raise ChangesError(f"more than {MOST_ENTRIES:,} files were written")
    for name in names:
        path = f"{prefix}{name}"
        # Below a name that is hidden from cells there is nothing that they could have changed.
        under = None if path in hidden else below
        staged, before = _status(above, name), None if under is None else _status(under, name)
        if staged is None:
            continue
        if stat.S_ISDIR(staged.st_mode):
            yield from _enter_folder(root, path, above, under, name, hidden, depth)
        elif _is_whiteout(staged):
            yield from _deleted(root, path, under, name, before)
        elif not _is_same(above, under, name, staged, before):
            yield _change(root, path, staged, before)
    for name in _covered(above, below, names):
        if f"{prefix}{name}" not in hidden:
            yield from _deleted(root, f"{prefix}{name}", below, name, _status(below, name))


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_same(
    above: int, below: int | None, name: str, staged: os.stat_result, before: os.stat_result | None
) -> bool:
    """Whether a file has what it had: it was opened to be written, or has been kept."""
    if below is None or before is None or not staged.st_size == before.st_size <= _MOST_COMPARED:
        return False
    if not (stat.S_ISREG(staged.st_mode) and stat.S_ISREG(before.st_mode)):
        return False
    try:
        with (
            open(os.open(name, _FILE, dir_fd=above), "rb") as new,
            open(os.open(name, _FILE, dir_fd=below), "rb") as old,
        ):
            return all(part == old.read(_PART) for part in iter(lambda: new.read(_PART), b""))
    except OSError:
        return False


def _enter_folder(
    root: str,
    path: str,
    above: int,
    below: int | None,
    name: str,
    hidden: frozenset[str],
    depth: int,
) -> Iterator[Change]:
    with contextlib.ExitStack() as stack:
        inner = os.open(name, _FOLDER, dir_fd=above)
        stack.callback(os.close, inner)
        under: int | None = None
        if below is not None:
            with contextlib.suppress(OSError):
                under = os.open(name, _FOLDER, dir_fd=below)
                stack.callback(os.close, under)
        yield from _walk_folder(root, f"{path}/", inner, under, hidden, depth + 1)


def _deleted(
    root: str, path: str, below: int | None, name: str, before: os.stat_result | None
) -> Iterator[Change]:
    """Yield what was deleted with a name: the files of a folder one by one."""
    if before is None:
        return
    if not stat.S_ISDIR(before.st_mode):
        yield Change(root, path, "deleted", None, before.st_size, _why_not(path, before))
        return
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(name, _FOLDER, dir_fd=below)
        except OSError:
            return
        stack.callback(os.close, fd)
        if path.count("/") > _DEEPEST:
            return
        for inner in sorted(os.listdir(fd)):
            yield from _deleted(root, f"{path}/{inner}", fd, inner, _status(fd, inner))


def _change(root: str, path: str, staged: os.stat_result, before: os.stat_result | None) -> Change:
    there = before is not None and not stat.S_ISDIR(before.st_mode)
    return Change(
        root,
        path,
        "changed" if there else "new",
        staged.st_size,
        before.st_size if before is not None and there else None,
        _why_not(path, staged),
    )


def _why_not(path: str, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    for part in path.split("/"):
        if part.lower() in NEVER_KEPT:
            return f"{part} is run or trusted by other programs"
    if pattern_of(path.lower(), SECRETS):
        return "files of this name hold secrets"
    if not path.isprintable():
        return "its name can't be shown"
    return ""


def _covered(above: int, below: int | None, names: Sequence[str]) -> list[str]:
    """Return what a folder of the layer hides of the one below, because it was made anew."""
    if below is None:
        return []
    try:
        opaque = os.getxattr(above, "user.overlay.opaque") == b"y"
        return sorted(set(os.listdir(below)).difference(names)) if opaque else []
    except OSError:
        return []


def _status(folder: int | None, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _enter(
    base: str, path: str, stack: contextlib.ExitStack, *, make: bool = False
) -> tuple[int, str]:
    """Return the folder that holds ``path`` beneath ``base``, and its last name. Raises OSError."""
    folder = os.open(base, _FOLDER)
    stack.callback(os.close, folder)
    *folders, last = path.split("/")
    for name in folders:
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=folder)
        folder = os.open(name, _FOLDER, dir_fd=folder)
        stack.callback(os.close, folder)
    return folder, last


# --- keeping --------------------------------------------------------------------------------------


class _Keeping:
    """Copies staged files into a project: prepared beside their places, then all renamed."""

    def __init__(self, upper_of: Callable[[str], str]) -> None:
        self._upper_of = upper_of

    def run(self, changes: Sequence[Change]) -> None:
        with contextlib.ExitStack() as stack:
            prepared: list[tuple[int, str, str | None]] = []
            done: list[tuple[int, str, str]] = []
            name = ""
            try:
                for number, change in enumerate(changes):
                    name = change.name
                    prepared.append(self._prepare(change, number, stack))
                for change, (folder, last, temporary) in zip(changes, prepared, strict=True):
                    name = change.name
                    self._replace(folder, last, temporary, done)
            except OSError as error:
                for folder, last, backup in reversed(done):
                    with contextlib.suppress(OSError):
                        _restore(folder, last, backup)
                what = f"nothing was kept: {name}: {error.strerror or error}"
                raise ChangesError(what) from None
            finally:
                self._clean(prepared)
            for folder, _, backup in done:
                with contextlib.suppress(OSError):
                    os.unlink(backup, dir_fd=folder)

    def _prepare(
        self, change: Change, number: int, stack: contextlib.ExitStack
    ) -> tuple[int, str, str | None]:
        """Write a new file beside its place; of one that is to be removed, find the place."""
        deleted = change.kind == "deleted"
        folder, name = _enter(change.root, change.path, stack, make=not deleted)
        there = _status(folder, name)
        if there is not None and not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EEXIST, "something that is no file is there")
        if deleted:
            return folder, name, None
        with contextlib.ExitStack() as own:
            source_folder, source = _enter(self._upper_of(change.root), change.path, own)
            fd = os.open(source, _FILE, dir_fd=source_folder)
            own.callback(os.close, fd)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size != change.size:
                raise OSError(errno.EBUSY, "it changed meanwhile")
            temporary = f".{name[:100]}.{os.getpid()}-{number}.keep"
            mode = stat.S_IMODE(there.st_mode) if there is not None else 0o666 & ~_umask()
            new = os.open(temporary, _NEW, 0o600, dir_fd=folder)
            try:
                left = found.st_size
                while left and (part := os.read(fd, min(left, _PART))):
                    os.write(new, part)
                    left -= len(part)
                os.fchmod(new, mode & 0o777)
            finally:
                os.close(new)
            return folder, name, temporary

    def _replace(
        self, folder: int, name: str, temporary: str | None, done: list[tuple[int, str, str]]
    ) -> None:
        """Put a file in its place, and what was there beside it until all are."""
        backup = f".{name[:100]}.{os.getpid()}-{len(done)}.was"
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, backup, src_dir_fd=folder, dst_dir_fd=folder)
        done.append((folder, name, backup))
        if temporary is not None:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    @staticmethod
    def _clean(prepared: list[tuple[int, str, str | None]]) -> None:
        for folder, _, temporary in prepared:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)


def _restore(folder: int, name: str, backup: str) -> None:
    try:
        os.rename(backup, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        os.unlink(name, dir_fd=folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# --- sessions -------------------------------------------------------------------------------------


def of_layers(layers: Sequence[Layer], policy: str) -> Staged:
    """Return what a session that runs has staged."""
    each = tuple((layer.root, layer.folder, layer.hidden) for layer in layers)
    number = os.path.basename(os.path.dirname(layers[0].folder)) if layers else ""
    return Staged(number, each, time.time(), policy)


def begin(staged: Staged) -> Staged:
    """Write down, beside the layers, what they are of; remove those that are too old.

    Return the same with a descriptor that tells, while it is open, that the session runs. Raises
    OSError.
    """
    folder = f"{changes_folder()}/{staged.id}"
    info = {"began": staged.began, "policy": staged.policy, "layers": staged.layers}
    fd = os.open(f"{folder}/{_INFO}", _NEW, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    with open(os.dup(fd), "w", encoding="utf-8") as file:
        json.dump(info, file)
    for old in sessions():
        if old.id != staged.id and time.time() - old.began > KEPT_FOR and not old.runs():
            old.remove()
    return replace(staged, lock=fd)


def end(scratch: Path, staged: Staged | None) -> None:
    """End a session: remove its folder where nothing is staged, or it never began."""
    if staged is not None and staged.lock >= 0:
        os.close(staged.lock)
    number = scratch.name
    found = session(number)
    try:
        nothing = found is None or not found.changes()
    except (ChangesError, OSError):
        nothing = False
    if nothing:
        remove_tree.remove(f"{changes_folder()}/{number}")


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
        return Staged(number, layers, float(info["began"]), str(info["policy"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
