"""What ``cellblock doctor`` says about enforcement, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellblock.backends import chooser
from cellblock.backends.assessment import gaps, heard, replaced, settle
from cellblock.backends.contract import BY_NAME
from cellblock.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.backends.contract import Proof
    from cellblock.policy.enforcement import Enforcement, Gap
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport

    Prove = Callable[[Policy, chooser.Chosen], tuple[Proof | None, LockReport | None]]


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
