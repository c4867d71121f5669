"""Roots minus denied paths: Landlock has no deny rule, so what is denied is left out.

A root with a denied path beneath it is replaced by that root's entries, all but the one that
leads to the denied path, level by level. Consequences, disclosed as holes of read_deny_paths:
entries made later directly in such a folder are not readable, the folder can't be listed, and
a hard link to a denied file elsewhere beneath a root is not recognised.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.errors import PolicyError
from cellblock.policy.paths import identity, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Rules that one root may become. 2,000 take about 60 ms at guest start.
MAX_EXPANSION: Final = 2_000
#: MAXPATHLEN of macOS, in bytes.
_LONGEST_PATH: Final = 1_024


#: macOS's file systems find a name in any case and in any form of Unicode.
_LOOSE_NAMES: Final = sys.platform == "darwin"


def real(path: str) -> str:
    """Return ``path`` without links, spelled as it is stored: profiles match that spelling."""
    found = os.path.realpath(path)
    return _stored(found) if _LOOSE_NAMES else found


def _stored(path: str) -> str:
    """Return an existing path as macOS spells it (fcntl(2), F_GETPATH); another as it stands."""
    import fcntl  # noqa: PLC0415 - on macOS alone

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return path
    try:
        answer: bytes = fcntl.fcntl(fd, getattr(fcntl, "F_GETPATH", 50), bytes(_LONGEST_PATH))
    finally:
        os.close(fd)
    return os.fsdecode(answer.rstrip(b"\0"))


def canonical(paths: Iterable[str]) -> tuple[str, ...]:
    """Return existing paths with links resolved, once each, those beneath another left out."""
    return outermost(real(path) for path in paths if os.path.exists(path))  # noqa: PTH110


def standing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return what of a policy's paths, which are canonical, is there; else as ``canonical``.

    Not resolved again: cells may have put a link there since.
    """
    return outermost(path for path in paths if any(identity(path)))


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return canonical paths once each, sorted, those beneath another left out."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(within(path, root) for root in kept):
            kept.append(path)
    return tuple(kept)


def spellings(path: str) -> tuple[str, ...]:
    """Return a denied path as it is named and as it resolves: either may lie beneath a root."""
    named = os.path.join(real(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return tuple(dict.fromkeys((real(path), named)))


def without(root: str, denied: Sequence[str], *, policy_name: str) -> tuple[str, ...]:
    """Return what to grant so that ``root`` is readable and nothing denied is.

    Raises PolicyError if the root itself is denied, or has too many entries to tell apart.
    """
    refuse_denied(root, denied, policy_name=policy_name)
    inside = [path for path in denied if within(path, root)]
    granted: list[str] = []
    _expand(root, inside, granted, policy_name)
    return tuple(granted)


def refuse_denied(
    root: str, denied: Sequence[str], *, policy_name: str, key: str = "filesystem_read_roots"
) -> None:
    """Raise PolicyError if ``root`` lies in what is denied."""
    for path in denied:
        if within(root, path):
            raise _contradiction(root, path, policy_name, key)


def _expand(folder: str, denied: Sequence[str], granted: list[str], policy_name: str) -> None:
    if not denied:
        granted.append(folder)
        return
    for entry in _entries(folder):
        # A link is granted by what it points to, if that lies beneath a root itself.
        if entry.is_symlink() or entry.path in denied:
            continue
        beneath = [path for path in denied if within(path, entry.path)]
        _expand(entry.path, beneath, granted, policy_name)
        if len(granted) > MAX_EXPANSION:
            raise _too_many(folder, denied[0], policy_name)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(Path(folder)) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # what we can't list, the guest can't read
        return []


def _contradiction(root: str, denied: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        "this root lies in a place that is never readable",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy=f"Remove the root, or {denied} from read_deny_paths if it stands there.",
    )


def _too_many(folder: str, denied: str, policy_name: str) -> PolicyError:
    return PolicyError(
        "can't be kept: too many entries beside a denied path",
        file=policy_name,
        key="read_deny_paths",
        value=repr(denied),
        remedy=f"Choose narrower filesystem_read_roots than {folder}.",
    )
