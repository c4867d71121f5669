"""A session on its ground: what it shows of itself, its audit log, its limits and its tools.

Whatever front there is puts itself together from these, so that a cell meets the same everywhere.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cellblock import __version__
from cellblock.errors import BackendError, PolicyError
from cellblock.host.audit import records
from cellblock.host.audit.log import Log
from cellblock.host.audit.recorder import Audit
from cellblock.host.cell.status import Views
from cellblock.host.consent.admission.admission import Gate
from cellblock.host.session.config import written
from cellblock.host.session.narrowing import PolicyScope, enter_notebook
from cellblock.host.session.session import Session
from cellblock.host.session.settings import (
    addresses_of,
    bounds_of,
    proofs_of,
    tooling_of,
)
from cellblock.policy import paths
from cellblock.policy.model import PATHS
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cellblock.host.cell.cell import Station
    from cellblock.host.guests.zygote import ZygoteSource
    from cellblock.host.services.artifacts import ArtifactCollector
    from cellblock.host.session.config import Ground
    from cellblock.host.session.settings import Given
    from cellblock.host.session.types import Reactor
    from cellblock.policy.model import Policy


def views_of(
    ground: Ground | PolicyError | BackendError, log: Callable[[str], None] | None = None
) -> Views:
    """Return what a session on ``ground`` shows of itself, or why there is none.

    ``log`` gets what is not enforced here; by default that goes to stderr.
    """
    views = Views() if log is None else Views(log)
    if isinstance(ground, PolicyError):
        views.refuse(ground)
    elif isinstance(ground, BackendError):
        views.fail(str(ground))
    else:
        proofs, operators = proofs_of(ground), ground.operators or ground.policy
        views.configured(operators, ground.chosen, proofs, str(ground.project))
        views.narrowed(ground.policy, proofs)
        views.file, views.scratch = ground.file, ground.told.scratch
        views.notice = ground.notice
    return views


def audit_of(views: Views) -> Audit:
    """Return the audit log that the policy in force asks for."""
    asked = views.in_force.audit if views.in_force is not None else None
    if asked is None or not asked.log:
        return Audit()
    log = Log(Path(asked.folder), max_bytes=asked.max_bytes, fsync=asked.fsync)
    return Audit(log, required=asked.required, sources=asked.sources)


def enter_start(ground: Ground, station: Station) -> None:
    """Enter in the audit log that ``station`` begins, whether or not cells may run there yet."""
    scratch = Path(ground.told.scratch)
    unplaced = paths.unplaced(ground.operators or ground.policy, scratch)
    _enter_start(station.audit, unplaced, station.views.backend, ground.project)
    enter_notebook(ground, station.audit)


def found(
    ground: Ground,
    reactor: Reactor,
    station: Station,
    zygotes: ZygoteSource,
    given: Given | None = None,
) -> Session:
    """Return the session of ``station``, whose start is on the audit log; start it when heard.

    ``given`` makes a source of tools besides the policy's.
    """
    policy = ground.policy
    gate = Gate(policy, ground.project, station.audit.in_force)
    station.views.templates_in_force = gate.templates
    tooling = tooling_of(ground, station, given)
    return Session(
        reactor,
        station,
        policy.rules(),
        prepare=ground.told,
        timeout=policy.timeout,
        bounds=bounds_of(ground),
        clock=time.monotonic,
        zygotes=zygotes,
        audit=station.audit,
        gate=gate,
        policy=policy,
        tools=tooling,
        addresses=addresses_of(ground),
        scope=PolicyScope(ground, station, tooling),
        clerk=station.clerk,
    )


def exports_of(ground: Ground, reactor: Reactor, session: Session) -> ArtifactCollector | None:
    """Return what copies files out after cells; None where the policy names none."""
    policy = ground.policy
    if not policy.artifact_export_paths:
        return None
    from cellblock.host.services.artifacts import (  # noqa: PLC0415 - as above
        ArtifactCollector,
        Patterns,
        rooted,
    )

    return ArtifactCollector(
        reactor,
        written(policy),
        Patterns(rooted(one, ground.told.cwd) for one in policy.artifact_export_paths),
        policy.artifact_folder,
        most=policy.artifact_max_bytes,
        most_in_all=policy.artifacts_max_bytes,
        opener=session.open_folder,
    )


def _enter_start(audit: Audit, policy: Policy, backend: str, project: Path) -> None:
    system = os.uname()
    audit.enter(
        records.SessionStart(
            cellblock=__version__,
            python=".".join(map(str, sys.version_info[:3])),
            os_kernel=f"{system.sysname} {system.release}",
            uid=os.getuid(),
            pid=os.getpid(),
            project=records.whole(str(project)),
            policy=policy.name,
            digest=policy.digest(),
            mode=policy.mode,
            backend=backend,
            asked=policy.backend,
            admission=policy.admission,
            approvals=policy.approvals,
        )
    )


# What of a ground is one guest's own, where several share a zygote.


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
