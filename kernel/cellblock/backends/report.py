"""From declarations and the guest's report to what is shown: settled statuses, and gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cellblock.backends import chooser
from cellblock.backends.contract import BY_NAME
from cellblock.errors import BackendError
from cellblock.policy.enforcement import CAPABILITIES, Enforcement, Gap, Status
from cellblock.wire.messages import LockReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.backends.chooser import Chosen
    from cellblock.backends.contract import Proof
    from cellblock.policy.enforcement import Enforcement
    from cellblock.policy.model import Policy

    Prove = Callable[[Policy, chooser.Chosen], tuple[Proof | None, LockReport | None]]


#: The name under which a guest reports that the zygote decides on starts (``confine.gate``).
GATE: Final = "gate"

#: Characters of why no guest reported.
_LONGEST: Final = 300

#: What takes a fork of the guest.
_FORKED: Final = ("snapshots", "undo_depth")

#: Capability to what would stop holding, in the user's words.
CONSEQUENCES: Final = {
    "filesystem_read_roots": "a cell can read any file that you can",
    "filesystem_write_roots": "a cell can change any file that you can",
    "read_deny_paths": "a cell can read your credentials",
    "network_access": "a cell can send data anywhere",
    "subprocess_execution": "a cell can start programs",
    "package_installation": "a cell can install packages",
    "env_var_access": "a cell can read the host's environment",
    "display": "a cell can act as you in the page that shows its output",
    "widget_modules": "a cell can run any widget's script in the page",
    "comm_targets": "a cell can talk to any extension of the front end",
    "snapshots": "a killed cell costs the variables",
    "undo_depth": "%undo has nothing to go back to",
    "timeout": "a cell can run for ever",
    "idle_timeout": "an idle kernel keeps its memory",
    "cpu_seconds": "a cell can keep the processor busy until its timeout",
    "memory_max_bytes": "a cell can use up the machine's memory",
    "max_processes": "a cell can start threads without number",
    "max_open_files": "a cell can open files without number",
    "max_file_size": "a cell can fill the disk",
    "scratch_max_bytes": "a cell can fill the disk with many files",
    "stdout_max_bytes": "a cell can flood the notebook",
    "stderr_max_bytes": "a cell can flood the notebook",
    "display_max_bytes": "a cell can flood the notebook with rich output",
    "undo_max_bytes": "copies of the guest can use up the machine's memory",
    "output_kept_max_bytes": "a cell can fill the host's disk with what it prints",
    "artifact_max_bytes": "a cell can fill the host's disk with a file that is copied out",
    "artifacts_max_bytes": "cells can fill the host's disk with files that are copied out",
}

#: Where a better remedy than another machine is known.
REMEDIES: Final = {
    "filesystem_read_roots": "install bubblewrap, which hides names; see `cellblock doctor`",
    "idle_timeout": "let the server cull idle kernels (MappingKernelManager.cull_idle_timeout)",
    "max_processes": "run the kernel as an unprivileged user, or in a cgroup with pids.max",
    "memory_max_bytes": "run the kernel in a cgroup with memory.max",
    "snapshots": "use Linux 5.0 or later, and no seccomp listener above the kernel",
    "undo_depth": "use Linux 5.0 or later, and no seccomp listener above the kernel",
    "scratch_max_bytes": "put the folder for temporary files on a disk with a quota",
    "network_access": "set network_access to true, or register a host operation for that address",
    "package_installation": "list what notebooks need in packages, or grant ops.install",
}
#: Where a capability holds but for holes of its own: another OS kernel would have them too.
_NARROWER: Final = {
    "read_deny_paths": "grant narrower filesystem_read_roots, with nothing denied beneath them",
}
_CONTRADICTED: Final = (
    "name another backend, and report this: `cellblock doctor --json` says it all"
)
_ELSEWHERE: Final = "use Linux 5.13 or later with Landlock switched on, or choose another backend"


def settle(
    declared: Mapping[str, Enforcement],
    report: LockReport | None,
    proof: Proof | None = None,
) -> dict[str, Enforcement]:
    """Return the declarations as the guest's report, and the suite of probes, bear them out.

    A lock that is not reported as achieved voids whatever rests on it; without a report nothing is
    lowered. What the suite saw to be refused makes "asserted" into "verified", and nothing else
    does; what it saw to pass makes it unenforced, or partial.
    """
    settled = dict(declared)
    if report is not None:
        settled = {name: _settled(each, report) for name, each in settled.items()}
    if proof is not None:
        from cellblock.backends.contract import judge  # noqa: PLC0415 - most starts have none

        settled = {name: judge(each, proof) for name, each in settled.items()}
    return settled


def heard(chosen: Chosen, proof: Proof | None, report: LockReport | None) -> LockReport | None:
    """Return what is known of the locks: from a suite's guest, else from the backend's own probe.

    Where a suite ran and no guest of its reported anything, no lock is achieved: what a backend's
    probe was told does not count, when guests do not start.
    """
    if report is not None or proof is None:
        return report or chosen.support.report
    return LockReport(failed=dict.fromkeys(chosen.backend.locks, proof.failure[:_LONGEST]))


def gaps(
    policy: Policy,
    declared: Mapping[str, Enforcement],
    report: LockReport | None = None,
    proof: Proof | None = None,
) -> tuple[Gap, ...]:
    """Return what is configured and does not wholly hold here, in the order of CAPABILITIES."""
    settled = settle(declared, report, proof)
    return tuple(
        _gap(policy, settled[name])
        for name in CAPABILITIES
        if configured(policy, name) and not settled[name].holds
    )


def replaced(policy: Policy, chosen: Chosen) -> tuple[Gap, ...]:
    """Return the gap of a policy that names a backend and got another, if it did."""
    if policy.backend in ("auto", chosen.backend.name):
        return ()
    why = dict(chosen.passed_over).get(policy.backend, "not tried")
    return (
        Gap(
            capability="backend",
            status=Status.unavailable,
            asked=policy.backend,
            actual=chosen.backend.name,
            consequence=f"{chosen.backend.name} is in force instead: {policy.backend} {why}",
            remedy='set backend to "auto", or on_unsupported to "error" to run nothing then',
        ),
    )


def blocking(policy: Policy, found: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Return the gaps with which nothing may run: required ones, and all under ``error``.

    A partial capability counts as enforced here, its holes are shown; but not one whose holes a
    probe found, and no declaration knows of.
    """
    return tuple(
        gap
        for gap in found
        if (gap.contradicted or gap.status is not Status.partial)
        and (policy.on_unsupported == "error" or gap.capability in policy.require)
    )


def configured(policy: Policy, capability: str) -> bool:
    """Return whether the policy asks for anything there."""
    special: dict[str, Callable[[], bool]] = {
        "filesystem_read_roots": lambda: True,
        "filesystem_write_roots": lambda: True,
        "env_var_access": lambda: True,
        "network_access": lambda: policy.network_access is not True,
        "subprocess_execution": lambda: not policy.subprocess_execution,
        "package_installation": lambda: True,
        "read_deny_paths": lambda: bool(policy.read_deny_paths),
        "display": lambda: policy.display != "trusted",
        "widget_modules": lambda: policy.display != "trusted",
        "comm_targets": lambda: policy.display != "trusted",
        "snapshots": lambda: policy.snapshots != "off",
        "undo_depth": lambda: policy.snapshots != "off" and policy.undo_depth > 0,
    }
    if capability in special:
        return special[capability]()
    return getattr(policy, capability) is not None


def _settled(each: Enforcement, report: LockReport) -> Enforcement:
    if each.capability == "max_processes" and GATE in report.achieved:
        return _counted_by_gate(each, report)
    if each.capability in _FORKED and "seccomp" in report.achieved and GATE not in report.achieved:
        # The filter refuses every fork, and nobody is there to let one through.
        why = "no gate: forks can't be let through one by one"
        return replace(each, status=Status.unavailable, holes=(), evidence=why)
    missing = [lock for lock in each.locks if lock not in report.achieved]
    if missing:
        why = "; ".join(f"{lock}: {report.failed.get(lock, 'not reported')}" for lock in missing)
        return replace(each, status=Status.unavailable, holes=(), evidence=why)
    if not each.locks:
        return each
    said = "; ".join(f"{lock}: {report.achieved[lock]}" for lock in each.locks[:1])
    return replace(each, evidence=f"{each.evidence}; guest: {said}")


def _counted_by_gate(each: Enforcement, report: LockReport) -> Enforcement:
    return replace(
        each,
        status=Status.asserted,
        mechanism="the zygote counts this guest's threads and processes",
        holes=(),
        evidence=f"guest: gate: {report.achieved[GATE]}",
    )


def _gap(policy: Policy, each: Enforcement) -> Gap:
    return Gap(
        capability=each.capability,
        status=each.status,
        asked=_asked(policy, each.capability),
        actual=each.mechanism,
        consequence=_consequence(policy, each),
        remedy=_remedy(each),
        contradicted=each.contradicted,
    )


def _remedy(each: Enforcement) -> str:
    if each.contradicted:
        return _CONTRADICTED
    if each.status is Status.partial and each.capability in _NARROWER:
        return _NARROWER[each.capability]
    return REMEDIES.get(each.capability, _ELSEWHERE)


def _consequence(policy: Policy, each: Enforcement) -> str:
    if each.capability == "network_access" and isinstance(policy.network_access, tuple):
        if policy.network_access and each.status is Status.unavailable and not each.locks:
            return "connections to the listed addresses fail"
    elif each.capability == "package_installation" and policy.package_installation:
        return "a cell that runs an installer fails"
    return "; ".join(each.holes) or CONSEQUENCES[each.capability]


def _asked(policy: Policy, capability: str) -> str:
    value = getattr(policy, capability)
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "allowed" if value else "not allowed"
    return str(value)


# What ``cellblock doctor`` says about enforcement, as a value.


@dataclass(frozen=True, slots=True)
class BackendVerdict:
    """One backend in the order of preference, and what came of it."""

    name: str
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """What came of one probe: refused, passed, disclosed or unwitnessed."""

    name: str
    capability: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Backends in order, then each capability's status under the chosen one.

    ``unproved`` says why the suite of probes did not run to its end; then some are unwitnessed,
    and where it was tried at all (``probes``) a kernel's guests may not start either.
    """

    backend: str
    order: tuple[BackendVerdict, ...]
    os_kernel: str
    landlock_abi: int
    witnessed: tuple[str, ...]
    time: str
    capabilities: tuple[Enforcement, ...]
    gaps: tuple[Gap, ...]
    probes: tuple[ProbeVerdict, ...]
    unproved: str


def doctor_report(policy: Policy, prove: Prove | None = None) -> DoctorReport:
    """Probe this machine for ``policy``; ``prove`` runs the suite of probes in a guest.

    Without it nothing is verified. Where none but noop is left for a policy that insists on more,
    the report is about noop, and says what keeps cells from running. Raises BackendError as
    ``choose`` does otherwise.
    """
    try:
        chosen = chooser.choose(policy)
    except BackendError:
        chosen = chooser.choose(policy.replace(require=(), on_unsupported="warn"))
    declared = chosen.declare(policy)
    proof, seen = prove(policy, chosen) if prove else (None, None)
    report = heard(chosen, proof, seen)
    return DoctorReport(
        backend=chosen.backend.name,
        order=_order(policy, chosen),
        os_kernel=chosen.support.os_kernel,
        landlock_abi=chosen.support.abi,
        witnessed=chosen.support.witnessed,
        time=chosen.support.time,
        capabilities=tuple(settle(declared, report, proof).values()),
        gaps=(*replaced(policy, chosen), *gaps(policy, declared, report, proof)),
        probes=_verdicts(proof),
        unproved=proof.failure if proof else "the suite of probes was not run",
    )


def _verdicts(proof: Proof | None) -> tuple[ProbeVerdict, ...]:
    """Return what came of each probe; one that passed as it is told that it does is "disclosed"."""
    return tuple(
        ProbeVerdict(
            name=name,
            capability=BY_NAME[name].capability,
            outcome="disclosed" if seen.disclosed else seen.outcome,
            detail=seen.detail,
        )
        for name, seen in (proof.results if proof else {}).items()
    )


def _order(policy: Policy, chosen: chooser.Chosen) -> tuple[BackendVerdict, ...]:
    passed = [BackendVerdict(name, "passed over", why) for name, why in chosen.passed_over]
    taken = BackendVerdict(chosen.backend.name, "chosen", chosen.support.why)
    tried = {each.name for each in (*passed, taken)}
    rest = [
        BackendVerdict(name, "not tried", _why_not(name, taken.name, policy.backend))
        for name in (*(backend.name for backend in chooser.ORDER), *chooser.NOT_BUILT)
        if name not in tried
    ]
    return (*passed, taken, *rest)


def _why_not(name: str, taken: str, asked: str) -> str:
    if name in chooser.NOT_BUILT:
        return "not part of this version"
    if name in chooser.BY_NAME:
        return f'taken by name only: backend = "{name}"'
    if taken == asked:
        return f"the policy names {taken}"
    return f"{taken} is stronger"


# A policy together with what keeps it here: the same declarations, as flags and lists.

_FLAG: Final = "ENFORCED_"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A policy, the backend that carries it, and what each capability is worth.

    ``ENFORCED_NETWORK_ACCESS`` and its like, one a capability, are true only where nothing is to
    be disclosed: a partial capability is not enforced.
    """

    policy: Policy
    backend: str
    enforcement: Mapping[str, Enforcement]

    def __getattr__(self, name: str) -> bool:
        capability = name.removeprefix(_FLAG).lower()
        if name != _FLAG + capability.upper() or capability not in CAPABILITIES:
            raise AttributeError(f"no flag is called {name!r}")
        return self.enforcement[capability].holds

    @property
    def flags(self) -> dict[str, bool]:
        """Return every flag by its name."""
        return {_FLAG + name.upper(): each.holds for name, each in self.enforcement.items()}


def resolve(
    policy: Policy, *, report: LockReport | None = None, proof: Proof | None = None
) -> Resolved:
    """Choose what carries ``policy`` here and say what that enforces.

    Without a guest's ``report`` the probe's counts; without a ``proof`` nothing is verified.
    Raises BackendError as ``choose`` does.
    """
    chosen = chooser.choose(policy)
    settled = settle(chosen.declare(policy), report or chosen.support.report, proof)
    return Resolved(policy, chosen.backend.name, settled)
