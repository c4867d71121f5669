"""What a policy's fields are worth on this machine, and its gaps.

``settle`` puts three things together: the backend's declarations, the guest's report of its locks,
and the results of the probes. A declaration counts only if the locks that it rests on were achieved
and no probe contradicts it. ``gaps`` says in the user's words what is configured but does not
wholly hold, and ``blocking`` which gaps keep everything from running. ``doctor_report``,
``resolve`` and ``compatibility_matrix`` do the same for callers without a session.

A probe is an attempt to break a lock, which a guest makes in the real launch path, with a positive
control. The table in ``guest.probes`` says of each probe which capability it is about, under which
policies it is made, and what a cell can do if it passes. A declaration that a probe contradicts
counts for nothing. Probes try the direct way and ways around. If only a way around passes the
capability holds in part; if the direct way passes it is not enforced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.backends.base import (
    ONLY_BY_NAME,
    ORDER,
    choose,
    has_list,
    named,
    unprobed,
)
from cellblock.backends.bubblewrap import how_to_have
from cellblock.errors import BackendError
from cellblock.guest.probes import BY_NAME, PROBES
from cellblock.policy.model import DECLARED, ROWS, Enforcement, Gap, Policy, Status
from cellblock.wire.messages import LockReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cellblock.backends.base import Chosen
    from cellblock.guest.probes import Probe, When


_WHEN: Final[Mapping[When, Callable[[Policy], bool]]] = {
    "always": lambda _policy: True,
    "no network": lambda policy: policy.network_access is not True,
    "list": has_list,
    "no processes": lambda policy: not policy.subprocess_execution,
    "processes": lambda policy: policy.subprocess_execution,
}


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of one probe: "refused", "passed" or "unwitnessed", and why.

    ``disclosed`` says that the backend declares the hole through which the probe passes.
    """

    outcome: str
    detail: str = ""
    disclosed: bool = False


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The results of a run of all probes asked for, and where and when it was made.

    ``failure`` says why the run was not completed, or is empty.
    """

    results: dict[str, Seen]
    where: str
    time: str
    failure: str = ""


def probes_for(policy: Policy) -> tuple[Probe, ...]:
    """Return the probes for what ``policy`` forbids or limits."""
    return tuple(
        probe
        for probe in PROBES
        if getattr(policy, probe.capability) is not None and _WHEN[probe.when](policy)
    )


def disclosed(probe: Probe, declared: Mapping[str, Enforcement]) -> bool:
    """Whether the declaration has the hole that this probe passes through, or claims nothing."""
    declaration = declared[probe.capability]
    if declaration.status in (Status.unenforced, Status.unavailable):
        return True
    if probe.only_by and probe.only_by not in declaration.locks:
        return True
    return probe.hole in declaration.holes


def contradicted(proof: Proof) -> tuple[Probe, ...]:
    """Return the probes that passed although a declaration says that they can't."""
    return tuple(probe for probe in PROBES if _passed(proof, probe))


def _passed(proof: Proof, probe: Probe) -> bool:
    attempt = proof.results.get(probe.name)
    return attempt is not None and attempt.outcome == "passed" and not attempt.disclosed


def judge(declaration: Enforcement, proof: Proof) -> Enforcement:
    """Return a declaration as the probes bear it out: verified, unchanged, or contradicted.

    A capability is verified only if all its probes were witnessed. One that is declared unenforced
    or unavailable stays so.
    """
    results = {
        probe: proof.results[probe.name].outcome
        for probe in PROBES
        if probe.capability == declaration.capability and probe.name in proof.results
    }
    if not results or declaration.status in (Status.unenforced, Status.unavailable):
        return declaration

    def names(probes: Iterable[Probe]) -> str:
        return ", ".join(probe.name for probe in probes)

    if passed := [probe for probe in results if _passed(proof, probe)]:
        return replace(
            declaration,
            status=Status.partial if all(probe.around for probe in passed) else Status.unenforced,
            holes=tuple(dict.fromkeys((*(probe.hole for probe in passed), *declaration.holes))),
            evidence=f"seen to pass: {names(passed)}; {proof.where}; {proof.time}",
            contradicted=True,
        )
    unseen = [probe for probe, outcome in results.items() if outcome not in {"refused", "passed"}]
    if unseen:
        return replace(
            declaration, evidence=f"{declaration.evidence}; unwitnessed: {names(unseen)}"
        )
    refused = names(probe for probe, outcome in results.items() if outcome == "refused")
    return replace(
        declaration,
        status=Status.verified if declaration.status is Status.asserted else declaration.status,
        evidence=f"seen to be refused: {refused}; {proof.where}; {proof.time}",
    )


#: The name under which a guest reports its gate: the zygote decides about starts of processes.
GATE: Final = "gate"
#: Capabilities that need forks of the guest.
_FORKED: Final = ("snapshots", "undo_depth", "max_branches")
#: Characters kept of why no guest reported.
_MAX_FAILURE: Final = 300


# --- what declarations are worth --------------------------------------------------------------


def settle(
    declared: Mapping[str, Enforcement],
    report: LockReport | None,
    proof: Proof | None = None,
) -> dict[str, Enforcement]:
    """Return the declarations as the guest's report and the probes bear them out.

    A lock that is not reported as achieved voids the declarations that rest on it. Without a report
    nothing is lowered. A declaration turns from "asserted" into "verified" only if its probes were
    seen to be refused. If one was seen to pass it becomes "unenforced" or "partial".
    """
    settled = dict(declared)
    if report is not None:
        settled = {name: _settled(declaration, report) for name, declaration in settled.items()}
    if proof is not None:
        settled = {name: judge(declaration, proof) for name, declaration in settled.items()}
    return settled


def _settled(declaration: Enforcement, report: LockReport) -> Enforcement:
    if declaration.at_gate and GATE in report.achieved:
        return replace(
            declaration,
            status=Status.asserted,
            mechanism=declaration.at_gate,
            holes=(),
            evidence=f"guest: gate: {report.achieved[GATE]}",
        )
    if (
        declaration.capability in _FORKED
        and "seccomp" in report.achieved
        and GATE not in report.achieved
    ):
        # Without a gate the filter refuses every fork, and nothing can let one through.
        why = "no gate: forks can't be let through one by one"
        return replace(declaration, status=Status.unavailable, holes=(), evidence=why)
    missing = [lock for lock in declaration.locks if lock not in report.achieved]
    if missing:
        why = "; ".join(f"{lock}: {report.failed.get(lock, 'not reported')}" for lock in missing)
        return replace(declaration, status=Status.unavailable, holes=(), evidence=why)
    if not declaration.locks:
        return declaration
    first = declaration.locks[0]
    return replace(
        declaration, evidence=f"{declaration.evidence}; guest: {first}: {report.achieved[first]}"
    )


def known_report(
    chosen: Chosen, proof: Proof | None, report: LockReport | None
) -> LockReport | None:
    """Return the best report of locks: from the probes' guest, or from the backend's own probe.

    If probes ran and their guest did not report, no lock counts as achieved. The backend's own
    probe does not count then, because guests don't start.
    """
    if report is not None or proof is None:
        return report or chosen.support.report
    return LockReport(failed=dict.fromkeys(chosen.backend.locks, proof.failure[:_MAX_FAILURE]))


# --- gaps -------------------------------------------------------------------------------------

_REMEDY_IF_CONTRADICTED: Final = (
    "name another backend, and report this with what `cellblock doctor --json` prints"
)


def gaps(
    policy: Policy,
    declared: Mapping[str, Enforcement],
    report: LockReport | None = None,
    proof: Proof | None = None,
) -> tuple[Gap, ...]:
    """Return the gaps: what is configured and does not wholly hold, in the order of DECLARED."""
    settled = settle(declared, report, proof)
    return tuple(
        Gap(
            capability=name,
            status=declaration.status,
            asked=_configured_value(policy, name),
            actual=declaration.mechanism,
            consequence=_fails_instead(policy, declaration)
            or "; ".join(declaration.holes)
            or ROWS[name].gap,
            remedy=_remedy(policy, declaration),
            contradicted=declaration.contradicted,
            # Otherwise something is only missing: no cell can do what the policy forbids.
            matters=declaration.contradicted
            or not (ROWS[name].lacked or _fails_instead(policy, declaration)),
        )
        for name in DECLARED
        if configured(policy, name) and not (declaration := settled[name]).holds
    )


def replaced(policy: Policy, chosen: Chosen) -> tuple[Gap, ...]:
    """Return the gap of a policy that named a backend and got another; () if it did not."""
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


def blocking(policy: Policy, all_gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Return the gaps with which nothing may run.

    These are gaps in required capabilities, and all gaps under ``on_unsupported = "error"``. A
    partial capability counts as enforced, because its holes are shown; but not if a probe found a
    hole that no declaration discloses.
    """
    return tuple(
        gap
        for gap in all_gaps
        if (gap.contradicted or gap.status is not Status.partial)
        and (policy.on_unsupported == "error" or gap.capability in policy.required)
    )


def configured(policy: Policy, capability: str) -> bool:
    """Whether the policy asks for anything of this capability."""
    is_configured = ROWS[capability].asked
    return (
        getattr(policy, capability) is not None if is_configured is None else is_configured(policy)
    )


def _fails_instead(policy: Policy, declaration: Enforcement) -> str:
    """Return what does not work here although the policy allows it, or ""."""
    if declaration.capability == "network_access" and isinstance(policy.network_access, tuple):
        if (
            policy.network_access
            and declaration.status is Status.unavailable
            and not declaration.locks
        ):
            return "connections to the listed addresses fail"
    elif (
        declaration.capability == "ports"
        and policy.ports
        and declaration.status is Status.unavailable
    ):
        return "servers that cells start can't be reached from your browser"
    elif declaration.capability == "devices" and declaration.status is Status.unavailable:
        return "cells have none of these devices"
    elif declaration.capability == "package_installation" and policy.package_installation:
        return "a cell that runs an installer fails"
    return ""


def _configured_value(policy: Policy, capability: str) -> str:
    value = getattr(policy, capability)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "allowed" if value else "not allowed"
    return str(value)


def _remedy(policy: Policy, declaration: Enforcement) -> str:
    if declaration.contradicted:
        return _REMEDY_IF_CONTRADICTED
    row = ROWS[declaration.capability]
    remedy = (declaration.status is Status.partial and row.remedy_if_partial) or row.remedy
    return remedy.replace("{bubblewrap}", how_to_have(policy.backend))


# --- cellblock doctor -------------------------------------------------------------------------


class BackendVerdict(msgspec.Struct, frozen=True):
    """What became of one backend: chosen, passed over or not tried, and why."""

    name: str
    verdict: str
    why: str


class ProbeVerdict(msgspec.Struct, frozen=True):
    """The result of one probe: refused, passed, disclosed or unwitnessed."""

    name: str
    capability: str
    outcome: str
    detail: str


class DoctorReport(msgspec.Struct, frozen=True):
    """The report of ``cellblock doctor``.

    It has the backends in the order of preference, then each capability's status under the chosen
    one. ``unproved`` says why the probes were not completed, or is empty. If it is not, some probes
    are unwitnessed; and if any were tried (``probes``), a kernel's guests may not start, either.
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


def doctor_report(
    policy: Policy,
    prove: Callable[[Policy, Chosen], tuple[Proof | None, LockReport | None]] | None = None,
) -> DoctorReport:
    """Probe this machine for ``policy``; return the report.

    ``prove`` runs the probes in a guest; without it nothing is verified. If only noop is left for a
    policy that insists on more, the report is about noop and says what keeps cells from running.
    Raises BackendError if no backend works at all.
    """
    try:
        chosen = choose(policy)
    except BackendError:
        chosen = choose(policy.replace(mode="safe", require=(), on_unsupported="warn"))
    declared = chosen.declare(policy)
    proof, lock_report = prove(policy, chosen) if prove else (None, None)
    report = known_report(chosen, proof, lock_report)
    return DoctorReport(
        backend=chosen.backend.name,
        order=_verdicts(policy, chosen),
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
                outcome="disclosed" if attempt.disclosed else attempt.outcome,
                detail=attempt.detail,
            )
            for name, attempt in (proof.results if proof else {}).items()
        ),
        unproved=proof.failure if proof else "the suite of probes was not run",
    )


def _verdicts(policy: Policy, chosen: Chosen) -> tuple[BackendVerdict, ...]:
    chosen_name = chosen.backend.name
    verdicts = [BackendVerdict(name, "passed over", why) for name, why in chosen.passed_over]
    verdicts.append(BackendVerdict(chosen_name, "chosen", chosen.support.why))
    names_tried = {verdict.name for verdict in verdicts}
    for name in ORDER:
        if name in names_tried:
            continue
        if name in ONLY_BY_NAME:
            why = f'taken by name only: backend = "{name}"'
        elif chosen_name == policy.backend:
            why = f"the policy names {chosen_name}"
        else:
            why = f"{chosen_name} is stronger"
        verdicts.append(BackendVerdict(name, "not tried", why))
    return tuple(verdicts)


# --- the interface for programs ---------------------------------------------------------------

_FLAG: Final = "ENFORCED_"


class Resolved(msgspec.Struct, frozen=True):
    """A policy, the backend that enforces it, and what each capability is worth.

    There is a flag for each capability, such as ``ENFORCED_NETWORK_ACCESS``. It is true only if the
    capability holds wholly: a partial capability is not enforced.
    """

    policy: Policy
    backend: str
    enforcement: Mapping[str, Enforcement]

    def __getattr__(self, name: str) -> bool:
        capability = name.removeprefix(_FLAG).lower()
        if name != _FLAG + capability.upper() or capability not in self.enforcement:
            raise AttributeError(f"no flag is called {name!r}")
        return self.enforcement[capability].holds

    @property
    def flags(self) -> dict[str, bool]:
        """All flags by their names."""
        return {_FLAG + name.upper(): each.holds for name, each in self.enforcement.items()}


def resolve(
    policy: Policy, *, report: LockReport | None = None, proof: Proof | None = None
) -> Resolved:
    """Choose the backend for ``policy`` here, and return what it enforces.

    Without a guest's ``report``, the report of the backend's own probe is used. Without a
    ``proof``, nothing is verified. Raises BackendError as ``choose`` does.
    """
    chosen = choose(policy)
    settled = settle(chosen.declare(policy), report or chosen.support.report, proof)
    return Resolved(policy, chosen.backend.name, settled)


def compatibility_matrix() -> dict[str, dict[str, Status]]:
    """Return the status of each declared field by backend, under the default policy.

    Each backend counts as working. Fields that the host alone enforces are not included, because
    they are the same with every backend.
    """
    support = unprobed("declared, not probed", usable=True)
    declared = {name: named(name).declare(Policy(), support) for name in ORDER}
    return {
        capability: {name: each[capability].status for name, each in declared.items()}
        for capability in DECLARED
    }


def __getattr__(name: str) -> Any:
    if name == "COMPATIBILITY_MATRIX":  # made only when asked for, because it imports all backends
        return compatibility_matrix()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
