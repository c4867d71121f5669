"""Landlock and a system call filter: the guest locks itself, nothing wraps the zygote.

Contract: files outside the roots can't be opened, nothing is connected unless network_access is
True, no process is started unless subprocess_execution is, and no other process is signalled. Under
a list of addresses guests have a network of their own, in which listed hosts are neighbours.
Gap: names, sizes and times of files outside the roots can be seen, and where links lead.

The locks are those of ``guest.confine``, which ``bubblewrap`` and ``docker`` require as well. A
probe takes them in a child process, which then looks whether they hold; ``probe_argv`` is that
probe as a program, for a wrapper to start.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

import msgspec

from cellblock.backends import networks
from cellblock.backends.base import (
    BY_RLIMITS,
    DEVICES,
    HOST,
    OF_DEVICES,
    SUMMED_SCRATCH,
    Backend,
    Declaration,
    Declare,
    Support,
    holds,
    holds_within,
    own_network,
    package_installation,
    partly,
    trial_argv,
    unprobed,
    witnessed,
)
from cellblock.backends.plan import splits_roots
from cellblock.descriptors import is_readable
from cellblock.guest.probes import EARLIER_LINKS, NAMES, PROBES
from cellblock.wire.messages import LockReport, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.policy.model import Policy

#: Linux with Landlock, and the architectures that ``guest.confine`` has a table for.
OLDEST: Final = (5, 13)
ARCHITECTURES: Final = ("aarch64", "x86_64")
_NO_LANDLOCK: Final = (
    "this OS kernel has no Landlock, or it is not switched on: boot with lsm=landlock,…"
)
#: landlock_create_ruleset(2), which has one number everywhere, and what has it tell the ABI.
_CREATE_RULESET, _VERSION = 444, 1
#: The first ABI with which it decides which devices are asked (LANDLOCK_ACCESS_FS_IOCTL_DEV).
_ASKING: Final = 5
_NO_REQUESTS: Final = "no device is asked anything (ioctl): this takes Linux 6.10, Landlock ABI 5"

_FILES: Final = ("landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS: Final = ("seccomp", "no_new_privs")

#: What a probe has to see hold: an attempt of each fails, and its positive control succeeds.
_TO_WITNESS: Final = tuple(probe.name for probe in PROBES if probe.at_start is not None)
#: Seconds that a probe's child may take; it takes about three milliseconds.
PATIENCE: Final = 2.0
_MAX_ANSWER_BYTES: Final = 64 * 1024


def denied_paths(mechanism: str, locks: tuple[str, ...]) -> Callable[[Policy], Declaration]:
    """Declare ``read_deny_paths``: there is a hole where a root had to be cut around one."""

    def declare(policy: Policy) -> Declaration:
        if splits_roots(policy):
            return partly(mechanism, EARLIER_LINKS, locks=locks)
        return holds(mechanism, locks=locks)

    return declare


def _processes(policy: Policy) -> Declaration:
    if policy.subprocess_execution:
        return holds("programs beneath the system's folders, under the same locks", locks=_FILES)
    return holds("system call filter: neither fork nor exec", locks=_CALLS)


def _memory(policy: Policy) -> Declaration:
    beyond = "scratch_max_bytes, and a quarter MiB for each of max_open_files in each process"
    bounds = [policy.scratch_max_bytes, policy.max_open_files]
    if policy.subprocess_execution:
        beyond += (
            "; what processes that a cell starts take in a tenth of a second, between cells in a "
            "second"
        )
        bounds.append(policy.max_processes)
    said = holds_within(
        "RLIMIT_DATA: what is larger is a MemoryError; the filter refuses what it misses; "
        "the host kills a guest that it sees to hold an eighth more",
        beyond,
        known=None not in bounds,
        locks=("rlimits", "seccomp"),
    )
    if not policy.devices:
        return said
    return partly(said.mechanism, *said.holes, OF_DEVICES, locks=said.locks)


def _scratch(policy: Policy) -> Declaration:
    beyond = (
        "what is written in a tenth of a second, and in each process max_file_size for each of "
        "max_open_files, and of 65,530 mappings, in files that were removed"
    )
    bounds = [policy.max_open_files, policy.max_file_size]
    bounds += [policy.max_processes] if policy.subprocess_execution else []
    return holds_within(SUMMED_SCRATCH, beyond, known=None not in bounds, locks=("rlimits",))


class Landlock(Backend):
    """The locks of ``guest.confine``, all of them required."""

    name = "landlock"
    stages = grants_devices = True
    locks = ("capabilities", "no_new_privs", "not_dumpable", "rlimits", "landlock", "seccomp")
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        **BY_RLIMITS,
        "filesystem_read_roots": partly(
            "Landlock: files and folders outside the roots can't be opened", NAMES, locks=_FILES
        ),
        "filesystem_write_roots": holds(
            "Landlock; the system call filter refuses changes of mode, owner, times, attributes; "
            "beside staged roots a read-only mount may do that instead",
            locks=_FILES,
        ),
        "memory_max_bytes": _memory,
        "scratch_max_bytes": _scratch,
        "filesystem_staged_roots": holds(
            "an overlay in a mount namespace: what is written lands in the session's own folder",
            locks=_FILES,
        ),
        "read_deny_paths": denied_paths("Landlock: no rule covers them", _FILES),
        # Who lays layers has namespaces.
        "network_access": own_network(
            "", _CALLS, own=lambda policy: policy.filesystem_staged_roots
        ),
        "devices": holds(DEVICES, locks=_FILES),
        "subprocess_execution": _processes,
        "package_installation": package_installation(_FILES),
    }

    def glance(self) -> Support:
        """Look at the architecture and whether the OS kernel has Landlock; take no lock."""
        machine = os.uname()
        if machine.sysname != "Linux" or _version(machine.release) < OLDEST:
            return unprobed("needs Linux 5.13 or later", usable=False)
        if machine.machine not in ARCHITECTURES:
            return unprobed(f"no system call table for {machine.machine}", usable=False)
        if missing := _missing():
            return unprobed(missing, usable=False)
        return unprobed("left to the guest's report", usable=True)

    def why_no_list(self) -> str:
        """Return why no network namespace can be made."""
        return networks.why_not(self)

    def why_no_ports(self) -> str:
        """Return why no network namespace can be made; the host enters any that is made."""
        return networks.why_not(self)

    def why_no_requests(self) -> str:
        """Return whether this OS kernel's Landlock is too old to decide who is asked."""
        return why_no_requests()

    def probe(self) -> Support:
        """Take the locks in a child and look whether they hold."""
        found = self.glance()
        return support_from(_ask_child(_probe_plan(self.locks))) if found.usable else found


def _missing() -> str:
    """Ask the OS kernel for Landlock's ABI, as guests do; return what is missing, or nothing."""
    try:
        return "" if _abi() > 0 else _NO_LANDLOCK
    except ImportError:
        return "this Python has no ctypes: use one that was built with libffi"


def _abi() -> int:
    """Return Landlock's ABI, less than 1 where there is none. Raises ImportError."""
    import ctypes  # noqa: PLC0415 - not every Python was built with it

    abi: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return abi


def why_no_requests() -> str:
    """Return why granted devices can't be asked anything here; empty where they can."""
    try:
        return "" if _abi() >= _ASKING else _NO_REQUESTS
    except ImportError:
        return _NO_REQUESTS


def _version(release: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, found.groups())) if found else (0, 0)


# --- the probe --------------------------------------------------------------------------------


def support_from(answer: LockReport | str) -> Support:
    """Return what a probe's report is worth, or why there is none."""
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    seen = filter(None, answer.achieved.get("witness", "").split(", "))
    landlock = answer.achieved.get("landlock", "").replace(",", "").split()
    abi = int(landlock[1]) if landlock[:1] == ["ABI"] else 0
    return msgspec.structs.replace(witnessed(seen, _TO_WITNESS), abi=abi, report=answer)


def probe_argv(
    locks: tuple[str, ...], unseen: tuple[str, ...], bounded: tuple[tuple[str, int], ...] = ()
) -> list[str]:
    """Return the program that takes ``locks`` behind a wrapper and prints a report.

    Beside them it looks that ``unseen`` is not there and that ``bounded`` holds no more than it may
    (``Plan`` says of each what it is). ``printed_answer`` reads what it prints.
    """
    plan = msgspec.json.encode(_probe_plan(locks, unseen, bounded)).decode()
    return trial_argv(__name__, "run_probe", plan)


def run_probe(plan: str) -> None:
    """Have a child take the locks of ``plan``, and print its report. Runs behind a wrapper."""
    report = _ask_child(msgspec.json.decode(plan, type=Plan))
    os.write(1, msgspec.json.encode(report))


def printed_answer(printed: bytes) -> LockReport | str:
    """Return the report that ``run_probe`` has printed, or why there is none."""
    try:
        return msgspec.json.decode(printed[:_MAX_ANSWER_BYTES], type=LockReport | str)
    except msgspec.MsgspecError as error:
        return f"the probe gave no answer: {error}"


def _probe_plan(
    locks: tuple[str, ...],
    unseen: tuple[str, ...] = (),
    bounded: tuple[tuple[str, int], ...] = (),
) -> Plan:
    roots = (str(Path(__file__).resolve().parent),)
    return Plan(read_roots=roots, unseen=unseen, bounded=bounded, locks=locks, required=locks)


def _ask_child(plan: Plan) -> LockReport | str:
    """Return the child's report, or why there is none."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _confine_and_report(plan, theirs)
    os.close(theirs)
    try:
        return printed_answer(_read_all(ours, pid))
    except OSError as error:
        return f"the probe gave no answer: {error}"
    finally:
        os.close(ours)
        os.waitpid(pid, 0)


def _confine_and_report(plan: Plan, out: int) -> NoReturn:
    """Confine this child, write its report, end. Never returns into the parent's code."""
    status = 1
    try:
        from cellblock.guest.confine import ConfineError, confine  # noqa: PLC0415 - Linux alone

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
    while len(data) < _MAX_ANSWER_BYTES:
        if not is_readable(fd, max(0.0, deadline - time.monotonic())):
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"none within {PATIENCE:g} s")
        part = os.read(fd, _MAX_ANSWER_BYTES)
        if not part:
            break
        data += part
    return data
