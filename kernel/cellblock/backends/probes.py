"""The probes that every backend's declarations are held to, and what their results mean.

A probe is an attempt that a guest makes in the real launch path, with a positive control
(``guest.probes`` has the programs). This module says what each one means: which capability it is
about, under which policies, and what a cell can do where it passes. A declaration that a probe
contradicts counts for nothing.

The capability's own way is tried, and ways around it. Where only a way around passes, the
capability holds in part; where the straight way passes, it is not enforced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.backends.base import EARLIER_LINKS, NAMES
from cellblock.backends.plan import has_list
from cellblock.policy.enforcement import Enforcement, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cellblock.policy.model import Policy

#: Tried in a guest of its own.
EARLIER_THREAD: Final = "earlier_thread"


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt. ``hole`` says what a cell can do where it passes.

    ``around`` marks a way around: where only such pass, the capability holds in part. ``lock`` is
    one of the guest's that the attempt is about, where a capability may rest on others.
    """

    name: str
    capability: str
    hole: str
    around: bool = False
    asked: Callable[[Policy], bool] = lambda _policy: True
    lock: str = ""


def _no_network(policy: Policy) -> bool:
    return policy.network_access is not True


def _listed_without_localhost(policy: Policy) -> bool:
    listed = policy.network_access
    if not isinstance(listed, tuple) or not listed:
        return False
    return all(entry.rpartition(":")[0].lower() != "localhost" for entry in listed)


def _no_processes(policy: Policy) -> bool:
    return not policy.subprocess_execution


_READ, _WRITE = "filesystem_read_roots", "filesystem_write_roots"
_NET, _RUN = "network_access", "subprocess_execution"

#: In the order of CAPABILITIES, and in that of the attempts.
PROBES: Final[tuple[Probe, ...]] = (
    Probe("read_file", _READ, "a cell can read files outside the roots"),
    Probe("list_folder", _READ, "a cell can list folders outside the roots"),
    Probe("look_up_name", _READ, NAMES, around=True),
    Probe("follow_link", _READ, "a cell can read through a link that it makes", around=True),
    Probe("hard_link", _READ, "a cell can read through a hard link that it makes", around=True),
    Probe("move_file", _READ, "a cell can move a file to where it can read it", around=True),
    Probe("inherited_descriptor", _READ, "a cell has what the host had open", around=True),
    Probe(EARLIER_THREAD, _READ, "a thread from before the locks is not held", around=True),
    Probe("write_file", _WRITE, "a cell can write to files outside the roots"),
    Probe("write_readable_file", _WRITE, "a cell can write to what it may only read"),
    Probe("make_file", _WRITE, "a cell can make files outside the roots"),
    Probe("truncate", _WRITE, "a cell can empty files outside the roots", around=True),
    Probe("remove", _WRITE, "a cell can remove files outside the roots", around=True),
    Probe("chmod", _WRITE, "a cell can change who may read a file", around=True),
    Probe("utime", _WRITE, "a cell can change a file's times", around=True),
    Probe("read_denied_file", "read_deny_paths", "a cell can read denied files"),
    Probe("earlier_hard_link", "read_deny_paths", EARLIER_LINKS, around=True),
    Probe("tcp", _NET, "a cell can connect by TCP", asked=_no_network),
    Probe("tcp_fast_open", _NET, "a cell can connect by TCP Fast Open", True, _no_network),
    Probe("udp", _NET, "a cell can send datagrams (UDP)", True, _no_network),
    Probe("listen", _NET, "a cell can listen for connections", True, _no_network),
    Probe("unlisted_port", _NET, "a cell can connect to other ports", asked=has_list),
    Probe("unlisted_host", _NET, "a cell can connect to other hosts", asked=has_list),
    Probe("unlisted_name", _NET, "a cell can ask for other names", True, _listed_without_localhost),
    Probe("turn_connection", _NET, "a cell can turn a connection elsewhere", True, has_list),
    Probe("mptcp", _NET, "a cell can connect by MPTCP", around=True),
    Probe("unix_socket", _NET, "a cell can connect to local sockets", around=True),
    Probe("abstract_socket", _NET, "a cell can connect to abstract local sockets", around=True),
    Probe("netlink", _NET, "a cell can ask the OS kernel by netlink", around=True),
    Probe("fork", _RUN, "a cell can fork", asked=_no_processes),
    Probe("spawn", _RUN, "a cell can start processes", asked=_no_processes),
    Probe("execute", _RUN, "a cell can execute programs", asked=_no_processes),
    Probe(
        "child_reads",
        _RUN,
        "processes that a cell starts can read outside the roots",
        asked=lambda policy: policy.subprocess_execution,
    ),
    Probe("signal", _RUN, "a cell can signal other processes", around=True),
    Probe("limit_of_another", _RUN, "a cell can lower other processes' limits", around=True),
    Probe("priority_of_another", _RUN, "a cell can change other processes' priority", around=True),
    Probe("write_on_import_path", "package_installation", "a cell can change packages"),
    Probe("environment", "env_var_access", "a cell can read the host's environment"),
    Probe("take_too_much", "memory_max_bytes", "a cell can take more memory", lock="rlimits"),
    Probe("open_too_many", "max_open_files", "a cell can open more files"),
    Probe("write_too_long", "max_file_size", "a cell can write larger files"),
)
BY_NAME: Final = {probe.name: probe for probe in PROBES}


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of one probe: ``refused``, ``passed`` or ``unwitnessed``, and why.

    ``disclosed`` says that the backend that was tried declares this hole.
    """

    outcome: str
    detail: str = ""
    disclosed: bool = False


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run of all probes saw, where and when; there is a result for each that was asked for.

    ``failure`` says why it did not come to its end.
    """

    results: dict[str, Seen]
    where: str
    time: str
    failure: str = ""


def asked(policy: Policy) -> tuple[Probe, ...]:
    """Return the probes that are about something that ``policy`` forbids or limits."""
    return tuple(
        probe
        for probe in PROBES
        if getattr(policy, probe.capability) is not None and probe.asked(policy)
    )


def disclosed(probe: Probe, declared: Mapping[str, Enforcement]) -> bool:
    """Whether a declaration has the hole that this probe goes through, or claims nothing there."""
    each = declared[probe.capability]
    if each.status in (Status.unenforced, Status.unavailable):
        return True
    if probe.lock and probe.lock not in each.locks:
        return True
    return probe.hole in each.holes


def contradicted(proof: Proof) -> tuple[Probe, ...]:
    """Return the probes that passed where a declaration says that they can't."""
    return tuple(probe for probe in PROBES if _passed(proof, probe))


def _passed(proof: Proof, probe: Probe) -> bool:
    seen = proof.results.get(probe.name)
    return seen is not None and seen.outcome == "passed" and not seen.disclosed


def judge(each: Enforcement, proof: Proof) -> Enforcement:
    """Return a declaration as the probes bear it out: verified, as it was, or contradicted.

    Nothing is verified where one of the capability's probes was not witnessed. What is declared
    unenforced or unavailable stays so.
    """
    results = {
        probe: proof.results[probe.name].outcome
        for probe in PROBES
        if probe.capability == each.capability and probe.name in proof.results
    }
    if not results or each.status in (Status.unenforced, Status.unavailable):
        return each

    def names(probes: Iterable[Probe]) -> str:
        return ", ".join(probe.name for probe in probes)

    if passed := [probe for probe in results if _passed(proof, probe)]:
        return replace(
            each,
            status=Status.partial if all(one.around for one in passed) else Status.unenforced,
            holes=tuple(dict.fromkeys((*(probe.hole for probe in passed), *each.holes))),
            evidence=f"seen to pass: {names(passed)}; {proof.where}; {proof.time}",
            contradicted=True,
        )
    unseen = [probe for probe, outcome in results.items() if outcome not in {"refused", "passed"}]
    if unseen:
        return replace(each, evidence=f"{each.evidence}; unwitnessed: {names(unseen)}")
    refused = names(probe for probe, outcome in results.items() if outcome == "refused")
    return replace(
        each,
        status=Status.verified if each.status is Status.asserted else each.status,
        evidence=f"seen to be refused: {refused}; {proof.where}; {proof.time}",
    )
