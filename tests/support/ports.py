"""Ports that the OS gives to nobody by itself: who calls there means to.

A client of a kernel that is gone, or not there yet, goes on connecting to the port that it was
told. Where a witness got that port since, it would hear the client and call that a breach.

Whatever tests run on this machine take turns: nobody is offered a port that was another's lately,
and may not be bound yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import tempfile
from pathlib import Path

#: Below those that systems hand out (ip_local_port_range).
_PORTS = range(10_000, 32_000)
_TURN = Path(tempfile.gettempdir(), f"cellblock-test-ports-{os.getuid()}")
_TRIES = 100


def next_port() -> int:
    """Return a port that nobody has been offered for the last 22,000."""
    # No link that somebody put there is followed.
    fd = os.open(_TURN, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        turn = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%020d" % (turn + 1), 0)
    finally:
        os.close(fd)
    return _PORTS[turn % len(_PORTS)]


def aside(kind: int = socket.SOCK_STREAM, host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that is bound to such a port and does not block; a stream listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, kind)
    for _ in range(_TRIES):
        try:
            made.bind((host, next_port()))
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    else:
        raise RuntimeError("none is free")
    if kind == socket.SOCK_STREAM:
        made.listen()
    made.setblocking(False)
    return made
