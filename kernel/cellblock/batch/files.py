"""From PATHS to the files that are checked or run, each once, in a stable order; and report files.

In folders these are notebooks (``.ipynb``) and scripts (``.py``). Hidden ones are left out, which
includes Jupyter's checkpoints and version control.

A checkout's author may have put a link in the place of a file or folder, to something that only
the user can read, or should not overwrite. So a file to check is opened beneath the folder that
was named, part by part, without following a link, and neither is one where a report is written.
What is named itself is checked, or is a problem.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from cellblock.batch.verdict import MAX_FILE_BYTES, FileKind, Problem
from cellblock.descriptors import closing, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS: Final = {".ipynb": FileKind.notebook, ".py": FileKind.script}
NOTHING_FOUND: Final = "no notebook and no script is there"
WRONG_KIND: Final = "neither a notebook (.ipynb) nor a script (.py)"
LINK: Final = "is a link, and none is followed: name what it leads to"
NO_FILE: Final = "is no regular file"
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC
#: Where links are the system's: ``/dev/stdout`` is one.
_SYSTEM: Final = ("/dev/", "/proc/")


class NoFileError(Exception):
    """What is to be checked is no regular file; the text says what it is."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to check, beneath ``root``: the folder that was named, or that of the named file.

    ``shown`` is relative to the current folder, if the file lies in there.
    """

    path: Path
    shown: str
    kind: FileKind
    root: Path


def find(paths: Sequence[str], exclude: Sequence[str]) -> tuple[list[File], list[Problem]]:
    """Return the files that ``paths`` name, and the paths by which nothing can be checked."""
    files, problems = dict[str, File](), list[Problem]()
    for path in paths:
        before = len(problems)
        found = list(_beneath(Path(path), problems, exclude))
        if not found and len(problems) == before and not _excluded(shown(Path(path)), exclude):
            problems.append(Problem(shown(Path(path)), NOTHING_FOUND))
        for each in found:
            # What two paths to one name have in common. Two names are two files.
            identity = f"{os.path.realpath(each.path.parent)}/{each.path.name}"
            files.setdefault(identity, each)
    return sorted(files.values(), key=lambda file: PurePath(file.shown).parts), problems


def absolute(path: str | Path) -> str:
    """Return an absolute path in which no link is resolved."""
    return os.path.normpath(Path(path).absolute())


def shown(path: Path) -> str:
    """Return a path as it is shown: from the current folder, if it lies in there."""
    whole, here = absolute(path), absolute("")
    if whole == here or whole.startswith(here.rstrip("/") + "/"):
        return os.path.relpath(whole, here)
    return whole if path.is_absolute() else os.path.normpath(path)


def read(file: File) -> bytes:
    """Return the content of a regular file, at most one byte more than `MAX_FILE_BYTES`.

    Raise NoFileError or OSError.
    """
    *folders, name = file.path.relative_to(file.root).parts
    at = os.open(file.root, _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        descriptor = os.open(name, _OPEN, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NoFileError(LINK) from None
        raise
    finally:
        os.close(at)
    with closing(descriptor):
        content = read_regular(descriptor, MAX_FILE_BYTES + 1)
    if content is None:
        raise NoFileError(NO_FILE)
    return content


def write_report(path: Path, text: str) -> None:
    """Write the file of a report. What UTF-8 has no form for is escaped. Raise OSError."""
    follows = absolute(path).startswith(_SYSTEM)
    try:
        descriptor = os.open(path, _WRITE if follows else _WRITE | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and none is followed") from None
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def _beneath(path: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    """Yield the files that a path names, unless they are excluded; add why there are none."""
    if path.is_dir():
        yield from _walk(path, problems, exclude)
    elif not os.path.lexists(path):
        problems.append(Problem(shown(path), "no such file or folder"))
    elif path.suffix.lower() not in KINDS:
        problems.append(Problem(shown(path), WRONG_KIND))
    elif not _excluded(shown(path), exclude):
        yield File(path, shown(path), KINDS[path.suffix.lower()], path.parent)


def _walk(folder: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    def failed(error: OSError) -> None:
        where = shown(Path(os.fsdecode(error.filename)))
        problems.append(Problem(where, f"can't be listed: {error.strerror}"))

    def included(names: list[str]) -> list[str]:
        left = (one for one in sorted(names) if one[0] != ".")
        return [one for one in left if not _excluded(shown(at / one), exclude)]

    for place, folders, names in os.walk(folder, onerror=failed):
        at = Path(place)
        folders[:] = included(folders)
        for name in included([name for name in names if PurePath(name).suffix.lower() in KINDS]):
            path = at / name
            yield File(path, shown(path), KINDS[path.suffix.lower()], folder)


def _excluded(name: str, exclude: Sequence[str]) -> bool:
    """Whether a pattern fits the path, a folder above it, or the name of either."""
    parts = PurePath(name).parts
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatchcase(text, one) for one in exclude for text in (*paths, *parts))
