"""Landlock and a system call filter: the guest locks itself, nothing wraps the zygote.

Contract: files outside the roots can't be opened, nothing is connected unless network_access is
True, no process is started unless subprocess_execution is, and no other process is signalled. Under
a list of addresses the host's relay connects.
Gap: names, sizes and times of files outside the roots can be looked up.
"""

from __future__ import annotations

import os
import platform
import re
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from cellblock.backends.base import (
    EARLIER_LINKS,
    HOST,
    NAMES,
    RELAYED,
    RLIMITS,
    Backend,
    Declare,
    Support,
    by_policy,
    holds,
    nothing,
    partly,
    watched,
)
from cellblock.policy.enforcement import Enforcement, Status
from cellblock.wire.messages import LockReport, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.policy.model import Policy


# Probes: the guest's own locks, taken in a child process that then looks whether they hold.

#: Seconds a probe may take; it takes about three milliseconds.
PATIENCE: Final = 2.0
_LONGEST: Final = 64 * 1024


def unprobed(why: str, *, usable: bool) -> Support:
    """Return a support that no probe backs."""
    return Support(
        usable=usable,
        why=why,
        os_kernel=platform.release(),
        abi=0,
        witnessed=(),
        time=_now(),
    )


def probe_locks(locks: tuple[str, ...]) -> Support:
    """Take ``locks`` in a child, all required, with an attempt and a positive control each."""
    if platform.system() != "Linux":
        return unprobed(f"{platform.system()} has no Landlock", usable=False)
    return judged(_ask_child(_plan(locks)))


def judged(answer: LockReport | str) -> Support:
    """Return what a probe's report is worth, or why there is none."""
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    witnessed = tuple(filter(None, answer.achieved.get("witness", "").split(", ")))
    unseen = {"files", "sockets", "processes"} - set(witnessed)
    return Support(
        usable=not unseen,
        why=f"not witnessed: {', '.join(sorted(unseen))}" if unseen else "seen to hold in a probe",
        os_kernel=platform.release(),
        abi=_abi(answer),
        witnessed=witnessed,
        time=_now(),
        report=answer,
    )


def plan_for(
    locks: tuple[str, ...], unseen: tuple[str, ...], bounded: tuple[tuple[str, int], ...] = ()
) -> str:
    """Return what ``answer_inside`` takes."""
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(_plan(locks, unseen, bounded)).decode()


def answer_inside(plan: str) -> None:
    """Print what a child of ours reports that takes the locks of ``plan``: behind a wrapper."""
    import msgspec  # noqa: PLC0415

    report = _ask_child(msgspec.json.decode(plan, type=Plan))
    os.write(1, msgspec.json.encode(report))


def answered(printed: bytes) -> LockReport | str:
    """Return what ``answer_inside`` has printed."""
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.json.decode(printed[:_LONGEST], type=LockReport | str)
    except msgspec.MsgspecError as error:
        return f"the probe gave no answer: {error}"


def _plan(
    locks: tuple[str, ...],
    unseen: tuple[str, ...] = (),
    bounded: tuple[tuple[str, int], ...] = (),
) -> Plan:
    roots = _readable()
    return Plan(read_roots=roots, unseen=unseen, bounded=bounded, locks=locks, required=locks)


def _readable() -> tuple[str, ...]:
    return (str(Path(__file__).resolve().parent),)


def _ask_child(plan: Plan) -> LockReport | str:
    """Return the child's report, or why there is none."""
    import msgspec  # noqa: PLC0415 - the host has it anyway; doctor's import stays light

    ours, theirs = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _answer(plan, theirs)
    os.close(theirs)
    try:
        return msgspec.json.decode(_read_all(ours, pid), type=LockReport | str)
    except (msgspec.MsgspecError, OSError) as error:
        return f"the probe gave no answer: {error}"
    finally:
        os.close(ours)
        os.waitpid(pid, 0)


def _answer(plan: Plan, out: int) -> NoReturn:
    """Confine this child, write what came of it, end. Never returns into the parent's code."""
    status = 1
    try:
        import msgspec  # noqa: PLC0415

        from cellblock.guest.confine import ConfineError, confine  # noqa: PLC0415

        try:
            os.write(out, msgspec.json.encode(confine(plan)))
        except ConfineError as error:
            os.write(out, msgspec.json.encode(str(error)))
        status = 0
    finally:
        os._exit(status)


def _read_all(fd: int, pid: int) -> bytes:
    """Read to the end of the pipe; kill a child that takes too long. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    data = b""
    while len(data) < _LONGEST:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"none within {PATIENCE:g} s")
        part = os.read(fd, _LONGEST)
        if not part:
            break
        data += part
    return data


def _abi(report: LockReport) -> int:
    words = report.achieved.get("landlock", "").replace(",", "").split()
    return int(words[1]) if words[:1] == ["ABI"] else 0


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


#: Linux with Landlock, and the architectures that ``guest.confine`` has a table for.
OLDEST: Final = (5, 13)
ARCHITECTURES: Final = ("aarch64", "x86_64")
_NONE: Final = "this OS kernel has no Landlock, or it is not switched on: boot with lsm=landlock,…"
#: landlock_create_ruleset(2), which has one number everywhere, and what has it tell the ABI.
_CREATE_RULESET, _VERSION = 444, 1

_FILES = ("landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS = ("seccomp", "no_new_privs")


def _network(policy: Policy, support: Support) -> Declare:
    del support
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = f"{RELAYED}; system call filter: a cell connects nothing"
        return holds("network_access", mechanism, locks=_CALLS)
    return holds("network_access", "system call filter: no socket is opened", locks=_CALLS)


def _processes(policy: Policy, support: Support) -> Declare:
    del support
    if policy.subprocess_execution:
        mechanism = "programs beneath the system's folders, under the same locks"
        return holds("subprocess_execution", mechanism, locks=_FILES)
    mechanism = "system call filter: neither fork nor exec"
    return holds("subprocess_execution", mechanism, locks=_CALLS)


def _denied(policy: Policy, support: Support) -> Declare:
    del support
    from cellblock.backends.planner import splits_roots  # noqa: PLC0415 - plan is heavier

    mechanism = "Landlock: no rule covers them"
    if not splits_roots(policy):
        return holds("read_deny_paths", mechanism, locks=_FILES)
    return partly(
        "read_deny_paths",
        mechanism,
        EARLIER_LINKS,
        "what is created beside them after the kernel's start is not readable",
        locks=_FILES,
    )


def _packages(policy: Policy, support: Support) -> Declare:
    del support
    if policy.package_installation:
        return lambda _policy, _support: Enforcement(
            "package_installation", Status.unavailable, "the host alone installs packages", (), ""
        )
    return holds("package_installation", "no folder on the import path is writable", locks=_FILES)


def _memory(policy: Policy, support: Support) -> Declare:
    del support
    mechanism = (
        "RLIMIT_DATA: what is larger is a MemoryError; the filter refuses what it misses; "
        "the host kills a guest that it sees to hold an eighth more"
    )
    holes = [
        "files on a file system in memory that are not mapped: scratch_max_bytes",
        "buffers of sockets and pipes: a quarter MiB for each of max_open_files in each process",
    ]
    if policy.subprocess_execution:
        holes += ["what processes that a cell starts take in between, or share"]
    return partly("memory_max_bytes", mechanism, *holes, locks=("rlimits", "seccomp"))


class Landlock(Backend):
    """The locks of ``guest.confine``, all of them required."""

    name = "landlock"
    relays = True
    locks = ("capabilities", "no_new_privs", "not_dumpable", "rlimits", "landlock", "seccomp")
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        **RLIMITS,
        "filesystem_read_roots": partly(
            "filesystem_read_roots",
            "Landlock: files and folders outside the roots can't be opened",
            NAMES,
            locks=_FILES,
        ),
        "filesystem_write_roots": holds(
            "filesystem_write_roots",
            "Landlock; the system call filter refuses changes of mode, owner, times, attributes",
            locks=_FILES,
        ),
        "memory_max_bytes": by_policy("memory_max_bytes", _memory),
        "read_deny_paths": by_policy("read_deny_paths", _denied),
        "network_access": by_policy("network_access", _network),
        "subprocess_execution": by_policy("subprocess_execution", _processes),
        "package_installation": by_policy("package_installation", _packages),
    }

    def glance(self) -> Support:
        """Look at the architecture and whether the OS kernel has Landlock; take no lock."""
        machine = os.uname()
        if machine.sysname != "Linux" or _version(machine.release) < OLDEST:
            return unprobed("needs Linux 5.13 or later", usable=False)
        if machine.machine not in ARCHITECTURES:
            return unprobed(f"no system call table for {machine.machine}", usable=False)
        if why := _missing():
            return unprobed(why, usable=False)
        return unprobed("left to the guest's report", usable=True)

    def probe(self) -> Support:
        """Take the locks in a child and look whether they hold."""
        found = self.glance()
        return probe_locks(self.locks) if found.usable else found


def _missing() -> str:
    """Ask the OS kernel for Landlock's ABI, as guests do; return what is missing, or nothing."""
    try:
        import ctypes  # noqa: PLC0415 - not every Python was built with it
    except ImportError:
        return "this Python has no ctypes: use one that was built with libffi"
    abi = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return "" if abi > 0 else _NONE


def _version(release: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, found.groups())) if found else (0, 0)


# No enforcement: the policy is audited, not kept. One warning on first use.


class Noop(Backend):
    """Takes no lock and wraps nothing; only what the host does holds."""

    name = "noop"
    locks = ()
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        "filesystem_read_roots": nothing("filesystem_read_roots"),
        "filesystem_write_roots": nothing("filesystem_write_roots"),
        "read_deny_paths": nothing("read_deny_paths"),
        "network_access": nothing("network_access"),
        "subprocess_execution": nothing("subprocess_execution"),
        "package_installation": nothing("package_installation"),
        "memory_max_bytes": watched("memory_max_bytes"),
        "max_processes": nothing("max_processes"),
        "max_open_files": nothing("max_open_files"),
        "max_file_size": nothing("max_file_size"),
    }

    def glance(self) -> Support:
        """Return what ``probe`` does."""
        return self.probe()

    def probe(self) -> Support:
        """Return at once: there is nothing to try."""
        return unprobed("enforces nothing", usable=True)
