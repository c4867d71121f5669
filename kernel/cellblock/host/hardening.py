"""What the host and processes of its own do to themselves: not to be read, not to be left over."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from cellblock.errors import StartError

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15


def end_with(host: int) -> None:
    """Have the OS kernel end this process when its parent, ``host``, does (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:
        os._exit(1)


def call_itself(name: bytes) -> None:
    """Say in ps(1) what this process is, in 15 bytes at most."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name)


def protect_host() -> None:
    """Make this process untraceable and core-less: it holds the session key (prctl(2)).

    Raises StartError where it can't be done: others of the same user could read the key.
    """
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise StartError("the OS kernel does not let it refuse to be traced (PR_SET_DUMPABLE)")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
