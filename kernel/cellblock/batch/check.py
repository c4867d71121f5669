"""``cellblock check``: files in, a report out. Whatever is in them, none of it runs."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from cellblock.batch.check_workers import Given, Workers
from cellblock.batch.verdict import (
    LARGEST,
    Checked,
    Found,
    Kind,
    Problem,
    Report,
    Terms,
    Verdict,
    own_finding,
)
from cellblock.host.guests.own_process import available_processors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.check_cache import Kept
    from cellblock.policy.model import Policy


# From PATHS to the files that are checked, in a stable order, each once.
#
# In folders: notebooks (``.ipynb``) and scripts (``.py``). What is hidden is left out, Jupyter's
# checkpoints and version control with it. No link is followed, as it may lead anywhere, also to
# what only the checking user can read: a file is opened beneath the folder that was named, part
# by part. What is named itself is checked, or is a problem.

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


_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Stream:
    """What came in from standard input, and what it is called."""

    name: str
    content: bytes

    @property
    def kind(self) -> Kind:
        """By its name's ending; a text without one is a notebook if it begins like one."""
        suffix = os.path.splitext(self.name)[1].lower()  # noqa: PTH122 - no path need be there
        begins = self.content[:4096].lstrip()[:1] == b"{"
        return KINDS.get(suffix, Kind.notebook if begins else Kind.script)


class Check:
    """One run by a policy. ``jobs`` processes at most; ``kept`` is asked before they are."""

    def __init__(self, policy: Policy, terms: Terms, *, jobs: int = 0, kept: Kept | None) -> None:
        self._policy, self._terms, self._kept = policy, terms, kept
        self._jobs = jobs or available_processors()
        self._checked = dict[File, Verdict]()
        self._problems = list[Problem]()

    def run(
        self, paths: Sequence[str], *, exclude: Sequence[str] = (), stream: Stream | None = None
    ) -> Report:
        """Check what ``paths`` name. Raises CheckError where nothing can be checked here."""
        found, self._problems = find(paths, exclude)
        workers = Workers[tuple[File, bytes]](self._terms, self._jobs)
        try:
            for (file, content), verdict in workers.judge(self._unknown(found, stream)):
                if verdict.problem:
                    self._problems.append(Problem(file.shown, verdict.problem))
                    continue
                self._checked[file] = verdict
                if self._kept:
                    self._kept.keep(content, file.kind, verdict)
        finally:
            workers.close()
        if self._kept:
            self._kept.save()
        return self._report([*found, *self._checked])

    def _unknown(
        self, found: list[File], stream: Stream | None
    ) -> Iterator[Given[tuple[File, bytes]]]:
        """Yield the files that nothing is known of yet, with their content."""
        if stream is not None:
            file = File(_STDIN, stream.name, stream.kind, _STDIN)
            yield from self._given(file, stream.content)
        for file in found:
            try:
                content = read(file)
            except NoFileError as error:
                self._checked[file] = _not_checked("file-not-readable", str(error))
            except OSError as error:
                self._problems.append(Problem(file.shown, f"can't be read: {error.strerror}"))
            else:
                yield from self._given(file, content)

    def _given(self, file: File, content: bytes) -> Iterator[Given[tuple[File, bytes]]]:
        if len(content) > LARGEST:
            self._checked[file] = _not_checked(
                "file-not-checked", f"is larger than {LARGEST >> 20} MiB"
            )
        elif self._kept and (known := self._kept.find(content, file.kind)):
            self._checked[file] = known
        else:
            yield Given((file, content), file.kind, content, _place(file))

    def _report(self, order: list[File]) -> Report:
        checked = (
            Checked(file.shown, file.kind, self._checked[file])
            for file in dict.fromkeys(order)
            if file in self._checked
        )
        problems = sorted(self._problems, key=lambda problem: (problem.path, problem.message))
        return Report(self._policy.name, self._terms.template, tuple(checked), tuple(problems))


def _place(file: File) -> bytes:
    """Return where a file lies; what comes in from standard input lies where its name says."""
    path = file.shown if file.path == _STDIN else file.path
    return os.fsencode(os.path.abspath(path))  # noqa: PTH100 - resolves no links


def _not_checked(rule: str, why: str) -> Verdict:
    return Verdict((Found(own_finding(rule, why)),))
