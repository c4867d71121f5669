"""The reaper: the zygote's parent, which ends whatever host and zygote leave behind (promise P10).

Where there is no pid namespace, no signal is certain to end a guest with its zygote: a cell may ask
for another one (waiting copies need that), and what it forks has none. So all of them descend from
a process that does nothing but wait. It is a subreaper, so that every orphan comes to it, and once
the host or the zygote has ended it kills all that descends from it. No guest can signal it:
neither the gate nor Landlock lets them. When it ends itself, the zygote gets a signal and does so
too.

It also removes the guests' folder, which the zygote's locks would not let that do.

What it has it keeps: it is forked before anything of weight is imported, and imports little.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import select
import signal
import struct

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from typing import NoReturn

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_NAME = ctypes.create_string_buffer(b"cb-reaper")
#: Milliseconds that a zygote has to kill its guests in when its host has ended.
_TIMEOUT = 2_000
#: Milliseconds that a host that was sent SIGKILL has to be gone in.
_LAST = 500
#: struct ucred of unix(7); its process is 0 where that is outside of our pid namespace.
_CREDENTIALS = struct.Struct("=3i")
#: Of the name of the guests' folder, in bytes (path_resolution(7)).
_LONGEST = 4_096


def stand_between(control_fd: int) -> int:
    """Fork, and return in the child alone, which is to be the zygote. Raises OSError.

    It writes the name of the guests' folder to the descriptor that is returned, and closes that,
    before it runs any code but ours. In a pid namespace other than the host's nothing is forked:
    all in it ends with its first process. Then this returns -1.
    """
    control = _socket.socket(fileno=os.dup(control_fd))
    asked = control.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
    host_pid, _, _ = _CREDENTIALS.unpack(asked)
    if host_pid == 0:
        control.close()
        return -1
    host, reaper = os.pidfd_open(host_pid), os.getpid()
    folder, folder_write = os.pipe()
    set_attribute(_PR_SET_NAME, ctypes.addressof(_NAME))
    set_attribute(_PR_SET_DUMPABLE, 0)
    set_attribute(_PR_SET_CHILD_SUBREAPER, 1)
    zygote = os.fork()
    if zygote:
        os.close(control_fd)
        os.close(folder_write)
        _reap(control, host, zygote, folder)
    set_attribute(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != reaper:  # before it was asked for
        os._exit(1)
    signal.signal(signal.SIGTERM, end)
    control.close()
    os.close(host)
    os.close(folder)
    return folder_write


def _reap(control: _socket.socket, host: int, zygote: int, folder: int) -> NoReturn:
    def end_here(*_: object) -> None:
        """Do what ``end`` does; nobody else removes the folder if the host goes meanwhile."""
        try:
            end_children()
            if _readable(host, within=0):
                _remove(folder)
        finally:
            os._exit(0)

    try:
        signal.signal(signal.SIGTERM, end_here)
        ended = os.pidfd_open(zygote)
        if ended not in _readable(ended, host):
            # A program that was a host while it forked has a child with its end of the socket.
            control.shutdown(_socket.SHUT_RDWR)
            _readable(ended, within=_TIMEOUT)
        _, status = os.waitpid(zygote, os.WNOHANG)
        end_children()
        control.shutdown(_socket.SHUT_RDWR)  # a host that lives hears of it now
        # It may have given the folder to another zygote, unless this one says so. One that was
        # killed just before its zygote takes a while to be gone.
        if status == 0 or _readable(host, within=_LAST):
            _remove(folder)
    finally:
        end()


def _remove(folder: int) -> None:
    """Remove the guests' folder, whose name a zygote that has ended wrote to a pipe."""
    if name := os.fsdecode(os.read(folder, _LONGEST)):
        from cellblock.descriptors import remove_tree  # noqa: PLC0415 - see the top

        remove_tree(name)


def _readable(*fds: int, within: int | None = None) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(within)]


def end(*_: object) -> NoReturn:
    """Kill our children, and go: what a signal does."""
    try:
        end_children()
    finally:
        os._exit(0)


def end_children() -> None:
    """Kill all that descends from us, and wait for our children, until there are none.

    Not only our children: one of them may be in a call of the OS kernel that no signal ends, and
    what it has started would run until that is over. What a child leaves comes to us, a subreaper.

    One that we may not kill is not waited for. A zygote's Landlock domain keeps it from killing the
    process that mounts for it, which ends when the zygote has, or is killed by the reaper.
    """
    killed: set[int] = set()
    while any(_kill(pid) for pid in _children_of(os.getpid())):
        # Until nobody is found who was not killed yet: what forks is killed with its forks.
        while found := _descendants(os.getpid()) - killed:
            killed |= found
            for pid in found:
                _kill(pid)
        try:
            os.waitpid(-1, 0)
            # All that have ended, before the next look: a look takes the longer the more there are.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = _children_of(waiting.pop())
        waiting += (child for child in children if child not in found)
        found.update(children)
    return found


def _kill(pid: int) -> bool:
    """Kill a child; return whether we may, so that it can be waited for."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def set_attribute(option: int, value: int) -> None:
    """Set an attribute of this process; the zygote looks whether that works, and tells the host."""
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value))
