"""Spawning the zygote: the first thing a kernel does, so that its imports overlap the host's.

Standard library only, and of that only what is cheap: this runs before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from functools import partial

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    class Wrap(Protocol):
        """What a backend puts in front."""

        def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
            """Return the command that starts ``argv`` behind it, and can so long."""

        @property
        def stays(self) -> bool:
            """Whether it stays in front, as a process of its own; else it becomes ``argv``'s."""


#: Open files that host and zygote take before a cell has run: about 25, and 5 a front end. What
#: snapshots take besides is known when the policy is (``obstacles``).
LEAST_FILES = 64
#: Runs in the zygote before any import: no site, so no .pth file and no sitecustomize is read.
_BOOT = (
    "import sys, os;"
    "os.chdir('/');"  # libraries look for settings in the working folder, which is a checkout's
    "os.getsid(0) == os.getpid() or os.setsid();"  # a container's first process leads one
    "sys.path[:] = sys.argv[3:];"
    "sys.prefix = sys.exec_prefix = sys.argv[2];"
    "from cellblock.guest.reaper import stand_between;"
    "told = stand_between(int(sys.argv[1]));"
    "from cellblock.guest.zygote import main;"
    "main(int(sys.argv[1]), told)"
)


def import_path() -> list[str]:
    """Return the host's sys.path without what is relative: the guest imports from there."""
    return [p for p in sys.path if os.path.isabs(p)]  # noqa: PTH117 - before pathlib is imported


def zygote_argv(control_fd: int) -> list[str]:
    """Return the command that a backend may wrap."""
    options = ["-I", "-S", "-X", "utf8"]
    arguments = [str(control_fd), sys.prefix, *import_path()]
    return [sys.executable, *options, "-c", _BOOT, *arguments]


def spawn(argv: list[str], theirs: socket.socket, *, behind: bool = False) -> int:
    """Start the zygote with an empty environment and return its pid.

    ``behind`` says that it is another's that stays in front. That leads a process group of its
    own, or it would end of a Ctrl-C that is meant for the host; the zygote leaves the host's with
    ``setsid``, which a leader can't.

    Only its end of the control socket and stderr are inherited. Signals that a job-control
    shell, nohup or a notebook server had us ignore are set back to their defaults: an ignored
    SIGXCPU would be a limit that nobody keeps.
    """
    start_process = partial(os.posix_spawn, setpgroup=0) if behind else os.posix_spawn
    os.set_inheritable(theirs.fileno(), True)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return start_process(
            argv[0],
            argv,
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
            ],
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(null)


def start(wrap: Wrap | None = None) -> tuple[socket.socket, int]:
    """Spawn a zygote; return our end of its control socket, and its pid or what stays in front's.

    Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    argv = zygote_argv(theirs.fileno())
    try:
        if wrap is None:
            return ours, spawn(argv, theirs)
        with wrap(argv) as command:
            return ours, spawn(command, theirs, behind=wrap.stays)
    finally:
        theirs.close()


def drop(sock: socket.socket, pid: int) -> None:
    """End a zygote that was told nothing yet, so that it has no guests."""
    sock.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
