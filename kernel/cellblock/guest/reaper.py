"""The reaper: the zygote's parent, which kills all that host and zygote leave behind (promise P10).

Without a pid namespace, no parent-death signal is certain to end a guest with its zygote: a cell
may change its own (waiting copies need that call), and processes that it forks have none. So zygote
and guests descend from a process that does nothing but wait. The reaper is a subreaper, so that
every orphan becomes its child. When the host or the zygote has ended, it kills all its descendants.
No guest can signal it: neither the gate nor Landlock allows that. If the reaper itself is killed,
the zygote gets SIGTERM and does the same.

    waiting ── the host ended ──> shuts the control socket down, waits for the zygote ──┐
        └───── the zygote ended ────────────────────────────────────────────────────────┴> kills
               all descendants, removes the guests' folder if no other zygote has it, exits

It also removes the guests' folder, which the zygote may not do under its locks.

It is forked before anything large is imported, and imports little, because a process keeps the
memory of what it imported.
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
#: Milliseconds in which a zygote must end after its host has ended.
_TIMEOUT = 2_000
#: Milliseconds to wait for the end of a host that may have been sent SIGKILL.
_LAST = 500
#: struct ucred of unix(7). Its pid is 0 if the process is outside of our pid namespace.
_CREDENTIALS = struct.Struct("=3i")
#: Most bytes of the name of the guests' folder (path_resolution(7)).
_LONGEST = 4_096


def stand_between(control_fd: int) -> int:
    """Fork, and return only in the child, which becomes the zygote. The parent becomes the reaper.

    Return a descriptor to which the zygote must write the name of the guests' folder, and which it
    must close, before it runs any code but ours. In a pid namespace other than the host's, nothing
    is forked and -1 is returned: all processes in there end with the first one. Raises OSError.
    """
    control = _socket.socket(fileno=os.dup(control_fd))
    credentials = control.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
    host_pid, _, _ = _CREDENTIALS.unpack(credentials)
    if host_pid == 0:
        control.close()
        return -1
    host = os.pidfd_open(host_pid)
    reaper = os.getpid()
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
    """Wait until the host or the zygote ends, then kill all descendants and end this process.

    ``host`` is a pidfd, ``zygote`` a pid, ``folder`` the pipe with the folder's name.
    """

    def on_signal(*_: object) -> None:
        """Do what ``end`` does, and remove the folder if the host has ended, too."""
        try:
            end_children()
            if _readable(host, within=0):
                _remove(folder)
        finally:
            os._exit(0)

    try:
        signal.signal(signal.SIGTERM, on_signal)
        zygote_fd = os.pidfd_open(zygote)
        if zygote_fd not in _readable(zygote_fd, host):
            # The host is gone, but the zygote reads end-of-file only once nobody holds the host's
            # side of the socket, and a child of the host may still hold it. So shut the socket down
            # here.
            control.shutdown(_socket.SHUT_RDWR)
            _readable(zygote_fd, within=_TIMEOUT)
        _, status = os.waitpid(zygote, os.WNOHANG)
        end_children()
        control.shutdown(_socket.SHUT_RDWR)  # tells a host that is alive
        # Status 0 means that the zygote wants the folder removed. Otherwise a living host may have
        # given the folder to another zygote. The host is given some time to be gone, since it may
        # have been killed just before its zygote.
        if status == 0 or _readable(host, within=_LAST):
            _remove(folder)
    finally:
        end()


def _remove(folder: int) -> None:
    """Remove the guests' folder, whose name the zygote has written to the pipe ``folder``."""
    if name := os.fsdecode(os.read(folder, _LONGEST)):
        from cellblock.descriptors import remove_tree  # noqa: PLC0415 - see the top

        remove_tree(name)


def _readable(*fds: int, within: int | None = None) -> list[int]:
    """Return the descriptors that are readable within so many milliseconds; None waits on."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(within)]


def end(*_: object) -> NoReturn:
    """Kill all descendants and end this process: the handler of SIGTERM."""
    try:
        end_children()
    finally:
        os._exit(0)


def end_children() -> None:
    """Kill all descendants of this process and reap its children, until it has none.

    Kills all descendants, not only children: a child may be in a call of the OS kernel that no
    signal ends, and processes that it has started would run until that is over. Orphans become
    children of this process, which is a subreaper.

    Does not wait for a child that it may not kill. The zygote's Landlock domain keeps it from
    killing the mounter, which ends when the zygote has ended, or is killed by the reaper.
    """
    killed: set[int] = set()
    while any(_kill(pid) for pid in _children_of(os.getpid())):
        # Repeat until no new process is found: one may have forked before it was killed.
        while alive := _descendants(os.getpid()) - killed:
            killed |= alive
            for pid in alive:
                _kill(pid)
        try:
            os.waitpid(-1, 0)
            # Reap all that have ended before the next look, which takes longer the more there are.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break


def _descendants(pid: int) -> set[int]:
    descendants: set[int] = set()
    waiting = [pid]
    while waiting:
        children = _children_of(waiting.pop())
        waiting += (child for child in children if child not in descendants)
        descendants.update(children)
    return descendants


def _kill(pid: int) -> bool:
    """Kill a process; return whether that was possible, so that it can be waited for."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass
    return children


def set_attribute(option: int, value: int) -> None:
    """Set an attribute of this process (prctl(2)), without checking that it worked.

    The zygote sets some of the same attributes, checks them, and tells the host if they fail.
    """
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value))
