"""From PATHS to the files that are checked, in a stable order, each once.

In folders: notebooks (``.ipynb``) and scripts (``.py``). What is hidden is left out, Jupyter's
checkpoints and version control with it. No link is followed, as it may lead anywhere, also to what
only the checking user can read: a file is opened beneath the folder that was named, part by part.
What is named itself is checked, or is a problem.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from cellblock.batch.limits import LARGEST
from cellblock.batch.verdict import Kind, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS: Final = {".ipynb": Kind.notebook, ".py": Kind.script}
NOTHING: Final = "no notebook and no script is there"
NEITHER: Final = "neither a notebook (.ipynb) nor a script (.py)"
LINK: Final = "is a link, and none is followed: check what it leads to by its own name"
NO_FILE: Final = "is no regular file"
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NoFileError(Exception):
    """What is to be checked is no regular file; the text says what it is."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to check, beneath ``root``, which was named or holds what was named.

    ``shown`` is relative to the current folder, if it lies in there.
    """

    path: Path
    shown: str
    kind: Kind
    root: Path


def find(paths: Sequence[str], exclude: Sequence[str]) -> tuple[list[File], list[Problem]]:
    """Return the files that ``paths`` name, and the paths by which nothing can be checked."""
    files, problems = dict[str, File](), list[Problem]()
    for path in paths:
        before = len(problems)
        found = list(_beneath(Path(path), problems, exclude))
        if not found and len(problems) == before and not _excluded(shown(Path(path)), exclude):
            problems.append(Problem(shown(Path(path)), NOTHING))
        for each in found:
            files.setdefault(_identity(each.path), each)
    return sorted(files.values(), key=lambda file: PurePath(file.shown).parts), problems


def shown(path: Path) -> str:
    """Return a path as it is told: from the current folder, if it lies in there."""
    absolute, here = os.path.abspath(path), os.getcwd()  # noqa: PTH100, PTH109 - resolves no links
    if absolute == here or absolute.startswith(here.rstrip("/") + "/"):
        return os.path.relpath(absolute, here)
    return absolute if path.is_absolute() else os.path.normpath(path)


def read(file: File) -> bytes:
    """Return what is in a regular file, one byte more than `LARGEST` at most.

    Raises NoFileError, OSError.
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
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoFileError(NO_FILE)
        with open(descriptor, "rb", closefd=False) as opened:
            return opened.read(LARGEST + 1)
    finally:
        os.close(descriptor)


def _beneath(path: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    if path.is_dir():
        yield from _walk(path, problems, exclude)
    elif not os.path.lexists(path):
        problems.append(Problem(shown(path), "no such file or folder"))
    elif path.suffix.lower() not in KINDS:
        problems.append(Problem(shown(path), NEITHER))
    else:
        yield from _chosen(path, exclude, path.parent)


def _walk(folder: Path, problems: list[Problem], exclude: Sequence[str]) -> Iterator[File]:
    def failed(error: OSError) -> None:
        where = shown(Path(os.fsdecode(error.filename)))
        problems.append(Problem(where, f"can't be listed: {error.strerror}"))

    for place, folders, names in os.walk(folder, onerror=failed):
        at = Path(place)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and not _excluded(shown(at / name), exclude)
        )
        for name in sorted(names):
            if name[0] != "." and PurePath(name).suffix.lower() in KINDS:
                yield from _chosen(at / name, exclude, folder)


def _chosen(path: Path, exclude: Sequence[str], root: Path) -> Iterator[File]:
    told = shown(path)
    if not _excluded(told, exclude):
        yield File(path, told, KINDS[path.suffix.lower()], root)


def _excluded(told: str, exclude: Sequence[str]) -> bool:
    """Say whether a pattern fits the path, a folder above it, or the name of either."""
    parts = PurePath(told).parts
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatchcase(text, one) for one in exclude for text in (*paths, *parts))


def _identity(path: Path) -> str:
    """Return what two ways to one name have in common; two names are two files."""
    return os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118 - for speed
