"""A container that the zygote was put into before it began: seen by the guest, not taken by it.

As with ``namespaces``, an engine may be another than it says, or leave out what it was told. What
it was to do before any code of ours ran is looked for before the guest's own locks do the same.

Source: statvfs(3), proc(5): CapBnd and NoNewPrivs, cgroups(7).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.errors import LockFailed

if TYPE_CHECKING:
    from cellblock.wire.messages import Plan

_CAPABILITIES: Final = re.compile(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t0*[1-9a-f]", re.MULTILINE)
_NO_NEW_PRIVS: Final = re.compile(r"^NoNewPrivs:\t1$", re.MULTILINE)
#: What bounds the whole of it: cgroup 2's file, cgroup 1's, and what the bound is called.
_BOUNDS: Final = (
    ("memory.max", "memory/memory.limit_in_bytes", "bytes of memory"),
    ("pids.max", "pids/pids.max", "tasks"),
)
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: A bound of cgroup 1 that is none has a number too, near 2**63.
_NO_BOUND: Final = 2**60
#: The largest page that a supported machine has.
_PAGE: Final = 1 << 16


def look_at_container(plan: Plan) -> str:
    """Say what the engine did. Raises LockFailed for what it did not, OSError without /proc."""
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise LockFailed("the root of the file system can be written")
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    if _CAPABILITIES.search(status):
        raise LockFailed("the engine left capabilities")
    if not _NO_NEW_PRIVS.search(status):
        raise LockFailed("the engine did not set no_new_privs")
    for folder, size in plan.bounded:
        _check_size(folder, size)
    return ", ".join(["read-only root", "no capabilities", "no_new_privs", *_bounds()])


def _check_size(folder: str, size: int) -> None:
    """Raise LockFailed unless ``folder`` is a file system of its own, no larger than ``size``."""
    if os.stat(folder).st_dev == os.stat(os.path.dirname(folder)).st_dev:  # noqa: PTH116, PTH120
        raise LockFailed(f"{folder} is no file system of its own")
    there = os.statvfs(folder)
    if there.f_blocks * there.f_frsize > size + _PAGE:
        raise LockFailed(f"{folder} holds more than {size} bytes")


def _bounds() -> list[str]:
    """Return the bounds that are there; engines without cgroups of their own set none."""
    found = []
    for names in _BOUNDS:
        value = next(filter(None, map(_bound, names[:2])), 0)
        found += [f"{value} {names[2]}"] if value else []
    return found


def _bound(name: str) -> int:
    try:
        text = (_CGROUPS / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return 0
    return int(text) if text.isdecimal() and int(text) < _NO_BOUND else 0
