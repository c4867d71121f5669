"""The mounter: a process that may mount where a zygote is, when the zygote itself no longer may.

An overlay remembers the names that it has looked up: a file that the user adds or replaces below
would stay missing, or as it was. Mounted anew with the same options it forgets them
(``shrink_dcache_sb``), which takes the rights that the zygote drops. So another process keeps them,
does that, and ends with the zygote. It also covers what a narrower policy denies of a layer: cut
out of Landlock's rules, all would be denied that cells made beside it. A mount holds whatever is
made, moved or deleted, above it and below.

The zygote alone has a line to the mounter (``confine.layer.Mounter``), and asks it when the host
says so: whoever has privileges waits for no guest, and no guest can have it do anything.

What it has it keeps, like the ``reaper``: it is forked before anything of weight is imported, when
it is not known yet whether there will be layers, and imports little. Where there are, the zygote
sends it the namespaces that they are in, and it enters those (setns(2)). Where guests of several
sessions are forked from the zygote, it makes mounts for each (``confine.session_mounts``). Else it
ends.
"""

from __future__ import annotations

import _socket
import array
import ctypes
import errno
import os
import signal

from cellblock.guest.mounting import REFRESH, SESSIONS, cover, enter_namespace, forget
from cellblock.guest.reaper import set_attribute

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from collections.abc import Sequence

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_NAME = ctypes.create_string_buffer(b"cb-mounter")
# <linux/sched.h>
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_LONGEST = 1 << 16
#: Descriptors that one message brings at most (unix(7)).
_MOST_DESCRIPTORS = 253
_LINE = 3


# --- for the zygote -------------------------------------------------------------------------------


def fork() -> int:
    """Fork a mounter; return the zygote's end of the line to it. Raises OSError."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    zygote = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()
            _isolate(zygote)
            os.dup2(theirs.fileno(), _LINE)
            os.closerange(_LINE + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
            _serve(_socket.socket(fileno=_LINE), zygote)
        finally:
            os._exit(0)
    theirs.close()
    return ours.detach()


# --- the process ----------------------------------------------------------------------------------


def _isolate(zygote: int) -> None:
    """End with the zygote, and let nobody trace this process."""
    set_attribute(_PR_SET_NAME, ctypes.addressof(_NAME))
    set_attribute(_PR_SET_PDEATHSIG, signal.SIGKILL)
    set_attribute(_PR_SET_DUMPABLE, 0)
    if os.getppid() != zygote:  # before it was asked for
        os._exit(1)


def _serve(line: _socket.socket, zygote: int) -> None:
    """Enter where the zygote has laid layers, and mount what it asks for, until it is gone."""
    asked, ancillary, _, _ = line.recvmsg(_LONGEST, _socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4))
    if asked.startswith(SESSIONS):
        from cellblock.guest.confine import session_mounts  # noqa: PLC0415 - imports much

        session_mounts.serve(line, asked.removeprefix(SESSIONS))
        return
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    if not fds:
        return  # nothing is staged
    user, mounts, *merged, folder, file = fds
    _enter(user, mounts)
    _isolate(zygote)  # other rights took that back (prctl(2))
    while question := line.recv(_LONGEST):
        answer = str(_mount(question, merged, (folder, file))).encode()
        line.send(answer, _socket.MSG_DONTWAIT)  # the zygote reads one before it asks


def _enter(user: int, mounts: int) -> None:
    if os.fstat(user).st_ino != os.stat("/proc/self/ns/user").st_ino:
        enter_namespace(user, _CLONE_NEWUSER)
    enter_namespace(mounts, _CLONE_NEWNS)
    os.close(user)
    os.close(mounts)


def _mount(question: bytes, merged: Sequence[int], empty: tuple[int, int]) -> int:
    """Do what the zygote asks for; return an errno, or 0."""
    try:
        if question == REFRESH:
            forget(merged)
        else:
            number, _, path = question.partition(b":")
            cover(os.fsdecode(path), merged[int(number)], empty)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
