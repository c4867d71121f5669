"""What processes are called: by one number here, and by another where their zygote is.

A zygote may live in a pid namespace of its own, where a backend put it. It speaks of processes by
their numbers there, the host by those here, and the same number means two processes. So whatever
crosses the control socket is translated, here and nowhere else: all of the host knows processes by
its own numbers. A pidfd means one process on either side, and the OS kernel tells what that is
called on both (proc(5): ``Pid`` and ``NSpid``); nobody's word is taken for it.
"""

from __future__ import annotations

import os
import re
from typing import Final

from msgspec.structs import replace

from cellblock.wire import messages

#: No process has this number or one above it (proc(5), pid_max): what is sent to it comes to
#: nothing. It stands for a guest that was gone before the host heard of it.
NO_PROCESS: Final = 2**22
#: Of a pidfd. ``Pid`` is -1 when the process was waited for, 0 where it is not below us.
_PIDFD: Final = re.compile(rb"^Pid:\t([1-9]\d*)$", re.MULTILINE)
#: Of a process: its numbers from this namespace inwards.
_STATUS: Final = re.compile(rb"^NSpid:\t.*?(\d+)$", re.MULTILINE)
_MOST: Final = 4096
#: The lock of a zygote that is in a pid namespace of its own.
APART: Final = "namespaces"


def translation_for(plan: messages.Plan) -> Translation | None:
    """Return what translates for a zygote under ``plan``; None where numbers are the same."""
    return Translation() if APART in plan.locks else None


class Translation:
    """Between the host's numbers and one zygote's."""

    def __init__(self) -> None:
        #: What leads each lineage's session, by the zygote's number.
        self._leaders: dict[int, int] = {}
        #: The host's number of each guest that serves or is to, by the zygote's.
        self._here: dict[int, int] = {}

    def forked(self, message: messages.Forked, pidfd: int) -> messages.Forked:
        """Return what the zygote says of a fork in the host's numbers."""
        here = _behind(pidfd)
        self._leaders[message.id] = message.pid
        self._here[message.pid] = here
        return messages.Forked(id=message.id, pid=here)

    def serves(self, pid: int) -> None:
        """Take note that a snapshot is to serve, whose end will be told by the zygote's number."""
        if there := _innermost(pid):
            self._here[there] = pid

    def reaped(self, message: messages.Reaped) -> messages.Reaped:
        """Return the same for an end; of what never served, and of an orphan, that of nobody."""
        here = self._here.pop(message.pid, NO_PROCESS + 1)
        return messages.Reaped(pid=here, status=message.status)

    def allow(self, message: messages.Allow) -> messages.Allow:
        """Return in the zygote's numbers who is to fork; of who is gone, nobody."""
        there = None if message.pid is None else _innermost(message.pid) or NO_PROCESS
        return messages.Allow(id=message.id, pid=there)

    def confine(self, message: messages.Confine) -> messages.Confine:
        """Return in the zygote's numbers which process is to be locked, of which session."""
        leader = self._leaders.get(message.id, NO_PROCESS)
        there = _innermost(message.pid) or NO_PROCESS
        return replace(message, session=leader, pid=there)

    def members(self, message: messages.Members) -> messages.Members:
        """Return in the zygote's numbers who is to be in a session; who is gone is left out."""
        there = tuple(number for pid in message.pids if (number := _innermost(pid)))
        leader = self._leaders.get(message.id, NO_PROCESS)
        return messages.Members(id=message.id, session=leader, pids=there)


def _behind(pidfd: int) -> int:
    found = _PIDFD.search(_read(f"/proc/self/fdinfo/{pidfd}"))
    return int(found[1]) if found else NO_PROCESS


def _innermost(pid: int) -> int:
    """Return what a process is called in its own pid namespace; 0 when it is gone."""
    found = _STATUS.search(_read(f"/proc/{pid}/status"))
    return int(found[1]) if found else 0


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _MOST)
    except OSError:  # gone meanwhile
        return b""
    finally:
        os.close(fd)
