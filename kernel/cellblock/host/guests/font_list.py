"""matplotlib's list of fonts, made once for an environment and put into each session's folder.

matplotlib looks for fonts when it is first imported and keeps what it found in its cache folder
(``matplotlib.font_manager``). Guests have theirs in the scratch folder, which begins empty, so each
session would look again: 0.1 s of the first plot.

Contract: the list is made by a process of the host's own that reads the environment's packages and
the system's fonts, and nothing that a guest or a checkout has written. It is kept in the user's
cache folder, where no cell can write; a guest gets a copy. Nothing here raises, and nobody waits
for it: without a list matplotlib makes one, as it does anywhere.
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

from cellblock.guest import installed
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.session.types import Reactor

#: Seconds after a session's begin: whoever runs a cell or two does not share the processor.
AFTER: Final = 3.0
#: Lists that are kept, newest first: one for each environment and version of matplotlib.
MOST: Final = 16
#: Bytes of one: it has some 200 for each font.
MOST_BYTES: Final = 1 << 22
#: Where matplotlib finds fonts, besides its own, that guests can read too.
_FONTS: Final = ("/usr/share/fonts", "/usr/local/share/fonts")
#: Runs in a folder of its own, which is its home too, and moves what matplotlib leaves there.
_PROGRAM: Final = """\
import os, sys
os.nice(19)
os.umask(0o077)
os.chdir(os.environ["HOME"])
sys.path += sys.argv[3:]
from cellblock.host.guests.spawn import end_with_host
end_with_host(int(sys.argv[1]))
import matplotlib.font_manager
[name] = [name for name in os.listdir() if name.startswith("fontlist")]
os.replace(name, f"{sys.argv[2]}.{name}")
"""
_HOME_VARIABLES: Final = ("HOME", "MPLCONFIGDIR", "PATH", "TMPDIR")


def place(scratch: Path) -> None:
    """Put the list for this environment, where there is one, where a new session's guests look."""
    with contextlib.suppress(OSError, ValueError):
        found = _kept(_key())
        if found is None:
            return
        with open(found, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.geteuid():
                return
            content = file.read(MOST_BYTES)
        folder = scratch / ".matplotlib"
        folder.mkdir(mode=0o700)
        (folder / found.name.partition(".")[2]).write_bytes(content)


def make_later(reactor: Reactor) -> None:
    """Have the list made in a while, if matplotlib is there and no list that is up to date.

    For kernels: a program that uses a sandbox has no child that it does not know of.
    """
    if sys.platform == "linux":
        reactor.call_later(AFTER, lambda: _make_if_needed(reactor))


def _make_if_needed(reactor: Reactor) -> None:
    with contextlib.suppress(OSError, ValueError):
        key = _key()
        found = _kept(key)
        if key and (found is None or found.stat().st_mtime < max(_changed(), default=0)):
            _start(reactor, key)


def _start(reactor: Reactor, key: str) -> None:
    """Start the process that makes the list; reap it when it ends."""
    cache = _folder()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _prune(cache)
    home = tempfile.mkdtemp(prefix=".making-", dir=cache)
    arguments = [str(os.getpid()), f"{cache}/{key}", *_packages()]
    argv = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _PROGRAM, *arguments]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            dict.fromkeys(_HOME_VARIABLES, home),
            file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)],
            setsid=True,
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(null)
    pidfd = os.pidfd_open(pid)

    def reap() -> None:
        reactor.unwatch(pidfd)
        os.close(pidfd)
        os.waitpid(pid, 0)
        shutil.rmtree(home, ignore_errors=True)

    reactor.watch(pidfd, reap)


def _folder() -> Path:
    return Path(cache_folder(), "matplotlib")


def _packages() -> list[str]:
    """Return the folders that only installers write to, this package's own among them."""
    own = str(Path(__file__).resolve().parents[3])
    return [*(path for path in sys.path if installed.is_packages(path)), own]


def _key() -> str:
    """Return a name for the matplotlib that guests import; empty where there is none."""
    for folder in filter(installed.is_packages, sys.path):
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/matplotlib/font_manager.py")
            facts = (folder, status.st_mtime_ns, status.st_size)
            return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return ""


def _kept(key: str) -> Path | None:
    """Return the list with this name."""
    if not key:
        return None
    return next(iter(_folder().glob(f"{key}.fontlist*")), None)


def _changed() -> Iterator[float]:
    """Yield when something was last put in or taken out of each folder with fonts."""
    for root in _FONTS:
        for folder, _, _ in os.walk(root):
            yield os.stat(folder).st_mtime


def _prune(cache: Path) -> None:
    """Remove old lists, and what makers left that were killed."""
    found = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[MOST - 1 :]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
