"""Linux capabilities: all of them dropped, from every set."""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import libc
from cellblock.guest.confine.errors import LockFailed

if TYPE_CHECKING:
    from cellblock.guest.confine.arch import Arch

# <linux/capability.h>, <linux/prctl.h>, <linux/securebits.h>
VERSION_3: Final = 0x20080522
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_GET_SECUREBITS: Final = 27
PR_SET_SECUREBITS: Final = 28
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
#: NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 means nothing on exec.
SECUREBITS: Final = 0b1100_1111
_HIGHEST: Final = 63


def drop(arch: Arch) -> str:
    """Empty the bounding, ambient, effective, permitted and inheritable sets.

    Raises OSError, and LockFailed where something is left that could be taken away.
    """
    bounding = _drop_bounding()
    _try_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # Without CAP_SETPCAP this fails, and then there was nothing to keep from coming back.
    locked = _try_prctl(PR_SET_SECUREBITS, SECUREBITS)
    if locked and libc.prctl(PR_GET_SECUREBITS) & SECUREBITS != SECUREBITS:
        raise LockFailed("the securebits did not stick")
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    libc.syscall(arch.numbers["capset"], header, ctypes.create_string_buffer(24))
    if any(held(arch)):
        raise LockFailed("capabilities are left after capset")
    return f"none held{', bounding set empty' if bounding else ''}"


def held(arch: Arch) -> tuple[int, int, int]:
    """Return the effective, permitted and inheritable sets of this thread, as bit masks."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(24)
    libc.syscall(arch.numbers["capget"], header, data)
    words = struct.unpack("=6I", data.raw)
    effective, permitted, inheritable = (words[n + 3] << 32 | words[n] for n in range(3))
    return effective, permitted, inheritable


def _drop_bounding() -> bool:
    """Return whether the bounding set is empty now; an unprivileged user may not change it."""
    if not any(map(_in_bounding, range(_HIGHEST + 1))):
        return True  # the zygote's was emptied
    for capability in range(_HIGHEST + 1):
        try:
            libc.prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EPERM:
                return False
            if error.errno != errno.EINVAL:
                raise
            break  # the OS kernel knows no capability this high
    if any(_in_bounding(capability) for capability in range(_HIGHEST + 1)):
        raise LockFailed("capabilities are left in the bounding set")
    return True


def _in_bounding(capability: int) -> bool:
    try:
        return libc.prctl(PR_CAPBSET_READ, capability) != 0
    except OSError as error:
        if error.errno != errno.EINVAL:  # as above
            raise
        return False


def _try_prctl(option: int, value: int) -> bool:
    """Say whether it was done; that it may not be, or is not known, is no failure."""
    try:
        libc.prctl(option, value)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True
