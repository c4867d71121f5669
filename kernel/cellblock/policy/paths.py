"""Paths in a policy: placeholders, ``~`` and relative paths, expanded once.

Grammar of an entry::

    entry       = [ placeholder | "~" ] text [ "?" ] | pattern
    placeholder = "{project}" | "{checkout}" | "{scratch}"

A relative entry is relative to the policy file's folder. A trailing ``?`` drops the entry when
it does not exist. A pattern may stand where paths are denied:
names under which projects keep secrets, which reading leaves out and no session keeps.

Links are resolved once, in ``resolve``: what is decided and shown is what is enforced. Cells may
put a link in a folder's place after that. So the path that came of it is never resolved again: it
is opened by ``descriptors.open_unlinked``, to which a link is something missing (promise P13).

An entry of ``read_deny_paths`` that begins with ``**/`` is a pattern: what has this name is not
readable, wherever it lies beneath a root that the policy reads. A policy that names such a file
itself, as a root, says otherwise. ``@secrets`` stands for all of ``SECRET_NAMES``.

Where it lies is looked up when a session begins (``find_secret_files``). Beneath a layer, names
that are missing in the notebook's folder and above are hidden beforehand (``backends.layers``).
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


#: What a pattern begins with.
ANYWHERE: Final = "**/"
GROUP: Final = "@secrets"
#: A name, or several in a row; wildcards as in fnmatch.
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

#: Entries that ``find_secret_files`` looks at: they take about 50 ms.
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


def find_secret_files(
    roots: Sequence[str], patterns: Sequence[str], *, filled: Sequence[str] = ()
) -> tuple[tuple[str, ...], bool]:
    """Return what lies beneath ``roots`` under such names, and whether all of them was looked at.

    Outer folders come first, and folders that cells may have ``filled`` after all others: else
    cells decide what is not looked at. No link is followed, nor one returned: where it leads has a
    name of its own. Left out is what a root is or lies in, and what is a virtual environment.
    """
    names = [pattern.removeprefix(ANYWHERE) for pattern in patterns if is_pattern(pattern)]
    single = re.compile("|".join(map(fnmatch.translate, names)) or r"(?!)")
    inner = [name.partition("/") for name in names if "/" in name]
    # At the top of a root by name: a folder may have more entries than are looked at.
    tops = (
        f"{root.rstrip('/')}/{name}" for root in roots for name in names_without_wildcards(patterns)
    )
    found, left = list(filter(os.path.lexists, tops)), MOST_ENTRIES
    begin = [os.path.normpath(root) for root in roots if names]
    later = deque(root for root in begin if any(within(root, folder) for folder in filled))
    folders = deque(root for root in begin if root not in later)
    while (folders or later) and left > 0:
        for entry in entries_of((folders or later).popleft(), left + 1):
            left -= 1
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and os.path.lexists(f"{entry.path}/{_ENVIRONMENT}"):
                continue
            if single.fullmatch(entry.name) and not entry.is_symlink():
                found.append(entry.path)
            elif is_folder:
                beneath = list(islice(_matching_beneath(entry, inner), max(0, left)))
                left -= len(beneath)
                found += beneath
                if entry.name in _PASSED_OVER:
                    continue
                if entry.path not in filled:
                    folders.append(entry.path)
                elif entry.path not in later:
                    later.append(entry.path)
    hidden = (
        path
        for path in found
        if os.path.realpath(path) == path
        and not os.path.lexists(f"{path}/{_ENVIRONMENT}")
        and not any(f"{root}/".startswith(f"{path}/") for root in roots)
    )
    return tuple(dict.fromkeys(hidden)), left > 0


def _matching_beneath(
    entry: os.DirEntry[str], patterns: Iterable[tuple[str, str, str]]
) -> Iterator[str]:
    """Yield what lies in a folder under a name of two parts or more."""
    for first, _, rest in patterns:
        if fnmatch.fnmatchcase(entry.name, first):
            for name in glob.iglob(rest, root_dir=entry.path, include_hidden=True):
                yield f"{entry.path}/{name}"


def entries_of(folder: str, most: int | None = None) -> list[os.DirEntry[str]]:
    """Return what is in a folder, ``most`` of it, by name; nothing of what we can't list."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return []


#: What an entry begins with that stays as written where no kernel runs.
_SCRATCH: Final = "{scratch}"
#: What entries begin with that name a folder of the project.
_OF_PROJECT: Final = ("{project}", "{checkout}")
_PROJECT: Final = re.compile(r"^\{(?:project|checkout)\}")
#: The field that may have patterns.
_DENIED: Final = "read_deny_paths"
#: What makes a pattern of a path.
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Places:
    """What the placeholders stand for; ``scratch`` is None where no kernel runs.

    Where nothing is to run ``here``, neither folders nor packages need be. Without a project cells
    have no folder but ``scratch``, and ``project`` is where the host puts what is its own.
    """

    file: str
    folder: Path
    project: Path
    scratch: Path | None
    here: bool = True
    has_project: bool = True

    def error(self, message: str, key: str, entry: str, remedy: str) -> PolicyError:
        """Return what is wrong with an entry of the file."""
        return PolicyError(message, file=self.file, key=key, value=repr(entry), remedy=remedy)


def expand(entry: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return the entry as an absolute path, or None for an optional one that is not there.

    Raises PolicyError as ``resolve`` and ``present`` do.
    """
    path = resolve(entry, key=key, places=places)
    return present(entry, path, key=key, places=places, must_exist=must_exist)


def resolve(entry: str, *, key: str, places: Places) -> str:
    """Return the entry as an absolute path without links: the only time that they are followed.

    A pattern stays as written, and without a scratch folder an entry that names it.
    Raises PolicyError for an unknown placeholder or user.
    """
    if entry.startswith("@") and key.endswith(_DENIED):
        remedy = f"Write {GROUP}, or ./{entry} for a file."
        raise places.error("no such group", key, entry, remedy)
    if is_pattern(entry) and key.endswith(_DENIED):
        if problem := pattern_problem(entry):
            raise places.error(problem, key, entry, "Write **/ and a name, as in **/*.key.")
        return entry
    text = _placed(entry.removesuffix("?"), key, places)
    if text.startswith(_SCRATCH):
        return text
    return os.path.realpath(places.folder / _home(text, key, places))


def present(entry: str, path: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return the path that ``entry`` was resolved to, or None for an optional one not there.

    Raises PolicyError for a path that has to exist and does not, and for one that can't be
    granted: it is no file or folder, can't be read, or a link in the project leads out of it.
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
    """Return a glob pattern, absolute where it begins with a placeholder, ``~`` or ``/``.

    Any other is relative to the folder that cells run in, which is not known here. What stands
    before its first wildcard has its links resolved. Raises PolicyError as ``expand``.
    """
    text = _home(_placed(entry, key, places), key, places)
    if not text.startswith("/"):
        return text
    parts = text.split("/")
    plain = next((at for at, part in enumerate(parts) if _WILD.intersection(part)), len(parts) - 1)
    folder = os.path.realpath("/".join(parts[:plain]) or "/")
    return "/".join([folder.rstrip("/"), *parts[plain:]])


def expand_own(entry: str, *, key: str, places: Places) -> str:
    """Return a folder or file of the host's own, which need not exist, as an absolute path.

    ``{cache}``, ``{data}`` and ``{shipped}`` are understood here and nowhere else. A link at the
    path's end is left to be refused by whoever opens it. Raises PolicyError as ``expand``.
    """
    head, brace, tail = entry.partition("}")
    folder = _OWN.get(head + brace)
    if folder is not None and tail[:1] in ("", "/"):
        text = folder() + tail
    else:
        text = _home(_placed(entry, key, places), key, places)
    named = os.path.normpath(places.folder / text)
    path = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
    if _led_out(entry, path, places):
        what = f"a link leads out of the project folder, to {path}"
        raise places.error(what, key, entry, "Put a folder in the link's place.")
    return path


#: Where the host keeps what is its own; only the host's own folders may be there.
_OWN: Final[dict[str, Callable[[], str]]] = {
    "{data}": data_folder,
    "{shipped}": shipped_folder,
    "{cache}": cache_folder,
}


def _check_grantable(entry: str, path: str, mode: int, *, key: str, places: Places) -> None:
    if _led_out(entry, path, places):
        what = f"a link leads out of the project folder, to {path}"
        remedy = "Put a folder in the link's place, or name where it leads in a policy of your own."
    elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        what = "neither a folder nor a file"
        remedy = "Name the folder or the file that cells are to have."
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        what = f"the user who runs the kernel can't read {path}"
        remedy = f"Change its mode, or take it out of {key}."
    else:
        return
    raise places.error(what, key, entry, remedy)


def _led_out(entry: str, path: str, places: Places) -> bool:
    """Whether whoever made the project, not the operator, chose where ``entry`` is."""
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


def _placed(text: str, key: str, places: Places) -> str:
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


#: Files that lie at the top of a project.
_OF_A_PROJECT: Final = (
    "LICENSE", "LICENSE.md", "LICENSE.txt", "environment.yml", "pyproject.toml",
    "requirements.txt", "setup.py",
)  # fmt: skip


def checkout(project: Path) -> Path:
    """Return the nearest folder at or above ``project`` that holds ``.git``.

    Without one, as in what was unpacked from an archive, the nearest that holds a project's own
    files, else ``project``. Never the home folder, nor one that it lies in. Whoever could put such
    a file above the project would choose what is read, so it counts only where none but the user,
    root and the project's owner could (as for git since CVE-2022-24765).
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
    """Whether a home folder of the user's is this or lies in it: that of HOME, and the real one."""
    homes = [os.path.expanduser("~"), *_real_home()]
    # That of users without one is / or does not exist.
    real = {os.path.realpath(home) for home in homes if os.path.isdir(home)} - {"/"}
    return any(within(home, folder) for home in real)


def _real_home() -> Iterable[str]:
    """Return the home folder that the system has of the user, whatever HOME says, if it has one."""
    with contextlib.suppress(KeyError):
        return (pwd.getpwuid(os.getuid()).pw_dir,)
    return ()


def _is_trusted(marker: Path, project: Path) -> bool:
    """Whether a file is there, and nobody put it there who may not choose what is read."""
    try:
        marked, folder, owner = marker.lstat(), marker.parent.stat(), project.stat().st_uid
    except OSError:
        return False
    shut = marker.parent == project or not folder.st_mode & stat.S_IWOTH
    return shut and {marked.st_uid, folder.st_uid} <= {os.geteuid(), 0, owner}


def _home(text: str, key: str, places: Places) -> str:
    path = os.path.expanduser(text)
    if text and not path.startswith("~") and "\0" not in path:
        return path
    what = "not a path" if not path.startswith("~") else "no such user"
    remedy = "Write an absolute path, one relative to this file, or one below ~."
    if path.partition("/")[0] == "~":
        what = "the user who runs the kernel has no home folder"
        remedy = "Set HOME where the kernel is started."
    raise places.error(what, key, text, remedy)


# --- links that a name leads through --------------------------------------------------------------
#
# Where only roots are shown, these links have to be made again. And whoever may write where a link
# stands decides what its name means, so such a name is as good as written to.

#: Links that a path may lead through (path_resolution(7)).
_MAX_LINKS: Final = 40


def parts(path: str) -> tuple[str, ...]:
    """Return the names that make up ``path``."""
    return tuple(filter(None, path.split("/")))


def links(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield every link that one of ``names`` leads through, and what it says; once each."""
    seen, folders = set[str](), set[str]()
    for name in names:
        if name.startswith("/"):
            found = follow(name, folders)[1]
            yield from ((at, target) for at, target in found.items() if at not in seen)
            seen.update(found)


def follow(name: str, folders: set[str] | None = None) -> tuple[str, dict[str, str]]:
    """Return where an absolute name leads, and the links on the way with what each says.

    ``folders`` are known to be no links; what else is none is added.
    """
    folders = set() if folders is None else folders
    found = dict[str, str]()
    left, at, most = list(reversed(parts(name))), "/", _MAX_LINKS
    above, _, last = name.rpartition("/")
    if above in folders:  # most names are beside others
        left, at = [last], above
    while left and most:
        part = left.pop()
        at = os.path.normpath(os.path.join(at, part))
        if at in folders or not os.path.islink(at):
            folders.add(at)
            continue
        found[at] = target = os.readlink(at)
        left += reversed(parts(target))
        at = "/" if target.startswith("/") else os.path.dirname(at)
        most -= 1
    return "/".join([at.rstrip("/"), *reversed(left)]), found


def open_named(name: str | os.PathLike[str], written: Iterable[str], flags: int) -> int:
    """Return a descriptor of what the user's program names, which may lead through links.

    Not through one in a folder that is ``written`` to: cells could have put it there, to what they
    can't reach themselves. Raises OSError: ELOOP for such a link, or one that comes meanwhile.
    """
    path = os.path.join(os.getcwd(), name)
    end, passed = follow(path)
    if link := next((at for at in passed for root in written if within(at, root)), None):
        what = f"a link leads there that cells could change: {link}"
        raise OSError(errno.ELOOP, what, path)
    return open_unlinked(end, flags)


# --- all of a policy's paths ----------------------------------------------------------------------


def expand_paths(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths made real. Raises PolicyError for all that can't be."""
    wrong = list[PolicyError]()

    def made_real(entry: str, key: str, expand: Callable[..., str | None]) -> str | None:
        """Return a path; None for one that is optional, or wrong."""
        try:
            return expand(entry, key=key, places=places)
        except PolicyError as error:
            wrong.append(error)
            return None

    def own(key: str, entry: str) -> str:
        return made_real(entry, key, expand_own) or entry

    def of_operation(entry: str, key: str) -> str | None:
        return made_real(entry, key, _of_operation)

    paths: dict[str, Any] = {}
    for key, must_exist in PATHS.items():
        expand_one = functools.partial(expand, must_exist=must_exist)
        entries = _written_paths(policy, key, places)
        found = (made_real(entry, key, expand_one) for entry in entries)
        paths[key] = tuple(dict.fromkeys(path for path in found if path is not None))
    if policy.artifact_export_paths:  # else nothing is put there, and no policy differs by it
        key = "artifact_export_paths"
        written = getattr(policy, key)
        if not places.has_project:
            written = [_PROJECT.sub(_SCRATCH, entry) for entry in written]
        patterns = (made_real(entry, key, expand_pattern) for entry in written)
        paths |= {
            key: tuple(path for path in patterns if path is not None),
            "artifact_folder": own("artifact_folder", policy.artifact_folder),
        }
    made = policy.replace(
        **paths,
        **_with_own_places(policy, own),
        audit=dataclasses.replace(policy.audit, folder=own("audit.folder", policy.audit.folder)),
        ops=policy.operations and policy.operations.with_paths(of_operation),
    )
    if wrong:
        # What is the same for each entry, as where there is no home folder, is said once.
        alike = {(one.key, one.message, one.remedy): one for one in reversed(wrong)}
        raise together([*alike.values()][::-1])
    return made


def _written_paths(policy: Policy, key: str, places: Places) -> Iterator[str]:
    """Yield a field's entries, with home's as they count where home lies in a project."""
    for written in getattr(policy, key):
        if not places.has_project and written.startswith(_OF_PROJECT):
            continue
        if key == _DENIED:
            yield from _in_both_homes(written)
        else:
            yield from _without_home(written, places.project, policy.read_deny_paths)


def _of_operation(entry: str, *, key: str, places: Places) -> str | None:
    """Return a path that an operation of the host's has. Raises PolicyError as ``expand``."""
    if not places.has_project and entry.startswith(_OF_PROJECT):
        raise places.error("there is no project", key, entry, "Name one: project=, --project.")
    if entry.startswith("{scratch}"):
        remedy = "Name a folder of yours: cells use {scratch} themselves."
        raise places.error("cells have no need of the host there", key, entry, remedy)
    return expand(entry, key=key, places=places, must_exist=True)


def _without_home(entry: str, project: Path, denied: Sequence[str]) -> Iterable[str]:
    """Return ``{checkout}`` as the plain files of a notebook's folder where home lies in that."""
    if entry == "{checkout}" and _holds_a_home(os.path.realpath(project)):
        return _home_files(project, denied)
    return (entry,)


def _in_both_homes(entry: str) -> Iterable[str]:
    """Return what is denied in the home folder, in the real one too where HOME says another."""
    if not entry.startswith("~/"):
        return (entry,)
    real = (f"{home.rstrip('/')}{entry[1:]}" for home in _real_home() if os.path.isdir(home))
    return (entry, *real)


def _home_files(project: Path, denied: Sequence[str]) -> list[str]:
    """Return the files in a folder that are not hidden, nor denied by their names."""
    with os.scandir(os.path.realpath(project)) as found:
        return sorted(
            each.path
            for each in found
            if not each.name.startswith(".")
            and not pattern_of(each.name, denied)
            and each.is_file(follow_symlinks=False)
            and os.access(each.path, os.R_OK)
        )


def reads_home_files(policy: Policy, project: Path) -> bool:
    """Whether a policy reads of the home folder what ``{checkout}`` stands for there."""
    roots, confined = policy.filesystem_read_roots, policy.mode == "confined"
    if not _holds_a_home(os.path.realpath(project)) or any(
        within(str(project), root) for root in roots
    ):
        return False
    files = _home_files(project, policy.read_deny_paths)
    return set(files) <= set(roots) and (bool(files) or confined)


def expand_paths_leniently(policy: Policy, places: Places) -> Policy:
    """Return a policy with its paths as they would be here, for whoever runs nothing under it.

    None of them has to exist; one that means nothing here stays as it is written.
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


def _with_own_places(policy: Policy, own: Callable[[str, str], str]) -> dict[str, Any]:
    """Return the fields of the host's own folders and files, each as ``own(key, entry)`` has it."""
    approval, templates = policy.approval, policy.templates
    # A key's file may be a link, as where Kubernetes mounts one. It is followed now, not again.
    credentials = {
        name: dataclasses.replace(one, value=f"file:{os.path.realpath(own(field, path))}")
        for name, one in policy.credentials.items()
        for field, path in ((f"credentials.{name}.value", named_by(one.value, "file")),)
        if path
    }
    return {
        "credentials": policy.credentials | credentials,
        "approval": dataclasses.replace(
            approval,
            folder=own("approval.folder", approval.folder),
            key=own("approval.key", approval.key),
        ),
        "templates": dataclasses.replace(
            templates, folders=tuple(own("templates.folders", entry) for entry in templates.folders)
        ),
    }


def without_scratch(policy: Policy, scratch: Path) -> Policy:
    """Return a policy with ``{scratch}`` for one kernel's folder: its digest is every kernel's."""
    return _renamed(policy, str(scratch), "{scratch}")


def with_scratch(policy: Policy, scratch: Path) -> Policy:
    """Return what ``without_scratch`` made of a policy, in another kernel's folder."""
    return _renamed(policy, "{scratch}", str(scratch))


def _renamed(policy: Policy, old: str, new: str) -> Policy:
    paths = {
        key: tuple(entry.replace(old, new, 1) for entry in getattr(policy, key))
        for key in (*PATHS, "artifact_export_paths")
    }
    return policy.replace(**paths)


def host_write_roots(policy: Policy) -> dict[str, tuple[str, ...]]:
    """Return the folders that the host writes to for cells, by the fields that name them."""
    table = policy.operations.write_file if policy.operations is not None else None
    found = {} if table is None else {"ops.write_file.roots": table.roots}
    if policy.artifact_export_paths:
        found["artifact_folder"] = (policy.artifact_folder,)
    return found


def refuse_writable(path: Path, policy: Policy, spec: str) -> None:
    """Refuse a policy whose own file its cells could rewrite for the next start."""
    own = (str(path.resolve()), *(link for link, _ in links([str(path.absolute())])))
    written = host_write_roots(policy) | {"filesystem_write_roots": policy.filesystem_write_roots}
    for key, root in ((key, root) for key, roots in written.items() for root in roots):
        if any(within(name, root) for name in own):
            what = "cells could rewrite this policy file"
            remedy = "Move the file out of the folders that cells may write."
            raise PolicyError(what, file=spec, key=key, value=repr(root), remedy=remedy)
