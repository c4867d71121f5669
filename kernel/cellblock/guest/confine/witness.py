"""The witness: checks that the locks hold, by attempts that must be refused.

``see`` runs in the confined guest before the first byte of a user's code, so that it meets what a
cell meets. It makes those attempts of ``guest.probes`` that need no help from the host, each with
its positive control. If there is no folder or file outside the roots to try, an attempt would prove
nothing and is left out. It then counts as unwitnessed, not as passed.

``look_at_namespaces`` and ``look_at_container`` check locks that something else has put around the
zygote. ``check_mounts`` runs in the zygote.
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


#: Folders, at least one of which exists and is not in any policy's roots.
_OUTSIDE: Final = ("/", "/proc", "/etc", "/root", "/home")
#: The same for files: the rights to list folders and to read files are different ones.
_SECRETS: Final = ("/etc/passwd", "/etc/hosts", "/proc/version")
#: The port of a service that answers nothing, if this machine has it (RFC 863).
_DISCARD: Final = 9
#: Errnos that only a refusal has. Nothing was set up for these attempts, so their targets may be
#: missing, and other errnos prove nothing.
_REFUSALS: Final = (errno.EACCES, errno.EPERM, errno.EOPNOTSUPP)


def see(lock: str, plan: Plan) -> str:
    """Try what ``lock`` must refuse; return the names of the refused probes.

    Raises LockFailed if an attempt succeeds, or fails for another reason.
    """
    outside = next((path for path in _OUTSIDE if not _granted(path, plan)), "")
    trial = Trial(
        probes=(),
        scratch="",
        outside=outside,
        # Landlock doesn't check access(2). So if opening the file is refused, its mode is not why.
        secret=next((f for f in _SECRETS if not _granted(f, plan) and os.access(f, os.R_OK)), ""),
        inside=next(filter(_opens, plan.read_roots), next(iter(plan.read_roots), "")),
        denied="",
        ports={"tcp": _DISCARD, "udp": _DISCARD},
        sockets={},
        process=os.getppid(),
        variable="",
    )
    return ", ".join(_try_probe(probe, trial) for probe in _probes_of(lock, plan, trial))


def _probes_of(lock: str, plan: Plan, trial: Trial) -> Iterator[Probe]:
    """Yield the probes of ``lock`` that can be tried at a start and that ``plan`` forbids."""
    if lock == "landlock" and not (trial.outside and plan.read_roots):
        return
    forbidden = {
        "always": True,
        "no network": not plan.has_sockets,
        "no processes": not plan.subprocess,
    }
    for probe in PROBES:
        if probe.at_start is None or probe.lock != lock or not forbidden[probe.when]:
            continue
        if probe.name == "read_file" and not trial.secret:
            continue
        yield probe


def _try_probe(probe: Probe, trial: Trial) -> str:
    """Make a probe's control, then its attempt; return its name if the attempt was refused.

    Raises LockFailed if it was not, or if the control failed.
    """
    try:
        if probe.at_start is not None:
            probe.at_start(trial)
    except OSError as error:
        raise LockFailed(f"{probe.name}: its control failed", error.errno or 0) from error
    try:
        probe.attempt(trial)
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


# Namespaces that the zygote was started in. The guest checks them; it does not make them.
#
# A program of the machine makes them (bubblewrap), which was found on a search path: it may be
# another program than its name says, or do less. So the guest looks for itself whether names are
# hidden. The host has told it names that exist outside (``Plan.unseen``).
#
# Source: pid_namespaces(7), mount_namespaces(7), network_namespaces(7).

#: Pid of the first process of a pid namespace.
_FIRST: Final = 1
#: The only network device that a new network namespace has.
_LOOPBACK: Final = "lo"


def check_mounts(paths: Iterable[str], mounts: Iterable[tuple[int, int]]) -> None:
    """Check that each path is what the host found there, following no link, or does not exist.

    ``mounts`` are the device and inode that the host found at each path. The program that mounts a
    path goes by its name, and an earlier guest may have put a link there at that moment. A mount
    does not change afterwards, so the zygote checks once, before it reads anything. Raises
    ConfineError.
    """
    for path, mount in zip(paths, mounts, strict=True):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue
        if (status.st_dev, status.st_ino) != mount:
            raise ConfineError("namespaces", 0, f"{path} was moved while it was being mounted")


def look_at_namespaces(plan: Plan) -> str:
    """Check that this guest is in namespaces of its zygote; return a statement for the report.

    Raises LockFailed if one is missing, OSError without /proc.
    """
    # The zygote is the first process and this guest's parent. All other processes are guests.
    if os.getppid() != _FIRST:
        raise LockFailed("the zygote is in the machine's pid namespace")
    # /proc belongs to this pid namespace, or it would give us another number.
    if os.readlink("/proc/self") != str(os.getpid()):
        raise LockFailed("/proc shows another pid namespace")
    checked = ["processes", _check_unseen(plan.unseen)]
    if not plan.network:
        lines = Path("/proc/net/dev").read_text(encoding="ascii", errors="replace").splitlines()
        devices = {line.partition(":")[0].strip() for line in lines if ":" in line}
        if other_devices := devices - {_LOOPBACK}:
            raise LockFailed(f"there are network devices: {', '.join(sorted(other_devices))}")
        checked.append("network devices")
    return ", ".join(filter(None, checked))


def _check_unseen(unseen: tuple[str, ...]) -> str:
    """Check that no path of ``unseen`` exists here; return "names" if there was any to check."""
    for path in unseen:
        with contextlib.suppress(PermissionError):
            try:
                os.lstat(path)
            except FileNotFoundError:
                continue
        raise LockFailed(f"a name outside of the roots is there: {path}")
    return "names" if unseen else ""


# A container that the zygote was started in. The guest checks it; it does not make it.
#
# As with ``namespaces``, the engine may be another program than its name says, or do less than it
# was told. The guest checks this before its own locks, which would have the same effect.
#
# Source: statvfs(3), proc(5): CapBnd and NoNewPrivs, cgroups(7).

_CAPABILITIES: Final = re.compile(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t0*[1-9a-f]", re.MULTILINE)
_NO_NEW_PRIVS: Final = re.compile(r"^NoNewPrivs:\t1$", re.MULTILINE)
#: Bounds of the whole container: the file of cgroup 2, that of cgroup 1, the words of a report.
_BOUNDS: Final = (
    ("memory.max", "memory/memory.limit_in_bytes", "bytes of memory"),
    ("pids.max", "pids/pids.max", "tasks"),
)
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: cgroup 1 has a number near 2**63 if there is no bound.
_NO_BOUND: Final = 2**60
#: The largest page that a supported machine has.
_PAGE: Final = 1 << 16


def look_at_container(plan: Plan) -> str:
    """Check what the engine had to do; return a statement for the report.

    Raises LockFailed if it did less, OSError without /proc.
    """
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
    status = os.statvfs(folder)
    if status.f_blocks * status.f_frsize > size + _PAGE:
        raise LockFailed(f"{folder} holds more than {size} bytes")


def _bounds() -> list[str]:
    """Return the container's bounds in words. Engines without cgroups set none."""
    bounds = []
    for names in _BOUNDS:
        value = next(filter(None, map(_bound, names[:2])), 0)
        bounds += [f"{value} {names[2]}"] if value else []
    return bounds


def _bound(name: str) -> int:
    """Return the number in a cgroup's file, 0 if it has none."""
    try:
        text = (_CGROUPS / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return 0
    return int(text) if text.isdecimal() and int(text) < _NO_BOUND else 0
