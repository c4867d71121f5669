"""Files that a program exchanges with cells, by the names that cells use.

A name means the file that a cell would open by it: it begins in the folder where cells begin. Where
what cells write there is staged, the host has that folder as they see it: what they wrote over what
the user has. What is put there is staged, too, and the user's own files stay as they are (P11).

A guest writes in these folders while the host opens things in them. So each part of a name is
opened in the folder before it, through no link, and what was opened is what is looked at (P13).
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

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: A named pipe, or a lease of another process, is not waited for.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_PARTS: Final = 32
#: What the folder of a fork is called, in the scratch folder of what that is a fork of.
FORK_FOLDER: Final = ".fork-{}"
_FORK_FOLDER: Final = re.compile(FORK_FOLDER.replace(".", r"\.").format("[0-9a-f]{32}"))
#: Entries of folders that one listing looks at.
MOST_ENTRIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class File:
    """A file where cells begin: its name, as a cell would open it, and its bytes.

    ``changed`` says that cells made it or changed it.
    """

    name: str
    size: int
    changed: bool


#: What changes when a file is written to; a cell can set the second, and not the third.
Stamp = tuple[int, int, int]


def stamp(found: os.stat_result) -> Stamp:
    """Return what tells whether a file was written to since."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True, slots=True)
class Put:
    """A file that was put into a folder of cells, who may have written to it before it stood there.

    Another stamp says that it was written to. The same one says nothing: cells may have mapped the
    file, and only the first write to a page of a mapping changes the times (mmap(2)).
    """

    stamp: Stamp
    digest: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name leads: a folder that cells have, and the rest of the name beneath it."""

    root: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the whole path, as cells have it."""
        return "/".join((self.root, *self.parts))


class CellFolder:
    """The folder where cells begin; and their scratch folder, which is ``~`` to them.

    ``prepare`` is of the policy in force. ``open_folder`` opens a folder as cells see it; ``seen``
    are those in which that is more than what the host sees.
    """

    def __init__(
        self, prepare: Prepare, seen: Iterable[str], open_folder: Callable[[str], int]
    ) -> None:
        plan = prepare.plan
        self.begins_in, self._scratch = prepare.cwd, prepare.scratch
        self._open_folder = open_folder
        #: Where nothing is the user's that the host writes: in scratch, and where it is staged.
        self._own = (prepare.scratch, *plan.staged_roots)
        readable = (*self._own, *plan.read_roots, *plan.write_roots)
        #: Where files may be cells', as far as cells may read them by now.
        self._roots = set(_common((*self._own, *plan.write_roots, *seen), readable))

    def place(self, name: str) -> Place:
        """Return where a name leads. Raises ExchangeError for one that leads out of the folders."""
        root, path = self.begins_in, name
        if name == "~" or name.startswith("~/"):
            root, path = self._scratch, name[1:]
        elif name.startswith("/"):
            roots = [one for one in (self.begins_in, self._scratch) if within(name, one)]
            root = max(roots, key=len, default="")
            path = name[len(root) :] if root else ".."
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        is_forks = root == self._scratch and parts and _FORK_FOLDER.fullmatch(parts[0])
        if is_forks or ".." in parts or not _is_name(name) or len(parts) > _MOST_PARTS:
            where = f"name one beneath {self.begins_in}, without .."
            raise ExchangeError(f"{name!r} is no file of the sandbox: {where}")
        return self._placed(Place(root, parts))

    def _placed(self, place: Place) -> Place:
        """Return the same place in the innermost folder that cells have otherwise than the host.

        Whoever comes there from above would see what the user has there.
        """
        roots = (root for root in self._roots if within(place.path, root))
        root = max(roots, key=len, default=place.root)
        path = place.path[len(root) :]
        return Place(root, tuple(part for part in path.split("/") if part))

    def listed(self, place: Place) -> Iterator[tuple[str, int, frozenset[str]]]:
        """Yield each folder to list for a place, open, with the names in it of those to skip.

        Those are listed by themselves: cells have them otherwise than the folder around them.
        Raises ExchangeError where cells have nothing.
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
                    raise  # else it is a file, or is not there

    def name(self, path: str) -> str:
        """Return the name by which a cell opens this path: from where cells begin, if it can."""
        return path[len(self.begins_in) + 1 :] if within(path, self.begins_in) else path

    def open(self, place: Place, *, to_write: bool = False) -> int:
        """Return a descriptor of the folder that a place begins in. Raises ExchangeError.

        Only where files may be cells': all others the user opens without this. And where cells
        write to the user's files as they are, the host writes nothing: those are for ``keep``.
        """
        if not any(within(place.path, root) for root in (self._own if to_write else self._roots)):
            what = "can't be written to: it is not staged" if to_write else "is no file of cells"
            own = "/".join(("~", *place.parts))
            raise ExchangeError(f"{place.path} {what}. The sandbox's own folder is ~, as in {own}")
        try:
            return self._open_folder(place.root)
        except OSError as exc:
            raise ExchangeError(f"{place.root} can't be opened: {exc.strerror}") from None


def _common(folders: Iterable[str], others: Sequence[str]) -> Iterator[str]:
    """Yield what of each of the folders is in one of the others, too."""
    for folder in folders:
        for other in others:
            if within(folder, other):
                yield folder
            elif within(other, folder):
                yield other


def _is_name(text: str) -> bool:
    """Return whether the OS kernel could have a file of this name."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def put(
    folder: int, place: Place, source: Source, most: int | None, written: Sequence[str] = ()
) -> Put:
    """Copy ``source`` to a place in ``folder``, which is closed; return what tells the copy.

    What has that name, a link too, is replaced as a whole. No link in folders that are ``written``
    to leads to a source. Raises ExchangeError for more than
    ``most`` bytes, OSError for a ``source`` that can't be read, TypeError for one that is no bytes.
    """
    name = "/".join(place.parts)
    with _parent(folder, place, make=True) as (above, last), _parts_of(source, written) as found:
        parts, size = found
        _check_size(name, size, most, "scratch_max_bytes")
        unfinished = f".{secrets.token_hex(16)}"
        with _errors(name):
            made = os.open(unfinished, _MAKE, 0o644, dir_fd=above)
        try:
            with closing(made), _errors(name):
                content = hashlib.blake2b()
                _copy(_hashed(parts, content), made, name, most, "scratch_max_bytes")
                os.rename(unfinished, last, src_dir_fd=above, dst_dir_fd=above)
                status = os.stat(last, dir_fd=above, follow_symlinks=False)
                return Put(stamp(status), content.digest())
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=above)
            raise


def is_as_put(folder: int, name: str, put: Put) -> bool:
    """Return whether a file beneath ``folder``, which stays open, is as it was put there."""
    place = Place("", tuple(name.split("/")))
    with suppress(ExchangeError, OSError), _opened(os.dup(folder), place, put.stamp[0]) as opened:
        file = opened[0]
        if stamp(os.fstat(file)) != put.stamp:
            return False
        content = hashlib.blake2b()
        for _ in _hashed(read_parts(file), content):
            pass
        return content.digest() == put.digest and stamp(os.fstat(file)) == put.stamp
    return False


def _hashed(parts: Iterator[Part], content: hashlib.blake2b) -> Iterator[Part]:
    for part in parts:
        content.update(part.data)
        yield part


def take(
    folder: int, place: Place, target: str | Path, most: int, written: Sequence[str] = ()
) -> None:
    """Copy the file at a place in ``folder``, which is closed, to ``target``.

    Raises ExchangeError for what is no file of up to ``most`` bytes, OSError for a ``target`` that
    can't be written. What was there before is replaced once all is copied. No link in folders that
    are ``written`` to leads to where that is.
    """
    with _opened(folder, place, most) as (opened, name):
        target, unfinished = Path(target), f".{secrets.token_hex(16)}"
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
    """Return the content of the file at a place in ``folder``, which is closed.

    Raises ExchangeError for what is no file of up to ``most`` bytes.
    """
    with _opened(folder, place, most) as (opened, name):
        found = bytearray()
        for part in read_parts(opened):
            found += part.data
            _check_size(name, len(found), most, "max_bytes")
        return bytes(found)


def walk(folder: int, skipped: Collection[str] = frozenset()) -> list[tuple[str, os.stat_result]]:
    """Return each file beneath ``folder``, which is closed: name and status, in order.

    Left out are folders of these names, links, and what begins with a dot, as ls(1) does: settings
    and caches of libraries. Raises ExchangeError for more than ``MOST_ENTRIES`` entries, or folders
    too deep.
    """
    found = list[tuple[str, os.stat_result]]()
    with closing(folder):
        _walk(folder, (), skipped, found, MOST_ENTRIES)
    return found


def find(folder: int, names: Iterable[str]) -> list[tuple[str, os.stat_result]]:
    """Return those files of these names that are beneath ``folder``, which is closed."""
    found = list[tuple[str, os.stat_result]]()
    with closing(folder):
        _find(folder, "", [name.split("/") for name in sorted(names)], found)
    return found


def _find(
    folder: int, prefix: str, names: list[list[str]], found: list[tuple[str, os.stat_result]]
) -> None:
    """Add to ``found`` what is there of these names in a folder; each folder is opened once."""
    for first, group in groupby(names, itemgetter(0)):
        # A name that is a folder's by now, or was, is found as what it is.
        below = [rest for _, *rest in group if rest]
        with suppress(OSError):  # it is gone, or can't be entered
            if not below:
                status = os.stat(first, dir_fd=folder, follow_symlinks=False)
                if _is_file(status):
                    found.append((prefix + first, status))
                continue
            with closing(os.open(first, _FOLDER, dir_fd=folder)) as inner:
                _find(inner, f"{prefix}{first}/", below, found)


def _walk(
    folder: int,
    path: tuple[str, ...],
    skipped: Collection[str],
    found: list[tuple[str, os.stat_result]],
    left: int,
) -> int:
    """Add the files in a folder to ``found``; return how many entries may still be looked at."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, left + 1))
    left -= len(names)
    if left < 0 or len(path) >= _MOST_PARTS:
        what = f"more than {MOST_ENTRIES:,} entries, or {_MOST_PARTS} folders in one another"
        raise ExchangeError(f"{'/'.join(path) or 'the folder'} has {what}: name a folder in it")
    for name in names:
        if name.startswith("."):
            continue
        with suppress(OSError):  # it is gone, or can't be entered
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _is_file(status):
                found.append(("/".join((*path, name)), status))
            elif stat.S_ISDIR(status.st_mode) and "/".join((*path, name)) not in skipped:
                with closing(os.open(name, _FOLDER, dir_fd=folder)) as below:
                    left = _walk(below, (*path, name), skipped, found, left)
    return left


@contextmanager
def _parent(folder: int, place: Place, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the folder that a place is in, open, and its last part; ``folder`` is closed."""
    try:
        if not place.parts:
            raise ExchangeError(f"{place.root} is no file: name one in it")
        *above, last = place.parts
        for part in above:
            with _errors("/".join(place.parts)):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, last
    finally:
        os.close(folder)


@contextmanager
def _opened(folder: int, place: Place, most: int) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the file at a place, and its name; ``folder`` is closed."""
    name = "/".join(place.parts)
    with _parent(folder, place) as (above, last):
        with _errors(name):
            opened = os.open(last, _READ, dir_fd=above)
        with closing(opened):
            found = os.fstat(opened)
            if stat.S_ISREG(found.st_mode) and not _is_file(found):
                raise ExchangeError(f"{name} in the sandbox: {os.strerror(errno.EACCES)}")
            _check_regular(name, found)
            _check_size(name, found.st_size, most, "max_bytes")
            if found.st_nlink != 1:
                raise ExchangeError(f"{name} has another name (a hard link); have a cell copy it")
            yield opened, name


@contextmanager
def _parts_of(source: Source, written: Sequence[str]) -> Iterator[tuple[Iterator[Part], int]]:
    """Yield the content of what is put somewhere, and its size as far as that is known."""
    if isinstance(source, bytes | bytearray | memoryview):
        content = bytes(source)
        yield iter([Part(content, is_hole=False)]), len(content)
    elif isinstance(source, str | os.PathLike):
        with closing(open_named(source, written, FILE)) as file:
            found = os.fstat(file)
            _check_regular(str(source), found)
            yield read_parts(file), found.st_size
    else:
        yield _read_file(source), 0


def _read_file(file: IO[bytes]) -> Iterator[Part]:
    """Yield what is left in a file that is open. Raises TypeError for one that gives no bytes."""
    while data := file.read(PART):
        if not isinstance(data, bytes | bytearray | memoryview):
            what = f"the file gives {type(data).__name__}, not bytes: open it with mode 'rb'"
            raise TypeError(what)
        yield Part(bytes(data), is_hole=False)


def _is_file(found: os.stat_result) -> bool:
    """Whether this is a regular file that somebody may open: one that nobody may covers others.

    Such a file is mounted over what a narrower policy denies. Root could read it: as empty.
    """
    return stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != 0


def _check_regular(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ExchangeError(f"{name} is no regular file: pack folders into one")


def _check_size(name: str, size: int, most: int | None, limit: str) -> None:
    if most is not None and size > most:
        raise ExchangeError(f"{name} has {size:,} bytes; {limit} is {most:,}")


def _copy(parts: Iterator[Part], copy: int, name: str, most: int | None, limit: str) -> None:
    """Copy what is there when it is read: a file may grow meanwhile. A hole remains one."""
    size = 0
    for part in parts:
        size += len(part.data)
        _check_size(name, size, most, limit)
        write_part(copy, part)
    end_file(copy)


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Raise an OSError in a folder of cells as an ExchangeError."""
    try:
        yield
    except OSError as exc:
        raise ExchangeError(f"{name} in the sandbox: {exc.strerror}") from None
