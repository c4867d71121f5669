"""Who speaks on a channel: what the OS kernel says of the process behind it.

Source: unix(7), pidfd_open(2), setsid(2), proc(5).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: struct ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("=iII")
#: Bytes of what comes beside a message, where it says who sent that.
ROOM: Final = socket.CMSG_SPACE(_UCRED.size)


def ask(sock: socket.socket, *, asked: bool) -> None:
    """Have the OS kernel say who sent a message, from now on, or not any more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, asked)


def sender(ancillary: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Return the process that sent what came with this; None where it does not say so."""
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return int(_UCRED.unpack(payload)[0])
    return None


def hold_of(pid: int, session: int, sock: socket.socket) -> int | None:
    """Return a descriptor of a process, if it is in that session and its channel is open.

    Its number alone could be another's by now. Whatever holds the other end is of the guest's
    session, which nothing of anybody else's is in.
    """
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        if _is_ours(pid, session, sock):
            return pidfd
        os.close(pidfd)
    return None


def _is_ours(pid: int, session: int, sock: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == session and not _hung_up(sock)
    return False


def _hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


def deaf(pid: int | None) -> bool:
    """Say whether interrupts can't reach a process: ignored, blocked in every thread, or stopped.

    Source: SigIgn and ShdPnd. One that catches them is not deaf, whatever it does.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    masks = int(fields.get("SigIgn", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return bool(masks & 1 << signal.SIGINT - 1)
