"""Keeping: writes staged changes to the user's project, all of them or none.

Each new file is first written beside its place, as ``.NAME.….keep``. When all are ready, each of
the user's files is renamed to ``.NAME.….was`` and the new one takes its place. When all are in
place, the old files are removed. If anything fails, what was done is taken back.

No link is followed, and no place is trusted to have what it had before: a file of the user's that
changed since it was listed is left alone, and a staged file that is not the one that the user was
asked about is not kept. Files are copied in short steps (``steps`` is a generator), between which
the host's loop goes on.

The checks of a cell that says ``%changes keep``, in order:

1. The cell says nothing else, and the policy allows the magic: ``host.session.session``
   (``Keeper.handles``). The audit log has this decision.
2. Something is staged that the policy in force does not deny (``Views.listable``).
3. Each path names changes of which at least one can be kept (``keepable`` has the reasons against).
   The user did not change the file after the session began, or the cell says ``--overwrite``
   (``Staged.chosen``).
4. There is somebody to ask, and one question has room for all changes (``Keeper._keep``).
5. The user is shown the changes with the digest of each file (``digests``), and says yes. If the
   answer can't be written to the audit log, nothing is kept (``Audit.approved``).
6. No other changes of this session are being kept at the same time (``steps``).
7. Each place is reached through no link and has the file that was listed (``_check``). The staged
   file is the one that was listed, does not change while it is copied (``_copy``), and has the
   digest that the user was asked about. All files are ready before the first is put in its place
   (``_prepare``).
8. Each place still has the file that was listed, and no file that came meanwhile is replaced
   (``_replace``).

Programs, the command line and MCP have the user's consent before they call ``keep``. That begins at
3, and takes a ``token`` of the digests if somebody was shown them. JupyterLab's extension begins at
6, with the digests of what it showed. It does checks 2 to 5 itself, on its own listing
(``jupyter.lab_changes``: ``Listing.note``, ``StagedChanges._agreed``), since the user saw only
changes that can be kept. A check that is added to 3 must be added there, too.
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
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Bytes of a file's name that the names beside its place begin with.
_LONGEST_NAME: Final = 100
_CHANGED_MEANWHILE: Final = "it changed meanwhile"
_YOURS_CHANGED_MEANWHILE: Final = "your file changed meanwhile"
#: Errors of link(2) on file systems that have no hard links, such as FAT.
_NO_LINK_ERRNOS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def keep(
    staged: Staged,
    paths: Collection[str],
    *,
    by: str,
    overwrite: bool = False,
    exactly: str = "",
) -> tuple[Kept, ...]:
    """Keep the changes at or beneath ``paths``, or all, and write that to an audit log.

    The caller has the user's consent; ``by`` says for the audit log who asks. That log is a new
    one beside the session's, which is closed, or open in the session's host. With ``overwrite``,
    files that the user changed after the session began are replaced, too. ``exactly``, if given, is
    the token of the changes that the user was shown: no others are kept. Raises ChangesError, and
    has then kept nothing.
    """
    chosen = staged.chosen(paths, overwrite=overwrite)
    log_settings = staged.log
    if not chosen:
        return ()
    digests_shown = finish(digests(staged, chosen)) if exactly else None
    if digests_shown is not None and token(chosen, digests_shown) != exactly:
        raise ChangesError(f"{Heading.NOT_KEPT}the files changed after they were shown; look again")
    audit = Audit()
    if log_settings is not None:
        log = Log(
            Path(log_settings.folder), max_bytes=log_settings.max_bytes, fsync=log_settings.fsync
        )
        audit = Audit(log, required=log_settings.required)
    try:
        if why := audit.approved(of_keeping(chosen, {}, paths), Decision(scope="once", why=by)):
            raise ChangesError(f"{Heading.NOT_KEPT}{why}")
        kept_files = finish(steps(staged, chosen, digests_shown))
        staged.kept.extend(kept_files)
        audit.kept(kept_files, staged.session, by)
    finally:
        audit.close()
    return kept_files


def token(changes: Sequence[Change], digests_by_name: Mapping[str, str]) -> str:
    """Return a token of these changes and digests; any other changes have another token."""
    return of_keeping(changes, digests_by_name, ()).sha256[:16]


def write_out(staged: Staged, folder: Path) -> None:
    """Write staged files to ``folder``, replacing it, and the names of deleted ones to a file.

    That file is ``FOLDER.deleted.txt``. Changes that can't be kept are left out. Raises
    ChangesError, OSError.
    """
    chosen = staged.chosen(overwrite=True)
    deleted_list = folder.with_suffix(".deleted.txt")
    roots = [root for root, _, _ in staged.layers]
    remove_tree(str(folder))
    deleted_list.unlink(missing_ok=True)
    deleted = "".join(f"{change.name}\n" for change in chosen if change.kind == "deleted")
    if deleted:
        deleted_list.parent.mkdir(parents=True, exist_ok=True)
        deleted_list.write_text(deleted, "utf-8")
    for change in chosen:
        if change.kind == "deleted":
            continue
        folder.mkdir(parents=True, exist_ok=True)
        where = os.path.realpath(folder)
        below = f"{roots.index(change.root)}/{change.path}" if len(roots) > 1 else change.path
        with contextlib.ExitStack() as stack:
            folder_fd, name = enter(where, below, stack, [])
            new = stack.enter_context(closing(os.open(name, NEW, 0o666, dir_fd=folder_fd)))
            finish(_copy(staged, change, new))


class StepRunner:
    """A runner of one generator at a time, in turns of ``seconds`` of the host's loop."""

    def __init__(self, reactor: Reactor, seconds: float) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._steps: Generator[None, None, Any] | None = None

    @property
    def runs(self) -> bool:
        """Whether a generator is running."""
        return self._steps is not None

    def run(
        self,
        steps: Generator[None, None, T],
        done: Callable[[T], None],
        failed: Callable[[str], None],
    ) -> None:
        """Start a generator. Call ``done`` with what it returns, or ``failed`` with an error text.

        Its ChangesError and OSError count as failures.
        """
        self._steps = steps

        def go_on() -> None:
            if self._steps is not steps:  # stopped since this turn was scheduled
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
        """Stop the running generator, if any, by closing it: ``steps`` then takes its work back."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None


def digests(staged: Staged, changes: Sequence[Change]) -> Generator[None, None, dict[str, str]]:
    """Return the SHA-256 of each staged file, by name, in steps. Raises ChangesError."""
    digests_by_name = dict[str, str]()
    for change in changes:
        if change.kind != "deleted":
            try:
                digests_by_name[change.name] = yield from _copy(staged, change, None)
            except OSError as error:
                raise _not_kept(change, error) from None
    return digests_by_name


def steps(
    staged: Staged, changes: Sequence[Change], approved_digests: Mapping[str, str] | None = None
) -> Generator[None, None, tuple[Kept, ...]]:
    """Make these changes in the project, all or none, in steps, and mark them as settled.

    ``approved_digests`` are the digests that the user was asked about: a file with another is not
    kept. Raises ChangesError if a file can't be written or is no longer the one that was listed. A
    generator that is closed before its end has kept nothing.
    """
    keeping = _Keeping(staged, approved_digests)
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(
                closing(os.open(f"{staged.folder}/lock", _LOCK_FLAGS, 0o600))
            )
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            why = "other files of this session are being kept now" if busy else error.strerror
            raise ChangesError(f"{Heading.NOT_KEPT}{why}") from None
        return (yield from keeping.run(changes))


def _not_kept(change: Change, error: OSError) -> ChangesError:
    name = visible(change.name)
    return ChangesError(f"{Heading.NOT_KEPT}{name}: {error.strerror or error}")


def _copy(staged: Staged, change: Change, new: int | None) -> Generator[None, None, str]:
    """Copy a staged file to the descriptor ``new``, if given, and return its SHA-256.

    A copy has the holes of the staged file, so that it takes no more disk. Raises OSError, also if
    the file is not the one that was listed or changes while it is copied.
    """
    with contextlib.ExitStack() as stack:
        folder, name = enter(staged.upper(change.root), change.path, stack)
        source = stack.enter_context(closing(os.open(name, FILE, dir_fd=folder)))
        source_status = os.fstat(source)
        if not stat.S_ISREG(source_status.st_mode) or state(source_status) != change.staged:
            raise OSError(errno.EBUSY, _CHANGED_MEANWHILE)
        digest, bytes_left = hashlib.sha256(), source_status.st_size
        for part in read_parts(source):
            bytes_left -= len(part.data)
            if bytes_left < 0:  # the file grows, maybe without end
                break
            digest.update(part.data)
            if new is not None:
                write_part(new, part)
            yield
        if bytes_left or state(os.fstat(source)) != change.staged:
            raise OSError(errno.EBUSY, _CHANGED_MEANWHILE)
        if new is not None:
            end_file(new)
    return digest.hexdigest()


class _Place(Struct, frozen=True):
    """A change, and two names beside its place.

    ``coming`` is that of the new file until it is put there, ``was`` that of the user's file until
    all changes are made.
    """

    change: Change
    coming: str
    was: str

    def in_folder(self, stack: contextlib.ExitStack) -> tuple[int, str]:
        """Open the folder of its place, through no link. Raises OSError."""
        return enter(self.change.root, self.change.path, stack)


class _Keeping:
    """One run of keeping.

    Each step opens the folder that it needs and closes it again, since there may be thousands of
    files. The states of a place are::

        _prepare() --> prepared --> _replace() --> placed --> settled, and the old file removed
                          |                          |
                          +------ _take_back() <-----+  on any error, or when it is closed
    """

    def __init__(self, staged: Staged, approved_digests: Mapping[str, str] | None) -> None:
        self._staged = staged
        self._asked = approved_digests
        self._token = os.urandom(4).hex()
        #: What _take_back undoes: the root and path of each folder that was made, and the places
        #: that are prepared and placed.
        self._made: list[tuple[str, str]] = []
        self._prepared: list[_Place] = []
        self._placed: list[_Place] = []
        #: The status of each new file that is in its place, by the name that it had before. By it
        #: _take_back tells a new file from one that the user has saved over it.
        self._new: dict[str, os.stat_result] = {}

    def run(self, changes: Sequence[Change]) -> Generator[None, None, tuple[Kept, ...]]:
        """Keep these changes, in steps. Raises ChangesError."""
        kept_files = list[Kept]()
        #: The change that an error is about.
        current = changes[0] if changes else None
        try:
            for current in changes:
                kept_files.append(Kept(current, (yield from self._prepare(current))))
            for place in self._prepared:
                current = place.change
                self._replace(place)
            current = None
            settled = [replace(each.change, yours=self._state_now(each)) for each in self._placed]
            self._staged.settle(settled, {each.change.name: each.sha256 for each in kept_files})
        except BaseException as error:  # GeneratorExit too: the generator was closed
            self._take_back()
            if isinstance(error, OSError) and current is not None:
                raise _not_kept(current, error) from None
            if isinstance(error, OSError):
                raise ChangesError(f"{Heading.NOT_KEPT}{error.strerror or error}") from None
            raise
        for place in self._placed:
            _unlink(place, place.was)
        return tuple(kept_files)

    def _prepare(self, change: Change) -> Generator[None, None, str]:
        """Write a new file beside its place, and return its SHA-256.

        For a deletion only the place is checked, and the result is empty. Raises OSError.
        """
        name = os.fsdecode(os.fsencode(change.path.rpartition("/")[2])[:_LONGEST_NAME])
        stem = f".{name}.{self._token}-{len(self._prepared)}"
        place = _Place(change, f"{stem}.keep", f"{stem}.was")
        with contextlib.ExitStack() as stack:
            made_folders = None if change.kind == "deleted" else self._made
            folder, last = enter(change.root, change.path, stack, made_folders)
            yours = _check(change, folder, last)
            self._prepared.append(place)
            if change.kind == "deleted":
                return ""
            with closing(os.open(place.coming, NEW, 0o600, dir_fd=folder)) as new:
                digest = yield from _copy(self._staged, change, new)
                # The user's own mode, or that of any new file: cells chose that of the staged one.
                mode = 0o666 & ~umask() if yours is None else stat.S_IMODE(yours.st_mode)
                os.fchmod(new, mode & 0o777)
                # Kept means on disk; the layer itself is mounted volatile (ADR 0032).
                os.fsync(new)
        if self._asked is not None and self._asked.get(change.name) != digest:
            raise OSError(errno.EBUSY, _CHANGED_MEANWHILE)
        return digest

    def _replace(self, place: _Place) -> None:
        """Move the user's file aside, and the new one into its place. Raises OSError.

        The user's file stays beside its place until all changes are made.
        """
        with contextlib.ExitStack() as stack:
            folder, last = place.in_folder(stack)
            yours = _check(place.change, folder, last)
            self._placed.append(place)
            if yours is not None:
                os.rename(last, place.was, src_dir_fd=folder, dst_dir_fd=folder)
                # The user may have saved the file again between _check and the rename.
                moved = os.stat(place.was, dir_fd=folder, follow_symlinks=False)
                if not os.path.samestat(moved, yours) or moved.st_mtime_ns != yours.st_mtime_ns:
                    raise OSError(errno.EBUSY, _YOURS_CHANGED_MEANWHILE)
            if place.change.kind != "deleted":
                new = os.stat(place.coming, dir_fd=folder, follow_symlinks=False)
                try:
                    _rename_to_free_name(folder, place.coming, last)
                except FileExistsError:
                    raise OSError(errno.EBUSY, _YOURS_CHANGED_MEANWHILE) from None
                self._new[place.coming] = new

    def _state_now(self, place: _Place) -> State:
        """Return the state of the file that is in a place now."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            folder, last = place.in_folder(stack)
            return state(os.stat(last, dir_fd=folder, follow_symlinks=False))
        return None

    def _take_back(self) -> None:
        """Restore the project. A file that the user has saved in a place meanwhile stays."""
        for place in reversed(self._placed):
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                folder, last = place.in_folder(stack)
                new, yours = self._new.get(place.coming), status(folder, last)
                is_new = new is not None and yours is not None and os.path.samestat(new, yours)
                try:
                    if is_new:
                        os.rename(place.was, last, src_dir_fd=folder, dst_dir_fd=folder)
                    else:
                        _rename_to_free_name(folder, place.was, last)
                except FileNotFoundError:  # the user had no file there
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
    """Return the status of the user's file in a place, or None.

    Raises OSError if it is not the one that was listed.
    """
    try:
        yours = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        yours = None
    if yours is not None and not stat.S_ISREG(yours.st_mode):
        raise OSError(errno.EEXIST, "something that is not a file is there")
    if state(yours) != change.yours:
        raise OSError(errno.EBUSY, _YOURS_CHANGED_MEANWHILE)
    return yours


def _rename_to_free_name(folder: int, file: str, name: str) -> None:
    """Rename a file, but never over another. Raises OSError; FileExistsError if the name is taken.

    ``os.rename`` would replace a file that the user saved there after the last check. Making a new
    link does not. On file systems without links, the moment between check and rename remains.
    """
    try:
        os.link(file, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
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
    """Return this process's umask.

    From /proc (proc(5)): umask(2) can only be read by setting it, for all threads.
    """
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o077)
