"""macOS's sandbox: the zygote starts under a profile that denies by default.

Contract: files outside the roots can't be read, changed or looked up, nothing is reached over a
network unless network_access is True, and no program but this interpreter is executed unless
subprocess_execution is. Zygote and guests are under one profile.
Gaps: guests can fork, because the zygote has to; nothing here limits memory, files or processor
time; sandbox-exec is deprecated and its language undocumented (ADR 0091). Never verified: what
is claimed rests on the profile, and no guest has been tried under it.
"""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends.base import Backend, Declare, Support
from cellblock.backends.probes import unprobed
from cellblock.backends.shared import HOST, by_policy, holds, nothing, partly
from cellblock.policy.enforcement import Enforcement, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cellblock.backends.base import View
    from cellblock.policy.model import Policy

#: Part of macOS. Not looked up on PATH, which may hold another.
SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"

_HARD_LINK = "a hard link to a denied file, made elsewhere beneath a read root, is readable"
_FORKS = "a cell can fork copies of itself, which stay under the profile"
_EXECUTES = "a cell can execute this interpreter anew, under the profile and without the guards"


def _network(policy: Policy, _support: Support) -> Declare:
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = "Seatbelt: no address is reached, those on the list neither"
        return _unavailable("network_access", mechanism)
    return holds("network_access", "Seatbelt: network*, local sockets with names too")


def _processes(policy: Policy, _support: Support) -> Declare:
    if policy.subprocess_execution:
        mechanism = "programs beneath the system's folders, under the same profile"
        return holds("subprocess_execution", mechanism)
    return partly("subprocess_execution", "Seatbelt: process-exec", _FORKS, _EXECUTES)


def _denied(policy: Policy, _support: Support) -> Declare:
    from cellblock.backends.planner import splits_roots  # noqa: PLC0415 - plan is heavier

    mechanism = "Seatbelt: denied after every grant"
    if splits_roots(policy):
        return partly("read_deny_paths", mechanism, _HARD_LINK)
    return holds("read_deny_paths", mechanism)


def _packages(policy: Policy, _support: Support) -> Declare:
    if policy.package_installation:
        return _unavailable("package_installation", "the host alone installs packages")
    return holds("package_installation", "no folder on the import path is writable")


def _unavailable(capability: str, mechanism: str) -> Declare:
    return lambda _policy, _support: Enforcement(capability, Status.unavailable, mechanism, (), "")


def _as_found(declare: Declare) -> Declare:
    """Have a declaration carry what the probe found as its evidence."""
    return lambda policy, support: replace(
        declare(policy, support), evidence=f"{support.why}; macOS {support.os_kernel}"
    )


def _decided(capability: str, decide: Callable[[Policy, Support], Declare]) -> Declare:
    return _as_found(by_policy(capability, decide))


class Seatbelt(Backend):
    """One profile around zygote and guests. The guest takes no lock of its own on macOS."""

    name = "seatbelt"
    locks = ()
    wraps = True
    declarations: ClassVar[Mapping[str, Declare]] = {
        **HOST,
        "filesystem_read_roots": _as_found(
            holds("filesystem_read_roots", "Seatbelt: file-read*, names, sizes and times too")
        ),
        "filesystem_write_roots": _as_found(
            holds("filesystem_write_roots", "Seatbelt: file-write*; no hard links are made")
        ),
        "read_deny_paths": _decided("read_deny_paths", _denied),
        "network_access": _decided("network_access", _network),
        "subprocess_execution": _decided("subprocess_execution", _processes),
        "package_installation": _decided("package_installation", _packages),
        "snapshots": _unavailable("snapshots", "the host keeps copies of guests on Linux only"),
        "undo_depth": _unavailable("undo_depth", "the host keeps copies of guests on Linux only"),
        "cpu_seconds": nothing("cpu_seconds"),
        "memory_max_bytes": nothing("memory_max_bytes"),
        "max_processes": nothing("max_processes"),
        "max_open_files": nothing("max_open_files"),
        "max_file_size": nothing("max_file_size"),
    }

    def glance(self) -> Support:
        """Look for macOS and its sandbox-exec; start nothing."""
        system = platform.system()
        if system != "Darwin":
            return unprobed(f"needs macOS, and this is {system}", usable=False)
        if not os.access(SANDBOX_EXEC, os.X_OK):
            return unprobed(f"no {SANDBOX_EXEC}", usable=False)
        return unprobed("left to sandbox-exec: it starts nothing if it can't", usable=True)

    def probe(self) -> Support:
        """Start this interpreter under a profile and have it look whether that holds."""
        found = self.glance()
        if not found.usable:
            return found
        from cellblock.backends.trial import trial  # noqa: PLC0415 - on macOS alone

        return trial(self)

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield what ``wrap`` returns."""
        yield self.wrap(argv, view)

    def wrap(self, argv: Sequence[str], view: View) -> list[str]:
        """Return ``argv`` under a profile, which replaces sandbox-exec in the same process.

        Raises PolicyError for a view that can't be kept.
        """
        from cellblock.backends.profile import profile  # noqa: PLC0415 - where it is needed

        return [SANDBOX_EXEC, "-p", profile(view), *argv]
