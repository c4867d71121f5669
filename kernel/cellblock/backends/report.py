"""What a policy's fields are worth here, from declarations, the guest's report and the probes.

``settle`` puts the three together: a declaration counts as far as the locks that it rests on were
achieved and no probe contradicts it. ``gaps`` says what is configured and does not wholly hold, in
the user's words, and ``blocking`` which gaps keep everything from running. ``doctor_report``,
``resolve`` and ``compatibility_matrix`` are the same for those who ask without a session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.backends.base import ONLY_BY_NAME, ORDER, choose, named, unprobed
from cellblock.backends.probes import BY_NAME, judge
from cellblock.errors import BackendError
from cellblock.policy.enforcement import CAPABILITIES, Enforcement, Gap, Status
from cellblock.policy.model import Policy
from cellblock.wire.messages import LockReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.backends.base import Chosen
    from cellblock.backends.probes import Proof

    Prove = Callable[[Policy, Chosen], tuple[Proof | None, LockReport | None]]

#: The name under which a guest reports that the zygote decides on starts.
GATE: Final = "gate"
#: What a user lacks where it can't be had, and no cell gains by.
_HARMLESS: Final = frozenset({"idle_timeout", "snapshots", "undo_depth", "max_branches"})
#: What takes a fork of the guest.
_FORKED: Final = ("snapshots", "undo_depth", "max_branches")
#: Characters of why no guest reported.
_MAX_FAILURE: Final = 300


# --- what is worth what -----------------------------------------------------------------------


def settle(
    declared: Mapping[str, Enforcement],
    report: LockReport | None,
    proof: Proof | None = None,
) -> dict[str, Enforcement]:
    """Return the declarations as the guest's report and the probes bear them out.

    A lock that is not reported as achieved voids whatever rests on it; without a report nothing is
    lowered. Only what the probes saw to be refused turns "asserted" into "verified"; what they saw
    to pass becomes unenforced, or partial.
    """
    settled = dict(declared)
    if report is not None:
        settled = {name: _settled(each, report) for name, each in settled.items()}
    if proof is not None:
        settled = {name: judge(each, proof) for name, each in settled.items()}
    return settled


def _settled(each: Enforcement, report: LockReport) -> Enforcement:
    if each.capability == "max_processes" and GATE in report.achieved:
        return replace(
            each,
            status=Status.asserted,
            mechanism="the zygote counts this guest's threads and processes",
            holes=(),
            evidence=f"guest: gate: {report.achieved[GATE]}",
        )
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
    first = each.locks[0]
    return replace(each, evidence=f"{each.evidence}; guest: {first}: {report.achieved[first]}")


def known_report(
    chosen: Chosen, proof: Proof | None, report: LockReport | None
) -> LockReport | None:
    """Return what is known of the locks: from the probes' guest, else from the backend's own probe.

    Where probes ran and no guest of theirs reported anything, no lock is achieved: what a backend's
    own probe was told does not count, when guests do not start.
    """
    if report is not None or proof is None:
        return report or chosen.support.report
    return LockReport(failed=dict.fromkeys(chosen.backend.locks, proof.failure[:_MAX_FAILURE]))


# --- gaps -------------------------------------------------------------------------------------

#: Capability to what would stop holding, in the user's words.
CONSEQUENCES: Final = {
    "filesystem_read_roots": "a cell can read any file that you can",
    "filesystem_write_roots": "a cell can change any file that you can",
    "filesystem_staged_roots": "a cell can change the project's files",
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
    "max_branches": "there are no checkpoints",
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
    "forks_max_bytes": "forks of a sandbox can use up the machine's memory",
    "output_kept_max_bytes": "a cell can fill the host's disk with what it prints",
    "artifact_max_bytes": "a cell can fill the host's disk with a file that is copied out",
    "artifacts_max_bytes": "cells can fill the host's disk with files that are copied out",
}

#: Where a better remedy than another machine is known.
REMEDIES: Final = {
    "filesystem_read_roots": "install bubblewrap, which hides them: sudo apt install bubblewrap",
    "idle_timeout": "let the server cull idle kernels (MappingKernelManager.cull_idle_timeout)",
    "max_processes": "run the kernel as an unprivileged user, or in a cgroup with pids.max",
    "memory_max_bytes": "run the kernel in a cgroup with memory.max",
    "snapshots": "use Linux 5.0 or later, and no seccomp listener above the kernel",
    "undo_depth": "use Linux 5.0 or later, and no seccomp listener above the kernel",
    "max_branches": "use Linux 5.0 or later, and no seccomp listener above the kernel",
    "scratch_max_bytes": "put the folder for temporary files on a disk with a quota",
    "network_access": "set network_access to true, or register a host operation for that address",
    "package_installation": "list what notebooks need in packages, or grant ops.install",
}
#: Where a capability holds but for holes of its own: another OS kernel would have them too.
_REMEDIES_IF_PARTIAL: Final = {
    "read_deny_paths": "grant narrower filesystem_read_roots, with nothing denied beneath them",
}
_REMEDY_IF_CONTRADICTED: Final = (
    "name another backend, and report this: `cellblock doctor --json` says it all"
)
_REMEDY: Final = "use Linux 5.13 or later with Landlock switched on, or choose another backend"


def gaps(
    policy: Policy,
    declared: Mapping[str, Enforcement],
    report: LockReport | None = None,
    proof: Proof | None = None,
) -> tuple[Gap, ...]:
    """Return what is configured and does not wholly hold here, in the order of CAPABILITIES."""
    settled = settle(declared, report, proof)
    return tuple(
        Gap(
            capability=name,
            status=each.status,
            asked=_asked(policy, name),
            actual=each.mechanism,
            consequence=_fails_instead(policy, each) or "; ".join(each.holes) or CONSEQUENCES[name],
            remedy=_remedy(each),
            contradicted=each.contradicted,
            # Else no cell can do what the policy forbids: something is only missing here.
            matters=each.contradicted
            or (name not in _HARMLESS and not _fails_instead(policy, each)),
        )
        for name in CAPABILITIES
        if configured(policy, name) and not (each := settled[name]).holds
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
        and (policy.on_unsupported == "error" or gap.capability in policy.required)
    )


def configured(policy: Policy, capability: str) -> bool:
    """Whether the policy asks for anything there."""
    value = getattr(policy, capability)
    if capability in ("display", "widget_modules", "comm_targets"):
        return True
    if capability in _FORKED:
        return policy.snapshots != "off" and (capability == "snapshots" or value > 0)
    if capability == "network_access":
        return value is not True
    if capability in ("read_deny_paths", "filesystem_staged_roots"):
        return bool(value)
    if capability == "subprocess_execution":
        return not value
    return value is not None


def _fails_instead(policy: Policy, each: Enforcement) -> str:
    """Return what does not work here although the policy allows it, or nothing."""
    if each.capability == "network_access" and isinstance(policy.network_access, tuple):
        if policy.network_access and each.status is Status.unavailable and not each.locks:
            return "connections to the listed addresses fail"
    elif each.capability == "package_installation" and policy.package_installation:
        return "a cell that runs an installer fails"
    return ""


def _asked(policy: Policy, capability: str) -> str:
    value = getattr(policy, capability)
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "allowed" if value else "not allowed"
    return str(value)


def _remedy(each: Enforcement) -> str:
    if each.contradicted:
        return _REMEDY_IF_CONTRADICTED
    if each.status is Status.partial and each.capability in _REMEDIES_IF_PARTIAL:
        return _REMEDIES_IF_PARTIAL[each.capability]
    return REMEDIES.get(each.capability, _REMEDY)


# --- cellblock doctor -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackendVerdict:
    """One backend in the order of preference: chosen, passed over or not tried, and why."""

    name: str
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The result of one probe: refused, passed, disclosed or unwitnessed."""

    name: str
    capability: str
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Backends in order, then each capability's status under the chosen one.

    ``unproved`` says why the probes did not run to their end; then some are unwitnessed, and where
    they were tried at all (``probes``) a kernel's guests may not start either.
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
    """Probe this machine for ``policy``; ``prove`` runs the probes in a guest.

    Without it nothing is verified. Where none but noop is left for a policy that insists on more,
    the report is about noop, and says what keeps cells from running. Raises BackendError as
    ``choose`` does otherwise.
    """
    try:
        chosen = choose(policy)
    except BackendError:
        chosen = choose(policy.replace(mode="safe", require=(), on_unsupported="warn"))
    declared = chosen.declare(policy)
    proof, seen = prove(policy, chosen) if prove else (None, None)
    report = known_report(chosen, proof, seen)
    return DoctorReport(
        backend=chosen.backend.name,
        order=_order(policy, chosen),
        os_kernel=chosen.support.os_kernel,
        landlock_abi=chosen.support.abi,
        witnessed=chosen.support.witnessed,
        time=chosen.support.time,
        capabilities=tuple(settle(declared, report, proof).values()),
        gaps=(*replaced(policy, chosen), *gaps(policy, declared, report, proof)),
        probes=tuple(
            ProbeVerdict(
                name=name,
                capability=BY_NAME[name].capability,
                outcome="disclosed" if seen.disclosed else seen.outcome,
                detail=seen.detail,
            )
            for name, seen in (proof.results if proof else {}).items()
        ),
        unproved=proof.failure if proof else "the suite of probes was not run",
    )


def _order(policy: Policy, chosen: Chosen) -> tuple[BackendVerdict, ...]:
    taken = chosen.backend.name
    verdicts = [BackendVerdict(name, "passed over", why) for name, why in chosen.passed_over]
    verdicts.append(BackendVerdict(taken, "chosen", chosen.support.why))
    tried = {each.name for each in verdicts}
    for name in ORDER:
        if name in tried:
            continue
        if name in ONLY_BY_NAME:
            why = f'taken by name only: backend = "{name}"'
        elif taken == policy.backend:
            why = f"the policy names {taken}"
        else:
            why = f"{taken} is stronger"
        verdicts.append(BackendVerdict(name, "not tried", why))
    return tuple(verdicts)


# --- for programs -----------------------------------------------------------------------------

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
        """Every flag by its name."""
        return {_FLAG + name.upper(): each.holds for name, each in self.enforcement.items()}


def resolve(
    policy: Policy, *, report: LockReport | None = None, proof: Proof | None = None
) -> Resolved:
    """Choose what carries ``policy`` here and say what that enforces.

    Without a guest's ``report`` the probe's counts; without a ``proof`` nothing is verified.
    Raises BackendError as ``choose`` does.
    """
    chosen = choose(policy)
    settled = settle(chosen.declare(policy), report or chosen.support.report, proof)
    return Resolved(policy, chosen.backend.name, settled)


def compatibility_matrix() -> dict[str, dict[str, Status]]:
    """Return capability by backend, as declared for the default policy where each backend works."""
    support = unprobed("declared, not probed", usable=True)
    declared = {name: named(name).declare(Policy(), support) for name in ORDER}
    return {
        capability: {name: each[capability].status for name, each in declared.items()}
        for capability in CAPABILITIES
    }


def __getattr__(name: str) -> Any:
    if name == "COMPATIBILITY_MATRIX":  # made when asked for: it imports every backend
        return compatibility_matrix()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
