"""What ``cellblock doctor`` says about enforcement, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellblock.backends import chooser
from cellblock.backends.assessment import gaps, replaced, settle

if TYPE_CHECKING:
    from cellblock.policy.enforcement import Enforcement, Gap
    from cellblock.policy.model import Policy


@dataclass(frozen=True, slots=True)
class BackendVerdict:
    """One backend in the order of preference, and what came of it."""

    name: str
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Backends in order, then each capability's status under the chosen one."""

    backend: str
    order: tuple[BackendVerdict, ...]
    os_kernel: str
    landlock_abi: int
    witnessed: tuple[str, ...]
    time: str
    capabilities: tuple[Enforcement, ...]
    gaps: tuple[Gap, ...]


def doctor_report(policy: Policy) -> DoctorReport:
    """Probe this machine for ``policy``. Raises BackendError as ``choose`` does."""
    chosen = chooser.choose(policy)
    declared = chosen.declare(policy)
    report = chosen.support.report
    return DoctorReport(
        backend=chosen.backend.name,
        order=_order(policy, chosen),
        os_kernel=chosen.support.os_kernel,
        landlock_abi=chosen.support.abi,
        witnessed=chosen.support.witnessed,
        time=chosen.support.time,
        capabilities=tuple(settle(declared, report).values()),
        gaps=(*replaced(policy, chosen), *gaps(policy, declared, report)),
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
