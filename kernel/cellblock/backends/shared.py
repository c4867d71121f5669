"""Declarations that no backend changes: what the host does, and what rlimits do anywhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cellblock.policy.enforcement import Enforcement, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.backends.base import Declare, Support
    from cellblock.policy.model import Policy


#: Holes that declarations disclose, and probes show (``contract``).
NAMES: Final = "names, sizes and times of files outside the roots can be looked up"
EARLIER_LINKS: Final = (
    "a denied file that has another name (a hard link) beneath a read root is readable"
)

#: How a list of addresses is kept.
RELAYED: Final = "the host's relay looks up what is listed, connects to it, hands the socket in"

#: Whether one process can look at another's clock and memory as ``host.session.limits`` does.
_WATCHED = os.uname().sysname == "Linux"


def holds(capability: str, mechanism: str, *, locks: tuple[str, ...] = ()) -> Declare:
    """Declare a mechanism without known holes, which no probe attempts to break."""
    return lambda _policy, support: Enforcement(
        capability, Status.asserted, mechanism, (), support.evidence if locks else "", locks
    )


def partly(capability: str, mechanism: str, *holes: str, locks: tuple[str, ...] = ()) -> Declare:
    """Declare a mechanism with these holes."""
    return lambda _policy, support: Enforcement(
        capability, Status.partial, mechanism, holes, support.evidence if locks else "", locks
    )


def nothing(capability: str) -> Declare:
    """Declare that nothing enforces this."""
    return lambda _policy, _support: Enforcement(capability, Status.unenforced, "none", (), "")


def watched(capability: str) -> Declare:
    """Declare what the host's looking alone does about memory (``host.session.limits``)."""
    if not _WATCHED:
        return nothing(capability)
    mechanism = "the host kills a guest that it sees to hold an eighth more"
    return partly(capability, mechanism, "what is taken between two looks, a tenth of a second")


def by_policy(capability: str, decide: Callable[[Policy, Support], Declare]) -> Declare:
    """Declare what ``decide`` picks for this policy on this machine."""
    del capability
    return lambda policy, support: decide(policy, support)(policy, support)


_GATEWAY: Mapping[str, str] = {
    "text": "the host passes on plain text only",
    "sanitized": "the host passes on what it has sanitised",
    "isolated": "as sanitized; what needs scripts runs in nested frames without origin or network",
}


def _display(policy: Policy, _support: Support) -> Declare:
    if policy.display == "trusted":
        return nothing("display")
    return holds("display", _GATEWAY[policy.display])


def _comms(capability: str) -> Declare:
    def decide(policy: Policy, _support: Support) -> Declare:
        if policy.display == "trusted":
            return nothing(capability)
        return holds(capability, "the host passes on comms of these alone")

    return by_policy(capability, decide)


def _cpu(policy: Policy, _support: Support) -> Declare:
    if not _WATCHED:
        return nothing("cpu_seconds")
    mechanism = "the host reads the guest's processor clock, interrupts the cell, then kills it"
    if policy.subprocess_execution:
        hole = "processes that live for less than a tenth of a second and are never waited for"
        return partly("cpu_seconds", mechanism, hole)
    return holds("cpu_seconds", mechanism)


def _scratch(_policy: Policy, _support: Support) -> Declare:
    return partly(
        "scratch_max_bytes",
        "the host adds up the folder, interrupts the cell, then kills it",
        "what is written between two looks, a tenth of a second",
        "files that were removed while they are open: max_open_files times max_file_size",
    )


#: What the host does for every backend. An entry says what code does today, not what is planned.
HOST: Mapping[str, Declare] = {
    "env_var_access": holds("env_var_access", "the guest starts from an empty environment"),
    "display": by_policy("display", _display),
    "widget_modules": _comms("widget_modules"),
    "comm_targets": _comms("comm_targets"),
    "snapshots": holds("snapshots", "a copy of the guest waits before each cell"),
    "undo_depth": holds("undo_depth", "the host keeps as many copies"),
    "undo_max_bytes": holds("undo_max_bytes", "the host lets go of the oldest copies"),
    "timeout": holds("timeout", "the host kills the guest"),
    "cpu_seconds": by_policy("cpu_seconds", _cpu),
    "scratch_max_bytes": by_policy("scratch_max_bytes", _scratch),
    "idle_timeout": nothing("idle_timeout"),
    "stdout_max_bytes": holds("stdout_max_bytes", "the host leaves out and counts what is beyond"),
    "stderr_max_bytes": holds("stderr_max_bytes", "the host leaves out and counts what is beyond"),
    "display_max_bytes": holds("display_max_bytes", "the host leaves out what is beyond"),
    "output_kept_max_bytes": holds("output_kept_max_bytes", "the host writes no more"),
    "artifact_max_bytes": holds("artifact_max_bytes", "the host copies no more of a file"),
    "artifacts_max_bytes": holds("artifacts_max_bytes", "the host copies no more"),
}


def _processes(_policy: Policy, _support: Support) -> Declare:
    if os.getuid() == 0:
        return nothing("max_processes")
    return partly(
        "max_processes",
        "RLIMIT_NPROC",
        "counts everything this user runs, from the number at the guest's start",
        locks=("rlimits",),
    )


#: What resource limits do wherever the guest can set them.
RLIMITS: Mapping[str, Declare] = {
    "memory_max_bytes": partly(
        "memory_max_bytes",
        "RLIMIT_DATA: a larger allocation is a MemoryError",
        "shared and file-backed mappings are not counted",
        locks=("rlimits",),
    ),
    "max_processes": by_policy("max_processes", _processes),
    "max_open_files": holds("max_open_files", "RLIMIT_NOFILE", locks=("rlimits",)),
    "max_file_size": holds("max_file_size", "RLIMIT_FSIZE", locks=("rlimits",)),
}
