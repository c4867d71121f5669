"""Process attributes: no new privileges, not dumpable, one thread, whose end is whose.

What is set is asked for again: a filter above us may answer for the OS kernel (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from pathlib import Path
from typing import Final

from cellblock.guest.confine import libc
from cellblock.guest.confine.errors import LockFailed

# <linux/prctl.h>
PR_SET_PDEATHSIG: Final = 1
PR_GET_PDEATHSIG: Final = 2
PR_SET_DUMPABLE: Final = 4
PR_GET_DUMPABLE: Final = 3
PR_SET_NO_NEW_PRIVS: Final = 38
PR_GET_NO_NEW_PRIVS: Final = 39
PR_SET_NAME: Final = 15
PR_SET_CHILD_SUBREAPER: Final = 36
PR_GET_CHILD_SUBREAPER: Final = 37
#: What a process is, for whoever looks at a list of them; 15 bytes at most.
NAMES: Final = {
    name: ctypes.create_string_buffer(f"cb-{name}".encode())
    for name in ("zygote", "guest", "snapshot")
}


def call_itself(name: str) -> None:
    """Say in ps(1) and top(1) what this process is: one of NAMES."""
    libc.prctl(PR_SET_NAME, NAMES[name])


def no_new_privs() -> str:
    """Make set-user-id programs and file capabilities powerless, for good."""
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.prctl(PR_GET_NO_NEW_PRIVS) != 1:
        raise LockFailed("no_new_privs did not stick")
    return "set"


def not_dumpable() -> str:
    """Refuse ptrace, /proc/PID/mem and core dumps by processes of the same user.

    Side effect (proc(5)): the files under /proc/PID become root's, so that the host of an
    unprivileged user can still read status, stat and statm, but not io, fd or smaps.
    """
    libc.prctl(PR_SET_DUMPABLE, 0)
    if libc.prctl(PR_GET_DUMPABLE) != 0:
        raise LockFailed("the process stayed dumpable")
    return "set"


def end_with_parent() -> None:
    """Have the OS kernel kill this process when its parent ends. Raises OSError, LockFailed.

    However the parent ends; one that has ended already is the caller's to notice (prctl(2)).
    """
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if _told(PR_GET_PDEATHSIG) != signal.SIGKILL:
        raise LockFailed("it would outlive its parent")


def adopt_orphans() -> None:
    """Have orphans of what descends from here come here. Raises OSError, LockFailed."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if _told(PR_GET_CHILD_SUBREAPER) != 1:
        raise LockFailed("its children's orphans would not come to it")


def lead_session() -> None:
    """Leave the parent's session and process group. Raises OSError, LockFailed."""
    os.setsid()
    if os.getsid(0) != os.getpid():
        raise LockFailed("it stayed in another's session")


def _told(option: int) -> int:
    """Return the number that a prctl puts where it is told to."""
    space = ctypes.create_string_buffer(4)
    libc.prctl(option, space)
    number: int = struct.unpack("=i", space.raw)[0]
    return number


def thread_count() -> int:
    """Count this process's threads, as the kernel does; Python does not know C's threads.

    Raises OSError where /proc is missing: then nothing vouches for a single thread.
    """
    return len(list(Path("/proc/self/task").iterdir()))
