"""Ports that the OS gives to nobody by itself: who calls there means to.

A client of a kernel that is gone, or not there yet, goes on connecting to the port that it was
told. Where a witness got that port since, it would hear the client and call that a breach.
"""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _TRIES = 10_000, 100


def aside(kind: int = socket.SOCK_STREAM, host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that is bound to such a port and does not block; a stream listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, kind)
    for _ in range(_TRIES):
        try:
            made.bind((host, random.randrange(_LOWEST, int(_RANGE.read_text().split()[0]))))
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
