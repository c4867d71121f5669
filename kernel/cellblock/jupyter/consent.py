"""Asking a kernel's user for consent: to calls and imports, and to a start that needs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.host.consent.approver import Approver, Prompt
from cellblock.host.consent.grants import GrantContext, Grants, Store, default_path
from cellblock.policy import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.approver import Decision
    from cellblock.host.session.config import SessionConfig
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.jupyter.kernel import Kernel
    from cellblock.policy.model import Policy


def begin(config: SessionConfig, kernel: Kernel, start: Callable[[], None]) -> None:
    """Ask the user of ``kernel`` from now on; call ``start`` once its session may be started."""
    policy = paths.without_scratch(config.policy, Path(config.prepare.scratch))
    kernel.input_requests.prefix_cells = True
    grants = Grants(under(config, policy), Store(default_path()))
    kernel.approver = approver = Approver(
        Prompt(kernel.consulted, grants),
        grants,
        observe=kernel.audit.approved,
        tell=kernel.outputs.notice,
    )
    if config.condition is None:
        start()
        return
    if approver.may_start():  # allowed for always
        start()
    else:
        kernel.starting = StartConsent(kernel, approver, start)
        kernel.views.refuse(config.condition)


def under(config: SessionConfig, policy: Policy) -> GrantContext:
    """Return the policy under which users are asked; a notebook may have made it narrower."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(config.project))
    return GrantContext(scope=scope, policy=policy.name, digest=policy.digest())


class StartConsent:
    """Consent that the first cell waits for: until then there is no session, and no guest.

    ``start`` starts the session.
    """

    def __init__(self, kernel: Kernel, approver: Approver, start: Callable[[], None]) -> None:
        self._kernel, self._approver, self._start = kernel, approver, start

    def ask(self, cell: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell; call ``go_on`` once that is decided."""

        def decided(decision: Decision) -> None:
            self._approver.end()
            if decision.scope is not None:
                self._kernel.views.allow()
                self._kernel.starting = None
                self._start()
            go_on()

        self._approver.begin(cell)
        self._approver.ask_start(decided)

    def interrupt(self) -> None:
        """Cancel the question: the kernel does not start."""
        self._approver.interrupt()
