"""Asking a kernel's user for consent: to calls and imports, and to a start that needs it.

Imported late: few policies ask anybody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.host.consent.approver import Approver
from cellblock.host.consent.grants import Grants, Store, Under, default_path
from cellblock.host.consent.prompt import Prompt
from cellblock.host.session.narrowing import recorded_changes
from cellblock.policy import paths as placing

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.prompt import Decision
    from cellblock.host.session.config import SessionConfig
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.jupyter.kernel import Kernel
    from cellblock.policy.model import Policy


def begin(config: SessionConfig, kernel: Kernel, start: Callable[[], None]) -> None:
    """Have the user of ``kernel`` asked; call ``start`` once its session may be started."""
    policy = placing.without_scratch(config.policy, Path(config.prepare.scratch))
    kernel.approver = approver = approver_of(config, policy, kernel)
    if config.condition is None:
        start()
        return

    def allowed() -> None:
        kernel.views.allow()
        kernel.starting = None
        start()

    starting = StartConsent(approver, policy, config.condition.key, allowed)
    if starting.is_allowed:
        start()
        return
    kernel.starting = starting
    kernel.views.refuse(config.condition)


def approver_of(config: SessionConfig, policy: Policy, kernel: Kernel) -> Approver:
    """Return what asks the user; ``policy`` is from ``placing.without_scratch``."""
    kernel.input_requests.prefix_cells = True
    grants = Grants(under(config, policy), Store(default_path()))
    return Approver(
        Prompt(kernel.consulted, grants),
        grants,
        observe=kernel.audit.approved,
        tell=kernel.outputs.notice,
    )


def under(config: SessionConfig, policy: Policy) -> Under:
    """Return the policy under which users are asked; a notebook may have made it narrower."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(config.project))
    made, scratch = config.operators, Path(config.prepare.scratch)
    if made is None:
        return Under(scope=scope, policy=policy.name, digest=policy.digest())
    written = placing.without_scratch(made, scratch).digest()
    first = Under(scope=scope, policy=policy.name, digest=written)
    return first.narrower(policy.digest(), recorded_changes(made, config.policy, scratch))


class StartConsent:
    """Consent that the first cell waits for: until then there is no session, and no guest.

    ``field`` is the policy's field that needs consent, ``begin`` starts the session.
    """

    def __init__(
        self, approver: Approver, policy: Policy, field: str, begin: Callable[[], None]
    ) -> None:
        self._approver, self._begin = approver, begin
        self._field, self._value = field, str(getattr(policy, field))

    @property
    def is_allowed(self) -> bool:
        """Whether the user has allowed it for always."""
        return self._approver.may_start(self._field, self._value)

    def ask(self, cell: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell; call ``go_on`` once that is decided."""

        def decided(decision: Decision) -> None:
            self._approver.end()
            if decision.scope is not None:
                self._begin()
            go_on()

        self._approver.begin(cell)
        self._approver.ask_start(self._field, self._value, decided)

    def interrupt(self) -> None:
        """Cancel the question: the kernel does not start."""
        self._approver.interrupt()
