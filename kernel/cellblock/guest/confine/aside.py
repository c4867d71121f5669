"""Has a child of the zygote make a descriptor, within a time.

Opening a file waits while another process keeps the folder locked in the OS kernel, and programs of
cells can keep the folders locked that they write in. The zygote serves many sandboxes and must not
wait for one of them, so it has a child open such files, and kills a child that is late.
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

#: Seconds in which a child must answer. It takes some milliseconds.
PATIENCE: Final = 2.0
_LONGEST: Final = 500


def descriptor(make: Callable[[], int], namespaces: Sequence[int] = ()) -> int:
    """Run ``make`` in a child, and return the descriptor that it makes.

    The child first enters a session's ``namespaces``, if given. A child that is late is killed; the
    zygote's loop reaps it like any other. Raises OSError, and LockFailed if ``make`` failed or was
    late.
    """
    our_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with our_end, child_end:
        child = os.fork()
        if child == 0:
            _make_and_send(make, namespaces, child_end)
        child_end.close()
        if not is_readable(our_end, PATIENCE):
            os.kill(child, signal.SIGKILL)
            raise LockFailed(
                f"folders that it names could not be opened within {PATIENCE:g} s. "
                "Programs of cells keep them busy: end those, or try again"
            )
        reason, fds, _, _ = socket.recv_fds(our_end, _LONGEST, 1)
    os.waitpid(child, 0)  # it has answered and ends at once
    if not fds:
        raise LockFailed(reason.decode(errors="replace") or "the process that makes it has ended")
    os.set_inheritable(fds[0], False)
    return fds[0]


def _make_and_send(
    make: Callable[[], int], namespaces: Sequence[int], line: socket.socket
) -> NoReturn:
    """Make the descriptor and send it, or why there is none; then end this process."""
    try:
        # A late child must not keep descriptors of the zygote open, such as its guests' gates.
        process.close_inherited({0, 1, 2, line.fileno(), *namespaces})
        if namespaces:
            session_mounts.enter(*namespaces)
        socket.send_fds(line, [b"made"], [make()])
    except (OSError, LockFailed) as error:
        line.send(str(error).encode(errors="replace")[:_LONGEST])
    finally:
        os._exit(0)
