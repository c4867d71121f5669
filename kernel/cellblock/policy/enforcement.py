"""What a policy's fields are worth here: status, mechanism, holes, evidence.

A capability is a policy field that can be enforced. Its status is never assumed: a backend
declares it, the guest's own report confirms or lowers it, and what remains is a gap that is
shown (promise P7).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from cellblock.policy.model import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.policy.model import Policy


class Status(StrEnum):
    """How far a capability holds on this machine."""

    verified = "verified"
    """A probe saw an attempt fail, and its positive control succeed, in the real launch path."""

    asserted = "asserted"
    """The mechanism is in place; nothing attempted to break it here."""

    partial = "partial"
    """It holds, but for the holes that are listed."""

    unenforced = "unenforced"
    """Nothing enforces it."""

    unavailable = "unavailable"
    """The mechanism exists, but not on this machine, or its lock failed."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What one backend does about one capability on this machine.

    ``locks`` names the guest's locks without which the statement is void. ``contradicted`` says
    that a probe saw it not to hold.
    """

    capability: str
    status: Status
    mechanism: str
    holes: tuple[str, ...]
    evidence: str
    locks: tuple[str, ...] = ()
    contradicted: bool = False

    @property
    def holds(self) -> bool:
        """Whether there is nothing to disclose."""
        return self.status in (Status.verified, Status.asserted)


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between what is configured and what is enforced, for the user's eyes.

    ``contradicted`` says that the backend claims more than a probe saw to hold, ``matters`` that a
    cell can do what the policy forbids: then it is shown on a session's first cell.
    """

    capability: str
    status: Status
    asked: str
    actual: str
    consequence: str
    remedy: str
    contradicted: bool = False
    matters: bool = True


class Enforcer(Protocol):
    """What a policy asks of a backend to say what that enforces on this machine."""

    def enforcement(self, policy: Policy) -> Mapping[str, Enforcement]:
        """Return what each capability is worth here; nothing holds where it can't be had."""


#: The policy fields that can be enforced, in the order in which they are shown. A backend declares
#: each of them, or can't be imported.
CAPABILITIES: Final = FIELDS[FIELDS.index("filesystem_read_roots") :]
