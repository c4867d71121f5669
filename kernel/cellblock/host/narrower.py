"""Settling a cell that narrows the policy: weighed, entered in the audit log, put in force.

No guest is asked, none can prevent it, and the cell is answered when what it asked for holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.errors import BackendError, PolicyError
from cellblock.host.outcome import Outcome, outcome_of
from cellblock.host.terms import Claim, Held, NotHeld, Step
from cellblock.policy import cell as narrowing

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Finding, Rules
    from cellblock.host.audit.trail import Audit
    from cellblock.host.copies import Copy
    from cellblock.host.guest_process import Guest
    from cellblock.host.keeper import Keeper
    from cellblock.host.outcome import Cell
    from cellblock.host.request import Request
    from cellblock.host.terms import Scope, Terms
    from cellblock.policy.cell import Asked
    from cellblock.policy.model import Policy


class Holder(Protocol):
    """Whoever holds cells to terms."""

    @property
    def used(self) -> bool:
        """Whether the guest that there is has run anything."""

    def adopt(self, terms: Terms) -> None:
        """Hold to these terms from now on; where another guest is to serve, have it begin."""


@dataclass(frozen=True, slots=True)
class Answering:
    """A session's one request: how one waits for a guest, how it is ended, which there is."""

    submit: Callable[[Any, Callable[[Any], None]], None]
    finish: Callable[[Request, Any], None]
    under_way: Callable[[], Request | None]


class Narrower:
    """Weighs what cells ask of a ``scope``, and has a ``holder`` hold to what comes of it."""

    def __init__(
        self, scope: Scope, audit: Audit, keeper: Keeper, holder: Holder, answering: Answering
    ) -> None:
        self._scope, self._audit = scope, audit
        self._keeper, self._holder = keeper, holder
        self._answering = answering

    def settle(
        self, cell: Cell, rules: Rules, done: Callable[[Outcome], None], *, by: str = ""
    ) -> None:
        """Narrow the policy as ``cell`` asks, or deny that; ``done`` gets the outcome.

        ``by`` says what admitted the cell, where not every cell is.
        """
        asked, findings = narrowing.read(cell.raw, rules)
        terms: Terms | None = None
        if not findings:
            terms, findings = self._weighed(asked, cell.raw, rules)
        unwritten = self._audit.decided(cell, findings, (), by=by)
        if terms is None or unwritten is not None:
            status: Any = "denied" if findings else "refused"
            done(Outcome(status, findings=findings, unwritten=unwritten))
            return
        number, used = self._audit.number, self._holder.used

        def finish(reply: Any) -> None:
            outcome = Outcome("ok")
            if isinstance(reply, Held):
                self._scope.told(reply, used=used)
            elif isinstance(reply, NotHeld):
                found = narrowing.not_kept(narrowing.costly("", reply.why), asked, cell.raw, rules)
                outcome = Outcome("denied", findings=found)
            else:
                outcome = outcome_of(reply, {})
            done(outcome)
            self._audit.ended(number, outcome)

        self._put_in_force(terms, finish)

    # --- whether it may be ----------------------------------------------------------------------

    def _weighed(
        self, asked: Asked, source: str, rules: Rules
    ) -> tuple[Terms | None, tuple[Finding, ...]]:
        """Return the terms that a cell asks for, or why it can't have them."""
        policy, wrong = self._scope.weigh(asked.changes)
        if wrong:
            return None, narrowing.explained(wrong, asked, source, rules)
        try:
            return self._terms(policy, fresh=asked.fresh), ()
        except PolicyError as error:
            return None, narrowing.not_kept(error, asked, source, rules)
        except BackendError as error:
            problem = _kept_by_nobody(str(error))
            return None, narrowing.not_kept(problem, asked, source, rules)

    def _terms(self, policy: Policy, *, fresh: bool) -> Terms:
        return self._scope.terms(policy, Step.fresh if fresh else self._step(policy))

    def _step(self, policy: Policy) -> Step:
        """Return what it takes to have this policy, which is narrower. Raises PolicyError."""
        fields = narrowing.of_guests(self._scope.policy, policy)
        if not fields:
            return Step.none
        if not self._holder.used:
            return Step.fresh
        narrowing.check_keeps_guest(self._scope.policy, policy)
        step = self._scope.locking()
        if step is None:
            raise narrowing.costly(fields[0], "can't be put in force in the guest that runs")
        return step

    # --- having it ------------------------------------------------------------------------------

    def _put_in_force(self, terms: Terms, done: Callable[[Any], None]) -> None:
        """Hold cells to narrower terms; ``done`` gets ``Held`` when they are in force."""
        if terms.step is Step.none:
            self._holder.adopt(terms)
            done(Held(terms))
        else:
            self._answering.submit(Claim(terms, partial(self._serve, terms)), done)

    def _serve(self, terms: Terms, request: Request, guest: Guest) -> None:
        """Have another guest than ``guest``; when that serves, this comes a second time."""
        if request.began:
            self._answering.finish(request, Held(terms))
        elif terms.step is Step.fresh:
            self._begin(request, terms)
        else:
            self._keeper.locks.copy(lambda copy: self._lock(request, terms, guest, copy))

    def _begin(self, request: Request, terms: Terms) -> None:
        request.began = True
        self._holder.adopt(terms)

    def _lock(self, request: Request, terms: Terms, guest: Guest, copy: Copy | None) -> None:
        """Have locks made for the copy of ``guest``, and that go on in its place when they are."""

        def waits() -> bool:
            still = self._answering.under_way() is request and not request.began
            return still and self._keeper.guest is guest

        def ready(failure: str) -> None:
            if failure and waits():
                self._answering.finish(request, NotHeld(failure))
            elif waits():
                self._begin(request, terms)

        if not waits():
            return
        most = terms.bounds.memory_max_bytes
        if copy is None:
            self._answering.finish(request, NotHeld("no copy of the guest could be made"))
        elif most is not None and copy.had.size > most:
            what = f"the guest has {copy.had.size:,} bytes already"
            self._answering.finish(request, NotHeld(what))
        else:
            self._keeper.locks.make(copy, terms.prepare.plan, ready)


def _kept_by_nobody(why: str) -> PolicyError:
    return PolicyError(why, file="", key="", value="", remedy="Run `cellblock doctor`.")
