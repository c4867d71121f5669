"""Attempts on processes: to start them, to reach those of others, to take more than is allowed."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.guest.attempts.place import Place

MIB: Final = 2**20


def variable(name: str) -> None:
    """Look a variable up. Raises OSError where it is not there."""
    if name not in os.environ:
        raise OSError(errno.ENOENT, "not in the environment")


def child(act: Callable[[], object]) -> None:
    """Do something in a fork. Raises what it raises there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except OSError as error:
            status = error.errno or 1
        finally:
            os._exit(status)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(status, os.strerror(status))


def spawn(_w: Place) -> None:
    """Start a program, which is not there."""
    try:
        pid = os.posix_spawn("/nonexistent", ["-"], {})
    except FileNotFoundError:
        return  # a process was made, and found nothing to execute
    os.waitpid(pid, 0)


def execute(_w: Place) -> None:
    """Execute a program, which is not there."""
    try:
        os.execve("/nonexistent", ["-"], {})  # noqa: S606
    except FileNotFoundError:
        return


def thread(_w: Place) -> None:
    """Start a thread, and wait for its end."""
    started = threading.Thread(target=nothing)
    started.start()
    started.join()


def nothing() -> None:
    """Do so."""


def itself(_w: Place) -> None:
    """Signal this process, and ask for a limit of its."""
    os.kill(os.getpid(), 0)
    resource.prlimit(0, resource.RLIMIT_NOFILE)


def limit(w: Place) -> None:
    """Set a limit of another process."""
    resource.prlimit(w.process, resource.RLIMIT_NOFILE, (64, 64))


def open_too_many(w: Place) -> None:
    """Open one file more than this guest may."""
    opened: list[int] = []
    try:
        while len(opened) <= (w.limits.max_open_files or 0):
            opened.append(os.dup(1))
    finally:
        for fd in opened:
            os.close(fd)


def take_too_much(w: Place) -> None:
    """Take more memory than this guest may."""
    mmap.mmap(-1, (w.limits.memory_max_bytes or 0) + MIB, flags=mmap.MAP_PRIVATE).close()


def write_at(w: Place, offset: int) -> None:
    """Write a byte in a file as far from its beginning as this."""
    fd = os.open(f"{w.scratch}/long", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, b"x", offset)
    finally:
        os.close(fd)
        os.unlink(f"{w.scratch}/long")
