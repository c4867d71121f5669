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
PR_SET_SECUREBITS: Final = 28
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
#: NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 means nothing on exec.
SECUREBITS: Final = 0b1100_1111
_HIGHEST: Final = 63


def drop(arch: Arch) -> str:
    """Empty the bounding, ambient, effective, permitted and inheritable sets."""
    bounding = _drop_bounding()
    _try_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # Without CAP_SETPCAP this fails, and then there was nothing to keep from coming back.
    _try_prctl(PR_SET_SECUREBITS, SECUREBITS)
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    libc.syscall(arch.numbers["capset"], header, ctypes.create_string_buffer(24))
    if any(held(arch)):
        raise LockFailed("capabilities are left after capset")
    return f"none held{', bounding set empty' if bounding else ''}"


def held(arch: Arch) -> tuple[int, int]:
    """Return the effective and permitted sets of this thread, as bit masks."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(24)
    libc.syscall(arch.numbers["capget"], header, data)
    eff_low, perm_low, _, eff_high, perm_high, _ = struct.unpack("=6I", data.raw)
    return eff_high << 32 | eff_low, perm_high << 32 | perm_low


def _drop_bounding() -> bool:
    """Return whether the bounding set is empty now; an unprivileged user may not change it."""
    for capability in range(_HIGHEST + 1):
        try:
            libc.prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            # EINVAL: the OS kernel knows no capability this high, so all of them are gone.
            return error.errno == errno.EINVAL
    return True


def _try_prctl(option: int, value: int) -> None:
    try:
        libc.prctl(option, value)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
