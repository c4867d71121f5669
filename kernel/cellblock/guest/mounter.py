"""The mounter: a process that may still mount in the zygote's namespaces after the zygote's locks.

It is needed for three things that take the rights which the zygote drops:

- *Refresh.* An overlay remembers the names that it has looked up, so a file that the user adds or
  replaces below it would stay missing or unchanged. Remounted with the same options, the overlay
  forgets these names (``shrink_dcache_sb``).
- *Cover.* A narrower policy may deny a path of a layer. Landlock has no rule that takes a path out
  of a folder; it would have to grant all others one by one, and so deny what cells have made
  beside it. A mount over the path holds, whatever is made, moved or deleted above and below it.
- *Mounts for sessions*, if one zygote forks the guests of several (``confine.session_mounts``).

Only the zygote has a connection to the mounter (``confine.layer.Mounter``), and asks when the host
says so. So this privileged process never waits for a guest, and no guest can make it do anything.

The zygote forks the mounter before it imports anything large, since what a process has imported it
keeps; it is then not known yet whether there will be layers. The first message decides:

    forked ── namespaces as descriptors ──> enters them, answers questions ── zygote gone ──> ended
        ├──── ``SESSIONS`` ──────────────────> ``session_mounts.serve`` ───────────^
        └──── no descriptors: nothing is staged ───────────────────────────────────^
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
#: Most bytes of the first message, and of a question.
_LONGEST = 1 << 16
#: Descriptors that one message brings at most (unix(7)).
_MOST_DESCRIPTORS = 253
#: The mounter's descriptor of its connection to the zygote.
_LINE = 3


# --- for the zygote -------------------------------------------------------------------------------


def fork() -> int:
    """Fork a mounter; return the zygote's end of the connection to it. Raises OSError."""
    zygote_end, mounter_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    zygote = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()
            _isolate(zygote)
            os.dup2(mounter_end.fileno(), _LINE)
            os.closerange(_LINE + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
            _serve(_socket.socket(fileno=_LINE), zygote)
        finally:
            os._exit(0)
    mounter_end.close()
    return zygote_end.detach()


# --- the process ----------------------------------------------------------------------------------


def _isolate(zygote: int) -> None:
    """Make this process end with the zygote, and untraceable."""
    set_attribute(_PR_SET_NAME, ctypes.addressof(_NAME))
    set_attribute(_PR_SET_PDEATHSIG, signal.SIGKILL)
    set_attribute(_PR_SET_DUMPABLE, 0)
    if os.getppid() != zygote:  # before it was asked for
        os._exit(1)


def _serve(line: _socket.socket, zygote: int) -> None:
    """Serve the zygote as its first message says, until the zygote is gone."""
    first, ancillary, _, _ = line.recvmsg(_LONGEST, _socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4))
    if first.startswith(SESSIONS):
        from cellblock.guest.confine import session_mounts  # noqa: PLC0415 - imports much

        session_mounts.serve(line, first.removeprefix(SESSIONS))
        return
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    if not fds:
        return  # nothing is staged
    user, mounts, *merged, folder, file = fds
    _enter(user, mounts)
    _isolate(zygote)  # again: entering a user namespace changes rights, which resets it (prctl(2))
    while question := line.recv(_LONGEST):
        answer = str(_mount(question, merged, (folder, file))).encode()
        line.send(answer, _socket.MSG_DONTWAIT)  # has room: the zygote reads each answer first


def _enter(user: int, mounts: int) -> None:
    """Enter the zygote's user namespace, unless this process is in it, and mount namespace."""
    if os.fstat(user).st_ino != os.stat("/proc/self/ns/user").st_ino:
        enter_namespace(user, _CLONE_NEWUSER)
    enter_namespace(mounts, _CLONE_NEWNS)
    os.close(user)
    os.close(mounts)


def _mount(question: bytes, merged: Sequence[int], empty: tuple[int, int]) -> int:
    """Carry out a question of the zygote; return an errno, or 0."""
    try:
        if question == REFRESH:
            forget(merged)
        else:
            number, _, path = question.partition(b":")
            cover(os.fsdecode(path), merged[int(number)], empty)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
