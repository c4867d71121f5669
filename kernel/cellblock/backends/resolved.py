"""A policy together with what keeps it here: the same declarations, as flags and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.backends import chooser
from cellblock.backends.assessment import settle
from cellblock.policy.enforcement import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.backends.contract import Proof
    from cellblock.policy.enforcement import Enforcement
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport

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
