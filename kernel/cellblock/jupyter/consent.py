"""Asking the user, in a kernel: who does that, and a kernel that may not start before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.host.consent.approvals.approver import Clerk, Grants, Under
from cellblock.host.consent.approvals.prompt import Prompt
from cellblock.host.consent.approvals.store import Store, default_path
from cellblock.host.session.narrowing import changes
from cellblock.policy import placing

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.approvals.prompt import Decision
    from cellblock.host.session.config import Ground
    from cellblock.host.session.types import Cell
    from cellblock.jupyter.kernel import Kernel
    from cellblock.policy.model import Policy


def begin(ground: Ground, kernel: Kernel, start: Callable[[], None]) -> None:
    """Have a clerk ask the user of ``kernel``; ``start`` its session, once it may be started."""
    policy = placing.unplaced(ground.policy, Path(ground.told.scratch))
    kernel.clerk = clerk = clerk_of(ground, policy, kernel)
    if ground.condition is None:
        start()
        return

    def allowed() -> None:
        kernel.views.allow()
        kernel.starting = None
        start()

    starting = Start(clerk, policy, ground.condition.key, allowed)
    if starting.is_allowed:
        start()
        return
    kernel.starting = starting
    kernel.views.refuse(ground.condition)


def clerk_of(ground: Ground, policy: Policy, kernel: Kernel) -> Clerk:
    """Return who asks a kernel's user; the policy is that of ``placing.unplaced``."""
    kernel.questions.named = True
    grants = Grants(under(ground, policy), Store(default_path()))
    return Clerk(
        Prompt(kernel.consulted, grants),
        grants,
        observe=kernel.audit.approved,
        tell=kernel.outputs.notice,
    )


def under(ground: Ground, policy: Policy) -> Under:
    """Return what users are asked under: the policy, which a notebook may have made narrower."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(ground.project))
    made, scratch = ground.operators, Path(ground.told.scratch)
    if made is None:
        return Under(scope=scope, policy=policy.name, digest=policy.digest())
    written = placing.unplaced(made, scratch).digest()
    first = Under(scope=scope, policy=policy.name, digest=written)
    return first.narrower(policy.digest(), changes(made, ground.policy, scratch))


class Start:
    """What the first cell has to wait for: until then there is no session, and no guest.

    ``field`` is what of the policy has to be asked for, ``begin`` makes both.
    """

    def __init__(self, clerk: Clerk, policy: Policy, field: str, begin: Callable[[], None]) -> None:
        self._clerk, self._begin = clerk, begin
        self._field, self._value = field, str(getattr(policy, field))

    @property
    def is_allowed(self) -> bool:
        """Whether the user has allowed it for always."""
        return self._clerk.may_start(self._field, self._value)

    def ask(self, cell: Cell, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell, which goes on once that is decided."""

        def decided(decision: Decision) -> None:
            self._clerk.end()
            if decision.scope is not None:
                self._begin()
            go_on()

        self._clerk.begin(cell)
        self._clerk.ask_start(self._field, self._value, decided)

    def interrupt(self) -> None:
        """Take the question back: the kernel does not start."""
        self._clerk.interrupt()
