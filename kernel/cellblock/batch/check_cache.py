"""Verdicts that are kept: a file that has been judged by the same is not read again.

By the same means: content, policy, cellblock with all of its code that judges, Python, IPython. A
policy and a content have one narrower policy between them, but for paths and templates: a verdict
that depends on where a file lies, or on what is there, is not kept. What is damaged or not the
user's alone is as if it were not there, and what can't be kept is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import cellblock
from cellblock.batch.verdict import Verdict
from cellblock.host.files import PrivateFile
from cellblock.host.session.history import default_path

if TYPE_CHECKING:
    from cellblock.batch.verdict import Kind, Terms


#: Bytes of one file of verdicts; sets of rules that have one.
MOST_BYTES: Final = 64 << 20
MOST_FILES: Final = 8
_SUFFIX: Final = ".verdicts"
_PACKAGES: Final = ("ipython", "nbformat")
_TABLE: Final = dict[str, msgspec.Raw]


def default_folder() -> Path:
    """Return where verdicts are kept: in the user's cache folder."""
    return default_path().parent / "check"


class Kept:
    """What is kept of verdicts by ``terms``. Nothing here raises."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        self._folder = folder
        self._name = _digest(_context(terms)) + _SUFFIX
        self._file = PrivateFile(folder / self._name, MOST_BYTES)
        self._verdicts = self._read()
        self._used = dict[str, msgspec.Raw]()
        self._changed = False

    def find(self, content: bytes, kind: Kind) -> Verdict | None:
        """Return the verdict on a file of this content."""
        key = _key(content, kind)
        if (raw := self._verdicts.get(key)) is None:
            return None
        try:
            verdict = msgspec.msgpack.decode(raw, type=Verdict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        self._used[key] = raw
        return verdict

    def keep(self, content: bytes, kind: Kind, verdict: Verdict) -> None:
        """Keep a verdict, unless it is one on this machine: its folders, its time and memory."""
        if not verdict.placed and not any(
            found.finding.rule == "file-not-checked" for found in verdict.found
        ):
            self._used[_key(content, kind)] = msgspec.Raw(msgspec.msgpack.encode(verdict))
            self._changed = True

    def save(self) -> None:
        """Write what is kept, what this run used last; the oldest goes first."""
        if not self._changed:
            return
        unused = {key: raw for key, raw in self._verdicts.items() if key not in self._used}
        kept, size = dict[str, msgspec.Raw](), 0
        for key, raw in reversed(list((unused | self._used).items())):
            size += len(key) + len(bytes(raw)) + 16
            if size > MOST_BYTES:
                break
            kept[key] = raw
        newest_last = dict(reversed(list(kept.items())))
        with contextlib.suppress(OSError):
            self._file.write(msgspec.msgpack.encode(newest_last))
            self._remove_old()

    def _read(self) -> dict[str, msgspec.Raw]:
        try:
            return msgspec.msgpack.decode(self._file.read(), type=_TABLE)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    def _remove_old(self) -> None:
        files = [entry for entry in os.scandir(self._folder) if entry.name.endswith(_SUFFIX)]
        files.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        for entry in files[MOST_FILES:]:
            Path(entry.path).unlink()


def _key(content: bytes, kind: Kind) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()


def _context(terms: Terms) -> object:
    return (
        msgspec.to_builtins([terms.policy, terms.rules, terms.template, terms.limits]),
        cellblock.__version__,
        _code(),
        sys.version,
        [metadata.version(name) for name in _PACKAGES],
    )


def _code() -> str:
    """Return the hash of all code that a verdict depends on: a version may be in the making."""
    root = Path(cellblock.__file__).parent
    files = sorted(
        path for room in ("analysis", "batch", "policy") for path in (root / room).glob("*.py")
    )
    made = hashlib.sha256()
    for path in files:
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()


def _digest(context: object) -> str:
    text = json.dumps(context, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
