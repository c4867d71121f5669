"""The folder that artifacts are copied to: the user's, in which cells write nothing themselves.

What is there already, and was not put there by this session, is never written to: the copy gets
another name. So does a folder whose name a file has, be it a copy of this session's.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import secrets
import stat
import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cellblock.policy.paths import open_unlinked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from cellblock.host.services.artifacts.collect import Entry


# What a file is, by its first bytes; of text, which is told by nothing else, by its name too.

#: Bytes that are looked at.
LOOKED_AT: Final = 4_096
UNKNOWN: Final = "application/octet-stream"
#: Offset, bytes that stand there, and what that is.
_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"(\xb5/\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf'\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"ARROW1", "application/vnd.apache.arrow.file"),
    (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"\x93NUMPY", "application/x-npy"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
_PDF: Final = b"%PDF-"
_ZIP: Final = b"PK\x03\x04"
#: What is a zip file inside, by the name's end.
_ZIPPED: Final = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".npz": "application/x-npz",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
#: How text begins that a front end would act on, in lower case.
_ACTIVE: Final[tuple[tuple[bytes, str], ...]] = (
    (b"<!doctype html", "text/html"),
    (b"<html", "text/html"),
    (b"<head", "text/html"),
    (b"<body", "text/html"),
    (b"<script", "text/html"),
    (b"<!doctype svg", "image/svg+xml"),
    (b"<svg", "image/svg+xml"),
)
_TEXTS: Final = {
    ".csv": "text/csv",
    ".geojson": "application/geo+json",
    ".htm": "text/html",
    ".html": "text/html",
    ".ipynb": "application/x-ipynb+json",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".tsv": "text/tab-separated-values",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def content_type(head: bytes, name: str) -> str:
    """Return the type of a file that begins with ``head``, its first ``LOOKED_AT`` bytes."""
    extension = os.path.splitext(name)[1].lower()  # noqa: PTH122 - a name, no path
    if head.startswith(_PDF):
        return "application/pdf"
    if _is_text(head):
        return _text(head, extension)
    if head.startswith(_ZIP):
        return _ZIPPED.get(extension, "application/zip")
    return next((kind for at, magic, kind in _MAGIC if head.startswith(magic, at)), UNKNOWN)


def _is_text(head: bytes) -> bool:
    """Say whether it is UTF-8; the last letter may be cut."""
    if b"\0" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _text(head: bytes, extension: str) -> str:
    start = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for begins, kind in _ACTIVE:
        if start.startswith(begins):
            return kind
    if start.startswith(b"<?xml"):
        inner = "image/svg+xml" if b"<svg" in start else "application/xml"
        return "application/xhtml+xml" if b"<html" in start else inner
    return _TEXTS.get(extension, "text/plain")


# Names that cells chose, made such that a file may have them and a card may show them.

#: Bytes of a name: a file system takes 255, and some are left for a number.
LONGEST: Final = 200
#: Characters that mean something to a shell, to a browser or to other file systems.
_AWKWARD: Final = frozenset("<>:\"\\|?*`$;&#%'")


def harmless(path: str) -> str:
    """Return a relative path, part by part, without what could hide, reorder or lead away.

    Letters stay as they are; blanks of any kind become spaces, anything else that is not seen, or
    that is awkward, an underscore. No part begins with a dot.
    """
    return "/".join(_harmless(part) for part in path.split("/") if part) or "_"


def _harmless(name: str) -> str:
    plain = unicodedata.normalize("NFC", name)
    shown = "".join(map(_shown, plain)).strip()
    if shown.startswith((".", "-", "~")):
        shown = "_" + shown[1:]
    return _cut(shown) or "_"


def _shown(char: str) -> str:
    if char.isspace():
        return " "
    return char if char.isprintable() and char not in _AWKWARD else "_"


def _cut(name: str) -> str:
    """Return a name that is short enough, with its extension."""
    if len(name.encode()) <= LONGEST:
        return name
    stem, dot, extension = name.rpartition(".")
    tail = f"{dot}{extension}" if dot and len(extension) <= 10 else ""  # noqa: PLR2004
    room = LONGEST - len(tail.encode())
    return (stem if tail else name).encode()[:room].decode("utf-8", "ignore") + tail


def numbered(name: str, number: int) -> str:
    """Return the same name with a number, before its extension: ``plot-2.png``."""
    head, slash, last = name.rpartition("/")
    stem, dot, extension = last.rpartition(".")
    inner = f"{stem}-{number}{dot}{extension}" if stem else f"{last}-{number}"
    return f"{head}{slash}{inner}"


#: Bytes that are copied before others have their turn.
BLOCK: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A pipe that was put there is not waited for, a terminal not taken.
_SOURCE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Names that are tried where others have theirs.
_MOST_NUMBERS: Final = 1_000
_State = tuple[int, int, int, int]


class Unfit(Exception):
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
