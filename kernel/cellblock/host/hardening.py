"""What the host does to itself so that nothing of the same user reads its memory."""

from __future__ import annotations

import ctypes
import resource

from cellblock.errors import StartError

_PR_SET_DUMPABLE = 4


def protect_host() -> None:
    """Make this process untraceable and core-less: it holds the session key (prctl(2)).

    Raises StartError where it can't be done: others of the same user could read the key.
    """
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise StartError("the OS kernel does not let it refuse to be traced (PR_SET_DUMPABLE)")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
