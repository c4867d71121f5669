"""The first program in a container: it receives the zygote's descriptors, then executes the zygote.

A container inherits no descriptors. Instead a socket of the host is mounted into it, through which
the host sends the zygote's end of the control socket and the host's stderr. The zygote starts with
an empty environment, since the engine's may contain a proxy's password.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import NoReturn

_STDERR = 2


def enter(socket_path: str, control_fd: int, argv: list[str]) -> NoReturn:
    """Execute ``argv`` in this process, with the control socket at ``control_fd``. Raises OSError.

    ``socket_path`` is the host's socket in the container.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(socket_path)
        _, fds, *_ = socket.recv_fds(connection, 1, 2)
    null = os.open(os.devnull, os.O_RDWR)
    control, errors = fds
    # First above all targets, so that no descriptor replaces another. The copies up there are
    # closed when the program is executed.
    above = max(control_fd, _STDERR) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (null, null, errors, control)]
    for fd in (null, control, errors):
        os.close(fd)
    for target, fd in zip((0, 1, _STDERR, control_fd), high, strict=True):
        os.dup2(fd, target)
    os.execve(argv[0], argv, {})
