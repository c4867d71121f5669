"""Connections, for a snapshot: a copy has none.

A fork shares them with the guest, and two processes at one connection take each other's bytes; and
while a copy holds one, closing it in the guest would not be heard at the other end. So a copy lets
go of them at once. Should it take over, its sockets say that they are not connected.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import select
import socket
import stat
from typing import Final

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
#: Descriptors that are looked at, from the lowest; this many unused ones in a row are the end.
_FIRST, _MOST, _GAP = 4, 4_096, 32


def let_go() -> int:
    """Put a socket that leads nowhere in place of each that is connected; return how many."""
    found, unused, nowhere = 0, 0, -1
    for fd in range(_FIRST, _MOST):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            unused += 1
            if unused >= _GAP:
                break
            continue
        unused = 0
        if stat.S_ISSOCK(mode) and _is_connected(fd):
            with contextlib.suppress(OSError):
                nowhere = _socket.socket().detach() if nowhere < 0 else nowhere
                os.dup2(nowhere, fd, inheritable=os.get_inheritable(fd))
                found += 1
    if nowhere >= 0:
        os.close(nowhere)
    return found


def _is_connected(fd: int) -> bool:
    """Say whether this is TCP's end of a connection, or of one that is being made."""
    try:
        sock = _socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        if sock.family not in _INTERNET or sock.type != socket.SOCK_STREAM:
            return False
        sock.getpeername()
    except OSError:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return not poll.poll(0) and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    else:
        return True
    finally:
        sock.detach()
