"""Seeing the locks hold: refused attempts, each with its positive control.

Runs in the confined guest, before the first user byte, so what it sees is what a cell meets. The
attempts are those of ``guest.probes`` that need nothing of the host's. Where no folder, or no file,
outside the roots is there to open, trying that proves nothing and is left out: unwitnessed, not
passed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine.libc import ConfineError, LockFailed
from cellblock.guest.probes import PROBES
from cellblock.wire.messages import Trial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.guest.probes import Probe
    from cellblock.wire.messages import Plan


#: Folders of which at least one is there, and that nobody makes readable.
_OUTSIDE: Final = ("/", "/proc", "/etc", "/root", "/home")
#: Files likewise: Landlock grants to list folders, and to read files, by different rights.
_SECRETS: Final = ("/etc/passwd", "/etc/hosts", "/proc/version")
#: A port of this machine's that says nothing, if it is there (RFC 863).
_DISCARD: Final = 9
#: A refusal and nothing else: nobody has made what is tried on here, so it may just not be there.
_REFUSALS: Final = (errno.EACCES, errno.EPERM, errno.EOPNOTSUPP)


def see(lock: str, plan: Plan) -> str:
    """Try what ``lock`` refuses; name what was refused. Raises LockFailed for anything else."""
    outside = next((path for path in _OUTSIDE if not _granted(path, plan)), "")
    place = Trial(
        probes=(),
        scratch="",
        outside=outside,
        # access(2) asks no Landlock: what refuses to open the file is not its mode.
        secret=next((f for f in _SECRETS if not _granted(f, plan) and os.access(f, os.R_OK)), ""),
        inside=next(filter(_opens, plan.read_roots), next(iter(plan.read_roots), "")),
        denied="",
        ports={"tcp": _DISCARD, "udp": _DISCARD},
        sockets={},
        process=os.getppid(),
        variable="",
    )
    return ", ".join(_refused(probe, place) for probe in _tried(lock, plan, place))


def _tried(lock: str, plan: Plan, place: Trial) -> Iterator[Probe]:
    """Yield the attempts at a start that are about ``lock``, and about what ``plan`` forbids."""
    if lock == "landlock" and not (place.outside and plan.read_roots):
        return
    forbidden = {
        "always": True,
        "no network": not plan.has_sockets,
        "no processes": not plan.subprocess,
    }
    for probe in PROBES:
        if probe.at_start is None or probe.lock != lock or not forbidden[probe.when]:
            continue
        if probe.name == "read_file" and not place.secret:
            continue
        yield probe


def _refused(probe: Probe, place: Trial) -> str:
    try:
        if probe.at_start is not None:
            probe.at_start(place)
    except OSError as error:
        raise LockFailed(f"{probe.name}: its control failed", error.errno or 0) from error
    try:
        probe.attempt(place)
    except OSError as error:
        if error.errno in _REFUSALS:
            return probe.name
        raise LockFailed(f"{probe.name}: refused for another reason", error.errno or 0) from error
    raise LockFailed(f"{probe.name}: an attempt succeeded under the lock")


def _granted(path: str, plan: Plan) -> bool:
    roots = (*plan.read_roots, *plan.write_roots)
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


# Namespaces that the zygote was put into before it began: seen by the guest, not taken by it.
#
# What puts it there is a program of the machine's, found on a search path: it may be another
# than it says, or do less. So this lock, where it is planned, looks for itself, with the host's
# word for what there is to be seen outside.
#
# Source: pid_namespaces(7), mount_namespaces(7), network_namespaces(7).

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
    """Name the namespaces that are ours.

    Raises LockFailed where one is not, OSError without /proc.
    """
    # The zygote comes first, and forked us; of other processes there are only guests.
    if os.getppid() != _FIRST:
        raise LockFailed("the zygote is in the machine's pid namespace")
    # This /proc is of that namespace, or it would call us something else.
    if os.readlink("/proc/self") != str(os.getpid()):
        raise LockFailed("/proc shows another pid namespace")
    seen = ["processes", _names(plan.unseen)]
    if not plan.network:
        lines = Path("/proc/net/dev").read_text(encoding="ascii", errors="replace").splitlines()
        devices = {line.partition(":")[0].strip() for line in lines if ":" in line}
        if others := devices - {_LOOPBACK}:
            raise LockFailed(f"there are network devices: {', '.join(sorted(others))}")
        seen.append("network devices")
    return ", ".join(filter(None, seen))


def _names(unseen: tuple[str, ...]) -> str:
    for path in unseen:
        with contextlib.suppress(PermissionError):
            try:
                os.lstat(path)
            except FileNotFoundError:
                continue
        raise LockFailed(f"a name outside of the roots is there: {path}")
    return "names" if unseen else ""


# A container that the zygote was put into before it began: seen by the guest, not taken by it.
#
# As with ``namespaces``, an engine may be another than it says, or leave out what it was told.
# What it was to do before any code of ours ran is looked for before the guest's own locks do the
# same.
#
# Source: statvfs(3), proc(5): CapBnd and NoNewPrivs, cgroups(7).

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
    """Return what the engine did. Raises LockFailed for what it did not, OSError without /proc."""
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
    if os.stat(folder).st_dev == os.stat(os.path.dirname(folder)).st_dev:
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
