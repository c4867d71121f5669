"""Which backend carries a policy on this machine, and why not the others."""

from __future__ import annotations

from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Final

from cellblock.backends.bubblewrap import Bubblewrap
from cellblock.backends.docker import Docker
from cellblock.backends.landlock import Landlock, Noop, unprobed
from cellblock.backends.seatbelt import Seatbelt
from cellblock.errors import BackendError
from cellblock.policy.enforcement import CAPABILITIES, Status
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.backends.base import Backend, Support
    from cellblock.policy.enforcement import Enforcement


#: Strongest first. The first is taken that its probe shows to work, after the one that the policy
#: names; of those that are not only taken by name.
ORDER: Final[tuple[Backend, ...]] = (Docker(), Bubblewrap(), Landlock(), Seatbelt(), Noop())
BY_NAME: Final = ("docker",)

#: Named by the design, not built: choosing one is a gap like any other.
NOT_BUILT: Final[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The backend, what its probe found, and which stronger or wished-for ones fell away."""

    backend: Backend
    support: Support
    passed_over: tuple[tuple[str, str], ...]

    def declare(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth here."""
        return self.backend.declare(policy, self.support)


def named(name: str) -> Backend:
    """Return a backend by its name. Raises BackendError for one that does not exist."""
    for backend in ORDER:
        if backend.name == name:
            return backend
    raise BackendError(f"no backend is called {name!r}")


def choose(policy: Policy, *, probe: bool = True, guess: bool = False) -> Chosen:
    """Return the backend for ``policy``.

    With ``probe`` off, which spares a kernel's start a third of a second, one is taken behind which
    a guest can start; its own locks have the last word. A ``guess`` takes one at a glance, for what
    is thrown away unless a choice comes to the same.

    Raises BackendError where the one that the policy names can't be had, or none but noop is left,
    and the policy asked for more: by ``on_unsupported = "error"`` or by requiring a capability; and
    where the one that it names stands for more than the others do.
    """
    passed_over: list[tuple[str, str]] = []
    if policy.backend in NOT_BUILT:
        passed_over.append((policy.backend, "not part of this version"))
    look = methodcaller("glance" if guess else "probe" if probe else "attempt")
    for backend in (each.under(policy) for each in _wanted(policy)):
        support: Support = look(backend)
        if support.usable:
            chosen = Chosen(backend, support, tuple(passed_over))
            _refuse_downgrade(policy, chosen)
            return chosen
        passed_over.append((backend.name, support.why))
        if not backend.falls_back:
            raise BackendError(f"backend {backend.name!r} can't be had here ({support.why})")
    raise BackendError("no backend works here")


def _wanted(policy: Policy) -> list[Backend]:
    """Return the backend that the policy names, then the others, strongest first."""
    named = [backend for backend in ORDER if backend.name == policy.backend]
    others = (each for each in ORDER if each not in named and each.name not in BY_NAME)
    return [*named, *others]


def _refuse_downgrade(policy: Policy, chosen: Chosen) -> None:
    if not chosen.passed_over or not (policy.on_unsupported == "error" or policy.require):
        return
    if policy.backend == chosen.backend.name:
        return
    strict = policy.on_unsupported == "error" and policy.backend != "auto"
    if chosen.backend.name != Noop.name and not strict:
        return  # what it lacks is a gap, of which each is looked at
    why = "; ".join(f"{name}: {reason}" for name, reason in chosen.passed_over)
    raise BackendError(
        f"backend {policy.backend!r} can't be had here ({why}). This policy runs nothing without; "
        'one with require = [] and on_unsupported = "warn" runs cells all the same'
    )


# Capability by backend, derived from the backends' own declarations, never by hand.


def _column(index: int) -> dict[str, Status]:
    declared = ORDER[index].declare(Policy(), unprobed("declared, not probed", usable=True))
    return {name: each.status for name, each in declared.items()}


#: Under the default policy, on a machine where each backend works.
COMPATIBILITY_MATRIX: Final[Mapping[str, Mapping[str, Status]]] = {
    capability: {backend.name: _column(nth)[capability] for nth, backend in enumerate(ORDER)}
    for capability in CAPABILITIES
}
