"""A descriptor that a child of the zygote makes, within a time.

To look up a name in a folder waits for whoever keeps the folder locked, and programs of cells can
keep those locked in which they write. The zygote serves many sandboxes, so it never waits so.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING, Final, NoReturn

from cellblock.descriptors import is_readable
from cellblock.guest.confine import process, session_mounts
from cellblock.guest.confine.libc import LockFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Seconds that a child has: it takes some milliseconds.
PATIENCE: Final = 2.0
_LONGEST: Final = 500


def descriptor(make: Callable[[], int], namespaces: Sequence[int] = ()) -> int:
    """Return the descriptor that ``make`` makes in a child, in a session's ``namespaces`` if given.

    A child that is late is killed, and whoever reaps children does so when it has ended. Raises
    OSError, LockFailed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _make(make, namespaces, theirs)
        theirs.close()
        if not is_readable(ours, PATIENCE):
            os.kill(child, signal.SIGKILL)
            raise LockFailed(
                f"folders that it names could not be opened within {PATIENCE:g} s. "
                "Programs of cells keep them busy: end those, or try again"
            )
        why, fds, _, _ = socket.recv_fds(ours, _LONGEST, 1)
    os.waitpid(child, 0)  # it has answered, and does nothing more
    if not fds:
        raise LockFailed(why.decode(errors="replace") or "the process that makes it has ended")
    os.set_inheritable(fds[0], False)
    return fds[0]


def _make(make: Callable[[], int], namespaces: Sequence[int], line: socket.socket) -> NoReturn:
    """Send the descriptor, or why there is none, and end this process."""
    try:
        # Should it be late, it keeps nothing of the zygote's open: not its guests' gates.
        process.close_inherited({0, 1, 2, line.fileno(), *namespaces})
        if namespaces:
            session_mounts.enter(*namespaces)
        socket.send_fds(line, [b"made"], [make()])
    except (OSError, LockFailed) as error:
        line.send(str(error).encode(errors="replace")[:_LONGEST])
    finally:
        os._exit(0)
