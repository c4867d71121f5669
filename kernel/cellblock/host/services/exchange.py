"""Files that a program exchanges with a sandbox's cells: upload, download, listing.

A file is named as a cell would name it: relative to the folder that cells run in, or below ``~``,
the scratch folder. If writes to that folder are staged, the host opens it as cells see it, with
what they wrote over what the user has. A file that is put there is then staged, too, and the user's
own files stay as they are (P11).

A guest may write in these folders while the host opens files in them. So the host opens each part
of a name in the folder before it, following no link, and judges the descriptor that it opened
(P13).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from cellblock.descriptors import FILE, FOLDER, NEW, closing
from cellblock.errors import ExchangeError
from cellblock.host.sparse import PART, Part, end_file, read_parts, write_part
from cellblock.policy.paths import open_named, within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from cellblock.wire.messages import Prepare

    #: What is put into a folder: the path of a file, its content, or a file that is open.
    Source = str | Path | bytes | bytearray | memoryview | IO[bytes]

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Doesn't wait for a named pipe, or for a lease of another process.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_PARTS: Final = 32
#: The name of a fork's scratch folder, which is in the scratch folder of the forked sandbox.
FORK_FOLDER: Final = ".fork-{}"
_FORK_FOLDER: Final = re.compile(FORK_FOLDER.replace(".", r"\.").format("[0-9a-f]{32}"))
#: Entries of all folders that one listing looks at.
MOST_ENTRIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class File:
    """A file of cells: its name, as a cell would open it, and its size in bytes.

    ``changed`` says whether cells made or changed it.
    """

    name: str
    size: int
    changed: bool


#: A file's size and times, of which one differs after a write. A cell can set the first time
#: (mtime), not the second (ctime).
Stamp = tuple[int, int, int]


def stamp(file_status: os.stat_result) -> Stamp:
    """Return the stamp of a file's status, which differs after the file has been written to."""
    return file_status.st_size, file_status.st_mtime_ns, file_status.st_ctime_ns


@dataclass(frozen=True, slots=True)
class Put:
    """A file that was put into a folder of cells: its stamp, and the digest of its content.

    If the stamp differs, the file was written to. If it is the same, the file may still have been
    written to: cells may have mapped it, and only the first write to a page of a mapping changes
    the times (mmap(2)). Then the digest decides.
    """

    stamp: Stamp
    digest: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """The place that a name means: a folder of cells, and the parts of the name beneath it."""

    root: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the absolute path that cells know the place by."""
        return "/".join((self.root, *self.parts))


class CellFolder:
    """The folder that cells run in, and their scratch folder, which is ``~`` to them.

    ``prepare`` comes from the policy in force. ``open_folder`` opens a folder as cells see it;
    ``seen_folders`` are the folders that look different to cells than to the host.
    """

    def __init__(
        self, prepare: Prepare, seen_folders: Iterable[str], open_folder: Callable[[str], int]
    ) -> None:
        plan = prepare.plan
        self.begins_in = prepare.cwd
        self._scratch = prepare.scratch
        self._open_folder = open_folder
        #: Folders where the host may write, since none of the files that change are the user's:
        #: scratch, and folders whose writes are staged.
        self._own = (prepare.scratch, *plan.staged_roots)
        readable = (*self._own, *plan.read_roots, *plan.write_roots)
        #: Folders that may have files of cells, without what a narrower policy has made unreadable
        #: for them.
        self._roots = set(_common((*self._own, *plan.write_roots, *seen_folders), readable))

    def place(self, name: str) -> Place:
        """Return the place that a name means.

        Raises ExchangeError for a name that leads out of both folders, or into a fork's scratch
        folder.
        """
        root, path = self.begins_in, name
        if name == "~" or name.startswith("~/"):
            root, path = self._scratch, name[1:]
        elif name.startswith("/"):
            roots = [folder for folder in (self.begins_in, self._scratch) if within(name, folder)]
            root = max(roots, key=len, default="")
            path = name[len(root) :] if root else ".."
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        is_forks = root == self._scratch and parts and _FORK_FOLDER.fullmatch(parts[0])
        if is_forks or ".." in parts or not _is_name(name) or len(parts) > _MOST_PARTS:
            where = f"name one beneath {self.begins_in}, without .."
            raise ExchangeError(f"{name!r} is not a file of the sandbox: {where}")
        return self._placed(Place(root, parts))

    def _placed(self, place: Place) -> Place:
        """Return the same place, beginning at the innermost folder that cells see differently.

        Reached from a folder above, it would show what the user has there, not what cells see.
        """
        roots = (root for root in self._roots if within(place.path, root))
        root = max(roots, key=len, default=place.root)
        path = place.path[len(root) :]
        return Place(root, tuple(part for part in path.split("/") if part))

    def listed(self, place: Place) -> Iterator[tuple[str, int, frozenset[str]]]:
        """Yield each folder to list for a place: its path, a descriptor, and folders to skip in it.

        A folder that cells see differently than the host is yielded by itself, and skipped in the
        folders around it. Raises ExchangeError if cells can have no files at the place.
        """
        inner = sorted(
            root for root in self._roots if root != place.path and within(root, place.path)
        )
        outer = [place.path] if not inner or place.root in self._roots else []
        for folder in (*outer, *inner):
            below = (root for root in inner if root != folder and within(root, folder))
            skipped = frozenset(root[len(folder) + 1 :] for root in below)
            try:
                yield folder, self.open(Place(folder, ())), skipped
            except ExchangeError:
                if folder == place.path:
                    raise  # an inner one may be a file, or may not exist

    def name(self, path: str) -> str:
        """Return the name by which a cell opens this path, relative if it is where cells run."""
        return path[len(self.begins_in) + 1 :] if within(path, self.begins_in) else path

    def open(self, place: Place, *, to_write: bool = False) -> int:
        """Return a descriptor of the folder that a place begins in.

        Raises ExchangeError for a place where cells can have no files: the program can open the
        user's files itself. With ``to_write``, also raises it for a place where cells write to the
        user's own files: in the host, only ``keep`` changes those.
        """
        if not any(within(place.path, root) for root in (self._own if to_write else self._roots)):
            problem = (
                "can't be written to: it is not staged"
                if to_write
                else "is not a file that cells have"
            )
            own = "/".join(("~", *place.parts))
            raise ExchangeError(
                f"{place.path} {problem}. The sandbox's own folder is ~, as in {own}"
            )
        try:
            return self._open_folder(place.root)
        except OSError as exc:
            raise ExchangeError(f"{place.root} can't be opened: {exc.strerror}") from None


def _common(folders: Iterable[str], other_folders: Sequence[str]) -> Iterator[str]:
    """Yield the parts of each folder that are also in one of the others."""
    for folder in folders:
        for other_folder in other_folders:
            if within(folder, other_folder):
                yield folder
            elif within(other_folder, folder):
                yield other_folder


def _is_name(text: str) -> bool:
    """Return whether the OS kernel could have a file of this name."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def put(
    folder: int, place: Place, source: Source, most: int | None, written: Sequence[str] = ()
) -> Put:
    """Copy ``source`` to a place in ``folder``, and return the stamp and digest of the copy.

    Closes the descriptor ``folder``. A file or link that has the name is replaced as a whole. The
    path of a source may have no links in folders that cells have ``written`` to. Raises
    ExchangeError for more than ``most`` bytes, OSError for a source that can't be read, TypeError
    for one that does not give bytes.
    """
    name = "/".join(place.parts)
    with (
        _parent(folder, place, make=True) as (above, last),
        _parts_of(source, written) as content_and_size,
    ):
        parts, size = content_and_size
        _check_size(name, size, most, "scratch_max_bytes")
        unfinished = f".{secrets.token_hex(16)}"
        with _errors(name):
            new_fd = os.open(unfinished, _MAKE_FLAGS, 0o644, dir_fd=above)
        try:
            with closing(new_fd), _errors(name):
                content = hashlib.blake2b()
                _copy(_hashed(parts, content), new_fd, name, most, "scratch_max_bytes")
                os.rename(unfinished, last, src_dir_fd=above, dst_dir_fd=above)
                status = os.stat(last, dir_fd=above, follow_symlinks=False)
                return Put(stamp(status), content.digest())
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=above)
            raise


def is_as_put(folder: int, name: str, expected: Put) -> bool:
    """Return whether a file beneath ``folder`` still has the stamp and content of ``expected``.

    The descriptor ``folder`` stays open.
    """
    place = Place("", tuple(name.split("/")))
    with (
        suppress(ExchangeError, OSError),
        _opened(os.dup(folder), place, expected.stamp[0]) as opened,
    ):
        file = opened[0]
        if stamp(os.fstat(file)) != expected.stamp:
            return False
        content = hashlib.blake2b()
        for _ in _hashed(read_parts(file), content):
            pass
        return content.digest() == expected.digest and stamp(os.fstat(file)) == expected.stamp
    return False


def _hashed(parts: Iterator[Part], content: hashlib.blake2b) -> Iterator[Part]:
    for part in parts:
        content.update(part.data)
        yield part


def take(
    folder: int, place: Place, target: str | Path, most: int, written: Sequence[str] = ()
) -> None:
    """Copy the file at a place in ``folder`` to ``target``, which is replaced when all is copied.

    Closes the descriptor ``folder``. The path of ``target`` may have no links in folders that cells
    have ``written`` to. Raises ExchangeError unless the place has a file of up to ``most`` bytes,
    OSError for a target that can't be written.
    """
    with _opened(folder, place, most) as (opened, name):
        target = Path(target)
        unfinished = f".{secrets.token_hex(16)}"
        with closing(open_named(target.parent, written, FOLDER)) as above:
            copy = os.open(unfinished, NEW, 0o666, dir_fd=above)
            try:
                with closing(copy):
                    _copy(read_parts(opened), copy, name, most, "max_bytes")
                os.rename(unfinished, target.name, src_dir_fd=above, dst_dir_fd=above)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=above)
                raise


def read(folder: int, place: Place, most: int) -> bytes:
    """Return the content of the file at a place in ``folder``.

    Closes the descriptor ``folder``. Raises ExchangeError unless the place has a file of up to
    ``most`` bytes.
    """
    with _opened(folder, place, most) as (opened, name):
        content = bytearray()
        for part in read_parts(opened):
            content += part.data
            _check_size(name, len(content), most, "max_bytes")
        return bytes(content)


def walk(folder: int, skipped: Collection[str] = frozenset()) -> list[tuple[str, os.stat_result]]:
    """Return the name and status of each file beneath ``folder``, sorted by name.

    Closes the descriptor ``folder``. Leaves out folders that are ``skipped``, links, and names that
    begin with a dot, as ls(1) does: they are settings and caches of libraries. Raises ExchangeError
    for more than ``MOST_ENTRIES`` entries, or folders that are nested too deep.
    """
    files = list[tuple[str, os.stat_result]]()
    with closing(folder):
        _walk(folder, (), skipped, files, MOST_ENTRIES)
    return files


def find(folder: int, names: Iterable[str]) -> list[tuple[str, os.stat_result]]:
    """Return the name and status of each of these files that exists beneath ``folder``.

    Closes the descriptor ``folder``.
    """
    files = list[tuple[str, os.stat_result]]()
    with closing(folder):
        _find(folder, "", [name.split("/") for name in sorted(names)], files)
    return files


def _find(
    folder: int, prefix: str, names: list[list[str]], files: list[tuple[str, os.stat_result]]
) -> None:
    """Add to ``files`` the named files that exist in a folder. Opens each folder once."""
    for first, group in groupby(names, itemgetter(0)):
        # A name may be both a file's and, in a longer one, a folder's, since a cell may have
        # replaced one by the other. Then only the longer ones are looked for.
        below = [rest for _, *rest in group if rest]
        with suppress(OSError):  # the file is gone, or the folder can't be entered
            if not below:
                status = os.stat(first, dir_fd=folder, follow_symlinks=False)
                if _is_file(status):
                    files.append((prefix + first, status))
                continue
            with closing(os.open(first, _FOLDER_FLAGS, dir_fd=folder)) as inner:
                _find(inner, f"{prefix}{first}/", below, files)


def _walk(
    folder: int,
    path: tuple[str, ...],
    skipped: Collection[str],
    files: list[tuple[str, os.stat_result]],
    entries_left: int,
) -> int:
    """Add the files beneath a folder to ``files``. Return how many of ``entries_left`` remain."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, entries_left + 1))
    entries_left -= len(names)
    if entries_left < 0 or len(path) >= _MOST_PARTS:
        excess = f"more than {MOST_ENTRIES:,} entries, or {_MOST_PARTS} folders in one another"
        raise ExchangeError(f"{'/'.join(path) or 'the folder'} has {excess}: name a folder in it")
    for name in names:
        if name.startswith("."):
            continue
        with suppress(OSError):  # the file is gone, or the folder can't be entered
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _is_file(status):
                files.append(("/".join((*path, name)), status))
            elif stat.S_ISDIR(status.st_mode) and "/".join((*path, name)) not in skipped:
                with closing(os.open(name, _FOLDER_FLAGS, dir_fd=folder)) as below:
                    entries_left = _walk(below, (*path, name), skipped, files, entries_left)
    return entries_left


@contextmanager
def _parent(folder: int, place: Place, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that a place is in, and its last part. Closes ``folder``.

    ``make``: missing folders are made.
    """
    try:
        if not place.parts:
            raise ExchangeError(f"{place.root} is not a file: name one in it")
        *above, last = place.parts
        for part in above:
            with _errors("/".join(place.parts)):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, last
    finally:
        os.close(folder)


@contextmanager
def _opened(folder: int, place: Place, most: int) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the file at a place, and its name. Closes ``folder``.

    Raises ExchangeError unless it is a regular file of up to ``most`` bytes, with one name: another
    name (a hard link) may be that of a file outside of the cells' folders.
    """
    name = "/".join(place.parts)
    with _parent(folder, place) as (above, last):
        with _errors(name):
            opened = os.open(last, _READ_FLAGS, dir_fd=above)
        with closing(opened):
            file_status = os.fstat(opened)
            if stat.S_ISREG(file_status.st_mode) and not _is_file(file_status):
                raise ExchangeError(f"{name} in the sandbox: {os.strerror(errno.EACCES)}")
            _check_regular(name, file_status)
            _check_size(name, file_status.st_size, most, "max_bytes")
            if file_status.st_nlink != 1:
                raise ExchangeError(f"{name} has another name (a hard link); have a cell copy it")
            yield opened, name


@contextmanager
def _parts_of(source: Source, written: Sequence[str]) -> Iterator[tuple[Iterator[Part], int]]:
    """Yield the content of a source in parts, and its size in bytes, 0 if it isn't known yet."""
    if isinstance(source, bytes | bytearray | memoryview):
        content = bytes(source)
        yield iter([Part(content, is_hole=False)]), len(content)
    elif isinstance(source, str | os.PathLike):
        with closing(open_named(source, written, FILE)) as file:
            file_status = os.fstat(file)
            _check_regular(str(source), file_status)
            yield read_parts(file), file_status.st_size
    else:
        yield _read_file(source), 0


def _read_file(file: IO[bytes]) -> Iterator[Part]:
    """Yield the rest of an open file. Raises TypeError for one that does not give bytes."""
    while data := file.read(PART):
        if not isinstance(data, bytes | bytearray | memoryview):
            problem = f"the file gives {type(data).__name__}, not bytes: open it with mode 'rb'"
            raise TypeError(problem)
        yield Part(bytes(data), is_hole=False)


def _is_file(file_status: os.stat_result) -> bool:
    """Return whether this is a regular file that its mode lets somebody open.

    A file with mode 0 covers a path that a narrower policy denies. Root could open it, and would
    take the denied file for an empty one.
    """
    return stat.S_ISREG(file_status.st_mode) and stat.S_IMODE(file_status.st_mode) != 0


def _check_regular(name: str, file_status: os.stat_result) -> None:
    if not stat.S_ISREG(file_status.st_mode):
        raise ExchangeError(f"{name} is not a regular file: pack folders into one")


def _check_size(name: str, size: int, most: int | None, limit: str) -> None:
    if most is not None and size > most:
        raise ExchangeError(f"{name} has {size:,} bytes; {limit} is {most:,}")


def _copy(parts: Iterator[Part], copy: int, name: str, most: int | None, limit: str) -> None:
    """Copy parts to the descriptor ``copy``, keeping holes.

    The size is checked at each part, since a file may grow while it is read.
    """
    size = 0
    for part in parts:
        size += len(part.data)
        _check_size(name, size, most, limit)
        write_part(copy, part)
    end_file(copy)


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Raise an OSError that comes up in a folder of cells as an ExchangeError."""
    try:
        yield
    except OSError as exc:
        raise ExchangeError(f"{name} in the sandbox: {exc.strerror}") from None
