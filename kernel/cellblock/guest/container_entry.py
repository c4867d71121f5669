"""The first thing that runs in a container: it fetches the zygote's descriptors, and becomes it.

A container inherits no descriptor. A socket of the host's is mounted into it, and through that come
the control socket's end and the host's stderr. The engine's environment, in which there may be a
proxy's password, ends with this program's memory.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import NoReturn

_STDERR = 2


def enter(way: str, control_fd: int, argv: list[str]) -> NoReturn:
    """Become ``argv``, with the control socket at ``control_fd``. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(way)
        _, fds, *_ = socket.recv_fds(connection, 1, 2)
    null = os.open(os.devnull, os.O_RDWR)
    control, errors = fds
    # Out of each other's way first; what is above is closed by the exec.
    above = max(control_fd, _STDERR) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (null, null, errors, control)]
    for fd in (null, control, errors):
        os.close(fd)
    for target, fd in zip((0, 1, _STDERR, control_fd), high, strict=True):
        os.dup2(fd, target)
    os.execve(argv[0], argv, {})
