"""Raw system calls through ctypes, and the errors that confinement raises.

The errors come first: ``LockFailed`` for one lock, ``ConfineError`` for a guest that must end. Then
the system calls, and reading and writing another process's memory.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from cellblock.guest.violations import run_exempt


class ConfineError(Exception):
    """A required lock could not be applied; the guest must end without running anything.

    ``errno`` is 0 where no system call failed, e.g. when a thread exists already.
    """

    def __init__(self, lock: str, errno: int, detail: str) -> None:
        self.lock, self.errno, self.detail = lock, errno, detail
        super().__init__(f"{lock}: {self.why}")

    @property
    def why(self) -> str:
        """What went wrong, without the lock's name."""
        system_error = os.strerror(self.errno) if self.errno else ""
        return ": ".join(filter(None, (self.detail, system_error)))


class LockFailed(Exception):
    """One lock could not be applied here. ``confine`` decides whether that is fatal."""

    def __init__(self, detail: str, errno: int = 0) -> None:
        self.detail, self.errno = detail, errno
        super().__init__(detail)


def fatal(lock: str, error: OSError | ValueError | LockFailed) -> ConfineError:
    """Return the ConfineError for a required lock that failed with ``error``."""
    if isinstance(error, OSError):
        return ConfineError(lock, error.errno or 0, "refused by the OS kernel")
    return ConfineError(lock, getattr(error, "errno", 0), str(error))


# The C library through ctypes: raw system calls, with errno as OSError.
#
# Nothing needs to be compiled or installed, so the locks work wherever CPython for Linux does. All
# calls are exempt from the audit hook, which is armed when snapshots make theirs: ctypes raises an
# audit event for each call from Python 3.14 on, and in every version for ``get_errno``.

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.prctl.restype = ctypes.c_int
_LIBC.getauxval.restype = ctypes.c_ulong
#: Only glibc has this function. Looked up now, because each look-up is an audit event.
_TRIM = getattr(_LIBC, "malloc_trim", None)
# <linux/auxvec.h>
_AT_RANDOM = 25

#: An argument of a system call: a number, or a structure, whose address is passed.
Arg = int | ctypes.Array[ctypes.c_char] | None


def on_first_stack() -> int:
    """Return an address on the stack of the first thread, 0 if unknown (getauxval(3))."""
    return int(_LIBC.getauxval(_AT_RANDOM))


def _word(arg: Arg) -> ctypes.Array[ctypes.c_char] | ctypes.c_ulong:
    # prctl and syscall are variadic, so ctypes must know each argument's type: an array is passed
    # as its address, a number as 64 bits with sign extension.
    return arg if isinstance(arg, ctypes.Array) else ctypes.c_ulong(arg or 0)


def syscall(number: int, *args: Arg) -> int:
    """Make system call ``number``. Raises OSError with the kernel's errno."""
    return _call(_LIBC.syscall, ctypes.c_long(number), *map(_word, args))


def prctl(option: int, *args: Arg) -> int:
    """Set or query a process attribute; unused arguments are zero. Raises OSError."""
    padded = (*args, 0, 0, 0, 0)[:4]
    return _call(_LIBC.prctl, ctypes.c_int(option), *map(_word, padded))


def give_back_free_memory() -> None:
    """Return free memory to the OS kernel (malloc_trim(3)), if the C library can."""
    if _TRIM is not None:
        run_exempt(_TRIM, ctypes.c_size_t(0))


class _Extent(ctypes.Structure):
    """Bytes at an address (struct iovec)."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


#: Most bytes that are read of a list of mappings. A program's list has some thousand.
_MOST_MAPPED = 1 << 16
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+)", re.MULTILINE)


def is_anonymous(pid: int, address: int, size: int) -> bool:
    """Return whether a process has memory at an address, and maps no file there (proc_maps(5)).

    Reading memory that maps a file would wait while another process keeps the file locked. Return
    False also if there is no memory, or the list of mappings is too long. Raises OSError.
    """
    with open(f"/proc/{pid}/maps", "rb") as file:
        mappings = file.read(_MOST_MAPPED)
    for start, end, inode in _MAPPING.findall(mappings):
        if int(start, 16) <= address and address + size <= int(end, 16):
            return bool(inode == b"0")
    return False


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Return ``size`` bytes of another process's memory (process_vm_readv(2)). Raises OSError."""
    space = ctypes.create_string_buffer(size)
    size_read = _copy(_LIBC.process_vm_readv, pid, address, space)
    return space.raw[:size_read]


def write_memory(pid: int, address: int, data: bytes) -> None:
    """Write to another process's memory, where that process may write. Raises OSError."""
    _copy(_LIBC.process_vm_writev, pid, address, ctypes.create_string_buffer(data, len(data)))


def _copy(function: Any, pid: int, address: int, space: ctypes.Array[ctypes.c_char]) -> int:
    local_extent = _Extent(ctypes.addressof(space), len(space))
    remote_extent = _Extent(address, len(space))
    count = ctypes.c_ulong(1)
    extents = (ctypes.byref(local_extent), count, ctypes.byref(remote_extent), count)
    return _call(function, ctypes.c_int(pid), *extents, ctypes.c_ulong(0))


def unshare(flags: int) -> None:
    """Move this process into new namespaces (unshare(2)). Raises OSError."""
    _call(_LIBC.unshare, ctypes.c_int(flags))


def setns(namespace: int, flags: int) -> None:
    """Move this process into the namespace of a descriptor (setns(2)). Raises OSError."""
    _call(_LIBC.setns, ctypes.c_int(namespace), ctypes.c_int(flags))


def _call(function: Any, *args: Any) -> int:
    result: int = run_exempt(function, *args)
    if result < 0:
        errno = run_exempt(ctypes.get_errno)
        raise OSError(errno, os.strerror(errno))
    return result
