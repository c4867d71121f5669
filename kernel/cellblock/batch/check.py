"""``cellblock check``: files in, a report out. Nothing in the files runs.

Files that were judged before are taken from a cache (`VerdictCache`); the others are judged in
worker processes (`check_workers`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import msgspec

import cellblock
from cellblock.batch import files
from cellblock.batch.check_workers import CheckWorkers, WorkItem
from cellblock.batch.verdict import (
    MAX_FILE_BYTES,
    CheckedFile,
    CheckReport,
    FileKind,
    Problem,
    Verdict,
    not_checked,
)
from cellblock.host.files import PrivateFile
from cellblock.host.guests.spawn import available_processors
from cellblock.host.session.history import default_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.batch.verdict import CheckOptions
    from cellblock.policy.model import Policy

_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class StdinFile:
    """The content of standard input, and its name."""

    name: str
    content: bytes

    @property
    def kind(self) -> FileKind:
        """By the name's ending; a text without one is a notebook if it begins like one."""
        suffix = PurePath(self.name).suffix.lower()
        is_object = self.content[:4096].lstrip()[:1] == b"{"
        return files.KINDS.get(suffix, FileKind.notebook if is_object else FileKind.script)


class Check:
    """One check by a policy, in at most ``jobs`` processes. ``cache`` is asked first."""

    def __init__(
        self, policy: Policy, options: CheckOptions, *, jobs: int = 0, cache: VerdictCache | None
    ) -> None:
        self._policy, self._options, self._cache = policy, options, cache
        self._jobs = jobs or available_processors()
        self._verdicts = dict[files.File, Verdict]()
        self._problems = list[Problem]()

    def run(
        self, paths: Sequence[str], *, exclude: Sequence[str] = (), stdin: StdinFile | None = None
    ) -> CheckReport:
        """Check what ``paths`` name. Raise CheckError where nothing can be checked here."""
        found, self._problems = files.find(paths, exclude)
        workers = CheckWorkers(self._options, self._jobs)
        try:
            for item, verdict in workers.judge(self._unknown(found, stdin)):
                if verdict.problem:
                    self._problems.append(Problem(item.file.shown, verdict.problem))
                    continue
                self._verdicts[item.file] = verdict
                if self._cache:
                    self._cache.put(item.content, item.file.kind, verdict)
        finally:
            workers.close()
        if self._cache:
            self._cache.save()
        checked = tuple(
            CheckedFile(file.shown, file.kind, self._verdicts[file])
            for file in dict.fromkeys([*found, *self._verdicts])
            if file in self._verdicts
        )
        problems = tuple(sorted(self._problems, key=lambda one: (one.path, one.message)))
        return CheckReport(self._policy.name, self._options.template, checked, problems)

    def _unknown(self, found: list[files.File], stdin: StdinFile | None) -> Iterator[WorkItem]:
        """Yield the files that have no verdict yet, with their content."""
        if stdin is not None:
            file = files.File(_STDIN, stdin.name, stdin.kind, _STDIN)
            yield from self._unless_known(file, stdin.content)
        for file in found:
            try:
                content = files.read(file)
            except files.NoFileError as error:
                self._verdicts[file] = not_checked(str(error), "file-not-readable")
            except OSError as error:
                self._problems.append(Problem(file.shown, f"can't be read: {error.strerror}"))
            else:
                yield from self._unless_known(file, content)

    def _unless_known(self, file: files.File, content: bytes) -> Iterator[WorkItem]:
        if len(content) > MAX_FILE_BYTES:
            self._verdicts[file] = not_checked(f"is larger than {MAX_FILE_BYTES >> 20} MiB")
        elif self._cache and (known := self._cache.get(content, file.kind)):
            self._verdicts[file] = known
        else:
            # Standard input lies where its name says.
            path = file.shown if file.path == _STDIN else file.path
            yield WorkItem(file, content, os.fsencode(files.absolute(path)))


# --- the cache of verdicts ------------------------------------------------------------------------

#: Bytes of one file of verdicts, and how many such files there are: one for each set of rules.
MAX_CACHE_BYTES: Final = 64 << 20
MAX_CACHE_FILES: Final = 8
_SUFFIX: Final = ".verdicts"


def cache_folder() -> Path:
    """Return the folder of the cache, in the user's cache folder."""
    return default_path().parent / "check"


class VerdictCache:
    """Verdicts by ``options``, by content. Its methods never raise.

    A verdict is found only for the same content, policy, code of cellblock, Python and IPython. A
    verdict that depends on where a file lies or what else is there is not cached, as are those on
    this machine's time and memory. A file of the cache that is damaged, or not the user's alone, is
    ignored; one that can't be written is not.
    """

    def __init__(self, folder: Path, options: CheckOptions) -> None:
        self._folder = folder
        self._file = PrivateFile(folder / f"{_digest(options)}{_SUFFIX}", MAX_CACHE_BYTES)
        self._cached = self._read()
        self._used = dict[str, msgspec.Raw]()
        self._changed = False

    def get(self, content: bytes, kind: FileKind) -> Verdict | None:
        """Return the verdict on a file of this content."""
        key = _key(content, kind)
        if (raw := self._cached.get(key)) is None:
            return None
        try:
            verdict = msgspec.msgpack.decode(raw, type=Verdict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        self._used[key] = raw
        return verdict

    def put(self, content: bytes, kind: FileKind, verdict: Verdict) -> None:
        """Cache a verdict, unless it is one for this machine or location alone."""
        if not verdict.location_matters and not any(
            found.finding.rule == "file-not-checked" for found in verdict.findings
        ):
            self._used[_key(content, kind)] = msgspec.Raw(msgspec.msgpack.encode(verdict))
            self._changed = True

    def save(self) -> None:
        """Write the cache. What this check used is the newest; the oldest is dropped first."""
        if not self._changed:
            return
        unused = {key: raw for key, raw in self._cached.items() if key not in self._used}
        kept, size = dict[str, msgspec.Raw](), 0
        for key, raw in reversed(list((unused | self._used).items())):
            size += len(key) + len(bytes(raw)) + 16
            if size > MAX_CACHE_BYTES:
                break
            kept[key] = raw
        newest_last = dict(reversed(list(kept.items())))
        with contextlib.suppress(OSError):
            self._file.write(msgspec.msgpack.encode(newest_last))
            self._remove_old_files()

    def _read(self) -> dict[str, msgspec.Raw]:
        try:
            return msgspec.msgpack.decode(self._file.read(), type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    def _remove_old_files(self) -> None:
        entries = [entry for entry in os.scandir(self._folder) if entry.name.endswith(_SUFFIX)]
        entries.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        for entry in entries[MAX_CACHE_FILES:]:
            Path(entry.path).unlink()


def _key(content: bytes, kind: FileKind) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()


def _digest(options: CheckOptions) -> str:
    """Return the hash of all that a verdict depends on besides the file."""
    context = (
        msgspec.to_builtins([options.policy, options.rules, options.template, options.limits]),
        cellblock.__version__,
        _code_digest(),
        sys.version,
        [metadata.version(name) for name in ("ipython", "nbformat")],
    )
    text = json.dumps(context, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _code_digest() -> str:
    """Return the hash of all code that a verdict depends on: the version may be in development."""
    root, made = Path(cellblock.__file__).parent, hashlib.sha256()
    packages = ("analysis", "batch", "policy")
    for path in sorted(path for name in packages for path in (root / name).glob("*.py")):
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()
