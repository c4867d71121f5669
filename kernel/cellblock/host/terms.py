"""What a session holds cells to, when its policy becomes narrower, and who knows the policy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Rules
    from cellblock.errors import PolicyError
    from cellblock.host.admission.gate import Gate
    from cellblock.host.guest_process import Guest
    from cellblock.host.keeping import Settings
    from cellblock.host.monitor import Bounds
    from cellblock.host.outcome import Stopped
    from cellblock.host.request import Request
    from cellblock.host.tools import Tooling
    from cellblock.policy.model import Policy
    from cellblock.wire import messages


class Step(Enum):
    """What it takes to have cells run under narrower terms."""

    none = "none"
    """Nothing: the guest has no part in it."""

    relock = "relock"
    """A copy of the guest goes on in its place, under more locks."""

    fresh = "fresh"
    """A new guest, of a new zygote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a session holds cells to from some moment on, and what changed for that."""

    policy: Policy
    #: Field to value, as TOML has it, and the whole policy's digest: for the audit log.
    changed: Mapping[str, str]
    digest: str
    step: Step
    rules: Rules
    timeout: float | None
    bounds: Bounds
    snapshots: Settings
    prepare: messages.Prepare
    zygote: Callable[[], tuple[socket.socket, int]]
    #: What a relay connects to, where there is a list.
    addresses: tuple[str, ...]
    tools: Tooling | None
    #: Names of tools that there are no more.
    tools_gone: frozenset[str]
    #: Which cells may run at all.
    gate: Gate


@dataclass(frozen=True, slots=True)
class Claim:
    """Terms that wait for a guest, as a request's message: none of a guest's has this id.

    ``serve`` is called with the request and each guest that could take it.
    """

    id: ClassVar[int] = -1

    terms: Terms
    serve: Callable[[Request, Guest], None]


@dataclass(frozen=True, slots=True)
class Held:
    """Terms that are in force; ``stopped`` says what became of a guest that got more locks."""

    terms: Terms
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True)
class NotHeld:
    """Why terms could not be put in force; nothing has changed."""

    why: str


class Scope(Protocol):
    """The policy of a session, which can become narrower."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""

    def weigh(self, changes: Mapping[str, Any]) -> tuple[Policy, tuple[PolicyError, ...]]:
        """Return a narrower policy, or all that is wrong with the changes."""

    def locking(self) -> Step | None:
        """Say what it takes to lay more locks on the guest that there is; None if it can't be."""

    def terms(self, policy: Policy, step: Step) -> Terms:
        """Return the terms of a narrower policy. Raises PolicyError if it can't be kept."""

    def adopt(self, terms: Terms) -> None:
        """Hold to these terms from now on, whatever is shown, kept and said."""

    def told(self, held: Held, *, used: bool) -> None:
        """Show what is in force now; ``used`` says that there were variables before."""
