"""What a policy is worth in a guest that has told what it locked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cellblock.policy.enforcement import Gap, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cellblock.backends import Chosen
    from cellblock.backends.contract import Proof
    from cellblock.policy.enforcement import Enforcement
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


@dataclass(frozen=True, slots=True)
class Judged:
    """``proved`` is when a suite of probes saw what is verified; empty where it did not.

    ``fatal`` are the gaps with which nothing may run.
    """

    enforcement: Mapping[str, Enforcement]
    gaps: tuple[Gap, ...]
    fatal: tuple[Gap, ...]
    proved: str

    @property
    def refusal(self) -> str:
        """Why nothing may run, or nothing."""
        return "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in self.fatal)


#: What more locks do not reach in a guest that runs, by field.
_FILES: Final = "files that were open before stay open"
_LASTING: Final = {
    "filesystem_read_roots": _FILES,
    "filesystem_write_roots": _FILES,
    "read_deny_paths": _FILES,
    "network_access": "connections that were open before may stay open",
    "max_open_files": _FILES,
}
_NAMES: Final = "names that were seen before can still be looked up"
_NAMED: Final = ("filesystem_read_roots", "read_deny_paths")
_REMEDY: Final = "begin with a new guest: %policy narrow --fresh …, which costs the variables"


def lasting(fields: Iterable[str], *, seen: bool) -> dict[str, str]:
    """Return what a guest that got more locks for these fields still has, by field.

    ``seen`` says that what guests see was decided at their start.
    """
    found = {}
    for name in fields:
        holes = [_LASTING[name]] if name in _LASTING else []
        holes += [_NAMES] if seen and name in _NAMED else []
        if holes:
            found[name] = "; ".join(holes)
    return found


def with_lasting(judged: Judged, policy: Policy, lasting: Mapping[str, str]) -> Judged:
    """Return the same with what lasts of a wider policy, as holes and as gaps."""
    from cellblock.render.values import asked  # noqa: PLC0415 - as needed

    enforcement, gaps = dict(judged.enforcement), list(judged.gaps)
    for name, hole in lasting.items():
        each = enforcement[name]
        status = Status.partial if each.holds else each.status
        enforcement[name] = replace(each, status=status, holes=(*each.holes, hole))
        gaps.append(
            Gap(
                capability=name,
                status=status,
                asked=asked(name, getattr(policy, name)),
                actual=each.mechanism,
                consequence=hole,
                remedy=_REMEDY,
            )
        )
    return replace(judged, enforcement=enforcement, gaps=tuple(gaps))


def judge(policy: Policy, chosen: Chosen, report: LockReport, proof: Proof | None) -> Judged:
    """Return what ``policy`` is worth behind its backend, for the locks of ``report``."""
    from cellblock.backends import blocking, gaps, replaced, settle  # noqa: PLC0415 - as needed

    declared = chosen.declare(policy)
    found = gaps(policy, declared, report, proof)
    return Judged(
        settle(declared, report, proof),
        (*replaced(policy, chosen), *found),
        blocking(policy, found),
        proof.time if proof is not None else "",
    )
