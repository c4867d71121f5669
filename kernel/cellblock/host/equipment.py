"""What cells of a session may call: from a policy, and from the program that has them run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cellblock.host.tools import Limits, Models, Tooling
from cellblock.host.tools.approval import Nobody

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.cells.station import Station
    from cellblock.host.cells.views import Views
    from cellblock.host.groundwork import Ground
    from cellblock.host.ops.provider import Offer
    from cellblock.host.tools.approval import Approval
    from cellblock.host.tools.provider import Source
    from cellblock.host.tools.settings import Settings
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import Tool

    Given = Callable[[Policy], Source]


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
    return Nobody() if decides is None and policy.approvals != "never" else decides


def narrowed(tooling: Tooling, ground: Ground) -> Tooling:
    """Return the same for a narrower policy; what was spent of budgets stays on their accounts."""
    policy, offer = ground.policy, tooling.operations
    if offer is not None and ground.operations is not None:
        offer = replace(offer, settings=ground.operations, timeout=policy.tool_timeout)
    settings, limits = _tools(policy), _limits(policy)
    return replace(tooling, settings=settings, operations=offer, limits=limits)


def _limits(policy: Policy) -> Limits:
    return Limits(
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
        from cellblock.host.ops import catalog  # noqa: PLC0415 - most policies grant none

        found += catalog.granted(policy.operations)
    if policy.llm.granted:
        from cellblock.host.llm import offer  # noqa: PLC0415 - as above

        found += offer.tools(policy.llm)
    return found


def _tools(policy: Policy) -> Settings | None:
    """Return what the worker of the operator's tools is told; None where there are none."""
    if not policy.tools:
        return None
    from cellblock.host.tools.settings import Settings as Made  # noqa: PLC0415 - few have any

    return Made(
        entries=policy.tools,
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
        max_bytes=policy.tool_max_bytes,
        policy=policy.name,
    )


def _offer(ground: Ground, views: Views) -> Offer | None:
    """Return which operations there are for cells; None where the policy grants none."""
    policy, section = ground.policy, ground.policy.operations
    if section is None or ground.operations is None:
        return None
    from cellblock.host.ops import catalog  # noqa: PLC0415 - as above
    from cellblock.host.ops.ledger import Ledger  # noqa: PLC0415 - as above
    from cellblock.host.ops.provider import Offer as Made  # noqa: PLC0415 - as above

    written = section.write_file
    ledger = Ledger(max_bytes=written.max_total_bytes if written is not None else 0)
    if written is not None:
        views.budgets[catalog.WRITE_FILE.name] = ledger.spent
    return Made(
        tools=catalog.granted(section),
        settings=ground.operations,
        ledger=ledger,
        timeout=policy.tool_timeout,
        packages=policy.packages,
        policy=policy.name,
    )


def _models(policy: Policy, views: Views) -> Models:
    from cellblock.host.llm.ledger import Ledger  # noqa: PLC0415 - as above

    llm = policy.llm
    ledger = Ledger(max_calls=llm.max_calls, max_tokens=llm.max_tokens)
    views.budgets["llm"] = ledger.spent
    return Models(section=llm, ledger=ledger)
