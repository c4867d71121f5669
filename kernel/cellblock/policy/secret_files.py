"""Names under which projects keep secrets: what reading leaves out, and no session keeps.

An entry of ``read_deny_paths`` that begins with ``**/`` is a pattern: what has this name is not
readable, wherever it lies beneath a root that the policy reads. A policy that names such a file
itself, as a root, says otherwise. ``@secrets`` stands for all of ``NAMES``.

Where it lies is looked up when a session begins (``find``). Beneath a layer, names that are missing
in the notebook's folder and above are hidden beforehand (``backends.layers``).
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import re
from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: What a pattern begins with.
ANYWHERE: Final = "**/"
GROUP: Final = "@secrets"
#: A name, or several in a row; wildcards as in fnmatch.
NAMES: Final = {
    ".aws": "keys of Amazon's cloud",
    ".azure": "tokens of Microsoft's cloud",
    ".docker/config.json": "registry passwords",
    ".env": "passwords and keys, for a program's environment",
    ".env.*": "the same for one environment",
    ".envrc": "direnv's: exports keys",
    ".git-credentials": "passwords of repositories",
    ".git/config": "addresses of repositories, with tokens in them; names programs that git runs",
    ".git/hooks": "programs that git runs",
    ".git/modules": "the same of submodules",
    ".gnupg": "keys",
    ".htpasswd": "password hashes",
    ".kube": "tokens of clusters",
    ".netrc": "passwords",
    ".npmrc": "tokens of registries",
    ".pgpass": "passwords of databases",
    ".pypirc": "tokens of registries",
    ".ssh": "keys",
    ".streamlit/secrets.toml": "an application's secrets",
    "client_secret*.json": "Google's OAuth clients",
    "credentials.json": "Google's, and others'",
    "id_dsa": "an SSH key",
    "id_ecdsa": "an SSH key",
    "id_ed25519": "an SSH key",
    "id_rsa": "an SSH key",
    "kaggle.json": "a Kaggle token",
}
SECRETS: Final = tuple(f"{ANYWHERE}{name}" for name in NAMES)

#: Entries that ``find`` looks at: they take about 50 ms.
MOST_ENTRIES: Final = 20_000
#: Folders in which nobody keeps secrets of a project: what others made.
_PASSED_OVER: Final = frozenset({".git", "__pycache__", "node_modules", "site-packages"})
#: What makes a folder a virtual environment; one may be called ``.env``.
_ENVIRONMENT: Final = "pyvenv.cfg"


def expand_group(entries: Iterable[str]) -> list[str]:
    """Return entries of a list of paths with ``@secrets`` replaced, once each."""
    found = chain.from_iterable(SECRETS if entry == GROUP else (entry,) for entry in entries)
    return list(dict.fromkeys(found))


def is_pattern(entry: str) -> bool:
    """Return whether an entry of ``read_deny_paths`` is a pattern, not a path."""
    return entry.startswith(ANYWHERE)


def pattern_problem(entry: str) -> str:
    """Return what is wrong with a pattern; empty where it means something."""
    parts = entry.removeprefix(ANYWHERE).split("/")
    if not all(parts) or not {".", "..", "**"}.isdisjoint(parts):
        return "not a name that may lie anywhere"
    return "" if parts[0].strip("*?") else "it would hide everything"


def pattern_of(path: str, patterns: Iterable[str]) -> str:
    """Return the pattern by which ``path``, beneath a root, is not readable; empty if none.

    A path in a folder of such a name is not readable either.
    """
    parts, patterns = path.split("/"), tuple(patterns)
    if not any(map(_beginning(patterns).fullmatch, parts)):  # mostly so: 4 µs instead of 70
        return ""
    for pattern in filter(is_pattern, patterns):
        names = pattern.removeprefix(ANYWHERE).split("/")
        for start in range(len(parts) - len(names) + 1):
            if all(map(fnmatch.fnmatchcase, parts[start:], names)):
                return pattern
    return ""


@functools.cache
def _beginning(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches the first name of each pattern, compiled once for a policy's."""
    names = (one.removeprefix(ANYWHERE).split("/")[0] for one in patterns if is_pattern(one))
    return re.compile("|".join(map(fnmatch.translate, names)) or r"(?!)")


def pattern_beneath(path: str, roots: Iterable[str], patterns: Iterable[str]) -> str:
    """Return what ``pattern_of`` says of a path, by its name beneath the root that is nearest."""
    around = [root for root in roots if f"{path}/".startswith(f"{root.rstrip('/')}/")]
    return pattern_of(path.removeprefix(max(around, key=len, default=path)).strip("/"), patterns)


def names_without_wildcards(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of those patterns that name one file each."""
    names = (pattern.removeprefix(ANYWHERE) for pattern in patterns if is_pattern(pattern))
    return tuple(name for name in names if not glob.has_magic(name))


def find(roots: Sequence[str], patterns: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return what lies beneath ``roots`` under such names, and whether all of them was looked at.

    Outer folders come first; no link is followed, nor one returned: where it leads has a name of
    its own. Left out is what a root is or lies in, and what is a virtual environment.
    """
    names = [pattern.removeprefix(ANYWHERE) for pattern in patterns if is_pattern(pattern)]
    single = re.compile("|".join(map(fnmatch.translate, names)) or r"(?!)")
    inner = [name.partition("/") for name in names if "/" in name]
    # At the top of a root by name: a folder may have more entries than are looked at.
    tops = (
        f"{root.rstrip('/')}/{name}" for root in roots for name in names_without_wildcards(patterns)
    )
    found, left = list(filter(os.path.lexists, tops)), MOST_ENTRIES
    folders = deque(os.path.normpath(root) for root in roots if names)
    while folders and left > 0:
        for entry in entries_of(folders.popleft(), left + 1):
            left -= 1
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and os.path.lexists(f"{entry.path}/{_ENVIRONMENT}"):
                continue
            if single.fullmatch(entry.name) and not entry.is_symlink():
                found.append(entry.path)
            elif is_folder:
                for _, _, rest in (one for one in inner if fnmatch.fnmatchcase(entry.name, one[0])):
                    beneath = glob.glob(rest, root_dir=entry.path, include_hidden=True)
                    found += (f"{entry.path}/{name}" for name in beneath)
                if entry.name not in _PASSED_OVER:
                    folders.append(entry.path)
    hidden = (
        path
        for path in found
        if os.path.realpath(path) == path
        and not os.path.lexists(f"{path}/{_ENVIRONMENT}")
        and not any(f"{root}/".startswith(f"{path}/") for root in roots)
    )
    return tuple(dict.fromkeys(hidden)), left > 0


def entries_of(folder: str, most: int | None = None) -> list[os.DirEntry[str]]:
    """Return what is in a folder, ``most`` of it, by name; nothing of what we can't list."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return []
