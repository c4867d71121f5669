"""Settling a cell that narrows the policy: weighed, entered in the audit log, put in force.

No guest is asked, none can prevent it, and the cell is answered when what it asked for holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.errors import BackendError, PolicyError
from cellblock.host.audit import records
from cellblock.host.consent.admission.admission import Gate
from cellblock.host.guests import spawn
from cellblock.host.session.settings import addresses_of, bounds_of, lasting, proofs_of
from cellblock.host.session.settings import narrowed as narrowed_tooling
from cellblock.host.session.types import Claim, Held, NotHeld, Outcome, Step, Terms, outcome_of
from cellblock.host.snapshots.restore import lacking
from cellblock.policy import narrow_requests as narrowing
from cellblock.policy import paths
from cellblock.policy.vocabulary import tool_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Finding, Rules
    from cellblock.host.audit.recorder import Audit
    from cellblock.host.cell.cell import Station
    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.supervisor import Supervisor
    from cellblock.host.services.tools.calls import Tooling
    from cellblock.host.session.config import Ground
    from cellblock.host.session.requests import Request
    from cellblock.host.session.types import Cell, Scope
    from cellblock.host.snapshots.chain import Snapshot
    from cellblock.policy.model import Policy
    from cellblock.policy.narrow_requests import NarrowRequest
    from cellblock.render.policy_card import Guest as GuestNow


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
        self, scope: Scope, audit: Audit, keeper: Supervisor, holder: Holder, answering: Answering
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
        asked, findings = narrowing.read_cell(cell.raw, rules)
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
                found = narrowing.not_kept(
                    narrowing.new_guest_error("", reply.why), asked, cell.raw, rules
                )
                outcome = Outcome("denied", findings=found)
            else:
                outcome = outcome_of(reply, {})
            done(outcome)
            self._audit.ended(number, outcome)

        self._put_in_force(terms, finish)

    # --- whether it may be ----------------------------------------------------------------------

    def _weighed(
        self, asked: NarrowRequest, source: str, rules: Rules
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
        fields = narrowing.guest_fields(self._scope.policy, policy)
        if not fields:
            return Step.none
        if not self._holder.used:
            return Step.fresh
        narrowing.check_keeps_guest(self._scope.policy, policy)
        step = self._scope.locking()
        if step is None:
            raise narrowing.new_guest_error(
                fields[0], "can't be put in force in the guest that runs"
            )
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
            self._keeper.copy_guest(lambda copy: self._lock(request, terms, guest, copy))

    def _begin(self, request: Request, terms: Terms) -> None:
        request.began = True
        self._holder.adopt(terms)

    def _lock(self, request: Request, terms: Terms, guest: Guest, copy: Snapshot | None) -> None:
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
            self._keeper.prepare_locks(copy, terms.prepare.plan, ready)


def _kept_by_nobody(why: str) -> PolicyError:
    return PolicyError(why, file="", key="", value="", remedy="Run `cellblock doctor`.")


# The policy of one session, which notebook and cells can make narrower.


class PolicyScope:
    """What ``host.session.narrowing`` asks of whoever knows policy, backend and what is shown."""

    def __init__(self, ground: Ground, station: Station, tooling: Tooling) -> None:
        self._ground, self._station, self._tooling = ground, station, tooling
        #: What the terms that were made last stand on.
        self._next = ground
        #: The policy before the one in force, and what was not enforced of it.
        self._before = ground.policy
        self._known = set[tuple[str, str]]()

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._ground.policy

    def weigh(self, changes: Mapping[str, Any]) -> tuple[Policy, tuple[PolicyError, ...]]:
        """Return a narrower policy, or all that is wrong with the changes."""
        from cellblock.policy.narrowing import weigh  # noqa: PLC0415 - few sessions get here
        from cellblock.policy.paths import Places  # noqa: PLC0415 - as above

        project, scratch = self._ground.project, Path(self._ground.told.scratch)
        return weigh(self.policy, changes, places=Places("the cell", project, project, scratch))

    def locking(self) -> Step | None:
        """Say what it takes to lay more locks on the guest that there is; None if it can't be."""
        if not self._ground.told.plan.locks:
            return Step.none  # what is asked for is a gap, before and after
        can = self.policy.snapshots != "off" and self._station.views.gated
        return Step.relock if can else None

    def terms(self, policy: Policy, step: Step) -> Terms:
        """Return the terms of a narrower policy. Raises PolicyError, BackendError."""
        from cellblock.host.session.config import relaid  # noqa: PLC0415 - few sessions get here

        if refusal := self._station.views.refusal_under(policy):
            raise _nothing_would_run(refusal)
        self._next = ground = relaid(self._ground, policy)
        scratch = Path(ground.told.scratch)
        return Terms(
            policy=policy,
            changed=changes(self.policy, policy, scratch),
            digest=paths.unplaced(policy, scratch).digest(),
            step=step,
            rules=policy.rules(),
            timeout=policy.timeout,
            bounds=bounds_of(ground),
            prepare=ground.told,
            zygote=partial(spawn.start, ground.wrap),
            addresses=addresses_of(ground),
            tools=narrowed_tooling(self._tooling, ground),
            tools_gone=_tools(self.policy) - _tools(policy),
            gate=Gate(policy, ground.project, self._station.audit.in_force),
        )

    def adopt(self, terms: Terms) -> None:
        """Hold to these terms from now on, whatever is shown, kept and said."""
        self._before, self._ground = self.policy, self._next
        views = self._station.views
        self._known = {(gap.capability, gap.consequence) for gap in views.gaps}
        if terms.step is Step.relock:
            wraps = self._ground.chosen.backend.wraps
            views.lasting |= lasting(terms.changed, seen=wraps)
        views.narrowed(terms.policy, proofs_of(self._ground))
        views.tools_in_force = tuple(
            tool for tool in views.tools_in_force if tool.name not in terms.tools_gone
        )
        views.templates_in_force = terms.gate.templates
        self._tooling = terms.tools or self._tooling
        self._station.outputs.narrowed(terms.changed)
        if terms.step is not Step.fresh and views.report is not None:
            self._station.audit.locked(
                views.enforcement, views.gaps, views.report.achieved, views.proved
            )

    def told(self, held: Held, *, used: bool) -> None:
        """Show what is in force now; ``used`` says that there were variables before."""
        from cellblock.render.policy_card import Change, narrowed  # noqa: PLC0415 - as above

        views, before, terms = self._station.views, self._before, held.terms
        restored = held.stopped.restored if held.stopped is not None else None
        card = narrowed(
            [
                Change(name, getattr(before, name), getattr(terms.policy, name))
                for name in terms.changed
            ],
            policy_name=views.name,
            guest=_guest(held, used=used),
            lost=lacking(restored) if restored is not None else (),
            gaps=[
                gap
                for gap in views.gaps
                if gap.capability in terms.changed
                and (gap.capability, gap.consequence) not in self._known
            ],
        )
        self._station.outputs.card(card)


def _guest(held: Held, *, used: bool) -> GuestNow:
    """Return where cells run from now on."""
    from cellblock.render.policy_card import Guest as GuestNow  # noqa: PLC0415 - as above

    if held.terms.step is Step.none:
        return GuestNow.same
    if held.stopped is not None and held.stopped.restored is not None:
        return GuestNow.kept
    return GuestNow.instead if used else GuestNow.new


def enter_notebook(ground: Ground, audit: Audit) -> None:
    """Enter in the audit log, and have shown, what the notebook's own metadata changed."""
    operators = ground.operators
    if operators is None or operators == ground.policy:
        return
    scratch = Path(ground.told.scratch)
    audit.enter(
        records.Narrowing(
            fields=changes(operators, ground.policy, scratch),
            digest=paths.unplaced(ground.policy, scratch).digest(),
            file=records.whole(ground.notebook),
        )
    )


def _tools(policy: Policy) -> frozenset[str]:
    return frozenset(map(tool_name, policy.tools))


def changes(before: Policy, after: Policy, scratch: Path) -> dict[str, str]:
    """Return the fields that differ, with what they are after, as TOML has it."""
    from cellblock.policy.narrowing import (  # noqa: PLC0415 - as needed
        changed,
        said,
    )

    told = paths.unplaced(after, scratch)
    return {name: records.said(said(getattr(told, name))) for name in changed(before, after)}


def _nothing_would_run(refusal: str) -> PolicyError:
    return PolicyError(
        f"would have nothing run here: {refusal}",
        file="",
        key="",
        value="",
        remedy="Leave that out, or choose a machine or a backend that can.",
    )
