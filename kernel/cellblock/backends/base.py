"""What a backend is: something that may wrap the zygote, and that says what it enforces.

A backend has no default declarations: one that forgets a capability, or names one that does not
exist, fails when its module is imported.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.policy.enforcement import CAPABILITIES, Enforcement, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


@dataclass(frozen=True, slots=True)
class Support:
    """What a probe found. ``usable`` is True only if it saw the locks hold here.

    ``witnessed`` names what it saw: each attempt failed and its positive control succeeded.
    """

    usable: bool
    why: str
    os_kernel: str
    abi: int
    witnessed: tuple[str, ...]
    time: str
    report: LockReport | None = None

    @property
    def evidence(self) -> str:
        """One line: what was seen, where, when."""
        return f"{self.why}; Linux {self.os_kernel}, Landlock ABI {self.abi}; {self.time}"


@dataclass(frozen=True, slots=True)
class Room:
    """What all guests of one zygote, their copies and the zygote may take; None is no bound.

    ``scratch`` is the folder of their own, among what is writable, and ``scratch_bytes`` its size.
    """

    scratch: str
    scratch_bytes: int | None
    memory_bytes: int | None
    tasks: int | None


@dataclass(frozen=True, slots=True)
class View:
    """What a wrapped zygote is to see of the file system; all but ``names`` is canonical.

    ``readable`` holds whole roots: what is ``masked`` may lie beneath them. ``names`` are the
    spellings that the interpreter and the host use: links on the way are to exist. ``movable`` are
    roots that cells may move: what is mounted there is to be what the host finds there itself.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    masked: tuple[str, ...]
    devices: tuple[str, ...]
    names: tuple[str, ...]
    movable: tuple[str, ...] = ()
    network: bool = False
    room: Room | None = None
    subprocess: bool = False


Declare = Callable[["Policy", Support], Enforcement]


class Backend(ABC):
    """One way of enforcing a policy on this machine."""

    name: ClassVar[str]
    #: The guest's locks, all of them required; () if the guest takes none.
    locks: ClassVar[tuple[str, ...]]
    #: Capability to what this backend does about it. No defaults.
    declarations: ClassVar[Mapping[str, Declare]]

    def __init_subclass__(cls) -> None:
        declared = set(cls.declarations)
        if declared != set(CAPABILITIES):
            missing = sorted(set(CAPABILITIES) - declared)
            unknown = sorted(declared - set(CAPABILITIES))
            raise TypeError(f"backend {cls.name}: undeclared {missing}, unknown {unknown}")

    @abstractmethod
    def probe(self) -> Support:
        """Try the real locks in a child process. Never raises; what can't be tried is unusable."""

    @abstractmethod
    def glance(self) -> Support:
        """Say in microseconds whether it is worth trying."""

    def attempt(self) -> Support:
        """Say in milliseconds whether a guest can start; what holds, its own report says."""
        return self.glance()

    #: Whether a policy that names it gets a weaker one, and is told so, where it can't be had.
    falls_back: ClassVar[bool] = True

    def under(self, policy: Policy) -> Backend:
        """Return this backend as ``policy`` wants it, where it has settings of its own."""
        del policy
        return self

    #: Whether ``command`` puts one in front; then no zygote can start before its policy is read.
    wraps: ClassVar[bool] = False
    #: Whether that command stays in front, as a process that the zygote is a child of.
    stays: ClassVar[bool] = False

    #: Whether guests under it can connect nothing, so that a relay decides what they reach.
    relays: ClassVar[bool] = False

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Yield the command that starts the zygote; as it is, where nothing wraps it.

        What it reads is open so long. Raises OSError; PolicyError for a view that can't be kept.
        """
        del view
        return nullcontext(list(argv))

    def words(self, argv: Sequence[str], view: View) -> tuple[str, ...]:
        """Return what ``command`` puts in front, where the next start may do so unasked: a guess.

        Nothing where each start is its own, or needs more than words.
        """
        del argv, view
        return ()

    def fingerprint(self) -> str:
        """Return what tells what ``command`` uses from anything else; "" where it uses nothing.

        Raises OSError where that can't be known.
        """
        return ""

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that are here and that a guest behind ``command`` must not see."""
        del view
        return ()

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return those of what is movable that ``command`` has mounted, by their names."""
        del view
        return ()

    def bounded(self, view: View) -> tuple[tuple[str, int], ...]:
        """Return folders that are file systems of their own behind it, and their bytes."""
        del view
        return ()

    def enforcement(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth on this machine, as far as a glance tells.

        Where the backend can't be had, nothing is that it would do.
        """
        support = self.glance()
        declared = self.declare(policy, support)
        if support.usable:
            return declared
        return {name: _absent(each, support) for name, each in declared.items()}

    def declare(self, policy: Policy, support: Support) -> dict[str, Enforcement]:
        """Return what each capability is worth here, in the order of ``CAPABILITIES``."""
        return {name: self.declarations[name](policy, support) for name in CAPABILITIES}


def _absent(each: Enforcement, support: Support) -> Enforcement:
    return replace(each, status=Status.unavailable, holes=(), evidence=support.why)


# Declarations that no backend changes: what the host does, and what rlimits do anywhere.

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
