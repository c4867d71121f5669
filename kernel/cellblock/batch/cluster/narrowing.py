"""A notebook's own policy on a cluster (promise P8).

The client finds out what it is, as a run without a cluster does, and sends it with its hash. A
worker takes it if it has that hash, allows no more than the run's policy, and a guest keeps it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.batch.cluster.protocol import NarrowedPolicy
from cellblock.batch.notebook import UnreadableError
from cellblock.batch.run.notebook import read
from cellblock.batch.run.pools import PolicyPools
from cellblock.errors import BackendError, PolicyError
from cellblock.policy import load
from cellblock.policy import paths as placing
from cellblock.policy.enforcement import Status
from cellblock.policy.narrow_requests import NOTEBOOK_TABLE, asked_of, of_notebook
from cellblock.policy.narrowing import check_narrower
from cellblock.policy.paths import Places

if TYPE_CHECKING:
    from cellblock.api.sandbox import AsyncSandboxPool
    from cellblock.batch.run.execution import Job
    from cellblock.batch.run.notebook import Notebook
    from cellblock.host.session.config import SessionConfig
    from cellblock.policy.enforcement import Gap
    from cellblock.policy.model import Policy

#: A worker on which anything that the policy asks for has one of these statuses is refused.
_NOT_ENFORCED: Final = (Status.unenforced, Status.unavailable)
_FILE: Final = "the notebook's policy"
#: One of these is in every notebook that asks for a policy: the key, or a character of it escaped.
_SIGNS: Final = (f'"{NOTEBOOK_TABLE}"'.encode(), b"\\u")


# --- in the client --------------------------------------------------------------------------------


async def narrowed_policy(job: Job, policy: Policy) -> NarrowedPolicy | None:
    """Return the run's policy as a notebook narrows it; None where it asks for nothing.

    Raise PolicyError, also where it asks for more. A notebook that can't be read is left to the
    worker to report.
    """
    if not any(sign in job.content for sign in _SIGNS):
        return None
    return await asyncio.to_thread(_narrowed_policy, job, policy)


def _narrowed_policy(job: Job, policy: Policy) -> NarrowedPolicy | None:
    try:
        notebook = read(job.content)
    except UnreadableError:
        return None
    whole = {"metadata": notebook.metadata}
    if asked_of(whole) is None or not notebook.is_python:
        return None
    narrowed = of_notebook(whole, policy, file=job.file, project=Path.cwd())
    return NarrowedPolicy(policy=narrowed.as_dict(), digest=narrowed.digest())


# --- in a worker ----------------------------------------------------------------------------------


def accept_narrowed(narrowed: NarrowedPolicy, offered: Policy, config: SessionConfig) -> Policy:
    """Return a policy narrower than the ``offered`` one, placed where that holds.

    What the worker denies is denied, and logs are kept as the worker keeps them. Raise
    CellblockError for a policy that does not have its hash, that allows more, there or here, or
    whose folders are not here.
    """
    policy = load.of_fields(narrowed.policy, file=_FILE)
    if policy.digest() != narrowed.digest:
        raise BackendError("the notebook's policy that arrived is not the one that its hash is of")
    check_narrower(offered, policy, file=_FILE)
    mine = config.policy
    denied = tuple(dict.fromkeys((*policy.read_deny_paths, *mine.read_deny_paths)))
    places = Places(_FILE, config.project, config.project, config.scratch)
    here = placing.placed(policy.replace(read_deny_paths=denied, audit=mine.audit), places)
    check_narrower(mine, here, file=_FILE)
    return here


class SentPolicyPools(PolicyPools):
    """`PolicyPools` of a worker, to which the policies of notebooks are sent."""

    async def policy_of(self, notebook: Notebook, job: Job) -> Policy:
        """Return the policy that was sent with a notebook. Raise PolicyError if it has none."""
        if job.policy is not None:
            return job.policy
        if asked_of({"metadata": notebook.metadata}) is None:
            return self.operators.ground.policy
        what, remedy = "asks for a policy, and none was sent with it", "Report this."
        key = f"metadata.{NOTEBOOK_TABLE}"
        raise PolicyError(what, file=str(job.file), key=key, value="", remedy=remedy)

    async def _open(self, pool: AsyncSandboxPool) -> None:
        """Open a pool, and check with a guest that its policy is kept. Raise CellblockError."""
        if pool.is_open:
            return
        await pool.open()
        try:
            check_enforced(*await backend_and_gaps(pool))
        except BaseException:
            await pool.close()
            raise


async def backend_and_gaps(pool: AsyncSandboxPool) -> tuple[str, tuple[Gap, ...]]:
    """Return the backend of a pool's guests, and what it does not enforce."""
    async with pool.sandbox() as sandbox:
        return sandbox.backend, sandbox.gaps


def check_enforced(backend: str, gaps: tuple[Gap, ...]) -> None:
    """Raise BackendError where anything that the policy asks for is enforced by nothing."""
    missing = [gap for gap in gaps if gap.status in _NOT_ENFORCED]
    if missing:
        what = "; ".join(f"{gap.capability} is {gap.status}: {gap.actual}" for gap in missing)
        raise BackendError(f"backend {backend} can't enforce the policy here: {what}")
