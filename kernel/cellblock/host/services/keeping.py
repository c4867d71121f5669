"""Keeping what a session staged: into the project, all or nothing.

Each new file is written beside its place first, and what was there stays until all of them are in
theirs. Nothing is followed, and no place is trusted to be what it was: a file of the user's that
changed since it was listed is left alone, as is a staged one that is not what was asked about.
Files are copied in short steps, between which a host's loop goes on.

What is checked, in this order, of a cell that says ``%changes keep``:

1. The cell says nothing else, and the policy allows the magic: ``host.session.session``
   (``Keeper.handles``). Its decision is on the audit log.
2. Something is staged, of which the policy in force denies nothing (``Views.listable``).
3. Each path names a change, of which something can be kept: ``keepable`` says why not. The user's
   file did not change since the session began, or the cell says ``--overwrite``
   (``Staged.chosen``).
4. There is somebody to ask, and one question has room for all of it (``Keeper._keep``).
5. The user is shown the changes with the digest of each file (``digests``), and says yes. The
   answer is on the audit log, or nothing is kept (``Audit.approved``).
6. Nothing else of this session is being kept (``steps``).
7. Each place is reached through no link and has what was listed (``_check``); the staged file is
   what was listed, does not change while it is copied (``_copy``), and has the digest that was
   asked about. All files are ready before the first is put in its place (``_prepare``).
8. Each place has what was listed once more, and no file that came meanwhile is replaced
   (``_replace``).

Programs, the command line and MCP have the user's consent before they call ``keep``, which begins
at 3, and has a ``token`` for the digests where somebody was shown them. JupyterLab's extension
begins at 6, with the digest of what it showed. It does checks 2 to 5 itself, on its own listing
(``jupyter.lab_changes``: ``Listing.note``, ``StagedChanges._agreed``), since the user saw only what
can be kept. What is added to 3 is added there, too. If a check fails from 6 on, what was done is
taken back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from cellblock.descriptors import (
    FILE,
    NEW,
    closing,
    remove_tree,
    status,
)
from cellblock.errors import ChangesError
from cellblock.host.audit.log import Log
from cellblock.host.audit.recorder import Audit
from cellblock.host.consent.approver import Decision
from cellblock.host.consent.request import of_keeping
from cellblock.host.services.changes import Change, Kept, Staged, enter, finish, state
from cellblock.host.sparse import end_file, read_parts, write_part
from cellblock.render.headings import Heading
from cellblock.render.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence

    from cellblock.host.reactor import Reactor
    from cellblock.host.services.changes import State


T = TypeVar("T")
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Bytes of a name that is part of the name beside it.
_NAME: Final = 100
_IS_ANOTHER: Final = "it changed meanwhile"
_YOURS_IS_ANOTHER: Final = "your file changed meanwhile"
#: What link(2) fails with on file systems that have no hard links, such as FAT.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


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
        raise ChangesError(f"{Heading.NOT_KEPT}it is not what was shown any more; look again")
    audit = Audit()
    if place is not None:
        log = Log(Path(place.folder), max_bytes=place.max_bytes, fsync=place.fsync)
        audit = Audit(log, required=place.required)
    try:
        if why := audit.approved(of_keeping(chosen, {}, paths), Decision(scope="once", why=by)):
            raise ChangesError(f"{Heading.NOT_KEPT}{why}")
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


class StepRunner:
    """Runs a generator in short steps of a loop, one at a time; ``seconds`` is a step's length."""

    def __init__(self, reactor: Reactor, seconds: float) -> None:
        self._reactor, self._seconds = reactor, seconds
        self._steps: Generator[None, None, Any] | None = None

    @property
    def runs(self) -> bool:
        """Whether one runs."""
        return self._steps is not None

    def run(
        self,
        steps: Generator[None, None, T],
        done: Callable[[T], None],
        failed: Callable[[str], None],
    ) -> None:
        """Begin one; ``done`` gets what it returns, ``failed`` why it could not."""
        self._steps = steps

        def go_on() -> None:
            if self._steps is not steps:
                return
            until = time.monotonic() + self._seconds
            try:
                while time.monotonic() < until:
                    next(steps)
            except StopIteration as end:
                self._steps = None
                done(end.value)
            except (ChangesError, OSError) as error:
                self._steps = None
                failed(str(error))
            else:
                self._reactor.call_later(0, go_on)

        go_on()

    def stop(self) -> None:
        """End what runs, which takes back what is not whole."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None


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
            raise ChangesError(f"{Heading.NOT_KEPT}{why}") from None
        return (yield from keeping.run(changes))


def _nothing(change: Change, error: OSError) -> ChangesError:
    what = visible(change.name)
    return ChangesError(f"{Heading.NOT_KEPT}{what}: {error.strerror or error}")


def _copy(staged: Staged, change: Change, new: int | None) -> Generator[None, None, str]:
    """Return the SHA-256 of a staged file, copied to ``new`` if there is one. Raises OSError.

    A copy has the holes of the staged file, so that it takes no more disk.
    """
    with contextlib.ExitStack() as stack:
        folder, name = enter(staged.upper(change.root), change.path, stack)
        source = stack.enter_context(closing(os.open(name, FILE, dir_fd=folder)))
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode) or state(found) != change.staged:
            raise OSError(errno.EBUSY, _IS_ANOTHER)
        digest, left = hashlib.sha256(), found.st_size
        for part in read_parts(source):
            left -= len(part.data)
            if left < 0:  # it grows, maybe without end
                break
            digest.update(part.data)
            if new is not None:
                write_part(new, part)
            yield
        if left or state(os.fstat(source)) != change.staged:
            raise OSError(errno.EBUSY, _IS_ANOTHER)
        if new is not None:
            end_file(new)
    return digest.hexdigest()


class _Place(Struct, frozen=True):
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
        #: The new files that are in their places, by the names that they had before.
        self._new: dict[str, os.stat_result] = {}

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
            self._staged.settle(left, {one.change.name: one.sha256 for one in kept})
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError) and at is not None:
                raise _nothing(at, error) from None
            if isinstance(error, OSError):
                raise ChangesError(f"{Heading.NOT_KEPT}{error.strerror or error}") from None
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
                new = os.stat(place.coming, dir_fd=folder, follow_symlinks=False)
                try:
                    _rename_to_free_name(folder, place.coming, last)
                except FileExistsError:
                    raise OSError(errno.EBUSY, _YOURS_IS_ANOTHER) from None
                self._new[place.coming] = new

    def _left(self, place: _Place) -> State:
        """Return what stands in a place now."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            folder, last = place.in_folder(stack)
            return state(os.stat(last, dir_fd=folder, follow_symlinks=False))
        return None

    def _take_back(self) -> None:
        """Restore the project, but for what the user saved meanwhile: that stays."""
        for place in reversed(self._placed):
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                folder, last = place.in_folder(stack)
                new, there = self._new.get(place.coming), status(folder, last)
                is_new = new is not None and there is not None and os.path.samestat(new, there)
                try:
                    if is_new:
                        os.rename(place.was, last, src_dir_fd=folder, dst_dir_fd=folder)
                    else:
                        _rename_to_free_name(folder, place.was, last)
                except FileNotFoundError:  # there was nothing
                    if is_new:
                        os.unlink(last, dir_fd=folder)
                except FileExistsError:  # the user saved it again
                    _unlink(place, place.was)
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


def _rename_to_free_name(folder: int, file: str, name: str) -> None:
    """Rename a file, but never over another. Raises OSError, FileExistsError where there is one.

    ``os.rename`` would replace what the user saved there after the last look. A new link does not.
    On file systems without links the moment between look and rename remains.
    """
    try:
        os.link(file, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if status(folder, name) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        os.rename(file, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(file, dir_fd=folder)


def _unlink(place: _Place, name: str) -> None:
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        folder, _ = place.in_folder(stack)
        os.unlink(name, dir_fd=folder)


def umask() -> int:
    """Return this process's umask, without setting it meanwhile for other threads (proc(5))."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o077)
