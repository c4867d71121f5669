"""What a session is told of a policy, and what the policy is worth there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.host.history import default_path
from cellblock.host.keeping import Settings
from cellblock.host.monitor import Bounds, slack

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.backends.contract import Proof
    from cellblock.host.groundwork import Ground
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
    memory = policy.memory_max_bytes
    return Settings(
        mode=policy.snapshots,
        depth=policy.undo_depth,
        most_bytes=policy.undo_max_bytes,
        processes=policy.subprocess_execution,
        most_grown=None if memory is None else slack(memory),
    )


def proofs_of(ground: Ground) -> Callable[[LockReport], Proof | None]:
    """Return what finds a proof for this session, once it is known what its guests have locked."""

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
