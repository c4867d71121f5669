"""Namespaces that the zygote was put into before it began: seen by the guest, not taken by it.

What puts it there is a program of the machine's, found on a search path: it may be another than it
says, or do less. So this lock, where it is planned, looks for itself, with the host's word for what
there is to be seen outside.

Source: pid_namespaces(7), mount_namespaces(7), network_namespaces(7).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.errors import ConfineError, LockFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.wire.messages import Plan

#: What the first process of a pid namespace is called in it.
_FIRST: Final = 1
#: The only network device that a new network namespace has.
_LOOPBACK: Final = "lo"


def check_mounts(paths: Iterable[str], mounts: Iterable[tuple[int, int]]) -> None:
    """Raise ConfineError unless each path is what the host found there through no link, or nothing.

    What mounts it goes by its name, in whose place an earlier guest may just then have put a link.
    What is mounted stays, so the zygote looks once, and before it reads anything.
    """
    for path, mount in zip(paths, mounts, strict=True):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if (found.st_dev, found.st_ino) != mount:
            raise ConfineError("namespaces", 0, f"{path} was moved while it was being mounted")


def look_at_namespaces(plan: Plan) -> str:
    """Say which namespaces are ours. Raises LockFailed where one is not, OSError without /proc."""
    seen = [_processes(), _names(plan.unseen)]
    seen += [] if plan.network else [_devices()]
    return ", ".join(filter(None, seen))


def _processes() -> str:
    # The zygote comes first, and forked us; of other processes there are only guests.
    if os.getppid() != _FIRST:
        raise LockFailed("the zygote is in the machine's pid namespace")
    # This /proc is of that namespace, or it would call us something else.
    own = os.readlink("/proc/self")  # noqa: PTH115
    if own != str(os.getpid()):
        raise LockFailed("/proc shows another pid namespace")
    return "processes"


def _names(unseen: tuple[str, ...]) -> str:
    for path in unseen:
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            raise LockFailed(f"a name outside of the roots is there: {path}") from None
        raise LockFailed(f"a name outside of the roots is there: {path}")
    return "names" if unseen else ""


def _devices() -> str:
    lines = Path("/proc/net/dev").read_text(encoding="ascii", errors="replace").splitlines()
    found = {line.partition(":")[0].strip() for line in lines if ":" in line}
    if found - {_LOOPBACK}:
        raise LockFailed(f"there are network devices: {', '.join(sorted(found))}")
    return "network devices"
