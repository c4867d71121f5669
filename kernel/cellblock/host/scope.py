"""The policy of one session, which notebook and cells can make narrower."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.errors import PolicyError
from cellblock.host import launch
from cellblock.host.admission.gate import Gate
from cellblock.host.audit import entries, records
from cellblock.host.cells.restored import lacking
from cellblock.host.equipment import narrowed as narrowed_tooling
from cellblock.host.judged import lasting
from cellblock.host.terms import Step, Terms
from cellblock.host.told import addresses_of, bounds_of, proofs_of, settings_of
from cellblock.policy import placing
from cellblock.policy.vocabulary import tool_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.host.audit.trail import Audit
    from cellblock.host.cells.station import Station
    from cellblock.host.groundwork import Ground
    from cellblock.host.terms import Held
    from cellblock.host.tools import Tooling
    from cellblock.policy.model import Policy
    from cellblock.render.narrowed import Guest


class PolicyScope:
    """What ``host.narrower`` asks of whoever knows policy, backend and what is shown."""

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
        from cellblock.host.groundwork import relaid  # noqa: PLC0415 - few sessions get here

        if refusal := self._station.views.refusal_under(policy):
            raise _nothing_would_run(refusal)
        self._next = ground = relaid(self._ground, policy)
        scratch = Path(ground.told.scratch)
        return Terms(
            policy=policy,
            changed=changes(self.policy, policy, scratch),
            digest=placing.unplaced(policy, scratch).digest(),
            step=step,
            rules=policy.rules(),
            timeout=policy.timeout,
            bounds=bounds_of(ground),
            snapshots=settings_of(policy),
            prepare=ground.told,
            zygote=partial(launch.start, ground.wrap),
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
        from cellblock.render.narrowed import Row, narrowed  # noqa: PLC0415 - as above

        views, before, terms = self._station.views, self._before, held.terms
        restored = held.stopped.restored if held.stopped is not None else None
        card = narrowed(
            [
                Row(name, getattr(before, name), getattr(terms.policy, name))
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


def _guest(held: Held, *, used: bool) -> Guest:
    """Return where cells run from now on."""
    from cellblock.render.narrowed import Guest  # noqa: PLC0415 - as above

    if held.terms.step is Step.none:
        return Guest.same
    if held.stopped is not None and held.stopped.restored is not None:
        return Guest.kept
    return Guest.instead if used else Guest.new


def enter_notebook(ground: Ground, audit: Audit) -> None:
    """Enter in the audit log, and have shown, what the notebook's own metadata changed."""
    operators = ground.operators
    if operators is None or operators == ground.policy:
        return
    scratch = Path(ground.told.scratch)
    audit.enter(
        records.Narrowing(
            fields=changes(operators, ground.policy, scratch),
            digest=placing.unplaced(ground.policy, scratch).digest(),
            file=entries.whole(ground.notebook),
        )
    )


def _tools(policy: Policy) -> frozenset[str]:
    return frozenset(map(tool_name, policy.tools))


def changes(before: Policy, after: Policy, scratch: Path) -> dict[str, str]:
    """Return the fields that differ, with what they are after, as TOML has it."""
    from cellblock.policy.narrower import said  # noqa: PLC0415 - as above
    from cellblock.policy.narrowing import changed  # noqa: PLC0415 - as above

    told = placing.unplaced(after, scratch)
    return {name: entries.said(said(getattr(told, name))) for name in changed(before, after)}


def _nothing_would_run(refusal: str) -> PolicyError:
    return PolicyError(
        f"would have nothing run here: {refusal}",
        file="",
        key="",
        value="",
        remedy="Leave that out, or choose a machine or a backend that can.",
    )
