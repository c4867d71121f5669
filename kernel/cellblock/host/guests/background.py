"""Processes that make a file for later sessions, while the kernel goes on.

Contract: such a process reads the environment's packages and nothing that a guest or a checkout
has written. Nobody waits for it, and it ends with its host.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import installed

if TYPE_CHECKING:
    from cellblock.host.session.types import Reactor

#: Seconds after a session's begin: whoever runs a cell or two does not share the processor.
AFTER: Final = 3.0
#: Runs in a folder of its own, which is its home too.
_BEGIN: Final = """\
import os, sys
os.nice(19)
os.umask(0o077)
os.chdir(os.environ["HOME"])
sys.path += sys.argv[3:]
from cellblock.host.guests.spawn import end_with_host
end_with_host(int(sys.argv[1]))
"""
_HOME_VARIABLES: Final = ("HOME", "MPLCONFIGDIR", "PATH", "TMPDIR")
#: Files that are kept of one kind, newest first: one for each environment and version.
MOST: Final = 16


def start(reactor: Reactor, program: str, target: Path) -> None:
    """Start ``program``, which moves what it made to ``target``: that is ``sys.argv[2]``.

    The folder of ``target`` is for its kind alone. Raises OSError.
    """
    cache = target.parent
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    _prune(cache)
    home = tempfile.mkdtemp(prefix=".making-", dir=cache)
    arguments = [str(os.getpid()), str(target), *_packages()]
    argv = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BEGIN + program, *arguments]
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


def _prune(cache: Path) -> None:
    """Remove old files, and what makers left that were killed."""
    found = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[MOST - 1 :]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def _packages() -> list[str]:
    """Return the folders that only installers write to, this package's own among them."""
    own = str(Path(__file__).resolve().parents[3])
    return [*filter(installed.is_packages, sys.path), own]
