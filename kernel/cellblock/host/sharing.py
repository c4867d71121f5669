"""What of a ground is one guest's own, where several share a zygote."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cellblock.policy.model import PATHS
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cellblock.host.groundwork import Ground
    from cellblock.policy.model import Policy


def placed(
    ground: Ground, folder: Path, *, inputs: dict[str, str], cwd: str | None = None
) -> Ground:
    """Return a ground for guests that share its zygote and have ``folder`` for themselves.

    That lies in the scratch folder, and stands in its place; ``cwd`` in that of the folder that
    cells run in.
    """
    told = ground.told

    def moved(path: str) -> str:
        inside = within(path, told.scratch)
        return f"{folder}{path.removeprefix(told.scratch)}" if inside else path

    def all_moved(paths: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(moved, paths))

    plan = replace(
        told.plan,
        read_roots=all_moved(told.plan.read_roots),
        write_roots=all_moved(told.plan.write_roots),
    )
    own = replace(
        told,
        ipython_dir=moved(told.ipython_dir),
        scratch=str(folder),
        cwd=cwd or moved(told.cwd),
        environment={name: moved(value) for name, value in told.environment.items()},
        plan=plan,
        inputs=inputs,
    )

    def all_placed(policy: Policy) -> Policy:
        paths: dict[str, Any] = {
            field: all_moved(getattr(policy, field)) for field in (*PATHS, "artifact_export_paths")
        }
        return policy.replace(**paths)

    operators = None if ground.operators is None else all_placed(ground.operators)
    return dataclasses.replace(
        ground, policy=all_placed(ground.policy), operators=operators, told=own
    )


def shareable(ground: Ground) -> bool:
    """Say whether guests of one zygote are kept apart: by Landlock, or by nothing at all.

    A container's bounds are for one guest, and its scratch folder is nowhere outside.
    """
    locks = ground.told.plan.locks
    return not locks or ("landlock" in locks and "container" not in locks)
