"""From a policy to what a guest must lock.

Everything here is decided by the host before a guest exists, about paths without links: a policy's
are, and cells may have put links in their place since, so they are not resolved again; the
machine's own become so here. The guest follows no link when it grants them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.backends.base import Room, View
from cellblock.errors import PolicyError
from cellblock.guest import installed
from cellblock.policy import paths
from cellblock.policy.paths import identity, links, within
from cellblock.wire.messages import Limits, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cellblock.backends.base import Backend
    from cellblock.policy.model import Policy


# Roots minus denied paths: Landlock has no deny rule, so what is denied is left out.
#
# A root with a denied path beneath it is replaced by that root's entries, all but the one that
# leads to the denied path, level by level. Consequences, disclosed as holes of read_deny_paths:
# entries made later directly in such a folder are not readable, the folder can't be listed, and
# a hard link to a denied file elsewhere beneath a root is not recognised.

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


# Places on this machine that every guest may read, and places that no guest may.
#
# What is readable without being asked for: the interpreter, what it can import, shared
# libraries, time zones, locales, fonts, and the few facts about the machine that numeric
# libraries look up.

Place = tuple[str, str]

#: Path and why; absent ones are skipped.
SYSTEM: Final[tuple[Place, ...]] = (
    ("/etc/fonts", "font configuration"),
    ("/etc/ld.so.cache", "shared libraries"),
    ("/etc/localtime", "the time zone"),
    ("/etc/mime.types", "mimetypes"),
    ("/etc/timezone", "the time zone's name"),
    ("/lib", "shared libraries"),
    ("/lib32", "shared libraries"),
    ("/lib64", "shared libraries"),
    ("/proc/cpuinfo", "how many processors numeric libraries may use"),
    ("/proc/meminfo", "how much memory they may use"),
    ("/sys/devices/system/cpu", "as /proc/cpuinfo"),
    ("/sys/devices/system/node", "as /proc/cpuinfo"),
    ("/usr/lib", "shared libraries"),
    ("/usr/lib32", "shared libraries"),
    ("/usr/lib64", "shared libraries"),
    ("/usr/local/lib", "shared libraries"),
    ("/usr/local/share/fonts", "fonts"),
    ("/usr/share/fontconfig", "font configuration"),
    ("/usr/share/fonts", "fonts"),
    ("/usr/share/locale", "locales"),
    ("/usr/share/mime", "mimetypes"),
    ("/usr/share/zoneinfo", "time zones"),
    ("/var/cache/fontconfig", "fonts"),
)

#: With network_access, all of it or a list: names of ports, and certificates.
CERTIFICATES: Final[tuple[Place, ...]] = (
    ("/etc/ca-certificates", "certificates"),
    ("/etc/pki/ca-trust", "certificates"),
    ("/etc/pki/tls", "certificates"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
    ("/etc/ssl", "certificates"),
    ("/usr/share/ca-certificates", "certificates"),
)

#: With all of it: where names are looked up, which the relay does for a list.
NETWORK: Final[tuple[Place, ...]] = (
    ("/etc/gai.conf", "address selection"),
    ("/etc/host.conf", "name resolution"),
    ("/etc/hosts", "name resolution"),
    ("/etc/nsswitch.conf", "name resolution"),
    ("/etc/resolv.conf", "name resolution"),
)

#: With subprocess_execution: what may be started, besides the interpreter.
PROGRAMS: Final[tuple[Place, ...]] = (
    ("/bin", "programs"),
    ("/usr/bin", "programs"),
    ("/usr/local/bin", "programs"),
)

#: Readable and writable character devices that keep nothing.
DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

#: Stores in which whole package trees live, for interpreters installed there.
STORES: Final = ("/gnu/store", "/nix/store")


def interpreter() -> Iterator[str]:
    """Yield what this interpreter imports from: its libraries, site-packages and cellblock.

    Not ``sys.path``: that may hold the working folder, a script's folder, or through a .pth
    file the whole of a project. Of that, what installers put there is readable, and ``packages``
    grants what the policy names.
    """
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix)):
        yield f"{prefix}/lib"
        yield f"{prefix}/lib64"
        yield from _shared(f"{prefix}/share")
        yield f"{prefix}/pyvenv.cfg"
    yield from installed.places()
    yield str(Path(__file__).resolve().parent.parent)
    for store in STORES:
        if sys.base_prefix.startswith(f"{store}/"):
            yield store


def _shared(folder: str) -> Iterator[str]:
    """Yield ``folder``, or what is in it where kernelspecs are: their env may hold credentials."""
    if not Path(folder, "jupyter").is_dir():
        yield folder
        return
    yield from (str(path) for path in sorted(Path(folder).iterdir()) if path.name != "jupyter")


def package_folders(names: Iterable[str], granted: Iterable[str]) -> Iterator[str]:
    """Yield where packages that the policy lets in lie, when not in the folders ``granted``.

    That is where editable installs and .pth files put them: the package alone, not its project.
    """
    known = tuple(granted)
    for folder in sys.path:
        real = os.path.realpath(folder)
        if not folder.startswith("/") or any(within(real, root) for root in known):
            continue
        for name in names:
            for path in (
                Path(folder, name),
                Path(folder, f"{name}.py"),
                Path(folder, f"{name}.libs"),
            ):
                if path.exists():
                    yield str(path)


def interpreter_programs() -> Iterator[str]:
    """Yield where this interpreter's executables are."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/bin"


def started_unconfined(libraries: Iterable[str]) -> Iterator[str]:
    """Yield what other processes of the user run or load, this kernel's next start among them.

    ``libraries`` are what ``interpreter`` yields.
    """
    yield sys.executable
    yield from libraries
    yield from interpreter_programs()
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield f"{prefix}/share/jupyter"
        yield f"{prefix}/etc/jupyter"


#: Where Jupyter's data, configuration aside, and the user's keychains are in another place.
_MACOS: Final = sys.platform == "darwin"

#: Variables that move folders, or lists of them, that are private.
_JUPYTER_FOLDERS: Final = (
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_CONFIG_PATH",
    "JUPYTER_RUNTIME_DIR",
    "XDG_RUNTIME_DIR",
)
#: And those that name folders, maybe a project's, of which some is private.
_JUPYTER_DATA: Final = ("JUPYTER_DATA_DIR", "JUPYTER_PATH")
_PRIVATE_DATA: Final = ("kernels", "nbsignatures.db", "notebook_secret", "runtime")


def private_folders(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what no guest may read whatever the policy says.

    Other processes (/proc), devices, run-time sockets, and Jupyter's own folders: connection
    files hold the keys of every kernel that runs, configuration holds the server's tokens.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises for users without a home
    data = environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    yield from ("/proc", "/dev", "/run", "/sys")
    # Where jupyter_core.paths looks, its run-time folder in the data folder; kernelspecs, in the
    # latter as well, may carry credentials in their env.
    yield from (f"{data}/jupyter", f"{home}/.jupyter", f"{config}/jupyter", f"{home}/.ipython")
    if _MACOS:
        yield from (f"{home}/Library/Jupyter", f"{home}/Library/Keychains")
    for name in _JUPYTER_FOLDERS:
        yield from _listed(environ, name)
    for name in _JUPYTER_DATA:
        for folder in _listed(environ, name):
            yield from (f"{folder}/{entry}" for entry in _PRIVATE_DATA)


def _listed(environ: Mapping[str, str], name: str) -> Iterator[str]:
    return filter(None, environ.get(name, "").split(os.pathsep))


LIMITS: Final = (
    "memory_max_bytes",
    "max_processes",
    "max_open_files",
    "max_file_size",
)


def plan(
    policy: Policy,
    backend: Backend,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
) -> Plan:
    """Return what the guest must lock under ``policy``.

    ``scratch`` and ``project``, both canonical, stand for ``{scratch}`` and ``{project}`` where the
    policy still has them; ``private`` are places of the host's own (connection file, audit log)
    that stay unreadable whatever the policy says. A backend that neither locks nor wraps gets an
    empty plan. Raises PolicyError for a policy that can't be kept.
    """
    if not (backend.locks or backend.wraps):
        return Plan()
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    own = [*private_folders(os.environ), *map(str, private)]
    libraries = tuple(interpreter())
    write = _writable(policy, fill, own, libraries)
    return Plan(
        read_roots=_readable(policy, fill, own, libraries),
        write_roots=write,
        device_files=canonical(DEVICES),
        network=policy.network_access is True,
        # No lock tells hosts apart: the host's relay does, where guests can connect nothing.
        relayed=backend.relays and has_list(policy),
        subprocess=policy.subprocess_execution,
        limits=Limits(**{field: getattr(policy, field) for field in LIMITS}),
        locks=backend.locks,
        required=backend.locks,
    )


def preloaded(policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Return where what a zygote preloads lies, when guests under ``plan`` may not read that."""
    return canonical(package_folders(_preloaded(policy), plan.read_roots))


def _preloaded(policy: Policy) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in policy.preload))


def has_list(policy: Policy) -> bool:
    """Say whether there are addresses that cells may reach, and others that they may not."""
    return isinstance(policy.network_access, tuple) and bool(policy.network_access)


def view(
    policy: Policy,
    plan: Plan,
    *,
    scratch: Path,
    project: Path,
    private: Sequence[Path] = (),
) -> View:
    """Return what a zygote with a mount namespace of its own is to see, under the same ``plan``.

    Whole roots, where the plan grants what is beside denied paths: those are masked.
    """
    fill = {"{scratch}": str(scratch), "{project}": str(project)}
    own = [*private_folders(os.environ), *map(str, private)]
    asked = standing(_filled(root, fill) for root in policy.filesystem_read_roots)
    named = _default_names(policy, interpreter())
    defaults = canonical(named)
    imported = (*policy.allowed_modules, *_preloaded(policy))
    packages = tuple(package_folders(imported, (*asked, *defaults)))
    # The zygote's own folder, whether its guests may write there or not.
    writable = outermost((*plan.write_roots, str(scratch)))
    return View(
        readable=outermost((*asked, *defaults, *canonical(packages))),
        writable=writable,
        masked=_denied((*policy.read_deny_paths, *own), fill),
        devices=plan.device_files,
        names=(*named, *packages, str(project), str(scratch)),
        movable=_movable(asked, writable, defaults),
        network=plan.network,
        subprocess=plan.subprocess,
        room=_room(policy, str(scratch)),
    )


def _movable(
    asked: Sequence[str], writable: Sequence[str], defaults: Sequence[str]
) -> tuple[str, ...]:
    """Return roots in whose place cells may put something else before they are mounted.

    Not the machine's own, of which an image may have others, nor what comes with a root that is
    written to: that is not mounted for itself.
    """
    read = (root for root in asked if not any(within(root, other) for other in writable))
    return tuple(
        root
        for root in (*read, *writable)
        if root != "/" and not any(within(root, other) for other in defaults)
    )


#: What a zygote takes besides its guests, in bytes and in threads, those of ``preload`` too.
_ZYGOTE_BYTES: Final = 512 * 2**20
_ZYGOTE_TASKS: Final = 32


def _room(policy: Policy, scratch: str) -> Room:
    """Return bounds beyond which nothing is that the policy allows.

    A guest may hold an eighth more than it is allowed until the host looks, and the copy from which
    it would be restored what it has overwritten since.
    """
    files = policy.scratch_max_bytes
    parts = (policy.memory_max_bytes, policy.undo_max_bytes, files)
    guest, *others = (part or 0 for part in parts)
    memory = None if None in parts else guest * 9 // 4 + sum(others) + _ZYGOTE_BYTES
    most = policy.max_processes
    tasks = None if most is None else most + policy.undo_depth + _ZYGOTE_TASKS
    return Room(scratch, files, memory, tasks)


def _default_names(policy: Policy, libraries: Iterable[str]) -> list[str]:
    """Return what is readable without being asked for, as it is spelled."""
    tables = [SYSTEM]
    tables += [NETWORK] if policy.network_access is True else []
    tables += [CERTIFICATES] if policy.network_access else []
    tables += [PROGRAMS] if policy.subprocess_execution else []
    found = [path for table in tables for path, _ in table]
    found += libraries
    found += interpreter_programs() if policy.subprocess_execution else ()
    packages = paths.readable(policy)
    return found if packages is None else [*found, packages]


def _default_read_roots(policy: Policy, libraries: Iterable[str]) -> tuple[str, ...]:
    """Return what is readable without being asked for, canonical."""
    return canonical(_default_names(policy, libraries))


def splits_roots(policy: Policy) -> bool:
    """Return whether a denied path lies beneath something readable, so that it had to be cut."""
    defaults = _default_read_roots(policy, interpreter())
    readable = (*standing(policy.filesystem_read_roots), *defaults)
    return any(
        within(path, root) for path in _denied(policy.read_deny_paths, {}) for root in readable
    )


def _readable(
    policy: Policy, fill: dict[str, str], own: Iterable[str], libraries: Iterable[str]
) -> tuple[str, ...]:
    denied = _denied((*policy.read_deny_paths, *own), fill)
    asked = [_filled(root, fill) for root in policy.filesystem_read_roots]
    granted = [
        path for root in standing(asked) for path in without(root, denied, policy_name=policy.name)
    ]
    # The policy's own denials count for default roots too; the host's private places are
    # not beneath any of them, except /proc and /sys, of which single files are granted.
    by_policy = _denied(policy.read_deny_paths, fill)
    defaults = _default_read_roots(policy, libraries)
    packages = canonical(package_folders(policy.allowed_modules, defaults))
    granted += [
        path
        for root in (*defaults, *packages)
        for path in without(root, by_policy, policy_name=policy.name)
    ]
    return tuple(dict.fromkeys(granted))


def _writable(
    policy: Policy, fill: dict[str, str], own: Iterable[str], libraries: Iterable[str]
) -> tuple[str, ...]:
    scratch = fill["{scratch}"]
    denied = _denied((*policy.read_deny_paths, *own), fill)
    writable = standing(_filled(root, fill) for root in policy.filesystem_write_roots)
    refuse = _refusing(denied, libraries, policy.name, "filesystem_write_roots")
    for root in writable:
        # The scratch folder may lie in a run-time folder that is otherwise private.
        refuse(root, within(root, scratch))
    return writable


def check_writable(paths: Iterable[str], denied: Sequence[str], policy: Policy, key: str) -> None:
    """Raise PolicyError if the host may not write to one of these roots for cells either."""
    refuse = _refusing(denied, interpreter(), policy.name, key)
    for path in paths:
        refuse(path, False)


def _refusing(
    denied: Sequence[str], libraries: Iterable[str], policy_name: str, key: str
) -> Callable[[str, bool], None]:
    """Return what raises PolicyError for a root that may not be written to, or holds such a place.

    It is asked with whether the root is ours, wherever it lies.
    """
    programs = tuple(started_unconfined(libraries))
    started = (*canonical(programs), *(link for link, _ in links(programs)))
    hidden = (*denied, *(link for link, _ in links(private_folders(os.environ))))
    kept_from: list[tuple[str, Callable[[str, str, str, str], PolicyError]]] = [
        *((path, _readable_by_writing) for path in hidden),
        *((path, _started_by_writing) for path in started),
        (paths.base(), _imported_by_writing),
    ]

    def refuse(root: str, ours: bool) -> None:
        for path, refusal in kept_from:
            if within(path, root) or (within(root, path) and not ours):
                raise refusal(root, path, policy_name, key)

    return refuse


def denied(policy: Policy, *, private: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return what is neither read nor written for cells whatever the roots are, by every name."""
    own = (*private_folders(os.environ), *map(str, private), paths.base())
    return _denied((*policy.read_deny_paths, *own), {})


def _denied(paths: Iterable[str], fill: dict[str, str]) -> tuple[str, ...]:
    named = [os.path.expanduser(_filled(path, fill)) for path in paths]  # noqa: PTH111
    return tuple(dict.fromkeys(form for path in named for form in spellings(path)))


def _filled(path: str, fill: dict[str, str]) -> str:
    for placeholder, folder in fill.items():
        if path.startswith(placeholder):
            return folder + path.removeprefix(placeholder)
    return path


def _readable_by_writing(root: str, denied: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        "can't be kept: what is writable is readable, and this holds a denied path",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy=f"Choose a folder without {denied} in it.",
    )


def _started_by_writing(root: str, path: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        f"cells could change what runs unconfined: {path}",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy="Choose a folder without the Python environment, cellblock or kernelspecs in it.",
    )


def _imported_by_writing(root: str, path: str, policy_name: str, key: str) -> PolicyError:
    return PolicyError(
        "cells could change packages that other kernels import",
        file=policy_name,
        key=key,
        value=repr(root),
        remedy=f"Choose a folder without {path} in it.",
    )
