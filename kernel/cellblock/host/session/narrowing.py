"""The settings that a session enforces, and cells that narrow its policy.

``settings_of`` makes the settings from the session's config at its start. A cell that is only
``%policy narrow`` is carried out by the host (``Narrower``), and is answered when the narrower
policy is in force::

    weigh_cell ──▶ narrow ──▶ NarrowingStep.none ────────────────────▶ adopt
    (a thread)           │                                              ▲
                         ├──▶ NarrowingStep.fresh ──────────────────────┤
                         └──▶ NarrowingStep.relock ──▶ copy, lock it ───┘

A ``NarrowingStep`` says what has to happen to the guest: nothing, a copy of it under more locks
takes its place, or a new guest. If no copy can be made the guest goes on under the policy as it
was, and the cell fails and says so; ``%policy narrow --fresh`` asks for a new guest instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from msgspec import structs

from cellblock.analysis.magics import SHOWS_POLICY
from cellblock.errors import BackendError, PolicyError
from cellblock.host import threads
from cellblock.host.audit import records
from cellblock.host.cell.lacking import lacking
from cellblock.host.consent.admission import AdmissionGate
from cellblock.host.guests import spawn
from cellblock.host.services.tools.calls import DenyAll, Tooling
from cellblock.host.session.config import under_policy
from cellblock.host.session.requests import InFlight, PolicyChange, PolicyUnchanged, RequestState
from cellblock.host.session.types import (
    NarrowingStep,
    Outcome,
    SessionSettings,
    Stopped,
    outcome_of,
)
from cellblock.policy import narrow_requests, paths
from cellblock.policy.model import ROWS
from cellblock.policy.narrow_requests import NOT_KEPT, explained
from cellblock.policy.narrowing import changed_fields, toml_text, try_narrow
from cellblock.policy.paths import Places
from cellblock.policy.vocabulary import tool_name
from cellblock.render import policy_card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from cellblock.analysis import Finding, Rules
    from cellblock.analysis.admission import Ruling
    from cellblock.host.cell.cell import Front
    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.worker_process import Started
    from cellblock.host.reactor import Reactor
    from cellblock.host.services.tools.calls import Approval
    from cellblock.host.services.tools.runner import InProcessTools
    from cellblock.host.session.config import SessionConfig
    from cellblock.host.session.requests import Requests
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.host.state.chain import Snapshot
    from cellblock.policy.model import Policy
    from cellblock.policy.narrow_requests import NarrowRequest

    MakeTools = Callable[[Policy], InProcessTools]
    TakeWorker = Callable[[], Started | None]


_MAGIC: Final = f"%{SHOWS_POLICY}"
_NAMES_REMAIN: Final = "names that were seen before can still be looked up"
_FIELDS_OF_FOLDERS: Final = ("filesystem_read_roots", "read_deny_paths")
#: Seconds that looking up the folders which a policy names may take. It normally takes some
#: milliseconds, but cells can keep folders busy.
PATIENCE: Final = 3.0
_BUSY: Final = f"names folders that could not be looked at within {PATIENCE:g} s"
_BUSY_REMEDY: Final = "Cells keep them busy: end what they have started, or try again."


# --- settings -----------------------------------------------------------------------------------


def settings_of(
    config: SessionConfig,
    front: Front,
    make_tools: MakeTools | None = None,
    take_worker: TakeWorker = lambda: None,
) -> SessionSettings:
    """Return the settings that a session enforces at its start.

    ``make_tools`` makes the tools of a program that uses sandboxes. ``take_worker`` returns the
    worker process of the operator's tools, if one was started ahead.
    """
    policy = config.policy
    tools = Tooling(
        policy=policy,
        functions=None if make_tools is None else lambda: make_tools(policy),
        worker=take_worker,
        operations=config.operations,
        budgets=front.views.budgets,
        approval=approval_of(policy, front),
    )
    return _settings(config, front, tools)


def _settings(
    config: SessionConfig, front: Front, tools: Tooling | None, **change: Any
) -> SessionSettings:
    return SessionSettings(
        policy=config.policy,
        rules=config.policy.rules(config.file),
        gate=AdmissionGate(config.policy, config.project, front.audit.in_force),
        prepare=config.prepare,
        zygote=partial(spawn.start, config.wrap),
        tools=tools,
        **change,
    )


def approval_of(policy: Policy, front: Front) -> Approval | None:
    """Return what decides about tool calls.

    If the policy wants users asked and none can be, all calls are denied.
    """
    decides = front.approval or front.approver
    return DenyAll() if decides is None and policy.approvals != "never" else decides


def recorded_changes(before: Policy, after: Policy, scratch: Path) -> dict[str, str]:
    """Return the fields that differ and their values in ``after`` as TOML, for the audit log."""
    portable = paths.without_scratch(after, scratch)
    return {
        name: records.clipped(toml_text(getattr(portable, name)))
        for name in changed_fields(before, after)
    }


# --- narrowing ----------------------------------------------------------------------------------


class NarrowedSession(Protocol):
    """The session whose policy is narrowed."""

    settings: SessionSettings
    requests: Requests

    def adopt(self, settings: SessionSettings) -> None:
        """Put a narrower policy in force."""


class Weighed(NamedTuple):
    """The narrowing that a cell asks for, and the settings with it, or the findings against it."""

    asked: NarrowRequest
    settings: SessionSettings | None
    findings: tuple[Finding, ...]


class Narrower:
    """Narrows one session's policy when its cells ask for that."""

    def __init__(
        self, reactor: Reactor, config: SessionConfig, front: Front, tooling: Tooling | None
    ) -> None:
        self._reactor = reactor
        self._weighing: threads.Work[SessionSettings | tuple[Finding, ...]] | None = None
        self._config = config
        self._front = front
        self._tooling = tooling
        #: The config that belongs to the settings made last. ``adopt`` puts it in force.
        self._next = config
        #: The policy before the one in force, and its gaps, by capability and consequence.
        self._before = config.policy
        self._known_gaps = set[tuple[str, str]]()

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._config.policy

    def handles(self, request: ExecuteRequest, ruling: Ruling, session: NarrowedSession) -> bool:
        """Return whether a cell is only ``%policy narrow``."""
        rules = session.settings.rules
        return (
            _MAGIC in request.code
            and (not rules.language or SHOWS_POLICY in rules.magics)
            and not ruling.findings
            and ruling.run is None
            and narrow_requests.is_narrow_cell(request.code)
        )

    def weigh_cell(
        self,
        request: ExecuteRequest,
        session: NarrowedSession,
        on_weighed: Callable[[Weighed], None],
    ) -> None:
        """Find out whether a cell may narrow the policy as it asks, then call ``on_weighed``.

        ``on_weighed`` is called in the event loop, but the policy is weighed in a thread: looking
        up the folders that the cell names waits for whoever keeps them locked.
        """
        code = request.code
        rules = session.settings.rules
        narrow_request, findings = narrow_requests.read_cell(code, rules)
        if findings:
            on_weighed(Weighed(narrow_request, None, findings))
            return

        def on_settings(outcome: Future[SessionSettings | tuple[Finding, ...]]) -> None:
            try:
                result = outcome.result()
            except OSError:  # too late, or no more threads can be started
                result = explained(
                    [PolicyError(_BUSY, remedy=_BUSY_REMEDY)], narrow_request, code, rules
                )
            if isinstance(result, tuple):
                on_weighed(Weighed(narrow_request, None, result))
            else:
                on_weighed(Weighed(narrow_request, result, ()))

        weigh = partial(self._weigh_request, narrow_request, code, rules)
        self._weighing = threads.begin(self._reactor, weigh, on_settings, seconds=PATIENCE)

    def close(self) -> None:
        """Narrow nothing more. Called when the session ends."""
        if self._weighing is not None:
            self._weighing.forget()

    def narrow(
        self,
        request: ExecuteRequest,
        session: NarrowedSession,
        weighed: Weighed,
        done: Callable[[Outcome], None],
        *,
        admitted_by: str = "",
    ) -> None:
        """Narrow the policy as a cell asks, or deny that; ``done`` is called with the outcome.

        ``weighed`` is the result of ``weigh_cell``. ``admitted_by`` says what admitted the cell,
        if not every cell is admitted.
        """
        audit = self._front.audit
        code = request.code
        rules = session.settings.rules
        narrow_request, settings, findings = weighed
        if settings is not None:
            try:
                used = session.requests.used
                step = (
                    NarrowingStep.fresh
                    if narrow_request.fresh
                    else self._step(settings.policy, used=used)
                )
                settings = structs.replace(settings, step=step)
            except PolicyError as error:
                settings = None
                findings = explained([error], narrow_request, code, rules, NOT_KEPT)
        unwritten = audit.decided(request, findings, (), by=admitted_by)
        if settings is None or unwritten is not None:
            status: Literal["denied", "refused"] = "denied" if findings else "refused"
            done(Outcome(status, findings=findings, unwritten=unwritten))
            return
        number = audit.number
        used = session.requests.used

        def finish(reply: Any) -> None:
            outcome = Outcome("ok")
            if reply is None or (isinstance(reply, Stopped) and reply.why == "narrowed"):
                # A guest that was lost meanwhile left nothing that the card could call kept.
                kept_reply = reply if session.requests.used else None
                self.show_change(settings, kept_reply, used=used)
            elif isinstance(reply, PolicyUnchanged):
                error = narrow_requests.new_guest_error("", reply.why)
                findings_shown = explained([error], narrow_request, code, rules, NOT_KEPT)
                outcome = Outcome("denied", findings=findings_shown)
            else:
                outcome = outcome_of(reply, {})
            done(outcome)
            audit.ended(number, outcome)

        if settings.step is NarrowingStep.none:
            session.adopt(settings)
            finish(None)
        else:
            serve = partial(self._serve, session, settings)
            session.requests.submit(PolicyChange(serve), finish)

    def check(self, code: str, rules: Rules) -> tuple[Finding, ...]:
        """Return the findings against a cell that narrows the policy, without narrowing it."""
        narrow_request, findings = narrow_requests.read_cell(code, rules)
        if findings:
            return findings
        return explained(self.weigh(narrow_request.changes)[1], narrow_request, code, rules)

    # --- whether a narrowing is possible ------------------------------------------------------

    def _weigh_request(
        self, narrow_request: NarrowRequest, code: str, rules: Rules
    ) -> SessionSettings | tuple[Finding, ...]:
        """Return the settings that a cell asks for, or the findings against them."""
        policy, errors = self.weigh(narrow_request.changes)
        if errors:
            return explained(errors, narrow_request, code, rules)
        try:
            return self.settings_under(policy)
        except PolicyError as error:
            problem = error
        except BackendError as error:
            problem = PolicyError(str(error), remedy="Run `cellblock doctor`.")
        return explained([problem], narrow_request, code, rules, NOT_KEPT)

    def weigh(self, changes: Mapping[str, Any]) -> tuple[Policy, tuple[PolicyError, ...]]:
        """Return the policy with these changes, and all errors in them; () if there are none."""
        project = self._config.project
        places = Places("the cell", project, project, self._config.scratch)
        return try_narrow(self.policy, changes, places=places)

    def _step(self, policy: Policy, *, used: bool) -> NarrowingStep:
        """Return what has to happen to the guest before this narrower policy is enforced.

        ``used`` says whether the guest has run anything. Raises PolicyError if that can't be done
        while the variables are kept.
        """
        fields = narrow_requests.guest_fields(self.policy, policy)
        if not fields:
            return NarrowingStep.none
        if not used:
            return NarrowingStep.fresh
        narrow_requests.check_keeps_guest(self.policy, policy)
        step = self.locking_step()
        if step is None:
            why = "can't be put in force while the variables are kept"
            raise narrow_requests.new_guest_error(fields[0], why)
        return step

    def locking_step(self) -> NarrowingStep | None:
        """Return what it takes to put more locks on the guest; None if that can't be done."""
        if not self._config.prepare.plan.locks:
            # This backend has no locks: what the policy asks for is a gap before and after.
            return NarrowingStep.none
        possible = self.policy.snapshots != "off" and self._front.views.gated
        return NarrowingStep.relock if possible else None

    def settings_under(self, policy: Policy) -> SessionSettings:
        """Return the settings of a narrower policy. Raises PolicyError, BackendError."""
        if refusal := self._front.views.refusal_under(policy):
            remedy = "Leave that out, or choose a machine or a backend that can."
            raise PolicyError(f"would let no cell run here: {refusal}", remedy=remedy)
        self._next = config = under_policy(self._config, policy)
        names = frozenset(map(tool_name, policy.tools))
        tools = self._tooling
        if tools is not None:  # a changed copy: what was used of the budgets stays used
            tools = structs.replace(tools, policy=policy, operations=config.operations)
        return _settings(
            config,
            self._front,
            tools,
            changed=recorded_changes(self.policy, policy, config.scratch),
            digest=paths.without_scratch(policy, config.scratch).digest(),
            tools_gone=frozenset(map(tool_name, self.policy.tools)) - names,
        )

    # --- putting a narrower policy in force ---------------------------------------------------

    def _serve(
        self, session: NarrowedSession, settings: SessionSettings, request: InFlight, guest: Guest
    ) -> None:
        """Replace ``guest``. Called again when its replacement serves; then end the request."""
        if request.began:
            session.requests.finish(request, None)
        elif settings.step is NarrowingStep.fresh:
            self._begin(session, settings, request)
        else:
            lock = partial(self._lock, session, settings, request, guest)
            session.requests.supervisor.copy_guest(lock)

    def _begin(
        self, session: NarrowedSession, settings: SessionSettings, request: InFlight
    ) -> None:
        # From here on the request is not sent again, whatever becomes of the guest.
        request.state = RequestState.running
        session.adopt(settings)

    def _lock(
        self,
        session: NarrowedSession,
        settings: SessionSettings,
        request: InFlight,
        guest: Guest,
        copy: Snapshot | None,
    ) -> None:
        """Have the zygote prepare locks for ``copy``, which then replaces ``guest``."""
        requests = session.requests
        memory_max = settings.policy.memory_max_bytes

        def waits() -> bool:
            under_way = requests.request is request and not request.began
            return under_way and requests.supervisor.guest is guest

        def ready(failure: str) -> None:
            if failure and waits():
                requests.finish(request, PolicyUnchanged(failure))
            elif waits():
                self._begin(session, settings, request)

        if not waits():
            return
        if copy is None:
            why = requests.supervisor.snapshots.why_no_copy()
            why = why or "no copy of the session could be made"
            requests.finish(request, PolicyUnchanged(why))
        elif memory_max is not None and copy.had.size > memory_max:
            why = f"the session holds {copy.had.size:,} bytes already"
            requests.finish(request, PolicyUnchanged(why))
        else:
            requests.supervisor.prepare_locks(copy, settings.prepare.plan, ready)

    def adopt(self, settings: SessionSettings) -> None:
        """Show, keep and record from now on as the narrower policy says. Called by the session."""
        self._before = self.policy
        self._config = self._next
        self._tooling = settings.tools or self._tooling
        views = self._front.views
        audit = self._front.audit
        self._known_gaps = {(gap.capability, gap.consequence) for gap in views.gaps}
        if settings.step is NarrowingStep.relock:
            wrapped = self._config.chosen.backend.wraps
            views.lasting |= _lasting(settings.changed, self._before, wrapped=wrapped)
        views.narrowed(self._config)
        views.tools_in_force = tuple(
            tool for tool in views.tools_in_force if tool.name not in settings.tools_gone
        )
        views.templates_in_force = settings.gate.templates
        self._front.outputs.narrowed(settings.changed)
        if settings.step is not NarrowingStep.fresh and views.report is not None:
            audit.locked(views.enforcement, views.gaps, views.report.achieved, views.proved)

    def show_change(
        self, settings: SessionSettings, stopped: Stopped | None, *, used: bool
    ) -> None:
        """Show the card of a narrowing: what is in force now, and what the guest lost.

        ``stopped`` is the outcome of the guest that a copy under more locks replaced. ``used`` says
        whether there could have been variables before.
        """
        views = self._front.views
        before = self._before
        restored = stopped.restored if stopped is not None else None
        if settings.step is NarrowingStep.none:
            guest = policy_card.Guest.same
        elif restored is not None:
            guest = policy_card.Guest.kept
        else:
            guest = policy_card.Guest.instead if used else policy_card.Guest.new
        changes = [
            policy_card.Change(name, getattr(before, name), getattr(settings.policy, name))
            for name in settings.changed
        ]
        new_gaps = [
            gap
            for gap in views.gaps
            if gap.capability in settings.changed
            and (gap.capability, gap.consequence) not in self._known_gaps
        ]
        lost = lacking(restored) if restored is not None else ()
        card = policy_card.narrowed(
            changes, policy_name=views.name, guest=guest, lost=lost, gaps=new_gaps
        )
        self._front.outputs.card(card)


def _lasting(fields: Mapping[str, str], before: Policy, *, wrapped: bool) -> dict[str, str]:
    """Return what a guest that got more locks for these fields can still do, by field.

    ``before`` is the policy until now. ``wrapped`` says that what guests see was decided when their
    zygote was started, so names that they saw before stay visible.
    """
    remaining = {}
    for name in fields:
        # The relay ends connections to listed hosts. Any others stay open.
        ends = name == "network_access" and before.network_access is not True
        holes = [ROWS[name].stays] if ROWS[name].stays and not ends else []
        holes += [_NAMES_REMAIN] if wrapped and name in _FIELDS_OF_FOLDERS else []
        if holes:
            remaining[name] = "; ".join(holes)
    return remaining
