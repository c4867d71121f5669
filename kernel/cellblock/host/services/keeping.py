"""Keeping what a session staged: into the project, all or nothing; or for the next kernel.

Each new file is written beside its place first, and what was there stays until all of them are in
theirs. Nothing is followed, and no place is trusted to be what it was: a file of the user's that
changed since it was listed is left alone, as is a staged one that is not what was asked about.
Files are copied in short steps, between which a host's loop goes on.

A kernel goes on with what the one before it staged (``adopt``), so that its cells see their files,
where both have a name in common: the connection file, which a restart keeps, or the
notebook. What it takes over is whole or not at all: a session that has ended, of the same folders,
under a policy that allowed no less. What lies in it is a cell's work, as ever: only its owner, its
place and what the overlay would make of it are looked at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from cellblock.backends.plan import outermost
from cellblock.descriptors import (
    FILE,
    FOLDER,
    NEW,
    closing,
    identity,
    lock,
    open_unlinked,
    remove_tree,
)
from cellblock.errors import ChangesError, PolicyError
from cellblock.host.audit.log import Log
from cellblock.host.audit.recorder import Audit
from cellblock.host.consent.approver import Decision
from cellblock.host.consent.request import of_keeping
from cellblock.host.services import changes
from cellblock.host.services.changes import Change, Staged, enter, state
from cellblock.policy.load import from_fields
from cellblock.policy.narrowing import check_narrower
from cellblock.policy.paths import within
from cellblock.render.text import visible
from cellblock.wire.messages import UPPER, WORK, Layer

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

    from cellblock.host.services.changes import State
    from cellblock.policy.model import Policy


T = TypeVar("T")
_PART: Final = 1 << 20
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Bytes of a name that is part of the name beside it.
_NAME: Final = 100
_IS_ANOTHER: Final = "it changed meanwhile"
_YOURS_IS_ANOTHER: Final = "your file changed meanwhile"


@dataclass(frozen=True, slots=True)
class Kept:
    """A change that was kept; ``sha256`` is of the file's content, empty where it was deleted."""

    change: Change
    sha256: str


def keep(
    staged: Staged,
    paths: Collection[str],
    *,
    by: str,
    overwrite: bool = False,
    exactly: str = "",
) -> tuple[Kept, ...]:
    """Make the changes at or beneath ``paths``, or all, in the project; enter that in an audit log.

    That is one of its own, beside the session's, which is closed or its host's. ``by`` says who
    asks, and has the user's consent. With ``overwrite`` also in place of files that the user
    changed meanwhile; ``exactly`` is the token of what is kept and nothing else. Raises
    ChangesError, and has kept nothing.
    """
    chosen, place = staged.chosen(paths, overwrite=overwrite), staged.log
    if not chosen:
        return ()
    asked = finish(digests(staged, chosen)) if exactly else None
    if asked is not None and token(chosen, asked) != exactly:
        raise ChangesError("nothing was kept: it is not what was shown any more; look again")
    audit = Audit()
    if place is not None:
        log = Log(Path(place.folder), max_bytes=place.max_bytes, fsync=place.fsync)
        audit = Audit(log, required=place.required)
    try:
        if why := audit.approved(of_keeping(chosen, {}, paths), Decision(scope="once", why=by)):
            raise ChangesError(f"nothing was kept: {why}")
        kept = finish(steps(staged, chosen, asked))
        staged.kept.extend(kept)
        audit.kept(kept, staged.session, by)
    finally:
        audit.close()
    return kept


def token(changes: Sequence[Change], found: Mapping[str, str]) -> str:
    """Return what tells these changes, with the contents of these ``digests``, from all others."""
    return of_keeping(changes, found, ()).sha256[:16]


def write_out(staged: Staged, folder: Path) -> None:
    """Write staged files to a folder that is made anew, and what was deleted to a list beside it.

    What could not be kept is left out. Raises ChangesError, OSError.
    """
    chosen, gone = staged.chosen(overwrite=True), folder.with_suffix(".deleted.txt")
    roots = [root for root, _, _ in staged.layers]
    remove_tree(str(folder))
    gone.unlink(missing_ok=True)
    deleted = "".join(f"{one.name}\n" for one in chosen if one.kind == "deleted")
    if deleted:
        gone.parent.mkdir(parents=True, exist_ok=True)
        gone.write_text(deleted, "utf-8")
    for change in chosen:
        if change.kind == "deleted":
            continue
        folder.mkdir(parents=True, exist_ok=True)
        where = os.path.realpath(folder)
        below = f"{roots.index(change.root)}/{change.path}" if len(roots) > 1 else change.path
        with contextlib.ExitStack() as stack:
            at, name = enter(where, below, stack, [])
            new = stack.enter_context(closing(os.open(name, NEW, 0o666, dir_fd=at)))
            finish(_copy(staged, change, new))


def finish(work: Generator[None, None, T]) -> T:
    """Return what a generator returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            made: T = end.value
            return made


def digests(staged: Staged, changes: Sequence[Change]) -> Generator[None, None, dict[str, str]]:
    """Return the SHA-256 of each file that is to be kept, by name. Raises ChangesError."""
    found = dict[str, str]()
    for change in changes:
        if change.kind != "deleted":
            try:
                found[change.name] = yield from _copy(staged, change, None)
            except OSError as error:
                raise _nothing(change, error) from None
    return found


def steps(
    staged: Staged, changes: Sequence[Change], asked: Mapping[str, str] | None = None
) -> Generator[None, None, tuple[Kept, ...]]:
    """Make these changes in the project, all or none; then they are no longer staged.

    ``asked`` are digests of what is to be kept, and nothing else. Raises ChangesError where a file
    can't be written, or is no longer what was listed. Closed before its end, it keeps nothing.
    """
    keeping = _Keeping(staged, asked)
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(closing(os.open(f"{staged.folder}/lock", _LOCK, 0o600)))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            why = "another one is being kept of this session" if busy else error.strerror
            raise ChangesError(f"nothing was kept: {why}") from None
        return (yield from keeping.run(changes))


def _nothing(change: Change, error: OSError) -> ChangesError:
    what = visible(change.name)
    return ChangesError(f"nothing was kept: {what}: {error.strerror or error}")


def _copy(staged: Staged, change: Change, new: int | None) -> Generator[None, None, str]:
    """Return the SHA-256 of a staged file, copied to ``new`` if there is one. Raises OSError."""
    with contextlib.ExitStack() as stack:
        folder, name = enter(staged.upper(change.root), change.path, stack)
        source = stack.enter_context(os.fdopen(os.open(name, FILE, dir_fd=folder), "rb"))
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode) or state(found) != change.staged:
            raise OSError(errno.EBUSY, _IS_ANOTHER)
        target = None if new is None else stack.enter_context(open(new, "wb", closefd=False))
        digest, left = hashlib.sha256(), found.st_size
        while left and (part := source.read(min(left, _PART))):
            digest.update(part)
            if target is not None:
                target.write(part)
            left -= len(part)
            yield
        if left or state(os.fstat(source.fileno())) != change.staged:
            raise OSError(errno.EBUSY, _IS_ANOTHER)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Place:
    """A change, and the names beside its place: of the file to come, and of what was there."""

    change: Change
    coming: str
    was: str

    def in_folder(self, stack: contextlib.ExitStack) -> tuple[int, str]:
        """Open its folder, through no link. Raises OSError."""
        return enter(self.change.root, self.change.path, stack)


class _Keeping:
    """Keeps changes. No descriptor is held but for one file: there may be thousands."""

    def __init__(self, staged: Staged, asked: Mapping[str, str] | None) -> None:
        self._staged, self._asked = staged, asked
        self._token = os.urandom(4).hex()
        #: Folders that were made, what is prepared and what is in its place.
        self._made: list[tuple[str, str]] = []
        self._prepared: list[_Place] = []
        self._placed: list[_Place] = []
        self._replaced = set[str]()

    def run(self, changes: Sequence[Change]) -> Generator[None, None, tuple[Kept, ...]]:
        kept = list[Kept]()
        at = changes[0] if changes else None
        try:
            for at in changes:
                kept.append(Kept(at, (yield from self._prepare(at))))
            for place in self._prepared:
                at = place.change
                self._replace(place)
            at = None
            left = [replace(one.change, yours=self._left(one)) for one in self._placed]
            self._staged.settle(left)
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError) and at is not None:
                raise _nothing(at, error) from None
            if isinstance(error, OSError):
                raise ChangesError(f"nothing was kept: {error.strerror or error}") from None
            raise
        for place in self._placed:
            _unlink(place, place.was)
        return tuple(kept)

    def _prepare(self, change: Change) -> Generator[None, None, str]:
        """Write a new file beside its place; of one that is to be removed, find the place."""
        name = os.fsdecode(os.fsencode(change.path.rpartition("/")[2])[:_NAME])
        stem = f".{name}.{self._token}-{len(self._prepared)}"
        place = _Place(change, f"{stem}.keep", f"{stem}.was")
        with contextlib.ExitStack() as stack:
            made = None if change.kind == "deleted" else self._made
            folder, last = enter(change.root, change.path, stack, made)
            there = _check(change, folder, last)
            self._prepared.append(place)
            if change.kind == "deleted":
                return ""
            with closing(os.open(place.coming, NEW, 0o600, dir_fd=folder)) as new:
                digest = yield from _copy(self._staged, change, new)
                mode = 0o666 & ~umask() if there is None else stat.S_IMODE(there.st_mode)
                os.fchmod(new, mode & 0o777)
                os.fsync(new)
        if self._asked is not None and self._asked.get(change.name) != digest:
            raise OSError(errno.EBUSY, _IS_ANOTHER)
        return digest

    def _replace(self, place: _Place) -> None:
        """Put a file in its place, and what was there beside it until all are. Raises OSError."""
        with contextlib.ExitStack() as stack:
            folder, last = place.in_folder(stack)
            there = _check(place.change, folder, last)
            self._placed.append(place)
            if there is not None:
                os.rename(last, place.was, src_dir_fd=folder, dst_dir_fd=folder)
                moved = os.stat(place.was, dir_fd=folder, follow_symlinks=False)
                if not os.path.samestat(moved, there) or moved.st_mtime_ns != there.st_mtime_ns:
                    raise OSError(errno.EBUSY, _YOURS_IS_ANOTHER)
            if place.change.kind != "deleted":
                os.rename(place.coming, last, src_dir_fd=folder, dst_dir_fd=folder)
                self._replaced.add(place.coming)

    def _left(self, place: _Place) -> State:
        """Return what stands in a place now."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            folder, last = place.in_folder(stack)
            return state(os.stat(last, dir_fd=folder, follow_symlinks=False))
        return None

    def _take_back(self) -> None:
        """Have the project as it was."""
        for place in reversed(self._placed):
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                folder, last = place.in_folder(stack)
                try:
                    os.rename(place.was, last, src_dir_fd=folder, dst_dir_fd=folder)
                except FileNotFoundError:
                    if place.coming in self._replaced:
                        os.unlink(last, dir_fd=folder)
        for place in self._prepared:
            _unlink(place, place.coming)
        for root, path in reversed(self._made):
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                folder, last = enter(root, path, stack)
                os.rmdir(last, dir_fd=folder)


def _check(change: Change, folder: int, name: str) -> os.stat_result | None:
    """Return what the user has in a place. Raises OSError where that is not what was listed."""
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        there = None
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise OSError(errno.EEXIST, "something that is no file is there")
    if state(there) != change.yours:
        raise OSError(errno.EBUSY, _YOURS_IS_ANOTHER)
    return there


def _unlink(place: _Place, name: str) -> None:
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        folder, _ = place.in_folder(stack)
        os.unlink(name, dir_fd=folder)


def umask() -> int:
    """Return this process's umask, without setting it meanwhile for other threads (proc(5))."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o077)


#: Seconds for which the zygote of a kernel that was killed may still have a layer.
_PATIENCE: Final = 2.0
_NAMED: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was adopted, if anything was, the layers to lay, and what the user is told."""

    staged: Staged | None
    layers: tuple[Layer, ...]
    said: str = ""


def adopt(layers: tuple[Layer, ...], policy: Policy, names: Sequence[str]) -> Adopted:
    """Take over what an ended session staged whose kernel had one of ``names``, the first before.

    ``layers`` are those of a fresh start under ``policy``. While the descriptor of what is adopted
    is open, nobody else can.
    """
    own = Path(layers[0].folder).parent.name
    for one in _candidates(names, own):
        if (lock := one.take()) < 0:
            return Adopted(None, layers, _left(one, "another kernel of it runs"))
        _open_to_owner(one)
        if (why := _why_not(one, layers, policy)) is None:
            _remove_settled(one)
            if one.is_written_to() and not one.is_dropped():
                return _taken(replace(one, lock=lock), layers)
            remove_tree(one.folder)
        os.close(lock)
        if why is not None:
            return Adopted(None, layers, _left(one, why))
    return Adopted(None, layers)


def _candidates(names: Sequence[str], own: str) -> list[Staged]:
    """Return the sessions with one of these names, those with the first before, then the newest."""
    found = [one for one in changes.sessions() if one.id != own]
    each = [
        (min(map(names.index, known)), one) for one in found if (known := {*names} & {*one.names})
    ]
    return [one for _, one in sorted(each, key=lambda pair: (pair[0], -pair[1].began))]


def _left(one: Staged, why: str) -> str:
    where = f"in a terminal: cellblock changes list, cellblock changes keep {one.id}"
    return f"does not show cells what they wrote to your project before: {why}. It is there {where}"


def _taken(one: Staged, layers: tuple[Layer, ...]) -> Adopted:
    """Return the same layers over what was staged; what was hidden stays so."""
    new = tuple(
        msgspec.structs.replace(layer, folder=folder, hidden=outermost((*layer.hidden, *hidden)))
        for layer, (_, folder, hidden) in zip(layers, one.layers, strict=True)
    )
    for layer in new:
        _remove_masks(layer.folder)
    said = (
        "shows cells what they wrote to your project before and you have not kept: %changes lists "
        "it. To begin anew: %changes drop, and restart"
    )
    return Adopted(one, new, said)


def _remove_masks(folder: str) -> None:
    """Remove what hid denied paths in the session that has ended: each zygote makes its own."""
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if path.name not in (UPPER, WORK):
                remove_tree(str(path))


# --- whether it may be ----------------------------------------------------------------------------


def _why_not(one: Staged, layers: Sequence[Layer], policy: Policy) -> str | None:
    """Return why these layers can't be laid over what a session staged; None where they can."""
    folders = [f"{one.folder}/{number}" for number in range(len(layers))]
    places = [(layer.root, folder) for layer, folder in zip(layers, folders, strict=True)]
    inodes = tuple(identity(layer.root)[1] for layer in layers)
    if places != [(root, folder) for root, folder, _ in one.layers] or one.inodes != inodes:
        return "it was of another folder"
    if not _is_ours(one.folder, shut=True) or not all(map(_is_ours, _parts(folders))):
        return f"others than you could have changed {one.folder}"
    if any(map(_is_laid, folders)):
        return "its processes still run"
    try:
        if msgspec.to_builtins(policy.as_dict()) != one.asked:
            check_narrower(from_fields(dict(one.asked), file=one.policy), policy, file=policy.name)
    except PolicyError as error:
        return f"this policy allows more than the one that it was written under ({error.key})"
    return next(filter(None, map(_in_the_way, layers, one.layers)), None)


def _in_the_way(layer: Layer, before: tuple[str, str, tuple[str, ...]]) -> str:
    """Return what of a layer is denied now and was not, or is where Python imports from."""
    _, folder, hidden = before
    for path in layer.hidden:
        known = any(within(path, top) for top in hidden)
        *_, last = _way(folder, path)
        if not known and last is not None and not changes.is_whiteout(last.found):
            return f"it has {visible(path)}, which is denied now"
    for path in layer.fixed:
        if not all(each is None or each.shows_below for each in _way(folder, path)):
            return f"it has {visible(path)}, which Python imports from now"
    return ""


class _Step(NamedTuple):
    """A name that a layer has; whether it is a folder that shows what is in the one below."""

    found: os.stat_result
    shows_below: bool


def _way(folder: str, path: str) -> list[_Step | None]:
    """Return what a layer has of each name that leads to ``path``; the last is None without it."""
    steps = list[_Step | None]()
    with contextlib.ExitStack() as stack:
        at: int | None = open_unlinked(f"{folder}/{UPPER}", FOLDER)
        for name in path.split("/"):
            found = changes.status(at, name)
            inner = None
            if at is not None and found is not None and stat.S_ISDIR(found.st_mode):
                inner = stack.enter_context(closing(os.open(name, FOLDER, dir_fd=at)))
            shows = inner is not None and not changes.is_opaque(inner)
            steps.append(None if found is None else _Step(found, shows))
            at = inner
    return steps


def _parts(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from (folder, f"{folder}/{UPPER}", f"{folder}/{WORK}")


def _is_ours(folder: str, *, shut: bool = False) -> bool:
    """Whether this is a folder of this user's, through no link; and ``shut`` to all others.

    What lies in one that is shut nobody else reaches, whatever modes cells gave it.
    """
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            found = os.fstat(fd)
    except OSError:
        return False
    others = stat.S_IRWXG | stat.S_IRWXO if shut else 0
    return found.st_uid == os.geteuid() and not found.st_mode & others


def _open_to_owner(one: Staged) -> None:
    """Let the owner into what cells see as their root again: they may have given it any mode."""
    for _, folder, _ in one.layers:
        with (
            contextlib.suppress(OSError),
            closing(open_unlinked(f"{folder}/{UPPER}", _NAMED)) as fd,
        ):
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            Path(f"/proc/self/fd/{fd}").chmod(mode | stat.S_IRWXU)


def _is_laid(folder: str) -> bool:
    """Whether a zygote has a layer, after some patience too: two would spoil it (overlayfs.rst)."""
    try:
        with closing(open_unlinked(folder, FOLDER)) as fd:
            lock(fd, patience=_PATIENCE)
    except OSError:
        return True
    return False


# --- what was kept or dropped ---------------------------------------------------------------------


def _remove_settled(one: Staged) -> None:
    """Remove what was kept or dropped: cells see the project there, as the user has it."""
    for name, (_, staged) in one.settled().items():
        for root, folder, _ in one.layers:
            if not within(name, root) or staged is None:
                continue
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                at, last = changes.enter(
                    f"{folder}/{UPPER}", name[len(root.rstrip("/")) + 1 :], stack
                )
                found = os.stat(last, dir_fd=at, follow_symlinks=False)
                if changes.state(found) == staged and stat.S_ISDIR(found.st_mode):
                    remove_tree(f"/proc/self/fd/{at}/{last}")
                elif changes.state(found) == staged:
                    os.unlink(last, dir_fd=at)
