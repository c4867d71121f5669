"""What a session is told of a policy, and what the policy is worth there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.host.history import default_path
from cellblock.host.monitor import Bounds
from cellblock.host.snapshots import Settings
from cellblock.host.tools import Tooling

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.backends.contract import Proof
    from cellblock.host.audit.trail import Audit
    from cellblock.jupyter.groundwork import Ground
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


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


def settings_of(policy: Policy) -> Settings:
    """Return what is kept of guests."""
    return Settings(
        mode=policy.snapshots,
        depth=policy.undo_depth,
        most_bytes=policy.undo_max_bytes,
        processes=policy.subprocess_execution,
    )


def tooling_of(policy: Policy, audit: Audit) -> Tooling | None:
    """Return what a session is told of the operator's tools; None where there are none."""
    if not policy.tools:
        return None
    from cellblock.host.tools.broker import Limits  # noqa: PLC0415 - most kernels have none
    from cellblock.host.tools.workshop import Settings as ToolSettings  # noqa: PLC0415

    settings = ToolSettings(
        entries=policy.tools,
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
        max_bytes=policy.tool_max_bytes,
        policy=policy.name,
    )
    limits = Limits(
        in_flight=policy.tool_max_in_flight,
        calls=policy.tool_max_calls,
        max_bytes=policy.tool_max_bytes,
    )
    return Tooling(settings, limits, audit.called)


def proofs_of(ground: Ground) -> Callable[[LockReport], Proof | None]:
    """Return what finds a proof for this kernel, once it is known what its guests have locked."""

    def find(report: LockReport) -> Proof | None:
        folder = default_path().parent
        if not os.path.exists(folder / "proofs.json"):  # noqa: PTH110 - never raises
            return None
        from cellblock.host import proofs  # noqa: PLC0415 - where there are any

        backend, scratch = ground.chosen.backend, Path(ground.told.scratch)
        folders: Any = {"project": ground.project, "scratch": scratch}
        with contextlib.suppress(OSError):  # what wraps the zygote is gone, say
            wanted = proofs.key(ground.policy, backend, report, **folders)
            found = proofs.Proofs(folder).find(wanted)
            return found if found is not None and proofs.is_whole(found, ground.policy) else None
        return None

    return find
