"""The reaper: the zygote's parent, which ends whatever host and zygote leave behind (promise P10).

Where there is no pid namespace, no signal is certain to end a guest with its zygote: a cell may ask
for another one (waiting copies need that), and what it forks has none. So all of them descend from
a process that does nothing but wait. It is a subreaper, so that every orphan comes to it, and once
the host or the zygote has ended it kills its children until there are none. No guest can signal it:
neither the gate nor Landlock lets them. When it ends itself, the zygote is told and does the same.

The zygote is forked from it when all is prepared: so nearly all of its memory is the zygote's, too.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from typing import Final, NoReturn

from cellblock.guest.confine import process
from cellblock.guest.confine.gate import children

#: Milliseconds that a zygote has to kill its guests in when its host has ended.
_PATIENCE: Final = 2_000
#: struct ucred of unix(7); its process is 0 where that is outside of our pid namespace.
_CREDENTIALS: Final = struct.Struct("=3i")


def stand_between(control: socket.socket) -> None:
    """Fork, and return in the child alone, which is to be the zygote.

    In a pid namespace other than the host's nothing is forked: all in it ends with its first
    process. Raises OSError, LockFailed.
    """
    credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    host, *_ = _CREDENTIALS.unpack(credentials)
    if host == 0:
        return
    watched, reaper = os.pidfd_open(host), os.getpid()
    zygote = os.fork()
    if zygote:
        _reap(control, watched, zygote)
    process.end_with_parent(signal.SIGTERM)
    if os.getppid() != reaper:  # before it was asked for
        os._exit(1)
    process.call_itself("zygote")
    process.adopt_orphans()
    signal.signal(signal.SIGTERM, _end)
    os.close(watched)


def _reap(control: socket.socket, host: int, zygote: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, _end)
        process.call_itself("reaper")
        ended = os.pidfd_open(zygote)
        if ended not in _readable(ended, host):
            # A program that was a host while it forked has a child with its end of the socket.
            control.shutdown(socket.SHUT_RDWR)
            if not _readable(ended, within=_PATIENCE) and not children(zygote):
                _readable(ended)  # it removes their folder
    finally:
        _end()


def _readable(*fds: int, within: int | None = None) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(within)]


def _end(*_: object) -> NoReturn:
    try:
        end_children()
    finally:
        os._exit(0)


def end_children() -> None:
    """Kill our children and, as a subreaper's, those that they leave, until there are none."""
    while left := children(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
