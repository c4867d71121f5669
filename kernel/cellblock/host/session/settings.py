"""What a session takes from a policy: settings, tools, and what of it is enforced here."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from cellblock.host.services.tools.calls import (
    CallLimits,
    DenyAll,
    LlmAccess,
    Tooling,
    WorkerSettings,
)
from cellblock.host.session.history import default_path
from cellblock.host.session.limits import Bounds
from cellblock.policy.enforcement import Gap, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.backends.probes import Proof
    from cellblock.host.cell.cell import Station
    from cellblock.host.cell.status import Views
    from cellblock.host.services.operations.provider import OperationsAccess
    from cellblock.host.services.tools.calls import Approval, Source
    from cellblock.host.session.config import Ground
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport, Tool

    Given = Callable[[Policy], Source]
    from collections.abc import Iterable, Mapping

    from cellblock.backends.choose import Chosen
    from cellblock.policy.enforcement import Enforcement


def bounds_of(ground: Ground) -> Bounds:
    """Return what the host holds a guest to."""
    policy = ground.policy
    return Bounds(
        cpu_seconds=policy.cpu_seconds,
        memory_max_bytes=policy.memory_max_bytes,
        scratch_max_bytes=policy.scratch_max_bytes,
        scratch=ground.told.scratch,
        processes=policy.subprocess_execution,
    )


def addresses_of(ground: Ground) -> tuple[str, ...]:
    """Return what a relay connects to; nothing where none is in force."""
    listed = ground.policy.network_access
    return listed if ground.told.plan.relayed and isinstance(listed, tuple) else ()


def proofs_of(ground: Ground) -> Callable[[LockReport], Proof | None]:
    """Return what finds a proof for this session, once it is known what its guests have locked."""

    def find(report: LockReport) -> Proof | None:
        folder = default_path().parent
        if not os.path.exists(folder / "proofs.json"):  # noqa: PTH110 - never raises
            return None
        from cellblock.host import probes  # noqa: PLC0415 - where there are any

        backend, scratch = ground.chosen.backend, Path(ground.told.scratch)
        folders: Any = {"project": ground.project, "scratch": scratch}
        with contextlib.suppress(OSError):  # what wraps the zygote is gone, say
            wanted = probes.key(ground.policy, backend, report, **folders)
            found = probes.Proofs(folder).find(wanted)
            return found if found is not None and probes.is_whole(found, ground.policy) else None
        return None

    return find


# What cells of a session may call: from a policy, and from the program that has them run.


def tooling_of(ground: Ground, station: Station, given: Given | None = None) -> Tooling:
    """Return what a session is told of what cells may call.

    ``given`` makes a source of tools besides the policy's. ``station`` has who is asked about
    calls, if anybody, and shows what is left of budgets.
    """
    policy, views = ground.policy, station.views
    return Tooling(
        settings=_tools(policy),
        given=None if given is None else lambda: given(policy),
        operations=_offer(ground, views),
        models=_models(policy, views) if policy.llm.granted else None,
        limits=_limits(policy),
        observe=station.audit.called,
        unlisted=station.audit.refused_more,
        barred=station.audit.barred,
        approval=_approval(policy, station),
    )


def _approval(policy: Policy, station: Station) -> Approval | None:
    """Return who decides about calls. Where the policy has users asked, and none can be: nobody."""
    decides = station.approval or station.clerk
    return DenyAll() if decides is None and policy.approvals != "never" else decides


def narrowed(tooling: Tooling, ground: Ground) -> Tooling:
    """Return the same for a narrower policy; what was spent of budgets stays on their accounts."""
    policy, offer = ground.policy, tooling.operations
    if offer is not None and ground.operations is not None:
        offer = structs.replace(offer, settings=ground.operations, timeout=policy.tool_timeout)
    settings, limits = _tools(policy), _limits(policy)
    return structs.replace(tooling, settings=settings, operations=offer, limits=limits)


def _limits(policy: Policy) -> CallLimits:
    return CallLimits(
        in_flight=policy.tool_max_in_flight,
        calls=policy.tool_max_calls,
        rate=policy.tool_max_per_second,
        max_bytes=policy.tool_max_bytes,
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
    )


def own_tools(policy: Policy) -> tuple[Tool, ...]:
    """Return what the host has of its own for cells to call: operations, language models."""
    found: tuple[Tool, ...] = ()
    if policy.operations is not None:
        from cellblock.host.services.operations import catalog  # noqa: PLC0415 - most policies grant none

        found += catalog.granted_tools(policy.operations)
    if policy.llm.granted:
        from cellblock.host.services.llm import provider  # noqa: PLC0415 - as above

        found += provider.tools(policy.llm)
    return found


def _tools(policy: Policy) -> WorkerSettings | None:
    """Return what the worker of the operator's tools is told; None where there are none."""
    if not policy.tools:
        return None
    return WorkerSettings(
        entries=policy.tools,
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
        max_bytes=policy.tool_max_bytes,
        policy=policy.name,
    )


def _offer(ground: Ground, views: Views) -> OperationsAccess | None:
    """Return which operations there are for cells; None where the policy grants none."""
    policy, section = ground.policy, ground.policy.operations
    if section is None or ground.operations is None:
        return None
    from cellblock.host.services.operations import catalog, provider  # noqa: PLC0415 - as above

    written = section.write_file
    ledger = provider.WriteQuota(max_bytes=written.max_total_bytes if written is not None else 0)
    if written is not None:
        views.budgets[catalog.WRITE_FILE.name] = ledger.spent
    return provider.OperationsAccess(
        tools=catalog.granted_tools(section),
        settings=ground.operations,
        ledger=ledger,
        timeout=policy.tool_timeout,
        packages=policy.packages,
        policy=policy.name,
    )


def _models(policy: Policy, views: Views) -> LlmAccess:
    from cellblock.host.services.llm.provider import LlmQuota  # noqa: PLC0415 - as above

    llm = policy.llm
    quota = LlmQuota(max_calls=llm.max_calls, max_tokens=llm.max_tokens)
    views.budgets["llm"] = quota.spent
    return LlmAccess(llm=llm, quota=quota)


# What a policy is worth in a guest that has told what it locked.


@dataclass(frozen=True, slots=True)
class Judged:
    """``proved`` is when a suite of probes saw what is verified; empty where it did not.

    ``fatal`` are the gaps with which nothing may run.
    """

    enforcement: Mapping[str, Enforcement]
    gaps: tuple[Gap, ...]
    fatal: tuple[Gap, ...]
    proved: str

    @property
    def refusal(self) -> str:
        """Why nothing may run, or nothing."""
        return "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in self.fatal)


#: What more locks do not reach in a guest that runs, by field.
_FILES: Final = "files that were open before stay open"
_LASTING: Final = {
    "filesystem_read_roots": _FILES,
    "filesystem_write_roots": _FILES,
    "read_deny_paths": _FILES,
    "network_access": "connections that were open before may stay open",
    "max_open_files": _FILES,
}
_NAMES: Final = "names that were seen before can still be looked up"
_NAMED: Final = ("filesystem_read_roots", "read_deny_paths")
_REMEDY: Final = "begin with a new guest: %policy narrow --fresh …, which costs the variables"


def lasting(fields: Iterable[str], *, seen: bool) -> dict[str, str]:
    """Return what a guest that got more locks for these fields still has, by field.

    ``seen`` says that what guests see was decided at their start.
    """
    found = {}
    for name in fields:
        holes = [_LASTING[name]] if name in _LASTING else []
        holes += [_NAMES] if seen and name in _NAMED else []
        if holes:
            found[name] = "; ".join(holes)
    return found


def with_lasting(judged: Judged, policy: Policy, lasting: Mapping[str, str]) -> Judged:
    """Return the same with what lasts of a wider policy, as holes and as gaps."""
    from cellblock.render.cards import value_words  # noqa: PLC0415 - as needed

    enforcement, gaps = dict(judged.enforcement), list(judged.gaps)
    for name, hole in lasting.items():
        each = enforcement[name]
        status = Status.partial if each.holds else each.status
        enforcement[name] = replace(each, status=status, holes=(*each.holes, hole))
        gaps.append(
            Gap(
                capability=name,
                status=status,
                asked=value_words(name, getattr(policy, name)),
                actual=each.mechanism,
                consequence=hole,
                remedy=_REMEDY,
            )
        )
    return replace(judged, enforcement=enforcement, gaps=tuple(gaps))


def judge(policy: Policy, chosen: Chosen, report: LockReport, proof: Proof | None) -> Judged:
    """Return what ``policy`` is worth behind its backend, for the locks of ``report``."""
    from cellblock.backends.report import blocking, gaps, replaced, settle  # noqa: PLC0415 - as needed

    declared = chosen.declare(policy)
    found = gaps(policy, declared, report, proof)
    return Judged(
        settle(declared, report, proof),
        (*replaced(policy, chosen), *found),
        blocking(policy, found),
        proof.time if proof is not None else "",
    )
