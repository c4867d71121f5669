"""Which backend carries a policy on this machine, and why not the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

from cellblock.errors import BackendError

if TYPE_CHECKING:
    from cellblock.backends.base import Backend, Support
    from cellblock.policy.enforcement import Enforcement
    from cellblock.policy.model import Policy

#: Backends by their module's name and their class, strongest first. After the one that the policy
#: names, the first is taken that its probe shows to work. A module is imported when its turn comes:
#: a kernel's start waits for that.
_CLASSES: Final = {
    "docker": "Docker",
    "bubblewrap": "Bubblewrap",
    "landlock": "Landlock",
    "seatbelt": "Seatbelt",
    "noop": "Noop",
}
ORDER: Final = tuple(_CLASSES)
#: Taken only where the policy names it.
ONLY_BY_NAME: Final = ("docker",)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The backend, what its probe found, and which stronger or wished-for ones fell away."""

    backend: Backend
    support: Support
    passed_over: tuple[tuple[str, str], ...]

    def declare(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth here."""
        return self.backend.declare(policy, self.support)


@cache
def named(name: str) -> Backend:
    """Return a backend by its name, the same each time. Raises BackendError for an unknown name."""
    if name not in _CLASSES:
        raise BackendError(f"no backend is called {name!r}")
    made: Backend = getattr(import_module(f"cellblock.backends.{name}"), _CLASSES[name])()
    return made


def choose(policy: Policy, how: Literal["probe", "attempt", "glance"] = "probe") -> Chosen:
    """Return the backend for ``policy``; ``how`` is the method of each that says whether it works.

    An ``attempt`` spares a kernel's start a third of a second: one is taken behind which a guest
    can start, and its own locks have the last word. A ``glance`` is a guess, for what is thrown
    away unless a later choice comes to the same.

    Raises BackendError where the one that the policy names can't be had and nothing may replace
    it; and where none but noop is left and the policy asked for more, by ``on_unsupported =
    "error"`` or by requiring a capability.
    """
    passed_over: list[tuple[str, str]] = []
    asked = [policy.backend] if policy.backend in _CLASSES else []
    for name in (*asked, *(each for each in ORDER if each not in (*asked, *ONLY_BY_NAME))):
        backend = named(name).configured(policy)
        support: Support = getattr(backend, how)()
        if support.usable:
            chosen = Chosen(backend, support, tuple(passed_over))
            _refuse_downgrade(policy, chosen)
            return chosen
        passed_over.append((name, support.why))
        if not backend.falls_back:
            raise BackendError(f"backend {name!r} can't be had here ({support.why})")
    raise BackendError("no backend works here")


def _refuse_downgrade(policy: Policy, chosen: Chosen) -> None:
    if not chosen.passed_over or not (policy.on_unsupported == "error" or policy.required):
        return
    if policy.backend == chosen.backend.name:
        return
    strict = policy.on_unsupported == "error" and policy.backend != "auto"
    if chosen.backend.name != "noop" and not strict:
        return  # what it lacks is a gap, and each gap is looked at
    why = "; ".join(f"{name}: {reason}" for name, reason in chosen.passed_over)
    raise BackendError(
        f"backend {policy.backend!r} can't be had here ({why}). This policy runs nothing without; "
        'one with require = [] and on_unsupported = "warn" runs cells all the same'
    )
