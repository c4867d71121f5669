"""What the host and its workers do to their own process: not to be read, not to be left over."""

from __future__ import annotations

import os
import resource
import signal

from cellblock.errors import StartError

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_ANOTHER = "Use one that was built with libffi."
_REMEDY = "Start it outside of the container, or the system call filter, that refuses it."


def end_with(host: int) -> None:
    """Have the OS kernel end this process when its parent, ``host``, does (prctl(2))."""
    import ctypes  # noqa: PLC0415 - not every Python was built with it

    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != host:
        os._exit(1)


def call_itself(name: bytes) -> None:
    """Say in ps(1) what this process is, in 15 bytes at most."""
    import ctypes  # noqa: PLC0415 - as above

    ctypes.CDLL(None).prctl(_PR_SET_NAME, name)


def protect_host() -> None:
    """Make this process untraceable and core-less: it holds the session key (prctl(2)).

    Raises StartError where it can't be done: others of the same user could read the key.
    """
    try:
        import ctypes  # noqa: PLC0415 - not every Python was built with it
    except ImportError:
        raise StartError(f"this Python can't take a lock: it has no ctypes. {_ANOTHER}") from None
    prctl = ctypes.CDLL(None).prctl
    if prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 or prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise StartError(f"it can't refuse to be traced (PR_SET_DUMPABLE). {_REMEDY}")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (OSError, ValueError):
        raise StartError(f"it can't do without core dumps (RLIMIT_CORE). {_REMEDY}") from None


def available_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
