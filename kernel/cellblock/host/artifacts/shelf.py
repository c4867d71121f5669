"""The folder that artifacts are copied to: the user's, in which cells write nothing themselves.

What is there already, and was not put there by this session, is never written to: the copy gets
another name. So does a folder whose name a file has, be it a copy of this session's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cellblock.host.artifacts.kinds import LOOKED_AT, content_type
from cellblock.host.artifacts.names import harmless, numbered
from cellblock.policy.paths import open_unlinked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from cellblock.host.artifacts.search import Entry

#: Bytes that are copied before others have their turn.
BLOCK: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A pipe that was put there is not waited for, a terminal not taken.
_SOURCE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Names that are tried where others have theirs.
_MOST_NUMBERS: Final = 1_000
_State = tuple[int, int, int, int]


class Unfit(Exception):  # noqa: N818 - never leaves this package
    """A file is not copied; says why."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy: its name in the folder, which file it is and as it was left, and what is in it."""

    name: str
    state: _State
    size: int
    kind: str
    sha256: str


class Shelf:
    """``path`` is made when something is put there. ``most`` are bytes of one file, or None."""

    def __init__(self, path: str, most: int | None) -> None:
        self.path, self._most = path, most
        self._fd: int | None = None

    def close(self) -> None:
        """Let go of the folder; what is in it stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def put(
        self, entry: Entry, room: int | None, earlier: Copied | None
    ) -> Generator[None, None, Copied]:
        """Copy a file, block by block; return the copy.

        ``room`` are bytes that may be taken, ``earlier`` is the file's copy that this replaces.
        Raises Unfit, and OSError where the folder can't be written.
        """
        source = _opened(entry)
        try:
            self._check(os.fstat(source), room)
            wanted = harmless(entry.path)
            folder, above = self._folder_of(wanted if earlier is None else earlier.name)
            try:
                last, is_new = _free_name(folder, _last(wanted), earlier)
                copied = yield from self._put(source, folder, last, room, is_new=is_new)
                return replace(copied, name=f"{above}{last}")
            finally:
                os.close(folder)
        finally:
            os.close(source)

    def _check(self, status: os.stat_result, room: int | None) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Unfit("it is no regular file")
        if status.st_nlink != 1:
            raise Unfit("it has another name (a hard link)")
        self._check_size(status.st_size, room)

    def _check_size(self, size: int, room: int | None) -> None:
        if self._most is not None and size > self._most:
            raise Unfit(f"it is larger than {self._most:,} bytes (artifact_max_bytes)")
        if room is not None and size > room:
            raise Unfit(f"no more than {room:,} bytes are left (artifacts_max_bytes)")

    def _put(
        self, source: int, folder: int, last: str, room: int | None, *, is_new: bool
    ) -> Generator[None, None, Copied]:
        """Copy to the name ``last``; where that ``is_new``, and it fails, it is taken away."""
        part = f".cellblock-{secrets.token_hex(8)}.part"
        try:
            fd = os.open(part, _NEW, 0o666, dir_fd=folder)
            try:
                head, digest, size = yield from self._fill(source, fd, room)
            finally:
                os.close(fd)
            state = _state(folder, part)  # closed: only now has a file server said when
            os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            if is_new:
                os.unlink(last, dir_fd=folder)  # it was kept free by an empty file
            raise
        return Copied(last, state, size, content_type(head, last), digest)

    def _fill(
        self, source: int, target: int, room: int | None
    ) -> Generator[None, None, tuple[bytes, str, int]]:
        """Copy all there is, which may grow; return how it begins, its SHA-256 and its size."""
        digest, size, head = hashlib.sha256(), 0, b""
        while block := os.read(source, BLOCK):
            head = head or block[:LOOKED_AT]
            size += len(block)
            self._check_size(size, room)
            digest.update(block)
            left = memoryview(block)
            while left:
                left = left[os.write(target, left) :]
            yield
        return head, digest.hexdigest(), size

    def _folder_of(self, name: str) -> tuple[int, str]:
        """Open the folder that ``name`` is to be in, and make it; return it, and its path here.

        That is empty, or ends in a slash. Raises Unfit, and OSError, for links too.
        """
        if self._fd is None:
            os.makedirs(self.path, exist_ok=True)  # noqa: PTH103 - as all paths here
            self._fd = open_unlinked(self.path, _FOLDER)
        at, path = os.dup(self._fd), ""
        for part in name.split("/")[:-1]:
            try:
                below, found = _inner_folder(at, part)
            finally:
                os.close(at)
            at, path = below, f"{path}{found}/"
        return at, path


def _opened(entry: Entry) -> int:
    if not stat.S_ISREG(entry.status.st_mode):
        raise Unfit("it is a link" if stat.S_ISLNK(entry.status.st_mode) else "it is no file")
    try:
        return os.open(entry.name, _SOURCE, dir_fd=entry.folder)
    except OSError as exc:
        raise Unfit(f"it can't be read: {exc.strerror}") from None


def _inner_folder(folder: int, name: str) -> tuple[int, str]:
    """Open a folder by its name, or make it by that or the next that no file has.

    Raises Unfit, and OSError, for a link too: where that leads is the user's to say.
    """
    for free in _names(name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(free, dir_fd=folder)
        try:
            return os.open(free, _FOLDER, dir_fd=folder), free
        except NotADirectoryError:
            if stat.S_ISLNK(os.lstat(free, dir_fd=folder).st_mode):
                raise
    raise _taken()


def _free_name(folder: int, name: str, earlier: Copied | None) -> tuple[str, bool]:
    """Return a name that is ours, and whether it is that of a file that was just made.

    Else it is that of the copy to be replaced. Raises Unfit, OSError.
    """
    if earlier is not None and _is_there(folder, earlier):
        return _last(earlier.name), False
    for free in _names(name):
        try:
            fd = os.open(free, _NEW, 0o666, dir_fd=folder)
        except FileExistsError:
            continue
        os.close(fd)
        return free, True
    raise _taken()


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (numbered(name, number) for number in range(2, _MOST_NUMBERS))


def _taken() -> Unfit:
    return Unfit("a thousand others have its name")


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _is_there(folder: int, copy: Copied) -> bool:
    """Say whether a copy is still the file that was put there, and nobody has written to it."""
    try:
        return _state(folder, _last(copy.name)) == copy.state
    except OSError:
        return False


def _state(folder: int, name: str) -> _State:
    """Return what changes with the file and its contents; the number of one that is gone is free.

    The status' own time is left out: it changes with the name, too. Raises OSError.
    """
    status = os.lstat(name, dir_fd=folder)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
