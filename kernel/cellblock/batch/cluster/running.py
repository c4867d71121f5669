"""``cellblock run --cluster``: the same run, by workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock import __version__
from cellblock.batch.cluster.crew import Workers
from cellblock.batch.cluster.roll import ClusterError
from cellblock.batch.cluster.speech import Offer
from cellblock.batch.run import apart
from cellblock.batch.run.runner import Run
from cellblock.policy import load
from cellblock.policy.model import Policy

if TYPE_CHECKING:
    from cellblock.batch.run.folder import OutputFolder
    from cellblock.batch.run.runner import Listener, Order, Ran


def run(order: Order, folder: OutputFolder, listener: Listener, address: str) -> Ran:
    """Run the notebooks on the cluster of that scheduler. Raises CellblockError."""
    return asyncio.run(_there(order, folder, listener, address))


async def _there(order: Order, folder: OutputFolder, listener: Listener, address: str) -> Ran:
    made = Run(order, folder, listener)
    with made.heeding_signals():
        policy = _policy(order)
        apart.check(order, folder, policy.filesystem_write_roots)
        workers = Workers(address, _offer(policy, order), policy, folder)
        made.end_with_signals(workers)  # while it waits for workers, too
        async with workers:
            workers.listen(listener.said)
            return await made.by(workers, exports=False)


def _policy(order: Order) -> Policy:
    if isinstance(order.policy, Policy):
        found = order.policy
    else:
        allowed = order.allow_unsafe
        found = load.load(order.policy, project=Path.cwd(), allow_unsafe=allowed)
    if found.artifact_export_paths:
        what = "files that cells leave are not brought home from workers"
        raise ClusterError(f"{found.name}: artifact_export_paths: {what}. Remove the entry.")
    return found


def _offer(policy: Policy, order: Order) -> Offer:
    return Offer(
        version=__version__,
        policy=policy.as_dict(),
        digest=policy.digest(),
        allow_unsafe=order.allow_unsafe,
        project=str(Path.cwd()),
    )
