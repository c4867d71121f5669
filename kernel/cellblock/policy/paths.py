"""Paths in a policy: placeholders, ``~`` and relative paths, expanded once.

Grammar of an entry::

    entry       = [ placeholder | "~" ] text [ "?" ] | pattern
    placeholder = "{project}" | "{checkout}" | "{scratch}"

A relative entry begins at the policy file's folder. An entry with a trailing ``?`` is dropped if it
does not exist.

Links are resolved once, in ``resolve``, so that the path which is judged and shown is the one that
is enforced. Cells may replace a folder by a link after that. So a resolved path is never resolved
again: it is opened by ``descriptors.open_unlinked``, to which a link is something missing (promise
P13).

An entry of ``read_deny_paths`` that begins with ``**/`` is a pattern. A file of this name is not
readable, wherever it is beneath a root that the policy reads, unless the policy names it as a root
itself. ``@secrets`` stands for all of ``SECRET_NAMES``: names under which projects keep secrets,
which no session keeps either.

Files that match patterns are found when a session begins (``find_secret_files``). Beneath a layer,
names that do not exist yet in the notebook's folder and above it are hidden, too
(``backends.layers``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fnmatch
import functools
import glob
import itertools
import os
import pwd
import re
import stat
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.descriptors import open_unlinked, stat_unlinked
from cellblock.errors import PolicyError, together
from cellblock.policy.credentials import named_by
from cellblock.policy.folders import cache_folder, data_folder, shipped_folder
from cellblock.policy.model import PATHS
from cellblock.policy.vocabulary import PLACEHOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cellblock.policy.model import Policy


#: The start of a pattern.
ANYWHERE: Final = "**/"
GROUP: Final = "@secrets"
#: The name of a file or folder, or several joined by "/", with the wildcards of fnmatch.
SECRET_NAMES: Final = {
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
SECRETS: Final = tuple(f"{ANYWHERE}{name}" for name in SECRET_NAMES)

#: Entries that ``find_secret_files`` looks at, which takes about 50 ms.
MOST_ENTRIES: Final = 20_000
#: Folders that aren't searched: programs fill them, and nobody keeps a project's secrets there.
_NOT_SEARCHED: Final = frozenset({".git", "__pycache__", "node_modules", "site-packages"})
#: The file that makes a folder a virtual environment, which may be called ``.env``.
_ENVIRONMENT: Final = "pyvenv.cfg"


def expand_group(entries: Iterable[str]) -> list[str]:
    """Return a list's entries, once each, with ``@secrets`` replaced by its patterns."""
    expanded = chain.from_iterable(SECRETS if entry == GROUP else (entry,) for entry in entries)
    return list(dict.fromkeys(expanded))


def is_pattern(entry: str) -> bool:
    """Return whether an entry of ``read_deny_paths`` is a pattern, not a path."""
    return entry.startswith(ANYWHERE)


def pattern_problem(entry: str) -> str:
    """Return what is wrong with a pattern; empty if it is valid."""
    parts = entry.removeprefix(ANYWHERE).split("/")
    if not all(parts) or not {".", "..", "**"}.isdisjoint(parts):
        return "not a name that may lie anywhere"
    return "" if parts[0].strip("*?") else "it would hide everything"


def pattern_of(path: str, patterns: Iterable[str]) -> str:
    """Return the pattern that denies ``path``, which is relative to a root; empty if none does.

    A pattern that matches a folder denies all paths in it.
    """
    parts, patterns = path.split("/"), tuple(patterns)
    if not any(map(_first_names(patterns).fullmatch, parts)):  # most paths: 4 µs instead of 70
        return ""
    for pattern in filter(is_pattern, patterns):
        names = pattern.removeprefix(ANYWHERE).split("/")
        for start in range(len(parts) - len(names) + 1):
            if all(map(fnmatch.fnmatchcase, parts[start:], names)):
                return pattern
    return ""


@functools.cache
def _first_names(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for the first names of all patterns, compiled once for each policy."""
    names = (
        pattern.removeprefix(ANYWHERE).split("/")[0] for pattern in patterns if is_pattern(pattern)
    )
    return re.compile("|".join(map(fnmatch.translate, names)) or r"(?!)")


def pattern_beneath(path: str, roots: Iterable[str], patterns: Iterable[str]) -> str:
    """Return the pattern that denies a path beneath the nearest of ``roots``; empty if none."""
    around = [root for root in roots if f"{path}/".startswith(f"{root.rstrip('/')}/")]
    return pattern_of(path.removeprefix(max(around, key=len, default=path)).strip("/"), patterns)


def names_without_wildcards(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the patterns that have no wildcards."""
    names = (pattern.removeprefix(ANYWHERE) for pattern in patterns if is_pattern(pattern))
    return tuple(name for name in names if not glob.has_magic(name))


def find_secret_files(
    roots: Sequence[str], patterns: Sequence[str], *, filled: Sequence[str] = ()
) -> tuple[tuple[str, ...], bool]:
    """Return the files beneath ``roots`` that patterns match, and whether all were looked at.

    Outer folders are searched first, and folders that cells may have ``filled`` after all others:
    otherwise cells could use up ``MOST_ENTRIES``, and so choose what is not looked at. Links are
    neither followed nor returned, since their targets have names of their own. A path that is a
    root, or contains one, is left out, and so are virtual environments.
    """
    names = [pattern.removeprefix(ANYWHERE) for pattern in patterns if is_pattern(pattern)]
    single = re.compile("|".join(map(fnmatch.translate, names)) or r"(?!)")
    inner = [name.partition("/") for name in names if "/" in name]
    # Names at the top of a root are looked up one by one, since the root may have more entries than
    # are looked at.
    tops = (
        f"{root.rstrip('/')}/{name}" for root in roots for name in names_without_wildcards(patterns)
    )
    matches, remaining = list(filter(os.path.lexists, tops)), MOST_ENTRIES
    starts = [os.path.normpath(root) for root in roots if names]
    later = deque(root for root in starts if any(within(root, folder) for folder in filled))
    folders = deque(root for root in starts if root not in later)
    while (folders or later) and remaining > 0:
        for entry in entries_of((folders or later).popleft(), remaining + 1):
            remaining -= 1
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and os.path.lexists(f"{entry.path}/{_ENVIRONMENT}"):
                continue
            if single.fullmatch(entry.name) and not entry.is_symlink():
                matches.append(entry.path)
            elif is_folder:
                beneath = list(islice(_matching_beneath(entry, inner), max(0, remaining)))
                remaining -= len(beneath)
                matches += beneath
                if entry.name in _NOT_SEARCHED:
                    continue
                if entry.path not in filled:
                    folders.append(entry.path)
                elif entry.path not in later:
                    later.append(entry.path)
    hidden = (
        path
        for path in matches
        if os.path.realpath(path) == path
        and not os.path.lexists(f"{path}/{_ENVIRONMENT}")
        and not any(f"{root}/".startswith(f"{path}/") for root in roots)
    )
    return tuple(dict.fromkeys(hidden)), remaining > 0


def _matching_beneath(
    entry: os.DirEntry[str], patterns: Iterable[tuple[str, str, str]]
) -> Iterator[str]:
    """Yield the files in a folder that patterns of two or more names match."""
    for first, _, inner in patterns:
        if fnmatch.fnmatchcase(entry.name, first):
            for name in glob.iglob(inner, root_dir=entry.path, include_hidden=True):
                yield f"{entry.path}/{name}"


def entries_of(folder: str, most: int | None = None) -> list[os.DirEntry[str]]:
    """Return up to ``most`` entries of a folder, sorted by name; none if it can't be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return []


#: The start of entries that stay as written if no kernel runs.
_SCRATCH: Final = "{scratch}"
#: The starts of entries in the project.
_OF_PROJECT: Final = ("{project}", "{checkout}")
_PROJECT: Final = re.compile(r"^\{(?:project|checkout)\}")
#: The field that may have patterns.
_DENIED: Final = "read_deny_paths"
#: The characters that make an artifact's path a glob pattern.
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Places:
    """The places that entries of one policy file are resolved with.

    ``file`` is named in errors. Relative entries begin at ``folder``. ``project`` and ``scratch``
    stand for the placeholders; ``scratch`` is None if no kernel runs. Unless cells will run
    ``here``, folders and packages need not exist. Without a project (``has_project``), cells have
    no folder but ``scratch``, and ``project`` is only used for the host's own files.
    """

    file: str
    folder: Path
    project: Path
    scratch: Path | None
    here: bool = True
    has_project: bool = True

    def error(self, message: str, key: str, entry: str, remedy: str) -> PolicyError:
        """Return the error for an entry of the file."""
        return PolicyError(message, file=self.file, key=key, value=repr(entry), remedy=remedy)


def expand(entry: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return an entry as an absolute path, or None for an optional one that does not exist.

    Raises PolicyError as ``resolve`` and ``present`` do.
    """
    path = resolve(entry, key=key, places=places)
    return present(entry, path, key=key, places=places, must_exist=must_exist)


def resolve(entry: str, *, key: str, places: Places) -> str:
    """Return an entry as an absolute path without links. This is the only place that follows them.

    A pattern stays as written, and so does ``{scratch}`` if there is no scratch folder. Raises
    PolicyError for an unknown placeholder or user.
    """
    if entry.startswith("@") and key.endswith(_DENIED):
        remedy = f"Write {GROUP}, or ./{entry} for a file."
        raise places.error("no such group", key, entry, remedy)
    if is_pattern(entry) and key.endswith(_DENIED):
        if problem := pattern_problem(entry):
            raise places.error(problem, key, entry, "Write **/ and a name, as in **/*.key.")
        return entry
    text = _fill_placeholder(entry.removesuffix("?"), key, places)
    if text.startswith(_SCRATCH):
        return text
    return os.path.realpath(places.folder / _home(text, key, places))


def present(entry: str, path: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return the path that ``entry`` was resolved to, or None if it is optional and missing.

    If ``must_exist``, raises PolicyError for any other path that is missing or can't be granted: it
    is not a file or folder, can't be read, or a link in the project leads out of the project.
    """
    if path.startswith(_SCRATCH) or is_pattern(path):
        return path
    with contextlib.suppress(OSError):
        mode = stat_unlinked(path).st_mode
        if must_exist:
            _check_grantable(entry, path, mode, key=key, places=places)
        return path
    if entry.endswith("?"):
        return None
    if must_exist:
        remedy = f"Create {path}, or end the entry with ? if it may be missing."
        raise places.error("no such file or folder", key, entry, remedy)
    return path


def expand_pattern(entry: str, *, key: str, places: Places) -> str:
    """Return a glob pattern, absolute if it begins with a placeholder, ``~`` or ``/``.

    Any other is relative to the folder that cells run in, which is not known here. Links before its
    first wildcard are resolved. Raises PolicyError as ``expand`` does.
    """
    text = _home(_fill_placeholder(entry, key, places), key, places)
    if not text.startswith("/"):
        return text
    parts = text.split("/")
    plain = next(
        (index for index, part in enumerate(parts) if _WILD.intersection(part)), len(parts) - 1
    )
    folder = os.path.realpath("/".join(parts[:plain]) or "/")
    return "/".join([folder.rstrip("/"), *parts[plain:]])


def expand_own(entry: str, *, key: str, places: Places) -> str:
    """Return the entry of a host's own folder or file, which need not exist, as an absolute path.

    Only here may entries begin with ``{cache}``, ``{data}`` or ``{shipped}``. A link at the path's
    end is not resolved, so that it is refused when the path is opened. Raises PolicyError as
    ``expand`` does.
    """
    head, brace, tail = entry.partition("}")
    folder = _OWN.get(head + brace)
    if folder is not None and tail[:1] in ("", "/"):
        unresolved = folder() + tail
    else:
        unresolved = _home(_fill_placeholder(entry, key, places), key, places)
    named = os.path.normpath(places.folder / unresolved)
    path = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
    if _leads_out(entry, path, places):
        message = f"a link leads out of the project folder, to {path}"
        raise places.error(message, key, entry, "Put a folder in the link's place.")
    return path


#: The placeholders for the host's own folders, for entries of its own files only.
_OWN: Final[dict[str, Callable[[], str]]] = {
    "{data}": data_folder,
    "{shipped}": shipped_folder,
    "{cache}": cache_folder,
}


def _check_grantable(entry: str, path: str, mode: int, *, key: str, places: Places) -> None:
    """Raise PolicyError for an existing path that can't be granted to cells."""
    if _leads_out(entry, path, places):
        message = f"a link leads out of the project folder, to {path}"
        remedy = "Put a folder in the link's place, or name where it leads in a policy of your own."
    elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        message = "neither a folder nor a file"
        remedy = "Name the folder or the file that cells are to have."
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        message = f"the user who runs the kernel can't read {path}"
        remedy = f"Change its mode, or take it out of {key}."
    else:
        return
    raise places.error(message, key, entry, remedy)


def _leads_out(entry: str, path: str, places: Places) -> bool:
    """Return whether a link leads an entry in the project out of the project.

    Then the author of the project would choose what is granted, and not the operator.
    """
    name, _, tail = entry.removesuffix("?").partition("}")
    if name not in ("{project", "{checkout"):
        return False
    folder = places.project if name == "{project" else checkout(places.project)
    project = os.path.realpath(folder)
    named = os.path.normpath(f"{project}/{tail}")
    return within(named, project) and not within(path, project)


def within(path: str, folder: str) -> bool:
    """Return whether ``path`` is ``folder`` or lies beneath it; both canonical."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _fill_placeholder(text: str, key: str, places: Places) -> str:
    """Return an entry with its placeholder replaced. Raises PolicyError for an unknown one."""
    if not text.startswith("{"):
        return text
    head, _, tail = text.partition("}")
    name = head + "}"
    if name not in PLACEHOLDERS or tail[:1] not in ("", "/"):
        remedy = f"Begin with one of {', '.join(PLACEHOLDERS)}, or write ./{text} for a file."
        raise places.error("unknown placeholder", key, text, remedy)
    if name == "{checkout}":
        return str(checkout(places.project)) + tail
    folder = places.project if name == "{project}" else places.scratch
    return text if folder is None else str(folder) + tail


#: Files at the top of a project.
_OF_A_PROJECT: Final = (
    "LICENSE", "LICENSE.md", "LICENSE.txt", "environment.yml", "pyproject.toml",
    "requirements.txt", "setup.py",
)  # fmt: skip


def checkout(project: Path) -> Path:
    """Return the nearest folder at or above ``project`` that contains ``.git``.

    Without one, as in a project that was unpacked from an archive, return the nearest folder that
    contains one of a project's usual files, and otherwise ``project``. It is never the home folder
    or a folder above that. Somebody who can put such a file above the project would choose what is
    readable, so a file counts only if nobody but the user, root and the project's owner could have
    put it there (as git does since CVE-2022-24765).
    """
    project = Path(os.path.realpath(project))
    folders = (project, *project.parents)
    candidates = list(itertools.takewhile(lambda folder: not _holds_a_home(str(folder)), folders))
    for names in ((".git",), _OF_A_PROJECT):
        for folder in candidates:
            if any(_is_trusted(folder / name, project) for name in names):
                return folder
    return project


def _holds_a_home(folder: str) -> bool:
    """Return whether a folder is or contains the home folder of HOME, or the user's real one."""
    homes = [os.path.expanduser("~"), *_real_home()]
    # A user without a home folder has / or one that does not exist.
    real = {os.path.realpath(home) for home in homes if os.path.isdir(home)} - {"/"}
    return any(within(home, folder) for home in real)


def _real_home() -> Iterable[str]:
    """Return the user's home folder from the system, whatever HOME says; empty without one."""
    with contextlib.suppress(KeyError):
        return (pwd.getpwuid(os.getuid()).pw_dir,)
    return ()


def _is_trusted(marker: Path, project: Path) -> bool:
    """Return whether a file exists, and only the user, root or the project's owner put it there."""
    try:
        status, folder, owner = marker.lstat(), marker.parent.stat(), project.stat().st_uid
    except OSError:
        return False
    shut = marker.parent == project or not folder.st_mode & stat.S_IWOTH
    return shut and {status.st_uid, folder.st_uid} <= {os.geteuid(), 0, owner}


def _home(text: str, key: str, places: Places) -> str:
    """Return an entry with ``~`` replaced. Raises PolicyError for an unknown user."""
    path = os.path.expanduser(text)
    if text and not path.startswith("~") and "\0" not in path:
        return path
    message = "not a path" if not path.startswith("~") else "no such user"
    remedy = "Write an absolute path, one relative to this file, or one below ~."
    if path.partition("/")[0] == "~":
        message = "the user who runs the kernel has no home folder"
        remedy = "Set HOME where the kernel is started."
    raise places.error(message, key, text, remedy)


# --- links that a path leads through --------------------------------------------------------------
#
# A backend that shows guests only the roots must make these links again. And if cells can write to
# the folder of a link, they decide where the path leads, as if they could write to the file itself.

#: Links that a path may lead through (path_resolution(7)).
_MAX_LINKS: Final = 40


def parts(path: str) -> tuple[str, ...]:
    """Return the names that make up ``path``."""
    return tuple(filter(None, path.split("/")))


def links(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each link that one of the paths leads through, and its target; once each."""
    seen = set[str]()
    folders = set[str]()
    for name in names:
        if name.startswith("/"):
            targets = follow(name, folders)[1]
            yield from ((path, target) for path, target in targets.items() if path not in seen)
            seen.update(targets)


def follow(name: str, folders: set[str] | None = None) -> tuple[str, dict[str, str]]:
    """Return where an absolute path leads, and the target of each link on the way.

    ``folders`` are paths that are known not to be links; others that are found not to be are added.
    """
    folders = set() if folders is None else folders
    targets = dict[str, str]()
    pending, current, most = list(reversed(parts(name))), "/", _MAX_LINKS
    above, _, last = name.rpartition("/")
    if above in folders:  # most paths are in a folder that was followed before
        pending, current = [last], above
    while pending and most:
        part = pending.pop()
        current = os.path.normpath(os.path.join(current, part))
        if current in folders or not os.path.islink(current):
            folders.add(current)
            continue
        targets[current] = target = os.readlink(current)
        pending += reversed(parts(target))
        current = "/" if target.startswith("/") else os.path.dirname(current)
        most -= 1
    return "/".join([current.rstrip("/"), *reversed(pending)]), targets


def open_named(name: str | os.PathLike[str], writable: Iterable[str], flags: int) -> int:
    """Open a path that the user's program names, which may lead through links.

    A link in a folder that cells have written to (``writable``) is refused: a cell could have put
    it there, to lead the program to a file that cells can't reach. Raises OSError: ELOOP for such a
    link, and for one that is put in the way meanwhile.
    """
    path = os.path.join(os.getcwd(), name)
    end, passed = follow(path)
    if link := next((hop for hop in passed for root in writable if within(hop, root)), None):
        message = f"a link leads there that cells could change: {link}"
        raise OSError(errno.ELOOP, message, path)
    return open_unlinked(end, flags)


# --- all of a policy's paths ----------------------------------------------------------------------


def expand_paths(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths expanded. Raises PolicyError with all that can't be."""
    wrong = list[PolicyError]()

    def expanded(entry: str, key: str, expand: Callable[..., str | None]) -> str | None:
        """Return a path; None if it is optional and missing, or wrong."""
        try:
            return expand(entry, key=key, places=places)
        except PolicyError as error:
            wrong.append(error)
            return None

    def host_path(key: str, entry: str) -> str:
        return expanded(entry, key, expand_own) or entry

    def operation_path(entry: str, key: str) -> str | None:
        return expanded(entry, key, _of_operation)

    paths: dict[str, Any] = {}
    for key, must_exist in PATHS.items():
        expand_one = functools.partial(expand, must_exist=must_exist)
        entries = _written_paths(policy, key, places)
        candidates = (expanded(entry, key, expand_one) for entry in entries)
        paths[key] = tuple(dict.fromkeys(path for path in candidates if path is not None))
    # Without exports the folder of artifacts isn't used, and two policies don't differ by it.
    if policy.artifact_export_paths:
        key = "artifact_export_paths"
        exports = getattr(policy, key)
        if not places.has_project:
            exports = [_PROJECT.sub(_SCRATCH, entry) for entry in exports]
        patterns = (expanded(entry, key, expand_pattern) for entry in exports)
        paths |= {
            key: tuple(path for path in patterns if path is not None),
            "artifact_folder": host_path("artifact_folder", policy.artifact_folder),
        }
    expanded_policy = policy.replace(
        **paths,
        **_with_own_places(policy, host_path),
        audit=dataclasses.replace(
            policy.audit, folder=host_path("audit.folder", policy.audit.folder)
        ),
        ops=policy.operations and policy.operations.with_paths(operation_path),
    )
    if wrong:
        # An error that is the same for each entry, such as a missing home folder, is shown once.
        alike = {(error.key, error.message, error.remedy): error for error in reversed(wrong)}
        raise together([*alike.values()][::-1])
    return expanded_policy


def _written_paths(policy: Policy, key: str, places: Places) -> Iterator[str]:
    """Yield the entries of a field that count here.

    Without a project, those in the project do not. Denied paths at home count in both home folders,
    and ``{checkout}`` doesn't grant a home folder.
    """
    for path in getattr(policy, key):
        if not places.has_project and path.startswith(_OF_PROJECT):
            continue
        if key == _DENIED:
            yield from _in_both_homes(path)
        else:
            yield from _without_home(path, places.project, policy.read_deny_paths)


def _of_operation(entry: str, *, key: str, places: Places) -> str | None:
    """Return a path of an operation. Raises PolicyError as ``expand`` does."""
    if not places.has_project and entry.startswith(_OF_PROJECT):
        raise places.error("there is no project", key, entry, "Name one: project=, --project.")
    if entry.startswith("{scratch}"):
        remedy = "Name a folder of yours: cells use {scratch} themselves."
        raise places.error("cells can use that folder without the host", key, entry, remedy)
    return expand(entry, key=key, places=places, must_exist=True)


def _without_home(entry: str, project: Path, denied: Sequence[str]) -> Iterable[str]:
    """Return an entry; ``{checkout}`` as the files of the project folder if home is in that."""
    if entry == "{checkout}" and _holds_a_home(os.path.realpath(project)):
        return _home_files(project, denied)
    return (entry,)


def _in_both_homes(entry: str) -> Iterable[str]:
    """Return an entry of denied paths; one at home also for the real home, if HOME is another."""
    if not entry.startswith("~/"):
        return (entry,)
    real = (f"{home.rstrip('/')}{entry[1:]}" for home in _real_home() if os.path.isdir(home))
    return (entry, *real)


def _home_files(project: Path, denied: Sequence[str]) -> list[str]:
    """Return the readable files in a folder that are not hidden and not denied by their names."""
    with os.scandir(os.path.realpath(project)) as entries:
        return sorted(
            entry.path
            for entry in entries
            if not entry.name.startswith(".")
            and not pattern_of(entry.name, denied)
            and entry.is_file(follow_symlinks=False)
            and os.access(entry.path, os.R_OK)
        )


def reads_home_files(policy: Policy, project: Path) -> bool:
    """Return whether a policy reads the files that ``{checkout}`` stands for in a home folder."""
    roots = policy.filesystem_read_roots
    confined = policy.mode == "confined"
    if not _holds_a_home(os.path.realpath(project)) or any(
        within(str(project), root) for root in roots
    ):
        return False
    files = _home_files(project, policy.read_deny_paths)
    return set(files) <= set(roots) and (bool(files) or confined)


def expand_paths_leniently(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths as they would be on this machine, if nothing runs under it.

    None of the paths must exist. An entry that can't be resolved here stays as it is written.
    """

    def path(entry: str, key: str) -> str:
        plain = entry.removesuffix("?")
        try:
            return expand(plain, key=key, places=places, must_exist=False) or plain
        except PolicyError:
            return plain

    def own(key: str, entry: str) -> str:
        try:
            return expand_own(entry, key=key, places=places)
        except PolicyError:
            return entry

    paths = {
        key: tuple(dict.fromkeys(path(entry, key) for entry in getattr(policy, key)))
        for key in PATHS
    }
    return policy.replace(**paths, **_with_own_places(policy, own))


def _with_own_places(policy: Policy, host_path: Callable[[str, str], str]) -> dict[str, Any]:
    """Return the fields with the host's own paths, each replaced by ``host_path(key, entry)``."""
    approval = policy.approval
    templates = policy.templates
    # The file of a credential may be a link, for example if Kubernetes mounts it. The link is
    # followed here, and never again.
    credentials = {
        name: dataclasses.replace(
            credential, value=f"file:{os.path.realpath(host_path(field, path))}"
        )
        for name, credential in policy.credentials.items()
        for field, path in ((f"credentials.{name}.value", named_by(credential.value, "file")),)
        if path
    }
    return {
        "credentials": policy.credentials | credentials,
        "approval": dataclasses.replace(
            approval,
            folder=host_path("approval.folder", approval.folder),
            key=host_path("approval.key", approval.key),
        ),
        "templates": dataclasses.replace(
            templates,
            folders=tuple(host_path("templates.folders", entry) for entry in templates.folders),
        ),
    }


def without_scratch(policy: Policy, scratch: Path) -> Policy:
    """Return a policy with ``{scratch}`` for its kernel's folder: all kernels have one digest."""
    return _renamed(policy, str(scratch), "{scratch}")


def with_scratch(policy: Policy, scratch: Path) -> Policy:
    """Return a policy from ``without_scratch`` with this kernel's scratch folder."""
    return _renamed(policy, "{scratch}", str(scratch))


def _renamed(policy: Policy, old: str, new: str) -> Policy:
    paths = {
        key: tuple(entry.replace(old, new, 1) for entry in getattr(policy, key))
        for key in (*PATHS, "artifact_export_paths")
    }
    return policy.replace(**paths)


def host_write_roots(policy: Policy) -> dict[str, tuple[str, ...]]:
    """Return the folders that the host writes to for cells, by the names of their fields."""
    table = policy.operations.write_file if policy.operations is not None else None
    roots = {} if table is None else {"ops.write_file.roots": table.roots}
    if policy.artifact_export_paths:
        roots["artifact_folder"] = (policy.artifact_folder,)
    return roots


def refuse_writable(path: Path, policy: Policy, spec: str) -> None:
    """Raise PolicyError if cells could rewrite the policy's own file for the next start."""
    names = (str(path.resolve()), *(link for link, _ in links([str(path.absolute())])))
    writable = host_write_roots(policy) | {"filesystem_write_roots": policy.filesystem_write_roots}
    for key, root in ((key, root) for key, roots in writable.items() for root in roots):
        if any(within(name, root) for name in names):
            message = "cells could rewrite this policy file"
            remedy = "Move the file out of the folders that cells may write."
            raise PolicyError(message, file=spec, key=key, value=repr(root), remedy=remedy)
