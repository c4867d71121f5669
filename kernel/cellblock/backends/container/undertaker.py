"""Ends of containers: of ours, whatever becomes of who started it, and of those left by others.

The OS kernel ends what is in a container with its first process; what is left then is the engine's
own record of it. Both are seen to by a process that does nothing else, and that nobody waits for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, NoReturn

from cellblock.backends.container.wanted import OWNER, owner, started

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.backends.container.engines import Engine

#: Containers of others that are looked through at one start.
_MOST = 200
#: Seconds that an engine may take to forget; it goes on by itself when nobody waits any more.
_PATIENCE = 5.0


def attend(way: socket.socket, engine: Engine, name: str, folder: str, asking: int) -> NoReturn:
    """Wait until the other end of ``way`` is closed; then end the container and remove ``folder``.

    A pidfd that comes by ``way`` stands for its first process, which is killed without the engine.
    So is what still asks the engine for it: that is of the process group ``asking``, unless 0.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pidfds: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            data, fds, *_ = socket.recv_fds(way, 1, 1)
            pidfds += fds
            if not data:
                break
    with contextlib.suppress(OSError):
        if asking:
            os.killpg(asking, signal.SIGKILL)
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    remove(engine, [name])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def remove(engine: Engine, names: Iterable[str]) -> None:
    """Have the engine forget containers, bounded in time; those that it doesn't know are gone."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        engine.ask("rm", "--force", *names, seconds=_PATIENCE)


def sweep(engine: Engine) -> list[str]:
    """Remove the containers of this user's hosts that are gone; return what they were called."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = engine.ask("ps", "--all", "--quiet", "--filter", f"label={OWNER}")
        left = _labelled(engine, found.stdout.decode("ascii", "replace").split())
        if orphans := [name for name, whose in left if is_orphan(whose)]:
            remove(engine, orphans)
            return orphans
    return []


def _labelled(engine: Engine, ids: list[str]) -> list[tuple[str, str]]:
    if not ids:
        return []
    form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
    asked = engine.ask("inspect", "--format", form, *ids[:_MOST])
    lines = asked.stdout.decode("ascii", "replace").splitlines()
    pairs = (line.partition(" ") for line in lines)
    return [(name, whose.strip()) for name, _, whose in pairs]


def is_orphan(label: str) -> bool:
    """Say whether who is named there is gone for certain.

    Of a process in another pid namespace nothing is known here, and those of other users may be
    hidden (proc(5), hidepid): both are left alone. Before the machine's last start nobody is left.
    """
    ours, theirs = owner(os.getpid()).split(":"), label.split(":")
    if len(theirs) != len(ours) or theirs[2] != ours[2] or not theirs[3].isdecimal():
        return False
    if theirs[0] != ours[0]:
        return True
    return theirs[1] == ours[1] and str(started(int(theirs[3]))) != theirs[4]
