"""Ports for listeners at which no stray client connects.

A client of an ended kernel, or of one that has not started, goes on connecting to the kernel's
port. If a test's listener had got this port since, it would take the client for a breach. So these
ports are outside of the range that the OS hands out.

All tests on this machine take ports in turn, from a shared counter. So no port is offered that
another test was offered lately, and may not have bound yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import tempfile
from pathlib import Path

#: Below the ports that systems hand out (ip_local_port_range).
_PORTS = range(10_000, 32_000)
_TURN = Path(tempfile.gettempdir(), f"cellblock-test-ports-{os.getuid()}")
_TRIES = 100


def next_port() -> int:
    """Return a port that was not offered by the last 22,000 calls."""
    # Without following a link that another user may have put there.
    fd = os.open(_TURN, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        turn = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%020d" % (turn + 1), 0)
    finally:
        os.close(fd)
    return _PORTS[turn % len(_PORTS)]


def aside(kind: int = socket.SOCK_STREAM, host: str = "127.0.0.1") -> socket.socket:
    """Return a non-blocking socket bound to such a port; a stream socket listens."""
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
