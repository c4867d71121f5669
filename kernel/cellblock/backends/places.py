"""Paths on this machine that every guest may read, and paths that no guest may.

Readable by default are the interpreter, what it can import, shared libraries, time zones, locales,
fonts, and the few facts about the machine that numeric libraries look up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import installed
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SystemPath = tuple[str, str]

#: Path and why; absent ones are skipped.
SYSTEM: Final[tuple[SystemPath, ...]] = (
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
    ("/sys/fs/cgroup/cpu.max", "as /proc/cpuinfo"),
    ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "as /proc/cpuinfo"),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "as /proc/cpuinfo"),
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
CERTIFICATES: Final[tuple[SystemPath, ...]] = (
    ("/etc/ca-certificates", "certificates"),
    ("/etc/pki/ca-trust", "certificates"),
    ("/etc/pki/tls", "certificates"),
    ("/etc/protocols", "protocol names"),
    ("/etc/services", "port names"),
    ("/etc/ssl", "certificates"),
    ("/usr/share/ca-certificates", "certificates"),
)

#: With all of it: where names are looked up, which the relay does for a list.
NETWORK: Final[tuple[SystemPath, ...]] = (
    ("/etc/gai.conf", "address selection"),
    ("/etc/host.conf", "name resolution"),
    ("/etc/hosts", "name resolution"),
    ("/etc/nsswitch.conf", "name resolution"),
    ("/etc/resolv.conf", "name resolution"),
)

#: With subprocess_execution: what may be started, besides the interpreter.
PROGRAMS: Final[tuple[SystemPath, ...]] = (
    ("/bin", "programs"),
    ("/usr/bin", "programs"),
    ("/usr/local/bin", "programs"),
    ("/usr/share/misc", "by what file(1) knows a file's kind"),
)

#: Readable and writable character devices that keep nothing.
DEVICES: Final = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")

#: Package stores, readable as a whole for an interpreter that is installed in one.
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
    yield from installed.package_paths()
    yield str(Path(__file__).resolve().parent.parent)
    for store in STORES:
        if sys.base_prefix.startswith(f"{store}/"):
            yield store


def _shared(folder: str) -> Iterator[str]:
    """Yield ``folder``, or what is in it where kernelspecs are: their env may hold credentials.

    Of Jupyter's folder nbconvert's templates alone.
    """
    jupyter = Path(folder, "jupyter")
    if not jupyter.is_dir():
        yield folder
        return
    yield from (str(path) for path in sorted(Path(folder).iterdir()) if path != jupyter)
    yield str(jupyter / "nbconvert")


def packages(names: Iterable[str], granted: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the packages ``names`` that do not lie in the folders ``granted``.

    Editable installs and .pth files lead to such places: the package alone is granted, not its
    project.
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


def private(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that no guest may read, whatever the policy says.

    These are other processes (/proc), devices, run-time sockets, and Jupyter's own folders:
    connection files hold the keys of all running kernels, configuration the server's tokens.
    """
    home = os.path.expanduser("~")
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
