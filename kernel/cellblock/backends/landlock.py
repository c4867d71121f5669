"""Backend landlock: the guest locks itself by Landlock and a system call filter. Nothing wraps it.

Contract: files outside the roots can't be opened. No connection is made unless network_access is
True, and no process is started unless subprocess_execution is. No other process is signalled. With
a list of addresses, guests have a network of their own in which the listed hosts are neighbours.
Gap: names, sizes and times of files outside the roots can be seen, and where links lead.

The locks are those of ``guest.confine``, which ``bubblewrap`` and ``docker`` require as well. A
probe takes them in a child process, which then looks whether they hold. ``probe_argv`` returns that
probe as a command, which a wrapper can start.
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

#: The oldest Linux with Landlock, and the architectures for which ``guest.confine`` has a table.
OLDEST: Final = (5, 13)
ARCHITECTURES: Final = ("aarch64", "x86_64")
_NO_LANDLOCK: Final = (
    "this OS kernel has no Landlock, or it is not switched on: boot with lsm=landlock,…"
)
#: The number of landlock_create_ruleset(2), the same on all architectures, and the flag with which
#: it returns the ABI.
_CREATE_RULESET = 444
_VERSION = 1
#: The first ABI by which Landlock decides which devices take requests
#: (LANDLOCK_ACCESS_FS_IOCTL_DEV).
_REQUESTS_ABI: Final = 5
_NO_REQUESTS: Final = "no device is asked anything (ioctl): this takes Linux 6.10, Landlock ABI 5"

_FILES: Final = ("landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS: Final = ("seccomp", "no_new_privs")

#: The attempts that a probe must see fail, while their positive controls succeed.
_TO_WITNESS: Final = tuple(probe.name for probe in PROBES if probe.at_start is not None)
#: Seconds that a probe's child may take. It takes about 3 ms.
PATIENCE: Final = 2.0
_MAX_ANSWER_BYTES: Final = 64 * 1024


def denied_paths(mechanism: str, locks: tuple[str, ...]) -> Callable[[Policy], Declaration]:
    """Return the declaration of ``read_deny_paths``, with a hole if a root must be cut."""

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
    bound = "scratch_max_bytes, and a quarter MiB for each of max_open_files in each process"
    bounds = [policy.scratch_max_bytes, policy.max_open_files]
    if policy.subprocess_execution:
        bound += (
            "; what processes that a cell starts take in a tenth of a second, between cells in a "
            "second"
        )
        bounds.append(policy.max_processes)
    declaration = holds_within(
        "RLIMIT_DATA: what is larger is a MemoryError; the filter refuses what it misses; "
        "the host kills a guest that it sees to hold an eighth more",
        bound,
        known=None not in bounds,
        locks=("rlimits", "seccomp"),
    )
    if not policy.devices:
        return declaration
    return partly(declaration.mechanism, *declaration.holes, OF_DEVICES, locks=declaration.locks)


def _scratch(policy: Policy) -> Declaration:
    bound = (
        "what is written in a tenth of a second, and in each process max_file_size for each of "
        "max_open_files, and of 65,530 mappings, in files that were removed"
    )
    bounds = [policy.max_open_files, policy.max_file_size]
    bounds += [policy.max_processes] if policy.subprocess_execution else []
    return holds_within(SUMMED_SCRATCH, bound, known=None not in bounds, locks=("rlimits",))


class Landlock(Backend):
    """The locks of ``guest.confine``, all of which are required."""

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
        # A zygote that lays layers has namespaces, so it makes a network, too.
        "network_access": own_network(
            "", _CALLS, own=lambda policy: policy.filesystem_staged_roots
        ),
        "devices": holds(DEVICES, locks=_FILES),
        "subprocess_execution": _processes,
        "package_installation": package_installation(_FILES),
    }

    def glance(self) -> Support:
        """Look at the architecture, and whether the OS kernel has Landlock. Take no lock."""
        machine = os.uname()
        if machine.sysname != "Linux" or _version(machine.release) < OLDEST:
            return unprobed("needs Linux 5.13 or later", usable=False)
        if machine.machine not in ARCHITECTURES:
            return unprobed(f"no system call table for {machine.machine}", usable=False)
        if missing := _missing():
            return unprobed(missing, usable=False)
        return unprobed("left to the guest's report", usable=True)

    def why_no_list(self) -> str:
        """Return why no network namespace can be made, or ""."""
        return networks.why_not(self)

    def why_no_ports(self) -> str:
        """Return why no network namespace can be made, or "". The host can enter each."""
        return networks.why_not(self)

    def why_no_requests(self) -> str:
        """Return why Landlock can't decide which devices take requests; "" if it can."""
        return why_no_requests()

    def probe(self) -> Support:
        """Take the locks in a child process, which looks whether they hold."""
        support = self.glance()
        return support_from(_ask_child(_probe_plan(self.locks))) if support.usable else support


def _missing() -> str:
    """Ask the OS kernel for Landlock's ABI, as guests do; return what is missing, or ""."""
    try:
        return "" if _abi() > 0 else _NO_LANDLOCK
    except ImportError:
        return "this Python has no ctypes: use one that was built with libffi"


def _abi() -> int:
    """Return the version of Landlock's ABI, less than 1 without Landlock. Raises ImportError."""
    import ctypes  # noqa: PLC0415 - not every Python was built with it

    abi: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return abi


def why_no_requests() -> str:
    """Return why granted devices take no requests here; "" if they do."""
    try:
        return "" if _abi() >= _REQUESTS_ABI else _NO_REQUESTS
    except ImportError:
        return _NO_REQUESTS


def _version(release: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, match.groups())) if match else (0, 0)


# --- the probe --------------------------------------------------------------------------------


def support_from(answer: LockReport | str) -> Support:
    """Return the support that a probe's report gives. A text says why there is no report."""
    if isinstance(answer, str):
        return unprobed(answer, usable=False)
    witnessed_names = filter(None, answer.achieved.get("witness", "").split(", "))
    landlock = answer.achieved.get("landlock", "").replace(",", "").split()
    abi = int(landlock[1]) if landlock[:1] == ["ABI"] else 0
    return msgspec.structs.replace(witnessed(witnessed_names, _TO_WITNESS), abi=abi, report=answer)


def probe_argv(
    locks: tuple[str, ...], unseen: tuple[str, ...], bounded: tuple[tuple[str, int], ...] = ()
) -> list[str]:
    """Return the command that takes ``locks`` behind a wrapper and prints a report.

    It also makes sure that the names ``unseen`` are not there and that the folders ``bounded`` hold
    no more than they may (``Plan`` explains both). ``printed_answer`` reads its output.
    """
    plan = msgspec.json.encode(_probe_plan(locks, unseen, bounded)).decode()
    return trial_argv(__name__, "run_probe", plan)


def run_probe(plan: str) -> None:
    """Have a child process take the locks of ``plan``; print its report.

    Runs behind a wrapper.
    """
    report = _ask_child(msgspec.json.decode(plan, type=Plan))
    os.write(1, msgspec.json.encode(report))


def printed_answer(printed: bytes) -> LockReport | str:
    """Return the report that ``run_probe`` printed, or a text that says why there is none."""
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
    """Fork a child that takes the locks; return its report, or why there is none."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _confine_and_report(plan, write_end)
    os.close(write_end)
    try:
        return printed_answer(_read_all(read_end, pid))
    except OSError as error:
        return f"the probe gave no answer: {error}"
    finally:
        os.close(read_end)
        os.waitpid(pid, 0)


def _confine_and_report(plan: Plan, out: int) -> NoReturn:
    """Confine this child, write its report and exit, never returning into the parent's code."""
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
    """Read the pipe to its end. Kill a child that takes too long, and raise TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    data = b""
    while len(data) < _MAX_ANSWER_BYTES:
        if not is_readable(fd, max(0.0, deadline - time.monotonic())):
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"none within {PATIENCE:g} s")
        chunk = os.read(fd, _MAX_ANSWER_BYTES)
        if not chunk:
            break
        data += chunk
    return data
