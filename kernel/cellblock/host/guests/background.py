"""Background processes that each make a file for later sessions, while a kernel goes on.

Contract: such a process reads the environment's packages and the system's fonts, and nothing that a
guest or a checkout has written. Nobody waits for it, and it ends with its host.

The files lie in the user's cache folder, where no cell can write. ``jupyter.preparation`` decides
when they are made. There are two of them:

- matplotlib's list of fonts. When matplotlib is first imported it looks for fonts, and keeps the
  list in its cache folder (``matplotlib.font_manager``). A guest's cache folder is in the scratch
  folder, which begins empty, so each session would look again: 0.1 s of the first plot. So the list
  is made once for each environment, and each session gets a copy. Nothing here raises: without a
  list matplotlib makes one, as it does anywhere.
- Vega, the library of altair's charts. vl-convert has it as modules, and needs 1.3 s and more to
  bundle them into one script. That is done once for each user and version. Guests of sessions that
  begin without the script bundle Vega themselves (``guest.library_patches``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.descriptors import FOLDER, NEW, closing
from cellblock.guest import installed
from cellblock.host.files import PrivateFile
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cellblock.host.reactor import Reactor

    #: A program, and the file that it makes.
    Stale = tuple[str, Path]


#: Seconds after the begin of a session until a process starts, so that somebody who only runs a
#: cell or two does not share the processor with it.
AFTER: Final = 3.0
#: The beginning of each process's program. It runs in a folder of its own, which is its home, too.
_PROGRAM_HEAD: Final = """\
import os, sys
os.nice(19)
mask = os.umask(0o077)
os.chdir(os.environ["HOME"])
sys.path += sys.argv[3:]
from cellblock.host.guests.spawn import end_with_host
end_with_host(int(sys.argv[1]))
"""
_HOME_VARIABLES: Final = ("HOME", "MPLCONFIGDIR", "PATH", "TMPDIR")
#: Files that are kept of one kind, newest first: one for each environment and version.
MOST_FILES: Final = 16


def start(
    reactor: Reactor,
    program: str,
    target: Path,
    files_given: Mapping[str, bytes] | None = None,
    ended: Callable[[], None] | None = None,
) -> None:
    """Start ``program``, which makes a file and moves it to ``target``, its ``sys.argv[2]``.

    The folder of ``target`` is for files of this kind alone. ``files_given`` are files, by name,
    that are written into the folder that the program runs in. ``ended`` is called when the program
    has ended. Raises OSError.
    """
    cache = target.parent
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _prune(cache)
    home = tempfile.mkdtemp(prefix=".making-", dir=cache)
    for name, content in (files_given or {}).items():
        Path(home, name).write_bytes(content)
    arguments = [str(os.getpid()), str(target), *_packages()]
    argv = [
        sys.executable,
        "-I",
        "-S",
        "-B",
        "-X",
        "utf8",
        "-c",
        _PROGRAM_HEAD + program,
        *arguments,
    ]
    null = os.open(os.devnull, os.O_RDWR)

    def clear() -> None:
        shutil.rmtree(home, ignore_errors=True)
        if ended is not None:
            ended()

    try:
        spawn(reactor, argv, dict.fromkeys(_HOME_VARIABLES, home), [null] * 3, ended=clear)
    finally:
        os.close(null)


def spawn(
    reactor: Reactor,
    argv: list[str],
    environment: Mapping[str, str],
    files: Sequence[int],
    *,
    ended: Callable[[], object],
) -> None:
    """Start a program; call ``ended`` when it has ended.

    ``files`` are the descriptors of its stdin, stdout and stderr. Raises OSError.
    """
    pid = os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, file, fd) for fd, file in enumerate(files)],
        setsid=True,
        setsigmask=[],
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )
    pidfd = os.pidfd_open(pid)

    def reap() -> None:
        reactor.unwatch(pidfd)
        os.close(pidfd)
        os.waitpid(pid, 0)
        ended()

    reactor.watch(pidfd, reap)


def _prune(cache: Path) -> None:
    """Remove old files, and the folders of processes that were killed."""
    files = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[MOST_FILES - 1 :]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def _packages() -> list[str]:
    """Return the folders of the import path that only installers write to, and this package's."""
    own = str(Path(__file__).resolve().parents[3])
    return [*filter(installed.is_packages, sys.path), own]


# --- matplotlib's list of fonts -----------------------------------------------------------------

#: Bytes of a list, at most. A list has some 200 bytes for each font.
_MOST_OF_FONTS: Final = 1 << 22
#: The folder in the scratch folder in which guests' matplotlib looks for the list.
_FONTS_FOLDER: Final = ".matplotlib"
#: Where matplotlib finds fonts, besides its own, that guests can read as well.
_FONT_FOLDERS: Final = ("/usr/share/fonts", "/usr/local/share/fonts")
#: The program that makes the list: matplotlib writes it into the folder that is its home.
_FONT_LIST: Final = """\
import matplotlib.font_manager
[name] = [name for name in os.listdir() if name.startswith("fontlist")]
os.replace(name, f"{sys.argv[2]}.{name}")
"""


def place_font_list(scratch: Path) -> None:
    """Copy this environment's list of fonts, if there is one, to where guests look for it."""
    with contextlib.suppress(OSError, ValueError):
        kept_list = _kept_font_list(_matplotlib())
        if kept_list is None:
            return
        with open(kept_list, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            rights_of_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if (
                not stat.S_ISREG(status.st_mode)
                or rights_of_others
                or status.st_uid != os.geteuid()
            ):
                return
            content = file.read(_MOST_OF_FONTS)
        # A kernel that waited has had guests, which could have put links there: follow none.
        with closing(os.open(scratch, FOLDER)) as scratch_fd:
            os.mkdir(_FONTS_FOLDER, 0o700, dir_fd=scratch_fd)
            with closing(os.open(_FONTS_FOLDER, FOLDER, dir_fd=scratch_fd)) as folder:
                name = kept_list.name.partition(".")[2]
                with os.fdopen(os.open(name, NEW, 0o600, dir_fd=folder), "wb") as copy:
                    copy.write(content)


def stale_font_list() -> Stale | None:
    """Return how to make the list of fonts, if matplotlib is installed and the list is outdated."""
    with contextlib.suppress(OSError, ValueError):
        key = _matplotlib()
        kept_list = _kept_font_list(key)
        if key and (
            kept_list is None or kept_list.stat().st_mtime < max(_fonts_changed(), default=0)
        ):
            return _FONT_LIST, _font_lists() / key
    return None


def _font_lists() -> Path:
    return Path(cache_folder(), "matplotlib")


def _matplotlib() -> str:
    """Return a key for the matplotlib that guests import; empty if it is not installed."""
    for folder in filter(installed.is_packages, sys.path):
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/matplotlib/font_manager.py")
            facts = (folder, status.st_mtime_ns, status.st_size)
            return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return ""


def _kept_font_list(key: str) -> Path | None:
    """Return the list of fonts that was made for this matplotlib, or None."""
    if not key:
        return None
    return next(iter(_font_lists().glob(f"{key}.fontlist*")), None)


def _fonts_changed() -> Iterator[float]:
    """Yield, for each folder with fonts, when a file was last added or removed there."""
    for root in _FONT_FOLDERS:
        for folder, _, _ in os.walk(root):
            yield os.stat(folder).st_mtime


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


# --- Vega ---------------------------------------------------------------------------------------

#: Bytes of the script, at most.
_MOST_OF_VEGA: Final = 8 << 20
_VEGA: Final = """\
import vl_convert
with open("vega.js", "w", encoding="utf-8") as file:
    file.write(vl_convert.javascript_bundle())
os.replace("vega.js", sys.argv[2])
"""


def read_vega() -> bytes:
    """Return Vega's script; empty if it was not made yet. Never raises."""
    path = _vega_file()
    return PrivateFile(path, _MOST_OF_VEGA).read() if path is not None else b""


def stale_vega() -> Stale | None:
    """Return how to bundle Vega, if vl-convert is installed and the script was not made yet."""
    with contextlib.suppress(OSError, ValueError):
        path = _vega_file()
        if path is not None and not read_vega():
            return _VEGA, path
    return None


def _vega_file() -> Path | None:
    """Return the path of Vega's script for this version of vl-convert; None without vl-convert."""
    for folder in filter(installed.is_packages, sys.path):
        for metadata in Path(folder).glob("vl_convert_python-*.dist-info"):
            return Path(cache_folder(), "vega", f"{metadata.stem}.js")
    return None
